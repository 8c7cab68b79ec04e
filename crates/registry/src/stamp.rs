//! Time and identity, handed to everything that writes. The only place of this crate that asks the
//! machine for either.

use keelson_meta::Str;
use keelson_meta::time::Timestamp;
use std::time::{SystemTime, UNIX_EPOCH};

/// Characters of generated names: no vowels and no look-alikes, so that no words appear (apimachinery
/// `rand.String`).
const SUFFIX_CHARACTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// Characters that generateName adds.
const SUFFIX_LENGTH: usize = 5;

/// Where time and randomness come from.
pub trait Clock: Send + Sync + 'static {
    /// Now.
    fn now(&self) -> Timestamp;
    /// Sixteen random bytes, which nobody can foretell.
    fn random(&self) -> [u8; 16];
}

/// The machine's clock and its random number generator.
#[derive(Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp {
            seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            nanos: since.subsec_nanos(),
        }
    }

    fn random(&self) -> [u8; 16] {
        // ChaCha, of which each thread has one that the system seeded, and seeds again: a call of the system
        // for each object would be 1 % of a create.
        rand::random()
    }
}

/// A new uid of an object.
pub fn uid(clock: &dyn Clock) -> Str {
    uuid(clock.random())
}

/// A new uid of a request.
pub fn audit_id(clock: &dyn Clock) -> Str {
    uuid(clock.random())
}

/// RFC 9562, version 4.
fn uuid(mut b: [u8; 16]) -> Str {
    b[6] = (b[6] & 0x0f) | 0x40;
    b[8] = (b[8] & 0x3f) | 0x80;
    let mut text = [b'-'; 36];
    let mut at = 0;
    for (i, byte) in b.iter().enumerate() {
        at += usize::from(matches!(i, 4 | 6 | 8 | 10));
        for digit in [byte >> 4, byte & 15] {
            text[at] = b"0123456789abcdef"[usize::from(digit)];
            at += 1;
        }
    }
    Str::new(str::from_utf8(&text).unwrap_or_default())
}

/// A name made of `base` and five random characters; `base` is cut so that the name fits 63 bytes.
pub fn generated_name(clock: &dyn Clock, base: &str) -> Str {
    const BASE_BYTES_MAX: usize = 63 - SUFFIX_LENGTH;
    let mut end = base.len().min(BASE_BYTES_MAX);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    let suffix = clock.random();
    let suffix = suffix[..SUFFIX_LENGTH]
        .iter()
        .map(|byte| char::from(SUFFIX_CHARACTERS[usize::from(*byte) % SUFFIX_CHARACTERS.len()]));
    base[..end].chars().chain(suffix).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ids_are_of_version_4_and_differ_on_all_threads() {
        const THREADS: usize = 4;
        const IDS: usize = 2_000;
        let ids = |_| {
            std::thread::spawn(|| -> Vec<Str> {
                (0..IDS / 2).flat_map(|_| [uid(&SystemClock), audit_id(&SystemClock)]).collect()
            })
        };
        let threads: Vec<_> = (0..THREADS).map(ids).collect();
        let all: Vec<Str> =
            threads.into_iter().flat_map(|thread| thread.join().expect("ids")).collect();
        for id in &all {
            let groups: Vec<usize> = id.split('-').map(str::len).collect();
            assert_eq!(groups, [8, 4, 4, 4, 12], "{id}");
            assert!(id.bytes().all(|b| b"0123456789abcdef-".contains(&b)), "{id}");
            assert_eq!(id.as_bytes()[14], b'4', "{id}");
            assert!(b"89ab".contains(&id.as_bytes()[19]), "{id}");
        }
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), THREADS * IDS);
    }
}
