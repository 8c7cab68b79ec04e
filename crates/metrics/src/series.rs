//! [`SeriesMap`]: metrics by the values of their labels.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// Metrics of one combination of label values.
#[derive(Debug)]
pub struct Series<M> {
    values: Box<[Box<str>]>,
    /// The metrics.
    pub metrics: M,
}

impl<M> Series<M> {
    /// The values of the labels.
    pub fn values(&self) -> Vec<&str> {
        self.values.iter().map(|value| &**value).collect()
    }

    fn is_of(&self, values: &[&str]) -> bool {
        self.values.iter().map(|value| &**value).eq(values.iter().copied())
    }
}

/// The series that were counted so far. A look-up takes a lock that many can hold, and allocates nothing
/// once a series is there.
#[derive(Debug)]
pub struct SeriesMap<M> {
    /// By the hash of the values; each list is one long, or hashes collide.
    known: RwLock<Known<M>>,
    /// The largest number of series.
    series_max: usize,
}

#[derive(Debug)]
struct Known<M> {
    by_hash: HashMap<u64, Vec<Arc<Series<M>>>, BuildHasherDefault<Unhashed>>,
    len: usize,
}

impl<M: Default> SeriesMap<M> {
    /// Has no series yet, and never more than `series_max`.
    pub fn new(series_max: usize) -> SeriesMap<M> {
        let known = Known { by_hash: HashMap::default(), len: 0 };
        SeriesMap { known: RwLock::new(known), series_max }
    }

    /// The series of these label values, made when there is none. `None`: there are as many as may be.
    pub fn get(&self, values: &[&str]) -> Option<Arc<Series<M>>> {
        let hash = hash(values);
        if let Some(series) = self.read().find(hash, values) {
            return Some(series);
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(series) = known.find(hash, values) {
            return Some(series);
        }
        if known.len >= self.series_max {
            return None;
        }
        let values = values.iter().map(|value| Box::from(*value)).collect();
        let series = Arc::new(Series { values, metrics: M::default() });
        known.len += 1;
        known.by_hash.entry(hash).or_default().push(series.clone());
        Some(series)
    }

    /// All series, by their values.
    pub fn all(&self) -> Vec<Arc<Series<M>>> {
        let mut all: Vec<_> = self.read().by_hash.values().flatten().cloned().collect();
        all.sort_by(|one, other| one.values.cmp(&other.values));
        all
    }

    fn read(&self) -> RwLockReadGuard<'_, Known<M>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M> Known<M> {
    fn find(&self, hash: u64, values: &[&str]) -> Option<Arc<Series<M>>> {
        self.by_hash.get(&hash)?.iter().find(|series| series.is_of(values)).cloned()
    }
}

/// A hash that takes eight bytes at a time: label values come from tables and configurations, not from
/// clients who look for collisions.
fn hash(values: &[&str]) -> u64 {
    let mut hash = 0_u64;
    let mut mix =
        |word: u64| hash = (hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    for value in values {
        let mut chunks = value.as_bytes().chunks_exact(8);
        for chunk in &mut chunks {
            mix(chunk.try_into().map(u64::from_le_bytes).unwrap_or(0));
        }
        let rest = chunks.remainder().iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        mix(rest << 8 | value.len() as u64);
    }
    hash ^ (hash >> 32)
}

/// Keys that are hashes already.
#[derive(Debug, Default)]
struct Unhashed(u64);

impl Hasher for Unhashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("the keys are hashes");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Counter;

    #[test]
    fn equal_values_are_one_series() {
        let map = SeriesMap::<Counter>::new(10);
        let count = |values: &[&str]| {
            if let Some(series) = map.get(values) {
                series.metrics.increment();
            }
        };
        count(&["configmaps", "GET"]);
        count(&["configmaps", "GET"]);
        count(&["configmapsGET", ""]);
        count(&["", "configmapsGET"]);
        let all = map.all();
        let shown: Vec<_> = all.iter().map(|one| (one.values(), one.metrics.get())).collect();
        let want: [(Vec<&str>, u64); 3] = [
            (vec!["", "configmapsGET"], 1),
            (vec!["configmaps", "GET"], 2),
            (vec!["configmapsGET", ""], 1),
        ];
        assert_eq!(shown, want);
    }

    #[test]
    fn the_number_of_series_is_limited() {
        let map = SeriesMap::<Counter>::new(2);
        assert!(map.get(&["a"]).is_some());
        assert!(map.get(&["b"]).is_some());
        assert!(map.get(&["c"]).is_none());
        assert!(map.get(&["a"]).is_some(), "those that are there stay");
        assert_eq!(map.all().len(), 2);
    }
}
