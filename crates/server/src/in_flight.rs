//! Limits on concurrent requests: `--max-requests-inflight` and `--max-mutating-requests-inflight`, as in kube-apiserver
//! without priority and fairness. Long-running requests and members of `system:masters` do not count.

use crate::limits::Limits;
use keelson_auth::{Attributes, MASTERS, User};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Verbs and subresources of long-running requests.
const LONG_RUNNING_VERBS: [&str; 2] = ["watch", "proxy"];
const LONG_RUNNING_SUBRESOURCES: [&str; 5] = ["attach", "exec", "proxy", "log", "portforward"];

/// Counts the requests in flight.
#[derive(Debug)]
pub(crate) struct InFlight {
    reading: Limit,
    mutating: Limit,
}

#[derive(Debug)]
struct Limit {
    /// 0 means no limit.
    max: usize,
    now: AtomicUsize,
}

/// The limit of requests in flight is reached.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

impl InFlight {
    pub fn new(limits: &Limits) -> InFlight {
        let limit = |max| Limit { max, now: AtomicUsize::new(0) };
        InFlight {
            reading: limit(limits.requests_in_flight_max),
            mutating: limit(limits.mutating_requests_in_flight_max),
        }
    }

    /// Counts a request until the returned guard is dropped; `None` if it does not count.
    pub fn enter(
        self: &Arc<Self>,
        user: &User,
        attributes: &Attributes,
    ) -> Result<Option<InFlightGuard>, TooMany> {
        let is_long_running = LONG_RUNNING_VERBS.contains(&attributes.verb.as_str())
            || LONG_RUNNING_SUBRESOURCES.contains(&attributes.subresource.as_str());
        if is_long_running || user.is_in(MASTERS) {
            return Ok(None);
        }
        let is_mutating = !matches!(attributes.verb.as_str(), "get" | "list" | "watch");
        let limit = self.limit(is_mutating);
        if limit.max == 0 {
            return Ok(None);
        }
        let guard = InFlightGuard { in_flight: self.clone(), is_mutating };
        if limit.now.fetch_add(1, Ordering::Relaxed) >= limit.max {
            Err(TooMany)
        } else {
            Ok(Some(guard))
        }
    }

    fn limit(&self, is_mutating: bool) -> &Limit {
        if is_mutating { &self.mutating } else { &self.reading }
    }
}

/// Counts a request until it is dropped.
#[derive(Debug)]
pub(crate) struct InFlightGuard {
    in_flight: Arc<InFlight>,
    is_mutating: bool,
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.in_flight.limit(self.is_mutating).now.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::Str;

    fn enter(
        all: &Arc<InFlight>,
        user: &User,
        verb: &'static str,
    ) -> Result<Option<InFlightGuard>, TooMany> {
        let attributes = Attributes { verb: Str::new_static(verb), ..Attributes::default() };
        all.enter(user, &attributes)
    }

    #[test]
    fn reading_and_mutating_requests_are_counted_apart() {
        let limits = Limits {
            requests_in_flight_max: 1,
            mutating_requests_in_flight_max: 1,
            ..Limits::default()
        };
        let all = Arc::new(InFlight::new(&limits));
        let bob = User { name: "bob".into(), ..User::default() };
        let admin = User::default().with_group(MASTERS);
        let reading = enter(&all, &bob, "list").expect("below the limit");
        assert!(reading.is_some());
        assert_eq!(enter(&all, &bob, "get").err(), Some(TooMany));
        let mutating = enter(&all, &bob, "patch").expect("below the limit");
        // As upstream, every verb but get, list and watch counts as mutating.
        assert_eq!(enter(&all, &bob, "head").err(), Some(TooMany));
        for verb in ["get", "create"] {
            assert!(matches!(enter(&all, &admin, verb), Ok(None)));
        }
        assert!(matches!(enter(&all, &bob, "watch"), Ok(None)));
        drop((reading, mutating));
        assert!(enter(&all, &bob, "get").is_ok());
        assert!(enter(&all, &bob, "create").is_ok());
    }
}
