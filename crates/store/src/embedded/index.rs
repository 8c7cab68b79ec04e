//! Where each version of each key stands: the multi-version map, without values and without IO.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

use super::disk::{Head, RecordId};
use crate::Revision;

/// One version of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Version {
    pub(super) id: RecordId,
    pub(super) created: Revision,
    pub(super) is_delete: bool,
}

/// The versions of every key that a read at the floor or later can need.
#[derive(Default)]
pub(super) struct Index {
    keys: BTreeMap<Bytes, Versions>,
}

/// Invariant: `older` then `latest` grow in revision. Most keys have nothing in `older`.
struct Versions {
    latest: Version,
    older: Vec<Version>,
}

/// Where a prune stands, between steps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PruneCursor(Bytes);

impl PruneCursor {
    pub(super) fn start() -> Self {
        Self(Bytes::new())
    }
}

impl Version {
    pub(super) fn of(head: &Head) -> Self {
        Self { id: head.id, created: head.created, is_delete: head.is_delete }
    }
}

impl Index {
    /// Adds a version above all others of its key. Answers with the index's own copy of the key,
    /// which pins no request buffer.
    pub(super) fn add(&mut self, key: &Bytes, version: Version) -> Bytes {
        let place = self.keys.range_mut::<Bytes, _>(key..=key).next();
        if let Some((key, versions)) = place {
            let last = versions.latest.id;
            assert!(last < version.id, "a version went back: {:?} after {last:?}", version.id);
            versions.older.push(versions.latest);
            versions.latest = version;
            return key.clone();
        }
        let key = Bytes::copy_from_slice(key);
        self.keys.insert(key.clone(), Versions { latest: version, older: Vec::new() });
        key
    }

    /// The key's version at a revision, unless it is absent then.
    pub(super) fn live(&self, key: &[u8], at: Revision) -> Option<Version> {
        self.keys.get(key).and_then(|versions| versions.live(at))
    }

    /// The same, with the index's own copy of the key.
    pub(super) fn live_entry(&self, key: &[u8], at: Revision) -> Option<(&Bytes, Version)> {
        let (key, versions) = self.keys.get_key_value(key)?;
        Some((key, versions.live(at)?))
    }

    /// Live keys in order; `end` empty means no end.
    pub(super) fn range<'a>(
        &'a self,
        start: &'a [u8],
        end: &'a [u8],
        at: Revision,
    ) -> impl Iterator<Item = (&'a Bytes, Version)> {
        let is_empty = !end.is_empty() && end <= start;
        let last = if end.is_empty() { Bound::Unbounded } else { Bound::Excluded(end) };
        let first = if is_empty { Bound::Unbounded } else { Bound::Included(start) };
        self.keys
            .range::<[u8], _>((first, if is_empty { Bound::Unbounded } else { last }))
            .take(if is_empty { 0 } else { usize::MAX })
            .filter_map(move |(key, versions)| Some((key, versions.live(at)?)))
    }

    /// Takes out what no read at `through` or later can need, for up to `keys_max` keys from the
    /// cursor on. Answers with where to go on; `None` at the end.
    pub(super) fn prune(
        &mut self,
        cursor: &PruneCursor,
        keys_max: usize,
        through: Revision,
        gone: &mut Vec<RecordId>,
    ) -> Option<PruneCursor> {
        let mut dead = Vec::new();
        let mut last = None;
        let mut keys = 0;
        let from = Bound::Excluded(&cursor.0);
        for (key, versions) in self.keys.range_mut::<Bytes, _>((from, Bound::Unbounded)) {
            if keys == keys_max {
                break;
            }
            keys += 1;
            versions.prune(through, gone);
            if versions.is_dead(through) {
                gone.push(versions.latest.id);
                dead.push(key.clone());
            }
            if keys == keys_max {
                last = Some(PruneCursor(key.clone()));
            }
        }
        for key in dead {
            self.keys.remove(&key);
        }
        last
    }
}

impl Versions {
    fn live(&self, at: Revision) -> Option<Version> {
        let is_latest = self.latest.id.revision <= at;
        let version = if is_latest {
            self.latest
        } else {
            *self.older.iter().rev().find(|version| version.id.revision <= at)?
        };
        (!version.is_delete).then_some(version)
    }

    /// Of the versions at or below `through`, only the newest is still needed.
    fn prune(&mut self, through: Revision, gone: &mut Vec<RecordId>) {
        let is_old = |version: &&Version| version.id.revision <= through;
        let old = self.older.iter().take_while(is_old).count();
        let superseded =
            if self.latest.id.revision <= through { old } else { old.saturating_sub(1) };
        gone.extend(self.older.drain(..superseded).map(|version| version.id));
        // A delete that no later read can tell from nothing.
        let is_dead = |version: &Version| version.is_delete && version.id.revision <= through;
        if self.older.first().is_some_and(is_dead) {
            gone.push(self.older.remove(0).id);
        }
        if self.older.is_empty() {
            self.older = Vec::new();
        }
    }

    fn is_dead(&self, through: Revision) -> bool {
        self.older.is_empty() && self.latest.is_delete && self.latest.id.revision <= through
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(versions: &[(&str, u64, bool)]) -> Index {
        let mut index = Index::default();
        for &(key, revision, is_delete) in versions {
            let id = RecordId::first(Revision(revision));
            let version = Version { id, created: Revision(revision), is_delete };
            index.add(&Bytes::copy_from_slice(key.as_bytes()), version);
        }
        index
    }

    fn prune(index: &mut Index, keys_max: usize, through: u64) -> Vec<u64> {
        let mut gone = Vec::new();
        let mut cursor = Some(PruneCursor::start());
        while let Some(from) = cursor {
            cursor = index.prune(&from, keys_max, Revision(through), &mut gone);
        }
        let mut gone: Vec<_> = gone.into_iter().map(|id| id.revision.0).collect();
        gone.sort_unstable();
        gone
    }

    #[test]
    fn a_prune_takes_exactly_what_is_no_longer_needed() {
        let written = [
            ("a", 1, false),
            ("b", 2, false),
            ("a", 3, false),
            ("b", 4, true),
            ("a", 5, false),
            ("c", 6, true),
            ("b", 7, false),
        ];
        let checks: [(u64, &[u64]); 8] = [
            (0, &[]),
            (2, &[]),
            (3, &[1]),
            (4, &[1, 2, 4]),
            (5, &[1, 2, 3, 4]),
            (6, &[1, 2, 3, 4, 6]),
            (7, &[1, 2, 3, 4, 6]),
            (9, &[1, 2, 3, 4, 6]),
        ];
        for (through, gone) in checks {
            for keys_max in [1, 2, 100] {
                let mut index = index(&written);
                assert_eq!(prune(&mut index, keys_max, through), gone, "through {through}");
                assert_eq!(prune(&mut index, keys_max, through), [0; 0], "again");
            }
        }
    }

    #[test]
    fn reads_see_the_version_of_their_revision() {
        let index = index(&[("a", 1, false), ("a", 3, true), ("a", 5, false)]);
        let found = |at| index.live(b"a", Revision(at)).map(|version| version.id.revision.0);
        assert_eq!(
            [0, 1, 2, 3, 4, 5, 6].map(found),
            [None, Some(1), Some(1), None, None, Some(5), Some(5)]
        );
    }
}
