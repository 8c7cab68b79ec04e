//! [`Quantity`]: amounts such as `100m`, `1.5Gi` or `2e3`, exact, with the canonical text of
//! upstream.
//!
//! A quantity is an integer of up to 38 digits times a power of ten; upstream has no limit on the
//! digits.

use crate::Str;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// The notation of a quantity: that of the text it was parsed from, used again to print it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// `12e6`.
    DecimalExponent,
    /// `12Mi`.
    BinarySi,
    /// `12M`.
    #[default]
    DecimalSi,
}

/// Why a text is not a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantityError {
    /// The text does not match the pattern of quantities.
    Format,
    /// The number cannot be parsed, or is out of range.
    Numeric,
    /// The suffix after the number is unknown.
    Suffix,
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QuantityError::Format => {
                "quantities must match the regular expression \
                 '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            }
            QuantityError::Numeric => "unable to parse numeric part of quantity",
            QuantityError::Suffix => "unable to parse quantity's suffix",
        })
    }
}

impl std::error::Error for QuantityError {}

/// An exact amount.
#[derive(Clone, Debug, Default)]
pub struct Quantity {
    /// The amount is `number * 10^exponent`.
    number: i128,
    exponent: i32,
    format: Format,
    /// The parsed text, when upstream prints that again although it is not canonical.
    original_text: Option<Str>,
}

/// The smallest power of ten that a quantity can represent.
const NANO: i32 = -9;

const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const DECIMAL_SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let parts = Parts::split(text)?;
        let (base_two, power, format) = suffix(parts.suffix).ok_or(QuantityError::Suffix)?;
        let digits = (parts.whole.len() + parts.fraction.len()) as i32;
        let fraction = parts.fraction.len() as i32;
        let mut number = parts.number()?;
        let mut quantity = if base_two {
            let exact = fraction == 0 && 15 - digits - power * 3 / 10 > 0;
            if exact {
                let original_text = text_if(power % 10 == 0 && number & 7 != 0, text);
                return Ok(Quantity {
                    number: parts.sign * (number << power),
                    exponent: 0,
                    format,
                    original_text,
                });
            }
            number = number.checked_shl_exact(power as u32).unwrap_or(i128::MAX);
            Quantity { number, exponent: -fraction, format, original_text: None }
        } else {
            let exponent = power.saturating_sub(fraction);
            if digits <= 18 && exponent >= NANO {
                let canonical =
                    exponent % 3 == 0 && !parts.ends_in_thousand() && !parts.starts_in_zero();
                let original_text = text_if(canonical, text);
                return Ok(Quantity {
                    number: parts.sign * number,
                    exponent,
                    format,
                    original_text,
                });
            }
            Quantity { number, exponent, format, original_text: None }
        };
        quantity.round_up(NANO);
        if format == Format::BinarySi {
            quantity.cap();
        }
        // Upstream has no limit here; we refuse what `Display` could not print exactly.
        if quantity.number != 0 && quantity.exact_digits().is_none() {
            return Err(QuantityError::Numeric);
        }
        quantity.number *= parts.sign;
        Ok(quantity)
    }
}

fn text_if(keep: bool, text: &str) -> Option<Str> {
    keep.then(|| Str::new(text))
}

/// The parts of a quantity's text.
struct Parts<'a> {
    sign: i128,
    /// Without leading zeros.
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let (sign, rest) = match text.as_bytes()[0] {
            b'-' => (-1, &text[1..]),
            b'+' => (1, &text[1..]),
            _ => (1, text),
        };
        let (whole, rest) = cut(rest.trim_start_matches('0'), |b| b.is_ascii_digit());
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => cut(rest, |b| b.is_ascii_digit()),
            None => ("", rest),
        };
        let (_, rest) = cut(suffix, |b| b"eEinumkKMGTP".contains(&b));
        let rest = rest.strip_prefix(['-', '+']).unwrap_or(rest);
        if !rest.bytes().all(|b| b.is_ascii_digit()) {
            return Err(QuantityError::Format);
        }
        // Upstream counts a whole part of zero as one digit.
        let whole = if whole.is_empty() { "0" } else { whole };
        Ok(Parts { sign, whole, fraction, suffix })
    }

    fn number(&self) -> Result<i128, QuantityError> {
        let mut number: i128 = 0;
        for b in self.whole.bytes().chain(self.fraction.bytes()) {
            let next = number.checked_mul(10).and_then(|n| n.checked_add(i128::from(b - b'0')));
            number = next.ok_or(QuantityError::Numeric)?;
        }
        Ok(number)
    }

    fn ends_in_thousand(&self) -> bool {
        let mut last = self.whole.bytes().chain(self.fraction.bytes()).rev();
        (0..3).all(|_| last.next() == Some(b'0'))
    }

    fn starts_in_zero(&self) -> bool {
        self.whole == "0"
    }
}

fn cut(text: &str, inside: impl Fn(u8) -> bool) -> (&str, &str) {
    text.split_at(text.bytes().take_while(|b| inside(*b)).count())
}

/// Parses a suffix: whether the base is two (else ten), the power, and the format.
fn suffix(text: &str) -> Option<(bool, i32, Format)> {
    if let Some(at) = DECIMAL_SUFFIXES.iter().position(|known| *known == text) {
        return Some((false, at as i32 * 3 + NANO, Format::DecimalSi));
    }
    if let Some(at) = BINARY_SUFFIXES.iter().position(|known| *known == text) {
        return Some((true, at as i32 * 10, Format::BinarySi));
    }
    let power: i64 = text.strip_prefix(['e', 'E'])?.parse().ok()?;
    // Upstream truncates the power to 32 bits.
    Some((false, power as i32, Format::DecimalExponent))
}

trait CheckedShift: Sized {
    fn checked_shl_exact(self, bits: u32) -> Option<Self>;
}

impl CheckedShift for i128 {
    /// Shifts left; `None` on overflow.
    fn checked_shl_exact(self, bits: u32) -> Option<i128> {
        1_i128.checked_shl(bits).and_then(|factor| self.checked_mul(factor))
    }
}

impl Quantity {
    /// Returns a quantity of `number` units.
    pub fn new(number: i64, format: Format) -> Self {
        Quantity { number: number.into(), exponent: 0, format, original_text: None }
    }

    /// Returns a quantity of `number` thousandths.
    pub fn from_milli(number: i64, format: Format) -> Self {
        Quantity { number: number.into(), exponent: -3, format, original_text: None }
    }

    /// Returns the notation in which the quantity is printed.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns whether the quantity is zero.
    pub fn is_zero(&self) -> bool {
        self.number == 0
    }

    /// Returns -1, 0 or 1.
    pub fn sign(&self) -> i32 {
        self.number.signum() as i32
    }

    /// Returns the value rounded away from zero to an integer, saturating at 64 bits (upstream's
    /// `Value`).
    pub fn value(&self) -> i64 {
        self.scaled(0)
    }

    /// Returns the value in thousandths, rounded away from zero, saturating at 64 bits (upstream's
    /// `MilliValue`).
    pub fn milli_value(&self) -> i64 {
        self.scaled(-3)
    }

    fn scaled(&self, exponent: i32) -> i64 {
        let limit = if self.number < 0 { i64::MIN } else { i64::MAX };
        let up = self.exponent.saturating_sub(exponent);
        let number = if up <= 0 {
            Some(divide_away(self.number, up.unsigned_abs()))
        } else {
            power_of_ten(up.unsigned_abs()).and_then(|factor| self.number.checked_mul(factor))
        };
        number.and_then(|number| i64::try_from(number).ok()).unwrap_or(limit)
    }

    /// Whether upstream takes the value as an integer: by the remainder of its thousandths, whose
    /// overflow decides about very large values.
    pub fn is_integer(&self) -> bool {
        const SMALL: i128 = 10_i128.pow(18);
        let up = self.exponent.saturating_add(3);
        let thousandths = match u32::try_from(up) {
            Err(_) | Ok(0) => return self.milli_value() % 1000 == 0,
            // Other factors are applied one by one, and an overflow is zero.
            Ok(4 | 5 | 7 | 8 | 10..) if self.number.abs() < SMALL => {
                let exact = power_of_ten(up.unsigned_abs())
                    .and_then(|factor| self.number.checked_mul(factor));
                exact.and_then(|exact| i64::try_from(exact).ok()).unwrap_or(0)
            }
            Ok(digits) => {
                let factor = 10_i64.checked_pow(digits).unwrap_or(i64::MIN);
                (self.number as i64).wrapping_mul(factor)
            }
        };
        thousandths % 1000 == 0
    }

    /// Returns the value if it is an integer of 64 bits.
    pub fn as_i64(&self) -> Option<i64> {
        let factor = power_of_ten(self.exponent.unsigned_abs())?;
        let number = match self.exponent {
            0.. => self.number.checked_mul(factor)?,
            _ if self.number % factor == 0 => self.number / factor,
            _ => return None,
        };
        i64::try_from(number).ok()
    }

    /// Returns the approximate value.
    pub fn as_f64(&self) -> f64 {
        self.number as f64 * 10_f64.powi(self.exponent)
    }

    /// Returns the sum in the format of `self`, or that of `other` if `self` is zero.
    pub fn add(&self, other: &Quantity) -> Quantity {
        let format = if self.is_zero() { other.format } else { self.format };
        let ((a, b), exponent) = align(self, other);
        Quantity { number: a.saturating_add(b), exponent, format, original_text: None }
    }

    /// Returns the difference in the format of `self`, or that of `other` if `self` is zero.
    pub fn sub(&self, other: &Quantity) -> Quantity {
        self.add(&other.neg())
    }

    /// Returns the quantity with the opposite sign.
    pub fn neg(&self) -> Quantity {
        Quantity { number: -self.number, original_text: None, ..self.clone() }
    }

    /// Rounds away from zero to a multiple of `10^exponent`; returns whether the value is
    /// unchanged.
    fn round_up(&mut self, exponent: i32) -> bool {
        if self.exponent >= exponent {
            return true;
        }
        let before = (self.number, self.exponent);
        self.number = divide_away(self.number, exponent.abs_diff(self.exponent));
        self.exponent = exponent;
        let lost = exponent.abs_diff(before.1);
        power_of_ten(lost).and_then(|factor| self.number.checked_mul(factor)) == Some(before.0)
    }

    /// Caps a binary quantity at `i64::MAX`, and makes one below 1 decimal, as upstream does.
    fn cap(&mut self) {
        let max = Quantity::new(i64::MAX, Format::BinarySi);
        let one = Quantity::new(1, Format::BinarySi);
        if *self > max {
            (self.number, self.exponent) = (max.number, 0);
        }
        if *self < one && self.number > 0 {
            self.format = Format::DecimalSi;
        }
    }

    /// Returns the digits and the power of 1024 of an integer of at least 1024.
    fn binary_digits(&self) -> Option<(i128, usize)> {
        let mut number = match self.exponent {
            0.. => self.number.checked_mul(power_of_ten(self.exponent.unsigned_abs())?)?,
            _ => {
                let mut whole = self.clone();
                whole.round_up(0).then_some(whole.number)?
            }
        };
        if number.abs() < 1024 {
            return None;
        }
        let mut factors = 0;
        while number % 1024 == 0 && factors + 1 < BINARY_SUFFIXES.len() {
            number /= 1024;
            factors += 1;
        }
        Some((number, factors))
    }

    /// Returns the digits and the power of ten, a multiple of three. Rounds away from zero when the
    /// digits do not fit, which only sums reach.
    fn decimal_digits(&self) -> (i128, i32) {
        self.exact_digits().unwrap_or_else(|| {
            let lost = 3 - self.exponent.rem_euclid(3);
            (divide_away(self.number, lost.unsigned_abs()), self.exponent.saturating_add(lost))
        })
    }

    /// Like `decimal_digits`, but `None` when the digits do not fit. The number must not be zero.
    fn exact_digits(&self) -> Option<(i128, i32)> {
        let mut number = self.number;
        let mut exponent = self.exponent;
        while number % 10 == 0 {
            number /= 10;
            exponent = exponent.saturating_add(1);
        }
        while exponent % 3 != 0 {
            number = number.checked_mul(10)?;
            exponent = exponent.checked_sub(1)?;
        }
        Some((number, exponent))
    }
}

/// Returns `number / 10^digits`, rounded away from zero.
fn divide_away(number: i128, digits: u32) -> i128 {
    let Some(factor) = power_of_ten(digits) else { return number.signum() };
    let rest = number % factor;
    number / factor + rest.signum()
}

fn power_of_ten(digits: u32) -> Option<i128> {
    10_i128.checked_pow(digits)
}

/// Returns both numbers at the smaller exponent, and that exponent. When a number would not fit at
/// that exponent, the smaller quantity becomes zero.
fn align(a: &Quantity, b: &Quantity) -> ((i128, i128), i32) {
    let exponent = a.exponent.min(b.exponent);
    let raise = |q: &Quantity| {
        power_of_ten(q.exponent.abs_diff(exponent)).and_then(|factor| q.number.checked_mul(factor))
    };
    match (raise(a), raise(b)) {
        _ if a.number == 0 => ((0, b.number), b.exponent),
        _ if b.number == 0 => ((a.number, 0), a.exponent),
        (Some(a), Some(b)) => ((a, b), exponent),
        (None, _) => ((a.number, 0), a.exponent),
        (_, None) => ((0, b.number), b.exponent),
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_sign = self.sign().cmp(&other.sign());
        if by_sign.is_ne() || self.number == 0 {
            return by_sign;
        }
        let exponent = self.exponent.min(other.exponent);
        let raise = |q: &Quantity| {
            let digits = q.exponent.abs_diff(exponent);
            power_of_ten(digits).and_then(|factor| q.number.checked_mul(factor))
        };
        match (raise(self), raise(other)) {
            (Some(a), Some(b)) => a.cmp(&b),
            // A number that overflows is larger in magnitude than one that does not.
            (None, _) => by_magnitude(Ordering::Greater, self.sign()),
            (_, None) => by_magnitude(Ordering::Less, self.sign()),
        }
    }
}

fn by_magnitude(order: Ordering, sign: i32) -> Ordering {
    if sign < 0 { order.reverse() } else { order }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Quantity {
    /// Compares the values, whatever their notation.
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Quantity {}

impl fmt::Display for Quantity {
    /// Writes the canonical text: no fraction, the largest suffix that is exact.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(original_text) = &self.original_text {
            return f.write_str(original_text);
        }
        if self.number == 0 {
            return f.write_str("0");
        }
        if self.format == Format::BinarySi
            && let Some((number, factors)) = self.binary_digits()
        {
            return write!(f, "{number}{}", BINARY_SUFFIXES[factors]);
        }
        let (number, exponent) = self.decimal_digits();
        let place = usize::try_from(exponent.saturating_sub(NANO) / 3).ok();
        let suffix = place.and_then(|place| DECIMAL_SUFFIXES.get(place));
        match (self.format, suffix) {
            _ if exponent == 0 => write!(f, "{number}"),
            // Upstream prints no suffix for powers above E, which changes the value; we do not.
            (Format::DecimalExponent, _) | (_, None) => write!(f, "{number}e{exponent}"),
            (_, Some(suffix)) => write!(f, "{number}{suffix}"),
        }
    }
}

/// Returns the canonical text of a quantity in a ResourceList, rounded up to thousandths.
pub fn canonical_milli(text: &str) -> Result<String, QuantityError> {
    let mut quantity = text.parse::<Quantity>()?;
    if quantity.exponent < -3 {
        quantity.round_up(-3);
        quantity.original_text = None;
    }
    Ok(quantity.to_string())
}

/// Returns the canonical text of a quantity.
pub fn canonical(text: &str) -> Result<String, QuantityError> {
    Ok(text.parse::<Quantity>()?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let printed = canonical(text).unwrap_or_else(|error| format!("error: {error}"));
        assert_eq!(printed, expected, "{text:?}");
    }

    fn quantity(text: &str) -> Quantity {
        text.parse().unwrap_or_else(|error| unreachable!("{text}: {error}"))
    }

    #[test]
    fn a_quantity_with_too_many_digits_is_an_error_and_never_rounded() {
        let digits = "1".repeat(38);
        check(&digits, &digits);
        check(&format!("{digits}.1"), "error: unable to parse numeric part of quantity");
        // One digit after the point; the two more digits that milli needs do not fit.
        let text = "1021474808021474028922337203685477580.7";
        check(text, "error: unable to parse numeric part of quantity");
        let huge = quantity(&"9".repeat(38));
        assert!(huge.add(&huge).to_string().starts_with("1701411834604692317316873037158841057"));
    }

    /// A kube-apiserver 1.36.3 takes these as amounts of an extended resource, or refuses them.
    #[test]
    fn very_large_amounts_are_integers_by_the_overflow_of_their_thousandths() {
        for text in ["10P", "1E", "10E", "1e100", "9223372036854775807", "16Ei", "12e6", "1Ti"] {
            assert!(quantity(text).is_integer(), "{text}");
        }
        for text in ["1Ei", "100000000000000000000", "1500m", "0.1n", "1u"] {
            assert!(!quantity(text).is_integer(), "{text}");
        }
    }

    #[test]
    fn texts_become_canonical() {
        for (text, expected) in [
            ("0", "0"),
            ("0Gi", "0"),
            ("-0", "0"),
            ("100m", "100m"),
            ("0.1", "100m"),
            ("1", "1"),
            ("1000", "1k"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("1.5", "1500m"),
            ("1Gi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("1024Mi", "1Gi"),
            ("1025Mi", "1025Mi"),
            ("0.5Mi", "512Ki"),
            ("512Ki", "512Ki"),
            ("0.5Ki", "512"),
            ("0.0001Ki", "102400u"),
            ("1e3", "1e3"),
            ("1E3", "1E3"),
            ("1e2", "100"),
            ("1.5e4", "1.5e4"),
            ("1e-3", "1e-3"),
            ("1E", "1E"),
            ("100k", "100k"),
            ("0.1n", "1n"),
            ("1.0000000001", "1000000001n"),
            ("-1.5", "-1500m"),
            ("-0.1n", "-1n"),
            ("+1", "+1"),
            ("1.500", "1.500"),
            (".5", "500m"),
            ("8Ei", "9223372036854775807"),
            ("1.1", "1100m"),
            ("10000000000000000000", "10E"),
            ("12345678901234567890", "12345678901234567890"),
            ("9999999999Gi", "9223372036854775807"),
            ("1e30", "1e30"),
            ("123456789012345678Ki", "9223372036854775807"),
            ("1000000", "1M"),
            ("3.3Gi", "3543348019200m"),
            ("1.0", "1"),
            ("0.000001", "1u"),
        ] {
            check(text, expected);
        }
    }

    #[test]
    fn errors_are_worded_as_upstream_words_them() {
        let format = "error: quantities must match the regular expression \
                      '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
        for text in ["", "abc", "1.2.3", "1 Gi", "1e1.5", "1Gi1x", "1g", "1_000", "é", "1é"] {
            check(text, format);
        }
        for text in ["1mm", "1Kii", "1e", "1i", "1ki", "1m1", "--1"] {
            check(text, "error: unable to parse quantity's suffix");
        }
    }

    #[test]
    fn amounts_compare_whatever_their_form() {
        for (a, order, b) in [
            ("1", Ordering::Equal, "1000m"),
            ("1Gi", Ordering::Greater, "1G"),
            ("-1", Ordering::Less, "0"),
            ("1e100", Ordering::Greater, "1E"),
            ("-1e100", Ordering::Less, "-1E"),
            ("1n", Ordering::Less, "1e100"),
            ("0", Ordering::Equal, "0e50"),
        ] {
            assert_eq!(quantity(a).cmp(&quantity(b)), order, "{a} {b}");
        }
    }

    #[test]
    fn sums_keep_the_format_of_the_first_that_is_not_zero() {
        let sum = |a, b| quantity(a).add(&quantity(b)).to_string();
        assert_eq!(sum("100m", "1900m"), "2");
        assert_eq!(sum("0", "1Gi"), "1Gi");
        assert_eq!(sum("1Gi", "24Mi"), "1048Mi");
        assert_eq!(sum("1Gi", "0.5"), "1073741824500m");
        assert_eq!(quantity("1").sub(&quantity("1500m")).to_string(), "-500m");
    }

    #[test]
    fn whole_numbers_round_away_from_zero() {
        assert_eq!(quantity("1500m").value(), 2);
        assert_eq!(quantity("-1500m").value(), -2);
        assert_eq!(quantity("1u").milli_value(), 1);
        assert_eq!(quantity("1e40").value(), i64::MAX);
        assert_eq!(quantity("1500m").as_i64(), None);
        assert_eq!(quantity("2000m").as_i64(), Some(2));
        assert_eq!(quantity("1Ki").as_i64(), Some(1024));
    }

    #[test]
    fn canonical_texts_stay_as_they_are() {
        let mut seed: u64 = 3;
        let mut next = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let suffixes = ["", "m", "n", "k", "E", "Ki", "Gi", "Ei", "e3", "e-7", "e20"];
        for _ in 0..20_000 {
            let suffix = suffixes[next(suffixes.len() as u64) as usize];
            let text = format!("{}.{}{suffix}", next(100_000), next(1000));
            let first = quantity(&text);
            let mut plain = first.clone();
            plain.original_text = None;
            let again = quantity(&plain.to_string());
            assert_eq!(first, again, "{text}");
            assert_eq!(plain.to_string(), again.to_string(), "{text}");
        }
    }
}
