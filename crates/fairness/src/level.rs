//! [`Level`]: the seats of a priority level, and the queues of those that wait for one.
//!
//! Queues share the seats by a virtual time: it advances as fast as each of the active queues would
//! get seats if all got the same. A queue whose requests have had less work done than others is
//! served first. The work of a request is an assumption until it ends; then the queue is charged
//! what it really was.

use crate::{Demand, Flow, Nanoseconds, Period, Shape, Work, seconds_between};
use std::collections::VecDeque;

/// How long a request is assumed to take, in seconds, until it has ended.
const ASSUMED_SECONDS: f64 = 0.003;

/// A priority level. `W` is what the caller keeps for a request that waits.
#[derive(Debug)]
pub struct Level<W> {
    shape: Shape,
    /// Most seats in use.
    limit: u32,
    queues: Vec<Queue<W>>,
    seats_in_use: u32,
    seats_waiting: u32,
    executing: u32,
    waiting: u32,
    /// Queues with requests that wait or are executed.
    active_queues: u32,
    /// Work that each active queue has had a right to, in seats times seconds.
    virtual_time: f64,
    now: Nanoseconds,
    /// The queue that is asked first among equal ones.
    first: usize,
    tickets: u64,
    demand: Demand,
}

#[derive(Debug)]
struct Queue<W> {
    waiting: VecDeque<Waiting<W>>,
    /// Virtual time at which the oldest request of the queue starts.
    next_start: f64,
    /// The work of its waiting requests.
    work: f64,
    executing: u32,
    seats_in_use: u32,
}

#[derive(Debug)]
struct Waiting<W> {
    ticket: u64,
    work: Work,
    arrived: Nanoseconds,
    waiter: W,
}

/// The seats of a request that is executed. They are returned by [`Level::finish`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// `None`: it did not pass a queue.
    queue: Option<u32>,
    work: Work,
    started: Nanoseconds,
}

/// The place of a request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    queue: u32,
    number: u64,
}

/// What becomes of a request that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It has its seats.
    Started(Seat),
    /// It waits.
    Waits(Ticket),
    /// It is rejected.
    Rejected(Rejection),
}

/// Why a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// There is no seat, and the level has no queues.
    ConcurrencyLimit,
    /// The queue is full.
    QueueFull,
}

/// A request that has waited and has its seats now.
#[derive(Debug)]
pub struct Started<W> {
    /// What the caller kept.
    pub waiter: W,
    /// Its seats.
    pub seat: Seat,
    /// How long it waited.
    pub waited: Nanoseconds,
}

/// A queue, for debugging.
#[derive(Debug)]
pub struct QueueDump<'a, W> {
    /// Its waiting requests with their work and arrival, the oldest first.
    pub waiting: Vec<(&'a W, Work, Nanoseconds)>,
    /// Requests being executed.
    pub executing: u32,
    /// Their seats.
    pub seats_in_use: u32,
    /// Virtual time at which its next request starts.
    pub next_start: f64,
    /// The work of its waiting requests, in seats times seconds.
    pub work: f64,
}

impl Seat {
    /// Returns the work for which the seats are.
    pub fn work(&self) -> Work {
        self.work
    }

    /// Returns whether the request belongs to a queue, in which it may have waited.
    pub fn has_queue(&self) -> bool {
        self.queue.is_some()
    }

    /// Returns when the request got its seats.
    pub fn started(&self) -> Nanoseconds {
        self.started
    }
}

impl<W> Level<W> {
    /// Creates a level without requests.
    pub fn new(shape: Shape, limit: u32, now: Nanoseconds) -> Level<W> {
        let mut level = Level {
            shape,
            limit,
            queues: vec![],
            seats_in_use: 0,
            seats_waiting: 0,
            executing: 0,
            waiting: 0,
            active_queues: 0,
            virtual_time: 0.0,
            now,
            first: 0,
            tickets: 0,
            demand: Demand::default(),
        };
        level.demand.change(now, 0);
        level.demand.end_period(now);
        level.reshape(shape);
        level
    }

    /// Changes what happens to requests that find no seat. Those that wait stay in their queues.
    pub fn reshape(&mut self, shape: Shape) {
        self.shape = shape;
        let Shape::Queue { queues, .. } = shape else { return };
        // Queues beyond the new number get no further requests. They are dropped when all are
        // empty.
        if self.active_queues == 0 {
            self.queues.truncate(queues);
        }
        while self.queues.len() < queues {
            self.queues.push(Queue::new());
        }
    }

    /// Changes the limit. The caller starts waiting requests afterwards.
    pub fn set_limit(&mut self, now: Nanoseconds, limit: u32) {
        self.advance(now);
        self.limit = limit;
    }

    /// Takes in a request: it starts, waits or is rejected.
    pub fn arrive(
        &mut self,
        now: Nanoseconds,
        flow: Flow,
        work: Work,
        waiter: impl FnOnce() -> W,
    ) -> Arrival {
        self.advance(now);
        let (queues, hand_size, length_max) = match self.shape {
            Shape::Exempt => return self.start_at_once(None, work),
            Shape::Reject if self.has_room(work) => return self.start_at_once(None, work),
            Shape::Reject => return Arrival::Rejected(Rejection::ConcurrencyLimit),
            Shape::Queue { queues, hand_size, length_max } => (queues, hand_size, length_max),
        };
        let place = self.best_queue(flow, queues, hand_size);
        if self.waiting == 0 && self.has_room(work) {
            return self.start_at_once(Some(place), work);
        }
        if self.queues[place].waiting.len() >= length_max {
            return Arrival::Rejected(Rejection::QueueFull);
        }
        self.activate(place);
        self.tickets += 1;
        let ticket = self.tickets;
        let queue = &mut self.queues[place];
        queue.work += assumed_work(work);
        queue.waiting.push_back(Waiting { ticket, work, arrived: now, waiter: waiter() });
        self.waiting += 1;
        self.seats_waiting += work.width();
        self.count_demand();
        Arrival::Waits(Ticket { queue: place as u32, number: ticket })
    }

    /// Starts the next waiting request, if there is one and room for it. Call it until it returns
    /// `None` after seats were returned, a request has left or the limit was changed.
    pub fn dispatch(&mut self, now: Nanoseconds) -> Option<Started<W>> {
        if self.waiting == 0 {
            return None;
        }
        self.advance(now);
        let place = self.next_queue()?;
        let work = self.queues[place].waiting.front()?.work;
        if !self.has_room(work) {
            return None;
        }
        // It starts before it leaves the queue, which is active all the while.
        let seat = self.start(Some(place), work);
        let Waiting { waiter, arrived, .. } = self.remove(place, 0)?;
        self.first = place + 1;
        self.count_demand();
        Some(Started { waiter, seat, waited: now.saturating_sub(arrived) })
    }

    /// Takes a request out that does not wait any longer. Returns whether it still waited.
    pub fn leave(&mut self, now: Nanoseconds, ticket: Ticket) -> bool {
        self.advance(now);
        let place = ticket.queue as usize;
        let Some(queue) = self.queues.get(place) else { return false };
        let known = queue.waiting.iter().position(|known| known.ticket == ticket.number);
        let Some(at) = known else { return false };
        self.remove(place, at);
        self.retire(place);
        self.count_demand();
        true
    }

    /// Returns the seats of a request but one, while it is still executed. The caller starts
    /// waiting requests afterwards.
    pub fn narrow(&mut self, now: Nanoseconds, seat: &mut Seat) {
        self.advance(now);
        let wide = *seat;
        seat.work = Work::ONE;
        let more = wide.work.width() - 1;
        self.seats_in_use -= more;
        if let Some(queue) = seat.queue.and_then(|place| self.queues.get_mut(place as usize)) {
            queue.seats_in_use -= more;
            // The queue is charged what these seats were used; the last one is by `finish`.
            queue.next_start += seconds_between(seat.started, now) * f64::from(more);
            queue.next_start -= assumed_work(wide.work) - assumed_work(seat.work);
        }
        self.count_demand();
    }

    /// Ends the execution of a request. Returns how long its seats are still held; then the caller
    /// returns them by [`Level::release`]. If the time is zero they are returned already.
    pub fn finish(&mut self, now: Nanoseconds, seat: &Seat) -> Nanoseconds {
        self.advance(now);
        self.executing -= 1;
        if let Some(queue) = seat.queue.and_then(|place| self.queues.get_mut(place as usize)) {
            queue.executing -= 1;
            // What it was charged at its start is corrected.
            let spent = seconds_between(seat.started, now) - ASSUMED_SECONDS;
            queue.next_start += spent * f64::from(seat.work.seats);
        }
        if seat.work.held > 0 {
            return seat.work.held;
        }
        self.free(seat);
        0
    }

    /// Returns seats that were held after the end of their request.
    pub fn release(&mut self, now: Nanoseconds, seat: &Seat) {
        self.advance(now);
        self.free(seat);
    }

    /// Ends the period of the demand.
    pub fn end_period(&mut self, now: Nanoseconds) -> Period {
        self.demand.end_period(now)
    }

    /// Returns the demand of the last period.
    pub fn last_period(&self) -> Period {
        self.demand.last_period()
    }

    /// Returns the limit.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns the seats in use.
    pub fn seats_in_use(&self) -> u32 {
        self.seats_in_use
    }

    /// Returns the seats for which requests wait.
    pub fn seats_waiting(&self) -> u32 {
        self.seats_waiting
    }

    /// Returns the number of requests being executed.
    pub fn executing(&self) -> u32 {
        self.executing
    }

    /// Returns the number of requests that wait.
    pub fn waiting(&self) -> u32 {
        self.waiting
    }

    /// Returns whether nothing waits, is executed or holds a seat.
    pub fn is_idle(&self) -> bool {
        self.waiting == 0 && self.executing == 0 && self.seats_in_use == 0
    }

    /// Returns the virtual time.
    pub fn virtual_time(&self) -> f64 {
        self.virtual_time
    }

    /// Returns all queues.
    pub fn dump(&self) -> impl Iterator<Item = QueueDump<'_, W>> {
        self.queues.iter().map(|queue| QueueDump {
            waiting: queue.waiting.iter().map(|one| (&one.waiter, one.work, one.arrived)).collect(),
            executing: queue.executing,
            seats_in_use: queue.seats_in_use,
            next_start: queue.next_start,
            work: queue.work,
        })
    }

    /// Returns whether there are seats for this work. What is wider than the level needs all of it.
    fn has_room(&self, work: Work) -> bool {
        let width = work.width();
        match self.shape {
            Shape::Exempt => true,
            _ if width > self.limit => self.seats_in_use == 0,
            _ => self.seats_in_use + width <= self.limit,
        }
    }

    /// Returns the queue of the flow's hand with the least work, waiting or executed.
    fn best_queue(&self, flow: Flow, queues: usize, hand_size: usize) -> usize {
        let mut best = (f64::INFINITY, 0);
        flow.deal(queues, hand_size, |place| {
            let queue = &self.queues[place];
            let work = queue.work + f64::from(queue.seats_in_use) * ASSUMED_SECONDS;
            if work < best.0 {
                best = (work, place);
            }
        });
        best.1
    }

    /// Returns the queue whose oldest request would end first in virtual time.
    fn next_queue(&self) -> Option<usize> {
        let mut best: Option<(f64, usize)> = None;
        let count = self.queues.len();
        for n in 0..count {
            let place = (self.first + n) % count;
            let queue = &self.queues[place];
            let Some(oldest) = queue.waiting.front() else { continue };
            let end = queue.next_start + assumed_work(oldest.work);
            if best.is_none_or(|(earliest, _)| end < earliest) {
                best = Some((end, place));
            }
        }
        best.map(|(_, place)| place)
    }

    fn start_at_once(&mut self, place: Option<usize>, work: Work) -> Arrival {
        let seat = self.start(place, work);
        self.count_demand();
        Arrival::Started(seat)
    }

    /// Gives a request its seats. The caller counts the demand.
    fn start(&mut self, place: Option<usize>, work: Work) -> Seat {
        if let Some(place) = place {
            self.activate(place);
            let queue = &mut self.queues[place];
            queue.next_start += assumed_work(work);
            queue.executing += 1;
            queue.seats_in_use += work.width();
        }
        self.executing += 1;
        self.seats_in_use += work.width();
        Seat { queue: place.map(|place| place as u32), work, started: self.now }
    }

    fn free(&mut self, seat: &Seat) {
        let width = seat.work.width();
        self.seats_in_use -= width;
        if let Some(place) = seat.queue.map(|place| place as usize) {
            self.queues[place].seats_in_use -= width;
            self.retire(place);
        }
        self.count_demand();
    }

    fn remove(&mut self, place: usize, at: usize) -> Option<Waiting<W>> {
        let queue = &mut self.queues[place];
        let removed = queue.waiting.remove(at)?;
        queue.work -= assumed_work(removed.work);
        if queue.waiting.is_empty() {
            queue.work = 0.0;
        }
        self.waiting -= 1;
        self.seats_waiting -= removed.work.width();
        Some(removed)
    }

    /// Counts a queue that gets its first request. It has no claim to the time in which it was
    /// empty.
    fn activate(&mut self, place: usize) {
        if !self.queues[place].is_active() {
            self.queues[place].next_start = self.virtual_time;
            self.active_queues += 1;
        }
    }

    fn retire(&mut self, place: usize) {
        if self.queues[place].is_active() {
            return;
        }
        self.active_queues -= 1;
        if self.active_queues == 0 {
            // No queue refers to it: it starts anew, so that it stays exact.
            self.virtual_time = 0.0;
        }
    }

    fn advance(&mut self, now: Nanoseconds) {
        if self.active_queues > 0 {
            let wanted = f64::from((self.seats_in_use + self.seats_waiting).min(self.limit.max(1)));
            let seconds = seconds_between(self.now, now);
            self.virtual_time += seconds * wanted / f64::from(self.active_queues);
        }
        self.now = self.now.max(now);
    }

    fn count_demand(&mut self) {
        self.demand.change(self.now, u64::from(self.seats_in_use) + u64::from(self.seats_waiting));
    }
}

impl<W> Queue<W> {
    fn new() -> Queue<W> {
        Queue {
            waiting: VecDeque::new(),
            next_start: 0.0,
            work: 0.0,
            executing: 0,
            seats_in_use: 0,
        }
    }

    fn is_active(&self) -> bool {
        !self.waiting.is_empty() || self.seats_in_use > 0
    }
}

/// Returns the work of a request before it has ended, in seats times seconds.
fn assumed_work(work: Work) -> f64 {
    let after = f64::from(work.final_seats) * seconds_between(0, work.held);
    f64::from(work.seats) * ASSUMED_SECONDS + after
}
