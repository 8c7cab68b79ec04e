//! Numbers as Go's package strconv reads them, with its messages.

use crate::status::quote;

/// Parses digits, as `strconv.ParseUint` does in base 10: without a sign.
pub fn parse_uint(text: &str) -> Result<u64, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number).ok_or_else(|| {
        let why = if is_number { "value out of range" } else { "invalid syntax" };
        format!("strconv.ParseUint: parsing {}: {why}", quote(text))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_a_number() {
        let error =
            |text: &str, why: &str| Err(format!("strconv.ParseUint: parsing \"{text}\": {why}"));
        assert_eq!(parse_uint("18446744073709551615"), Ok(u64::MAX));
        for text in ["", "+1", "-1", "x", "1 "] {
            assert_eq!(parse_uint(text), error(text, "invalid syntax"));
        }
        let long = "18446744073709551616";
        assert_eq!(parse_uint(long), error(long, "value out of range"));
    }
}
