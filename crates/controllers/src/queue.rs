//! [`Queue`]: the keys of objects that a control loop has to look at, each at most once, with retries that back
//! off. A state machine without a clock of its own.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::time::Duration;
use tokio::time::Instant;

/// From the first failure of a key to its next try; doubles with each.
const RETRY_DELAY: Duration = Duration::from_millis(20);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(60);
/// Doublings after which the delay grows no further.
const DOUBLINGS_MAX: u32 = 16;

/// Keys that are due, in the order in which they came, and keys that will be due later.
#[derive(Debug)]
pub(crate) struct Queue<K> {
    ready: VecDeque<K>,
    /// The keys in `ready`.
    is_ready: HashSet<K>,
    /// Keys that are worked on. True: something has happened since.
    running: HashMap<K, bool>,
    later: BinaryHeap<Reverse<(Instant, K)>>,
    /// When a key in `later` is due: the earliest of its times. Other times in `later` are stale.
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
            is_ready: HashSet::new(),
            running: HashMap::new(),
            later: BinaryHeap::new(),
            due: HashMap::new(),
            failures: HashMap::new(),
        }
    }
}

impl<K: Clone + Eq + Hash + Ord> Queue<K> {
    /// Makes a key due now. One that is worked on is due again when that is done.
    pub fn add(&mut self, key: K) {
        if let Some(again) = self.running.get_mut(&key) {
            *again = true;
        } else if self.is_ready.insert(key.clone()) {
            self.due.remove(&key);
            self.ready.push_back(key);
        }
    }

    /// Makes keys due now.
    pub fn extend(&mut self, keys: impl IntoIterator<Item = K>) {
        keys.into_iter().for_each(|key| self.add(key));
    }

    /// Makes a key due at a time, unless it is due earlier.
    pub fn add_at(&mut self, key: K, at: Instant) {
        if self.is_ready.contains(&key) || self.due.get(&key).is_some_and(|due| *due <= at) {
            return;
        }
        self.due.insert(key.clone(), at);
        self.later.push(Reverse((at, key)));
    }

    /// The next key that is due; [`Queue::done`] is to follow.
    pub fn next(&mut self, now: Instant) -> Option<K> {
        while let Some(Reverse((at, _))) = self.later.peek()
            && *at <= now
            && let Some(Reverse((at, key))) = self.later.pop()
        {
            if self.due.get(&key) == Some(&at) {
                self.due.remove(&key);
                self.add(key);
            }
        }
        let key = self.ready.pop_front()?;
        self.is_ready.remove(&key);
        self.running.insert(key.clone(), false);
        Some(key)
    }

    /// When the next key will be due of those that are not yet.
    pub fn next_due(&self) -> Option<Instant> {
        self.later.peek().map(|Reverse((at, _))| *at)
    }

    /// A key was worked on, and is to be looked at again at `again`, if at all.
    pub fn done(&mut self, key: K, again: Option<Instant>) {
        self.failures.remove(&key);
        self.finish(key, again);
    }

    /// Work on a key failed; the delay until it is tried again.
    pub fn failed(&mut self, key: K, now: Instant) -> Duration {
        let failures = self.failures.entry(key.clone()).or_default();
        let delay = RETRY_DELAY_MAX.min(RETRY_DELAY * (1 << (*failures).min(DOUBLINGS_MAX)));
        *failures += 1;
        // What happens meanwhile must not make it be tried without a pause.
        self.running.insert(key.clone(), false);
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

    /// Whether nothing is due, worked on, or to be done later.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.running.is_empty() && self.due.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
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
            // A change does not shorten the pause.
            queue.add("a");
            let delay = queue.failed("a", now);
            assert_eq!(queue.next(now), None);
            now += delay;
            delays.push(delay.as_millis());
        }
        assert_eq!(delays[..4], [20, 40, 80, 160]);
        assert_eq!(delays[13], 60_000);
        assert_eq!(queue.next(now), Some("a"));
        queue.done("a", Some(now + seconds(1)));
        assert_eq!(queue.next(now + seconds(1)), Some("a"));
        assert_eq!(queue.failed("a", now), RETRY_DELAY);
    }
}
