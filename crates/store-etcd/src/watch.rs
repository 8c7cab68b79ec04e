//! A watch: one stream of etcd at a time, opened again after the last whole revision when it is lost.
//!
//! Every watch follows the whole folder, and picks its own keys out here: so a write anywhere in the
//! folder tells each watch how far it has come. Only writes outside of it leave a watch behind; then
//! it asks etcd for its progress. Members older than 3.4.25 or 3.5.8 may answer that question ahead
//! of events that are still under way (etcd's issue 15220): there the watch writes a marker key
//! instead, whose event comes after all others.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::unfold;
use futures_util::{Stream, StreamExt};
use keelson_store::{
    BATCH_BYTES_MAX, BATCH_EVENTS_MAX, Batch, BoxFuture, Event, Revision, Watch, WatchError,
    WatchPlace,
};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tonic::{Status, Streaming};

use crate::client::{PUT, STATUS, WATCH, line, stream, unary};
use crate::keys::Keys;
use crate::proto::{
    self, HeaderResponse, PutRequest, StatusRequest, StatusResponse, WatchAsk, WatchCreate,
    WatchProgress, WatchRequest, WatchResponse,
};
use crate::shared::{DECODES_MAX, Shared, number, revision};
use crate::values::OwnValues;

/// Batches that wait for their reader, beside those that are made; then etcd has to wait, through
/// HTTP/2's flow control.
const BATCHES_MAX: usize = 1;
/// Questions that wait to be sent on a stream.
const ASKS_MAX: usize = 4;
/// Between two attempts to open a stream, at first and at most.
const REOPEN_DELAY: Duration = Duration::from_millis(20);
const REOPEN_DELAY_MAX: Duration = Duration::from_secs(1);
/// How long opening a stream may take.
const OPEN_TIME_MAX: Duration = Duration::from_secs(5);
/// How long a stream that is behind may bring nothing at all, though it was asked how far it is.
const SILENCE_TIME_MAX: Duration = Duration::from_secs(30);

/// A watch in progress.
pub(crate) struct EtcdWatch {
    shared: Arc<Shared>,
    batches: mpsc::Receiver<Result<Batch, WatchError>>,
    through: Revision,
    feed: JoinHandle<()>,
    _place: WatchPlace,
}

impl EtcdWatch {
    pub(crate) fn start(
        runtime: &Handle,
        shared: &Arc<Shared>,
        prefix: Bytes,
        after: Revision,
        place: WatchPlace,
    ) -> Self {
        let (out, batches) = mpsc::channel(BATCHES_MAX);
        let feed = Feed { shared: Arc::clone(shared), prefix, through: after, out };
        let feed = runtime.spawn(feed.run());
        Self { shared: Arc::clone(shared), batches, through: after, feed, _place: place }
    }
}

impl Drop for EtcdWatch {
    fn drop(&mut self) {
        self.feed.abort();
    }
}

impl Watch for EtcdWatch {
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, WatchError>> {
        Box::pin(async move {
            let batch = self.batches.recv().await.unwrap_or(Err(WatchError::Closed))?;
            let floor = self.shared.floor();
            // What waited here while compaction passed it came from a reader too slow.
            if batch.events.first().is_some_and(|event| event.revision <= floor) {
                self.batches.close();
                return Err(WatchError::Compacted { asked: self.through, floor });
            }
            self.through = batch.through;
            Ok(batch)
        })
    }
}

/// Why a stream ended.
enum End {
    /// The connection, the member or its leader was lost: open another one.
    Lost(Status),
    /// The watch cannot go on.
    Final(WatchError),
    /// Nobody reads any more.
    Dropped,
}

impl From<Status> for End {
    fn from(error: Status) -> Self {
        Self::Lost(error)
    }
}

/// The task behind a watch.
struct Feed {
    shared: Arc<Shared>,
    prefix: Bytes,
    /// Everything up to here has been handed over.
    through: Revision,
    out: mpsc::Sender<Result<Batch, WatchError>>,
}

impl Feed {
    async fn run(mut self) {
        let mut delay = REOPEN_DELAY;
        loop {
            let (number, before) = (self.shared.client.member().0, self.through);
            match self.follow().await {
                End::Dropped => return,
                End::Final(error) => {
                    let _ = self.out.send(Err(error)).await;
                    return;
                }
                End::Lost(error) => {
                    tracing::warn!(why = line(&error), through = %self.through, "a watch of etcd was lost and goes on");
                    let _ = self.shared.heard::<()>(Err(error));
                    self.shared.client.leave(number);
                    delay = if self.through > before { REOPEN_DELAY } else { delay * 2 };
                    delay = delay.min(REOPEN_DELAY_MAX);
                    sleep(delay).await;
                }
            }
        }
    }

    /// Follows one stream to its end.
    async fn follow(&mut self) -> End {
        let opening = tokio::time::timeout(OPEN_TIME_MAX, self.open());
        let opened = opening.await.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer")));
        let (answers, progress) = match opened {
            Ok(opened) => opened,
            Err(error) => return error.into(),
        };
        let _ = self.shared.heard(Ok(()));
        self.hand_over(answers, progress).await
    }

    /// Hands over what a stream brings, until it ends or is silent for too long.
    async fn hand_over(
        &mut self,
        mut answers: impl Stream<Item = Result<WatchResponse, Status>> + Unpin,
        mut progress: Progress,
    ) -> End {
        let mut newest = self.shared.newest.subscribe();
        // Events of a response that comes in fragments.
        let mut events = Vec::new();
        loop {
            let (through, patience) = (self.through, self.shared.progress_after);
            let behind = async {
                let _ = newest.wait_for(|newest| *newest > through.0).await;
                sleep(patience).await;
            };
            let answer = tokio::select! {
                answer = answers.next() => answer,
                () = behind => {
                    if let Err(error) = progress.ask(&self.shared, through).await {
                        return error.into();
                    }
                    continue;
                }
            };
            progress.asked = None;
            let done = match answer {
                Some(Ok(answer)) => self.take(answer, &mut events).await,
                Some(Err(error)) => Err(error.into()),
                None => Err(Status::unavailable("etcd closed the watch").into()),
            };
            if let Err(end) = done {
                return end;
            }
        }
    }

    async fn open(&self) -> Result<(Streaming<WatchResponse>, Progress), Status> {
        let (_, mut member) = self.shared.client.member();
        let status: StatusResponse = unary(&mut member, STATUS, StatusRequest {}).await?;
        let (key, range_end) = self.shared.keys.whole();
        let start_revision = number(self.through.next());
        let create = WatchCreate {
            key,
            range_end,
            start_revision,
            progress_notify: true,
            prev_kv: true,
            fragment: true,
        };
        let (asks, queue) = mpsc::channel::<WatchRequest>(ASKS_MAX);
        // The queue is empty and has a place.
        let _ = asks.try_send(WatchAsk::Create(create).into());
        let asked = unfold(queue, async |mut queue| queue.recv().await.map(|ask| (ask, queue)));
        let answers = stream(&mut member, WATCH, Box::pin(asked)).await?;
        let is_exact = tells_progress(&status.version);
        Ok((answers, Progress { asks, is_exact, marked: Revision(0), asked: None }))
    }

    /// Hands over what a response brings, once it is whole.
    async fn take(
        &mut self,
        answer: WatchResponse,
        events: &mut Vec<proto::Event>,
    ) -> Result<(), End> {
        if answer.canceled {
            let compacted = revision(answer.compact_revision);
            if compacted == Revision(0) {
                return Err(Status::unavailable(answer.cancel_reason).into());
            }
            self.shared.raise_floor(compacted);
            return Err(End::Final(self.compacted()));
        }
        events.extend(answer.events);
        if answer.created || answer.fragment {
            return Ok(());
        }
        let batches = if events.is_empty() {
            let through = revision(answer.header.unwrap_or_default().revision);
            vec![Batch { events: vec![], through }]
        } else {
            let events = std::mem::take(events);
            split(&self.shared.keys, &self.shared.values, &self.prefix, events)
                .await
                .ok_or_else(|| End::Final(self.compacted()))?
        };
        for batch in batches {
            if batch.through <= self.through {
                continue;
            }
            let header = proto::Header { revision: number(batch.through) };
            self.through = self.shared.saw(Some(header));
            self.out.send(Ok(batch)).await.map_err(|_| End::Dropped)?;
        }
        Ok(())
    }

    fn compacted(&self) -> WatchError {
        WatchError::Compacted { asked: self.through, floor: self.shared.floor() }
    }
}

/// How a stream learns that nothing is under way to it.
struct Progress {
    asks: mpsc::Sender<WatchRequest>,
    /// Whether the member's answer is exact.
    is_exact: bool,
    /// The revision of the last marker.
    marked: Revision,
    /// When the first question was asked since the stream brought something.
    asked: Option<Instant>,
}

impl Progress {
    async fn ask(&mut self, shared: &Shared, through: Revision) -> Result<(), Status> {
        // A connection can be alive and a stream on it dead.
        if self.asked.get_or_insert_with(Instant::now).elapsed() >= SILENCE_TIME_MAX {
            return Err(Status::deadline_exceeded("etcd does not go on with the watch"));
        }
        if self.is_exact {
            // A full queue holds the same question.
            let _ = self.asks.try_send(WatchAsk::Progress(WatchProgress {}).into());
        } else if self.marked <= through {
            let put = PutRequest { key: shared.keys.marker(), value: Bytes::new(), lease: 0 };
            let answer: HeaderResponse = shared.client.write(PUT, put).await?;
            self.marked = shared.saw(answer.header);
        }
        Ok(())
    }
}

/// Whether a member of this version answers a question for progress after all earlier events.
fn tells_progress(version: &str) -> bool {
    let numbers = version.split(['.', '-', '+']).map_while(|part| part.parse::<u32>().ok());
    let numbers: Vec<_> = numbers.take(3).collect();
    match numbers[..] {
        [3, 4, patch] => patch >= 25,
        [3, 5, patch] => patch >= 8,
        [major, minor, _] => (major, minor) > (3, 5),
        _ => false,
    }
}

/// Events of whole revisions as batches for a watch of `prefix`; `None` when compaction has taken
/// what a deletion deleted.
async fn split(
    keys: &Keys,
    values: &OwnValues,
    prefix: &[u8],
    events: Vec<proto::Event>,
) -> Option<Vec<Batch>> {
    let mut batches = Vec::new();
    let mut batch = Batch { events: Vec::new(), through: Revision(0) };
    let mut bytes = 0;
    for (number, event) in events.into_iter().enumerate() {
        if number % DECODES_MAX == DECODES_MAX - 1 {
            tokio::task::yield_now().await;
        }
        let kv = event.kv?;
        let at = revision(kv.mod_revision);
        let is_full = batch.events.len() >= BATCH_EVENTS_MAX || bytes >= BATCH_BYTES_MAX;
        if is_full && at > batch.through {
            let next = Batch { events: Vec::new(), through: at };
            batches.push(std::mem::replace(&mut batch, next));
            bytes = 0;
        }
        batch.through = at;
        let Some(key) = keys.to_contract(&kv.key).filter(|key| key.starts_with(prefix)) else {
            continue;
        };
        let is_put = event.kind == 0;
        let created = if is_put { kv.create_revision } else { event.prev_kv?.create_revision };
        let value = is_put.then(|| values.decode_event(&key, kv.value));
        bytes += value.as_ref().map_or(0, Bytes::len);
        batch.events.push(Event { key, value, revision: at, created: revision(created) });
    }
    batches.push(batch);
    Some(batches)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;
    use crate::options::{EtcdOptions, EtcdTls};
    use crate::values::SameValues;
    use futures_util::stream::{iter, pending};
    use tokio::time::timeout;

    #[test]
    fn old_members_do_not_tell_progress() {
        let exact =
            ["3.4.25", "3.4.30", "3.5.8", "3.5.21", "3.6.0", "3.6.0-rc.1", "3.7.2", "4.0.0"];
        let old = ["3.4.23", "3.5.7", "3.3.99", "3.5", "", "not decided"];
        assert!(exact.into_iter().all(tells_progress));
        assert!(!old.into_iter().any(tells_progress));
    }

    fn put(key: &str, at: i64) -> proto::Event {
        let kv = proto::KeyValue {
            key: key.to_owned().into(),
            create_revision: at,
            mod_revision: at,
            version: 1,
            value: "v".into(),
        };
        proto::Event { kind: 0, kv: Some(kv), prev_kv: None }
    }

    /// A watch after revision 5 of a cluster that nobody has to reach.
    fn feed() -> (Feed, mpsc::Receiver<Result<Batch, WatchError>>) {
        let url = "http://127.0.0.1:1".to_owned();
        let client = Client::new(std::slice::from_ref(&url), &EtcdTls::default()).expect("a URL");
        let shared = Shared::new(client, EtcdOptions::new(vec![url]), Revision(5), Revision(5));
        let (out, batches) = mpsc::channel(BATCHES_MAX);
        let prefix = Bytes::from_static(b"/registry/");
        (Feed { shared: Arc::new(shared), prefix, through: Revision(5), out }, batches)
    }

    fn progress() -> (Progress, mpsc::Receiver<WatchRequest>) {
        let (asks, asked) = mpsc::channel(ASKS_MAX);
        (Progress { asks, is_exact: true, marked: Revision(0), asked: None }, asked)
    }

    fn at(revision: i64) -> WatchResponse {
        let header = Some(proto::Header { revision });
        WatchResponse { header, ..WatchResponse::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_is_behind_and_says_nothing_is_given_up() {
        let (mut feed, mut batches) = feed();
        let (progress, mut asked) = progress();
        feed.shared.saw(at(9).header);
        let began = Instant::now();
        // One answer on the way is no end of the waiting.
        let answers = iter([Ok(at(7))]).chain(pending());
        let end = feed.hand_over(answers, progress).await;
        assert!(matches!(&end, End::Lost(why) if why.message().contains("does not go on")));
        assert!((SILENCE_TIME_MAX..SILENCE_TIME_MAX * 2).contains(&began.elapsed()));
        assert_eq!(batches.recv().await.expect("a batch").expect("whole").through, Revision(7));
        assert!(asked.recv().await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_is_not_behind_may_say_nothing() {
        let (mut feed, _batches) = feed();
        let (progress, mut asked) = progress();
        let waited = timeout(SILENCE_TIME_MAX * 10, feed.hand_over(pending(), progress)).await;
        assert!(waited.is_err() && asked.try_recv().is_err());
    }

    fn values() -> OwnValues {
        OwnValues::new(Arc::new(SameValues))
    }

    fn keys() -> Keys {
        Keys::new("/registry/".into(), "/other/".into())
    }

    #[tokio::test]
    async fn batches_end_with_whole_revisions() {
        let events =
            (0..BATCH_EVENTS_MAX as i64 + 9).map(|n| put(&format!("/other/{n}"), 5 + n / 10));
        let batches =
            split(&keys(), &values(), b"/registry/", events.collect()).await.expect("whole");
        let lens: Vec<_> = batches.iter().map(|batch| batch.events.len()).collect();
        let over = BATCH_EVENTS_MAX.next_multiple_of(10);
        assert_eq!(lens, [over, BATCH_EVENTS_MAX + 9 - over]);
        let last = batches[0].events.last().expect("events").revision;
        assert_eq!((batches[0].through, batches[1].events[0].revision), (last, last.next()));
    }

    #[tokio::test]
    async fn events_of_other_keys_only_tell_how_far_the_watch_is() {
        let events = vec![put("/other/pods/a", 5), put("/other/nodes/a", 6)];
        let batches = split(&keys(), &values(), b"/registry/pods/", events).await.expect("whole");
        assert_eq!((batches[0].events.len(), batches[0].through), (1, Revision(6)));
        assert_eq!(batches[0].events[0].key, "/registry/pods/a");
    }

    #[tokio::test]
    async fn a_deletion_without_its_object_is_never_shown() {
        let mut event = put("/other/pods/a", 5);
        event.kind = 1;
        assert_eq!(split(&keys(), &values(), b"/registry/", vec![event]).await, None);
    }
}
