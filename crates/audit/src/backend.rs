//! [`Backend`]: where events are stored, and when.

mod batches;
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
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Annotation of an event that is shown without its objects.
const TRUNCATED: Str = Str::new_static("audit.k8s.io/truncated");
/// Annotation that says how many events its backend has lost since the event before.
const LOST: Str = Str::new_static("audit.keelson.dev/lost-events");

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
    target: Arc<Target>,
    delivery: Delivery,
    truncation: Option<Truncation>,
}

enum Delivery {
    Batches(Batches),
    Blocking,
    Strict,
}

/// Where events are stored.
struct Target {
    sink: Sink,
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

/// How often a backend is written to.
#[derive(Clone, Copy)]
struct Pace {
    /// Time between two writes.
    pause: Duration,
    /// Maximum events of one write.
    events_max: usize,
}

enum Sink {
    Log(LogFile),
    Webhook(Webhook),
}

impl Backend {
    /// Makes the backend of a log.
    pub fn log(
        log: LogFile,
        mode: Mode,
        truncation: Option<Truncation>,
        metrics: Arc<Metrics>,
    ) -> Backend {
        Backend::new(Sink::Log(log), mode, truncation, metrics)
    }

    /// Makes the backend of a webhook.
    pub fn webhook(
        webhook: Webhook,
        mode: Mode,
        truncation: Option<Truncation>,
        metrics: Arc<Metrics>,
    ) -> Backend {
        Backend::new(Sink::Webhook(webhook), mode, truncation, metrics)
    }

    fn new(
        sink: Sink,
        mode: Mode,
        truncation: Option<Truncation>,
        metrics: Arc<Metrics>,
    ) -> Backend {
        let target = Arc::new(Target { sink, metrics, lost: AtomicU64::new(0) });
        let delivery = match mode {
            Mode::Blocking => Delivery::Blocking,
            Mode::BlockingStrict => Delivery::Strict,
            Mode::Batch(batching) => {
                let bytes_max = truncation.map_or(usize::MAX, |limits| limits.batch_bytes_max);
                Delivery::Batches(Batches::start(target.clone(), batching, bytes_max))
            }
        };
        Backend { target, delivery, truncation }
    }

    /// Returns what to store; `None` if the event is too large.
    pub(crate) fn prepare(&self, encoded: &Encoded<'_>) -> Option<Entry> {
        let format = self.target.sink.format();
        let lost = match self.target.lost.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.target.lost.swap(0, Ordering::Relaxed),
        };
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
            self.target.lose(Plugin::Truncate, lost, 1, "event is too large even after truncating");
        }
        text.map(|text| Entry { text, lost })
    }

    /// Returns whether requests wait for their events.
    pub(crate) fn blocks(&self) -> bool {
        !matches!(self.delivery, Delivery::Batches(_))
    }

    /// Stores an event of a backend that does not block.
    pub(crate) fn buffer(&self, entry: Entry) {
        if let Delivery::Batches(batches) = &self.delivery
            && let Err((entry, why)) = batches.add(entry)
        {
            self.target.lose(Plugin::Buffered, entry.lost, 1, why);
        }
    }

    /// Stores an event. Returns false if the request must not go on.
    pub(crate) async fn store(&self, entry: Entry) -> bool {
        match &self.delivery {
            Delivery::Batches(_) => {
                self.buffer(entry);
                true
            }
            Delivery::Blocking => {
                self.target.write(vec![entry]).await;
                true
            }
            Delivery::Strict => self.target.write(vec![entry]).await,
        }
    }

    /// Counts an event that is not even given to the backend.
    pub(crate) fn count_lost(&self, entry: Option<Entry>) {
        if let Some(entry) = entry {
            self.target.lose(Plugin::Buffered, entry.lost, 1, "too many requests end at once");
        }
    }

    /// Stores what is buffered, for at most `time_max`.
    pub(crate) async fn shutdown(&self, time_max: Duration) {
        if let Delivery::Batches(batches) = &self.delivery {
            let left = batches.shutdown(time_max).await;
            if left > 0 {
                let why = "the server stops and cannot wait longer";
                self.target.lose(Plugin::Buffered, 0, left as u64, why);
            }
        }
    }
}

/// Returns the text of an event without its objects.
fn truncated(event: &Event, note: Option<(Str, Str)>, format: Format) -> Bytes {
    let mut event = event.clone();
    event.request_object = None;
    event.response_object = None;
    event.annotate(TRUNCATED, Str::new_static("true"));
    Encoded::new(&event).text(format, note)
}

impl Target {
    /// Stores events together. Returns whether they are stored; else they are counted as lost.
    async fn write(&self, entries: Vec<Entry>) -> bool {
        let events = entries.len() as u64;
        let named = entries.iter().map(|entry| entry.lost).sum();
        let texts: Vec<Bytes> = entries.into_iter().map(|entry| entry.text).collect();
        let (plugin, result) = match &self.sink {
            Sink::Log(log) => (Plugin::Log, log.write(texts).await),
            Sink::Webhook(webhook) => (Plugin::Webhook, webhook.send(&texts).await),
        };
        match result {
            Ok(()) => true,
            Err(why) => {
                self.lose(plugin, named, events, &why);
                false
            }
        }
    }

    /// Counts lost events. `named` are those lost before, which they were to name.
    fn lose(&self, plugin: Plugin, named: u64, events: u64, why: &str) {
        let before = self.lost.fetch_add(named + events, Ordering::Relaxed);
        self.metrics.count_lost(plugin, events);
        // A dead backend does not fill the log: the next event that is stored says how many it
        // lost.
        if before == 0 {
            let backend = self.sink.name();
            tracing::error!(backend, ?plugin, events, why, "audit events were lost");
        }
    }
}

impl Sink {
    fn name(&self) -> &'static str {
        match self {
            Sink::Log(_) => "log",
            Sink::Webhook(_) => "webhook",
        }
    }

    fn format(&self) -> Format {
        match self {
            Sink::Log(log) => log.format(),
            Sink::Webhook(_) => Format::Item,
        }
    }

    /// Returns the pace of a log: how its lines are written cannot be seen in it, so they may be
    /// written together, whatever the size of a batch.
    fn pace(&self) -> Option<Pace> {
        match self {
            Sink::Log(_) => Some(log_file::PACE),
            Sink::Webhook(_) => None,
        }
    }

    /// How many batches are stored at once. The lines of a log keep their order.
    fn batches_at_once(&self) -> usize {
        match self {
            Sink::Log(_) => 1,
            Sink::Webhook(_) => webhook::BATCHES_AT_ONCE_MAX,
        }
    }
}
