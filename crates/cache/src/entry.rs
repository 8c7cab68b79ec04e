//! One object as the cache keeps it, and as the store keeps it.
//!
//! A *record* is the value in the store: a small header and the object's JSON, in which the place of
//! `metadata.resourceVersion` is known but still a placeholder, because a revision is given only at the
//! commit. An [`Entry`] is the same with the key in front and the revision filled in.
//!
//! ```text
//! record  = format(1 byte = 1) header_len(u32) rv_at(u32) item_at(u32) labels fields json
//! labels  = count(varint) { key value }      fields = count(varint) { name value }
//! text    = length(varint) bytes             numbers are little-endian
//! ```
//!
//! A field without a name, which no selector can ask for, holds what of an object its JSON does not say: the letters
//! of texts that are sent in a compact form (`keelson_schema::json::raw_texts`).
//!
//! A backend that keeps objects in another form gives [`unreadable`] in the place of a record that it
//! cannot make.

use crate::difference;
use crate::tree::{Place, Placed};
use crate::varint::{read_varint, write_varint};
use bytes::Bytes;
use keelson_meta::Str;
use keelson_meta::room::{Kept, passing};
use keelson_store::{KeyValue, Revision};
use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use triomphe::ThinArc;

/// The first byte of every record.
const FORMAT: u8 = 1;
/// The first byte of what stands for an object that cannot be read; the reason follows.
const UNREADABLE: u8 = 2;
/// Bytes before the labels.
const FIXED_BYTES: usize = 13;

/// What a writer knows of an object when it is encoded.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The object as GET answers it, with a one-byte placeholder at `resource_version_at`.
    pub json: &'a [u8],
    /// Place in `json` of the placeholder.
    pub resource_version_at: usize,
    /// Place in `json` after `{"kind":"Pod","apiVersion":"v1",`; 1 for kinds whose list items carry
    /// their kind and version. An item of a list is `{` and what follows.
    pub item_at: usize,
    /// `metadata.labels`.
    pub labels: &'a [(&'a str, &'a str)],
    /// The fields that field selectors may ask for, beyond name and namespace.
    pub fields: &'a [(&'static str, Str)],
}

impl Record<'_> {
    /// The value for the store.
    pub fn encode(&self) -> Bytes {
        let pairs = pairs_bytes(self.labels) + pairs_bytes(self.fields);
        let mut out = passing(FIXED_BYTES + pairs + self.json.len());
        out.push(FORMAT);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&small(self.resource_version_at).to_le_bytes());
        out.extend_from_slice(&small(self.item_at).to_le_bytes());
        write_pairs(self.labels, &mut out);
        write_pairs(self.fields, &mut out);
        let header = small(out.len());
        out[1..5].copy_from_slice(&header.to_le_bytes());
        out.extend_from_slice(self.json);
        Bytes::from(out)
    }

    /// The object's JSON in a value of the store, with the placeholder.
    pub fn json_of(value: &[u8]) -> Result<&[u8], Cow<'static, str>> {
        Parts::of(value).map(|parts| parts.json)
    }
}

/// A value of the store for an object that is there and cannot be read.
pub fn unreadable(why: &str) -> Bytes {
    [&[UNREADABLE], why.as_bytes()].concat().into()
}

/// Places in an object; an object is at most a few MiB.
fn small(place: usize) -> u32 {
    u32::try_from(place).expect("an object is smaller than 4 GiB")
}

/// Bytes that a row of pairs takes.
fn pairs_bytes<T: AsRef<str>>(pairs: &[(&str, T)]) -> usize {
    let number = |number: usize| number.checked_ilog2().unwrap_or(0) as usize / 7 + 1;
    let text = |text: &str| number(text.len()) + text.len();
    let pair = |(key, value): &(&str, T)| text(key) + text(value.as_ref());
    number(pairs.len()) + pairs.iter().map(pair).sum::<usize>()
}

fn write_pairs<T: AsRef<str>>(pairs: &[(&str, T)], out: &mut Vec<u8>) {
    write_varint(pairs.len(), out);
    for (key, value) in pairs {
        write_varint(key.len(), out);
        out.extend_from_slice(key.as_bytes());
        let value = value.as_ref();
        write_varint(value.len(), out);
        out.extend_from_slice(value.as_bytes());
    }
}

/// The parts of a record.
struct Parts<'a> {
    /// Labels and fields.
    pairs: &'a [u8],
    /// Where in `pairs` the fields begin.
    fields_at: usize,
    json: &'a [u8],
    rv_at: usize,
    item_at: usize,
}

impl<'a> Parts<'a> {
    fn of(record: &'a [u8]) -> Result<Parts<'a>, Cow<'static, str>> {
        match record.split_first() {
            Some((&FORMAT, _)) => {}
            Some((&UNREADABLE, why)) => {
                return Err(String::from_utf8_lossy(why).into_owned().into());
            }
            _ => return Err("unknown record format".into()),
        }
        let number = |at: usize| -> Option<usize> {
            let bytes: [u8; 4] = record.get(at..at + 4)?.try_into().ok()?;
            usize::try_from(u32::from_le_bytes(bytes)).ok()
        };
        let (Some(header), Some(rv_at), Some(item_at)) = (number(1), number(5), number(9)) else {
            return Err("truncated header".into());
        };
        let pairs = record.get(FIXED_BYTES..header).ok_or("truncated header")?;
        let json = record.get(header..).ok_or("truncated header")?;
        if rv_at >= json.len() || item_at > json.len() {
            return Err("header does not fit the object".into());
        }
        let fields_at = check_pairs(pairs)?;
        if fields_at + check_pairs(&pairs[fields_at..])? != pairs.len() {
            return Err("header does not fit the object".into());
        }
        Ok(Parts { pairs, fields_at, json, rv_at, item_at })
    }
}

/// Why stored bytes are not a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unable to transform key {key:?}: {why}")]
pub struct RecordError {
    /// The key in the store.
    pub key: String,
    /// The revision of the write that left them.
    pub modified: Revision,
    /// What does not fit.
    pub why: Cow<'static, str>,
}

/// One version of one object, ready to be sent. A clone is the same entry: one buffer with a few numbers in
/// front, counted.
#[derive(Clone)]
pub struct Entry(ThinArc<Head, u8>);

/// What a thread keeps of its draft for the next one.
const DRAFT_BYTES_MAX: usize = 64 << 10;

thread_local! {
    /// Where an entry, or a difference, is put together, before it is copied to the place where it stays.
    static DRAFT: Kept<Vec<u8>> = const { Kept::new(DRAFT_BYTES_MAX) };
}

/// What stands in front of the buffer: key, labels, fields, JSON and a newline, one after the other.
struct Head {
    modified: Revision,
    key_len: u32,
    fields_at: u32,
    json_at: u32,
    item_at: u32,
    /// Place in the buffer of the resourceVersion.
    rv_at: u32,
    /// Bytes of the protobuf message of the object, once somebody has made it; 0: unknown.
    message_bytes: AtomicU32,
}

/// Bytes of an entry beside its buffer: [`Head`], the length, the count.
const HEAD_BYTES: usize = size_of::<Head>() + 2 * size_of::<usize>();

impl Entry {
    /// Takes a stored record. `key` is what stands behind the resource's prefix: `namespace/name` or
    /// `name`.
    pub fn from_store(prefix_len: usize, kv: &KeyValue) -> Result<Entry, RecordError> {
        let broken = |why| RecordError {
            key: String::from_utf8_lossy(&kv.key).into_owned(),
            modified: kv.modified,
            why,
        };
        let fail = |why: &'static str| broken(why.into());
        let Parts { pairs, fields_at, json, rv_at, item_at } =
            Parts::of(&kv.value).map_err(broken)?;
        let key = kv.key.get(prefix_len..).ok_or_else(|| fail("key is shorter than its prefix"))?;
        if std::str::from_utf8(key).is_err() {
            return Err(fail("key is not UTF-8"));
        }
        let head = Head {
            modified: kv.modified,
            key_len: small(key.len()),
            fields_at: small(key.len() + fields_at),
            json_at: small(key.len() + pairs.len()),
            item_at: small(item_at),
            rv_at: small(key.len() + pairs.len() + rv_at),
            message_bytes: AtomicU32::new(0),
        };
        let mut text = itoa::Buffer::new();
        let revision = text.format(kv.modified.0);
        let (before, after) = (&json[..rv_at], &json[rv_at + 1..]);
        Ok(Entry::new(head, &[key, pairs, before, revision.as_bytes(), after, b"\n"]))
    }

    fn new(head: Head, parts: &[&[u8]]) -> Entry {
        let bytes = parts.iter().map(|part| part.len()).sum();
        let mut draft = match bytes > DRAFT_BYTES_MAX {
            true => passing(bytes),
            false => Kept::take(&DRAFT),
        };
        for part in parts {
            draft.extend_from_slice(part);
        }
        let entry = Entry(ThinArc::from_header_and_slice(head, &draft));
        Kept::give_back(&DRAFT, draft);
        entry
    }

    fn head(&self) -> &Head {
        &self.0.header.header
    }

    fn buffer(&self) -> &[u8] {
        &self.0.slice
    }

    /// The revision of this version: its resourceVersion.
    pub fn modified(&self) -> Revision {
        self.head().modified
    }

    /// Whether both are one and the same in memory.
    pub fn is(&self, other: &Entry) -> bool {
        std::ptr::eq(self.head(), other.head())
    }

    /// Whether a record for the store says just what this entry says.
    pub fn is_record(&self, record: &[u8]) -> bool {
        let Ok(Parts { pairs, json, rv_at, .. }) = Parts::of(record) else { return false };
        let (before, after) = self.around_revision();
        let (head, json_at) = (self.head(), self.head().json_at as usize);
        before[head.key_len as usize..json_at] == *pairs
            && before[json_at..] == json[..rv_at]
            && after.strip_suffix(b"\n") == Some(&json[rv_at + 1..])
    }

    /// The buffer before and after the resourceVersion.
    fn around_revision(&self) -> (&[u8], &[u8]) {
        let (before, rest) = self.buffer().split_at(self.head().rv_at as usize);
        (before, &rest[itoa::Buffer::new().format(self.modified().0).len()..])
    }

    /// The same object with another revision: what a deletion shows.
    pub fn at_revision(&self, revision: Revision) -> Entry {
        let (before, after) = self.around_revision();
        let Head { modified: _, key_len, fields_at, json_at, item_at, rv_at, message_bytes: _ } =
            *self.head();
        let message_bytes = AtomicU32::new(0);
        let head =
            Head { modified: revision, key_len, fields_at, json_at, item_at, rv_at, message_bytes };
        Entry::new(head, &[before, itoa::Buffer::new().format(revision.0).as_bytes(), after])
    }

    /// What tells this entry from another version of the same object, when that takes less room than the
    /// entry; [`Entry::without`] gives it back.
    pub(crate) fn difference_from(&self, other: &Entry) -> Option<Box<[u8]>> {
        let buffer = self.buffer();
        if self.head().key_len != other.head().key_len {
            return None;
        }
        let Head { modified, key_len: _, fields_at, json_at, item_at, rv_at, message_bytes: _ } =
            self.head();
        let mut out = Kept::take(&DRAFT);
        out.extend_from_slice(&modified.0.to_le_bytes());
        for number in [*fields_at, *json_at, *item_at, *rv_at] {
            write_varint(number as usize, &mut out);
        }
        difference::write(buffer, other.buffer(), &mut out);
        let difference = (out.len() < buffer.len()).then(|| out.as_slice().into());
        Kept::give_back(&DRAFT, out);
        difference
    }

    /// The version from which this one was told apart by [`Entry::difference_from`].
    pub(crate) fn without(&self, difference: &[u8]) -> Entry {
        self.made_from(difference).expect("it was told apart from this one")
    }

    fn made_from(&self, difference: &[u8]) -> Option<Entry> {
        let (modified, rest) = difference.split_first_chunk()?;
        let mut at = 0;
        let mut number = || Some(small(read_varint(rest, &mut at)?));
        let head = Head {
            modified: Revision(u64::from_le_bytes(*modified)),
            key_len: self.head().key_len,
            fields_at: number()?,
            json_at: number()?,
            item_at: number()?,
            rv_at: number()?,
            message_bytes: AtomicU32::new(0),
        };
        let mut draft = Kept::take(&DRAFT);
        let made = difference::apply(&rest[at..], self.buffer(), &mut draft);
        let entry = made.map(|()| Entry(ThinArc::from_header_and_slice(head, &draft)));
        Kept::give_back(&DRAFT, draft);
        entry
    }

    /// `namespace/name`, or `name` of a cluster-scoped object.
    pub fn key(&self) -> &str {
        text(self.key_bytes())
    }

    /// The same, not checked to be UTF-8 once more.
    pub fn key_bytes(&self) -> &[u8] {
        &self.buffer()[..self.head().key_len as usize]
    }

    /// The namespace; empty for a cluster-scoped object.
    pub fn namespace(&self) -> &str {
        self.key().split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// The name.
    pub fn name(&self) -> &str {
        let key = self.key();
        key.split_once('/').map_or(key, |(_, name)| name)
    }

    /// `metadata.labels`.
    pub fn labels(&self) -> Pairs<'_> {
        Pairs::new(&self.buffer()[self.head().key_len as usize..self.head().fields_at as usize])
    }

    /// The label `key`.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels().find(|(k, _)| *k == key).map(|(_, value)| value)
    }

    /// The selectable field `name`, beyond `metadata.name` and `metadata.namespace`.
    pub fn field(&self, name: &str) -> Option<&str> {
        let pairs = &self.buffer()[self.head().fields_at as usize..self.head().json_at as usize];
        Pairs::new(pairs).find(|(k, _)| *k == name).map(|(_, value)| value)
    }

    /// Where the JSON ends.
    fn end(&self) -> usize {
        self.buffer().len() - 1
    }

    /// Where a text of this entry stands in its buffer, and its length.
    pub(crate) fn place_of(&self, text: &str) -> (u32, u32) {
        let at = text.as_ptr().addr() - self.buffer().as_ptr().addr();
        (small(at), small(text.len()))
    }

    /// The bytes of the text at such a place.
    pub(crate) fn bytes_at(&self, at: u32, length: u32) -> &[u8] {
        &self.buffer()[at as usize..(at + length) as usize]
    }

    /// The object's JSON, shared.
    pub fn json(&self) -> Bytes {
        self.piece(self.end())
    }

    /// The object's JSON with a newline behind it, shared: the body of an answer.
    pub fn json_line(&self) -> Bytes {
        self.piece(self.buffer().len())
    }

    fn piece(&self, end: usize) -> Bytes {
        Bytes::from_owner(Piece { entry: self.clone(), end })
    }

    /// The object's JSON, borrowed.
    pub fn json_slice(&self) -> &[u8] {
        &self.buffer()[self.head().json_at as usize..self.end()]
    }

    /// Whether a text without characters that JSON escapes stands anywhere in the JSON.
    pub fn has_text(&self, wanted: &str) -> bool {
        std::str::from_utf8(self.json_slice()).is_ok_and(|json| json.contains(wanted))
    }

    /// What stands in front of the object's JSON as an item of a list: its `kind` and `apiVersion`.
    pub(crate) fn head_slice(&self) -> &[u8] {
        &self.json_slice()[..self.head().item_at as usize]
    }

    /// The object's JSON as an item of a list, without the `{` in front.
    pub fn item_tail(&self) -> &[u8] {
        &self.json_slice()[self.head().item_at as usize..]
    }

    /// Bytes of the object's protobuf message, when that is known.
    pub fn message_bytes(&self) -> Option<u32> {
        Some(self.head().message_bytes.load(Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// Keeps the length of the object's protobuf message, in its storage version.
    pub fn keep_message_bytes(&self, bytes: u32) {
        self.head().message_bytes.store(bytes, Relaxed);
    }

    /// Bytes of memory that the entry holds.
    pub fn size(&self) -> usize {
        HEAD_BYTES + self.buffer().len()
    }
}

impl fmt::Debug for Entry {
    /// Key and revision only: objects may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.key(), self.modified())
    }
}

/// What of an entry is sent: from its JSON on.
struct Piece {
    entry: Entry,
    end: usize,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.entry.buffer()[self.entry.head().json_at as usize..self.end]
    }
}

/// Bytes that were checked to be UTF-8 when the entry was made.
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// Checks a counted row of pairs at the front of `bytes`, and says how many bytes it takes. Each text is
/// checked by itself: the lengths between them are numbers, and one of 128 or more is not UTF-8.
fn check_pairs(bytes: &[u8]) -> Result<usize, Cow<'static, str>> {
    let mut at = 0;
    let count = read_varint(bytes, &mut at).ok_or("truncated labels or fields")?;
    let texts = count.checked_mul(2).ok_or("truncated labels or fields")?;
    for _ in 0..texts {
        let length = read_varint(bytes, &mut at).ok_or("truncated labels or fields")?;
        let end = at.checked_add(length);
        let text = end.and_then(|end| bytes.get(at..end)).ok_or("truncated labels or fields")?;
        std::str::from_utf8(text).map_err(|_| "a label or field is not UTF-8")?;
        at += length;
    }
    Ok(at)
}

/// Labels or fields, read from an entry's buffer.
#[derive(Clone, Debug)]
pub struct Pairs<'a> {
    bytes: &'a [u8],
    at: usize,
    left: usize,
}

impl<'a> Pairs<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let mut at = 0;
        let left = read_varint(bytes, &mut at).unwrap_or(0);
        Pairs { bytes, at, left }
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = read_varint(self.bytes, &mut self.at)?;
        let bytes = self.bytes.get(self.at..self.at + length)?;
        self.at += length;
        Some(text(bytes))
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        Some((self.text()?, self.text()?))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

/// The pairs were counted and found whole when the entry was made.
impl ExactSizeIterator for Pairs<'_> {}

impl Placed for Entry {
    fn place(&self) -> Place<'_> {
        (b"", self.key_bytes())
    }
}

/// The place of the object of this key among the objects of its resource.
pub(crate) fn by_key(key: &str) -> Place<'_> {
    (b"", key.as_bytes())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The prefix of the keys of test objects.
    pub(crate) const PREFIX: &str = "/registry/ks/";

    pub(crate) fn stored(key: &str, labels: &[(&str, &str)], revision: u64) -> KeyValue {
        stored_with(key, labels, revision, r#","x":1"#)
    }

    /// An object with further members.
    pub(crate) fn stored_with(
        key: &str,
        labels: &[(&str, &str)],
        revision: u64,
        more: &str,
    ) -> KeyValue {
        let json = r#"{"kind":"K","apiVersion":"v1","metadata":{"resourceVersion":"0"}"#;
        let at = json.len() - 3;
        let json = format!("{json}{more}}}");
        let record = Record {
            json: json.as_bytes(),
            resource_version_at: at,
            item_at: 30,
            labels,
            fields: &[("spec.nodeName", "n1".into())],
        };
        KeyValue {
            key: Bytes::from(format!("{PREFIX}{key}")),
            value: record.encode(),
            created: Revision(1),
            modified: Revision(revision),
        }
    }

    #[test]
    fn the_revision_is_filled_in_and_the_rest_is_found_again() {
        let kv = stored("ns/a", &[("app", "web"), ("tier", "")], 1234);
        let entry = Entry::from_store(PREFIX.len(), &kv).unwrap();
        assert_eq!((entry.namespace(), entry.name()), ("ns", "a"));
        assert_eq!(entry.labels().collect::<Vec<_>>(), [("app", "web"), ("tier", "")]);
        assert_eq!(entry.field("spec.nodeName"), Some("n1"));
        assert_eq!(
            text(&entry.json()),
            r#"{"kind":"K","apiVersion":"v1","metadata":{"resourceVersion":"1234"},"x":1}"#
        );
        assert_eq!(text(&entry.json_line()), format!("{}\n", text(entry.json_slice())));
        assert_eq!(text(entry.item_tail()), r#""metadata":{"resourceVersion":"1234"},"x":1}"#);
    }

    #[test]
    fn an_entry_knows_the_record_that_says_the_same() {
        let kv = stored("ns/a", &[("app", "web")], 1234);
        let entry = Entry::from_store(PREFIX.len(), &kv).unwrap();
        assert!(entry.is_record(&kv.value));
        let other = stored("ns/a", &[("app", "wet")], 1234);
        assert!(!entry.is_record(&other.value));
        for place in FIXED_BYTES..kv.value.len() {
            let mut value = kv.value.to_vec();
            value[place] ^= 1;
            let placeholder = Parts::of(&kv.value).map(|p| kv.value.len() - p.json.len() + p.rv_at);
            assert_eq!(entry.is_record(&value), Ok(place) == placeholder, "{place}");
        }
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        let kv = KeyValue { value: unreadable("it is a riddle"), ..stored("ns/a", &[], 7) };
        let error = Entry::from_store(PREFIX.len(), &kv).unwrap_err();
        let said = "unable to transform key \"/registry/ks/ns/a\": it is a riddle";
        assert_eq!(error.to_string(), said);
    }

    #[test]
    fn broken_records_are_refused_and_never_panic() {
        let kv = stored("ns/a", &[("app", "web")], 7);
        for length in 0..kv.value.len() {
            for byte in [0u8, 0xff] {
                let mut value = kv.value.to_vec();
                value[length] = byte;
                let broken = KeyValue { value: value.into(), ..kv.clone() };
                let _ = Entry::from_store(13, &broken);
            }
            let cut = KeyValue { value: kv.value.slice(..length), ..kv.clone() };
            if length < 40 {
                assert!(Entry::from_store(13, &cut).is_err(), "{length}");
            }
        }
    }
}
