//! Limits on concurrent requests: `--max-requests-inflight` and `--max-mutating-requests-inflight`,
//! as in kube-apiserver without priority and fairness. Long-running requests and members of
//! `system:masters` do not count.

use crate::limits::Limits;
use crate::request_info::RequestInfo;
use keelson_auth::{MASTERS, User};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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
        info: &RequestInfo,
    ) -> Result<Option<InFlightGuard>, TooMany> {
        if info.is_long_running || user.is_in(MASTERS) {
            return Ok(None);
        }
        let limit = self.limit(info.is_mutating);
        if limit.max == 0 {
            return Ok(None);
        }
        let guard = InFlightGuard { in_flight: self.clone(), is_mutating: info.is_mutating };
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
    use crate::query::Query;
    use http::Method;

    fn enter(
        all: &Arc<InFlight>,
        user: &User,
        method: Method,
        url: &str,
    ) -> Result<Option<InFlightGuard>, TooMany> {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        all.enter(user, &RequestInfo::new(path, &method, &Query::parse(query)))
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
        let all_pods = "/api/v1/pods";
        let pod = "/api/v1/namespaces/n/pods/p";
        let reading = enter(&all, &bob, Method::GET, all_pods).expect("below the limit");
        assert!(reading.is_some());
        assert_eq!(enter(&all, &bob, Method::GET, pod).err(), Some(TooMany));
        let mutating = enter(&all, &bob, Method::PATCH, pod).expect("below the limit");
        // As upstream, every verb but get, list and watch counts as mutating.
        assert_eq!(enter(&all, &bob, Method::HEAD, "/healthz").err(), Some(TooMany));
        for (method, url) in [(Method::GET, pod), (Method::POST, all_pods)] {
            assert!(matches!(enter(&all, &admin, method, url), Ok(None)));
        }
        assert!(matches!(enter(&all, &bob, Method::GET, "/api/v1/pods?watch=1"), Ok(None)));
        drop((reading, mutating));
        assert!(enter(&all, &bob, Method::GET, pod).is_ok());
        assert!(enter(&all, &bob, Method::POST, all_pods).is_ok());
    }
}
