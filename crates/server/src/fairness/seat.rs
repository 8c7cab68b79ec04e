//! [`FairSeat`]: the seats of a request, returned when it is dropped; and waiting for them.

use super::{Asked, FlowOfLevel, Rejected};
use crate::peer::Peer;
use keelson_fairness::{Arrival, Nanoseconds, Rejection, Seat, Started, Ticket, Work};
use keelson_meta::Str;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// The seats of a request that is executed.
#[derive(Debug)]
pub(crate) struct FairSeat {
    flow: Arc<FlowOfLevel>,
    seat: Seat,
    is_watch: bool,
}

/// The seat of a watch, which it returns when its initial events are out. The watch and the context
/// of its request share it.
#[derive(Clone, Debug)]
pub(crate) struct WatchSeat(Arc<Mutex<Option<FairSeat>>>);

/// A request that waits for its seats. If it is dropped, it leaves its queue.
#[derive(Debug)]
pub(super) struct Queued {
    flow: Arc<FlowOfLevel>,
    ticket: Ticket,
    seats: u32,
    is_read: bool,
    since: Nanoseconds,
    receiver: oneshot::Receiver<FairSeat>,
    is_done: bool,
}

/// What a level keeps for a request that waits.
#[derive(Debug)]
pub(super) struct Waiter {
    flow: Arc<FlowOfLevel>,
    is_watch: bool,
    sender: oneshot::Sender<FairSeat>,
    pub details: Details,
}

/// The request, for `dump_requests`.
#[derive(Debug)]
pub(super) struct Details {
    pub flow_schema: Str,
    pub distinguisher: Str,
    pub user: Str,
    pub verb: Str,
    pub path: Str,
    pub version: Str,
    pub namespace: Str,
    pub name: Str,
    pub resource: Str,
    pub subresource: Str,
}

/// A request that is not rejected.
pub(super) enum Entered {
    Seated(FairSeat),
    Queued(Queued),
}

/// Takes a request into its level.
pub(super) fn arrive(
    flow: &Arc<FlowOfLevel>,
    asked: &Asked<'_>,
    work: Work,
) -> Result<Entered, Rejected> {
    let level = &flow.level;
    let is_watch = asked.request.verb == "watch";
    let key = flow.schema.flow(&asked.request);
    let now = level.now();
    let mut receiver = None;
    let mut state = level.lock();
    let arrival = state.level.arrive(now, key, work, || {
        let (sender, waiting) = oneshot::channel();
        receiver = Some(waiting);
        Waiter { flow: flow.clone(), is_watch, sender, details: Details::new(flow, asked) }
    });
    match arrival {
        Arrival::Started(seat) => {
            state.counts.started += 1;
            drop(state);
            flow.metrics.started(work, seat.has_queue().then_some(Duration::ZERO));
            Ok(Entered::Seated(FairSeat { flow: flow.clone(), seat, is_watch }))
        }
        Arrival::Rejected(why) => {
            state.counts.rejected += 1;
            let retry_after = state.retry_after.reject(now / 1_000_000_000);
            drop(state);
            flow.metrics.rejected(match why {
                Rejection::ConcurrencyLimit => "concurrency-limit",
                Rejection::QueueFull => "queue-full",
            });
            Err(Rejected { retry_after })
        }
        Arrival::Waits(ticket) => {
            drop(state);
            let is_read = matches!(asked.request.verb, "get" | "list" | "watch");
            flow.metrics.queued(work.width(), is_read);
            // The level has called the closure, because the request waits.
            let receiver = receiver.unwrap_or_else(|| oneshot::channel().1);
            let flow = flow.clone();
            let seats = work.width();
            let since = now;
            let is_done = false;
            Ok(Entered::Queued(Queued { flow, ticket, seats, is_read, since, receiver, is_done }))
        }
    }
}

impl Queued {
    /// Waits for the seats, at most this long and while the client is there.
    pub async fn wait(mut self, longest: Duration, peer: &Peer) -> Result<FairSeat, Rejected> {
        let seat = tokio::select! {
            seat = &mut self.receiver => seat.ok(),
            () = tokio::time::sleep(longest) => match self.leave() {
                true => None,
                // It started at the last moment.
                false => self.receiver.try_recv().ok(),
            },
            // Nobody reads the response.
            () = peer.closed() => return Err(Rejected { retry_after: 1 }),
        };
        self.is_done = true;
        let level = &self.flow.level;
        let waited = Duration::from_nanos(level.now().saturating_sub(self.since));
        self.flow.metrics.left_queue(self.seats, self.is_read);
        if let Some(seat) = seat {
            self.flow.metrics.started(seat.seat.work(), Some(waited));
            return Ok(seat);
        }
        let retry_after = {
            let mut state = level.lock();
            state.counts.timed_out += 1;
            state.retry_after.reject(level.now() / 1_000_000_000)
        };
        self.flow.metrics.gave_up("time-out", waited);
        Err(Rejected { retry_after })
    }

    /// Leaves the queue. Returns whether the request was still in it.
    fn leave(&self) -> bool {
        let level = &self.flow.level;
        let now = level.now();
        let was_waiting = level.lock().level.leave(now, self.ticket);
        if was_waiting {
            // It may have been wider than the seats that are free.
            level.dispatch();
        }
        was_waiting
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        // The client has gone. If a seat was sent already, the receiver drops it.
        self.leave();
        self.flow.level.lock().counts.cancelled += 1;
        let waited = self.flow.level.now().saturating_sub(self.since);
        self.flow.metrics.left_queue(self.seats, self.is_read);
        self.flow.metrics.gave_up("cancelled", Duration::from_nanos(waited));
    }
}

impl Waiter {
    /// Gives a request its seats. If nobody waits for them any longer, they are returned.
    pub fn start(started: Started<Waiter>) {
        let Started { waiter: Waiter { flow, is_watch, sender, .. }, seat, .. } = started;
        drop(sender.send(FairSeat { flow, seat, is_watch }));
    }
}

impl Drop for FairSeat {
    fn drop(&mut self) {
        let level = &self.flow.level;
        let now = level.now();
        let (held, somebody_waits) = {
            let mut state = level.lock();
            let held = state.level.finish(now, &self.seat);
            (held, state.level.waiting() > 0)
        };
        let took = Duration::from_nanos(now.saturating_sub(self.seat.started()));
        self.flow.metrics.finished(self.seat.work(), took, self.is_watch);
        if held > 0 {
            self.hold(Duration::from_nanos(held));
        } else if somebody_waits {
            level.dispatch();
        }
    }
}

impl FairSeat {
    /// Returns all seats but one: the rest of the request is sent in turns with others.
    pub fn narrow(&mut self) {
        let more = self.seat.work().width() - 1;
        if more == 0 {
            return;
        }
        let level = &self.flow.level;
        let now = level.now();
        let somebody_waits = {
            let mut state = level.lock();
            state.level.narrow(now, &mut self.seat);
            state.level.waiting() > 0
        };
        self.flow.metrics.narrowed(more);
        if somebody_waits {
            level.dispatch();
        }
    }

    /// Returns the seats after a while, in which watchers get the event of the request.
    fn hold(&self, held: Duration) {
        let level = self.flow.level.clone();
        let seat = self.seat;
        let release = move || {
            let now = level.now();
            level.lock().level.release(now, &seat);
            level.dispatch();
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(async move {
                tokio::time::sleep(held).await;
                release();
            })),
            // The server has ended.
            Err(_) => release(),
        }
    }
}

impl WatchSeat {
    pub fn new(seat: FairSeat) -> WatchSeat {
        WatchSeat(Arc::new(Mutex::new(Some(seat))))
    }

    /// Returns the seat: the initial events are out.
    pub fn release(&self) {
        let seat = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(seat);
    }
}

impl Details {
    fn new(flow: &FlowOfLevel, asked: &Asked<'_>) -> Details {
        let attributes = asked.attributes;
        let gvr = &attributes.gvr;
        let version = match gvr.group.as_str() {
            "" => gvr.version.clone(),
            group => Str::from(format!("{group}/{}", gvr.version)),
        };
        Details {
            flow_schema: flow.schema.name.clone(),
            distinguisher: Str::new(flow.schema.distinguisher(&asked.request)),
            user: asked.request.user.name.clone(),
            verb: attributes.verb.clone(),
            path: Str::new(asked.path),
            version,
            namespace: attributes.namespace.clone(),
            name: attributes.name.clone(),
            resource: gvr.resource.clone(),
            subresource: attributes.subresource.clone(),
        }
    }
}
