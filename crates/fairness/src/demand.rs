//! [`Demand`]: how many seats the requests of a level would use over time, whether they have them
//! or wait.

use crate::{Nanoseconds, seconds_between};

/// Weight of the past in the smoothed demand: a demand that is gone is forgotten in some five
/// minutes.
const SMOOTHING: f64 = 0.977;

/// The demand since the period began.
#[derive(Clone, Debug, Default)]
pub struct Demand {
    now: f64,
    since: Nanoseconds,
    seconds: f64,
    sum: f64,
    sum_of_squares: f64,
    highest: f64,
    last: Period,
}

/// The demand in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Period {
    /// Average over time.
    pub average: f64,
    /// Standard deviation over time.
    pub deviation: f64,
    /// Highest demand.
    pub highest: f64,
    /// The demand that the next period is expected to have: it rises at once and falls slowly.
    pub smoothed: f64,
}

impl Demand {
    /// Records the demand from now on.
    pub fn change(&mut self, now: Nanoseconds, seats: u64) {
        self.advance(now);
        self.now = seats as f64;
        self.highest = self.highest.max(self.now);
    }

    /// Ends the period.
    pub fn end_period(&mut self, now: Nanoseconds) -> Period {
        self.advance(now);
        let average = if self.seconds > 0.0 { self.sum / self.seconds } else { self.now };
        let squares = if self.seconds > 0.0 { self.sum_of_squares / self.seconds } else { 0.0 };
        let deviation = (squares - average * average).max(0.0).sqrt();
        let expected = average + deviation;
        let smoothed = SMOOTHING * self.last.smoothed + (1.0 - SMOOTHING) * expected;
        let highest = self.highest;
        self.last = Period { average, deviation, highest, smoothed: smoothed.max(expected) };
        (self.seconds, self.sum, self.sum_of_squares, self.highest) = (0.0, 0.0, 0.0, self.now);
        self.last
    }

    /// Returns the last period that has ended.
    pub fn last_period(&self) -> Period {
        self.last
    }

    fn advance(&mut self, now: Nanoseconds) {
        let seconds = seconds_between(self.since, now);
        self.since = self.since.max(now);
        self.seconds += seconds;
        self.sum += seconds * self.now;
        self.sum_of_squares += seconds * self.now * self.now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanoseconds = 1_000_000_000;

    #[test]
    fn demand_is_weighted_by_time_and_smoothed_when_it_falls() {
        let mut demand = Demand::default();
        demand.change(0, 10);
        demand.change(SECOND, 0);
        let first = demand.end_period(4 * SECOND);
        assert_eq!((first.average, first.highest), (2.5, 10.0));
        assert!((first.deviation - 18.75_f64.sqrt()).abs() < 1e-9);
        assert_eq!(first.smoothed, first.average + first.deviation);
        let second = demand.end_period(8 * SECOND);
        assert_eq!((second.average, second.highest), (0.0, 0.0));
        assert!((second.smoothed - first.smoothed * SMOOTHING).abs() < 1e-9);
    }
}
