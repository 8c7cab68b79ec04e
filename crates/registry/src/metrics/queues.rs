//! The work queues of control loops.

use keelson_metrics::{
    Bounds, Counter, Description, Exposition, Gauge, Histogram, Series, SeriesMap,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Most loops with their own series.
const LOOPS_MAX: usize = 256;

/// The queues of all loops, by the name of the loop.
#[derive(Debug)]
pub struct WorkQueues(SeriesMap<QueueMetrics>);

/// One queue.
#[derive(Debug)]
pub struct QueueMetrics {
    /// Keys that were added.
    pub adds: Counter,
    /// Keys that wait.
    pub depth: Gauge,
    /// Keys that failed and are due again later.
    pub retries: Counter,
    waits: Histogram,
    work: Histogram,
    running: Mutex<Running>,
}

/// When the work that runs has begun, by a number of its own.
#[derive(Debug, Default)]
struct Running {
    next: u64,
    begun: BTreeMap<u64, Instant>,
}

impl Default for QueueMetrics {
    fn default() -> QueueMetrics {
        QueueMetrics {
            adds: Counter::default(),
            depth: Gauge::default(),
            retries: Counter::default(),
            waits: Histogram::new(&SECONDS),
            work: Histogram::new(&SECONDS),
            running: Mutex::default(),
        }
    }
}

impl Default for WorkQueues {
    fn default() -> WorkQueues {
        WorkQueues(SeriesMap::new(LOOPS_MAX))
    }
}

/// Work on one key. Dropping it ends the work.
#[derive(Debug)]
pub struct RunningWork {
    queue: Arc<Series<QueueMetrics>>,
    number: u64,
}

impl RunningWork {
    /// Begins the work on a key.
    pub fn begin(queue: &Arc<Series<QueueMetrics>>, now: Instant) -> RunningWork {
        let mut running = queue.metrics.running();
        let number = running.next;
        running.next += 1;
        running.begun.insert(number, now);
        drop(running);
        RunningWork { queue: queue.clone(), number }
    }
}

impl Drop for RunningWork {
    fn drop(&mut self) {
        let metrics = &self.queue.metrics;
        let begun = metrics.running().begun.remove(&self.number);
        if let Some(begun) = begun {
            metrics.work.observe_duration(begun.elapsed());
        }
    }
}

impl QueueMetrics {
    /// Counts how long a key has waited.
    pub fn waited(&self, took: Duration) {
        self.waits.observe_duration(took);
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WorkQueues {
    /// Returns the metrics of the queue of a loop; `None`: there are too many.
    pub fn queue(&self, name: &str) -> Option<Arc<Series<QueueMetrics>>> {
        self.0.get(&[name])
    }

    pub(super) fn write(&self, now: Instant, out: &mut Exposition) {
        let all = self.0.all();
        type Read = fn(&QueueMetrics) -> f64;
        let numbers: [(&'static Description, Read); 3] = [
            (&ADDS, |queue| queue.adds.get() as f64),
            (&DEPTH, |queue| queue.depth.get() as f64),
            (&RETRIES, |queue| queue.retries.get() as f64),
        ];
        for (description, read) in numbers {
            let mut text = out.family(description);
            for series in &all {
                text.value(&series.values(), read(&series.metrics));
            }
        }
        type Which = fn(&QueueMetrics) -> &Histogram;
        let histograms: [(&'static Description, Which); 2] =
            [(&WAITS, |queue| &queue.waits), (&WORK, |queue| &queue.work)];
        for (description, which) in histograms {
            let mut text = out.family(description);
            for series in &all {
                text.histogram(&series.values(), which(&series.metrics));
            }
        }
        let ages = |series: &Series<QueueMetrics>| -> Vec<f64> {
            let running = series.metrics.running();
            let age = |begun: &Instant| now.saturating_duration_since(*begun).as_secs_f64();
            running.begun.values().map(age).collect()
        };
        let mut text = out.family(&UNFINISHED);
        for series in &all {
            text.value(&series.values(), ages(series).iter().sum());
        }
        drop(text);
        let mut text = out.family(&LONGEST);
        for series in &all {
            text.value(&series.values(), ages(series).into_iter().fold(0.0, f64::max));
        }
    }
}

/// The bounds are computed in Go as powers of ten, which are not exact.
static SECONDS: Bounds = Bounds::seconds(&[
    1e-8,
    1e-7,
    1e-6,
    9.999_999_999_999_999e-6,
    9.999_999_999_999_999e-5,
    0.001,
    0.01,
    0.1,
    1.0,
    10.0,
]);

const NAME: &[&str] = &["name"];

static ADDS: Description =
    Description::counter("workqueue_adds_total", "[BETA] Keys that were added to a queue.", NAME);

static DEPTH: Description =
    Description::gauge("workqueue_depth", "[BETA] Keys that wait in a queue.", NAME);

static RETRIES: Description = Description::counter(
    "workqueue_retries_total",
    "[BETA] Keys of a queue whose work failed and is tried again.",
    NAME,
);

static WAITS: Description = Description::histogram(
    "workqueue_queue_duration_seconds",
    "[BETA] Seconds that keys waited in a queue.",
    NAME,
);

static WORK: Description = Description::histogram(
    "workqueue_work_duration_seconds",
    "[BETA] Seconds that the work on a key of a queue took.",
    NAME,
);

static UNFINISHED: Description = Description::gauge(
    "workqueue_unfinished_work_seconds",
    "[BETA] Seconds since the beginning of all work of a queue that has not ended, added up.",
    NAME,
);

static LONGEST: Description = Description::gauge(
    "workqueue_longest_running_processor_seconds",
    "[BETA] Seconds since the beginning of the longest work of a queue that has not ended.",
    NAME,
);
