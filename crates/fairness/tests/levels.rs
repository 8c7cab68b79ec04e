//! What a level does with single requests.

use keelson_fairness::{Arrival, Flow, Level, Rejection, Shape, Started, Work};

const QUEUE: Shape = Shape::Queue { queues: 4, hand_size: 1, length_max: 2 };

fn flow(name: &str) -> Flow {
    Flow::new("schema", name)
}

fn arrive(level: &mut Level<&'static str>, name: &'static str, seats: u32) -> Arrival {
    level.arrive(0, flow(name), Work { seats, ..Work::ONE }, || name)
}

fn next(level: &mut Level<&'static str>) -> Option<&'static str> {
    level.dispatch(0).map(|Started { waiter, .. }| waiter)
}

#[test]
fn a_level_without_queues_rejects_what_does_not_fit() {
    let mut level = Level::new(Shape::Reject, 1, 0);
    let Arrival::Started(seat) = arrive(&mut level, "a", 1) else { panic!("no seat") };
    let rejected = Arrival::Rejected(Rejection::ConcurrencyLimit);
    assert_eq!(arrive(&mut level, "a", 1), rejected);
    assert_eq!(level.finish(0, &seat), 0);
    assert!(level.is_idle());
    // What is wider than the level has all of it.
    assert!(matches!(arrive(&mut level, "a", 9), Arrival::Started(_)));
    assert_eq!(arrive(&mut level, "a", 1), rejected);
}

#[test]
fn an_exempt_level_has_no_limit() {
    let mut level = Level::new(Shape::Exempt, 0, 0);
    for _ in 0..100 {
        assert!(matches!(arrive(&mut level, "a", 5), Arrival::Started(_)));
    }
    assert_eq!((level.executing(), level.seats_in_use()), (100, 500));
}

#[test]
fn requests_wait_in_bounded_queues_and_may_leave() {
    let mut level = Level::new(QUEUE, 1, 0);
    let Arrival::Started(seat) = arrive(&mut level, "a", 1) else { panic!("no seat") };
    let Arrival::Waits(first) = arrive(&mut level, "a", 1) else { panic!("does not wait") };
    assert!(matches!(arrive(&mut level, "a", 1), Arrival::Waits(_)));
    assert_eq!(arrive(&mut level, "a", 1), Arrival::Rejected(Rejection::QueueFull));
    assert_eq!(next(&mut level), None);
    assert!(level.leave(0, first));
    assert!(!level.leave(0, first));
    assert_eq!((level.waiting(), level.seats_waiting()), (1, 1));
    level.finish(0, &seat);
    assert_eq!(next(&mut level), Some("a"));
    assert_eq!((level.waiting(), level.seats_in_use()), (0, 1));
}

#[test]
fn seats_stay_taken_while_events_of_a_change_are_sent() {
    let mut level: Level<()> = Level::new(QUEUE, 2, 0);
    let work = Work { seats: 1, final_seats: 2, held: 5 };
    let Arrival::Started(seat) = level.arrive(0, flow("a"), work, || ()) else { panic!("no seat") };
    assert_eq!(level.seats_in_use(), 2);
    assert_eq!(level.finish(10, &seat), 5);
    assert_eq!((level.executing(), level.seats_in_use(), level.is_idle()), (0, 2, false));
    level.release(15, &seat);
    assert!(level.is_idle());
}

#[test]
fn a_higher_limit_and_another_shape_start_those_that_wait() {
    let mut level = Level::new(QUEUE, 0, 0);
    // Without seats, one request is executed at a time.
    assert!(matches!(arrive(&mut level, "a", 1), Arrival::Started(_)));
    for name in ["a", "b", "c"] {
        assert!(matches!(arrive(&mut level, name, 1), Arrival::Waits(_)));
    }
    level.set_limit(0, 2);
    assert!(next(&mut level).is_some());
    assert_eq!(next(&mut level), None);
    level.reshape(Shape::Exempt);
    assert!(next(&mut level).is_some() && next(&mut level).is_some());
    assert_eq!(level.waiting(), 0);
}

#[test]
fn a_request_may_return_all_seats_but_one() {
    const MILLISECOND: u64 = 1_000_000;
    let mut level = Level::new(QUEUE, 5, 0);
    let Arrival::Started(mut seat) = arrive(&mut level, "a", 5) else { panic!("no seat") };
    assert!(matches!(arrive(&mut level, "b", 1), Arrival::Waits(_)));
    assert_eq!(next(&mut level), None);
    level.narrow(2 * MILLISECOND, &mut seat);
    assert_eq!((level.executing(), level.seats_in_use()), (1, 1));
    assert_eq!(next(&mut level), Some("b"));
    assert_eq!(level.finish(6 * MILLISECOND, &seat), 0);
    assert_eq!(level.seats_in_use(), 1);
    // It is charged what it used: five seats for 2 ms, and one for 4.
    let charged: Vec<f64> = level.dump().map(|queue| queue.next_start).collect();
    assert!(charged.iter().any(|seconds| (seconds - 0.014).abs() < 1e-9), "{charged:?}");
}
