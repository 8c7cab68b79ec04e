//! [`Lines`]: lines of a log that no request waits for. They are gathered in one text, which a
//! thread of its own writes a few hundred times a second.

use super::log_file::{LogFile, Output, TEXT_BYTES_MAX};
use super::rotation::check_length;
use super::throttle::Throttle;
use super::{Batching, Entry, Losses, SHUT_DOWN};
use crate::metrics::Plugin;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{io, mem};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Time between two writes. How lines are written cannot be seen in a log, so those of that time
/// are written together, whatever the size of a batch.
const PAUSE: Duration = Duration::from_millis(5);

/// Lines that wait for the thread that writes them.
pub(super) struct Lines {
    shared: Arc<Shared>,
    /// Maximum length of a line.
    line_bytes_max: u64,
    thread: Mutex<Option<Running>>,
}

struct Running {
    handle: JoinHandle<()>,
    /// Is dropped at the end of the thread.
    ended: oneshot::Receiver<()>,
}

/// What the requests and the thread share.
struct Shared {
    waiting: Mutex<Waiting>,
    /// Wakes the thread when it waits for lines.
    changed: Condvar,
    /// Wakes the thread when it waits for the time of the next write.
    closed: Condvar,
    batching: Batching,
    /// Lines of this length are a full batch.
    batch_bytes_max: usize,
}

#[derive(Default)]
struct Waiting {
    lines: Gathered,
    /// Lines that are being written, and their length.
    written: (usize, usize),
    /// Whether the thread waits for the first line, or for more.
    is_awaited: bool,
    is_closed: bool,
}

/// Lines, one behind the other.
#[derive(Default)]
struct Gathered {
    text: Vec<u8>,
    lengths: VecDeque<usize>,
    /// How many lost events they name.
    named: u64,
}

impl Lines {
    /// Starts the thread.
    pub fn start(
        log: LogFile,
        batching: Batching,
        batch_bytes_max: usize,
        losses: Arc<Losses>,
    ) -> io::Result<Lines> {
        let line_bytes_max = log.line_bytes_max();
        let shared = Arc::new(Shared {
            waiting: Mutex::default(),
            changed: Condvar::new(),
            closed: Condvar::new(),
            batching,
            batch_bytes_max,
        });
        let (end, ended) = oneshot::channel();
        let output = log.into_output();
        let of_thread = shared.clone();
        let run = move || {
            run(&of_thread, output, &losses);
            drop(end);
        };
        let handle = thread::Builder::new().name("audit-log".to_owned()).spawn(run)?;
        let thread = Mutex::new(Some(Running { handle, ended }));
        Ok(Lines { shared, line_bytes_max, thread })
    }

    /// Adds a line, or returns where and why it is lost.
    pub fn add(&self, entry: &Entry) -> Result<(), (Plugin, Cow<'static, str>)> {
        let checked = check_length(entry.text.len(), self.line_bytes_max);
        checked.map_err(|why| (Plugin::Log, why.into()))?;
        self.shared.add(entry).map_err(|why| (Plugin::Buffered, why.into()))
    }

    /// Writes what waits, for at most `time_max`. Returns the number of lines that are left.
    pub async fn shutdown(&self, time_max: Duration) -> usize {
        self.shared.close();
        let running = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Running { ended, .. }) = running {
            // A thread that cannot write is left alone.
            let _ = timeout(time_max, ended).await;
        }
        let mut waiting = self.shared.waiting();
        let lines = mem::take(&mut waiting.lines);
        lines.lengths.len() + mem::take(&mut waiting.written).0
    }
}

impl Drop for Lines {
    /// Writes what waits.
    fn drop(&mut self) {
        self.shared.close();
        let running = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Running { handle, .. }) = running {
            let _ = handle.join();
        }
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        self.waiting().is_closed = true;
        self.changed.notify_one();
        self.closed.notify_one();
    }

    fn add(&self, entry: &Entry) -> Result<(), &'static str> {
        let mut waiting = self.waiting();
        if waiting.is_closed {
            return Err(SHUT_DOWN);
        }
        let bytes = waiting.lines.text.len() + waiting.written.1;
        let refusal = self.batching.refusal(entry.text.len(), waiting.lines.lengths.len(), bytes);
        if let Some(why) = refusal {
            return Err(why);
        }
        waiting.lines.push(entry);
        let wakes = waiting.is_awaited
            && (waiting.lines.lengths.len() == 1 || self.is_batch(&waiting.lines));
        waiting.is_awaited &= !wakes;
        drop(waiting);
        if wakes {
            self.changed.notify_one();
        }
        Ok(())
    }

    /// Returns whether the lines are a full batch.
    fn is_batch(&self, lines: &Gathered) -> bool {
        lines.lengths.len() >= self.batching.batch_events_max
            || lines.text.len() >= self.batch_bytes_max
    }

    /// Moves the next lines to `next`, which is empty: a full batch, or what came in time; when
    /// closed, what is left. Returns false at the end.
    fn next(&self, next: &mut Gathered) -> bool {
        let mut waiting = self.waiting();
        let mut until = None;
        loop {
            let is_empty = waiting.lines.lengths.is_empty();
            if is_empty && waiting.is_closed {
                return false;
            }
            let is_late = until.is_some_and(|until| Instant::now() >= until);
            if !is_empty && (waiting.is_closed || is_late || self.is_batch(&waiting.lines)) {
                mem::swap(&mut waiting.lines, next);
                if self.batching.throttle.is_some() {
                    waiting.lines = next.split_off(self.batching.batch_events_max.max(1));
                }
                waiting.written = (next.lengths.len(), next.text.len());
                return true;
            }
            if !is_empty && until.is_none() {
                until = Instant::now().checked_add(self.batching.wait);
            }
            waiting.is_awaited = true;
            waiting = match until {
                None => self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    let woken = self.changed.wait_timeout(waiting, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
            waiting.is_awaited = false;
        }
    }

    /// Waits, but not when it is closed.
    fn pause(&self, time: Duration) {
        let waiting = self.waiting();
        let is_open = |waiting: &mut Waiting| !waiting.is_closed;
        drop(self.closed.wait_timeout_while(waiting, time, is_open));
    }

    /// Records that lines are written, or lost.
    fn end(&self) {
        self.waiting().written = (0, 0);
    }
}

impl Gathered {
    fn push(&mut self, entry: &Entry) {
        self.text.extend_from_slice(&entry.text);
        self.lengths.push_back(entry.text.len());
        self.named += entry.lost;
    }

    /// Removes and returns all lines but the first ones.
    fn split_off(&mut self, lines: usize) -> Gathered {
        let lengths = self.lengths.split_off(lines.min(self.lengths.len()));
        let text = self.text.split_off(self.lengths.iter().sum());
        Gathered { text, lengths, named: 0 }
    }

    /// Removes all lines and keeps their room, unless it is large.
    fn clear(&mut self) {
        self.text.clear();
        self.text.shrink_to(TEXT_BYTES_MAX);
        self.lengths.clear();
        self.named = 0;
    }
}

/// Writes lines until it is closed and none are left.
fn run(shared: &Shared, mut output: Output, losses: &Losses) {
    let limits = shared.batching.throttle;
    let mut throttle = limits.map(|(per_second, burst)| Throttle::new(per_second, burst));
    let started = Instant::now();
    let mut lines = Gathered::default();
    while shared.next(&mut lines) {
        if let Some(throttle) = &mut throttle {
            shared.pause(throttle.take(started.elapsed()));
        }
        if let Err(error) = output.write(&lines.text, lines.lengths.iter().copied()) {
            let events = lines.lengths.len() as u64;
            losses.lose(Plugin::Log, lines.named, events, &error.to_string());
        }
        lines.clear();
        shared.end();
        if throttle.is_none() {
            shared.pause(PAUSE);
        }
    }
}
