//! The shortest decimal digits of floats, as Go writes them.

/// The shortest decimal digits of a finite float that no other float is closer to, as `strconv` has
/// them. The standard library of Rust chooses others where two are equally close.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShortestDigits {
    /// Whether the float has a minus sign.
    pub is_negative: bool,
    /// The digits, without zeros at the ends; `0` for zero.
    pub digits: String,
    /// The exponent if the point stands after the first digit.
    pub exponent: i32,
}

impl ShortestDigits {
    /// Returns the digits of a float.
    pub fn of(number: f64) -> ShortestDigits {
        let mut buffer = zmij::Buffer::new();
        let text = buffer.format_finite(number.abs());
        let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let significant = all.trim_start_matches('0');
        let leading_zeros = all.len() - significant.len();
        let place = |length: usize| i32::try_from(length).unwrap_or(i32::MAX);
        let digits = significant.trim_end_matches('0');
        let is_negative = number.is_sign_negative();
        if digits.is_empty() {
            return ShortestDigits { is_negative, digits: "0".to_owned(), exponent: 0 };
        }
        let exponent = exponent + place(whole.len()) - 1 - place(leading_zeros);
        ShortestDigits { is_negative, digits: digits.to_owned(), exponent }
    }

    /// Formats the float without an exponent.
    pub fn decimal(&self) -> String {
        let sign = if self.is_negative { "-" } else { "" };
        let digits = &self.digits;
        let Ok(point) = usize::try_from(self.exponent + 1) else {
            let zeros = "0".repeat(self.exponent.unsigned_abs() as usize - 1);
            return format!("{sign}0.{zeros}{digits}");
        };
        match point {
            0 => format!("{sign}0.{digits}"),
            point if point >= digits.len() => {
                format!("{sign}{digits}{}", "0".repeat(point - digits.len()))
            }
            point => format!("{sign}{}.{}", &digits[..point], &digits[point..]),
        }
    }

    /// Formats the float with an exponent of at least this many digits.
    pub fn scientific(&self, exponent_digits: usize) -> String {
        let sign = if self.is_negative { "-" } else { "" };
        let (first, rest) = self.digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        let exponent_sign = if self.exponent < 0 { '-' } else { '+' };
        let exponent = self.exponent.abs();
        format!("{sign}{first}{point}{rest}e{exponent_sign}{exponent:0exponent_digits$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_of_floats_are_the_shortest_and_closest() {
        let decimal = |number: f64| ShortestDigits::of(number).decimal();
        // As many digits with 3 at the end are equally close.
        assert_eq!(decimal(185_373_836_967_671.0 + 0.625), "185373836967671.62");
        assert_eq!(decimal(-0.25), "-0.25");
        assert_eq!(decimal(0.025), "0.025");
        assert_eq!(decimal(1500.0), "1500");
        assert_eq!(decimal(0.0), "0");
        assert_eq!(decimal(-0.0), "-0");
        assert_eq!(decimal(1e20), "100000000000000000000");
        let scientific = |number: f64| ShortestDigits::of(number).scientific(2);
        assert_eq!(scientific(1e21), "1e+21");
        assert_eq!(scientific(-1.5e-7), "-1.5e-07");
        assert_eq!(scientific(5e-324), "5e-324");
    }
}
