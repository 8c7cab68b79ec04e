//! [`Batches`]: events that wait in a buffer and are stored together.

use super::throttle::Throttle;
use super::{Batching, Entry, Target};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Maximum length of all events that wait or are being stored. Upstream bounds their number only.
const BUFFER_BYTES_MAX: usize = 64 << 20;
/// Maximum of a buffer's number of events: what a channel of tokio can have.
const BUFFER_EVENTS_MAX: usize = Semaphore::MAX_PERMITS;

/// Events that wait in a buffer.
pub(super) struct Batches {
    buffer: mpsc::Sender<Entry>,
    load: Arc<Load>,
    stop: watch::Sender<bool>,
    /// The loop that stores the events.
    task: Mutex<Option<JoinHandle<()>>>,
}

/// The events that wait or are being stored.
#[derive(Default)]
struct Load {
    events: AtomicUsize,
    bytes: AtomicUsize,
}

impl Load {
    fn remove(&self, events: usize, bytes: usize) {
        self.events.fetch_sub(events, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Batches {
    /// Starts the loop that stores events together, at most `bytes_max` bytes of them.
    pub fn start(target: Arc<Target>, batching: Batching, bytes_max: usize) -> Batches {
        let events_max = batching.buffer_events_max.clamp(1, BUFFER_EVENTS_MAX);
        let (buffer, receiver) = mpsc::channel(events_max);
        let (stop, stopped) = watch::channel(false);
        let load: Arc<Load> = Arc::default();
        let batcher = Batcher { receiver, kept: None, stopped, bytes_max, batching };
        let task = tokio::spawn(run(batcher, target, load.clone()));
        Batches { buffer, load, stop, task: Mutex::new(Some(task)) }
    }

    /// Adds an event, or returns it with why it is lost.
    pub fn add(&self, entry: Entry) -> Result<(), (Entry, &'static str)> {
        let length = entry.text.len();
        let before = self.load.bytes.fetch_add(length, Ordering::Relaxed);
        self.load.events.fetch_add(1, Ordering::Relaxed);
        let is_full = before.saturating_add(length) > BUFFER_BYTES_MAX && before > 0;
        let sent =
            if is_full { Err(TrySendError::Full(entry)) } else { self.buffer.try_send(entry) };
        let lost = match sent {
            Ok(()) => return Ok(()),
            Err(TrySendError::Full(entry)) => (entry, "audit buffer queue blocked"),
            Err(TrySendError::Closed(entry)) => (entry, "audit backend shut down"),
        };
        self.load.remove(1, length);
        Err(lost)
    }

    /// Stores what waits, for at most `time_max`. Returns the number of events that are left.
    pub async fn shutdown(&self, time_max: Duration) -> usize {
        let _ = self.stop.send(true);
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut task) = task
            && timeout(time_max, &mut task).await.is_err()
        {
            task.abort();
        }
        self.load.events.swap(0, Ordering::Relaxed)
    }
}

/// Stores batch after batch until the buffer is closed and empty.
async fn run(mut batcher: Batcher, target: Arc<Target>, load: Arc<Load>) {
    let throttle = batcher.batching.throttle;
    let mut throttle = throttle.map(|(per_second, burst)| Throttle::new(per_second, burst));
    let started = Instant::now();
    let at_once_max = target.sink.batches_at_once();
    let mut running = JoinSet::new();
    while let Some(batch) = batcher.next().await {
        if let Some(throttle) = &mut throttle {
            let wait = throttle.take(started.elapsed());
            batcher.unless_stopped(sleep(wait)).await;
        }
        while running.len() >= at_once_max {
            running.join_next().await;
        }
        let (target, load) = (target.clone(), load.clone());
        running.spawn(async move {
            let (events, bytes) = (batch.len(), batch.iter().map(|entry| entry.text.len()).sum());
            target.write(batch).await;
            load.remove(events, bytes);
        });
    }
    while running.join_next().await.is_some() {}
}

/// Takes batches out of the buffer.
struct Batcher {
    receiver: mpsc::Receiver<Entry>,
    /// An event for which the batch before had no room.
    kept: Option<Entry>,
    stopped: watch::Receiver<bool>,
    bytes_max: usize,
    batching: Batching,
}

impl Batcher {
    /// Returns the next batch: a full one, or what came in time. `None` at the end.
    async fn next(&mut self) -> Option<Vec<Entry>> {
        let first = match self.kept.take() {
            Some(kept) => kept,
            None => self.first().await?,
        };
        let until = Instant::now() + self.batching.wait;
        let mut bytes = first.text.len();
        let mut batch = vec![first];
        while batch.len() < self.batching.batch_events_max {
            let Some(entry) = self.within(until).await else { break };
            if bytes + entry.text.len() > self.bytes_max {
                self.kept = Some(entry);
                break;
            }
            bytes += entry.text.len();
            batch.push(entry);
        }
        Some(batch)
    }

    /// Waits for an event. When the server stops, the buffer is closed and what it has is taken.
    async fn first(&mut self) -> Option<Entry> {
        let mut stopped = self.stopped.clone();
        tokio::select! {
            biased;
            entry = self.receiver.recv() => return entry,
            _ = stopped.wait_for(|stop| *stop) => {}
        }
        self.receiver.close();
        self.receiver.recv().await
    }

    /// Waits for an event until the batch has waited long enough, or the server stops.
    async fn within(&mut self, until: Instant) -> Option<Entry> {
        if let Ok(entry) = self.receiver.try_recv() {
            return Some(entry);
        }
        let mut stopped = self.stopped.clone();
        let receiver = &mut self.receiver;
        let wait = async {
            tokio::select! {
                biased;
                entry = receiver.recv() => entry,
                _ = stopped.wait_for(|stop| *stop) => None,
            }
        };
        timeout_at(until, wait).await.ok().flatten()
    }

    /// Waits, but no longer than the server runs.
    async fn unless_stopped(&self, wait: impl Future<Output = ()>) {
        let mut stopped = self.stopped.clone();
        tokio::select! {
            () = wait => {}
            _ = stopped.wait_for(|stop| *stop) => {}
        }
    }
}
