//! [`ApiChanges`]: the recent changes of the API table. A follower that knows the number of the
//! last change it has seen needs not compare the whole table.

use keelson_meta::Str;
use std::collections::{BTreeSet, VecDeque};

/// Changes that are kept. A follower that is further behind compares the whole table.
const RECENT_CHANGES_MAX: usize = 1024;

/// The number of changes of the API table and the latest of them.
#[derive(Debug, Default)]
pub struct ApiChanges {
    number: u64,
    /// Group and resource of the latest changes, oldest first.
    recent: VecDeque<(Str, Str)>,
}

impl ApiChanges {
    /// Returns the number of the last change.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Records a change of a resource and returns its number.
    pub fn note(&mut self, group: &str, resource: &str) -> u64 {
        if self.recent.len() == RECENT_CHANGES_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back((group.into(), resource.into()));
        self.number += 1;
        self.number
    }

    /// Returns the resources that changed after change `number`; `None`: some of these changes are
    /// no longer kept.
    pub fn since(&self, number: u64) -> Option<BTreeSet<(Str, Str)>> {
        let count = usize::try_from(self.number.saturating_sub(number)).ok()?;
        let first = self.recent.len().checked_sub(count)?;
        Some(self.recent.range(first..).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_known_as_long_as_they_are_recent() {
        let mut changes = ApiChanges::default();
        assert_eq!(changes.since(0).map(|all| all.len()), Some(0));
        for (number, resource) in ["a", "b", "a"].into_iter().zip(1..).map(|(of, at)| (at, of)) {
            assert_eq!(changes.note("g.io", resource), number);
        }
        let of = |resource: &str| (Str::from("g.io"), Str::from(resource));
        assert_eq!(changes.since(0), Some(BTreeSet::from([of("a"), of("b")])));
        assert_eq!(changes.since(2), Some(BTreeSet::from([of("a")])));
        assert_eq!(changes.since(3), Some(BTreeSet::new()));
        for _ in 0..RECENT_CHANGES_MAX {
            changes.note("g.io", "c");
        }
        assert_eq!(changes.since(2), None);
        assert_eq!(changes.since(3), Some(BTreeSet::from([of("c")])));
    }
}
