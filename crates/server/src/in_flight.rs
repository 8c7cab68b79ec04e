//! Requests at once: `--max-requests-inflight` and `--max-mutating-requests-inflight`, as in kube-apiserver
//! without priority and fairness. Long-running requests and members of `system:masters` do not count.

use crate::limits::Limits;
use keelson_auth::{Attributes, MASTERS, User};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Verbs and subresources whose requests last as long as the client wants.
const LONG_VERBS: [&str; 2] = ["watch", "proxy"];
const LONG_SUBRESOURCES: [&str; 5] = ["attach", "exec", "proxy", "log", "portforward"];

/// The requests that are being answered.
#[derive(Debug)]
pub(crate) struct InFlight {
    reading: Lane,
    mutating: Lane,
}

#[derive(Debug)]
struct Lane {
    /// 0: any number.
    max: usize,
    now: AtomicUsize,
}

/// There are as many as there may be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

impl InFlight {
    pub fn new(limits: &Limits) -> InFlight {
        let lane = |max| Lane { max, now: AtomicUsize::new(0) };
        InFlight {
            reading: lane(limits.requests_in_flight_max),
            mutating: lane(limits.mutating_requests_in_flight_max),
        }
    }

    /// Counts a request, where it counts, until what is given is dropped.
    pub fn enter(
        self: &Arc<Self>,
        user: &User,
        attributes: &Attributes,
    ) -> Result<Option<Counted>, TooMany> {
        let is_long = LONG_VERBS.contains(&attributes.verb.as_str())
            || LONG_SUBRESOURCES.contains(&attributes.subresource.as_str());
        if is_long || user.is_in(MASTERS) {
            return Ok(None);
        }
        let is_mutating = !matches!(attributes.verb.as_str(), "get" | "list" | "watch");
        let lane = self.lane(is_mutating);
        if lane.max == 0 {
            return Ok(None);
        }
        let counted = Counted { in_flight: self.clone(), is_mutating };
        if lane.now.fetch_add(1, Ordering::Relaxed) >= lane.max {
            Err(TooMany)
        } else {
            Ok(Some(counted))
        }
    }

    fn lane(&self, is_mutating: bool) -> &Lane {
        if is_mutating { &self.mutating } else { &self.reading }
    }
}

/// A request that counts.
#[derive(Debug)]
pub(crate) struct Counted {
    in_flight: Arc<InFlight>,
    is_mutating: bool,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.in_flight.lane(self.is_mutating).now.fetch_sub(1, Ordering::Relaxed);
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
    ) -> Result<Option<Counted>, TooMany> {
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
        let reading = enter(&all, &bob, "list").expect("room");
        assert!(reading.is_some());
        assert_eq!(enter(&all, &bob, "get").err(), Some(TooMany));
        let mutating = enter(&all, &bob, "patch").expect("room");
        // As upstream, whatever does not read for sure counts as a change.
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
