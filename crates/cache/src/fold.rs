//! Folds entries onto others of their resource ([`Entry::fold_onto`]).
//!
//! The pods of a ReplicaSet, or the events of one reason, differ by names, times and numbers: a
//! hundred bytes of a thousand. An entry is folded when its change is no longer fresh, so an object
//! that is written all the time never is. What was loaded at the start is folded afterwards.

use keelson_records::Entry;

/// Entries that may be bases: the last ones that were not like any base before them.
const BASES_MAX: usize = 8;
/// After this many entries in a row that were like no base, only each of [`TRIED_EACH`] is tried.
const MISSES_MAX: u32 = 16;
const TRIED_EACH: u32 = 64;

/// The bases of a resource.
#[derive(Default)]
pub(crate) struct Bases {
    /// The one that was used last is the first.
    recent: Vec<Entry>,
    /// Entries since one was like a base.
    misses: u32,
}

impl Bases {
    /// Returns `entry` folded onto the base of `near`, another entry of the resource, or onto a
    /// recent base; `None` when it is like none. Then it may be a base itself.
    pub fn fold(&mut self, entry: &Entry, near: Option<&Entry>) -> Option<Entry> {
        let near = near.filter(|near| near.is_folded()).map(Entry::base);
        if let Some(folded) = near.and_then(|base| entry.fold_onto(base)) {
            self.misses = 0;
            return Some(folded);
        }
        if self.misses >= MISSES_MAX && !self.misses.is_multiple_of(TRIED_EACH) {
            self.misses = self.misses.wrapping_add(1);
            return None;
        }
        let mut bases = self.recent.iter().enumerate();
        let found = bases.find_map(|(at, base)| Some((at, entry.fold_onto(base)?)));
        match found {
            Some((at, folded)) => {
                self.misses = 0;
                self.recent[..=at].rotate_right(1);
                Some(folded)
            }
            None => {
                self.misses = self.misses.wrapping_add(1);
                if entry.may_be_base() {
                    self.recent.truncate(BASES_MAX - 1);
                    self.recent.insert(0, entry.clone());
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::{FOLDED_AT_ONCE, Resource};
    use crate::{Change, Term};
    use bytes::Bytes;
    use keelson_records::testing::{PREFIX, stored_with};
    use keelson_store::{Event, KeyValue, Revision};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn resource() -> Arc<Resource> {
        Arc::new(Resource::new(Bytes::from_static(PREFIX.as_bytes()), 0, Revision(0)))
    }

    fn read(kv: &KeyValue) -> Entry {
        Entry::from_store(PREFIX.len(), kv).expect("a record")
    }

    /// Returns an object of 1 kB that differs from others only by its key and its last member.
    fn alike(key: &str, revision: u64) -> KeyValue {
        let filler: String = (0..40).map(|n| format!(r#","m{n}":"{:08x}""#, n * 7919)).collect();
        stored_with(key, &[("app", "web")], revision, &format!(r#"{filler},"is":"{revision}""#))
    }

    fn put(resource: &Resource, KeyValue { key, value, created, modified }: KeyValue) {
        let event = Event { key, value: Some(value), revision: modified, created };
        resource.apply(&event).expect("a record");
    }

    fn all_changes(resource: &Arc<Resource>) -> Vec<Arc<Change>> {
        let mut cursor = resource.cursor(Revision(0)).expect("it reaches back");
        let mut changes = vec![];
        let mut read = None;
        while read.replace(changes.len()) != Some(changes.len()) {
            cursor.take(&mut changes).expect("nothing was forgotten");
        }
        changes
    }

    /// Returns keys and objects, read in each way that there is.
    fn shown(resource: &Arc<Resource>, app: &Term) -> Vec<(String, Bytes)> {
        let snapshot = resource.snapshot(Revision(0));
        let of = |entry: &Entry| (entry.key().to_owned(), entry.json());
        let all: Vec<_> = snapshot.range("", "").map(of).collect();
        let selected = snapshot.select(app, "web", "", "").expect("an index");
        assert!(selected.map(of).eq(all.iter().cloned()));
        let changes = all_changes(resource);
        let last: BTreeMap<_, _> = changes.iter().map(|change| of(&change.entry)).collect();
        assert!(last.into_iter().eq(all.iter().cloned()), "the history has the same");
        all
    }

    #[test]
    fn objects_that_are_alike_are_folded_and_read_the_same() {
        const COUNT: u64 = 1_000;
        let resource = resource();
        let app = Term::Label("app".into());
        resource.make_index(app.clone());
        let written = |revision: u64| alike(&format!("ns/{:04}", revision * 37 % COUNT), revision);
        for revision in 1..=COUNT {
            put(&resource, written(revision));
            resource.pack();
        }
        let expected: BTreeMap<_, _> = (1..=COUNT)
            .map(|revision| read(&written(revision)))
            .map(|entry| (entry.key().to_owned(), entry.json()))
            .collect();
        assert!(shown(&resource, &app).into_iter().eq(expected));
        let snapshot = resource.snapshot(Revision(0));
        let folded = snapshot.range("", "").filter(|entry| entry.is_folded()).count();
        assert!((650..COUNT as usize).contains(&folded), "{folded}");
        let bytes: usize = snapshot.range("", "").map(Entry::unfolded_size).sum();
        assert_eq!(resource.counts().bytes, bytes);
        // Folded objects can be replaced and deleted.
        put(&resource, alike("ns/0037", COUNT + 1));
        let key = [PREFIX, "ns/0074"].concat().into();
        let gone = Event { key, value: None, revision: Revision(COUNT + 2), created: Revision(2) };
        resource.apply(&gone).expect("no record to be read");
        assert_eq!(resource.get("ns/0037").map(|entry| entry.modified().0), Some(COUNT + 1));
        assert_eq!((resource.get("ns/0074").is_none(), resource.len()), (true, COUNT as usize - 1));
        let before = resource.snapshot_at(Revision(COUNT)).expect("the history reaches back");
        let first = before.get("ns/0037").expect("it was there");
        assert_eq!(first.json(), read(&written(1)).json());
        assert!(before.get("ns/0074").is_some());
    }

    #[test]
    fn what_is_left_alone_is_folded_even_if_it_is_little() {
        let resource = resource();
        let app = Term::Label("app".into());
        resource.make_index(app.clone());
        (1..=20).for_each(|revision| put(&resource, alike(&format!("ns/{revision}"), revision)));
        let folded = || {
            let snapshot = resource.snapshot(Revision(0));
            snapshot.range("", "").filter(|entry| entry.is_folded()).count()
        };
        resource.pack();
        resource.settle();
        assert_eq!(folded(), 0, "they have just changed");
        put(&resource, alike("ns/21", 21));
        resource.settle();
        assert_eq!(folded(), 19, "the first is the base, the last has just changed");
        resource.settle();
        assert_eq!(folded(), 20);
        let objects = shown(&resource, &app);
        assert!(objects.iter().all(|(key, json)| {
            let number = key.trim_start_matches("ns/").parse().unwrap_or(0);
            read(&alike(key, number)).json() == *json
        }));
    }

    #[test]
    fn what_was_loaded_is_folded_afterwards() {
        let resource = resource();
        for number in 1..=500 {
            resource.load(&alike(&format!("ns/{number:04}"), number)).expect("a record");
        }
        let before: Vec<_> =
            resource.snapshot(Revision(0)).range("", "").map(Entry::json).collect();
        let mut next = Some(String::new());
        let mut pieces = 0;
        while let Some(start) = next {
            next = resource.fold_from(&start);
            pieces += 1;
        }
        assert_eq!(pieces, 500_usize.div_ceil(FOLDED_AT_ONCE));
        let snapshot = resource.snapshot(Revision(0));
        assert_eq!(snapshot.range("", "").filter(|entry| !entry.is_folded()).count(), 1);
        assert!(snapshot.range("", "").map(Entry::json).eq(before));
    }

    #[test]
    fn no_other_copy_of_a_folded_object_is_left() {
        let resource = resource();
        // As at a start: the changes of most are packed before they are folded.
        for revision in 1..=400 {
            put(&resource, alike(&format!("ns/{revision}"), revision));
            resource.pack_only();
        }
        let mut next = Some(String::new());
        while let Some(start) = next {
            next = resource.fold_from(&start);
        }
        (0..2).for_each(|_| resource.settle());
        let changes = all_changes(&resource);
        assert_eq!(changes.len(), 400);
        for change in changes {
            let current = resource.get(change.entry.key()).expect("it is there");
            assert!(change.entry.ptr_eq(&current), "the history has another copy: {current:?}");
        }
    }

    #[test]
    fn objects_that_are_not_alike_are_seldom_compared() {
        let mut random = keelson_records::testing::Random(5);
        let mut bases = Bases::default();
        let mut tried = 0;
        for revision in 1..=1_000 {
            let text: String = (0..200).map(|_| format!("{:05x}", random.below(1 << 20))).collect();
            let kv = stored_with("ns/a", &[], revision, &format!(r#","x":"{text}""#));
            let entry = read(&kv);
            assert!(bases.fold(&entry, None).is_none());
            tried += usize::from(bases.recent.first().is_some_and(|base| base.ptr_eq(&entry)));
        }
        assert!((28..36).contains(&tried), "{tried}");
        // Those that are alike again are found.
        let entry = |revision| read(&alike("ns/a", revision));
        let folded = (2_000..2_300).filter_map(|revision| bases.fold(&entry(revision), None));
        assert!(folded.count() > 150);
    }
}
