//! Watch streams: events framed and sent, many to a write; bookmarks; the end.

use crate::app::App;
use crate::body::{Body, Chunks, Slot};
use crate::metrics::WatchSeries;
use crate::negotiate::{Encoding, Shape};
use crate::opening::Peer;
use crate::respond::{self, Reply};
use crate::socket::Socket;
use crate::view::{self, View};
use bytes::{BufMut, Bytes, BytesMut};
use keelson_cache::CursorError;
use keelson_meta::{Failure, Map, Status, value};
use keelson_registry::{EventKind, Target, WatchError, WatchEvent, WatchSession};
use keelson_schema::{cbor, proto};
use keelson_store::Revision;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Bytes of events that go to the socket at once.
const CHUNK_BYTES: usize = 16 << 10;
/// Room for what stands around an object of a JSON stream.
const FRAME_BYTES: usize = 40;
/// How long before its timeout a watch sends a bookmark.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// A running watch and how its events are shown.
pub(crate) struct Stream {
    pub view: View,
    pub peer: Arc<Peer>,
    pub target: Target,
    pub session: WatchSession,
    pub bookmarks: bool,
    pub timeout: Option<Duration>,
    /// What is counted of its events.
    pub metrics: Option<WatchSeries>,
}

/// The stream of a watch that does not begin: one event that says why.
pub(crate) fn refusal(
    app: &App,
    encoding: Encoding,
    media_type: &'static str,
    failure: &Failure,
) -> Reply {
    let frame = error_frame(app, encoding, failure);
    let chunks = Chunks::new(|slot| async move { slot.put(frame).await });
    respond::with_body(200, media_type, Body::Stream(chunks))
}

impl Stream {
    /// The answer, whose body is what is sent.
    pub fn reply(self, media_type: &'static str) -> Reply {
        let chunks = Chunks::new(|slot| self.run(slot));
        respond::with_body(200, media_type, Body::Stream(chunks))
    }

    async fn run(mut self, slot: Slot) {
        let life = self.timeout.unwrap_or_else(|| self.default_life());
        if life.is_zero() {
            return;
        }
        let end = Instant::now() + life;
        let bookmark_after = self.bookmark_times(end);
        // What ends the watch is waited for once, and not anew with each event.
        let mut shutdown = self.view.app.shutdown.clone();
        let peer = self.peer.clone();
        let over = async {
            tokio::select! {
                () = crate::opening::told(&mut shutdown) => {}
                // Over HTTP/2 the connection notices itself that the client went.
                () = closed(peer.socket.as_ref()) => {}
            }
        };
        tokio::pin!(over);
        let timer = sleep_until(bookmark_after(Instant::now()));
        tokio::pin!(timer);
        let mut out = Sent {
            forms: self.forms(),
            first: true,
            initial_end_due: self.session.marks_initial_end,
            through: self.session.began_at,
        };
        loop {
            // Read before the events: all up to here have been applied when they are taken.
            let applied = self.view.app.registry.cache.revision();
            if self.session.is_converting() {
                let prepared = Box::pin(self.prepare());
                let ended = tokio::select! {
                    ended = prepared => ended,
                    () = over.as_mut() => return,
                };
                if let Err(ended) = ended {
                    return self.end(&slot, ended).await;
                }
            }
            match self.chunk(&mut out, applied) {
                Ok(Some(chunk)) => {
                    slot.put(chunk).await;
                    if Instant::now() >= end {
                        return;
                    }
                    continue;
                }
                Ok(None) => {}
                Err(ended) => return self.end(&slot, ended).await,
            }
            tokio::select! {
                changed = self.session.changed() => if changed.is_err() { return },
                () = over.as_mut() => return,
                () = timer.as_mut() => {
                    let now = Instant::now();
                    if now >= end {
                        return;
                    }
                    timer.as_mut().reset(bookmark_after(now));
                    slot.put(self.bookmark(out.through.max(applied), false)).await;
                }
            }
        }
    }

    async fn end(&self, slot: &Slot, ended: Ended) {
        if let Ended::Failure(failure) = ended {
            slot.put(self.error_frame(&failure)).await;
        }
    }

    /// When the bookmark after a time is due; of a watch without bookmarks, its end.
    fn bookmark_times(&self, end: Instant) -> impl Fn(Instant) -> Instant + use<> {
        let (period, bookmarks) = (self.view.app.limits.bookmark_period, self.bookmarks);
        move |now| match now + period {
            _ if !bookmarks => end,
            next if next + LAST_BOOKMARK < end => next,
            _ if now + LAST_BOOKMARK < end => end - LAST_BOOKMARK,
            _ => end,
        }
    }

    /// Converts what is about to be sent.
    async fn prepare(&mut self) -> Result<(), Ended> {
        self.session.prepare().await.map_err(|error| match error {
            // Its clients ask again, and are told why when they do.
            WatchError::Conversion(_) | WatchError::Cursor(CursorError::Closed) => Ended::Quietly,
            WatchError::Cursor(error) => Ended::from(error),
        })
    }

    fn error_frame(&self, failure: &Failure) -> Bytes {
        error_frame(&self.view.app, self.view.accepted.encoding, failure)
    }

    /// What tells the events of a change apart as different watchers see them; nothing where all of them are
    /// sent the stored text.
    fn forms(&self) -> [String; 3] {
        let (view, generation) = (&self.view, self.target.kind.generation);
        let has_none = view.is_stored_text(&self.target) && generation == 0;
        ["ADDED", "MODIFIED", "DELETED"].map(|word| match has_none {
            true => String::new(),
            false => format!("{word} {:?} {} {generation}", view.accepted, view.schema.gvk),
        })
    }

    /// The timeout of a watch without `timeoutSeconds`.
    fn default_life(&self) -> Duration {
        let random = self.view.app.registry.clock.random();
        let share = u32::from(u16::from_le_bytes([random[0], random[1]]));
        let least = self.view.app.limits.watch_life_min;
        least + least * share / u32::from(u16::MAX)
    }

    /// The frames of the events at hand.
    fn chunk(&mut self, out: &mut Sent, applied: Revision) -> Result<Option<Bytes>, Ended> {
        let mut events: Vec<WatchEvent> = vec![];
        let mut frames = BytesMut::new();
        loop {
            events.clear();
            self.session.take(&mut events)?;
            if events.is_empty() {
                if out.initial_end_due && self.session.initial_is_through() {
                    out.initial_end_due = false;
                    frames.put(self.bookmark(out.through.max(applied), true));
                }
                break;
            }
            for event in &events {
                let before = frames.len();
                self.frame(event, out, &mut frames)?;
                self.count(frames.len() - before);
            }
            if frames.len() >= CHUNK_BYTES {
                break;
            }
        }
        Ok(if frames.is_empty() { None } else { Some(frames.freeze()) })
    }

    fn frame(
        &self,
        event: &WatchEvent,
        out: &mut Sent,
        frames: &mut BytesMut,
    ) -> Result<(), Failure> {
        out.through = out.through.max(event.entry.modified());
        let word = match event.kind {
            EventKind::Added => "ADDED",
            EventKind::Modified => "MODIFIED",
            EventKind::Deleted => "DELETED",
        };
        if self.view.is_stored_text(&self.target) && self.is_current(event) {
            let object = event.entry.json_slice();
            frames.reserve(object.len() + FRAME_BYTES);
            put_json(word, object, frames);
            return Ok(());
        }
        let first = std::mem::take(&mut out.first);
        let make = || -> Result<Bytes, Failure> {
            let object = self.view.event_object(&self.target, &event.entry, first)?;
            Ok(framed(self.view.accepted.encoding, word, &object))
        };
        frames.put(match &event.change {
            // Ages in tables are those of now.
            Some(change) if self.view.accepted.shape != Shape::Table => {
                change.frame(&out.forms[event.kind as usize], make)?
            }
            _ => make()?,
        });
        Ok(())
    }

    fn is_current(&self, event: &WatchEvent) -> bool {
        self.target.kind.is_current(&event.entry, &self.view.schema)
    }

    /// `BOOKMARK`: everything up to `revision` has been sent.
    fn bookmark(&self, revision: Revision, initial_end: bool) -> Bytes {
        let schema = self.target.schema();
        let mut metadata = Map::new();
        metadata.insert("resourceVersion", revision.to_string());
        if initial_end {
            metadata.insert("annotations", value!({"k8s.io/initial-events-end": "true"}));
        }
        let mut obj = keelson_meta::Object::new();
        obj.root.insert("metadata", metadata);
        // An object of metadata only fits every kind.
        let text = match self.view.accepted.shape {
            Shape::Object => self.view.accepted.encoding.object(schema, &obj),
            Shape::Table => {
                let metadata = obj.metadata().cloned().unwrap_or_default();
                Ok(view::written(&self.view.table(metadata, vec![], false)))
            }
            Shape::Partial | Shape::PartialList => self.view.partial_text(obj),
        };
        let frame = framed(self.view.accepted.encoding, "BOOKMARK", &text.unwrap_or_default());
        self.count(frame.len());
        frame
    }

    /// Counts an event that is about to be sent.
    fn count(&self, bytes: usize) {
        if let Some(series) = &self.metrics {
            series.metrics.sizes.observe(bytes as u64);
        }
    }
}

/// A watch event in the encoding of the stream; `object` is encoded already.
fn framed(encoding: Encoding, word: &str, object: &[u8]) -> Bytes {
    let mut out = vec![];
    match encoding {
        Encoding::Json | Encoding::Yaml => put_json(word, object, &mut out),
        Encoding::Protobuf => proto::encode_watch_frame(word, object, &mut out),
        Encoding::Cbor => cbor::encode_watch_event(word, object, &mut out),
    }
    Bytes::from(out)
}

/// The event that ends a stream that cannot go on.
fn error_frame(app: &App, encoding: Encoding, failure: &Failure) -> Bytes {
    let kind = keelson_meta::GroupVersionKind::new("", "v1", "Status");
    let object = keelson_meta::Object::from_value(failure.to_value()).unwrap_or_default();
    let schema = app.registry.catalogue.schema(&kind);
    let body = schema.map(|schema| encoding.object(&schema, &object));
    framed(encoding, "ERROR", &body.and_then(Result::ok).unwrap_or_default())
}

/// Waits until the client has closed a socket that nobody reads.
async fn closed(socket: Option<&Socket>) {
    match socket {
        Some(socket) => socket.closed().await,
        None => std::future::pending().await,
    }
}

/// Why a stream has no more events.
enum Ended {
    /// The resource changed or is served no longer: the client is to ask again.
    Quietly,
    Failure(Failure),
}

impl From<CursorError> for Ended {
    fn from(error: CursorError) -> Ended {
        match error {
            CursorError::Closed => Ended::Quietly,
            CursorError::Lagged => {
                let why = "too old resource version: the watch fell behind";
                Ended::Failure(Status::expired(why))
            }
        }
    }
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Ended {
        Ended::Failure(failure)
    }
}

/// State of a stream: what was sent so far.
struct Sent {
    /// What tells the events of a change apart as different watchers see them, by [`EventKind`]; nothing
    /// where the stored text is sent.
    forms: [String; 3],
    /// No event was sent yet.
    first: bool,
    /// The bookmark that ends the initial events is still to come.
    initial_end_due: bool,
    /// The newest of what was sent, which may be newer than what all resources have applied.
    through: Revision,
}

/// A watch event of a JSON stream.
fn put_json(word: &str, object: &[u8], out: &mut impl BufMut) {
    out.put_slice(b"{\"type\":\"");
    out.put_slice(word.as_bytes());
    out.put_slice(b"\",\"object\":");
    out.put_slice(object);
    out.put_slice(b"}\n");
}
