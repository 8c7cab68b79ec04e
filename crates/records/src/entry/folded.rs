//! Entries that hold the difference from another object's JSON.

use super::{Entry, Head, SCRATCH};
use crate::difference;
use crate::varint::{read_varint, write_varint};
use keelson_meta::scratch::Scratch;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use triomphe::ThinArc;

/// Entries with less JSON than this are not folded: the base and the pairs are most of them.
const FOLDED_BYTES_MIN: usize = 512;
/// Entries with more JSON than this are not folded: they are few, and take long to compare.
const FOLDED_BYTES_MAX: usize = 32 << 10;
/// The part of its JSON that the difference of a folded entry may take: one of so many.
const FOLDED_PART: usize = 3;

impl Entry {
    /// Returns whether the entry holds a difference from another object's JSON.
    pub fn is_folded(&self) -> bool {
        self.head().base.is_some()
    }

    /// Returns the entry onto which this one is folded; itself if it is not.
    pub fn base(&self) -> &Entry {
        self.head().base.as_ref().unwrap_or(self)
    }

    /// Returns whether other entries may be folded onto this one, and this one onto others.
    pub fn may_be_base(&self) -> bool {
        !self.is_folded() && (FOLDED_BYTES_MIN..FOLDED_BYTES_MAX).contains(&self.json_len())
    }

    /// Returns this entry folded onto another one; `None` when the difference would be more than
    /// the third part of its JSON.
    pub fn fold_onto(&self, base: &Entry) -> Option<Entry> {
        let is_like = self.may_be_base()
            && base.may_be_base()
            && self.json_len().abs_diff(base.json_len()) < self.json_len() / FOLDED_PART
            && self.head_slice() == base.head_slice();
        if !is_like {
            return None;
        }
        let json = self.json_of_whole();
        let other = base.json_of_whole();
        let mut buffer = Scratch::take(&SCRATCH);
        let json_at = self.head().json_at as usize;
        buffer.extend_from_slice(&self.buffer()[..json_at]);
        write_varint(json.len(), &mut buffer);
        let end = buffer.len() + json.len() / FOLDED_PART;
        let fits = difference::write_below(json, other, &mut buffer, end);
        let entry = fits.then(|| {
            let message_bytes = AtomicU32::new(self.head().message_bytes.load(Relaxed));
            let base = Some(base.clone());
            let head = Head { message_bytes, base, ..self.head().of_whole() };
            Entry(ThinArc::from_header_and_slice(head, &buffer))
        });
        Scratch::put_back(&SCRATCH, buffer);
        entry
    }

    /// Returns the length of a folded entry's JSON, and the difference from its base.
    pub(super) fn folded(&self) -> (usize, &[u8]) {
        let buffer = self.buffer();
        let mut at = self.head().json_at as usize;
        let length = read_varint(buffer, &mut at).unwrap_or(0);
        (length, &buffer[at..])
    }

    /// Appends the JSON of a folded entry.
    pub(super) fn write_folded(&self, base: &Entry, out: &mut Vec<u8>) {
        let made = difference::apply(self.folded().1, base.json_of_whole(), out);
        made.expect("the difference is from this base");
    }

    /// Returns this entry with its JSON in its buffer.
    pub(super) fn whole(&self) -> Entry {
        let head = self.head();
        let Some(base) = &head.base else { return self.clone() };
        let mut buffer = Scratch::take(&SCRATCH);
        buffer.extend_from_slice(&self.buffer()[..head.json_at as usize]);
        self.write_folded(base, &mut buffer);
        buffer.push(b'\n');
        let entry = Entry(ThinArc::from_header_and_slice(head.of_whole(), &buffer));
        Scratch::put_back(&SCRATCH, buffer);
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::text;
    use crate::testing::{PREFIX, stored_with};
    use keelson_store::Revision;

    fn item(entry: &Entry) -> Vec<u8> {
        let mut out = vec![];
        entry.put_item_tail(&mut out);
        out
    }

    /// Returns a pod-like object of 1 kB; `member` is in its middle.
    fn alike(key: &str, revision: u64, member: &str) -> Entry {
        let filler: String = (0..40).map(|n| format!(r#","m{n}":"{:08x}""#, n * 7919)).collect();
        let (front, back) = filler.split_at(filler.len() / 2);
        let more = format!(r#"{front},"is":"{member}"{back}"#);
        let kv = stored_with(key, &[("app", member)], revision, &more);
        Entry::from_store(PREFIX.len(), &kv).unwrap()
    }

    #[test]
    fn a_folded_entry_is_the_same_object_in_fewer_bytes() {
        let base = alike("ns/a", 3, "first");
        for member in ["", "f", "first", "quite another one", "\u{00e4}\u{1f600}"] {
            let whole = alike("ns/bb", 1_000, member);
            let folded = whole.fold_onto(&base).unwrap();
            assert!(folded.is_folded() && folded.base().ptr_eq(&base));
            assert!(folded.size() * 3 < whole.size(), "{} of {}", folded.size(), whole.size());
            assert_eq!((folded.key(), folded.modified()), (whole.key(), whole.modified()));
            assert!(folded.labels().eq(whole.labels()));
            assert_eq!(folded.field("spec.nodeName"), whole.field("spec.nodeName"));
            assert_eq!(text(&folded.json_slice()), text(&whole.json_slice()));
            assert_eq!(folded.json_len(), whole.json_len());
            assert_eq!(folded.unfolded_size(), whole.size());
            assert_eq!(folded.head_slice(), whole.head_slice());
            assert_eq!(text(&item(&folded)), text(&item(&whole)));
            assert_eq!(folded.item_len(), item(&whole).len());
            assert_eq!((folded.json(), folded.json_line()), (whole.json(), whole.json_line()));
            assert!(folded.has_text(member) && !folded.has_text("it is not there"));
            // Deletions, differences of versions and comparisons with the store.
            let at = |entry: &Entry| entry.at_revision(Revision(7)).json();
            assert_eq!(at(&folded), at(&whole));
            let next = alike("ns/bb", 1_001, "next");
            let difference = folded.difference_from(&next).unwrap();
            assert_eq!(next.apply_difference(&difference).json(), whole.json());
            let next = next.fold_onto(&base).unwrap();
            assert_eq!(next.apply_difference(&difference).json(), whole.json());
        }
        let kv = stored_with("ns/c", &[], 9, &format!(r#","x":"{}""#, "x".repeat(900)));
        let whole = Entry::from_store(PREFIX.len(), &kv).unwrap();
        let folded = whole.fold_onto(&whole).unwrap();
        assert!(folded.has_content_of(&kv.value));
        let other = stored_with("ns/c", &[], 9, &format!(r#","x":"{}""#, "y".repeat(900)));
        assert!(!folded.has_content_of(&other.value));
    }

    #[test]
    fn objects_that_differ_are_small_or_large_are_not_folded() {
        let of = |more: &str| {
            Entry::from_store(PREFIX.len(), &stored_with("ns/a", &[], 3, more)).unwrap()
        };
        let texts = ["a", "b"].map(|text| of(&format!(r#","x":"{}""#, text.repeat(2_000))));
        assert!(texts[0].fold_onto(&texts[1]).is_none());
        let small = of(&format!(r#","x":"{}""#, "x".repeat(FOLDED_BYTES_MIN / 2)));
        assert!(!small.may_be_base() && small.fold_onto(&small).is_none());
        let large = of(&format!(r#","x":"{}""#, "x".repeat(FOLDED_BYTES_MAX)));
        assert!(!large.may_be_base() && large.fold_onto(&large).is_none());
        let base = alike("ns/a", 3, "first");
        let folded = alike("ns/b", 4, "other").fold_onto(&base).unwrap();
        assert!(base.fold_onto(&folded).is_none(), "a folded entry is not a base");
    }
}
