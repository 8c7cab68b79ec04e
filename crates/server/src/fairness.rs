//! Priority and fairness: the seat that a request takes before it is authorized. The rules are in
//! the crate `fairness`; here are the locks, the waiting, the loop that follows the configuration,
//! and what is shown.
//!
//! A request that finds a seat costs two short locks of its level. One that waits has a place in a
//! queue until it starts, its client goes away, or a quarter of its time has passed.

mod configuration;
mod dumps;
mod metrics;
mod seat;
mod work;

pub use configuration::FairnessSource;
pub(crate) use configuration::{follow, load};
pub(crate) use dumps::text as dump;
pub(crate) use seat::{FairSeat, WatchSeat};
pub(crate) use work::estimate;

use crate::limits::Limits;
use crate::peer::Peer;
use arc_swap::ArcSwap;
use http::HeaderValue;
use keelson_auth::{Attributes, User};
use keelson_fairness::{
    FlowSchema, Level, LevelSpec, Nanoseconds, Request, RequestTarget, RetryAfter, Work,
};
use keelson_meta::Str;
use metrics::FlowMetrics;
use seat::Waiter;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Longest wait for a seat; otherwise it is a quarter of the request's time.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The FlowSchemas and levels of the server.
#[derive(Debug)]
pub struct Fairness {
    table: ArcSwap<Table>,
    /// Seats of the whole server.
    seats: u32,
    /// The moment from which time is counted.
    began: Instant,
    /// The fraction of its target that each level got last, as the bits of a float.
    fraction: AtomicU64,
}

/// The configuration at a moment.
#[derive(Debug, Default)]
struct Table {
    /// FlowSchemas in the order in which they match. Those whose level does not exist are left out.
    flows: Vec<Arc<FlowOfLevel>>,
    /// Levels by name, those included that were deleted and have requests.
    levels: Vec<Arc<SharedLevel>>,
}

/// A FlowSchema and its level.
#[derive(Debug)]
pub(crate) struct FlowOfLevel {
    schema: FlowSchema,
    level: Arc<SharedLevel>,
    metrics: Arc<FlowMetrics>,
    /// The UIDs, for the headers of responses.
    pub schema_uid: HeaderValue,
    pub level_uid: HeaderValue,
    /// Most seats of one request.
    pub request_seats_max: u32,
}

impl FlowOfLevel {
    /// Returns the names of the FlowSchema and of the level.
    pub fn names(&self) -> (&Str, &Str) {
        (&self.schema.name, &self.level.name)
    }
}

/// A level that requests share.
#[derive(Debug)]
struct SharedLevel {
    name: Str,
    began: Instant,
    state: Mutex<LevelState>,
}

#[derive(Debug)]
struct LevelState {
    level: Level<Waiter>,
    spec: LevelSpec,
    limits: keelson_fairness::Limits,
    /// The seats that it wanted when they were last divided.
    target: f64,
    retry_after: RetryAfter,
    /// Whether its object was deleted.
    is_ending: bool,
    counts: Counts,
}

/// What has become of the requests of a level.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    started: u64,
    rejected: u64,
    timed_out: u64,
    cancelled: u64,
}

/// A request for a seat.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub request: Request<'a>,
    pub attributes: &'a Attributes,
    /// The path of its URL.
    pub path: &'a str,
}

/// A request is rejected; its client should come back after some seconds.
#[derive(Debug)]
pub(crate) struct Rejected {
    pub retry_after: u64,
}

impl<'a> Asked<'a> {
    pub fn new(user: &'a User, attributes: &'a Attributes, path: &'a str) -> Asked<'a> {
        let target = match attributes.non_resource {
            true => RequestTarget::Path(&attributes.path),
            false => RequestTarget::Resource {
                group: &attributes.gvr.group,
                resource: &attributes.gvr.resource,
                subresource: &attributes.subresource,
                namespace: &attributes.namespace,
            },
        };
        let request = Request { user, verb: &attributes.verb, target };
        Asked { request, attributes, path }
    }
}

impl Fairness {
    /// Returns the state of a new server with the mandatory configuration; `None` if it is switched
    /// off, or if requests are not limited.
    pub(crate) fn new(limits: &Limits) -> Option<Arc<Fairness>> {
        let all =
            limits.requests_in_flight_max.saturating_add(limits.mutating_requests_in_flight_max);
        let seats = u32::try_from(all).unwrap_or(u32::MAX / 4).min(u32::MAX / 4);
        if !limits.fairness || seats == 0 {
            return None;
        }
        let fairness = Fairness {
            table: ArcSwap::default(),
            seats,
            began: Instant::now(),
            fraction: AtomicU64::new(0),
        };
        fairness.configure(FlowSchema::mandatory().into(), LevelSpec::mandatory().into());
        Some(Arc::new(fairness))
    }

    /// Returns the FlowSchema of a request and its level.
    pub(crate) fn classify(&self, request: &Request<'_>) -> Option<Arc<FlowOfLevel>> {
        let table = self.table.load();
        let found = table.flows.iter().find(|flow| flow.schema.matches(request));
        // A user in neither of the groups of `catch-all` is treated like those.
        found.or_else(|| table.flows.last()).cloned()
    }

    /// Takes a seat for a request, and waits for it as long as that is allowed.
    pub(crate) async fn enter(
        &self,
        flow: Arc<FlowOfLevel>,
        asked: &Asked<'_>,
        work: Work,
        deadline: Option<Instant>,
        peer: &Peer,
    ) -> Result<FairSeat, Rejected> {
        flow.metrics.work_seats.observe(u64::from(work.width()));
        match seat::arrive(&flow, asked, work)? {
            seat::Entered::Seated(seat) => Ok(seat),
            seat::Entered::Queued(queued) => {
                let left = deadline.map(|end| end.saturating_duration_since(Instant::now()) / 4);
                Box::pin(queued.wait(left.unwrap_or(WAIT_MAX).min(WAIT_MAX), peer)).await
            }
        }
    }
}

impl SharedLevel {
    fn lock(&self) -> MutexGuard<'_, LevelState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Nanoseconds {
        nanoseconds(self.began)
    }

    /// Starts the waiting requests for which there are seats now.
    fn dispatch(&self) {
        let now = self.now();
        let mut started = vec![];
        {
            let mut state = self.lock();
            while let Some(next) = state.level.dispatch(now) {
                state.counts.started += 1;
                started.push(next);
            }
        }
        // Outside of the lock, which a seat takes when nobody waits for it any longer.
        started.into_iter().for_each(Waiter::start);
    }
}

fn nanoseconds(began: Instant) -> Nanoseconds {
    u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

impl Fairness {
    /// Returns the fraction of its target that each level got last.
    fn fraction(&self) -> f64 {
        f64::from_bits(self.fraction.load(Ordering::Relaxed))
    }
}
