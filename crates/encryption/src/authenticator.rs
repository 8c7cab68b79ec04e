//! [`tag`]: Poly1305 (RFC 8439, section 2.5) of a whole message, in words of 64 bits. The crate
//! `poly1305` needs more than twice the time for a message of a few kilobytes.
//!
//! No branch and no place in memory depends on the key or on bytes of the message.

const KEY_BYTES: usize = 32;
const TAG_BYTES: usize = 16;
const BLOCK_BYTES: usize = 16;
/// The bits of the multiplier that may be 1.
const CLAMP: u128 = 0x0fff_fffc_0fff_fffc_0fff_fffc_0fff_ffff;

/// Returns the tag of a message for a key that is used once.
pub(crate) fn tag(key: &[u8; KEY_BYTES], message: &[u8]) -> [u8; TAG_BYTES] {
    let (multiplier, added) = key.split_at(BLOCK_BYTES);
    let number = |half: &[u8]| half.try_into().map_or(0, u128::from_le_bytes);
    let by = Multiplier::new(number(multiplier) & CLAMP);
    let mut sum = Number([0; 3]);
    let (blocks, rest) = message.as_chunks();
    for block in blocks {
        sum = sum.plus(block, 1).times(&by);
    }
    if !rest.is_empty() {
        // Behind the bytes of a block that is not whole there is a 1.
        let mut block = [0; BLOCK_BYTES];
        block[..rest.len()].copy_from_slice(rest);
        block[rest.len()] = 1;
        sum = sum.plus(&block, 0).times(&by);
    }
    sum.reduced().wrapping_add(number(added)).to_le_bytes()
}

/// The words of a number, low word first.
fn words(number: u128) -> [u64; 2] {
    [number as u64, (number >> u64::BITS) as u64]
}

/// What the sum is multiplied by for each block.
struct Multiplier {
    words: [u64; 2],
    /// 5/4 of the upper word, which is divisible by 4. A product of the upper words begins at bit
    /// 128; since 2^130 is 5, that is 5/4 of it at bit 0.
    folded: u64,
}

impl Multiplier {
    fn new(number: u128) -> Multiplier {
        let words = words(number);
        Multiplier { words, folded: words[1] + (words[1] >> 2) }
    }
}

/// A number modulo 2^130 - 5, low word first, whose third word is less than 8.
#[derive(Clone, Copy)]
struct Number([u64; 3]);

impl Number {
    /// Adds a block, and this at bit 128.
    fn plus(self, block: &[u8; BLOCK_BYTES], high: u64) -> Number {
        let (bits, carry) = self.low_bits().overflowing_add(u128::from_le_bytes(*block));
        let [low, mid] = words(bits);
        Number([low, mid, self.0[2] + high + u64::from(carry)])
    }

    /// Multiplies, and leaves a third word of less than 5. That of this number is less than 8 after
    /// a block was added, so that no sum of products overflows.
    fn times(self, by: &Multiplier) -> Number {
        let Number([low, mid, high]) = self;
        let [by_low, by_high] = by.words;
        let product = |one: u64, other: u64| u128::from(one) * u128::from(other);
        let first = product(low, by_low) + product(mid, by.folded);
        let second = product(low, by_high)
            + product(mid, by_low)
            + u128::from(high * by.folded)
            + (first >> u64::BITS);
        let third = high * by_low + (second >> u64::BITS) as u64;
        // What begins at bit 130, times 5.
        let (low, carry) = (first as u64).overflowing_add((third >> 2) + (third & !3));
        let (mid, carry) = (second as u64).overflowing_add(u64::from(carry));
        Number([low, mid, (third & 3) + u64::from(carry)])
    }

    /// The first two words.
    fn low_bits(self) -> u128 {
        let Number([low, mid, _]) = self;
        u128::from(low) | u128::from(mid) << u64::BITS
    }

    /// Returns the lower 128 bits of this number, reduced.
    fn reduced(self) -> u128 {
        let bits = self.low_bits();
        // If 5 more reach bit 130, the number is 2^130 - 5 at least, and that is to be taken off.
        let (more, carry) = bits.overflowing_add(5);
        let is_beyond = u128::from((self.0[2] + u64::from(carry)) >> 2);
        let mask = is_beyond.wrapping_neg();
        (more & mask) | (bits & !mask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poly1305::Poly1305;
    use poly1305::universal_hash::KeyInit;

    fn model(key: &[u8; KEY_BYTES], message: &[u8]) -> [u8; TAG_BYTES] {
        Poly1305::new(key.into()).compute_unpadded(message).into()
    }

    #[test]
    fn the_tag_is_that_of_the_rfc() {
        // RFC 8439, section 2.5.2.
        let key = [
            0x85, 0xd6, 0xbe, 0x78, 0x57, 0x55, 0x6d, 0x33, 0x7f, 0x44, 0x52, 0xfe, 0x42, 0xd5,
            0x06, 0xa8, 0x01, 0x03, 0x80, 0x8a, 0xfb, 0x0d, 0xb2, 0xfd, 0x4a, 0xbf, 0xf6, 0xaf,
            0x41, 0x49, 0xf5, 0x1b,
        ];
        let expected = [
            0xa8, 0x06, 0x1d, 0xc1, 0x30, 0x51, 0x36, 0xc6, 0xc2, 0x2b, 0x8b, 0xaf, 0x0c, 0x01,
            0x27, 0xa9,
        ];
        assert_eq!(tag(&key, b"Cryptographic Forum Research Group"), expected);
    }

    #[test]
    fn the_tag_is_that_of_the_crate_poly1305() {
        let mut random = [0; 1100];
        getrandom::fill(&mut random).expect("random bytes");
        let (key, message) = random.split_first_chunk().expect("a key");
        for size in 0..=message.len() {
            let message = &message[..size];
            assert_eq!(tag(key, message), model(key, message), "{size} bytes, {random:?}");
        }
    }

    /// Carries go through all words, and results are about 2^130 - 5.
    #[test]
    fn words_of_extreme_bits_are_as_the_crate_poly1305_has_them() {
        let extremes = [0_u64, 1, 2, 4, 5, u64::MAX, u64::MAX - 1, u64::MAX - 4, u64::MAX - 5];
        let multipliers = [[0, 0], [1, 0], [2, 0], [4, 4], [u64::MAX; 2], [0, u64::MAX]];
        for multiplier in multipliers {
            for added in [[0, 0], [u64::MAX; 2]] {
                let key: Vec<u8> = [multiplier, added]
                    .as_flattened()
                    .iter()
                    .flat_map(|w| w.to_le_bytes())
                    .collect();
                let key = key.first_chunk().expect("a key");
                for low in extremes {
                    for high in extremes {
                        let block = [low.to_le_bytes(), high.to_le_bytes()].concat();
                        for blocks in 1..6 {
                            let message = block.repeat(blocks);
                            let message = &message[..];
                            assert_eq!(
                                tag(key, message),
                                model(key, message),
                                "{key:?} {message:?}"
                            );
                        }
                    }
                }
            }
        }
    }
}
