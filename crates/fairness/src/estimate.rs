//! How much of the server a request takes, in seats. Upstream estimates lists from statistics; here
//! the caller knows the stored objects and their bytes.

use crate::Nanoseconds;

/// Bytes of a list for one seat.
const BYTES_PER_SEAT: u64 = 100_000;
/// Bytes that a list from the cache holds at once at most: it is encoded while it is sent.
const STREAMED_BYTES_MAX: u64 = 1_000_000;
/// Most seats of a list.
pub const LIST_SEATS_MAX: u32 = 100;
/// Most seats of a change.
pub const MUTATION_SEATS_MAX: u32 = 10;
/// Watchers for one seat of the work after a change.
const WATCHERS_PER_SEAT: u64 = 10;
/// How long such a seat is held.
const SEAT_HELD: Nanoseconds = 5_000_000;

/// The work of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Seats while it is executed.
    pub seats: u32,
    /// Seats after its end, while its event goes to watchers.
    pub final_seats: u32,
    /// How long those are held.
    pub held: Nanoseconds,
}

impl Work {
    /// The work of most requests.
    pub const ONE: Work = Work { seats: 1, final_seats: 0, held: 0 };

    /// Returns the seats that the request has from its start to the end of its work.
    pub fn width(self) -> u32 {
        self.seats.max(self.final_seats)
    }
}

/// Returns the most seats of one request to a level: 15 % of its nominal limit.
pub fn seats_max(nominal: u32) -> u32 {
    ((f64::from(nominal) * 0.15).ceil() as u32).max(1)
}

/// Returns the work of a list that holds this many bytes at once.
pub fn list_work(bytes: u64, seats_max: u32) -> Work {
    let seats = bytes.min(STREAMED_BYTES_MAX).div_ceil(BYTES_PER_SEAT);
    let seats = u32::try_from(seats).unwrap_or(u32::MAX);
    Work { seats: seats.min(seats_max.min(LIST_SEATS_MAX)).max(1), ..Work::ONE }
}

/// Returns the work of a change that this many watchers see.
pub fn mutation_work(watchers: u64, seats_max: u32) -> Work {
    if watchers < WATCHERS_PER_SEAT {
        return Work::ONE;
    }
    let wanted = watchers.div_ceil(WATCHERS_PER_SEAT);
    let seats_max = u64::from(seats_max.clamp(1, MUTATION_SEATS_MAX));
    let seats = wanted.min(seats_max);
    let held = SEAT_HELD.saturating_mul(wanted) / seats;
    Work { final_seats: u32::try_from(seats).unwrap_or(MUTATION_SEATS_MAX), held, ..Work::ONE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_cost_by_bytes_and_changes_by_watchers() {
        let list = |bytes, most, want| assert_eq!(list_work(bytes, most).seats, want, "{bytes}");
        list(0, 10, 1);
        list(100_000, 10, 1);
        list(100_001, 10, 2);
        list(450_000, 3, 3);
        list(u64::MAX, 1000, 10);
        let change = |watchers, most, want: (u32, u64)| {
            let work = mutation_work(watchers, most);
            assert_eq!(
                (work.seats, work.final_seats, work.held),
                (1, want.0, want.1),
                "{watchers}"
            );
        };
        change(9, 10, (0, 0));
        change(10, 10, (1, 5_000_000));
        change(25, 10, (3, 5_000_000));
        change(200, 20, (10, 10_000_000));
        change(200, 2, (2, 50_000_000));
        assert_eq!((seats_max(0), seats_max(49), seats_max(245)), (1, 8, 37));
    }
}
