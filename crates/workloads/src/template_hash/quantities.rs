//! Prints a quantity as Go's reflection does: its fields depend on the form of its text. Quantities
//! that were stored are in canonical form.

use keelson_meta::Value;
use std::fmt::{Result, Write};

/// Numbers of at most this many digits are kept in 64 bits.
const SMALL_DIGITS_MAX: i64 = 18;
/// Number of digits after the point of large quantities.
const FRACTION_DIGITS: i64 = 9;

/// Writes a quantity.
pub(super) fn write(value: Option<&Value>, out: &mut impl Write) -> Result {
    let number;
    let text = match value {
        Some(Value::String(text)) => text.as_str(),
        Some(Value::Int(int)) => {
            number = int.to_string();
            &number
        }
        _ => "",
    };
    if text.is_empty() {
        return write_parts(out, 0, 0, None, "", "");
    }
    if text == "0" {
        return write_parts(out, 0, 0, None, "0", "DecimalSI");
    }
    match Parts::read(text) {
        Some(parts) => parts.write(text, out),
        // The server stores no such text.
        None => write_parts(out, 0, 0, None, "", ""),
    }
}

/// A quantity as it is written.
struct Parts<'t> {
    is_negative: bool,
    whole: &'t str,
    fraction: &'t str,
    /// `None`: decimal.
    binary_exponent: Option<i64>,
    decimal_exponent: i64,
    format: &'static str,
}

impl<'t> Parts<'t> {
    fn read(text: &'t str) -> Option<Parts<'t>> {
        let (is_negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let is_number = |one: char| one.is_ascii_digit() || one == '.';
        let end = text.find(|one| !is_number(one)).unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let whole = whole.trim_start_matches('0');
        let whole = if whole.is_empty() { "0" } else { whole };
        let fraction = fraction.trim_end_matches('0');
        let decimal = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        let binary = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        let place = |all: &[&str]| all.iter().position(|one| *one == suffix).map(|at| at as i64);
        let (binary_exponent, decimal_exponent, format) = if let Some(at) = place(&decimal) {
            (None, 3 * at - 9, "DecimalSI")
        } else if let Some(at) = place(&binary) {
            (Some(10 * (at + 1)), 0, "BinarySI")
        } else {
            (None, suffix.strip_prefix(['e', 'E'])?.parse().ok()?, "DecimalExponent")
        };
        Some(Parts { is_negative, whole, fraction, binary_exponent, decimal_exponent, format })
    }

    fn write(&self, text: &str, out: &mut impl Write) -> Result {
        let digits = self.whole.len() as i64;
        let precision = match self.binary_exponent {
            None => SMALL_DIGITS_MAX - digits - self.fraction.len() as i64,
            Some(exponent) if self.fraction.is_empty() => {
                15 - digits - (exponent as f32 * 3.0 / 10.0) as i64 - 1
            }
            Some(_) => -1,
        };
        let scale = self.decimal_exponent - self.fraction.len() as i64;
        if precision >= 0
            && scale >= -FRACTION_DIGITS
            && let Ok(number) = format!("{}{}", self.whole, self.fraction).parse::<i64>()
            && let Some(amount) = number.checked_mul(1 << self.binary_exponent.unwrap_or(0))
        {
            let amount = if self.is_negative { -amount } else { amount };
            let is_canonical = match self.binary_exponent {
                Some(exponent) => exponent % 10 == 0 && number & 7 != 0,
                None => {
                    let digits = format!("{}{}", self.whole, self.fraction);
                    scale % 3 == 0 && !digits.ends_with("000") && !digits.starts_with('0')
                }
            };
            let kept = if is_canonical { text } else { "" };
            return write_parts(out, amount, scale, None, kept, self.format);
        }
        let large = Some((self.is_negative, self.words()));
        write_parts(out, 0, 0, large, "", self.format)
    }

    /// Returns a large amount in units of 1/10⁹, as words of 64 bits with the lowest one first.
    fn words(&self) -> Vec<u64> {
        let mut words = vec![];
        let places = FRACTION_DIGITS + self.decimal_exponent;
        let mut digits = format!("{}{}", self.whole, self.fraction).into_bytes();
        let missing = places - self.fraction.len() as i64;
        digits.resize(digits.len().saturating_add_signed(missing as isize), b'0');
        for digit in digits {
            multiply_add(&mut words, 10, u64::from(digit - b'0'));
        }
        for _ in 0..self.binary_exponent.unwrap_or(0) {
            multiply_add(&mut words, 2, 0);
        }
        if self.binary_exponent.is_some() {
            cap(&mut words);
        }
        words
    }
}

/// Limits a binary quantity to 2⁶³-1.
fn cap(words: &mut Vec<u64>) {
    let largest = u128::from(i64::MAX as u64) * 1_000_000_000;
    let value = match words[..] {
        [low] => u128::from(low),
        [low, high] => u128::from(low) | u128::from(high) << 64,
        _ => u128::MAX,
    };
    if value > largest {
        *words = vec![largest as u64, (largest >> 64) as u64];
    }
}

fn multiply_add(words: &mut Vec<u64>, factor: u64, add: u64) {
    let mut carry = u128::from(add);
    for word in words.iter_mut() {
        let product = u128::from(*word) * u128::from(factor) + carry;
        *word = product as u64;
        carry = product >> 64;
    }
    if carry > 0 {
        words.push(carry as u64);
    }
}

fn write_parts(
    out: &mut impl Write,
    amount: i64,
    scale: i64,
    large: Option<(bool, Vec<u64>)>,
    text: &str,
    format: &str,
) -> Result {
    let int64 = "resource.int64Amount";
    let scale_type = "resource.Scale";
    write!(out, "{{i:({int64}){{value:(int64){amount} scale:({scale_type}){scale}}} ")?;
    out.write_str("d:(resource.infDecAmount){Dec:(*inf.Dec)")?;
    match large {
        None => out.write_str("<nil>")?,
        Some((is_negative, words)) => {
            let words: Vec<String> = words.iter().map(u64::to_string).collect();
            let words = words.join(" ");
            let scale = FRACTION_DIGITS;
            write!(out, "{{unscaled:(big.Int){{neg:(bool){is_negative} abs:(big.nat)[{words}]}} ")?;
            write!(out, "scale:(inf.Scale){scale}}}")?;
        }
    }
    write!(out, "}} s:(string){text} Format:(resource.Format){format}}}")
}
