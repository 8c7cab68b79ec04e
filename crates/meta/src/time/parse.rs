//! Parses RFC 3339 as Go does: along the layout, with errors that name the position in both.

use super::{DAY_SECONDS, Timestamp, days_from_civil, days_in_month};

const LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
const MICRO_LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Parses a time; with `micro`, a point and six digits must follow the seconds.
pub(super) fn rfc3339(text: &str, micro: bool) -> Result<Timestamp, String> {
    if !micro && let Some(time) = canonical(text.as_bytes()) {
        return Ok(time);
    }
    let layout = if micro { MICRO_LAYOUT } else { LAYOUT };
    let mut walk = Walk { layout, text, rest: text.as_bytes() };
    let year = walk.year()?;
    walk.literal("-")?;
    let month = walk.number("01", true, Some((1..=12, "month")))?;
    walk.literal("-")?;
    let day = walk.number("02", true, None)?;
    walk.literal("T")?;
    let hour = walk.number("15", false, Some((0..=23, "hour")))?;
    walk.literal(":")?;
    let minute = walk.number("04", true, Some((0..=59, "minute")))?;
    walk.literal(":")?;
    let second = walk.number("05", true, Some((0..=59, "second")))?;
    let nanos = if micro { walk.six_digits()? } else { walk.fraction() };
    let offset = walk.zone()?;
    if !walk.rest.is_empty() {
        let extra = quote(walk.rest);
        return Err(format!("parsing time {}: extra text: {extra}", quote(text.as_bytes())));
    }
    if day < 1 || day > days_in_month(year, month) {
        return Err(format!("parsing time {}: day out of range", quote(text.as_bytes())));
    }
    let days = days_from_civil(year, month, day);
    let seconds = days * DAY_SECONDS + hour * 3600 + minute * 60 + second - offset;
    Ok(Timestamp::new(seconds, nanos))
}

/// Fast path for the common form `2006-01-02T15:04:05Z`; returns `None` for other or invalid texts.
fn canonical(text: &[u8]) -> Option<Timestamp> {
    let text: &[u8; 20] = text.try_into().ok()?;
    let two = |at: usize| {
        let tens = text[at].wrapping_sub(b'0');
        let ones = text[at + 1].wrapping_sub(b'0');
        (tens < 10 && ones < 10).then_some(i64::from(tens) * 10 + i64::from(ones))
    };
    let signs = [text[4], text[7], text[10], text[13], text[16], text[19]];
    if signs != *b"--T::Z" {
        return None;
    }
    let year = two(0)? * 100 + two(2)?;
    let month = two(5)?;
    let day = two(8)?;
    let hour = two(11)?;
    let minute = two(14)?;
    let second = two(17)?;
    let is_right = (1..=12).contains(&month)
        && (1..=days_in_month(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    let seconds = days_from_civil(year, month, day) * DAY_SECONDS;
    is_right.then(|| Timestamp::new(seconds + hour * 3600 + minute * 60 + second, 0))
}

struct Walk<'a> {
    layout: &'static str,
    text: &'a str,
    rest: &'a [u8],
}

impl Walk<'_> {
    /// Returns the error for an invalid part at `at`.
    fn bad<T>(&self, piece: &str, at: &[u8]) -> Result<T, String> {
        Err(format!(
            "parsing time {} as {}: cannot parse {} as {}",
            quote(self.text.as_bytes()),
            quote(self.layout.as_bytes()),
            quote(at),
            quote(piece.as_bytes())
        ))
    }

    fn out_of_range<T>(&self, what: &str) -> Result<T, String> {
        Err(format!("parsing time {}: {what} out of range", quote(self.text.as_bytes())))
    }

    fn literal(&mut self, piece: &str) -> Result<(), String> {
        match self.rest.strip_prefix(piece.as_bytes()) {
            Some(rest) => {
                self.rest = rest;
                Ok(())
            }
            None => self.bad(piece, self.rest),
        }
    }

    fn year(&mut self) -> Result<i64, String> {
        match self.rest.split_at_checked(4).and_then(|(year, rest)| Some((digits(year)?, rest))) {
            Some((year, rest)) => {
                self.rest = rest;
                Ok(year)
            }
            None => self.bad("2006", self.rest),
        }
    }

    /// Parses two digits; one digit is allowed unless `fixed`.
    fn number(
        &mut self,
        piece: &str,
        fixed: bool,
        range: Option<(std::ops::RangeInclusive<i64>, &str)>,
    ) -> Result<i64, String> {
        let count = self.rest.iter().take(2).take_while(|b| b.is_ascii_digit()).count();
        if count == 0 || (fixed && count == 1) {
            return self.bad(piece, self.rest);
        }
        let (number, rest) = self.rest.split_at(count);
        let number = digits(number).unwrap_or_default();
        self.rest = rest;
        match range {
            Some((range, what)) if !range.contains(&number) => self.out_of_range(what),
            _ => Ok(number),
        }
    }

    /// Parses an optional point or comma with digits after the seconds; nine digits count.
    fn fraction(&mut self) -> u32 {
        let [b'.' | b',', digits @ ..] = self.rest else { return 0 };
        let count = digits.iter().take_while(|b| b.is_ascii_digit()).count();
        if count == 0 {
            return 0;
        }
        self.rest = &digits[count..];
        nanos(&digits[..count])
    }

    fn six_digits(&mut self) -> Result<u32, String> {
        match self.rest {
            [b'.' | b',', digits @ ..]
                if digits.len() >= 6 && digits[..6].iter().all(u8::is_ascii_digit) =>
            {
                let (six, rest) = digits.split_at(6);
                self.rest = rest;
                Ok(nanos(six))
            }
            _ => self.bad(".000000", self.rest),
        }
    }

    /// Parses the offset in seconds east of UTC.
    fn zone(&mut self) -> Result<i64, String> {
        let piece = "Z07:00";
        if let [b'Z', rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(0);
        }
        let at = self.rest;
        let [sign, h1, h2, b':', m1, m2, rest @ ..] = at else { return self.bad(piece, at) };
        let (Some(hour), Some(minute)) = (digits(&[*h1, *h2]), digits(&[*m1, *m2])) else {
            return self.bad(piece, at);
        };
        // Go accepts offsets of a whole day and a whole hour too.
        if hour > 24 {
            return self.out_of_range("time zone offset hour");
        }
        if minute > 60 {
            return self.out_of_range("time zone offset minute");
        }
        self.rest = rest;
        match sign {
            b'+' => Ok(hour * 3600 + minute * 60),
            b'-' => Ok(-(hour * 3600 + minute * 60)),
            _ => self.bad(piece, at),
        }
    }
}

fn digits(text: &[u8]) -> Option<i64> {
    text.iter().try_fold(0, |n, b| b.is_ascii_digit().then(|| n * 10 + i64::from(b - b'0')))
}

fn nanos(digits: &[u8]) -> u32 {
    let nine = digits.iter().copied().chain(std::iter::repeat(b'0')).take(9);
    nine.fold(0, |n, b| n * 10 + u32::from(b - b'0'))
}

/// Quotes like Go's package time: bytes that are not plain ASCII as `\x`.
pub(super) fn quote(text: &[u8]) -> String {
    let mut out = String::from("\"");
    for b in text {
        match b {
            b'"' | b'\\' => out.extend(['\\', char::from(*b)]),
            b' '..=0x7f => out.push(char::from(*b)),
            _ => out.push_str(&format!("\\x{b:02x}")),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let printed = Timestamp::parse(text).map_or_else(|error| error, |time| time.to_string());
        assert_eq!(printed, expected, "{text:?}");
    }

    #[test]
    fn times_print_in_utc_without_a_fraction() {
        check("2024-02-29T12:34:56Z", "2024-02-29T12:34:56Z");
        check("2024-02-29T12:34:56.789Z", "2024-02-29T12:34:56Z");
        check("2024-02-29T00:30:00+02:30", "2024-02-28T22:00:00Z");
        check("1969-12-31T23:59:59Z", "1969-12-31T23:59:59Z");
        check("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z");
        check("2024-01-01T1:02:03Z", "2024-01-01T01:02:03Z");
        check(
            "2024-02-29t12:34:56Z",
            "parsing time \"2024-02-29t12:34:56Z\" as \
               \"2006-01-02T15:04:05Z07:00\": cannot parse \"t12:34:56Z\" as \"T\"",
        );
    }

    #[test]
    fn errors_name_the_position_as_go_does() {
        let at = |text: &str, rest: &str, piece: &str| {
            let layout = "2006-01-02T15:04:05Z07:00";
            let words = format!(
                "parsing time \"{text}\" as \"{layout}\": cannot parse \"{rest}\" as \"{piece}\""
            );
            check(text, &words);
        };
        at("yesterday", "yesterday", "2006");
        at("", "", "2006");
        at("2024", "", "-");
        at("2024-1-1T00:00:00Z", "1-1T00:00:00Z", "01");
        at("2024-01-01", "", "T");
        at("2024-01-01 00:00:00Z", " 00:00:00Z", "T");
        at("2024-01-01T00:00:00", "", "Z07:00");
        check("2024-13-01T00:00:00Z", "parsing time \"2024-13-01T00:00:00Z\": month out of range");
        check("2023-02-29T00:00:00Z", "parsing time \"2023-02-29T00:00:00Z\": day out of range");
        check("2024-01-01T24:00:00Z", "parsing time \"2024-01-01T24:00:00Z\": hour out of range");
        check("2024-01-01T00:00:00Zx", "parsing time \"2024-01-01T00:00:00Zx\": extra text: \"x\"");
        assert_eq!(
            Timestamp::parse_micro("2024-02-02T00:00:00Z"),
            Err("parsing time \"2024-02-02T00:00:00Z\" as \"2006-01-02T15:04:05.000000Z07:00\": \
                 cannot parse \"Z\" as \".000000\""
                .to_owned())
        );
    }

    #[test]
    fn micro_times_keep_six_digits() {
        let time = Timestamp::parse_micro("2024-02-02T00:00:00.123456Z");
        assert_eq!(time.map(|t| t.micro().to_string()), Ok("2024-02-02T00:00:00.123456Z".into()));
    }

    #[test]
    fn truncated_times_never_panic() {
        let text = "2024-02-02T00:00:00.123456+01:00";
        for from in 0..text.len() {
            for to in from..=text.len() {
                let _ = Timestamp::parse(&text[from..to]);
                let _ = Timestamp::parse_micro(&text[from..to]);
                let _ = Timestamp::parse(&format!("{}é{}", &text[..from], &text[from..to]));
            }
        }
    }
}
