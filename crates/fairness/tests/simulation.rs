//! A level in virtual time, under generated loads: together a million requests with 50 seeds. Flows
//! that ask for less than their share hardly notice those that ask for more, nobody waits without
//! end while seats are given, greedy flows get equal parts, and no seat is free while a request
//! waits that fits.

use keelson_fairness::{Arrival, Flow, Level, Nanoseconds, Seat, Shape, Ticket, Work};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const MILLISECOND: Nanoseconds = 1_000_000;
const SHAPE: Shape = Shape::Queue { queues: 64, hand_size: 6, length_max: 50 };
/// As in the server, who waits this long is rejected.
const WAIT_MAX: Nanoseconds = 15_000 * MILLISECOND;

/// A generator of numbers (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % (to - from + 1)
    }
}

/// Clients that send requests one after the other.
#[derive(Clone, Copy)]
struct Load {
    /// How many requests are sent at once.
    clients: usize,
    /// Time between the end of a request and the next one of its client.
    pause: Nanoseconds,
    /// Mean duration of a request.
    duration: Nanoseconds,
    seats: u32,
}

/// What a flow has got.
#[derive(Clone, Default)]
struct Got {
    started: u64,
    rejected: u64,
    left: u64,
    seat_time: u64,
    waits: Vec<Nanoseconds>,
}

impl Got {
    /// Returns the wait that this part of the requests does not exceed, in percent.
    fn wait(&self, percent: usize) -> Nanoseconds {
        let mut waits = self.waits.clone();
        waits.sort_unstable();
        waits.get((waits.len().saturating_sub(1)) * percent / 100).copied().unwrap_or(0)
    }
}

enum Event {
    Send { flow: usize },
    End { flow: usize, seat: Seat },
    Release { seat: Seat },
    GiveUp { flow: usize, ticket: Ticket },
}

struct Simulation {
    level: Level<usize>,
    flows: Vec<Flow>,
    loads: Vec<Load>,
    random: Random,
    now: Nanoseconds,
    /// Times and numbers of events, which are kept beside.
    agenda: BinaryHeap<Reverse<(Nanoseconds, usize)>>,
    events: Vec<Option<Event>>,
    got: Vec<Got>,
}

impl Simulation {
    fn new(seed: u64, limit: u32, loads: &[Load]) -> Simulation {
        let mut simulation = Simulation {
            level: Level::new(SHAPE, limit, 0),
            flows: (0..loads.len()).map(|n| Flow::new("schema", &format!("{seed}-{n}"))).collect(),
            loads: loads.to_vec(),
            random: Random(seed),
            now: 0,
            agenda: BinaryHeap::new(),
            events: vec![],
            got: vec![Got::default(); loads.len()],
        };
        for (flow, load) in loads.iter().enumerate() {
            for _ in 0..load.clients {
                let delay = simulation.random.between(0, load.pause + load.duration);
                simulation.plan(delay, Event::Send { flow });
            }
        }
        simulation
    }

    fn plan(&mut self, delay: Nanoseconds, event: Event) {
        self.agenda.push(Reverse((self.now + delay, self.events.len())));
        self.events.push(Some(event));
    }

    /// Handles events until this many requests were sent.
    fn run(mut self, requests: u64) -> Vec<Got> {
        let mut sent = 0;
        while sent < requests {
            let Some(Reverse((time, number))) = self.agenda.pop() else { break };
            self.now = time;
            match self.events[number].take().expect("each event is planned once") {
                Event::Send { flow } => {
                    sent += 1;
                    self.send(flow);
                }
                Event::End { flow, seat } => {
                    let held = self.level.finish(self.now, &seat);
                    if held > 0 {
                        self.plan(held, Event::Release { seat });
                    }
                    self.plan_next(flow);
                }
                Event::Release { seat } => self.level.release(self.now, &seat),
                Event::GiveUp { flow, ticket } => {
                    if self.level.leave(self.now, ticket) {
                        self.got[flow].left += 1;
                        self.plan_next(flow);
                    }
                }
            }
            while let Some(started) = self.level.dispatch(self.now) {
                self.begin(started.waiter, started.seat, started.waited);
            }
            self.check_that_seats_are_used();
        }
        self.got
    }

    fn send(&mut self, flow: usize) {
        let work = Work { seats: self.loads[flow].seats, ..Work::ONE };
        match self.level.arrive(self.now, self.flows[flow], work, || flow) {
            Arrival::Started(seat) => self.begin(flow, seat, 0),
            Arrival::Waits(ticket) => self.plan(WAIT_MAX, Event::GiveUp { flow, ticket }),
            Arrival::Rejected(_) => {
                self.got[flow].rejected += 1;
                self.plan_next(flow);
            }
        }
    }

    fn begin(&mut self, flow: usize, seat: Seat, waited: Nanoseconds) {
        let duration = self.random.between(1, 2 * self.loads[flow].duration);
        let got = &mut self.got[flow];
        got.started += 1;
        got.seat_time += duration * u64::from(seat.work().seats);
        got.waits.push(waited);
        self.plan(duration, Event::End { flow, seat });
    }

    fn plan_next(&mut self, flow: usize) {
        let pause = self.loads[flow].pause;
        let pause = pause / 2 + self.random.between(1, pause.max(1));
        self.plan(pause, Event::Send { flow });
    }

    fn check_that_seats_are_used(&self) {
        let level = &self.level;
        assert!(level.seats_in_use() <= level.limit());
        // Nothing here is wider than 4 seats.
        let is_used = level.waiting() == 0 || level.seats_in_use() + 4 > level.limit();
        assert!(is_used, "{} of {} seats", level.seats_in_use(), level.limit());
    }
}

const MOUSE: Load =
    Load { clients: 2, pause: 100 * MILLISECOND, duration: 10 * MILLISECOND, seats: 1 };
const GREEDY: Load = Load { clients: 60, pause: 1, duration: 10 * MILLISECOND, seats: 1 };

/// Flows with little load keep their service beside one that sends ten times what the level can do.
fn check_isolation(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let elephant = Load { clients: 400, pause: 10 * MILLISECOND, ..GREEDY };
        let mut loads = vec![MOUSE; 8];
        loads.push(elephant);
        let got = Simulation::new(seed, 20, &loads).run(20_000);
        for (n, mouse) in got[..8].iter().enumerate() {
            assert_eq!((mouse.rejected, mouse.left), (0, 0), "seed {seed}, flow {n}");
            assert!(mouse.started > 20, "seed {seed}, flow {n}: {}", mouse.started);
            let wait = mouse.wait(99);
            assert!(wait <= 30 * MILLISECOND, "seed {seed}, flow {n}: {wait} ns");
        }
        assert!(got[8].wait(50) > 40 * MILLISECOND, "seed {seed}: the elephant is not held back");
    }
}

/// Greedy flows get the same seats over time, whatever the length and width of their requests.
fn check_shares(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let long = Load { duration: 40 * MILLISECOND, ..GREEDY };
        let wide = Load { seats: 4, ..GREEDY };
        let got = Simulation::new(seed, 24, &[GREEDY, long, wide, GREEDY]).run(20_000);
        let total: u64 = got.iter().map(|flow| flow.seat_time).sum();
        for (n, flow) in got.iter().enumerate() {
            let share = flow.seat_time as f64 / total as f64;
            assert!((0.17..=0.33).contains(&share), "seed {seed}, flow {n}: {share}");
            // Nobody starves: the longest wait is that of a full queue, not that of WAIT_MAX.
            assert_eq!(flow.left, 0, "seed {seed}, flow {n}");
            assert!(flow.wait(100) < WAIT_MAX / 5, "seed {seed}, flow {n}: {}", flow.wait(100));
        }
    }
}

#[test]
fn small_flows_are_isolated_from_a_large_one() {
    check_isolation(0..13);
}

#[test]
fn small_flows_are_isolated_from_a_large_one_with_other_seeds() {
    check_isolation(13..25);
}

#[test]
fn greedy_flows_get_equal_parts() {
    check_shares(25..38);
}

#[test]
fn greedy_flows_get_equal_parts_with_other_seeds() {
    check_shares(38..50);
}
