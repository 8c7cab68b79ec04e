//! Watch streams: events framed and sent, many to a write; bookmarks; the end.

use crate::body::Body;
use crate::handler::{App, Ask};
use crate::negotiate::{Accepted, Encoding, Shape};
use crate::respond::{self, Reply};
use crate::view::View;
use bytes::{BufMut, Bytes, BytesMut};
use keelson_meta::{Failure, Map, Status, Value, value};
use keelson_registry::{EventKind, Target, WatchEvent, WatchSession};
use keelson_schema::{cbor, json, proto};
use keelson_store::Revision;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// Chunks that wait for the socket; a client that does not read stops its watch here, and only its.
const CHUNKS_MAX: usize = 2;
/// Bytes of events that go to the socket at once.
const CHUNK_BYTES: usize = 64 << 10;
/// How long before its end a watch says how far it is.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// A running watch and how its events are shown.
pub(crate) struct Stream {
    pub app: Arc<App>,
    pub ask: Ask,
    pub accepted: Accepted,
    pub target: Target,
    pub session: WatchSession,
    pub bookmarks: bool,
    pub timeout: Option<Duration>,
}

/// The stream of a watch that does not begin: one event that says why.
pub(crate) fn refusal(
    app: &App,
    encoding: Encoding,
    media_type: &'static str,
    failure: &Failure,
) -> Reply {
    let (sender, receiver) = mpsc::channel(1);
    sender.try_send(error_frame(app, encoding, failure)).expect("the channel is new and empty");
    respond::with_body(200, media_type, Body::Stream(receiver))
}

impl Stream {
    /// Starts sending; the answer's body is what is sent.
    pub fn reply(self, media_type: &'static str) -> Reply {
        let (sender, receiver) = mpsc::channel(CHUNKS_MAX);
        tokio::spawn(self.run(sender));
        respond::with_body(200, media_type, Body::Stream(receiver))
    }

    async fn run(mut self, sender: mpsc::Sender<Bytes>) {
        let life = self.timeout.unwrap_or_else(|| {
            let random = self.app.registry.clock.random();
            let share = u32::from(u16::from_le_bytes([random[0], random[1]]));
            let least = self.app.limits.watch_life_min;
            least + least * share / u32::from(u16::MAX)
        });
        let end = Instant::now() + life;
        let period = self.app.limits.bookmark_period;
        let mut bookmark_at = Instant::now() + period.min(life.saturating_sub(LAST_BOOKMARK));
        let mut shutdown = self.app.shutdown.clone();
        // Over HTTP/2 the connection notices itself that the client went.
        let peer = self.ask.peer.clone();
        let gone = async {
            match &peer.socket {
                Some(socket) => socket.closed().await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(gone);
        let mut out = Sent {
            first: true,
            initial_end_due: self.session.marks_initial_end,
            through: self.session.began_at,
        };
        loop {
            // Read before the events: all up to here have been applied when they are taken.
            let applied = self.app.registry.cache.revision();
            match self.chunk(&mut out, applied) {
                Ok(Some(chunk)) => {
                    let send = sender.send(chunk);
                    tokio::select! {
                        sent = send => if sent.is_err() { return },
                        () = sleep_until(end) => return,
                        () = gone.as_mut() => return,
                    }
                    continue;
                }
                Ok(None) => {}
                Err(failure) => {
                    let frame = error_frame(&self.app, self.accepted.encoding, &failure);
                    let _ = sender.send(frame).await;
                    return;
                }
            }
            tokio::select! {
                () = sender.closed() => return,
                () = gone.as_mut() => return,
                () = crate::listen::told(&mut shutdown) => return,
                () = sleep_until(end) => return,
                changed = self.session.changed() => if changed.is_err() { return },
                () = sleep_until(bookmark_at), if self.bookmarks => {
                    bookmark_at = Instant::now() + period;
                    let revision = out.through.max(applied);
                    if sender.send(self.bookmark(revision, false)).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// The frames of the events at hand.
    fn chunk(&mut self, out: &mut Sent, applied: Revision) -> Result<Option<Bytes>, Failure> {
        let mut events: Vec<WatchEvent> = vec![];
        let mut frames = BytesMut::new();
        loop {
            events.clear();
            self.session
                .take(&mut events)
                .map_err(|_| Status::expired("too old resource version: the watch fell behind"))?;
            if events.is_empty() {
                if out.initial_end_due && self.session.initial_is_through() {
                    out.initial_end_due = false;
                    frames.put(self.bookmark(out.through.max(applied), true));
                }
                break;
            }
            for event in &events {
                self.frame(event, out, &mut frames)?;
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
        out.through = out.through.max(event.entry.modified);
        let (word, which) = match event.kind {
            EventKind::Added => ("ADDED", 0),
            EventKind::Modified => ("MODIFIED", 1),
            EventKind::Deleted => ("DELETED", 2),
        };
        let view = View::new(&self.app, &self.ask, self.accepted, self.target.schema())?;
        if view.is_stored_text(&self.target)
            && let Some(change) = &event.change
        {
            frames.put(change.frame(which, || frame(word, event.entry.json_slice())));
            return Ok(());
        }
        let object = view.event_object(&self.target, &event.entry, out.first)?;
        out.first = false;
        frames.put(framed(self.accepted.encoding, word, &object));
        Ok(())
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
        let view = View::new(&self.app, &self.ask, self.accepted, schema);
        // An object of metadata only fits every kind.
        let text = match self.accepted.shape {
            Shape::Object => self.accepted.encoding.object(schema, &obj),
            Shape::Table => {
                let metadata = obj.metadata().cloned().unwrap_or_default();
                view.map(|view| written(&view.table(metadata, vec![], false)))
            }
            Shape::Partial | Shape::PartialList => view.and_then(|view| view.partial_text(obj)),
        };
        framed(self.accepted.encoding, "BOOKMARK", &text.unwrap_or_default())
    }
}

/// One event in the encoding of a stream; `object` is in it already.
fn framed(encoding: Encoding, word: &str, object: &[u8]) -> Bytes {
    let mut out = vec![];
    match encoding {
        Encoding::Json | Encoding::Yaml => return frame(word, object),
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

/// What a stream remembers of what it sent.
struct Sent {
    /// No event was sent yet.
    first: bool,
    /// The bookmark that ends the initial events is still to come.
    initial_end_due: bool,
    /// The newest of what was sent, which may be newer than what all resources have applied.
    through: Revision,
}

fn written(value: &Value) -> Bytes {
    let mut text = vec![];
    json::write_value(value, &mut text);
    Bytes::from(text)
}

/// One event of a JSON stream.
fn frame(word: &str, object: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(object.len() + 32);
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(word.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    out.extend_from_slice(object);
    out.extend_from_slice(b"}\n");
    Bytes::from(out)
}
