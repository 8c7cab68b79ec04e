//! [`Backoff`]: a failed pod on a node is replaced at once, the next one after a second, then after
//! twice that and so on. Else a node that refuses a pod would be asked without end.

use keelson_meta::time::GoDuration;
use keelson_meta::{Str, Timestamp};
use std::collections::HashMap;
use std::time::Duration;

const DELAY: Duration = Duration::from_secs(1);
const DELAY_MAX: Duration = Duration::from_secs(15 * 60);
/// Maximum number of remembered failures. When there are more, old ones are forgotten.
const REMEMBERED_MAX: usize = 10_000;

/// Failures by set, generation and node.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: HashMap<(Str, i64, Str), (Duration, Timestamp)>,
}

fn since(now: Timestamp, then: Timestamp) -> Duration {
    let GoDuration(nanos) = now.since(then);
    Duration::from_nanos(nanos.max(0).unsigned_abs())
}

fn is_forgotten(then: Timestamp, now: Timestamp) -> bool {
    since(now, then) > 2 * DELAY_MAX
}

impl Backoff {
    /// Returns the delay if it is too early for another try; else counts this try.
    pub fn try_now(&mut self, key: (Str, i64, Str), now: Timestamp) -> Option<Duration> {
        if self.failures.len() >= REMEMBERED_MAX {
            self.failures.retain(|_, (_, then)| !is_forgotten(*then, now));
        }
        let known = self.failures.get(&key).filter(|(_, then)| !is_forgotten(*then, now));
        let next = match known {
            Some((delay, then)) if since(now, *then) < *delay => return Some(*delay),
            Some((delay, _)) => (*delay * 2).min(DELAY_MAX),
            None => DELAY,
        };
        self.failures.insert(key, (next, now));
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_until_failures_are_forgotten() {
        let mut backoff = Backoff::default();
        let key = || ("u".into(), 1, "node".into());
        let mut check = |second: i64, wanted: Option<u64>| {
            let delay = backoff.try_now(key(), Timestamp::new(second, 0));
            assert_eq!(delay, wanted.map(Duration::from_secs), "{second}");
        };
        check(0, None);
        check(0, Some(1));
        check(1, None);
        check(2, Some(2));
        check(3, None);
        check(6, Some(4));
        check(7, None);
        check(3000, None);
        check(3000, Some(1));
    }
}
