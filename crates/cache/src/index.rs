//! Indexes for selectors: the objects of a resource, ordered by one label or selectable field.
//!
//! With an index, a list that selects one value of a label does not scan all objects. An index is
//! built on demand, for large resources whose lists selected the same label a few times. The number
//! of indexes is limited; a new one replaces the oldest.

use keelson_records::{Entry, HasSortKey, SortKey, Tree, order, starts_with};
use std::fmt;
use std::sync::Arc;

/// Minimum number of objects for which an index is worth its cost.
pub(crate) const OBJECTS_MIN: usize = 4096;
/// Maximum indexes of one resource.
pub(crate) const INDEXES_MAX: usize = 8;
/// Scans of all objects after which the selected label is indexed.
const SCANS_MAX: u32 = 2;
/// Labels of one resource whose scans are counted.
const COUNTED_MAX: usize = 32;

/// The label or field that orders an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Term {
    /// The label with this name.
    Label(Arc<str>),
    /// The selectable field with this name, other than name and namespace.
    Field(Arc<str>),
}

impl Term {
    fn value<'e>(&self, entry: &'e Entry) -> Option<&'e str> {
        match self {
            Term::Label(name) => entry.label(name),
            Term::Field(name) => entry.field(name),
        }
    }
}

/// An object in an index.
#[derive(Clone)]
struct Indexed {
    entry: Entry,
    /// Offset of the value in the entry's buffer, so that a comparison needs no lookup.
    value_at: u32,
    value_len: u32,
}

/// Ordered by value, then by key.
impl HasSortKey for Indexed {
    fn sort_key(&self) -> SortKey<'_> {
        (self.entry.bytes_at(self.value_at, self.value_len), self.entry.key_bytes())
    }
}

/// The objects that have a value for a term, ordered by value and key.
#[derive(Clone)]
pub(crate) struct Index {
    pub term: Term,
    objects: Tree<Indexed>,
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} objects by {:?}", self.objects.len(), self.term)
    }
}

impl Index {
    pub fn new(term: Term, entries: &Tree<Entry>) -> Index {
        let mut index = Index { term, objects: Tree::default() };
        let mut all: Vec<Indexed> =
            entries.iter().filter_map(|entry| index.indexed(entry)).collect();
        all.sort_unstable_by(|a, b| order(a.sort_key(), b.sort_key()));
        index.objects = all.into_iter().collect();
        index
    }

    fn indexed(&self, entry: &Entry) -> Option<Indexed> {
        let (value_at, value_len) = entry.offset_of(self.term.value(entry)?);
        Some(Indexed { entry: entry.clone(), value_at, value_len })
    }

    /// Replaces the previous version of an object with the new one.
    pub fn update(&mut self, previous: Option<&Entry>, now: Option<&Entry>) {
        if let Some(indexed) = previous.and_then(|entry| self.indexed(entry)) {
            self.objects.remove(indexed.sort_key());
        }
        if let Some(indexed) = now.and_then(|entry| self.indexed(entry)) {
            self.objects.insert(indexed);
        }
    }

    /// Iterates over the objects with this value whose keys start with `prefix`, from `start` on,
    /// in key order.
    pub fn range<'a>(
        &'a self,
        value: &'a str,
        prefix: &'a str,
        start: &str,
    ) -> impl Iterator<Item = &'a Entry> + use<'a> {
        let value = value.as_bytes();
        let prefix = prefix.as_bytes();
        let from = (value, start.as_bytes().max(prefix));
        self.objects
            .from(from)
            .take_while(move |indexed| {
                let (found, key) = indexed.sort_key();
                found == value && starts_with(key, prefix)
            })
            .map(|indexed| &indexed.entry)
    }
}

/// Counts scans of all objects by term.
#[derive(Default)]
pub(crate) struct Scans {
    counts: Vec<(Term, u32)>,
    /// Terms whose indexes are being built.
    building: Vec<Term>,
}

impl Scans {
    /// Counts a scan. Returns true when an index of the term should be built; then not again until
    /// [`Scans::finish`].
    pub fn count(&mut self, term: &Term) -> bool {
        if self.building.contains(term) {
            return false;
        }
        let at = self.counts.iter().position(|(known, _)| known == term).unwrap_or_else(|| {
            if self.counts.len() == COUNTED_MAX {
                self.counts.remove(0);
            }
            self.counts.push((term.clone(), 0));
            self.counts.len() - 1
        });
        self.counts[at].1 += 1;
        let is_due = self.counts[at].1 >= SCANS_MAX;
        if is_due {
            let (term, _) = self.counts.remove(at);
            self.building.push(term);
        }
        is_due
    }

    /// Ends the building of an index, whether it succeeded or not.
    pub fn finish(&mut self, term: &Term) {
        self.building.retain(|building| building != term);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_records::testing::{PREFIX, stored};
    use keelson_store::{Event, Revision};

    fn entry(key: &str, labels: &[(&str, &str)], revision: u64) -> Entry {
        let kv = stored(key, labels, revision);
        Entry::from_store(PREFIX.len(), &kv).unwrap()
    }

    #[test]
    fn an_index_returns_objects_in_key_order() {
        let entries = [
            entry("b/2", &[("app", "web")], 2),
            entry("a/1", &[("app", "web"), ("tier", "x")], 3),
            entry("a/2", &[("app", "we")], 4),
            entry("a/3", &[("tier", "web")], 5),
            entry("a/4", &[("app", "web")], 6),
        ];
        let objects: Tree<_> = entries.iter().cloned().collect();
        let mut index = Index::new(Term::Label("app".into()), &objects);
        let found = |index: &Index, value: &str, prefix: &str, start: &str| {
            let range = index.range(value, prefix, start);
            range.map(|entry| entry.key().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(found(&index, "web", "", ""), ["a/1", "a/4", "b/2"]);
        assert_eq!(found(&index, "web", "a/", ""), ["a/1", "a/4"]);
        assert_eq!(found(&index, "web", "a/", "a/2"), ["a/4"]);
        assert_eq!(found(&index, "w", "", ""), [""; 0]);
        assert_eq!(found(&index, "we", "", ""), ["a/2"]);
        // A changed label, a removed label, and a deleted object.
        index.update(Some(&entries[2]), Some(&entry("a/2", &[("app", "web")], 7)));
        index.update(Some(&entries[1]), Some(&entry("a/1", &[("tier", "x")], 8)));
        index.update(Some(&entries[4]), None);
        assert_eq!(found(&index, "web", "", ""), ["a/2", "b/2"]);
        let fields = Index::new(Term::Field("spec.nodeName".into()), &objects);
        assert_eq!(found(&fields, "n1", "b/", ""), ["b/2"]);
    }

    /// An index returns what a scan of all objects returns, whatever is written before, during and
    /// after its build, and snapshots do not change.
    #[test]
    fn an_index_matches_a_scan_of_all_objects() {
        let resource = crate::Resource::new(PREFIX.into(), 0, Revision(0));
        let term = Term::Label("app".into());
        let mut random = 7_u64;
        let mut held = vec![];
        for revision in 1..2_000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let number = random >> 40 & 31;
            let label = random >> 50 & 3;
            let labels = [("app", ["a", "b", ""][label as usize % 3])];
            let labels = if label == 3 { &[][..] } else { &labels };
            let kv = stored(&format!("n/{number}"), labels, revision);
            let value = (random >> 60 != 0).then_some(kv.value);
            let event =
                Event { key: kv.key, value, revision: Revision(revision), created: Revision(1) };
            resource.apply(&event).unwrap();
            if revision % 500 == 0 {
                // Repeatedly: a second index of the same term must not be added.
                resource.make_index(term.clone());
            }
            if revision % 97 == 0 {
                held.push(resource.snapshot(Revision(revision)));
            }
        }
        assert!(held.len() > 15);
        for snapshot in &held {
            for value in ["a", "b", "", "c"] {
                let all: Vec<_> =
                    snapshot.range("n/", "n/2").filter(|e| e.label("app") == Some(value)).collect();
                if let Some(selected) = snapshot.select(&term, value, "n/", "n/2") {
                    let found: Vec<_> =
                        selected.map(Entry::key_bytes).map(<[u8]>::as_ptr).collect();
                    let all: Vec<_> =
                        all.into_iter().map(Entry::key_bytes).map(<[u8]>::as_ptr).collect();
                    assert_eq!(found, all, "{value}");
                }
            }
        }
        let last = held.last().unwrap();
        assert!(last.select(&term, "a", "", "").is_some_and(|found| found.count() > 0));
        assert!(last.select(&Term::Field("app".into()), "a", "", "").is_none());
    }

    #[test]
    fn a_term_is_indexed_after_repeated_scans() {
        let mut scans = Scans::default();
        let term = |name: &str| Term::Label(name.into());
        assert!(!scans.count(&term("a")));
        assert!(!scans.count(&term("b")));
        assert!(scans.count(&term("a")));
        assert!(!scans.count(&term("a")) && !scans.count(&term("a")), "it is being made");
        scans.finish(&term("a"));
        assert!(!scans.count(&term("a")) && scans.count(&term("a")), "it was made and is gone");
        for n in 0..COUNTED_MAX {
            assert!(!scans.count(&term(&format!("x{n}"))));
        }
        assert!(!scans.count(&term("b")), "it was forgotten");
    }
}
