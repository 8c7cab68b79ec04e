//! [`Batches`]: events that wait in a buffer and are posted together.

use super::throttle::Throttle;
use super::webhook::{BATCHES_AT_ONCE_MAX, Webhook};
use super::{Batching, Entry, Losses, SHUT_DOWN};
use crate::metrics::Plugin;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Events that wait in a buffer.
pub(super) struct Batches {
    buffer: Arc<Buffer>,
    stop: watch::Sender<bool>,
    /// The loop that stores the events.
    task: Mutex<Option<JoinHandle<()>>>,
}

/// The buffer between the requests and the loop. The loop is woken by the first event and by the
/// one that makes a batch full, not by each.
struct Buffer {
    waiting: Mutex<Waiting>,
    /// Wakes the loop.
    changed: Notify,
    batching: Batching,
    /// Maximum length of a batch.
    batch_bytes_max: usize,
}

#[derive(Default)]
struct Waiting {
    entries: VecDeque<Entry>,
    /// The length of `entries`.
    bytes: usize,
    /// Events that are being stored, and their length.
    stored_events: usize,
    stored_bytes: usize,
    is_closed: bool,
}

impl Batches {
    /// Starts the loop that posts events together, at most `bytes_max` bytes of them.
    pub fn start(
        webhook: Webhook,
        batching: Batching,
        bytes_max: usize,
        losses: Arc<Losses>,
    ) -> Batches {
        let buffer = Arc::new(Buffer {
            waiting: Mutex::default(),
            changed: Notify::new(),
            batching,
            batch_bytes_max: bytes_max,
        });
        let (stop, stopped) = watch::channel(false);
        let batcher = Batcher { buffer: buffer.clone(), stopped };
        let task = tokio::spawn(run(batcher, webhook, losses));
        Batches { buffer, stop, task: Mutex::new(Some(task)) }
    }

    /// Adds an event, or returns why it is lost.
    pub fn add(&self, entry: Entry) -> Result<(), &'static str> {
        self.buffer.add(entry)
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
        let mut waiting = self.buffer.waiting();
        let left = waiting.entries.len() + waiting.stored_events;
        *waiting = Waiting { is_closed: true, ..Waiting::default() };
        left
    }
}

impl Buffer {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, entry: Entry) -> Result<(), &'static str> {
        let mut waiting = self.waiting();
        if waiting.is_closed {
            return Err(SHUT_DOWN);
        }
        let bytes = waiting.bytes + waiting.stored_bytes;
        let length = entry.text.len();
        if let Some(why) = self.batching.refusal(length, waiting.entries.len(), bytes) {
            return Err(why);
        }
        waiting.bytes += length;
        waiting.entries.push_back(entry);
        let wakes = waiting.entries.len() == 1 || self.is_batch(&waiting);
        drop(waiting);
        if wakes {
            self.changed.notify_one();
        }
        Ok(())
    }

    /// Returns whether what waits is a full batch.
    fn is_batch(&self, waiting: &Waiting) -> bool {
        waiting.entries.len() >= self.batching.batch_events_max
            || waiting.bytes >= self.batch_bytes_max
    }

    /// Takes the first events, at most a batch.
    fn take(&self, waiting: &mut Waiting) -> Vec<Entry> {
        let mut bytes = 0;
        let mut batch = vec![];
        while batch.len() < self.batching.batch_events_max
            && let Some(next) = waiting.entries.front()
            && (batch.is_empty() || bytes + next.text.len() <= self.batch_bytes_max)
            && let Some(entry) = waiting.entries.pop_front()
        {
            bytes += entry.text.len();
            batch.push(entry);
        }
        waiting.bytes -= bytes;
        waiting.stored_events += batch.len();
        waiting.stored_bytes += bytes;
        batch
    }

    /// Records that a batch is stored, or lost.
    fn end(&self, events: usize, bytes: usize) {
        let mut waiting = self.waiting();
        waiting.stored_events = waiting.stored_events.saturating_sub(events);
        waiting.stored_bytes = waiting.stored_bytes.saturating_sub(bytes);
    }
}

/// Stores batch after batch until the buffer is closed and empty.
async fn run(batcher: Batcher, webhook: Webhook, losses: Arc<Losses>) {
    let webhook = Arc::new(webhook);
    let mut throttle = batcher
        .buffer
        .batching
        .throttle
        .map(|(per_second, burst)| Throttle::new(per_second, burst));
    let started = Instant::now();
    let mut running = JoinSet::new();
    while let Some(batch) = batcher.next().await {
        if let Some(throttle) = &mut throttle {
            let wait = throttle.take(started.elapsed());
            batcher.unless_stopped(sleep(wait)).await;
        }
        while running.len() >= BATCHES_AT_ONCE_MAX {
            running.join_next().await;
        }
        let webhook = webhook.clone();
        let losses = losses.clone();
        let buffer = batcher.buffer.clone();
        running.spawn(async move {
            let named = batch.iter().map(|entry| entry.lost).sum();
            let texts: Vec<Bytes> = batch.into_iter().map(|entry| entry.text).collect();
            if let Err(why) = webhook.send(&texts).await {
                losses.lose(Plugin::Webhook, named, texts.len() as u64, &why);
            }
            buffer.end(texts.len(), texts.iter().map(Bytes::len).sum());
        });
    }
    while running.join_next().await.is_some() {}
}

/// Takes batches out of the buffer.
struct Batcher {
    buffer: Arc<Buffer>,
    stopped: watch::Receiver<bool>,
}

impl Batcher {
    /// Returns the next batch: a full one, or what came in time. At the stop the buffer is closed,
    /// and what it has is taken. `None` at the end.
    async fn next(&self) -> Option<Vec<Entry>> {
        let mut until = None;
        loop {
            let is_stopped = *self.stopped.borrow();
            {
                let mut waiting = self.buffer.waiting();
                waiting.is_closed |= is_stopped;
                let is_empty = waiting.entries.is_empty();
                if is_empty && is_stopped {
                    return None;
                }
                let is_late = until.is_some_and(|until| Instant::now() >= until);
                if !is_empty && (is_stopped || is_late || self.buffer.is_batch(&waiting)) {
                    return Some(self.buffer.take(&mut waiting));
                }
                if !is_empty && until.is_none() {
                    until = Some(Instant::now() + self.buffer.batching.wait);
                }
            }
            let changed = self.buffer.changed.notified();
            match until {
                None => self.unless_stopped(changed).await,
                Some(until) => {
                    let late = sleep_until(until);
                    let next = async {
                        tokio::select! {
                            () = changed => {}
                            () = late => {}
                        }
                    };
                    self.unless_stopped(next).await;
                }
            }
        }
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
