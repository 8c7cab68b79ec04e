//! [`ResponseCache`]: caches responses for a time, by the digest of the request.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Maximum responses in each of two generations.
const RESPONSES_MAX: usize = 4096;

/// SHA-256 of a request.
pub(super) type Digest = [u8; 32];

/// Cached responses. When the cache is full, the older half is dropped.
pub(super) struct ResponseCache<T>(Mutex<Generations<T>>);

struct Generations<T> {
    new: HashMap<Digest, (T, Instant)>,
    old: HashMap<Digest, (T, Instant)>,
}

impl<T: Clone> ResponseCache<T> {
    pub fn new() -> ResponseCache<T> {
        ResponseCache(Mutex::new(Generations { new: HashMap::new(), old: HashMap::new() }))
    }

    /// Returns the digest of a request.
    pub fn digest(request: &[u8]) -> Digest {
        let digest = ring::digest::digest(&ring::digest::SHA256, request);
        digest.as_ref().try_into().unwrap_or_default()
    }

    /// Returns a response that has not expired.
    pub fn get(&self, key: &Digest, now: Instant) -> Option<T> {
        let answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = answers.new.get(key).or_else(|| answers.old.get(key));
        found.filter(|(_, until)| now < *until).map(|(answer, _)| answer.clone())
    }

    /// Caches a response for `time`.
    pub fn put(&self, key: Digest, answer: T, now: Instant, time: Duration) {
        let Some(until) = now.checked_add(time).filter(|until| *until > now) else { return };
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.new.len() >= RESPONSES_MAX {
            answers.old = std::mem::take(&mut answers.new);
        }
        answers.new.insert(key, (answer, until));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_responses_expire_and_are_bounded() {
        let answers = ResponseCache::<u32>::new();
        let now = Instant::now();
        let key = |n: u32| ResponseCache::<u32>::digest(&n.to_le_bytes());
        let second = Duration::from_secs(1);
        answers.put(key(1), 7, now, second);
        answers.put(key(2), 7, now, Duration::ZERO);
        assert_eq!(answers.get(&key(1), now), Some(7));
        assert_eq!(answers.get(&key(1), now + second), None);
        assert_eq!(answers.get(&key(2), now), None);
        for n in 0..20_000 {
            answers.put(key(n), n, now, second);
        }
        let answers = answers.0.lock().unwrap();
        assert!(answers.new.len() + answers.old.len() <= 2 * RESPONSES_MAX);
    }
}
