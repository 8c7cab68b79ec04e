//! The recent changes of one resource. Watches resume from them, and lists at past revisions are
//! computed from them.
//!
//! A change that replaced an object refers to the version before it, and for a resource that is
//! written all the time those versions would be most of its memory. Consecutive versions differ
//! little, so all but the newest changes are packed: the previous version is stored as a difference
//! from the version after the change. When that version was replaced in turn, it is rebuilt from
//! the change that replaced it.

use bytes::Bytes;
use keelson_records::Entry;
use keelson_store::Revision;
use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of changes of one resource, for watches and for lists at past revisions.
pub const HISTORY_EVENTS_MAX: usize = 20_000;
/// Maximum bytes that the changes of one resource may retain.
pub const HISTORY_BYTES_MAX: usize = 64 << 20;
/// Maximum number of fresh (not packed) changes. These also keep encoded events for further
/// watchers.
const FRESH_CHANGES_MAX: usize = 256;
/// Maximum bytes of the fresh changes. Beyond it, the oldest are packed until half of it is left.
const FRESH_BYTES_MAX: usize = 4 << 20;
/// Changes are packed in batches of at least this size: packing takes locks and a scratch buffer.
const PACKED_CHANGES_MIN: usize = 32;
/// Maximum length of a chain of differences, and so of steps to rebuild a version.
const DIFFERENCES_MAX: u8 = 16;
/// Maximum number of changes that one cursor read returns.
const CURSOR_BATCH_MAX: usize = 256;
/// Maximum number of changes of one cursor read when they have to be unpacked.
const CURSOR_PACKED_MAX: usize = 32;
/// Maximum number of changes that a list at a past revision rolls back. Older revisions are read
/// from the store: writers wait during the rollback.
const ROLLBACK_CHANGES_MAX: usize = 4_096;

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// Created or updated: `entry` is the new version.
    Put,
    /// Deleted: `entry` is the last version, with the revision of the deletion.
    Delete,
}

/// One change of one object.
#[derive(Debug)]
pub struct Change {
    /// Put or delete.
    pub kind: ChangeKind,
    /// The revision of the write.
    pub revision: Revision,
    /// The object after a put; after a delete its last version with the revision of the deletion.
    pub entry: Entry,
    /// The version before; `None` when the object was created.
    pub previous: Option<Entry>,
    /// Encoded watch events; `None` once the change is packed.
    frames: Mutex<Option<Frames>>,
}

/// Encoded events by form (media type, version and so on).
type Frames = Vec<(Box<str>, Bytes)>;

impl Change {
    /// Returns a fresh change.
    pub(crate) fn new(
        kind: ChangeKind,
        revision: Revision,
        entry: Entry,
        previous: Option<Entry>,
    ) -> Change {
        Change { kind, revision, entry, previous, frames: Mutex::new(Some(vec![])) }
    }

    /// Returns the encoded event in a form. `make` encodes it for the first watcher; it is cached
    /// while the change is fresh.
    pub fn frame<E>(
        &self,
        form: &str,
        make: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(frames) = frames.as_mut() else { return make() };
        if let Some((_, frame)) = frames.iter().find(|(known, _)| **known == *form) {
            return Ok(frame.clone());
        }
        let frame = make()?;
        frames.push((form.into(), frame.clone()));
        Ok(frame)
    }

    fn forget_frames(&self) {
        *self.frames.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Returns the difference of the previous version from the new one. Takes about a microsecond.
    pub(crate) fn difference(&self) -> Option<Box<[u8]>> {
        match self.kind {
            ChangeKind::Put => self.previous.as_ref()?.difference_from(&self.entry),
            ChangeKind::Delete => None,
        }
    }
}

/// A change in the ring.
enum Slot {
    Fresh(Arc<Change>),
    Packed(Box<PackedChange>),
}

/// A change in compact form.
struct PackedChange {
    revision: Revision,
    after: NextVersion,
    before: PreviousVersion,
    /// Length of the chain of differences up to `before`.
    differences: u8,
}

/// The version after a change.
enum NextVersion {
    Current(Entry),
    /// Replaced by the change with this number, which stores it.
    ReplacedBy(u64),
    /// The object was deleted.
    Deleted,
}

/// The version before a change.
enum PreviousVersion {
    None,
    Full(Entry),
    /// A difference from the version after the change.
    Difference(Box<[u8]>),
}

impl Slot {
    fn revision(&self) -> Revision {
        match self {
            Slot::Fresh(change) => change.revision,
            Slot::Packed(packed) => packed.revision,
        }
    }

    /// Returns the bytes that only the history retains.
    fn bytes(&self) -> usize {
        let (record, before) = match self {
            Slot::Fresh(change) => {
                (size_of::<Change>(), change.previous.as_ref().map_or(0, Entry::size))
            }
            Slot::Packed(packed) => {
                let before = match &packed.before {
                    PreviousVersion::None => 0,
                    PreviousVersion::Full(entry) => entry.size(),
                    PreviousVersion::Difference(difference) => difference.len(),
                };
                (size_of::<PackedChange>(), before)
            }
        };
        size_of::<Slot>() + record + before
    }
}

impl PackedChange {
    /// Returns the version before the change. `after` returns the version after it.
    fn before(&self, after: impl FnOnce() -> Entry) -> Option<Entry> {
        match &self.before {
            PreviousVersion::None => None,
            PreviousVersion::Full(entry) => Some(entry.clone()),
            PreviousVersion::Difference(difference) => Some(after().apply_difference(difference)),
        }
    }
}

/// The recent changes of a resource, numbered in order.
#[derive(Default)]
pub(crate) struct History {
    /// Revisions never decrease from front to back; all are above `floor`.
    ring: VecDeque<Slot>,
    /// The number of `ring[0]`.
    first: u64,
    /// Changes below this number are packed, all others are fresh.
    packed: u64,
    /// The history after this revision is complete.
    floor: Revision,
    bytes: usize,
    /// The part of `bytes` that belongs to fresh changes.
    fresh_bytes: usize,
}

impl History {
    /// Returns an empty history that is complete from `floor` on.
    pub fn new(floor: Revision) -> History {
        History { floor, ..History::default() }
    }

    /// Returns the revision after which all changes are present.
    pub fn floor(&self) -> Revision {
        self.floor
    }

    /// Returns the number of the next change.
    pub fn next(&self) -> u64 {
        self.first + self.ring.len() as u64
    }

    /// Returns the revision of the newest change.
    pub fn newest(&self) -> Option<Revision> {
        self.ring.back().map(Slot::revision)
    }

    /// Appends a change and evicts the oldest above the limits.
    pub fn push(&mut self, change: Change) {
        if let Some(newest) = self.newest() {
            assert!(newest <= change.revision, "history went back: {change:?}");
        }
        let slot = Slot::Fresh(Arc::new(change));
        self.bytes += slot.bytes();
        self.fresh_bytes += slot.bytes();
        self.ring.push_back(slot);
        let old = self.ring.len().checked_sub(FRESH_CHANGES_MAX + 1);
        if let Some(Slot::Fresh(old)) = old.map(|old| &self.ring[old]) {
            old.forget_frames();
        }
        while self.ring.len() > HISTORY_EVENTS_MAX || self.bytes > HISTORY_BYTES_MAX {
            if self.ring.len() == 1 {
                break;
            }
            self.pop();
        }
    }

    fn pop(&mut self) {
        if let Some(slot) = self.ring.pop_front() {
            self.bytes -= slot.bytes();
            if let Slot::Fresh(_) = slot {
                self.fresh_bytes -= slot.bytes();
            }
            self.first += 1;
            self.packed = self.packed.max(self.first);
            self.floor = self.floor.max(slot.revision());
        }
    }

    /// Removes the changes at and before `revision`.
    pub fn compact(&mut self, revision: Revision) {
        while self.ring.front().is_some_and(|slot| slot.revision() <= revision) {
            self.pop();
        }
        self.floor = self.floor.max(revision);
    }

    /// Removes all changes and sets the floor to `revision`, with a gap: all cursors end.
    pub fn restart(&mut self, revision: Revision) {
        // Skip one number, so that cursors that have read everything end as well.
        let first = self.next() + 1;
        *self = History { first, packed: first, floor: revision, ..History::default() };
    }

    /// Returns the number of the first change after `revision`; `None` when some were evicted.
    pub fn after(&self, revision: Revision) -> Option<u64> {
        (revision >= self.floor).then(|| self.first + self.index_after(revision) as u64)
    }

    fn index_after(&self, revision: Revision) -> usize {
        self.ring.partition_point(|slot| slot.revision() <= revision)
    }

    fn index(&self, number: u64) -> Option<usize> {
        number.checked_sub(self.first).and_then(|index| usize::try_from(index).ok())
    }

    /// Appends the changes from `number` on to `out`, up to a batch, and returns how many. `None`:
    /// some were evicted.
    pub fn read(&self, number: u64, out: &mut Vec<Arc<Change>>) -> Option<usize> {
        let start = self.index(number)?.min(self.ring.len());
        let is_packed = number < self.packed;
        let most = if is_packed { CURSOR_PACKED_MAX } else { CURSOR_BATCH_MAX };
        let end = self.ring.len().min(start + most);
        out.extend((start..end).map(|index| self.change(index)));
        Some(end - start)
    }

    /// Returns all changes from `number` on; `None` when some were evicted.
    pub fn since(&self, number: u64) -> Option<impl Iterator<Item = Arc<Change>>> {
        let start = self.index(number).filter(|start| *start <= self.ring.len())?;
        Some((start..self.ring.len()).map(|index| self.change(index)))
    }

    /// Returns the key and the version at `revision` of each object that was changed after it.
    /// `None` when changes were evicted, or there are too many.
    pub fn rolled_back(
        &self,
        revision: Revision,
    ) -> Option<impl Iterator<Item = (&str, Option<Entry>)>> {
        let changes = self.index_after(revision)..self.ring.len();
        let mut seen = HashSet::new();
        (revision >= self.floor && changes.len() <= ROLLBACK_CHANGES_MAX).then(|| {
            changes.filter_map(move |index| {
                let key = self.key(index);
                seen.insert(key).then(|| (key, self.entry_before(index)))
            })
        })
    }

    fn change(&self, index: usize) -> Arc<Change> {
        let packed = match &self.ring[index] {
            Slot::Fresh(change) => return change.clone(),
            Slot::Packed(packed) => packed,
        };
        let kind = match packed.after {
            NextVersion::Deleted => ChangeKind::Delete,
            NextVersion::Current(_) | NextVersion::ReplacedBy(_) => ChangeKind::Put,
        };
        let revision = packed.revision;
        let entry = self.entry_after(index);
        let previous = packed.before(|| entry.clone());
        Arc::new(Change { kind, revision, entry, previous, frames: Mutex::new(None) })
    }

    fn key(&self, mut index: usize) -> &str {
        loop {
            let packed = match &self.ring[index] {
                Slot::Fresh(change) => return change.entry.key(),
                Slot::Packed(packed) => packed,
            };
            match (&packed.after, &packed.before) {
                (NextVersion::Current(entry), _)
                | (NextVersion::Deleted, PreviousVersion::Full(entry)) => return entry.key(),
                (NextVersion::ReplacedBy(number), _) => index = self.index_of_newer(*number),
                (NextVersion::Deleted, _) => {
                    unreachable!("what was deleted was there, and is kept")
                }
            }
        }
    }

    /// Returns the index of the change that replaced a version. It is newer, so it was not evicted
    /// before.
    fn index_of_newer(&self, number: u64) -> usize {
        self.index(number).expect("what comes later is forgotten later")
    }

    fn entry_after(&self, index: usize) -> Entry {
        let packed = match &self.ring[index] {
            Slot::Fresh(change) => return change.entry.clone(),
            Slot::Packed(packed) => packed,
        };
        match &packed.after {
            NextVersion::Current(entry) => entry.clone(),
            NextVersion::ReplacedBy(number) => {
                self.entry_before(self.index_of_newer(*number)).expect("what is replaced was there")
            }
            NextVersion::Deleted => {
                let last = self.entry_before(index).expect("what was deleted was there");
                last.at_revision(packed.revision)
            }
        }
    }

    fn entry_before(&self, index: usize) -> Option<Entry> {
        let packed = match &self.ring[index] {
            Slot::Fresh(change) => return change.previous.clone(),
            Slot::Packed(packed) => packed,
        };
        packed.before(|| self.entry_after(index))
    }

    /// Returns the fresh changes that are to be packed, and the number of the first: those before
    /// `settled`, and more if there are too many. Empty while these are less than a batch.
    pub fn changes_to_pack(&self, settled: u64) -> (u64, Vec<Arc<Change>>) {
        let start = self.index(self.packed).unwrap_or(0);
        let many = self.ring.len().saturating_sub(FRESH_CHANGES_MAX);
        let end = match self.fresh_bytes > FRESH_BYTES_MAX {
            true => many.max(self.end_of_large(start)),
            false if many < start + PACKED_CHANGES_MIN => start,
            false => many,
        };
        let settled = self.index(settled).unwrap_or(0).min(self.ring.len());
        let end = end.max(settled).max(start);
        let changes = (start..end).filter_map(|index| match &self.ring[index] {
            Slot::Fresh(change) => Some(change.clone()),
            Slot::Packed(_) => None,
        });
        (self.packed, changes.collect())
    }

    /// Returns the end of the range to pack from `start` on when the fresh changes retain too many
    /// bytes.
    fn end_of_large(&self, start: usize) -> usize {
        let mut left = self.fresh_bytes;
        let mut fits = |slot: &Slot| {
            let fits = left <= FRESH_BYTES_MAX / 2;
            left -= slot.bytes();
            fits
        };
        let fresh = self.ring.range(start..);
        fresh.map(&mut fits).position(|fits| fits).map_or(self.ring.len(), |count| start + count)
    }

    /// Packs the changes that [`History::changes_to_pack`] returned, from `number` on, each with
    /// its difference. Changes that were evicted meanwhile are skipped.
    pub fn pack(&mut self, number: u64, differences: Vec<Option<Box<[u8]>>>) {
        for (number, difference) in (number..).zip(differences) {
            if number == self.packed && self.index(number).is_some_and(|at| at < self.ring.len()) {
                self.pack_next(difference);
            }
        }
    }

    /// Replaces a current version by the same one, folded, if its change is packed.
    pub fn put_folded(&mut self, folded: &Entry) {
        let end = self.index_after(folded.modified());
        for slot in self.ring.range_mut(..end).rev() {
            if slot.revision() < folded.modified() {
                return;
            }
            if let Slot::Packed(packed) = slot
                && let NextVersion::Current(entry) = &mut packed.after
                && entry.key_bytes() == folded.key_bytes()
            {
                *entry = folded.clone();
            }
        }
    }

    /// Packs the oldest fresh change.
    fn pack_next(&mut self, difference: Option<Box<[u8]>>) {
        let number = self.packed;
        let Some(index) = self.index(number) else { return };
        let Some(Slot::Fresh(change)) = self.ring.get(index) else { return };
        let change = change.clone();
        let made = change
            .previous
            .as_ref()
            .and_then(|previous| self.packed_change_at(previous.modified()));
        let run = made.map_or(0, |(_, differences)| differences);
        let (before, differences) = match (&change.previous, difference) {
            (None, _) => (PreviousVersion::None, 0),
            (Some(_), Some(difference)) if run < DIFFERENCES_MAX => {
                (PreviousVersion::Difference(difference), run + 1)
            }
            (Some(previous), _) => (PreviousVersion::Full(previous.clone()), 0),
        };
        if let (PreviousVersion::Difference(_), Some((made, _))) = (&before, made)
            && let Slot::Packed(made) = &mut self.ring[made]
        {
            made.after = NextVersion::ReplacedBy(number);
        }
        let after = match change.kind {
            ChangeKind::Put => NextVersion::Current(change.entry.clone()),
            ChangeKind::Delete => NextVersion::Deleted,
        };
        let packed = PackedChange { revision: change.revision, after, before, differences };
        let slot = Slot::Packed(Box::new(packed));
        let fresh = self.ring[index].bytes();
        self.fresh_bytes -= fresh;
        self.bytes = self.bytes + slot.bytes() - fresh;
        self.ring[index] = slot;
        self.packed += 1;
    }

    /// Returns the index of the packed change that wrote the version with this revision, and the
    /// length of its chain of differences. `None` when it is not known or not the only change of
    /// its revision.
    fn packed_change_at(&self, revision: Revision) -> Option<(usize, u8)> {
        // Changes at the floor's revision may have been evicted.
        if revision <= self.floor {
            return None;
        }
        let index = self.index_after(revision).checked_sub(1)?;
        let is_at_revision = |index: usize| self.ring[index].revision() == revision;
        if !is_at_revision(index) || index.checked_sub(1).is_some_and(is_at_revision) {
            return None;
        }
        match &self.ring[index] {
            Slot::Packed(packed) => Some((index, packed.differences)),
            Slot::Fresh(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_records::testing::Random;
    use keelson_records::testing::{PREFIX, stored_with};
    use std::collections::BTreeMap;

    /// Returns a version of an object of about 2 kB, similar to the others of its key.
    fn version(key: &str, revision: u64, mut random: impl FnMut(u64) -> u64) -> Entry {
        let filler: String = (0..100).map(|n| format!(r#","{key}{n}":"{:08x}""#, n * n)).collect();
        // The changing part is in the middle and may have any length.
        let (front, back) = filler.split_at(filler.len() / 2);
        let status = "z".repeat(random(40) as usize);
        let labels = [("app", &status[..status.len() / 2])];
        let rest = format!(r#"{front},"status":"{status}{}"{back}"#, random(1 << 40));
        let kv = stored_with(key, &labels[..random(2) as usize], revision, &rest);
        Entry::from_store(PREFIX.len(), &kv).expect("a record")
    }

    fn fields_of(change: &Change) -> impl PartialEq + std::fmt::Debug + use<> {
        let text = |entry: &Entry| {
            let labels: Vec<_> =
                entry.labels().map(|(name, value)| format!("{name}={value}")).collect();
            let json = String::from_utf8_lossy(&entry.json_slice()).into_owned();
            (entry.key().to_owned(), entry.modified(), labels, json)
        };
        (change.kind, change.revision, text(&change.entry), change.previous.as_ref().map(text))
    }

    struct Writer {
        random: Random,
        history: History,
        objects: BTreeMap<String, Entry>,
        /// All changes so far.
        written: Vec<Change>,
    }

    impl Writer {
        fn new() -> Writer {
            let history = History::new(Revision(0));
            Writer { random: Random(11), history, objects: BTreeMap::new(), written: vec![] }
        }

        /// Creates, updates or deletes the object of a key.
        fn write(&mut self, key: &str, revision: u64, deletes: bool) {
            let previous = self.objects.get(key).cloned();
            let change = match &previous {
                Some(last) if deletes => {
                    self.objects.remove(key);
                    (ChangeKind::Delete, last.at_revision(Revision(revision)))
                }
                _ => {
                    let now = version(key, revision, |end| self.random.below(end));
                    self.objects.insert(key.to_owned(), now.clone());
                    (ChangeKind::Put, now)
                }
            };
            let (kind, entry) = change;
            let make = || Change::new(kind, Revision(revision), entry.clone(), previous.clone());
            self.history.push(make());
            self.written.push(make());
        }

        fn pack(&mut self) {
            let (number, changes) = self.history.changes_to_pack(0);
            self.history.pack(number, changes.iter().map(|change| change.difference()).collect());
        }

        /// Reads everything from a number on.
        fn read(&self, mut number: u64) -> Vec<Arc<Change>> {
            let mut out = vec![];
            loop {
                match self.history.read(number, &mut out) {
                    Some(0) => return out,
                    Some(read) => number += read as u64,
                    None => panic!("{number} is forgotten"),
                }
            }
        }
    }

    /// The history returns the same changes however many are packed, and `bytes` matches what it
    /// retains.
    #[test]
    fn a_packed_history_returns_the_same_changes() {
        let mut writer = Writer::new();
        let mut revision = 0;
        for turn in 0..3_000_u64 {
            // Few objects, so that they are often replaced, and sometimes two changes in one
            // revision.
            let last = revision;
            revision += u64::from(writer.random.below(20) != 0);
            let key = match writer.random.below(4) {
                0 => format!("n/{}", writer.random.below(500)),
                _ => format!("n/{}", writer.random.below(3)),
            };
            let is_written =
                writer.written.iter().rev().take(2).any(|change| change.entry.key() == key);
            if revision == last && is_written {
                continue;
            }
            let deletes = writer.random.below(30) == 0;
            writer.write(&key, revision.max(1), deletes);
            if writer.random.below(50) == 0 {
                writer.pack();
            }
            if turn == 1_000 {
                writer.history.compact(Revision(revision - 800));
            }
        }
        writer.pack();
        let history = &writer.history;
        let fresh = usize::try_from(history.next() - history.packed).expect("a few");
        assert!((FRESH_CHANGES_MAX..FRESH_CHANGES_MAX + PACKED_CHANGES_MIN).contains(&fresh));
        assert_eq!(history.bytes, history.ring.iter().map(Slot::bytes).sum::<usize>());
        let fresh = history.ring.range(history.ring.len() - fresh..);
        assert_eq!(history.fresh_bytes, fresh.map(Slot::bytes).sum::<usize>());
        let written: Vec<_> =
            writer.written.iter().filter(|c| c.revision > history.floor()).collect();
        let read = writer.read(history.first);
        assert!(read.iter().map(|c| fields_of(c)).eq(written.iter().map(|c| fields_of(c))));
        for at in (history.floor().0..=revision).step_by(97) {
            let number = history.after(Revision(at)).expect("it is known");
            let later = written.iter().filter(|change| change.revision.0 > at);
            assert_eq!(writer.read(number).len(), later.clone().count());
            let mut before = BTreeMap::new();
            for change in later {
                before.entry(change.entry.key()).or_insert(&change.previous);
            }
            let rolled_back: BTreeMap<_, _> =
                history.rolled_back(Revision(at)).expect("it is known").collect();
            let revisions = |entry: &Option<Entry>| entry.as_ref().map(Entry::modified);
            let before = before.into_iter().map(|(key, entry)| (key, revisions(entry)));
            assert!(before.eq(rolled_back.iter().map(|(key, entry)| (*key, revisions(entry)))));
        }
    }

    #[test]
    fn replaced_versions_are_stored_compactly() {
        for objects in [1, 10_000] {
            let mut writer = Writer::new();
            for revision in 1..=15_000 {
                writer.write(&format!("n/{}", revision % objects), revision, false);
                if revision % 100 == 0 {
                    writer.pack();
                }
            }
            let whole: usize =
                writer.written.iter().filter_map(|c| Some(c.previous.as_ref()?.size())).sum();
            let held = writer.history.bytes;
            assert!(held * 5 < whole, "{held} bytes for {whole}, {objects} objects");
            // Nor does the change that wrote a version retain it once it is replaced.
            let is_past = |slot: &&Slot| match slot {
                Slot::Fresh(_) => false,
                Slot::Packed(packed) => match &packed.after {
                    NextVersion::Current(entry) => !writer.objects[entry.key()].ptr_eq(entry),
                    NextVersion::ReplacedBy(_) | NextVersion::Deleted => false,
                },
            };
            let past = writer.history.ring.iter().filter(is_past).count();
            assert!(
                past < 15_000 / 16 + FRESH_CHANGES_MAX + PACKED_CHANGES_MIN,
                "{past} versions, {objects} objects"
            );
        }
    }

    #[test]
    fn few_changes_of_large_objects_stay_fresh() {
        let mut history = History::new(Revision(0));
        let mut last = None;
        let filler = format!(r#","filler":"{}""#, "x".repeat(100 << 10));
        for revision in 1..=FRESH_CHANGES_MAX as u64 {
            let kv = stored_with("n/1", &[], revision, &filler);
            let entry = Entry::from_store(PREFIX.len(), &kv).expect("a record");
            let previous = last.replace(entry.clone());
            history.push(Change::new(ChangeKind::Put, Revision(revision), entry, previous));
            let (number, changes) = history.changes_to_pack(0);
            history.pack(number, changes.iter().map(|change| change.difference()).collect());
            assert!(history.fresh_bytes <= FRESH_BYTES_MAX, "{}", history.fresh_bytes);
        }
        assert!(history.fresh_bytes >= FRESH_BYTES_MAX / 4, "{}", history.fresh_bytes);
        assert!(history.bytes < FRESH_BYTES_MAX + (1 << 20), "{}", history.bytes);
    }

    #[test]
    fn changes_above_the_limits_are_evicted() {
        let mut writer = Writer::new();
        for revision in 1..=HISTORY_EVENTS_MAX as u64 + 100 {
            writer.write("n/1", revision, false);
            if revision % 100 == 0 {
                writer.pack();
            }
        }
        let history = &writer.history;
        assert_eq!((history.ring.len(), history.floor()), (HISTORY_EVENTS_MAX, Revision(100)));
        assert_eq!((history.after(Revision(99)), history.after(Revision(100))), (None, Some(100)));
        assert_eq!(history.read(99, &mut vec![]), None);
        let rolled_back = |back: usize| {
            let revision = history.newest().expect("there are changes").0 - back as u64;
            history.rolled_back(Revision(revision)).map(Iterator::count)
        };
        assert_eq!((rolled_back(0), rolled_back(ROLLBACK_CHANGES_MAX)), (Some(0), Some(1)));
        assert_eq!(
            (rolled_back(ROLLBACK_CHANGES_MAX + 1), rolled_back(HISTORY_EVENTS_MAX + 1)),
            (None, None)
        );
        let mut written = writer.written.iter().skip(100).map(fields_of);
        assert!(writer.read(100).iter().all(|change| Some(fields_of(change)) == written.next()));
    }
}
