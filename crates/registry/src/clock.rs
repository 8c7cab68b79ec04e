//! Time and random bytes for everything that writes. Only this module of the crate reads the clock
//! or the random number generator of the system.

use keelson_meta::Str;
use keelson_meta::random_names::uuid;
use keelson_meta::time::Timestamp;
use std::time::{SystemTime, UNIX_EPOCH};

/// A source of time and randomness.
pub trait Clock: Send + Sync + 'static {
    /// Returns the current time.
    fn now(&self) -> Timestamp;
    /// Returns sixteen unpredictable random bytes.
    fn random(&self) -> [u8; 16];
}

/// The clock and the random number generator of the system.
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
        // ChaCha, seeded by the system per thread. A system call for each object would be 1 % of a create.
        rand::random()
    }
}

/// Returns a new uid for an object or a request.
pub fn uid(clock: &dyn Clock) -> Str {
    uuid(clock.random())
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
            std::thread::spawn(|| -> Vec<Str> { (0..IDS).map(|_| uid(&SystemClock)).collect() })
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
