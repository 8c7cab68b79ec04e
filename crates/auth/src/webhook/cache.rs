//! [`Answers`]: answers that are remembered for a while, by the digest of what was asked.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Answers in each of two generations.
const ANSWERS_MAX: usize = 4096;

/// SHA-256 of a question.
pub(super) type Digest = [u8; 32];

/// Remembered answers. When there are many, the older half is forgotten.
pub(super) struct Answers<T>(Mutex<Generations<T>>);

struct Generations<T> {
    new: HashMap<Digest, (T, Instant)>,
    old: HashMap<Digest, (T, Instant)>,
}

impl<T: Clone> Answers<T> {
    pub fn new() -> Answers<T> {
        Answers(Mutex::new(Generations { new: HashMap::new(), old: HashMap::new() }))
    }

    /// The digest of what is asked.
    pub fn digest(asked: &[u8]) -> Digest {
        let digest = ring::digest::digest(&ring::digest::SHA256, asked);
        digest.as_ref().try_into().unwrap_or_default()
    }

    /// An answer that still counts.
    pub fn get(&self, asked: &Digest, now: Instant) -> Option<T> {
        let answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = answers.new.get(asked).or_else(|| answers.old.get(asked));
        found.filter(|(_, until)| now < *until).map(|(answer, _)| answer.clone())
    }

    /// Remembers an answer for so long.
    pub fn put(&self, asked: Digest, answer: T, now: Instant, time: Duration) {
        let Some(until) = now.checked_add(time).filter(|until| *until > now) else { return };
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.new.len() >= ANSWERS_MAX {
            answers.old = std::mem::take(&mut answers.new);
        }
        answers.new.insert(asked, (answer, until));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_end_with_their_time_and_are_bounded() {
        let (answers, now) = (Answers::<u32>::new(), Instant::now());
        let key = |n: u32| Answers::<u32>::digest(&n.to_le_bytes());
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
        assert!(answers.new.len() + answers.old.len() <= 2 * ANSWERS_MAX);
    }
}
