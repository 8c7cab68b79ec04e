//! Where each version of each key stands: the multi-version map, without values and without IO.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::disk::{Head, RecordId};
use crate::Revision;

/// One version of a key. Packed, because there is one for every key there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Version {
    revision: Revision,
    pub(super) created: Revision,
    index: u32,
    pub(super) is_delete: bool,
}

/// The versions of every key that a read at the floor or later can need.
///
/// Most keys have one version and no history: they cost a boxed key and a [`Version`]. What may
/// be forgotten one day stands apart, so that a prune walks the history and not all keys.
#[derive(Default)]
pub(super) struct Index {
    latest: BTreeMap<Box<[u8]>, Version>,
    /// Invariant: holds each key that has versions below its latest (oldest first here), and each
    /// key whose latest is a delete.
    history: BTreeMap<Box<[u8]>, Vec<Version>>,
}

/// Where a prune stands, between steps: everything up to this key is done.
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
    /// Adds a version above all others of its key.
    pub(super) fn add(&mut self, key: &[u8], version: Version) {
        // The key of an object that was just created is most often new: one search then.
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
        let (last, id) = (older.id(), version.id());
        assert!(last < id, "a version went back: {id:?} after {last:?}");
        match self.history.get_mut(key) {
            Some(history) => history.push(older),
            None => {
                self.history.insert(key.into(), vec![older]);
            }
        }
    }

    /// The key's version at a revision, unless it is absent then.
    pub(super) fn live(&self, key: &[u8], at: Revision) -> Option<Version> {
        let latest = self.latest.get(key)?;
        self.version(key, latest, at)
    }

    /// Live keys in order; `end` empty means no end.
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

    /// Takes out what no read at `through` or later can need, for up to `keys_max` keys from the
    /// cursor on. Answers with where to go on; `None` at the end.
    pub(super) fn prune(
        &mut self,
        cursor: &PruneCursor,
        keys_max: usize,
        through: Revision,
        gone: &mut Vec<RecordId>,
    ) -> Option<PruneCursor> {
        let mut done = Vec::new();
        let mut last = None;
        let from = Bound::Excluded(&cursor.0);
        let keys = self.history.range_mut::<Box<[u8]>, _>((from, Bound::Unbounded));
        for (place, (key, history)) in keys.take(keys_max).enumerate() {
            let latest = self.latest.get(key).copied();
            prune_history(history, latest, through, gone);
            if history.is_empty() && latest.is_none_or(|latest| !latest.is_delete) {
                done.push(key.clone());
            } else if history.is_empty()
                && let Some(latest) = latest.filter(|latest| latest.revision <= through)
            {
                // A delete that no later read can tell from nothing.
                gone.push(latest.id());
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

/// Of the versions at or below `through` only the newest is still needed, and not when it is a
/// delete.
fn prune_history(
    history: &mut Vec<Version>,
    latest: Option<Version>,
    through: Revision,
    gone: &mut Vec<RecordId>,
) {
    let old = history.iter().take_while(|version| version.revision <= through).count();
    let is_superseded = latest.is_none_or(|latest| latest.revision <= through);
    let mut needless = if is_superseded { old } else { old.saturating_sub(1) };
    if history.get(needless).is_some_and(|version| version.is_delete && needless < old) {
        needless += 1;
    }
    gone.extend(history.drain(..needless).map(|version| version.id()));
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
        let found = |at| index.live(b"a", Revision(at)).map(|version| version.revision.0);
        assert_eq!(
            [0, 1, 2, 3, 4, 5, 6].map(found),
            [None, Some(1), Some(1), None, None, Some(5), Some(5)]
        );
    }
}
