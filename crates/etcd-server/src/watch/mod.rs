//! The service `etcdserverpb.Watch`: one task for each stream, however many watches it has.
//!
//! The watches of a stream that are up to date share one watch of the store, the feed. Those from
//! the past share another, until they have reached the feed. A stream whose client does not read
//! stops reading the store; it goes on later, or its watches are cancelled as compacted.

mod past_reads;
mod responses;
mod watchers;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, Stream, StreamExt};
use keelson_store::{Batch, Revision, Store, Watch, WatchError};
use tokio::sync::mpsc;
use tokio::task::coop::consume_budget;
use tokio::time::{Interval, MissedTickBehavior, sleep};
use tonic::Status;

use crate::engine::Engine;
use crate::error::EtcdError;
use crate::proto::{WatchCreateRequest, WatchRequest, WatchRequestUnion, WatchResponse};
use crate::record::to_etcd;
use crate::room::{Room, Sent};

pub(crate) use past_reads::PastReads;
use past_reads::{Turn, Turns};
use watchers::{CreateError, INVALID_ID, Watcher, Watchers};

/// How long to wait for the end of a compaction in progress, of which the store knows already.
const COMPACTION_POLL: Duration = Duration::from_millis(5);

/// What the client gets.
pub(crate) type Responses = mpsc::Sender<Sent<WatchResponse>>;

/// Runs a stream until its client ends it.
pub(crate) async fn run<R>(
    engine: Arc<Engine>,
    past_reads: PastReads,
    requests: R,
    responses: Responses,
) where
    R: Stream<Item = Result<WatchRequest, Status>> + Send + Unpin,
{
    let mut progress = tokio::time::interval(engine.options.progress_interval);
    progress.set_missed_tick_behavior(MissedTickBehavior::Delay);
    progress.reset();
    let mut stream = WatchStream {
        engine,
        responses: responses.clone(),
        watchers: Watchers::default(),
        feed: None,
        past: None,
        turns: Turns::new(past_reads),
        has_unread_past: true,
        room: None,
        wanted_progress: None,
        has_requests: true,
    };
    if let Err(Ended::Failed(error)) = stream.serve(requests, &mut progress).await {
        // The client may be gone.
        let _ = responses.send(Err(error.into()).into()).await;
    }
}

/// Why a stream ended.
enum Ended {
    /// The client does not listen any more.
    Gone,
    Failed(EtcdError),
}

impl From<EtcdError> for Ended {
    fn from(error: EtcdError) -> Self {
        Self::Failed(error)
    }
}

/// A watch of the store, and the revision up to which it was read.
struct Reader {
    watch: Box<dyn Watch>,
    reached: Revision,
}

struct WatchStream {
    engine: Arc<Engine>,
    responses: Responses,
    watchers: Watchers,
    /// Read for the watches that are up to date; there is none without such.
    feed: Option<Reader>,
    /// Read for those that are behind.
    past: Option<Reader>,
    /// When the past may be read.
    turns: Turns,
    /// Whether `past` had something when it was read last.
    has_unread_past: bool,
    /// The room of the batch that is being sent.
    room: Option<Arc<Room>>,
    /// The client waits for the progress of all watches, up to this revision.
    wanted_progress: Option<Revision>,
    /// Whether the client may send more requests. It may listen also when it sends no more.
    has_requests: bool,
}

/// What happens next in a stream.
enum Next {
    Request(Option<Result<WatchRequest, Status>>),
    Feed(Result<Batch, WatchError>),
    Past(Result<Batch, WatchError>),
    Turn(Option<Turn>),
    Tick,
    Compacted,
}

impl WatchStream {
    async fn serve<R>(&mut self, mut requests: R, progress: &mut Interval) -> Result<(), Ended>
    where
        R: Stream<Item = Result<WatchRequest, Status>> + Send + Unpin,
    {
        loop {
            // Nothing is read before the client has room for it.
            let room = self.responses.reserve().await.map_err(|_| Ended::Gone)?;
            drop(room);
            // In no order of preference: a busy feed must not keep the past waiting.
            let next = tokio::select! {
                request = requests.next(), if self.has_requests => Next::Request(request),
                batch = next_of(&mut self.feed) => Next::Feed(batch),
                batch = next_of(&mut self.past), if !self.has_unread_past => Next::Past(batch),
                turn = self.turns.next(), if self.has_unread_past && self.past.is_some() => {
                    Next::Turn(turn)
                }
                _ = progress.tick() => Next::Tick,
                () = sleep(COMPACTION_POLL), if self.waits_for_compaction() => Next::Compacted,
                () = self.responses.closed() => return Err(Ended::Gone),
            };
            match next {
                Next::Request(Some(Ok(request))) => self.request(request).await?,
                Next::Request(None) => self.has_requests = false,
                Next::Request(Some(Err(_))) => return Err(Ended::Gone),
                Next::Feed(Ok(batch)) => self.deliver(batch).await?,
                Next::Past(Ok(batch)) => self.deliver_past(batch).await?,
                Next::Turn(turn) => self.read_past(turn).await?,
                Next::Feed(Err(error)) | Next::Past(Err(error)) => self.recover(error).await?,
                Next::Tick => self.tick().await?,
                Next::Compacted => self.cancel_compacted().await?,
            }
            self.arrange()?;
            self.send_wanted_progress().await?;
        }
    }

    async fn request(&mut self, request: WatchRequest) -> Result<(), Ended> {
        match request.request_union {
            Some(WatchRequestUnion::Create(create)) => self.create(create).await,
            Some(WatchRequestUnion::Cancel(cancel)) => {
                if self.watchers.remove(cancel.watch_id) {
                    let response = WatchResponse { canceled: true, ..self.to(cancel.watch_id) };
                    self.send(response).await?;
                }
                Ok(())
            }
            Some(WatchRequestUnion::Progress(_)) => {
                if !self.watchers.is_empty() {
                    self.wanted_progress = Some(self.engine.store.revision());
                }
                Ok(())
            }
            None => Ok(()),
        }
    }

    async fn create(&mut self, create: WatchCreateRequest) -> Result<(), Ended> {
        let newest = self.engine.revision();
        let added = match create.start_revision {
            ..0 => Err(EtcdError::Compacted.in_go()),
            _ => {
                let watcher = Watcher::new(&create, newest);
                let added = self.watchers.add(create.watch_id, watcher);
                added.map_err(|error: CreateError| error.to_string())
            }
        };
        let header = Some(self.engine.header(newest));
        let created = WatchResponse { header, created: true, ..WatchResponse::default() };
        let response = match added {
            Ok(watch_id) => WatchResponse { watch_id, ..created },
            Err(cancel_reason) => {
                WatchResponse { watch_id: INVALID_ID, canceled: true, cancel_reason, ..created }
            }
        };
        self.send(response).await?;
        self.cancel_compacted().await
    }

    /// Opens and closes the readers that the watches need.
    fn arrange(&mut self) -> Result<(), Ended> {
        // A watch from the future waits behind nothing.
        let reached =
            self.feed.as_ref().map_or_else(|| self.engine.store.revision(), |feed| feed.reached);
        self.watchers.catch_up(reached);
        match (&self.feed, self.watchers.has_current()) {
            (None, true) => self.feed = Some(self.open(reached)?),
            (Some(_), false) => self.feed = None,
            _ => {}
        }
        let Some(oldest) = self.watchers.oldest_behind() else {
            self.past = None;
            return Ok(());
        };
        let from = Revision(oldest.0.saturating_sub(1));
        // A reader that is further back serves it too; each watch takes only what it has not got.
        if self.past.as_ref().is_none_or(|past| past.reached > from) {
            self.past = self.open_past(from)?;
        }
        Ok(())
    }

    fn open(&self, after: Revision) -> Result<Reader, Ended> {
        match self.engine.store.watch(Bytes::new(), after) {
            Ok(watch) => Ok(Reader { watch, reached: after }),
            Err(WatchError::TooMany) => Err(EtcdError::TooManyRequests.into()),
            Err(WatchError::Closed) => Err(EtcdError::Stopped.into()),
            Err(error) => Err(EtcdError::Storage(error.to_string()).into()),
        }
    }

    /// Whether the past was compacted in the moment when it was to be read.
    fn waits_for_compaction(&self) -> bool {
        self.past.is_none() && self.watchers.oldest_behind().is_some()
    }

    /// Returns `None` if the past was compacted in this moment.
    fn open_past(&self, after: Revision) -> Result<Option<Reader>, Ended> {
        match self.engine.store.watch(Bytes::new(), after) {
            Err(WatchError::Compacted { .. }) => Ok(None),
            _ => self.open(after).map(Some),
        }
    }

    async fn deliver(&mut self, batch: Batch) -> Result<(), Ended> {
        if let Some(feed) = &mut self.feed {
            feed.reached = batch.through;
        }
        let ids = self.watchers.current_for(&batch);
        self.send_events(&batch, ids).await
    }

    /// Reads a batch of the past and delivers it.
    async fn read_past(&mut self, turn: Option<Turn>) -> Result<(), Ended> {
        let turn = turn.ok_or(EtcdError::Stopped)?;
        let Some(batch) = next_of(&mut self.past).now_or_never() else {
            // Nothing is there yet: to wait for it needs no turn.
            self.has_unread_past = false;
            return Ok(());
        };
        let batch = match batch {
            Ok(batch) => batch,
            Err(error) => return self.recover(error).await,
        };
        let bytes = batch.events.iter().map(|event| event.value.as_ref().map_or(0, Bytes::len));
        self.room = Some(Arc::new(turn.end(bytes.sum())));
        let delivered = self.deliver_past(batch).await;
        self.room = None;
        delivered
    }

    async fn deliver_past(&mut self, batch: Batch) -> Result<(), Ended> {
        self.has_unread_past = true;
        if let Some(past) = &mut self.past {
            past.reached = batch.through;
        }
        let ids = self.watchers.behind();
        self.send_events(&batch, ids).await?;
        self.watchers.advance_behind(batch.through);
        Ok(())
    }

    /// Sends the watches what they want of a batch, one after the other: a stream with many watches
    /// holds no more than one with few, and lets others go on in between.
    async fn send_events(&mut self, batch: &Batch, ids: Vec<i64>) -> Result<(), Ended> {
        for id in ids {
            consume_budget().await;
            let positions = self.watchers.wanted(id, batch);
            let Some(watcher) = self.watchers.get(id).filter(|_| !positions.is_empty()) else {
                continue;
            };
            let prev_kv = watcher.prev_kv;
            let fragment = watcher.fragment;
            let mut events = Vec::with_capacity(positions.len());
            for position in positions {
                let Some(stored) = batch.events.get(position) else { continue };
                let mut event = responses::event(stored)?;
                if prev_kv {
                    consume_budget().await;
                    event.prev_kv = responses::before(&self.engine, stored).await?;
                }
                events.push(event);
            }
            let header = Some(self.engine.header(to_etcd(batch.through)));
            let response =
                WatchResponse { header, watch_id: id, events, ..WatchResponse::default() };
            let parts = match fragment {
                true => responses::fragments(response, self.engine.options.request_bytes_max),
                false => vec![response],
            };
            for part in parts {
                self.send(part).await?;
            }
            self.watchers.mark_served(id);
        }
        Ok(())
    }

    /// Goes on after the store has ended a watch: what is compacted is cancelled, the rest is read
    /// again.
    async fn recover(&mut self, error: WatchError) -> Result<(), Ended> {
        match error {
            WatchError::Compacted { .. } | WatchError::Lagged { .. } => {}
            WatchError::Closed => return Err(EtcdError::Stopped.into()),
            error => return Err(EtcdError::Storage(error.to_string()).into()),
        }
        if let Some(feed) = self.feed.take() {
            self.watchers.fall_behind(feed.reached);
        }
        self.past = None;
        self.cancel_compacted().await
    }

    async fn cancel_compacted(&mut self) -> Result<(), Ended> {
        let compacted = self.engine.compacted();
        for id in self.watchers.lost_before(compacted) {
            self.watchers.remove(id);
            let response =
                WatchResponse { canceled: true, compact_revision: compacted, ..self.to(id) };
            self.send(response).await?;
        }
        Ok(())
    }

    async fn tick(&mut self) -> Result<(), Ended> {
        let Some(feed) = &self.feed else { return Ok(()) };
        let header = Some(self.engine.header(to_etcd(feed.reached)));
        for watch_id in self.watchers.take_silent() {
            self.send(WatchResponse { header, watch_id, ..WatchResponse::default() }).await?;
        }
        Ok(())
    }

    /// Sends the progress of all watches, once they have reached the revision of the request for
    /// it.
    async fn send_wanted_progress(&mut self) -> Result<(), Ended> {
        let (Some(wanted), Some(feed)) = (self.wanted_progress, &self.feed) else { return Ok(()) };
        let reached = feed.reached;
        if reached < wanted || !self.watchers.are_all_current(reached) {
            return Ok(());
        }
        self.wanted_progress = None;
        let header = Some(self.engine.header(to_etcd(reached)));
        self.send(WatchResponse { header, watch_id: INVALID_ID, ..WatchResponse::default() }).await
    }

    /// Returns an empty response to a watch at the newest revision.
    fn to(&self, watch_id: i64) -> WatchResponse {
        let header = Some(self.engine.header(self.engine.revision()));
        WatchResponse { header, watch_id, ..WatchResponse::default() }
    }

    async fn send(&mut self, response: WatchResponse) -> Result<(), Ended> {
        let sent = Sent { response: Ok(response), room: self.room.clone() };
        self.responses.send(sent).await.map_err(|_| Ended::Gone)
    }
}

/// Waits for the next batch of a reader; forever if there is none.
async fn next_of(reader: &mut Option<Reader>) -> Result<Batch, WatchError> {
    match reader {
        Some(reader) => reader.watch.next().await,
        None => std::future::pending().await,
    }
}
