//! The recent changes of one resource: what watches that go on from before are told, and what lists of the
//! past are made from.
//!
//! A change that replaced an object keeps what was there before, and most of the memory of a resource that is
//! written to all the time would be such versions. Two versions in a row differ in little, so that of all but
//! the newest changes only the differences are kept: the version before a change is told by the one after it,
//! and that one, when it was replaced in turn, by the change that did so.

use crate::Entry;
use bytes::Bytes;
use keelson_store::Revision;
use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

/// Changes of one resource that are kept for watchers and for lists at past revisions.
pub const HISTORY_EVENTS_MAX: usize = 20_000;
/// Bytes that the kept changes of one resource may hold alive.
pub const HISTORY_BYTES_MAX: usize = 64 << 20;
/// The newest changes, which are kept as they are, with the encoded events for further watchers.
const FRESH_CHANGES_MAX: usize = 256;
/// Bytes that the newest changes may hold alive: of large objects there are fewer. When they hold more, as many are
/// packed as leave half of it.
const FRESH_BYTES_MAX: usize = 4 << 20;
/// So many are packed together: to pack one takes locks, and room for it.
const PACKED_CHANGES_MIN: usize = 32;
/// Versions of one object in a row that are differences: so many steps it takes at most to make one.
const DIFFERENCES_MAX: u8 = 16;
/// Changes that a cursor is given at once.
const CURSOR_BATCH_MAX: usize = 256;
/// As many are given at once of those that have to be made from differences.
const CURSOR_PACKED_MAX: usize = 32;
/// Changes that a list at a past revision takes back. What is further back is read from the store: others wait
/// while changes are taken back.
const UNDONE_CHANGES_MAX: usize = 4_096;

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It was created or changed: `entry` is what it is now.
    Put,
    /// It was deleted: `entry` is what it was, with the revision of the deletion.
    Delete,
}

/// One change of one object.
#[derive(Debug)]
pub struct Change {
    /// What happened.
    pub kind: ChangeKind,
    /// The revision at which it happened.
    pub revision: Revision,
    /// The object after a put, the last state with the deletion's revision after a delete.
    pub entry: Entry,
    /// The object before; absent when it was created.
    pub previous: Option<Entry>,
    /// The event as watchers were sent it; `None` once the change is no longer one of the newest.
    frames: Mutex<Option<Frames>>,
}

/// Encoded events, by what tells apart the forms in which watchers see them.
type Frames = Vec<(Box<str>, Bytes)>;

impl Change {
    /// A change that is one of the newest.
    pub(crate) fn new(
        kind: ChangeKind,
        revision: Revision,
        entry: Entry,
        previous: Option<Entry>,
    ) -> Change {
        Change { kind, revision, entry, previous, frames: Mutex::new(Some(vec![])) }
    }

    /// The event in a form, made by `make` for the first watcher that asks. It is kept for others while
    /// the change is one of the newest.
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

    /// How the object before differs from the one after. It takes a microsecond.
    pub(crate) fn difference(&self) -> Option<Box<[u8]>> {
        match self.kind {
            ChangeKind::Put => self.previous.as_ref()?.difference_from(&self.entry),
            ChangeKind::Delete => None,
        }
    }
}

/// A change in the history.
enum Kept {
    Fresh(Arc<Change>),
    Packed(Box<Packed>),
}

/// A change that is no longer one of the newest.
struct Packed {
    revision: Revision,
    after: After,
    before: Before,
    /// Versions of the object up to `before` that are differences.
    differences: u8,
}

/// What became of an object.
enum After {
    Is(Entry),
    /// The version that the change of this number replaced.
    ReplacedBy(u64),
    /// It was deleted.
    Gone,
}

/// What an object was.
enum Before {
    Nothing,
    Was(Entry),
    /// The version after the change, but for this.
    Differs(Box<[u8]>),
}

impl Kept {
    fn revision(&self) -> Revision {
        match self {
            Kept::Fresh(change) => change.revision,
            Kept::Packed(packed) => packed.revision,
        }
    }

    /// Bytes that nothing but the history needs.
    fn bytes(&self) -> usize {
        let (record, before) = match self {
            Kept::Fresh(change) => {
                (size_of::<Change>(), change.previous.as_ref().map_or(0, Entry::size))
            }
            Kept::Packed(packed) => {
                let before = match &packed.before {
                    Before::Nothing => 0,
                    Before::Was(entry) => entry.size(),
                    Before::Differs(difference) => difference.len(),
                };
                (size_of::<Packed>(), before)
            }
        };
        size_of::<Kept>() + record + before
    }
}

impl Packed {
    /// The object before the change, made from the one after it where that is needed.
    fn before(&self, after: impl FnOnce() -> Entry) -> Option<Entry> {
        match &self.before {
            Before::Nothing => None,
            Before::Was(entry) => Some(entry.clone()),
            Before::Differs(difference) => Some(after().without(difference)),
        }
    }
}

/// The recent changes of a resource. They are numbered in the order in which they happened.
#[derive(Default)]
pub(crate) struct History {
    /// Revisions do not fall from front to back; all are above `floor`.
    ring: VecDeque<Kept>,
    /// The number of `ring[0]`.
    first: u64,
    /// Those before this number are packed; none at or after it is.
    packed: u64,
    /// The history after this revision is complete.
    floor: Revision,
    bytes: usize,
    /// Those of `bytes` that are not packed.
    fresh_bytes: usize,
}

impl History {
    /// Nothing has happened since `floor`.
    pub fn new(floor: Revision) -> History {
        History { floor, ..History::default() }
    }

    /// The revision after which all changes are known.
    pub fn floor(&self) -> Revision {
        self.floor
    }

    /// The number of the next change.
    pub fn next(&self) -> u64 {
        self.first + self.ring.len() as u64
    }

    /// The revision of the newest change.
    pub fn newest(&self) -> Option<Revision> {
        self.ring.back().map(Kept::revision)
    }

    /// Takes a change in; old ones make room.
    pub fn push(&mut self, change: Change) {
        if let Some(newest) = self.newest() {
            assert!(newest <= change.revision, "history went back: {change:?}");
        }
        let kept = Kept::Fresh(Arc::new(change));
        self.bytes += kept.bytes();
        self.fresh_bytes += kept.bytes();
        self.ring.push_back(kept);
        let old = self.ring.len().checked_sub(FRESH_CHANGES_MAX + 1);
        if let Some(Kept::Fresh(old)) = old.map(|old| &self.ring[old]) {
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
        if let Some(kept) = self.ring.pop_front() {
            self.bytes -= kept.bytes();
            if let Kept::Fresh(_) = kept {
                self.fresh_bytes -= kept.bytes();
            }
            self.first += 1;
            self.packed = self.packed.max(self.first);
            self.floor = self.floor.max(kept.revision());
        }
    }

    /// Forgets the changes at and before `revision`.
    pub fn compact(&mut self, revision: Revision) {
        while self.ring.front().is_some_and(|kept| kept.revision() <= revision) {
            self.pop();
        }
        self.floor = self.floor.max(revision);
    }

    /// Forgets everything up to `revision`, and that it is complete: cursors end.
    pub fn restart(&mut self, revision: Revision) {
        // One number stays unused: behind it are also the cursors that have read everything.
        let first = self.next() + 1;
        *self = History { first, packed: first, floor: revision, ..History::default() };
    }

    /// The number of the first change after `revision`; `None` when not all of those are known.
    pub fn after(&self, revision: Revision) -> Option<u64> {
        (revision >= self.floor).then(|| self.first + self.index_after(revision) as u64)
    }

    fn index_after(&self, revision: Revision) -> usize {
        self.ring.partition_point(|kept| kept.revision() <= revision)
    }

    fn index(&self, number: u64) -> Option<usize> {
        number.checked_sub(self.first).and_then(|index| usize::try_from(index).ok())
    }

    /// Appends the next changes from `number` on to `out`; how many. `None`: they are no longer known.
    pub fn read(&self, number: u64, out: &mut Vec<Arc<Change>>) -> Option<usize> {
        let start = self.index(number)?.min(self.ring.len());
        let is_packed = number < self.packed;
        let most = if is_packed { CURSOR_PACKED_MAX } else { CURSOR_BATCH_MAX };
        let end = self.ring.len().min(start + most);
        out.extend((start..end).map(|index| self.change(index)));
        Some(end - start)
    }

    /// All changes from `number` on; `None` when not all of them are known.
    pub fn since(&self, number: u64) -> Option<impl Iterator<Item = Arc<Change>>> {
        let start = self.index(number).filter(|start| *start <= self.ring.len())?;
        Some((start..self.ring.len()).map(|index| self.change(index)))
    }

    /// The objects that were changed after `revision`, each once: its key, and what it was at `revision`.
    /// `None` when the changes are not all known, or too many.
    pub fn undone(
        &self,
        revision: Revision,
    ) -> Option<impl Iterator<Item = (&str, Option<Entry>)>> {
        let changes = self.index_after(revision)..self.ring.len();
        let mut seen = HashSet::new();
        (revision >= self.floor && changes.len() <= UNDONE_CHANGES_MAX).then(|| {
            changes.filter_map(move |index| {
                let key = self.key(index);
                seen.insert(key).then(|| (key, self.entry_before(index)))
            })
        })
    }

    fn change(&self, index: usize) -> Arc<Change> {
        let packed = match &self.ring[index] {
            Kept::Fresh(change) => return change.clone(),
            Kept::Packed(packed) => packed,
        };
        let kind = match packed.after {
            After::Gone => ChangeKind::Delete,
            After::Is(_) | After::ReplacedBy(_) => ChangeKind::Put,
        };
        let (revision, entry) = (packed.revision, self.entry_after(index));
        let previous = packed.before(|| entry.clone());
        Arc::new(Change { kind, revision, entry, previous, frames: Mutex::new(None) })
    }

    fn key(&self, mut index: usize) -> &str {
        loop {
            let packed = match &self.ring[index] {
                Kept::Fresh(change) => return change.entry.key(),
                Kept::Packed(packed) => packed,
            };
            match (&packed.after, &packed.before) {
                (After::Is(entry), _) | (After::Gone, Before::Was(entry)) => return entry.key(),
                (After::ReplacedBy(number), _) => index = self.later(*number),
                (After::Gone, _) => unreachable!("what was deleted was there, and is kept"),
            }
        }
    }

    /// Where the change stands by which a version was replaced: it is younger, and so not forgotten.
    fn later(&self, number: u64) -> usize {
        self.index(number).expect("what comes later is forgotten later")
    }

    fn entry_after(&self, index: usize) -> Entry {
        let packed = match &self.ring[index] {
            Kept::Fresh(change) => return change.entry.clone(),
            Kept::Packed(packed) => packed,
        };
        match &packed.after {
            After::Is(entry) => entry.clone(),
            After::ReplacedBy(number) => {
                self.entry_before(self.later(*number)).expect("what is replaced was there")
            }
            After::Gone => {
                let last = self.entry_before(index).expect("what was deleted was there");
                last.at_revision(packed.revision)
            }
        }
    }

    fn entry_before(&self, index: usize) -> Option<Entry> {
        let packed = match &self.ring[index] {
            Kept::Fresh(change) => return change.previous.clone(),
            Kept::Packed(packed) => packed,
        };
        packed.before(|| self.entry_after(index))
    }

    /// The changes that are no longer among the newest and are not packed yet, and the number of the first.
    /// None, as long as they are few.
    pub fn due(&self) -> (u64, Vec<Arc<Change>>) {
        let start = self.index(self.packed).unwrap_or(0);
        let many = self.ring.len().saturating_sub(FRESH_CHANGES_MAX);
        let end = match self.fresh_bytes > FRESH_BYTES_MAX {
            true => many.max(self.end_of_large(start)),
            false if many < start + PACKED_CHANGES_MIN => return (self.packed, vec![]),
            false => many,
        };
        let due = (start..end).filter_map(|index| match &self.ring[index] {
            Kept::Fresh(change) => Some(change.clone()),
            Kept::Packed(_) => None,
        });
        (self.packed, due.collect())
    }

    /// Where those end that are to be packed because all that are fresh, from `start` on, hold too much.
    fn end_of_large(&self, start: usize) -> usize {
        let mut left = self.fresh_bytes;
        let mut fits = |kept: &Kept| {
            let fits = left <= FRESH_BYTES_MAX / 2;
            left -= kept.bytes();
            fits
        };
        let fresh = self.ring.range(start..);
        fresh.map(&mut fits).position(|fits| fits).map_or(self.ring.len(), |count| start + count)
    }

    /// Packs changes from `number` on, which [`History::due`] told of; with the difference of each. Those
    /// that were forgotten meanwhile are passed over.
    pub fn pack(&mut self, number: u64, differences: Vec<Option<Box<[u8]>>>) {
        for (number, difference) in (number..).zip(differences) {
            if number == self.packed && self.index(number).is_some_and(|at| at < self.ring.len()) {
                self.pack_next(difference);
            }
        }
    }

    /// Packs the first change that is not.
    fn pack_next(&mut self, difference: Option<Box<[u8]>>) {
        let number = self.packed;
        let Some(index) = self.index(number) else { return };
        let Some(Kept::Fresh(change)) = self.ring.get(index) else { return };
        let change = change.clone();
        let made = change.previous.as_ref().and_then(|previous| self.maker(previous.modified()));
        let run = made.map_or(0, |(_, differences)| differences);
        let (before, differences) = match (&change.previous, difference) {
            (None, _) => (Before::Nothing, 0),
            (Some(_), Some(difference)) if run < DIFFERENCES_MAX => {
                (Before::Differs(difference), run + 1)
            }
            (Some(previous), _) => (Before::Was(previous.clone()), 0),
        };
        if let (Before::Differs(_), Some((made, _))) = (&before, made)
            && let Kept::Packed(made) = &mut self.ring[made]
        {
            made.after = After::ReplacedBy(number);
        }
        let after = match change.kind {
            ChangeKind::Put => After::Is(change.entry.clone()),
            ChangeKind::Delete => After::Gone,
        };
        let packed = Packed { revision: change.revision, after, before, differences };
        let kept = Kept::Packed(Box::new(packed));
        let fresh = self.ring[index].bytes();
        self.fresh_bytes -= fresh;
        self.bytes = self.bytes + kept.bytes() - fresh;
        self.ring[index] = kept;
        self.packed += 1;
    }

    /// Where the change stands that made the version of this revision, and how many versions up to the one
    /// before it are differences. `None` when it is not known, or not the only change of its revision.
    fn maker(&self, revision: Revision) -> Option<(usize, u8)> {
        // Of the changes of the floor's revision, some may be forgotten.
        if revision <= self.floor {
            return None;
        }
        let index = self.index_after(revision).checked_sub(1)?;
        let is_made_here = |index: usize| self.ring[index].revision() == revision;
        if !is_made_here(index) || index.checked_sub(1).is_some_and(is_made_here) {
            return None;
        }
        match &self.ring[index] {
            Kept::Packed(packed) => Some((index, packed.differences)),
            Kept::Fresh(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::tests::{PREFIX, stored_with};
    use crate::random::Random;
    use std::collections::BTreeMap;

    /// A version of an object of some 2 kB, like the others of its key.
    fn version(key: &str, revision: u64, mut random: impl FnMut(u64) -> u64) -> Entry {
        let filler: String = (0..100).map(|n| format!(r#","{key}{n}":"{:08x}""#, n * n)).collect();
        // What changes stands in the middle of it, and may be of any length.
        let (front, back) = filler.split_at(filler.len() / 2);
        let status = "z".repeat(random(40) as usize);
        let labels = [("app", &status[..status.len() / 2])];
        let rest = format!(r#"{front},"status":"{status}{}"{back}"#, random(1 << 40));
        let kv = stored_with(key, &labels[..random(2) as usize], revision, &rest);
        Entry::from_store(PREFIX.len(), &kv).expect("a record")
    }

    fn seen(change: &Change) -> impl PartialEq + std::fmt::Debug + use<> {
        let text = |entry: &Entry| {
            let labels = entry.labels().map(|(name, value)| format!("{name}={value}"));
            let labels: Vec<_> = labels.collect();
            let json = String::from_utf8_lossy(entry.json_slice()).into_owned();
            (entry.key().to_owned(), entry.modified(), labels, json)
        };
        (change.kind, change.revision, text(&change.entry), change.previous.as_ref().map(text))
    }

    struct Writer {
        random: Random,
        history: History,
        objects: BTreeMap<String, Entry>,
        /// All that has happened.
        told: Vec<Change>,
    }

    impl Writer {
        fn new() -> Writer {
            let history = History::new(Revision(0));
            Writer { random: Random(11), history, objects: BTreeMap::new(), told: vec![] }
        }

        /// Creates, changes or deletes the object of a key.
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
            self.told.push(make());
        }

        fn pack(&mut self) {
            let (number, due) = self.history.due();
            self.history.pack(number, due.iter().map(|change| change.difference()).collect());
        }

        /// What a reader is given from a number on, as much at once as there is.
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

    /// However much of it is packed, the history tells what has happened, and the bytes it says it holds
    /// are those it holds.
    #[test]
    fn a_packed_history_tells_what_has_happened() {
        let mut writer = Writer::new();
        let mut revision = 0;
        for turn in 0..3_000_u64 {
            // Often the same few objects, and now and then two changes in one revision.
            let last = revision;
            revision += u64::from(writer.random.below(20) != 0);
            let key = match writer.random.below(4) {
                0 => format!("n/{}", writer.random.below(500)),
                _ => format!("n/{}", writer.random.below(3)),
            };
            let is_written =
                writer.told.iter().rev().take(2).any(|change| change.entry.key() == key);
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
        assert_eq!(history.bytes, history.ring.iter().map(Kept::bytes).sum::<usize>());
        let fresh = history.ring.range(history.ring.len() - fresh..);
        assert_eq!(history.fresh_bytes, fresh.map(Kept::bytes).sum::<usize>());
        let told: Vec<_> = writer.told.iter().filter(|c| c.revision > history.floor()).collect();
        let read = writer.read(history.first);
        assert!(read.iter().map(|c| seen(c)).eq(told.iter().map(|c| seen(c))));
        for at in (history.floor().0..=revision).step_by(97) {
            let number = history.after(Revision(at)).expect("it is known");
            let later = told.iter().filter(|change| change.revision.0 > at);
            assert_eq!(writer.read(number).len(), later.clone().count());
            let mut before = BTreeMap::new();
            for change in later {
                before.entry(change.entry.key()).or_insert(&change.previous);
            }
            let undone: BTreeMap<_, _> =
                history.undone(Revision(at)).expect("it is known").collect();
            let revisions = |entry: &Option<Entry>| entry.as_ref().map(Entry::modified);
            let before = before.into_iter().map(|(key, entry)| (key, revisions(entry)));
            assert!(before.eq(undone.iter().map(|(key, entry)| (*key, revisions(entry)))));
        }
    }

    #[test]
    fn versions_that_were_replaced_take_little_room() {
        for objects in [1, 10_000] {
            let mut writer = Writer::new();
            for revision in 1..=15_000 {
                writer.write(&format!("n/{}", revision % objects), revision, false);
                if revision % 100 == 0 {
                    writer.pack();
                }
            }
            let whole: usize =
                writer.told.iter().filter_map(|c| Some(c.previous.as_ref()?.size())).sum();
            let held = writer.history.bytes;
            assert!(held * 5 < whole, "{held} bytes for {whole}, {objects} objects");
            // Nor is a version that was replaced held by the change that made it.
            let is_past = |kept: &&Kept| match kept {
                Kept::Fresh(_) => false,
                Kept::Packed(packed) => match &packed.after {
                    After::Is(entry) => !writer.objects[entry.key()].is(entry),
                    After::ReplacedBy(_) | After::Gone => false,
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
    fn of_large_objects_few_changes_are_kept_as_they_are() {
        let mut history = History::new(Revision(0));
        let mut last = None;
        let filler = format!(r#","filler":"{}""#, "x".repeat(100 << 10));
        for revision in 1..=FRESH_CHANGES_MAX as u64 {
            let kv = stored_with("n/1", &[], revision, &filler);
            let entry = Entry::from_store(PREFIX.len(), &kv).expect("a record");
            let previous = last.replace(entry.clone());
            history.push(Change::new(ChangeKind::Put, Revision(revision), entry, previous));
            let (number, due) = history.due();
            history.pack(number, due.iter().map(|change| change.difference()).collect());
            assert!(history.fresh_bytes <= FRESH_BYTES_MAX, "{}", history.fresh_bytes);
        }
        assert!(history.fresh_bytes >= FRESH_BYTES_MAX / 4, "{}", history.fresh_bytes);
        assert!(history.bytes < FRESH_BYTES_MAX + (1 << 20), "{}", history.bytes);
    }

    #[test]
    fn what_there_is_no_room_for_is_forgotten() {
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
        let undone = |back: usize| {
            let revision = history.newest().expect("there are changes").0 - back as u64;
            history.undone(Revision(revision)).map(Iterator::count)
        };
        assert_eq!((undone(0), undone(UNDONE_CHANGES_MAX)), (Some(0), Some(1)));
        assert_eq!((undone(UNDONE_CHANGES_MAX + 1), undone(HISTORY_EVENTS_MAX + 1)), (None, None));
        let mut told = writer.told.iter().skip(100).map(seen);
        assert!(writer.read(100).iter().all(|change| Some(seen(change)) == told.next()));
    }
}
