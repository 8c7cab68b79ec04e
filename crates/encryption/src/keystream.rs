//! [`KeyStream`]: Salsa20, sixteen blocks at once, with the widest instructions of the processor.
//! The crate `salsa20` makes one block after the other, in five times the time (two and a half
//! times without AVX-512).

use fearless_simd::prelude::*;
use fearless_simd::{Level, dispatch, u32x16};
use zeroize::Zeroizing;

pub(crate) const BLOCK_BYTES: usize = 64;
const WORDS: usize = BLOCK_BYTES / 4;
const KEY_WORDS: usize = 8;
const NONCE_WORDS: usize = 2;
/// Where the number of the block is.
const COUNTER_AT: usize = 8;
/// Blocks that are made together.
const BLOCKS: usize = 16;
/// Each pass has a round of the columns and one of the rows.
const PASSES: usize = 10;
/// "expand 32-byte k", at these places.
const CONSTANTS: [(usize, u32); 4] =
    [(0, 0x6170_7865), (5, 0x3320_646e), (10, 0x7962_2d32), (15, 0x6b20_6574)];

/// The instructions that this processor has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Processor(Level);

impl Processor {
    pub fn new() -> Processor {
        Processor(Level::new())
    }
}

/// The key stream of a key and a nonce.
pub(crate) struct KeyStream {
    processor: Processor,
    /// The block before the first pass, without its number.
    start: Zeroizing<[u32; WORDS]>,
}

impl KeyStream {
    pub fn new(
        processor: Processor,
        key: &[u8; 4 * KEY_WORDS],
        nonce: &[u8; 4 * NONCE_WORDS],
    ) -> Self {
        let mut start = Zeroizing::new([0; WORDS]);
        for (at, word) in CONSTANTS {
            start[at] = word;
        }
        let key = key.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word));
        for (word, at) in key.zip([1, 2, 3, 4, 11, 12, 13, 14]) {
            start[at] = word;
        }
        let nonce = nonce.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word));
        for (word, at) in nonce.zip([6, 7]) {
            start[at] = word;
        }
        KeyStream { processor, start }
    }

    /// Encrypts or decrypts data whose first byte is the first of this block.
    pub fn apply_from(&self, block: u64, data: &mut [u8]) {
        dispatch!(self.processor.0, simd => apply(simd, &self.start, block, data));
    }
}

#[inline(always)]
fn apply<S: Simd>(simd: S, start: &[u32; WORDS], block: u64, data: &mut [u8]) {
    simd.vectorize(
        #[inline(always)]
        || {
            for (blocks, number) in data.chunks_mut(BLOCKS * BLOCK_BYTES).zip(0..) {
                let words = words(simd, start, block.wrapping_add(number * BLOCKS as u64));
                for (of, block) in blocks.chunks_mut(BLOCK_BYTES).enumerate() {
                    add(block, &words, of);
                }
            }
        },
    );
}

/// Adds the words of a block, which may be cut off, to its bytes.
#[inline(always)]
fn add(block: &mut [u8], words: &[[u32; BLOCKS]; WORDS], of: usize) {
    let (whole, rest) = block.as_chunks_mut();
    for (bytes, word) in whole.iter_mut().zip(words) {
        *bytes = (u32::from_le_bytes(*bytes) ^ word[of]).to_le_bytes();
    }
    if let Some(word) = words.get(whole.len()) {
        rest.iter_mut().zip(word[of].to_le_bytes()).for_each(|(byte, key)| *byte ^= key);
    }
}

/// Returns the words of the blocks from this one on: each word of all blocks together.
#[inline(always)]
fn words<S: Simd>(simd: S, start: &[u32; WORDS], block: u64) -> [[u32; BLOCKS]; WORDS] {
    let mut low = [0; BLOCKS];
    let mut high = [0; BLOCKS];
    for (of, (low, high)) in low.iter_mut().zip(&mut high).enumerate() {
        let number = block.wrapping_add(of as u64);
        *low = number as u32;
        *high = (number >> 32) as u32;
    }
    let mut before = start.map(|word| u32x16::splat(simd, word));
    before[COUNTER_AT] = u32x16::from_slice(simd, &low);
    before[COUNTER_AT + 1] = u32x16::from_slice(simd, &high);
    let mut all = before;
    for _ in 0..PASSES {
        quarter(&mut all, 0, 4, 8, 12);
        quarter(&mut all, 5, 9, 13, 1);
        quarter(&mut all, 10, 14, 2, 6);
        quarter(&mut all, 15, 3, 7, 11);
        quarter(&mut all, 0, 1, 2, 3);
        quarter(&mut all, 5, 6, 7, 4);
        quarter(&mut all, 10, 11, 8, 9);
        quarter(&mut all, 15, 12, 13, 14);
    }
    let mut words = [[0; BLOCKS]; WORDS];
    for (word, (after, before)) in words.iter_mut().zip(all.into_iter().zip(before)) {
        (after + before).store_slice(word);
    }
    words
}

#[inline(always)]
fn quarter<S: Simd>(all: &mut [u32x16<S>; WORDS], a: usize, b: usize, c: usize, d: usize) {
    step(all, b, a, d, 7);
    step(all, c, b, a, 9);
    step(all, d, c, b, 13);
    step(all, a, d, c, 18);
}

#[inline(always)]
fn step<S: Simd>(all: &mut [u32x16<S>; WORDS], to: usize, one: usize, other: usize, bits: u32) {
    let sum = all[one] + all[other];
    all[to] ^= (sum << bits) | (sum >> (u32::BITS - bits));
}

#[cfg(test)]
mod tests {
    use super::*;
    use salsa20::Salsa20;
    use salsa20::cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};

    #[test]
    fn the_stream_is_that_of_the_crate_salsa20() {
        let mut key = [0; 32];
        getrandom::fill(&mut key).expect("random bytes");
        let nonce = [7, 6, 5, 4, 3, 2, 1, 0];
        let stream = KeyStream::new(Processor::new(), &key, &nonce);
        // The second number is carried into its upper half.
        for first in [1, u64::from(u32::MAX) - 3] {
            for size in (0..200).chain([1023, 1024, 1025, 5000]) {
                let data: Vec<u8> = (0..size).map(|at| at as u8).collect();
                let mut expected = data.clone();
                let mut model = Salsa20::new(&key.into(), &nonce.into());
                model.seek(first * BLOCK_BYTES as u64);
                model.apply_keystream(&mut expected);
                let mut got = data;
                stream.apply_from(first, &mut got);
                assert_eq!(got, expected, "{size} bytes from block {first}");
            }
        }
    }
}
