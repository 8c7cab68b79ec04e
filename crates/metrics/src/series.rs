//! [`SeriesMap`]: label values to metrics.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// The metrics of one combination of label values.
#[derive(Debug)]
pub struct Series<M> {
    values: Box<[Box<str>]>,
    /// The metrics.
    pub metrics: M,
}

impl<M> Series<M> {
    /// Returns the label values.
    pub fn values(&self) -> Vec<&str> {
        self.values.iter().map(|value| &**value).collect()
    }

    fn has_values(&self, values: &[&str]) -> bool {
        self.values.iter().map(|value| &**value).eq(values.iter().copied())
    }
}

/// All series so far. The lookup of an existing series takes a read lock and does not allocate.
#[derive(Debug)]
pub struct SeriesMap<M> {
    table: RwLock<SeriesTable<M>>,
    /// The maximum of series.
    series_max: usize,
}

#[derive(Debug)]
struct SeriesTable<M> {
    /// Hash of the label values to the series. A list has more than one series only if hashes
    /// collide.
    by_hash: HashMap<u64, Vec<Arc<Series<M>>>, BuildHasherDefault<Unhashed>>,
    len: usize,
}

impl<M: Default> SeriesMap<M> {
    /// Creates a map without series, for at most `series_max` of them.
    pub fn new(series_max: usize) -> SeriesMap<M> {
        let table = SeriesTable { by_hash: HashMap::default(), len: 0 };
        SeriesMap { table: RwLock::new(table), series_max }
    }

    /// Returns the series of these label values, and creates it if it is missing. `None`: the map
    /// is full.
    pub fn get(&self, values: &[&str]) -> Option<Arc<Series<M>>> {
        let hash = hash(values);
        if let Some(series) = self.read().find(hash, values) {
            return Some(series);
        }
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(series) = table.find(hash, values) {
            return Some(series);
        }
        if table.len >= self.series_max {
            return None;
        }
        let values = values.iter().map(|value| Box::from(*value)).collect();
        let series = Arc::new(Series { values, metrics: M::default() });
        table.len += 1;
        table.by_hash.entry(hash).or_default().push(series.clone());
        Some(series)
    }

    /// Returns all series, sorted by their label values.
    pub fn all(&self) -> Vec<Arc<Series<M>>> {
        let mut all: Vec<_> = self.read().by_hash.values().flatten().cloned().collect();
        all.sort_by(|one, other| one.values.cmp(&other.values));
        all
    }

    fn read(&self) -> RwLockReadGuard<'_, SeriesTable<M>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M> SeriesTable<M> {
    fn find(&self, hash: u64, values: &[&str]) -> Option<Arc<Series<M>>> {
        self.by_hash.get(&hash)?.iter().find(|series| series.has_values(values)).cloned()
    }
}

/// Hashes label values, eight bytes at a time. It does not resist attacks by collisions: label
/// values come from tables and configurations, not from clients.
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

/// A hasher for keys that are hashes.
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
        assert!(map.get(&["a"]).is_some(), "an existing series is found in a full map");
        assert_eq!(map.all().len(), 2);
    }
}
