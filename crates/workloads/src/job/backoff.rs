//! How long a Job waits before it replaces failed pods. The count of failures is kept in memory
//! only: after a restart, a Job begins with the shortest wait.

use super::facts::JobPod;
use keelson_meta::Timestamp;
use std::time::Duration;

/// Wait after the first failure. It doubles with each further one.
const WAIT: Duration = Duration::from_secs(10);
const WAIT_MAX: Duration = Duration::from_secs(600);
/// Number of doublings after which the wait is `WAIT_MAX`.
const DOUBLINGS_MAX: i64 = 6;

/// The failures of a Job since its last success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Failures {
    pub count: i64,
    pub last: Option<Timestamp>,
}

impl Failures {
    /// Returns the failures after some more pods have ended.
    #[must_use]
    pub fn after(self, succeeded: &[&JobPod], failed: &[&JobPod]) -> Failures {
        let last_success = succeeded.iter().map(|pod| pod.finished).max();
        let before = if last_success.is_some() { Failures::default() } else { self };
        let is_later = |pod: &&&JobPod| last_success.is_none_or(|success| pod.finished > success);
        let later = || failed.iter().filter(is_later);
        let count = before.count + i64::try_from(later().count()).unwrap_or(i64::MAX);
        let last = later().map(|pod| pod.finished).max().or(before.last);
        Failures { count, last }
    }

    /// Returns how long to wait yet; zero: not any more.
    pub fn wait(self, now: Timestamp) -> Duration {
        let Some(last) = self.last.filter(|_| self.count > 0) else { return Duration::ZERO };
        let doublings = u32::try_from((self.count - 1).min(DOUBLINGS_MAX)).unwrap_or(0);
        let wait = (WAIT * 2_u32.pow(doublings)).min(WAIT_MAX);
        let elapsed = now.since(last).0;
        // A failure that seems to be in the future delays the wait.
        match u64::try_from(elapsed) {
            Ok(elapsed) => wait.saturating_sub(Duration::from_nanos(elapsed)),
            Err(_) => wait + Duration::from_nanos(elapsed.unsigned_abs()),
        }
    }
}

/// Returns how long to wait before a failed pod of an index is replaced.
pub(super) fn wait_for_index(failed: Option<&JobPod>, now: Timestamp) -> Duration {
    let Some(pod) = failed else { return Duration::ZERO };
    let (counted, ignored) = pod.index_failures();
    Failures { count: counted + ignored + 1, last: Some(pod.finished) }.wait(now)
}

#[cfg(test)]
mod tests {
    use super::super::facts::Spec;
    use super::*;
    use keelson_meta::{Object, value};

    fn pods(ends: &[i64]) -> Vec<JobPod> {
        let pod = |at: &i64| {
            let created = Timestamp::new(*at, 0).text();
            let pod = value!({"metadata": {"creationTimestamp": (created)}});
            JobPod::new(Object::from_value(pod).expect("a map"), &Spec::default())
        };
        ends.iter().map(pod).collect()
    }

    #[test]
    fn failures_are_counted_from_the_last_success() {
        let check = |before: (i64, i64), succeeded: &[i64], failed: &[i64], want: (i64, i64)| {
            let failures = |(count, last): (i64, i64)| Failures {
                count,
                last: (count > 0).then(|| Timestamp::new(last, 0)),
            };
            let succeeded = pods(succeeded);
            let failed = pods(failed);
            let succeeded: Vec<_> = succeeded.iter().collect();
            let failed: Vec<_> = failed.iter().collect();
            assert_eq!(failures(before).after(&succeeded, &failed), failures(want));
        };
        check((0, 0), &[], &[], (0, 0));
        check((2, 5), &[], &[], (2, 5));
        check((2, 5), &[], &[9, 7], (4, 9));
        check((2, 5), &[8], &[], (0, 0));
        check((2, 5), &[8], &[7, 8, 9, 10], (2, 10));
    }

    #[test]
    fn the_wait_doubles_up_to_ten_minutes() {
        let check = |count: i64, elapsed: i64, want: u64| {
            let failures = Failures { count, last: Some(Timestamp::new(100, 0)) };
            assert_eq!(failures.wait(Timestamp::new(100 + elapsed, 0)).as_secs(), want);
        };
        check(0, 0, 0);
        check(1, 0, 10);
        check(1, 4, 6);
        check(1, 10, 0);
        check(3, 0, 40);
        check(6, 0, 320);
        check(7, 0, 600);
        check(70, 0, 600);
        check(1, -5, 15);
    }
}
