//! Watch streams: encodes and sends events in batches, and bookmarks.

use crate::app::App;
use crate::body::{ChunkSlot, ChunkStream};
use crate::fairness::WatchSeat;
use crate::metrics::{WatchListSeries, WatchSeries};
use crate::negotiate::{Encoding, Shape};
use crate::outcome::{self, Outcome};
use crate::peer::Peer;
use crate::request_head::RequestHead;
use crate::view::View;
use crate::websocket::Framing;
use bytes::{BufMut, Bytes, BytesMut};
use keelson_cache::CursorError;
use keelson_meta::{Failure, Map, Status, value};
use keelson_registry::{EventKind, Target, WatchError, WatchEvent, WatchSession};
use keelson_schema::{cbor, proto};
use keelson_store::Revision;
use keelson_traces::Span;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Size of the chunks of events.
const CHUNK_BYTES: usize = 16 << 10;
/// Bytes around the object of a JSON event.
const FRAME_BYTES: usize = 40;
/// How long before its timeout a watch sends a bookmark.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// A running watch and the representation of its events.
pub(crate) struct Stream {
    pub view: View,
    pub peer: Arc<Peer>,
    /// The seat of its request, until the initial events are out.
    pub seat: Option<WatchSeat>,
    pub target: Target,
    pub session: WatchSession,
    pub bookmarks: bool,
    pub timeout: Option<Duration>,
    /// Metrics of its events.
    pub metrics: Option<WatchSeries>,
    /// The spans that last until the initial events are out.
    pub initial_spans: Option<InitialSpans>,
}

/// The spans of a watch that begins with the state of all objects: that of the verb and that of the
/// response. They end with the initial events.
pub(crate) struct InitialSpans {
    _verb: Span,
    answer: Span,
    list: Option<WatchListSeries>,
    begun: Instant,
}

impl InitialSpans {
    /// Starts the span of the response, if the request is such a watch.
    pub fn start(
        head: &RequestHead,
        media_type: &'static str,
        list: Option<WatchListSeries>,
        begun: Instant,
    ) -> Option<InitialSpans> {
        if !head.query.sends_initial_events() {
            return None;
        }
        let answer = keelson_traces::start("WatchServer.HandleHTTP");
        answer.set("method", head.method.as_str());
        answer.set("url", head.uri.path());
        answer.set("mediaType", media_type.split(';').next().unwrap_or_default());
        answer.event("About to start writing response");
        Some(InitialSpans { _verb: keelson_traces::current(), answer, list, begun })
    }

    fn end(self) {
        self.answer.event("Writing initial events done");
        if let Some(list) = &self.list {
            list.metrics.ended(self.begun.elapsed());
        }
    }
}

/// Creates the response of a watch that fails to start: a stream with one error event.
pub(crate) fn refusal(
    app: &App,
    encoding: Encoding,
    media_type: &'static str,
    failure: &Failure,
) -> Outcome {
    let frame = error_frame(app, encoding, failure);
    let chunks = ChunkStream::new(|slot| async move { slot.put(frame).await });
    outcome(encoding, media_type, chunks)
}

/// Returns a stream of events in an encoding. Only JSON and protobuf have a form as messages.
fn outcome(encoding: Encoding, media_type: &'static str, chunks: ChunkStream) -> Outcome {
    let framing = match encoding {
        Encoding::Json => Some(Framing::Lines),
        Encoding::Protobuf => Some(Framing::LengthPrefixed),
        Encoding::Yaml | Encoding::Cbor => None,
    };
    Outcome::Stream(outcome::Stream { media_type, chunks, framing })
}

impl Stream {
    /// Starts the stream.
    pub fn start(mut self, media_type: &'static str) -> Outcome {
        let encoding = self.view.accepted.encoding;
        // `run` borrows the stream: an async function holds its arguments twice.
        let chunks = ChunkStream::new(|slot| async move { self.run(&slot).await });
        outcome(encoding, media_type, chunks)
    }

    async fn run(&mut self, slot: &ChunkSlot) {
        let life = self.timeout.unwrap_or_else(|| self.default_life());
        if life.is_zero() {
            return;
        }
        let end = Instant::now() + life;
        let bookmark_after = self.bookmark_times(end);
        // Created once, so that it is not registered again for each event.
        let cancelled = self.cancelled();
        tokio::pin!(cancelled);
        let timer = sleep_until(bookmark_after(Instant::now()));
        tokio::pin!(timer);
        let mut out = StreamState {
            forms: self.forms(),
            first: true,
            initial_end_due: self.session.sends_initial_events_end,
            through: self.session.began_at,
        };
        loop {
            // Read before the events are taken, so that all events up to this revision are
            // included.
            let applied = self.session.applied(&self.view.app.registry);
            if self.session.is_converting() {
                let prepared = Box::pin(self.prepare());
                let ended = tokio::select! {
                    ended = prepared => ended,
                    () = cancelled.as_mut() => return,
                    () = sleep_until(end) => return,
                };
                if let Err(ended) = ended {
                    return self.end(slot, ended).await;
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
                // A bookmark would claim that the changes that were not looked at yet have been
                // sent.
                Ok(None) if self.session.is_paused() => match self.session.changed().await {
                    Ok(()) if Instant::now() < end => continue,
                    _ => return,
                },
                Ok(None) => {
                    if let Some(seat) = self.seat.take() {
                        seat.release();
                    }
                    self.initial_spans.take().into_iter().for_each(InitialSpans::end);
                }
                Err(ended) => return self.end(slot, ended).await,
            }
            tokio::select! {
                changed = self.session.changed() => if changed.is_err() { return },
                () = cancelled.as_mut() => return,
                () = timer.as_mut() => {
                    let now = Instant::now();
                    if now >= end {
                        return;
                    }
                    timer.as_mut().reset(bookmark_after(now));
                    let revision = out.through.max(applied);
                    slot.put(self.bookmark(&mut out, revision, false)).await;
                }
            }
        }
    }

    /// Waits until the shutdown ends the watch, or its client is gone.
    fn cancelled(&self) -> impl Future<Output = ()> + use<> {
        let mut shutdown = self.view.app.shutdown.clone();
        let peer = self.peer.clone();
        let end_delay = self.end_delay();
        async move {
            let ends = async {
                crate::peer::shutdown_requested(&mut shutdown).await;
                tokio::time::sleep(end_delay).await;
            };
            tokio::select! {
                () = ends => {}
                () = peer.closed() => {}
            }
        }
    }

    /// Returns how long after the begin of the shutdown the watch ends: at random, so that the
    /// clients of many watches do not all come back at once.
    fn end_delay(&self) -> Duration {
        let spread = self.view.app.limits.watch_end_spread;
        if spread.is_zero() {
            return spread;
        }
        let random = self.view.app.registry.clock.random();
        spread * u32::from(u16::from_le_bytes([random[0], random[1]])) / u32::from(u16::MAX)
    }

    async fn end(&self, slot: &ChunkSlot, ended: StreamEnd) {
        if let StreamEnd::Failure(failure) = ended {
            slot.put(self.error_frame(&failure)).await;
        }
    }

    /// Returns a function from a time to the time of the next bookmark; the end if there are no
    /// bookmarks.
    fn bookmark_times(&self, end: Instant) -> impl Fn(Instant) -> Instant + use<> {
        let period = self.view.app.limits.bookmark_period;
        let bookmarks = self.bookmarks;
        move |now| match now + period {
            _ if !bookmarks => end,
            next if next + LAST_BOOKMARK < end => next,
            _ if now + LAST_BOOKMARK < end => end - LAST_BOOKMARK,
            _ => end,
        }
    }

    /// Converts the next events to the version of the watch.
    async fn prepare(&mut self) -> Result<(), StreamEnd> {
        self.session.prepare().await.map_err(|error| match error {
            // The client starts a new watch, whose response has the error.
            WatchError::Conversion(_) | WatchError::Cursor(CursorError::Closed) => {
                StreamEnd::Quietly
            }
            WatchError::Cursor(error) => StreamEnd::from(error),
        })
    }

    fn error_frame(&self, failure: &Failure) -> Bytes {
        error_frame(&self.view.app, self.view.accepted.encoding, failure)
    }

    /// Returns the cache keys of encoded events, by [`EventKind`]; empty if the stored JSON is sent
    /// unchanged.
    fn forms(&self) -> [String; 3] {
        let view = &self.view;
        let generation = self.target.kind.generation;
        let has_none = view.is_stored_text(&self.target) && generation == 0;
        ["ADDED", "MODIFIED", "DELETED"].map(|event_type| match has_none {
            true => String::new(),
            false => format!("{event_type} {:?} {} {generation}", view.accepted, view.schema.gvk),
        })
    }

    /// Returns the timeout of a watch without `timeoutSeconds`.
    fn default_life(&self) -> Duration {
        let random = self.view.app.registry.clock.random();
        let share = u32::from(u16::from_le_bytes([random[0], random[1]]));
        let least = self.view.app.limits.watch_life_min;
        least + least * share / u32::from(u16::MAX)
    }

    /// Encodes the available events; `None` if there are none.
    fn chunk(
        &mut self,
        out: &mut StreamState,
        applied: Revision,
    ) -> Result<Option<Bytes>, StreamEnd> {
        let mut events: Vec<WatchEvent> = vec![];
        let mut frames = BytesMut::new();
        loop {
            events.clear();
            self.session.take(&mut events)?;
            if events.is_empty() {
                let is_complete = self.session.initial_events_are_complete();
                if out.initial_end_due && is_complete && !self.session.is_paused() {
                    out.initial_end_due = false;
                    let revision = match self.session.is_converting() {
                        // There may be changes that are not converted yet.
                        true => out.through,
                        false => out.through.max(applied),
                    };
                    frames.put(self.bookmark(out, revision, true));
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
        out: &mut StreamState,
        frames: &mut BytesMut,
    ) -> Result<(), Failure> {
        out.through = out.through.max(event.entry.modified());
        let event_type = match event.kind {
            EventKind::Added => "ADDED",
            EventKind::Modified => "MODIFIED",
            EventKind::Deleted => "DELETED",
        };
        if self.view.is_stored_text(&self.target) && self.is_in_version(event) {
            let object = &*event.entry.json_slice();
            frames.reserve(object.len() + FRAME_BYTES);
            put_json(event_type, object, frames);
            return Ok(());
        }
        let first = std::mem::take(&mut out.first);
        let make = || -> Result<Bytes, Failure> {
            let object = self.view.event_object(&self.target, &event.entry, first)?;
            Ok(encode_frame(self.view.accepted.encoding, event_type, &object))
        };
        frames.put(match &event.change {
            // Tables have ages relative to now, so their frames are not cached.
            Some(change) if self.view.accepted.shape != Shape::Table => {
                change.frame(&out.forms[event.kind as usize], make)?
            }
            _ => make()?,
        });
        Ok(())
    }

    fn is_in_version(&self, event: &WatchEvent) -> bool {
        self.target.kind.is_in_version(&event.entry, &self.view.schema)
    }

    /// Encodes a bookmark: all events up to `revision` have been sent.
    fn bookmark(&self, out: &mut StreamState, revision: Revision, initial_end: bool) -> Bytes {
        let schema = self.target.schema();
        let mut metadata = Map::new();
        metadata.insert("resourceVersion", revision.to_string());
        if initial_end {
            metadata.insert("annotations", value!({"k8s.io/initial-events-end": "true"}));
        }
        let mut obj = keelson_meta::Object::new();
        obj.root.insert("metadata", metadata);
        // An object with only metadata is valid for every kind.
        if let Some(fill) = self.target.kind.strategy.fill_bookmark {
            fill(&mut obj);
        }
        let text = match self.view.accepted.shape {
            Shape::Object => self.view.accepted.encoding.object(schema, &obj),
            Shape::Table => Ok(self.view.event_table(&obj, None, std::mem::take(&mut out.first))),
            Shape::Partial | Shape::PartialList => self.view.partial_text(obj),
        };
        let frame =
            encode_frame(self.view.accepted.encoding, "BOOKMARK", &text.unwrap_or_default());
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

/// Encodes a watch event in the encoding of the stream. `object` is encoded already.
fn encode_frame(encoding: Encoding, event_type: &str, object: &[u8]) -> Bytes {
    let mut out = vec![];
    match encoding {
        Encoding::Json | Encoding::Yaml => put_json(event_type, object, &mut out),
        Encoding::Protobuf => proto::encode_watch_frame(event_type, object, &mut out),
        Encoding::Cbor => cbor::encode_watch_event(event_type, object, &mut out),
    }
    Bytes::from(out)
}

/// Encodes the error event that ends a stream.
fn error_frame(app: &App, encoding: Encoding, failure: &Failure) -> Bytes {
    let kind = keelson_meta::GroupVersionKind::new("", "v1", "Status");
    let object = keelson_meta::Object::from_value(failure.to_value()).unwrap_or_default();
    let schema = app.registry.catalogue.schema(&kind);
    let body = schema.map(|schema| encoding.object(&schema, &object));
    encode_frame(encoding, "ERROR", &body.and_then(Result::ok).unwrap_or_default())
}

/// Why a stream has no more events.
enum StreamEnd {
    /// The resource changed or is no longer served. The client has to start a new watch.
    Quietly,
    Failure(Failure),
}

impl From<CursorError> for StreamEnd {
    fn from(error: CursorError) -> StreamEnd {
        match error {
            CursorError::Closed => StreamEnd::Quietly,
            CursorError::Lagged => {
                let why = "too old resource version: the watch fell behind";
                StreamEnd::Failure(Status::expired(why))
            }
        }
    }
}

impl From<Failure> for StreamEnd {
    fn from(failure: Failure) -> StreamEnd {
        StreamEnd::Failure(failure)
    }
}

/// State of a stream.
struct StreamState {
    /// Cache keys of encoded events, by [`EventKind`]; empty if the stored JSON is sent unchanged.
    forms: [String; 3],
    /// Whether no event was sent yet.
    first: bool,
    /// Whether the bookmark that ends the initial events must still be sent.
    initial_end_due: bool,
    /// The newest revision sent, which may be newer than the revision applied to all resources.
    through: Revision,
}

/// Appends a watch event of a JSON stream.
fn put_json(event_type: &str, object: &[u8], out: &mut impl BufMut) {
    out.put_slice(b"{\"type\":\"");
    out.put_slice(event_type.as_bytes());
    out.put_slice(b"\",\"object\":");
    out.put_slice(object);
    out.put_slice(b"}\n");
}
