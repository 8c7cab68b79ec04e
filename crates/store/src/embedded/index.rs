//! The multi-version index: the record id of each version of each key. No values, no IO.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::disk::{Head, RecordId};
use crate::Revision;

/// One version of a key. Packed, because every key has at least one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Version {
    revision: Revision,
    pub(super) created: Revision,
    index: u32,
    pub(super) is_delete: bool,
}

/// The versions of every key that a read at the floor or later can need.
///
/// Most keys have one version and no history: they cost a boxed key and a [`Version`]. Older
/// versions are kept in a separate map, so that a prune visits only keys with history.
#[derive(Default)]
pub(super) struct Index {
    latest: BTreeMap<Box<[u8]>, Version>,
    /// Invariant: has each key with older versions (oldest first), and each key whose latest
    /// version is a delete.
    history: BTreeMap<Box<[u8]>, Vec<Version>>,
}

/// The position of a prune between steps: all keys up to this one are done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PruneCursor(Box<[u8]>);

impl PruneCursor {
    pub(super) fn start() -> Self {
        Self(Box::default())
    }
}

impl Version {
    pub(super) fn of(head: &Head) -> Self {
        let RecordId { revision, index } = head.id;
        Self { revision, created: head.created, index, is_delete: head.is_delete }
    }

    pub(super) fn id(&self) -> RecordId {
        RecordId { revision: self.revision, index: self.index }
    }

    pub(super) fn modified(&self) -> Revision {
        self.revision
    }
}

impl Index {
    /// Adds a version, which must be newer than all others of its key.
    pub(super) fn add(&mut self, key: &[u8], version: Version) {
        // A created key is usually new: then one search is enough.
        let is_created = version.created == version.revision;
        let latest = if is_created { None } else { self.latest.get_mut(key) };
        let older = match latest {
            Some(latest) => Some(std::mem::replace(latest, version)),
            None => self.latest.insert(key.into(), version),
        };
        let Some(older) = older else {
            if version.is_delete {
                self.history.insert(key.into(), Vec::new());
            }
            return;
        };
        let last = older.id();
        let id = version.id();
        assert!(last < id, "a version went back: {id:?} after {last:?}");
        match self.history.get_mut(key) {
            Some(history) => history.push(older),
            None => {
                self.history.insert(key.into(), vec![older]);
            }
        }
    }

    /// Returns the version of a key at a revision, or `None` if the key is absent then.
    pub(super) fn live(&self, key: &[u8], at: Revision) -> Option<Version> {
        let latest = self.latest.get(key)?;
        self.version(key, latest, at)
    }

    /// Iterates over the live keys of a range in order; an empty `end` means no end.
    pub(super) fn range<'a>(
        &'a self,
        start: &'a [u8],
        end: &'a [u8],
        at: Revision,
    ) -> impl Iterator<Item = (&'a [u8], Version)> {
        let end = if end.is_empty() { Bound::Unbounded } else { Bound::Excluded(end.max(start)) };
        let keys = self.latest.range::<[u8], _>((Bound::Included(start), end));
        keys.filter_map(move |(key, latest)| Some((&key[..], self.version(key, latest, at)?)))
    }

    /// Removes the versions that no read at `through` or later can need, for up to `keys_max` keys
    /// after the cursor. Returns where to continue, or `None` at the end.
    pub(super) fn prune(
        &mut self,
        cursor: &PruneCursor,
        keys_max: usize,
        through: Revision,
        obsolete: &mut Vec<RecordId>,
    ) -> Option<PruneCursor> {
        let mut done = Vec::new();
        let mut last = None;
        let from = Bound::Excluded(&cursor.0);
        let keys = self.history.range_mut::<Box<[u8]>, _>((from, Bound::Unbounded));
        for (place, (key, history)) in keys.take(keys_max).enumerate() {
            let latest = self.latest.get(key).copied();
            prune_history(history, latest, through, obsolete);
            if history.is_empty() && latest.is_none_or(|latest| !latest.is_delete) {
                done.push(key.clone());
            } else if history.is_empty()
                && let Some(latest) = latest.filter(|latest| latest.revision <= through)
            {
                // No later read can tell this delete from an absent key.
                obsolete.push(latest.id());
                self.latest.remove(key);
                done.push(key.clone());
            }
            if place + 1 == keys_max {
                last = Some(PruneCursor(key.clone()));
            }
        }
        for key in done {
            self.history.remove(&key);
        }
        last
    }

    fn version(&self, key: &[u8], latest: &Version, at: Revision) -> Option<Version> {
        let version = if latest.revision <= at {
            *latest
        } else {
            let history = self.history.get(key)?;
            *history.iter().rev().find(|version| version.revision <= at)?
        };
        (!version.is_delete).then_some(version)
    }
}

/// Removes the versions at or below `through` except the newest; also the newest if it is a delete.
fn prune_history(
    history: &mut Vec<Version>,
    latest: Option<Version>,
    through: Revision,
    obsolete: &mut Vec<RecordId>,
) {
    let old = history.iter().take_while(|version| version.revision <= through).count();
    let is_latest_visible = latest.is_none_or(|latest| latest.revision <= through);
    let mut obsolete_count = if is_latest_visible { old } else { old.saturating_sub(1) };
    if history.get(obsolete_count).is_some_and(|version| version.is_delete && obsolete_count < old)
    {
        obsolete_count += 1;
    }
    obsolete.extend(history.drain(..obsolete_count).map(|version| version.id()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(versions: &[(&str, u64, bool)]) -> Index {
        let mut index = Index::default();
        for &(key, revision, is_delete) in versions {
            let revision = Revision(revision);
            let version = Version { revision, created: revision, index: 0, is_delete };
            index.add(key.as_bytes(), version);
        }
        index
    }

    fn prune(index: &mut Index, keys_max: usize, through: u64) -> Vec<u64> {
        let mut obsolete = Vec::new();
        let mut cursor = Some(PruneCursor::start());
        while let Some(from) = cursor {
            cursor = index.prune(&from, keys_max, Revision(through), &mut obsolete);
        }
        let mut obsolete: Vec<_> = obsolete.into_iter().map(|id| id.revision.0).collect();
        obsolete.sort_unstable();
        obsolete
    }

    #[test]
    fn a_prune_removes_exactly_the_obsolete_versions() {
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
        for (through, obsolete) in checks {
            for keys_max in [1, 2, 100] {
                let mut index = index(&written);
                assert_eq!(prune(&mut index, keys_max, through), obsolete, "through {through}");
                assert_eq!(prune(&mut index, keys_max, through), [0; 0], "again");
            }
        }
    }

    #[test]
    fn reads_see_the_version_of_their_revision() {
        let index = index(&[("a", 1, false), ("a", 3, true), ("a", 5, false)]);
        let found = |at| index.live(b"a", Revision(at)).map(|version| version.revision.0);
        assert_eq!(
            [0, 1, 2, 3, 4, 5, 6].map(found),
            [None, Some(1), Some(1), None, None, Some(5), Some(5)]
        );
    }
}
