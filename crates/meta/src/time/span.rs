//! Durations: Go's text form, and the short form of ages in tables.

use super::parse::quote;
use std::fmt;

/// A duration in nanoseconds, printed like Go's `time.Duration`: `1h30m0s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(pub i64);

const SECOND: i64 = 1_000_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

impl From<std::time::Duration> for GoDuration {
    /// Saturates.
    fn from(duration: std::time::Duration) -> Self {
        GoDuration(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
    }
}

impl GoDuration {
    /// Returns a duration of whole seconds; saturates.
    pub fn from_seconds(seconds: i64) -> Self {
        GoDuration(seconds.saturating_mul(SECOND))
    }

    /// Returns Go's `time.Duration(seconds) * time.Second`, which wraps around at 64 bits, for
    /// times from clients.
    pub fn wrapping_seconds(seconds: i64) -> Self {
        GoDuration(seconds.wrapping_mul(SECOND))
    }

    /// Returns whole seconds, rounded towards zero.
    pub fn seconds(self) -> i64 {
        self.0 / SECOND
    }

    /// Parses a duration such as `1h15m30.918s`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let invalid = || format!("time: invalid duration {}", quote(text.as_bytes()));
        let (negative, mut rest) = match text.strip_prefix(['-', '+']) {
            Some(rest) => (text.starts_with('-'), rest),
            None => (false, text),
        };
        if rest == "0" {
            return Ok(GoDuration(0));
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        // The range is not symmetric: one more nanosecond below zero than above.
        let limit = i64::MIN.unsigned_abs();
        let mut total: u64 = 0;
        while !rest.is_empty() {
            let (whole, after) = number(rest);
            let (fraction, after) = match after.strip_prefix('.') {
                Some(after) => number(after),
                None => ("", after),
            };
            if whole.is_empty() && fraction.is_empty() {
                return Err(invalid());
            }
            let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
            let (unit, after) = after.split_at(end);
            // Go reads the number before it looks for the unit.
            if !whole.is_empty() && whole.parse::<u64>().map_or(true, |whole| whole > limit) {
                return Err(invalid());
            }
            if unit.is_empty() {
                let shown = quote(text.as_bytes());
                return Err(format!("time: missing unit in duration {shown}"));
            }
            let nanos = unit_nanos(unit).ok_or_else(|| {
                let unit = quote(unit.as_bytes());
                let shown = quote(text.as_bytes());
                format!("time: unknown unit {unit} in duration {shown}")
            })?;
            let piece = piece(whole, fraction, nanos).ok_or_else(invalid)?;
            total = total.checked_add(piece).filter(|t| *t <= limit).ok_or_else(invalid)?;
            rest = after;
        }
        match (negative, i64::try_from(total)) {
            (false, Ok(nanos)) => Ok(GoDuration(nanos)),
            (false, Err(_)) => Err(invalid()),
            (true, _) => Ok(GoDuration(0_i64.wrapping_sub_unsigned(total))),
        }
    }
}

fn number(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

fn unit_nanos(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        // Unicode has two micro signs.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => SECOND as u64,
        "m" => MINUTE as u64,
        "h" => HOUR as u64,
        _ => return None,
    })
}

fn piece(whole: &str, fraction: &str, nanos: u64) -> Option<u64> {
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut total = whole.checked_mul(nanos)?;
    // Digits below a nanosecond are ignored; of an hour, 13 digits count.
    let digits = fraction.get(..fraction.len().min(18)).unwrap_or_default();
    if !digits.is_empty() {
        let scale = 10_u128.pow(digits.len() as u32);
        let part = digits.parse::<u128>().ok()? * u128::from(nanos) / scale;
        total = total.checked_add(u64::try_from(part).ok()?)?;
    }
    Some(total)
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let nanos = self.0.unsigned_abs();
        if nanos == 0 {
            return f.write_str("0s");
        }
        f.write_str(sign)?;
        if nanos < SECOND as u64 {
            let (unit, name) = match nanos {
                0..1_000 => (1, "ns"),
                1_000..1_000_000 => (1_000, "µs"),
                _ => (1_000_000, "ms"),
            };
            return write!(f, "{}{name}", decimal(nanos, unit));
        }
        let hours = nanos / HOUR as u64;
        let minutes = nanos / MINUTE as u64 % 60;
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        write!(f, "{}s", decimal(nanos % MINUTE as u64, SECOND as u64))
    }
}

/// Formats `number / unit` with as many decimals as needed; `unit` is a power of ten.
fn decimal(number: u64, unit: u64) -> String {
    let rest = number % unit;
    if rest == 0 {
        return (number / unit).to_string();
    }
    let width = unit.ilog10() as usize;
    let digits = format!("{rest:0width$}");
    format!("{}.{}", number / unit, digits.trim_end_matches('0'))
}

/// Formats an age for tables, with two or three figures: `5s`, `3m12s`, `4h`, `2d3h`, `5y23d`.
pub fn human_duration(span: GoDuration) -> String {
    let seconds = span.seconds();
    let minutes = seconds / 60;
    let hours = seconds / 3600;
    let days = seconds / 86_400;
    // A clock difference below two seconds shows no negative age.
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1..0 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, 'm', seconds % 60, 's'),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, 'h', minutes % 60, 'm'),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 24 * 8 => two(days, 'd', hours % 24, 'h'),
        _ if days < 365 * 2 => format!("{days}d"),
        _ if days < 365 * 8 => two(days / 365, 'y', days % 365, 'd'),
        _ => format!("{}y", days / 365),
    }
}

fn two(large: i64, large_unit: char, small: i64, small_unit: char) -> String {
    if small == 0 {
        return format!("{large}{large_unit}");
    }
    format!("{large}{large_unit}{small}{small_unit}")
}

/// Formats an age with one figure: `5s`, `3m`, `2y`.
pub fn short_human_duration(span: GoDuration) -> String {
    let seconds = span.seconds();
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1..0 => "0s".to_owned(),
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        86_400..31_536_000 => format!("{}d", seconds / 86_400),
        _ => format!("{}y", seconds / 31_536_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let printed = GoDuration::parse(text).map_or_else(|error| error, |d| d.to_string());
        assert_eq!(printed, expected, "{text:?}");
    }

    #[test]
    fn durations_print_as_go_prints_them() {
        for (text, expected) in [
            ("0", "0s"),
            ("90m", "1h30m0s"),
            ("1h15m30.918s", "1h15m30.918s"),
            ("-1.5h", "-1h30m0s"),
            ("1ms", "1ms"),
            ("1500us", "1.5ms"),
            ("1µs", "1µs"),
            ("+5s", "5s"),
            (".5s", "500ms"),
            ("24h", "24h0m0s"),
            ("1ns", "1ns"),
            ("60s", "1m0s"),
            ("-9223372036854775808ns", "-2562047h47m16.854775808s"),
        ] {
            check(text, expected);
        }
    }

    #[test]
    fn errors_are_worded_as_go_words_them() {
        check("", "time: invalid duration \"\"");
        check("x", "time: invalid duration \"x\"");
        check("18446744073709551616", "time: invalid duration \"18446744073709551616\"");
        check("1", "time: missing unit in duration \"1\"");
        check("1d", "time: unknown unit \"d\" in duration \"1d\"");
        check("9223372036854775808ns", "time: invalid duration \"9223372036854775808ns\"");
        check(".s", "time: invalid duration \".s\"");
    }

    #[test]
    fn ages_have_two_or_three_figures() {
        let day = 86_400;
        for (seconds, long, short) in [
            (-2, "<invalid>", "<invalid>"),
            (-1, "0s", "0s"),
            (0, "0s", "0s"),
            (5, "5s", "5s"),
            (119, "119s", "1m"),
            (120, "2m", "2m"),
            (192, "3m12s", "3m"),
            (600, "10m", "10m"),
            (4 * 3600, "4h", "4h"),
            (4 * 3600 + 60, "4h1m", "4h"),
            (9 * 3600 + 60, "9h", "9h"),
            (2 * day + 3 * 3600, "2d3h", "2d"),
            (2 * day, "2d", "2d"),
            (9 * day, "9d", "9d"),
            (5 * 365 * day + 23 * day, "5y23d", "5y"),
            (9 * 365 * day, "9y", "9y"),
        ] {
            let span = GoDuration::from_seconds(seconds);
            assert_eq!(
                (human_duration(span).as_str(), short_human_duration(span).as_str()),
                (long, short)
            );
        }
    }
}
