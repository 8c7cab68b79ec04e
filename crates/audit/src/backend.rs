//! [`Backend`]: where events are stored, and when.

mod batches;
mod lines;
mod log_file;
mod rotation;
mod throttle;
mod webhook;

pub use log_file::{LogFile, LogFileOptions};
pub use webhook::{Webhook, WebhookOptions};

use crate::encoded::{Encoded, Format};
use crate::event::Event;
use crate::level::Level;
use crate::metrics::{Metrics, Plugin};
use batches::Batches;
use bytes::Bytes;
use keelson_meta::Str;
use lines::Lines;
use log_file::LogWriter;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Annotation of an event that is shown without its objects.
const TRUNCATED: Str = Str::new_static("audit.k8s.io/truncated");
/// Annotation that says how many events its backend has lost since the event before.
const LOST: Str = Str::new_static("audit.keelson.dev/lost-events");

/// Maximum length of all events that wait or are being stored. Upstream bounds their number only.
const BUFFER_BYTES_MAX: usize = 64 << 20;

/// When a request goes on while its event is stored.
#[derive(Clone, Debug, PartialEq)]
pub enum Mode {
    /// At once: events wait in a buffer and are stored together.
    Batch(Batching),
    /// When its event is stored, or when that failed.
    Blocking,
    /// When its event is stored.
    BlockingStrict,
}

/// How events are put together.
#[derive(Clone, Debug, PartialEq)]
pub struct Batching {
    /// Maximum events that wait.
    pub buffer_events_max: usize,
    /// Maximum events that are stored together.
    pub batch_events_max: usize,
    /// Maximum time that an event waits for others.
    pub wait: Duration,
    /// Maximum batches a second, and of those at once after a pause; `None`: no limit.
    pub throttle: Option<(f32, usize)>,
}

impl Batching {
    /// Returns why an event of this length is lost, when so many wait and they and those that are
    /// being stored have so many bytes.
    fn refusal(&self, length: usize, waiting: usize, bytes: usize) -> Option<&'static str> {
        let is_full = bytes.saturating_add(length) > BUFFER_BYTES_MAX && bytes > 0;
        (is_full || waiting >= self.buffer_events_max.max(1))
            .then_some("audit buffer queue blocked")
    }
}

/// Why an event is lost that comes after the end of a backend.
const SHUT_DOWN: &str = "audit backend shut down";

/// The limits of `--audit-*-truncate-enabled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncation {
    /// Maximum length of an event. A longer one is stored without its objects; if it is still too
    /// long, it is not stored.
    pub event_bytes_max: usize,
    /// Maximum length of the events that are stored together.
    pub batch_bytes_max: usize,
}

/// Where events are stored, and when.
pub struct Backend {
    format: Format,
    losses: Arc<Losses>,
    delivery: Delivery,
    truncation: Option<Truncation>,
}

enum Delivery {
    /// Lines of a log that no request waits for.
    Lines(Lines),
    /// Events for a webhook that no request waits for.
    Batches(Batches),
    /// Requests wait. `is_strict`: those whose events are not stored end.
    Blocking { sink: Sink, is_strict: bool },
}

enum Sink {
    Log(LogWriter),
    Webhook(Webhook),
}

/// The events that a backend loses.
struct Losses {
    /// The backend, for the log of the server.
    backend: &'static str,
    metrics: Arc<Metrics>,
    /// Events that were lost and not yet named in an event.
    lost: AtomicU64,
}

/// The text of an event on its way to a backend.
pub(crate) struct Entry {
    text: Bytes,
    /// How many lost events it names.
    lost: u64,
}

impl Backend {
    /// Makes the backend of a log, and the thread that writes it.
    pub fn log(
        log: LogFile,
        mode: Mode,
        truncation: Option<Truncation>,
        metrics: Arc<Metrics>,
    ) -> io::Result<Backend> {
        let format = log.format();
        let losses = Losses::of("log", metrics);
        let delivery = match mode {
            Mode::Batch(batching) => {
                let bytes_max = batch_bytes_max(truncation);
                Delivery::Lines(Lines::start(log, batching, bytes_max, losses.clone())?)
            }
            Mode::Blocking | Mode::BlockingStrict => {
                Delivery::blocking(Sink::Log(LogWriter::start(log)?), &mode)
            }
        };
        Ok(Backend { format, losses, delivery, truncation })
    }

    /// Makes the backend of a webhook.
    pub fn webhook(
        webhook: Webhook,
        mode: Mode,
        truncation: Option<Truncation>,
        metrics: Arc<Metrics>,
    ) -> Backend {
        let losses = Losses::of("webhook", metrics);
        let delivery = match mode {
            Mode::Batch(batching) => {
                let bytes_max = batch_bytes_max(truncation);
                Delivery::Batches(Batches::start(webhook, batching, bytes_max, losses.clone()))
            }
            Mode::Blocking | Mode::BlockingStrict => {
                Delivery::blocking(Sink::Webhook(webhook), &mode)
            }
        };
        Backend { format: Format::Item, losses, delivery, truncation }
    }

    /// Returns what to store; `None` if the event is too large.
    pub(crate) fn prepare(&self, encoded: &Encoded<'_>) -> Option<Entry> {
        let format = self.format;
        let lost = self.losses.take();
        let note = (lost > 0).then(|| (LOST, Str::from(lost.to_string())));
        let text = encoded.text(format, note.clone());
        let Some(limits) = self.truncation.filter(|limits| text.len() > limits.event_bytes_max)
        else {
            return Some(Entry { text, lost });
        };
        let text = (encoded.event.level >= Level::Request)
            .then(|| truncated(encoded.event, note, format))
            .filter(|text| text.len() <= limits.event_bytes_max);
        if text.is_none() {
            self.losses.lose(Plugin::Truncate, lost, 1, "event is too large even after truncating");
        }
        text.map(|text| Entry { text, lost })
    }

    /// Returns whether requests wait for their events.
    pub(crate) fn blocks(&self) -> bool {
        matches!(self.delivery, Delivery::Blocking { .. })
    }

    /// Stores an event of a backend that does not block.
    pub(crate) fn buffer(&self, entry: Entry) {
        let lost = entry.lost;
        let added = match &self.delivery {
            Delivery::Lines(lines) => lines.add(&entry),
            Delivery::Batches(batches) => {
                batches.add(entry).map_err(|why| (Plugin::Buffered, why.into()))
            }
            Delivery::Blocking { .. } => Ok(()),
        };
        if let Err((plugin, why)) = added {
            self.losses.lose(plugin, lost, 1, &why);
        }
    }

    /// Stores an event. Returns false if the request must not go on.
    pub(crate) async fn store(&self, entry: Entry) -> bool {
        match &self.delivery {
            Delivery::Lines(_) | Delivery::Batches(_) => {
                self.buffer(entry);
                true
            }
            Delivery::Blocking { sink, is_strict } => {
                let Entry { text, lost } = entry;
                let (plugin, result) = match sink {
                    Sink::Log(log) => (Plugin::Log, log.write(text).await),
                    Sink::Webhook(webhook) => (Plugin::Webhook, webhook.send(&[text]).await),
                };
                match result {
                    Ok(()) => true,
                    Err(why) => {
                        self.losses.lose(plugin, lost, 1, &why);
                        !is_strict
                    }
                }
            }
        }
    }

    /// Counts an event that is not even given to the backend.
    pub(crate) fn count_lost(&self, entry: Option<Entry>) {
        if let Some(entry) = entry {
            self.losses.lose(Plugin::Buffered, entry.lost, 1, "too many requests end at once");
        }
    }

    /// Stores what is buffered, for at most `time_max`.
    pub(crate) async fn shutdown(&self, time_max: Duration) {
        let left = match &self.delivery {
            Delivery::Lines(lines) => lines.shutdown(time_max).await,
            Delivery::Batches(batches) => batches.shutdown(time_max).await,
            Delivery::Blocking { .. } => 0,
        };
        if left > 0 {
            let why = "the server stops and cannot wait longer";
            self.losses.lose(Plugin::Buffered, 0, left as u64, why);
        }
    }
}

impl Delivery {
    fn blocking(sink: Sink, mode: &Mode) -> Delivery {
        Delivery::Blocking { sink, is_strict: *mode == Mode::BlockingStrict }
    }
}

fn batch_bytes_max(truncation: Option<Truncation>) -> usize {
    truncation.map_or(usize::MAX, |limits| limits.batch_bytes_max)
}

/// Returns the text of an event without its objects.
fn truncated(event: &Event, note: Option<(Str, Str)>, format: Format) -> Bytes {
    let mut event = event.clone();
    event.request_object = None;
    event.response_object = None;
    event.annotate(TRUNCATED, Str::new_static("true"));
    Encoded::new(&event).text(format, note)
}

impl Losses {
    fn of(backend: &'static str, metrics: Arc<Metrics>) -> Arc<Losses> {
        Arc::new(Losses { backend, metrics, lost: AtomicU64::new(0) })
    }

    /// Returns how many lost events the next event is to name.
    fn take(&self) -> u64 {
        match self.lost.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.lost.swap(0, Ordering::Relaxed),
        }
    }

    /// Counts lost events. `named` are those lost before, which they were to name.
    fn lose(&self, plugin: Plugin, named: u64, events: u64, why: &str) {
        let before = self.lost.fetch_add(named + events, Ordering::Relaxed);
        self.metrics.count_lost(plugin, events);
        // A dead backend does not fill the log: the next event that is stored says how many it
        // lost.
        if before == 0 {
            let backend = self.backend;
            tracing::error!(backend, ?plugin, events, why, "audit events were lost");
        }
    }
}
