//! Uids and generated names from random bytes of the caller.

use crate::Str;

/// Characters of generated names (apimachinery `rand.String`): no vowels and no look-alikes, so
/// that no words appear.
const SUFFIX_CHARACTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// Number of characters that generateName adds.
const SUFFIX_LENGTH: usize = 5;

/// Returns a version 4 UUID (RFC 9562) as text.
pub fn uuid(mut random: [u8; 16]) -> Str {
    random[6] = (random[6] & 0x0f) | 0x40;
    random[8] = (random[8] & 0x3f) | 0x80;
    let mut text = [b'-'; 36];
    let mut at = 0;
    for (i, byte) in random.iter().enumerate() {
        at += usize::from(matches!(i, 4 | 6 | 8 | 10));
        for digit in [byte >> 4, byte & 15] {
            text[at] = b"0123456789abcdef"[usize::from(digit)];
            at += 1;
        }
    }
    Str::new(str::from_utf8(&text).unwrap_or_default())
}

/// Returns `base` with five random characters; `base` is truncated so that the name fits 63 bytes.
pub fn generated_name(random: [u8; 16], base: &str) -> Str {
    const BASE_BYTES_MAX: usize = 63 - SUFFIX_LENGTH;
    let mut end = base.len().min(BASE_BYTES_MAX);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    let suffix = random[..SUFFIX_LENGTH]
        .iter()
        .map(|byte| char::from(SUFFIX_CHARACTERS[usize::from(*byte) % SUFFIX_CHARACTERS.len()]));
    base[..end].chars().chain(suffix).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_names_have_five_more_characters_and_at_most_63_bytes() {
        let random = [0, 1, 26, 27, 255, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9];
        assert_eq!(generated_name(random, "web-"), "web-bc9bq");
        let long = "é".repeat(40);
        assert_eq!(generated_name(random, &long), format!("{}bc9bq", "é".repeat(29)));
    }
}
