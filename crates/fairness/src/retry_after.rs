//! [`RetryAfter`]: when a rejected client should come back. The time doubles while many requests
//! are rejected, and falls by a second when few are.

use std::collections::VecDeque;

/// Most seconds until a client comes back.
const SECONDS_MAX: u64 = 32;

/// The rejections of a level in the last seconds.
#[derive(Debug)]
pub struct RetryAfter {
    seconds: u64,
    doubled_at: u64,
    /// Seconds and the requests rejected in each, the current one last.
    recent: VecDeque<(u64, u64)>,
}

impl Default for RetryAfter {
    fn default() -> RetryAfter {
        RetryAfter { seconds: 1, doubled_at: 0, recent: VecDeque::new() }
    }
}

impl RetryAfter {
    /// Records a rejected request in a second. Returns when its client should come back.
    pub fn reject(&mut self, second: u64) -> u64 {
        match self.recent.back_mut() {
            Some((known, count)) if *known >= second => *count += 1,
            _ => {
                self.adapt(second);
                self.recent.push_back((second, 1));
            }
        }
        self.seconds
    }

    fn adapt(&mut self, second: u64) {
        while self.recent.front().is_some_and(|(known, _)| second - known > SECONDS_MAX) {
            self.recent.pop_front();
        }
        let from = second.saturating_sub(self.seconds);
        let recent = self.recent.iter().filter(|(known, _)| *known >= from);
        let rejected: u64 = recent.map(|(_, count)| count).sum();
        let may_double = second.saturating_sub(self.doubled_at) >= self.seconds;
        if may_double && rejected >= 3 * self.seconds {
            self.seconds = (self.seconds * 2).min(SECONDS_MAX);
            self.doubled_at = second;
        } else if rejected < self.seconds && self.seconds > 1 {
            self.seconds -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_doubles_under_load_and_falls_after_it() {
        let mut retry = RetryAfter::default();
        let mut told = vec![];
        for second in 100..170 {
            (0..200).for_each(|_| {
                retry.reject(second);
            });
            told.push(retry.seconds);
        }
        told.dedup();
        assert_eq!(told, [1, 2, 4, 8, 16, 32]);
        assert_eq!(retry.reject(1000), 31);
        assert_eq!(retry.reject(2000), 30);
    }
}
