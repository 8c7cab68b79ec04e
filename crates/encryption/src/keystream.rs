//! [`KeyStream`]: Salsa20 as secretbox uses it, as many blocks at once as the widest instructions
//! of the processor have lanes. The crate `salsa20` makes one block after the other, in more than
//! twice the time.

use fearless_simd::prelude::*;
use fearless_simd::{Level, dispatch};
use zeroize::{Zeroize, Zeroizing};

const BLOCK_BYTES: usize = 64;
const WORDS: usize = BLOCK_BYTES / 4;
const KEY_WORDS: usize = 8;
const NONCE_WORDS: usize = 2;
/// Where the number of the block is; the word behind it is its upper half.
const COUNTER_AT: usize = 8;
/// Maximum blocks that are made together: AVX-512 has registers of sixteen words.
const LANES_MAX: usize = 16;
/// Each pass has a round of the columns and one of the rows.
const PASSES: usize = 10;
/// "expand 32-byte k", at these places.
const CONSTANTS: [(usize, u32); 4] =
    [(0, 0x6170_7865), (5, 0x3320_646e), (10, 0x7962_2d32), (15, 0x6b20_6574)];
/// The words of the stream that precede the message. They are the key of the authenticator.
const BEGIN_WORDS: usize = WORDS / 2;

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
    /// What precedes the message: the key of the authenticator.
    begin: Zeroizing<[u8; 4 * BEGIN_WORDS]>,
    /// The first blocks, of which what precedes the message is erased.
    first: Blocks,
}

/// Blocks that are made together, one after the other. They are as secret as the message, which is
/// not erased either.
type Blocks = [u32; LANES_MAX * WORDS];

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
        let mut first = [0; _];
        dispatch!(processor.0, simd => simd.vectorize(
            #[inline(always)]
            || fill(simd, &start, 0, &mut first),
        ));
        let mut begin = Zeroizing::new([0; 4 * BEGIN_WORDS]);
        add(&mut *begin, &first);
        first[..BEGIN_WORDS].zeroize();
        KeyStream { processor, start, begin, first }
    }

    /// Returns what precedes the message.
    pub fn begin(&self) -> &[u8; 4 * BEGIN_WORDS] {
        &self.begin
    }

    /// Encrypts or decrypts a whole message.
    pub fn apply(&self, message: &mut [u8]) {
        dispatch!(self.processor.0, simd => simd.vectorize(
            #[inline(always)]
            || self.apply_with(simd, message),
        ));
    }

    #[inline(always)]
    fn apply_with<S: Simd>(&self, simd: S, message: &mut [u8]) {
        let lanes = S::u32s::LEN;
        let of_first = message.len().min(lanes * BLOCK_BYTES - 4 * BEGIN_WORDS);
        let (first, rest) = message.split_at_mut(of_first);
        add(first, &self.first[BEGIN_WORDS..]);
        let mut blocks = [0; _];
        for (bytes, number) in rest.chunks_mut(lanes * BLOCK_BYTES).zip(1..) {
            fill(simd, &self.start, number * lanes as u32, &mut blocks);
            add(bytes, &blocks);
        }
    }
}

/// Adds words of the stream to bytes, of which there may be fewer.
#[inline(always)]
fn add(bytes: &mut [u8], words: &[u32]) {
    let (whole, rest) = bytes.as_chunks_mut();
    for (bytes, word) in whole.iter_mut().zip(words) {
        *bytes = (u32::from_le_bytes(*bytes) ^ word).to_le_bytes();
    }
    if let Some(word) = words.get(whole.len()) {
        rest.iter_mut().zip(word.to_le_bytes()).for_each(|(byte, key)| *byte ^= key);
    }
}

/// Makes as many blocks as there are lanes, from this one on.
#[inline(always)]
fn fill<S: Simd>(simd: S, start: &[u32; WORDS], block: u32, blocks: &mut Blocks) {
    let lanes = S::u32s::LEN;
    let numbers: [u32; LANES_MAX] = std::array::from_fn(|of| block + of as u32);
    let mut before = start.map(|word| S::u32s::splat(simd, word));
    // A message of more blocks than a word can number does not fit into memory.
    before[COUNTER_AT] = S::u32s::from_slice(simd, &numbers[..lanes]);
    let mut all = before;
    for _ in 0..PASSES {
        quarter::<S>(&mut all, 0, 4, 8, 12);
        quarter::<S>(&mut all, 5, 9, 13, 1);
        quarter::<S>(&mut all, 10, 14, 2, 6);
        quarter::<S>(&mut all, 15, 3, 7, 11);
        quarter::<S>(&mut all, 0, 1, 2, 3);
        quarter::<S>(&mut all, 5, 6, 7, 4);
        quarter::<S>(&mut all, 10, 11, 8, 9);
        quarter::<S>(&mut all, 15, 12, 13, 14);
    }
    all.iter_mut().zip(before).for_each(|(after, before)| *after += before);
    let all = by_block::<S>(all);
    for (at, words) in all.iter().enumerate() {
        let to = at % lanes * WORDS + at / lanes * lanes;
        words.store_slice(&mut blocks[to..to + lanes]);
    }
}

/// Turns each word of all blocks into as many words of each block: of every `lanes` vectors the
/// first one is of the first block, and so on.
#[inline(always)]
fn by_block<S: Simd>(mut all: [S::u32s; WORDS]) -> [S::u32s; WORDS] {
    let lanes = S::u32s::LEN;
    // Not a loop, so that the words stay in registers.
    interleave::<S>(&mut all);
    interleave::<S>(&mut all);
    if lanes >= 8 {
        interleave::<S>(&mut all);
    }
    if lanes >= 16 {
        interleave::<S>(&mut all);
    }
    all
}

#[inline(always)]
fn interleave<S: Simd>(all: &mut [S::u32s; WORDS]) {
    let lanes = S::u32s::LEN;
    let before = *all;
    for at in 0..WORDS / 2 {
        let from = at / (lanes / 2) * lanes + at % (lanes / 2);
        let one = before[from];
        let other = before[from + lanes / 2];
        all[2 * at] = one.zip_low(other);
        all[2 * at + 1] = one.zip_high(other);
    }
}

#[inline(always)]
fn quarter<S: Simd>(all: &mut [S::u32s; WORDS], a: usize, b: usize, c: usize, d: usize) {
    step::<S>(all, b, a, d, 7);
    step::<S>(all, c, b, a, 9);
    step::<S>(all, d, c, b, 13);
    step::<S>(all, a, d, c, 18);
}

#[inline(always)]
fn step<S: Simd>(all: &mut [S::u32s; WORDS], to: usize, one: usize, other: usize, bits: u32) {
    let sum = all[one] + all[other];
    all[to] ^= (sum << bits) | (sum >> (u32::BITS - bits));
}

#[cfg(test)]
mod tests {
    use super::*;
    use salsa20::Salsa20;
    use salsa20::cipher::{KeyIvInit, StreamCipher};

    #[test]
    fn the_stream_is_that_of_the_crate_salsa20() {
        let mut key = [0; 32];
        getrandom::fill(&mut key).expect("random bytes");
        let nonce = [7, 6, 5, 4, 3, 2, 1, 0];
        // With the narrowest instructions, too.
        for processor in [Processor::new(), Processor(Level::baseline())] {
            let stream = KeyStream::new(processor, &key, &nonce);
            for size in (0..200).chain([479, 480, 481, 991, 992, 993, 5000]) {
                let data: Vec<u8> = (0..size).map(|at| at as u8).collect();
                let mut model = Salsa20::new(&key.into(), &nonce.into());
                let mut begin = [0; 32];
                model.apply_keystream(&mut begin);
                assert_eq!(*stream.begin(), begin);
                let mut expected = data.clone();
                model.apply_keystream(&mut expected);
                let mut got = data;
                stream.apply(&mut got);
                assert_eq!(got, expected, "{size} bytes");
            }
        }
    }
}
