//! Points in time and durations in the API's forms: RFC 3339 with Go's rules and errors, Go's
//! durations, and the short ages of tables. Callers read the clock.

use crate::Str;
use smol_str::ToSmolStr;
use std::cell::Cell;
use std::fmt;
use std::io::Write;

mod parse;
mod span;

pub use span::{GoDuration, human_duration, short_human_duration};

const DAY_SECONDS: i64 = 86_400;

/// A point in time: seconds since 1970-01-01T00:00:00Z and nanoseconds after that second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds; negative before 1970.
    pub seconds: i64,
    /// Invariant: below 1,000,000,000.
    pub nanos: u32,
}

impl Timestamp {
    /// Parses RFC 3339 as meta/v1 Time does: fractional seconds are optional.
    pub fn parse(text: &str) -> Result<Self, String> {
        parse::rfc3339(text, false)
    }

    /// Parses RFC 3339 as meta/v1 MicroTime does: six fractional digits are required.
    pub fn parse_micro(text: &str) -> Result<Self, String> {
        parse::rfc3339(text, true)
    }

    /// Returns a timestamp.
    pub fn new(seconds: i64, nanos: u32) -> Self {
        assert!(nanos < 1_000_000_000, "nanoseconds below a second: {nanos}");
        Timestamp { seconds, nanos }
    }

    /// Formats meta/v1 MicroTime: `2006-01-02T15:04:05.000000Z`.
    pub fn micro(self) -> Micro {
        Micro(self)
    }

    /// Returns the duration since `earlier`; saturates.
    pub fn since(self, earlier: Timestamp) -> GoDuration {
        let nanos = (i128::from(self.seconds) - i128::from(earlier.seconds)) * 1_000_000_000
            + i128::from(self.nanos)
            - i128::from(earlier.nanos);
        GoDuration(nanos.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
    }

    /// Returns this time moved by a duration.
    pub fn plus(self, span: GoDuration) -> Timestamp {
        let nanos = i64::from(self.nanos) + span.0.rem_euclid(1_000_000_000);
        let carry = nanos / 1_000_000_000;
        let seconds = self.seconds.saturating_add(span.0.div_euclid(1_000_000_000) + carry);
        Timestamp { seconds, nanos: (nanos % 1_000_000_000) as u32 }
    }

    /// Returns this time truncated to seconds.
    pub fn truncated(self) -> Timestamp {
        Timestamp { seconds: self.seconds, nanos: 0 }
    }

    /// Returns the date in UTC.
    pub fn date(self) -> Date {
        let days = self.seconds.div_euclid(DAY_SECONDS);
        let (year, month, day) = civil_from_days(days);
        Date { year, month, day, day_of_year: days - days_from_civil(year, 1, 1) + 1 }
    }

    /// Returns the printed form without an allocation.
    pub fn text(self) -> Str {
        self.to_smolstr()
    }

    fn write_seconds(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = self.seconds_text() {
            return f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?);
        }
        let (year, month, day) = civil_from_days(self.seconds.div_euclid(DAY_SECONDS));
        let second = self.seconds.rem_euclid(DAY_SECONDS);
        let hour = second / 3600;
        let minute = second / 60 % 60;
        let second = second % 60;
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
    }

    /// Returns date and time of a year with four digits. Most texts are of the same second as the
    /// one before.
    fn seconds_text(self) -> Option<[u8; 19]> {
        thread_local! {
            static LAST: Cell<Option<(i64, [u8; 19])>> = const { Cell::new(None) };
        }
        if let Some((_, text)) = LAST.get().filter(|(seconds, _)| *seconds == self.seconds) {
            return Some(text);
        }
        let text = self.new_seconds_text()?;
        LAST.set(Some((self.seconds, text)));
        Some(text)
    }

    fn new_seconds_text(self) -> Option<[u8; 19]> {
        let (year, month, day) = civil_from_days(self.seconds.div_euclid(DAY_SECONDS));
        let year = u32::try_from(year).ok().filter(|year| *year < 10_000)?;
        let second = self.seconds.rem_euclid(DAY_SECONDS) as u32;
        let [a, b] = two_digits(year / 100);
        let [c, d] = two_digits(year % 100);
        let [e, f] = two_digits(month as u32);
        let [g, h] = two_digits(day as u32);
        let [i, j] = two_digits(second / 3600);
        let [k, l] = two_digits(second / 60 % 60);
        let [m, n] = two_digits(second % 60);
        Some([a, b, c, d, b'-', e, f, b'-', g, h, b'T', i, j, b':', k, l, b':', m, n])
    }

    /// Appends meta/v1 MicroTime: `2006-01-02T15:04:05.000000Z`.
    pub fn push_micro(self, out: &mut Vec<u8>) {
        match self.seconds_text() {
            Some(text) => {
                out.extend_from_slice(&text);
                out.extend_from_slice(&self.micro_fraction());
            }
            // Nothing fails to be written to memory.
            None => drop(write!(out, "{}", self.micro())),
        }
    }

    fn micro_fraction(self) -> [u8; 8] {
        let micros = self.nanos / 1000;
        let [a, b] = two_digits(micros / 10_000 % 100);
        let [c, d] = two_digits(micros / 100 % 100);
        let [e, f] = two_digits(micros % 100);
        [b'.', a, b, c, d, e, f, b'Z']
    }
}

/// Returns the digits of a number below 100.
fn two_digits(number: u32) -> [u8; 2] {
    let tens = (number / 10) as u8;
    [b'0' + tens, b'0' + (number as u8 - tens * 10)]
}

impl fmt::Display for Timestamp {
    /// Formats meta/v1 Time: `2006-01-02T15:04:05Z`, in UTC, without a fraction.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_seconds(f)?;
        f.write_str("Z")
    }
}

/// A date of the Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    /// The year.
    pub year: i64,
    /// The month, from 1.
    pub month: i64,
    /// The day of the month, from 1.
    pub day: i64,
    /// The day of the year, from 1.
    pub day_of_year: i64,
}

/// A [`Timestamp`] that prints with microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Micro(Timestamp);

impl fmt::Display for Micro {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write_seconds(f)?;
        let fraction = self.0.micro_fraction();
        f.write_str(std::str::from_utf8(&fraction).map_err(|_| fmt::Error)?)
    }
}

/// Returns the days since 1970-01-01 of a Gregorian date. Years start in March here, so that the
/// leap day is the last one.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Returns year, month and day for a number of days since 1970-01-01.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days.saturating_add(719_468);
    // The rest fits into 32 bits, which divide faster.
    let day_of_era = days.rem_euclid(146_097) as u32;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = days.div_euclid(146_097) * 400 + i64::from(year_of_era) + i64::from(month <= 2);
    (year, i64::from(month), i64::from(day))
}

fn days_in_month(year: i64, month: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates_are_inverse() {
        assert_eq!(days_from_civil(1970, 1, 1), 0);
        assert_eq!(days_from_civil(2000, 2, 29), 11_016);
        for days in (-800_000..800_000).step_by(17) {
            let (year, month, day) = civil_from_days(days);
            assert_eq!(days_from_civil(year, month, day), days);
            assert!((1..=12).contains(&month) && (1..=days_in_month(year, month)).contains(&day));
        }
    }

    #[test]
    fn dates_have_a_day_of_the_year() {
        let date = |text: &str| Timestamp::parse(text).unwrap().date();
        let last = Date { year: 2020, month: 12, day: 31, day_of_year: 366 };
        assert_eq!(date("2020-12-31T23:59:59Z"), last);
        assert_eq!(date("1969-03-01T00:00:00Z").day_of_year, 60);
    }

    #[test]
    fn a_text_is_not_that_of_the_second_before() {
        let text = |seconds| Timestamp::new(seconds, 5_000).micro().to_string();
        for _ in 0..2 {
            assert_eq!(text(0), "1970-01-01T00:00:00.000005Z");
            assert_eq!(text(0), "1970-01-01T00:00:00.000005Z");
            assert_eq!(text(86_399), "1970-01-01T23:59:59.000005Z");
            // Year 10000, which has another form.
            assert_eq!(text(253_402_300_800), "10000-01-01T00:00:00.000005Z");
        }
    }

    #[test]
    fn spans_are_differences_of_times() {
        let earlier = Timestamp::new(10, 900_000_000);
        let later = Timestamp::new(12, 100_000_000);
        assert_eq!(later.since(earlier), GoDuration(1_200_000_000));
        assert_eq!(earlier.since(later), GoDuration(-1_200_000_000));
        assert_eq!(earlier.plus(later.since(earlier)), later);
        assert_eq!(later.plus(earlier.since(later)), earlier);
        assert_eq!(later.micro().to_string(), "1970-01-01T00:00:12.100000Z");
    }
}
