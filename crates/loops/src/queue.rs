//! [`Queue`]: the work queue of a control loop. A key is in it at most once; failed keys are
//! retried with backoff. A state machine without a clock of its own.

use keelson_metrics::Series;
use keelson_registry::metrics::QueueMetrics;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Delay after the first failure of a key. It doubles with every further failure.
const RETRY_DELAY: Duration = Duration::from_millis(20);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(60);
/// Delay after a failure during which the key was added again: what has changed may be what was
/// missing. It is not shorter, because the failed sync may have caused the change itself.
const RETRY_DELAY_AFTER_CHANGE_MAX: Duration = Duration::from_secs(1);
/// Number of doublings after which the delay stays the same.
const DOUBLINGS_MAX: u32 = 16;

/// Keys that are due, in the order in which they were added, and keys that are due later.
#[derive(Debug)]
pub struct Queue<K> {
    ready: VecDeque<K>,
    /// Keys that are due and go before those in `ready`.
    urgent: VecDeque<K>,
    is_urgent: fn(&K) -> bool,
    /// When the keys in `ready` were first seen there, as far as [`Queue::next`] was called since.
    ready_since: VecDeque<Instant>,
    metrics: Option<Arc<Series<QueueMetrics>>>,
    /// The keys in `ready` and `urgent`.
    ready_keys: HashSet<K>,
    /// Keys that are being synced. True: the key was added again meanwhile.
    running: HashMap<K, bool>,
    delayed: BinaryHeap<Reverse<(Instant, K)>>,
    /// The earliest time at which a key in `delayed` is due. Other times of that key in `delayed`
    /// are stale.
    due: HashMap<K, Instant>,
    failures: HashMap<K, u32>,
}

impl<K> Default for Queue<K>
where
    K: Ord,
{
    fn default() -> Self {
        Queue {
            ready: VecDeque::new(),
            urgent: VecDeque::new(),
            is_urgent: |_| false,
            ready_since: VecDeque::new(),
            metrics: None,
            ready_keys: HashSet::new(),
            running: HashMap::new(),
            delayed: BinaryHeap::new(),
            due: HashMap::new(),
            failures: HashMap::new(),
        }
    }
}

impl<K: Clone + Eq + Hash + Ord> Queue<K> {
    /// Returns an empty queue that is counted.
    pub fn counted(metrics: Option<Arc<Series<QueueMetrics>>>) -> Queue<K> {
        Queue { metrics, ..Queue::default() }
    }

    /// Makes some keys go before all others that are due.
    #[must_use]
    pub fn urgent(self, is_urgent: fn(&K) -> bool) -> Queue<K> {
        Queue { is_urgent, ..self }
    }

    fn depth(&self) -> i64 {
        (self.ready.len() + self.urgent.len()) as i64
    }

    fn metrics(&self) -> Option<&QueueMetrics> {
        self.metrics.as_ref().map(|series| &series.metrics)
    }

    /// Makes a key due now. A key that is being synced is due again when that is done.
    pub fn add(&mut self, key: K) {
        if let Some(again) = self.running.get_mut(&key) {
            *again = true;
        } else if self.ready_keys.insert(key.clone()) {
            self.due.remove(&key);
            match (self.is_urgent)(&key) {
                true => self.urgent.push_back(key),
                false => self.ready.push_back(key),
            }
            if let Some(metrics) = self.metrics() {
                metrics.adds.increment();
                metrics.depth.set(self.depth());
            }
        }
    }

    /// Makes keys due now.
    pub fn extend(&mut self, keys: impl IntoIterator<Item = K>) {
        keys.into_iter().for_each(|key| self.add(key));
    }

    /// Makes a key due at a time, unless it is due earlier.
    pub fn add_at(&mut self, key: K, at: Instant) {
        if self.ready_keys.contains(&key) || self.due.get(&key).is_some_and(|due| *due <= at) {
            return;
        }
        self.due.insert(key.clone(), at);
        self.delayed.push(Reverse((at, key)));
    }

    /// Returns the next key that is due. The caller must call [`Queue::done`] or [`Queue::failed`]
    /// afterwards.
    pub fn next(&mut self, now: Instant) -> Option<K> {
        while let Some(Reverse((at, _))) = self.delayed.peek()
            && *at <= now
            && let Some(Reverse((at, key))) = self.delayed.pop()
        {
            if self.due.get(&key) == Some(&at) {
                self.due.remove(&key);
                self.add(key);
            }
        }
        self.ready_since.resize(self.ready.len(), now);
        let (key, since) = match self.urgent.pop_front() {
            Some(key) => (key, None),
            None => (self.ready.pop_front()?, self.ready_since.pop_front()),
        };
        if let Some(metrics) = self.metrics() {
            metrics.waited(now.saturating_duration_since(since.unwrap_or(now)));
            metrics.depth.set(self.depth());
        }
        self.ready_keys.remove(&key);
        self.running.insert(key.clone(), false);
        Some(key)
    }

    /// Returns the time at which the next delayed key is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.delayed.peek().map(|Reverse((at, _))| *at)
    }

    /// Ends a successful sync. The key is due again at `again`, if given.
    pub fn done(&mut self, key: K, again: Option<Instant>) {
        self.failures.remove(&key);
        self.finish(key, again);
    }

    /// Ends a failed sync and returns the delay until the next try.
    pub fn failed(&mut self, key: K, now: Instant) -> Duration {
        let failures = self.failures.entry(key.clone()).or_default();
        let delay = RETRY_DELAY_MAX.min(RETRY_DELAY * (1 << (*failures).min(DOUBLINGS_MAX)));
        *failures += 1;
        if let Some(metrics) = self.metrics() {
            metrics.retries.increment();
        }
        // The key is not due at once, even if it was added meanwhile.
        let has_changed = self.running.insert(key.clone(), false) == Some(true);
        let delay = if has_changed { delay.min(RETRY_DELAY_AFTER_CHANGE_MAX) } else { delay };
        self.finish(key, Some(now + delay));
        delay
    }

    fn finish(&mut self, key: K, again: Option<Instant>) {
        let is_due = self.running.remove(&key).unwrap_or(false);
        if is_due {
            self.add(key);
        } else if let Some(at) = again {
            self.add_at(key, at);
        }
    }

    /// Whether no key is due, delayed or being synced.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.ready_keys.is_empty() && self.running.is_empty() && self.due.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn urgent_keys_go_first() {
        let start = Instant::now();
        let mut queue = Queue::default().urgent(|key| *key >= 100);
        queue.extend([1, 2]);
        queue.add_at(100, start + seconds(1));
        queue.add(101);
        let late = start + seconds(1);
        let taken: Vec<_> = std::iter::from_fn(|| queue.next(late)).collect();
        assert_eq!(taken, [101, 100, 1, 2]);
        taken.into_iter().for_each(|key| queue.done(key, None));
        assert!(queue.is_empty());
    }

    #[test]
    fn a_key_is_worked_on_once_at_a_time_and_again_when_something_happened() {
        let now = Instant::now();
        let mut queue = Queue::default();
        queue.add("a");
        queue.add("a");
        queue.add("b");
        assert_eq!(
            (queue.next(now), queue.next(now), queue.next(now)),
            (Some("a"), Some("b"), None)
        );
        queue.add("a");
        assert_eq!(queue.next(now), None, "it is worked on");
        queue.done("a", None);
        queue.done("b", None);
        assert_eq!((queue.next(now), queue.next(now)), (Some("a"), None));
        queue.done("a", None);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_key_is_due_at_the_earliest_of_its_times() {
        let now = Instant::now();
        let mut queue = Queue::default();
        queue.add_at("a", now + seconds(5));
        queue.add_at("a", now + seconds(3));
        queue.add_at("a", now + seconds(4));
        assert_eq!((queue.next_due(), queue.next(now)), (Some(now + seconds(3)), None));
        assert_eq!(queue.next(now + seconds(3)), Some("a"));
        queue.done("a", None);
        assert_eq!(queue.next(now + seconds(9)), None);
        queue.add_at("a", now + seconds(5));
        queue.add("a");
        assert_eq!(queue.next(now), Some("a"));
        queue.done("a", None);
        assert_eq!(queue.next(now + seconds(9)), None, "it was looked at meanwhile");
    }

    #[test]
    fn failures_back_off_and_a_success_forgets_them() {
        let mut now = Instant::now();
        let mut queue = Queue::default();
        queue.add("a");
        let mut delays = vec![];
        for _ in 0..14 {
            assert_eq!(queue.next(now), Some("a"));
            let delay = queue.failed("a", now);
            assert_eq!(queue.next(now), None);
            now += delay;
            delays.push(delay.as_millis());
        }
        assert_eq!(delays[..4], [20, 40, 80, 160]);
        assert_eq!(delays[13], 60_000);
        // A change during the sync shortens the delay, but not to nothing.
        assert_eq!(queue.next(now), Some("a"));
        queue.add("a");
        assert_eq!(queue.failed("a", now), seconds(1));
        assert_eq!(queue.next(now), None);
        now += seconds(1);
        assert_eq!(queue.next(now), Some("a"));
        queue.done("a", Some(now + seconds(1)));
        assert_eq!(queue.next(now + seconds(1)), Some("a"));
        assert_eq!(queue.failed("a", now), RETRY_DELAY);
    }
}
