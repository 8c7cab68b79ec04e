//! Mutates inputs at random: changes bytes, copies and repeats pieces, and inserts words of a
//! dictionary and edge numbers.

use crate::INPUT_BYTES_MAX;

/// A generator of pseudo-random numbers (SplitMix64).
pub struct Random {
    state: u64,
}

impl Random {
    /// Creates a generator. Equal seeds give equal numbers in the same order.
    pub fn new(seed: u64) -> Self {
        Random { state: seed }
    }

    /// Returns the next number.
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a number below `limit`, or 0 if `limit` is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        if limit == 0 { 0 } else { (self.next() % limit as u64) as usize }
    }
}

/// The maximum of changes to one input.
const CHANGES_MAX: usize = 6;

/// How often a piece is repeated at most. It is enough to exceed every limit of depth.
const REPEATS_MAX: usize = 2_000;

/// Numbers at or near the limits of number types.
const EDGES: [&str; 12] = [
    "0",
    "-1",
    "127",
    "255",
    "65536",
    "2147483648",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "1e400",
    "0.1",
];

/// Returns a mutation of `input`. It may contain pieces of `other` and words of `dictionary`.
pub fn mutate(input: &[u8], other: &[u8], dictionary: &[&[u8]], random: &mut Random) -> Vec<u8> {
    let mut out = input.to_vec();
    for _ in 0..=random.below(CHANGES_MAX) {
        change(&mut out, other, dictionary, random);
        out.truncate(INPUT_BYTES_MAX);
    }
    out
}

fn change(out: &mut Vec<u8>, other: &[u8], dictionary: &[&[u8]], random: &mut Random) {
    let at = random.below(out.len() + 1);
    let piece = at..(at + 1 + random.below(24)).min(out.len());
    match random.below(12) {
        0 if at < out.len() => out[at] ^= 1 << random.below(8),
        1 if at < out.len() => out[at] = random.next() as u8,
        2 => out.truncate(at),
        3 => drop(out.drain(piece)),
        4 => out.insert(at, random.next() as u8),
        5 => {
            let copy = out[piece].to_vec();
            let to = random.below(out.len() + 1);
            out.splice(to..to, copy);
        }
        6 => {
            let copy = out[piece].to_vec();
            let times = (1 + random.below(REPEATS_MAX)).min(INPUT_BYTES_MAX / copy.len().max(1));
            out.splice(at..at, copy.repeat(times));
        }
        7 => {
            let from = random.below(other.len() + 1);
            let to = (from + random.below(200)).min(other.len());
            out.splice(at..at, other[from..to].to_vec());
        }
        8 => {
            let end = piece.end;
            out.splice(at..end, EDGES[random.below(EDGES.len())].bytes());
        }
        9 => {
            // Bytes whose continuation bit is set, for protobuf's varints.
            let count = random.below(12);
            out.splice(at..at, std::iter::repeat_n(0xff, count));
        }
        _ if !dictionary.is_empty() => {
            let word = dictionary[random.below(dictionary.len())];
            let end = if random.below(2) == 0 { at } else { piece.end };
            out.splice(at..end, word.iter().copied());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_inputs_of_bounded_size() {
        let inputs = |seed| -> Vec<Vec<u8>> {
            let mut random = Random::new(seed);
            let mut input = b"{\"a\":[1,2]}".to_vec();
            (0..500)
                .map(|_| {
                    input = mutate(&input, b"other", &[b"null", b"{"], &mut random);
                    input.clone()
                })
                .collect()
        };
        let first = inputs(7);
        let second = inputs(7);
        assert_eq!(first, second);
        assert_ne!(first, inputs(8));
        assert!(first.iter().all(|input| input.len() <= INPUT_BYTES_MAX));
    }
}
