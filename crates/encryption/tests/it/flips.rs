//! Changed values.

use bytes::Bytes;

/// Changes of each value.
const FLIPS: usize = 10_000;

/// Returns a value with every single bit changed, then with pairs of bits changed.
pub fn flipped(stored: &Bytes) -> impl Iterator<Item = Bytes> {
    let bits = stored.len() * 8;
    let changes = (0..FLIPS).map(move |n| {
        let mut changed = stored.to_vec();
        changed[n % bits / 8] ^= 1 << (n % 8);
        if n >= bits {
            let other = n * 7919 % bits;
            changed[other / 8] ^= 1 << (other % 8);
        }
        Bytes::from(changed)
    });
    changes.filter(move |changed| changed != stored)
}
