//! Recognizes timestamps, which upstream decodes to the text that they are.

/// Whether upstream takes a plain scalar for a timestamp: `2001-12-14`, with a time after spaces,
/// or with a time and a zone after `T`.
pub(super) fn is_timestamp(text: &str) -> bool {
    let mut rest = Rest(text.as_bytes());
    if !rest.date() {
        return false;
    }
    match rest.0.first() {
        None => true,
        Some(b'T' | b't') => {
            rest.0 = &rest.0[1..];
            rest.time() && rest.zone() && rest.0.is_empty()
        }
        Some(b' ') => {
            while let [b' ', after @ ..] = rest.0 {
                rest.0 = after;
            }
            rest.time() && rest.0.is_empty()
        }
        Some(_) => false,
    }
}

/// What is left of a text.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn date(&mut self) -> bool {
        let [a, b, c, d, rest @ ..] = self.0 else { return false };
        let digits = [a, b, c, d];
        if !digits.iter().all(|byte| byte.is_ascii_digit()) {
            return false;
        }
        let year = digits.iter().fold(0, |year, digit| year * 10 + u32::from(*digit - b'0'));
        self.0 = rest;
        let Some(month) = self.take(b'-').then(|| self.number()).flatten() else { return false };
        let Some(day) = self.take(b'-').then(|| self.number()).flatten() else { return false };
        (1..=days_of(month, year)).contains(&day)
    }

    fn time(&mut self) -> bool {
        let hour = self.number();
        let minute = self.take(b':').then(|| self.number()).flatten();
        let second = self.take(b':').then(|| self.number()).flatten();
        let is_below = |number: Option<u32>, end| number.is_some_and(|number| number < end);
        if !is_below(hour, 24) || !is_below(minute, 60) || !is_below(second, 60) {
            return false;
        }
        if let [b'.' | b',', b'0'..=b'9', ..] = self.0 {
            let length = self.0[1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            self.0 = &self.0[1 + length..];
        }
        true
    }

    fn zone(&mut self) -> bool {
        if self.take(b'Z') {
            return true;
        }
        let [b'+' | b'-', hours @ .., b':', minute_tens, minute_ones] = self.0 else {
            return false;
        };
        let two_digits = |digits: [u8; 2]| {
            let is_number = digits.iter().all(u8::is_ascii_digit);
            is_number.then(|| u32::from(digits[0] - b'0') * 10 + u32::from(digits[1] - b'0'))
        };
        let hour = <[u8; 2]>::try_from(hours).ok().and_then(two_digits);
        let minute = two_digits([*minute_tens, *minute_ones]);
        self.0 = &[];
        hour.is_some_and(|hour| hour <= 24) && minute.is_some_and(|minute| minute <= 60)
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.0.first() == Some(&byte);
        if is_next {
            self.0 = &self.0[1..];
        }
        is_next
    }

    /// Takes one or two digits.
    fn number(&mut self) -> Option<u32> {
        let length = self.0.iter().take(2).take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.0.split_at(length);
        self.0 = rest;
        let number = digits.iter().fold(0, |number, digit| number * 10 + u32::from(digit - b'0'));
        (length > 0).then_some(number)
    }
}

/// Returns the number of days of a month; 0 if there is no such month.
fn days_of(month: u32, year: u32) -> u32 {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => 0,
    }
}
