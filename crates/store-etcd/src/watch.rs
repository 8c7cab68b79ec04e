//! A watch: one etcd stream at a time, which is reopened after the last complete revision if it is
//! lost.
//!
//! Every watch streams all keys of the store and filters its own keys here, so any write under the
//! store's prefix advances all watches. A watch falls behind only by writes under other prefixes;
//! then it requests its progress. Members older than 3.4.25 or 3.5.8 may send the progress before
//! events that precede it (etcd issue 15220): for these the watch writes a progress key instead,
//! whose event comes after all earlier ones.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::unfold;
use futures_util::{Stream, StreamExt};
use keelson_store::{
    BATCH_BYTES_MAX, BATCH_EVENTS_MAX, Batch, BoxFuture, Event, Revision, Watch, WatchError,
    WatchSlot,
};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tonic::{Code, Status};

use crate::calls::Responses;
use crate::client::{Caller, Left, PUT, STATUS, WATCH, error_line};
use crate::keys::Keys;
use crate::proto::{
    self, HeaderResponse, PutRequest, StatusRequest, StatusResponse, WatchCreateRequest,
    WatchProgressRequest, WatchRequest, WatchRequestUnion, WatchResponse,
};
use crate::shared::{Shared, VALUES_MAX, number, revision};

/// Most batches queued for the reader. Beyond this etcd has to wait, through HTTP/2 flow control.
const BATCHES_MAX: usize = 1;
/// Most requests queued for sending on a stream.
const REQUESTS_MAX: usize = 4;
/// First and longest delay between two attempts to open a stream.
const REOPEN_DELAY: Duration = Duration::from_millis(20);
const REOPEN_DELAY_MAX: Duration = Duration::from_secs(1);
/// Time limit for opening a stream.
const OPEN_TIME_MAX: Duration = Duration::from_secs(5);
/// How long a stream that is behind may send nothing after its progress was requested.
const SILENCE_TIME_MAX: Duration = Duration::from_secs(30);

/// A watch in progress.
pub(crate) struct EtcdWatch {
    shared: Arc<Shared>,
    batches: mpsc::Receiver<Result<Batch, WatchError>>,
    through: Revision,
    task: JoinHandle<()>,
    _slot: WatchSlot,
}

impl EtcdWatch {
    pub(crate) fn start(
        runtime: &Handle,
        shared: &Arc<Shared>,
        prefix: Bytes,
        after: Revision,
        slot: WatchSlot,
    ) -> Self {
        let (out, batches) = mpsc::channel(BATCHES_MAX);
        let task = WatchTask { shared: Arc::clone(shared), prefix, through: after, out };
        let task = runtime.spawn(task.run());
        Self { shared: Arc::clone(shared), batches, through: after, task, _slot: slot }
    }
}

impl Drop for EtcdWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watch for EtcdWatch {
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, WatchError>> {
        Box::pin(async move {
            let batch = self.batches.recv().await.unwrap_or(Err(WatchError::Closed))?;
            let floor = self.shared.floor();
            // The reader was too slow: the queued batch has been compacted meanwhile.
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
enum StreamEnd {
    /// The connection, the member or its leader was lost; the watch opens another stream.
    Lost(Status),
    /// The watch cannot continue.
    Final(WatchError),
    /// The watch was dropped.
    Dropped,
}

impl From<Status> for StreamEnd {
    fn from(error: Status) -> Self {
        Self::Lost(error)
    }
}

/// The task behind a watch.
struct WatchTask {
    shared: Arc<Shared>,
    prefix: Bytes,
    /// Everything up to this revision has been delivered.
    through: Revision,
    out: mpsc::Sender<Result<Batch, WatchError>>,
}

impl WatchTask {
    async fn run(mut self) {
        let mut delay = REOPEN_DELAY;
        loop {
            let (number, member) = self.shared.client.member();
            let silences = self.shared.client.silences(number);
            let before = self.through;
            match self.run_stream(member, silences).await {
                StreamEnd::Dropped => return,
                StreamEnd::Final(error) => {
                    let _ = self.out.send(Err(error)).await;
                    return;
                }
                StreamEnd::Lost(error) => {
                    tracing::warn!(why = error_line(&error), through = %self.through, "etcd watch lost; reopening");
                    let left = match error.code() {
                        Code::DeadlineExceeded => Left::Silent,
                        _ => Left::Failed,
                    };
                    let _ = self.shared.record_outcome::<()>(Err(error));
                    self.shared.client.leave(number, left);
                    delay = if self.through > before { REOPEN_DELAY } else { delay * 2 };
                    delay = delay.min(REOPEN_DELAY_MAX);
                    sleep(delay).await;
                }
            }
        }
    }

    /// Opens a stream and delivers its events until it ends, or its member does not answer another
    /// call.
    async fn run_stream(&mut self, member: Caller, silences: watch::Receiver<u64>) -> StreamEnd {
        let opening = tokio::time::timeout(OPEN_TIME_MAX, self.open(member));
        let opened = opening.await.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer")));
        let (responses, progress) = match opened {
            Ok(opened) => opened,
            Err(error) => return error.into(),
        };
        let _ = self.shared.record_outcome(Ok(()));
        self.deliver(responses, progress, silences).await
    }

    /// Delivers the events of a stream until it ends or is silent for too long.
    async fn deliver(
        &mut self,
        mut responses: impl Stream<Item = Result<WatchResponse, Status>> + Unpin,
        mut progress: Progress,
        mut silences: watch::Receiver<u64>,
    ) -> StreamEnd {
        let mut newest = self.shared.newest.subscribe();
        // Collects the events of a response with several fragments.
        let mut events = Vec::new();
        loop {
            let through = self.through;
            let delay = self.shared.progress_after;
            let behind = async {
                let _ = newest.wait_for(|newest| *newest > through.0).await;
                sleep(delay).await;
            };
            let response = tokio::select! {
                response = responses.next() => response,
                Ok(()) = silences.changed() => {
                    return Status::unavailable("its member does not answer").into();
                }
                () = behind => {
                    if let Err(error) = progress.request(&self.shared, through).await {
                        return error.into();
                    }
                    continue;
                }
            };
            progress.requested_at = None;
            let handled = match response {
                Some(Ok(response)) => self.handle(response, &mut events).await,
                Some(Err(error)) => Err(error.into()),
                None => Err(Status::unavailable("etcd closed the watch").into()),
            };
            if let Err(end) = handled {
                return end;
            }
        }
    }

    async fn open(
        &self,
        mut member: Caller,
    ) -> Result<(Responses<WatchResponse>, Progress), Status> {
        let status: StatusResponse = member.unary(STATUS, StatusRequest {}).await?;
        let (key, range_end) = self.shared.keys.full_range();
        let start_revision = number(self.through.next());
        let create = WatchCreateRequest {
            key,
            range_end,
            start_revision,
            progress_notify: true,
            prev_kv: true,
            fragment: true,
        };
        let (requests, queue) = mpsc::channel::<WatchRequest>(REQUESTS_MAX);
        // Cannot fail: the queue is empty.
        let _ = requests.try_send(WatchRequestUnion::Create(create).into());
        let queued = unfold(queue, async |mut queue| queue.recv().await.map(|item| (item, queue)));
        let responses = member.stream(WATCH, Box::pin(queued)).await?;
        let is_exact = has_exact_progress(&status.version);
        Ok((responses, Progress { requests, is_exact, written: Revision(0), requested_at: None }))
    }

    /// Delivers the events of a response once all its fragments have arrived.
    async fn handle(
        &mut self,
        response: WatchResponse,
        events: &mut Vec<proto::Event>,
    ) -> Result<(), StreamEnd> {
        if response.canceled {
            let compacted = revision(response.compact_revision);
            if compacted == Revision(0) {
                return Err(Status::unavailable(response.cancel_reason).into());
            }
            self.shared.raise_floor(compacted);
            return Err(StreamEnd::Final(self.compacted()));
        }
        events.extend(response.events);
        if response.created || response.fragment {
            return Ok(());
        }
        let batches = if events.is_empty() {
            let through = revision(response.header.unwrap_or_default().revision);
            vec![Batch { events: vec![], through }]
        } else {
            let events = std::mem::take(events);
            split(&self.shared.keys, &self.prefix, events)
                .await
                .ok_or_else(|| StreamEnd::Final(self.compacted()))?
        };
        for batch in batches {
            if batch.through <= self.through {
                continue;
            }
            let header = proto::Header { revision: number(batch.through) };
            self.through = self.shared.observe(Some(header));
            self.out.send(Ok(batch)).await.map_err(|_| StreamEnd::Dropped)?;
        }
        Ok(())
    }

    fn compacted(&self) -> WatchError {
        WatchError::Compacted { asked: self.through, floor: self.shared.floor() }
    }
}

/// Requests the progress of a stream: a revision up to which it has sent all events.
struct Progress {
    requests: mpsc::Sender<WatchRequest>,
    /// Whether the member sends its progress only after all earlier events.
    is_exact: bool,
    /// The revision of the last write of the progress key.
    written: Revision,
    /// When progress was first requested since the last response.
    requested_at: Option<Instant>,
}

impl Progress {
    async fn request(&mut self, shared: &Shared, through: Revision) -> Result<(), Status> {
        // A stream may be dead although its connection is alive.
        if self.requested_at.get_or_insert_with(Instant::now).elapsed() >= SILENCE_TIME_MAX {
            return Err(Status::deadline_exceeded("etcd does not go on with the watch"));
        }
        if self.is_exact {
            // If the queue is full, it has the same request already.
            let _ =
                self.requests.try_send(WatchRequestUnion::Progress(WatchProgressRequest {}).into());
        } else if self.written <= through {
            let put = PutRequest { key: shared.keys.progress_key(), value: Bytes::new(), lease: 0 };
            let response: HeaderResponse = shared.client.write(PUT, put).await?;
            self.written = shared.observe(response.header);
        }
        Ok(())
    }
}

/// Returns whether members of this version send their progress only after all earlier events.
fn has_exact_progress(version: &str) -> bool {
    let numbers: Vec<_> =
        version.split(['.', '-', '+']).map_while(|part| part.parse::<u32>().ok()).take(3).collect();
    match numbers[..] {
        [3, 4, patch] => patch >= 25,
        [3, 5, patch] => patch >= 8,
        [major, minor, _] => (major, minor) > (3, 5),
        _ => false,
    }
}

/// Splits events of whole revisions into batches for a watch of `prefix`. Returns `None` if
/// compaction has removed the previous value of a deleted key.
async fn split(keys: &Keys, prefix: &[u8], events: Vec<proto::Event>) -> Option<Vec<Batch>> {
    let mut batches = Vec::new();
    let mut batch = Batch { events: Vec::new(), through: Revision(0) };
    let mut bytes = 0;
    for (number, event) in events.into_iter().enumerate() {
        if number % VALUES_MAX == VALUES_MAX - 1 {
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
        let Some(key) = keys.to_store(&kv.key).filter(|key| key.starts_with(prefix)) else {
            continue;
        };
        let is_put = event.kind == 0;
        let created = if is_put { kv.create_revision } else { event.prev_kv?.create_revision };
        let value = is_put.then_some(kv.value);
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
    use futures_util::stream::{iter, pending};
    use tokio::time::timeout;

    #[test]
    fn old_members_have_no_exact_progress() {
        let exact =
            ["3.4.25", "3.4.30", "3.5.8", "3.5.21", "3.6.0", "3.6.0-rc.1", "3.7.2", "4.0.0"];
        let old = ["3.4.23", "3.5.7", "3.3.99", "3.5", "", "not decided"];
        assert!(exact.into_iter().all(has_exact_progress));
        assert!(!old.into_iter().any(has_exact_progress));
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

    /// Creates a watch task after revision 5, for a cluster that is never contacted.
    fn task() -> (WatchTask, mpsc::Receiver<Result<Batch, WatchError>>) {
        let url = "http://127.0.0.1:1".to_owned();
        let client =
            Client::new(std::slice::from_ref(&url), &EtcdTls::default(), None).expect("a URL");
        let shared = Shared::new(client, EtcdOptions::new(vec![url]), Revision(5), Revision(5));
        let (out, batches) = mpsc::channel(BATCHES_MAX);
        let prefix = Bytes::from_static(b"/registry/");
        (WatchTask { shared: Arc::new(shared), prefix, through: Revision(5), out }, batches)
    }

    fn progress() -> (Progress, mpsc::Receiver<WatchRequest>) {
        let (requests, queue) = mpsc::channel(REQUESTS_MAX);
        (Progress { requests, is_exact: true, written: Revision(0), requested_at: None }, queue)
    }

    fn at(revision: i64) -> WatchResponse {
        let header = Some(proto::Header { revision });
        WatchResponse { header, ..WatchResponse::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_stream_that_is_behind_is_closed() {
        let (mut task, mut batches) = task();
        let (progress, mut requests) = progress();
        task.shared.observe(at(9).header);
        let started = Instant::now();
        // One response that does not catch up does not stop the timeout.
        let responses = iter([Ok(at(7))]).chain(pending());
        let end = task.deliver(responses, progress, never_silent()).await;
        assert!(matches!(&end, StreamEnd::Lost(why) if why.message().contains("does not go on")));
        assert!((SILENCE_TIME_MAX..SILENCE_TIME_MAX * 2).contains(&started.elapsed()));
        assert_eq!(batches.recv().await.expect("a batch").expect("whole").through, Revision(7));
        assert!(requests.recv().await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_stream_that_is_not_behind_stays_open() {
        let (mut task, _batches) = task();
        let (progress, mut requests) = progress();
        let waited =
            timeout(SILENCE_TIME_MAX * 10, task.deliver(pending(), progress, never_silent())).await;
        assert!(waited.is_err() && requests.try_recv().is_err());
    }

    /// Of a member that always answers.
    fn never_silent() -> watch::Receiver<u64> {
        watch::channel(0).1
    }

    #[tokio::test]
    async fn the_stream_of_a_member_that_does_not_answer_another_call_is_closed() {
        let (mut task, _batches) = task();
        let client = task.shared.client.clone();
        let silences = client.silences(0);
        client.leave(0, Left::Silent);
        let end = task.deliver(pending(), progress().0, silences).await;
        assert!(matches!(&end, StreamEnd::Lost(why) if why.message().contains("does not answer")));
    }

    fn keys() -> Keys {
        Keys::new("/registry/".into(), "/other/".into())
    }

    #[tokio::test]
    async fn batches_never_split_a_revision() {
        let events =
            (0..BATCH_EVENTS_MAX as i64 + 9).map(|n| put(&format!("/other/{n}"), 5 + n / 10));
        let batches = split(&keys(), b"/registry/", events.collect()).await.expect("whole");
        let lens: Vec<_> = batches.iter().map(|batch| batch.events.len()).collect();
        let over = BATCH_EVENTS_MAX.next_multiple_of(10);
        assert_eq!(lens, [over, BATCH_EVENTS_MAX + 9 - over]);
        let last = batches[0].events.last().expect("events").revision;
        assert_eq!((batches[0].through, batches[1].events[0].revision), (last, last.next()));
    }

    #[tokio::test]
    async fn events_of_other_keys_only_advance_the_watch() {
        let events = vec![put("/other/pods/a", 5), put("/other/nodes/a", 6)];
        let batches = split(&keys(), b"/registry/pods/", events).await.expect("whole");
        assert_eq!((batches[0].events.len(), batches[0].through), (1, Revision(6)));
        assert_eq!(batches[0].events[0].key, "/registry/pods/a");
    }

    #[tokio::test]
    async fn a_delete_without_its_previous_value_is_not_delivered() {
        let mut event = put("/other/pods/a", 5);
        event.kind = 1;
        assert_eq!(split(&keys(), b"/registry/", vec![event]).await, None);
    }
}
