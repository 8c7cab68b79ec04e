//! [`Record`] and [`Entry`]: one object in the store and in the cache.
//!
//! A *record* is the value in the store: a small header and the object's JSON. The offset of
//! `metadata.resourceVersion` is known, but its value is a placeholder, because the revision is
//! assigned at commit. An [`Entry`] is a record with the key in front and the revision filled in.
//!
//! ```text
//! record  = format(1 byte = 1) header_len(u32) rv_at(u32) item_at(u32) labels fields json
//! labels  = count(varint) { key value }      fields = count(varint) { name value }
//! text    = length(varint) bytes             numbers are little-endian
//! ```
//!
//! A field with an empty name, which no selector can name, holds data that the JSON does not
//! contain: raw texts that are sent in compact form (`keelson_schema::json::raw_texts`).
//!
//! A backend that stores objects in another form returns [`unreadable`] for an object that it
//! cannot convert to a record.

mod folded;

use crate::difference;
use crate::tree::{HasSortKey, SortKey};
use crate::varint::{read_varint, write_varint};
use bytes::{BufMut, Bytes};
use keelson_meta::Str;
use keelson_meta::scratch::{Scratch, transient_buffer};
use keelson_store::{KeyValue, Revision};
use memchr::memmem;
use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use triomphe::ThinArc;

/// The first byte of every record.
const FORMAT: u8 = 1;
/// The first byte of a value that stands for an unreadable object; the reason follows.
const UNREADABLE: u8 = 2;
/// What encrypted values begin with.
pub const ENCRYPTED: &[u8] = b"k8s:enc:";
/// The message for an encrypted value that nothing has decrypted, as upstream.
pub const NOT_DECRYPTED: &str = "identity transformer tried to read encrypted data";
/// Bytes before the labels.
const FIXED_BYTES: usize = 13;

/// The parts of a stored object, as a writer encodes them.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The object as GET returns it, with a one-byte placeholder at `resource_version_at`.
    pub json: &'a [u8],
    /// Offset of the placeholder in `json`.
    pub resource_version_at: usize,
    /// Offset in `json` after `{"kind":"Pod","apiVersion":"v1",`; 1 for kinds whose list items have
    /// kind and apiVersion. A list item is `{` and the rest of `json` from here.
    pub item_at: usize,
    /// `metadata.labels`.
    pub labels: &'a [(&'a str, &'a str)],
    /// Selectable fields other than name and namespace.
    pub fields: &'a [(&'static str, Str)],
}

impl Record<'_> {
    /// Encodes the record as a value for the store.
    pub fn encode(&self) -> Bytes {
        let pairs = pairs_bytes(self.labels) + pairs_bytes(self.fields);
        let mut out = transient_buffer(FIXED_BYTES + pairs + self.json.len());
        out.push(FORMAT);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&to_u32(self.resource_version_at).to_le_bytes());
        out.extend_from_slice(&to_u32(self.item_at).to_le_bytes());
        write_pairs(self.labels, &mut out);
        write_pairs(self.fields, &mut out);
        let header = to_u32(out.len());
        out[1..5].copy_from_slice(&header.to_le_bytes());
        out.extend_from_slice(self.json);
        Bytes::from(out)
    }

    /// Returns the object's JSON in a stored value, with the placeholder.
    pub fn json_of(value: &[u8]) -> Result<&[u8], Cow<'static, str>> {
        Parts::parse(value).map(|parts| parts.json)
    }
}

/// Returns a stored value for an object that exists and cannot be read.
pub fn unreadable(why: &str) -> Bytes {
    [&[UNREADABLE], why.as_bytes()].concat().into()
}

/// Returns whether a stored value stands for an object that cannot be read.
pub fn is_unreadable(value: &[u8]) -> bool {
    value.first() == Some(&UNREADABLE)
}

/// Converts an offset in an object; an object has at most a few MiB.
fn to_u32(offset: usize) -> u32 {
    u32::try_from(offset).expect("an object is smaller than 4 GiB")
}

/// Returns the encoded length of a list of pairs.
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

/// The parts of an encoded record.
struct Parts<'a> {
    /// Labels and fields.
    pairs: &'a [u8],
    /// Offset of the fields in `pairs`.
    fields_at: usize,
    json: &'a [u8],
    rv_at: usize,
    item_at: usize,
}

impl<'a> Parts<'a> {
    fn parse(record: &'a [u8]) -> Result<Parts<'a>, Cow<'static, str>> {
        match record.split_first() {
            Some((&FORMAT, _)) => {}
            Some((&UNREADABLE, why)) => {
                return Err(String::from_utf8_lossy(why).into_owned().into());
            }
            _ if record.starts_with(ENCRYPTED) => return Err(NOT_DECRYPTED.into()),
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

/// A stored value that is not a valid record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unable to transform key {key:?}: {why}")]
pub struct RecordError {
    /// The key in the store.
    pub key: String,
    /// The revision of the write.
    pub modified: Revision,
    /// The reason.
    pub why: Cow<'static, str>,
}

/// One version of one object, ready to be sent. Clones share one reference-counted buffer.
///
/// An entry may be *folded* onto another object's that is much alike, such as a pod of the same
/// ReplicaSet: instead of its JSON it then holds the difference from the other's. Whoever asks for
/// the JSON of a folded entry gets a new text.
#[derive(Clone)]
pub struct Entry(ThinArc<Head, u8>);

/// Capacity of the scratch buffer that a thread keeps.
const SCRATCH_BYTES_MAX: usize = 64 << 10;

thread_local! {
    /// Scratch buffer in which an entry or a difference is built before it is copied to its final
    /// allocation.
    static SCRATCH: Scratch<Vec<u8>> = const { Scratch::new(SCRATCH_BYTES_MAX) };
}

/// The header of the buffer. The buffer holds key, labels, fields, JSON and a newline; that of a
/// folded entry key, labels, fields, the length of the JSON (varint) and a difference.
struct Head {
    modified: Revision,
    key_len: u32,
    fields_at: u32,
    json_at: u32,
    item_at: u32,
    /// Offset of the resourceVersion in the buffer.
    rv_at: u32,
    /// Length of the object's protobuf message once it was computed; 0: unknown.
    message_bytes: AtomicU32,
    /// The entry from whose JSON the buffer has a difference. It is not folded itself.
    base: Option<Entry>,
}

impl Head {
    /// Returns the head of the same version, not folded, its protobuf message not computed.
    fn of_whole(&self) -> Head {
        let Head { modified, key_len, fields_at, json_at, item_at, rv_at, .. } = *self;
        let message_bytes = AtomicU32::new(0);
        Head { modified, key_len, fields_at, json_at, item_at, rv_at, message_bytes, base: None }
    }
}

/// Bytes of an entry besides its buffer: [`Head`], the length and the reference count.
const HEAD_BYTES: usize = size_of::<Head>() + 2 * size_of::<usize>();

impl Entry {
    /// Decodes a stored record. The entry's key is the part after the resource's prefix:
    /// `namespace/name` or `name`.
    pub fn from_store(prefix_len: usize, kv: &KeyValue) -> Result<Entry, RecordError> {
        let broken = |why| RecordError {
            key: String::from_utf8_lossy(&kv.key).into_owned(),
            modified: kv.modified,
            why,
        };
        let fail = |why: &'static str| broken(why.into());
        let Parts { pairs, fields_at, json, rv_at, item_at } =
            Parts::parse(&kv.value).map_err(broken)?;
        let key = kv.key.get(prefix_len..).ok_or_else(|| fail("key is shorter than its prefix"))?;
        if std::str::from_utf8(key).is_err() {
            return Err(fail("key is not UTF-8"));
        }
        let head = Head {
            modified: kv.modified,
            key_len: to_u32(key.len()),
            fields_at: to_u32(key.len() + fields_at),
            json_at: to_u32(key.len() + pairs.len()),
            item_at: to_u32(item_at),
            rv_at: to_u32(key.len() + pairs.len() + rv_at),
            message_bytes: AtomicU32::new(0),
            base: None,
        };
        let mut text = itoa::Buffer::new();
        let revision = text.format(kv.modified.0);
        let before = &json[..rv_at];
        let after = &json[rv_at + 1..];
        Ok(Entry::new(head, &[key, pairs, before, revision.as_bytes(), after, b"\n"]))
    }

    fn new(head: Head, parts: &[&[u8]]) -> Entry {
        let bytes = parts.iter().map(|part| part.len()).sum();
        let mut buffer = match bytes > SCRATCH_BYTES_MAX {
            true => transient_buffer(bytes),
            false => Scratch::take(&SCRATCH),
        };
        for part in parts {
            buffer.extend_from_slice(part);
        }
        let entry = Entry(ThinArc::from_header_and_slice(head, &buffer));
        Scratch::put_back(&SCRATCH, buffer);
        entry
    }

    #[inline]
    fn head(&self) -> &Head {
        &self.0.header.header
    }

    #[inline]
    fn buffer(&self) -> &[u8] {
        &self.0.slice
    }

    /// Returns the revision of this version: its resourceVersion.
    #[inline]
    pub fn modified(&self) -> Revision {
        self.head().modified
    }

    /// Returns whether both are the same allocation.
    pub fn ptr_eq(&self, other: &Entry) -> bool {
        std::ptr::eq(self.head(), other.head())
    }

    /// Returns whether a stored record has the same content as this entry, except for the revision.
    pub fn has_content_of(&self, record: &[u8]) -> bool {
        let Ok(Parts { pairs, json, rv_at, .. }) = Parts::parse(record) else { return false };
        let whole = self.whole();
        let (before, after) = whole.split_at_revision();
        let head = self.head();
        let json_at = self.head().json_at as usize;
        before[head.key_len as usize..json_at] == *pairs
            && before[json_at..] == json[..rv_at]
            && after.strip_suffix(b"\n") == Some(&json[rv_at + 1..])
    }

    /// Returns the buffer before and after the resourceVersion, of an entry that is not folded.
    fn split_at_revision(&self) -> (&[u8], &[u8]) {
        let (before, rest) = self.buffer().split_at(self.head().rv_at as usize);
        (before, &rest[itoa::Buffer::new().format(self.modified().0).len()..])
    }

    /// Returns the same object with another revision, as a deletion event shows it.
    pub fn at_revision(&self, revision: Revision) -> Entry {
        let whole = self.whole();
        let (before, after) = whole.split_at_revision();
        let head = Head { modified: revision, ..self.head().of_whole() };
        Entry::new(head, &[before, itoa::Buffer::new().format(revision.0).as_bytes(), after])
    }

    /// Returns the difference from which [`Entry::apply_difference`] on `other` rebuilds this
    /// entry; `None` when it would not be smaller than the entry.
    pub fn difference_from(&self, other: &Entry) -> Option<Box<[u8]>> {
        if self.head().key_len != other.head().key_len {
            return None;
        }
        let old = self.whole();
        let new = other.whole();
        let buffer = old.buffer();
        let Head { modified, fields_at, json_at, item_at, rv_at, .. } = old.head();
        let mut out = Scratch::take(&SCRATCH);
        out.extend_from_slice(&modified.0.to_le_bytes());
        for number in [*fields_at, *json_at, *item_at, *rv_at] {
            write_varint(number as usize, &mut out);
        }
        difference::write(buffer, new.buffer(), &mut out);
        let difference = (out.len() < buffer.len()).then(|| out.as_slice().into());
        Scratch::put_back(&SCRATCH, out);
        difference
    }

    /// Rebuilds the version whose difference from this one [`Entry::difference_from`] returned.
    /// Panics when the difference is from another version.
    pub fn apply_difference(&self, difference: &[u8]) -> Entry {
        self.try_apply_difference(difference).expect("the difference is from this version")
    }

    fn try_apply_difference(&self, difference: &[u8]) -> Option<Entry> {
        let (modified, rest) = difference.split_first_chunk()?;
        let mut at = 0;
        let mut number = || Some(to_u32(read_varint(rest, &mut at)?));
        let head = Head {
            modified: Revision(u64::from_le_bytes(*modified)),
            key_len: self.head().key_len,
            fields_at: number()?,
            json_at: number()?,
            item_at: number()?,
            rv_at: number()?,
            message_bytes: AtomicU32::new(0),
            base: None,
        };
        let mut buffer = Scratch::take(&SCRATCH);
        let made = difference::apply(&rest[at..], self.whole().buffer(), &mut buffer);
        let entry = made.map(|()| Entry(ThinArc::from_header_and_slice(head, &buffer)));
        Scratch::put_back(&SCRATCH, buffer);
        entry
    }

    /// Returns `namespace/name`, or `name` of a cluster-scoped object.
    pub fn key(&self) -> &str {
        text(self.key_bytes())
    }

    /// Returns [`Entry::key`] as bytes, without another UTF-8 check.
    #[inline]
    pub fn key_bytes(&self) -> &[u8] {
        &self.buffer()[..self.head().key_len as usize]
    }

    /// Returns the namespace; empty for a cluster-scoped object.
    pub fn namespace(&self) -> &str {
        self.key().split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        let key = self.key();
        key.split_once('/').map_or(key, |(_, name)| name)
    }

    /// Returns `metadata.labels`.
    pub fn labels(&self) -> Pairs<'_> {
        Pairs::new(&self.buffer()[self.head().key_len as usize..self.head().fields_at as usize])
    }

    /// Returns the value of the label `key`.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels().find(|(k, _)| *k == key).map(|(_, value)| value)
    }

    /// Returns the selectable field `name`, other than `metadata.name` and `metadata.namespace`.
    pub fn field(&self, name: &str) -> Option<&str> {
        let pairs = &self.buffer()[self.head().fields_at as usize..self.head().json_at as usize];
        Pairs::new(pairs).find(|(k, _)| *k == name).map(|(_, value)| value)
    }

    /// Returns the end of the JSON, of an entry that is not folded.
    #[inline]
    fn end(&self) -> usize {
        self.buffer().len() - 1
    }

    /// Returns offset and length in the buffer of a text that this entry returned.
    pub fn offset_of(&self, text: &str) -> (u32, u32) {
        let at = text.as_ptr().addr() - self.buffer().as_ptr().addr();
        (to_u32(at), to_u32(text.len()))
    }

    /// Returns the bytes at such an offset.
    #[inline]
    pub fn bytes_at(&self, at: u32, length: u32) -> &[u8] {
        &self.buffer()[at as usize..(at + length) as usize]
    }

    /// Returns the object's JSON, sharing the buffer.
    pub fn json(&self) -> Bytes {
        self.whole().into_piece(0)
    }

    /// Returns the object's JSON with a trailing newline, sharing the buffer: the body of a
    /// response.
    pub fn json_line(&self) -> Bytes {
        self.whole().into_piece(1)
    }

    /// Returns the JSON and `more` bytes behind it, of an entry that is not folded.
    fn into_piece(self, more: usize) -> Bytes {
        let end = self.end() + more;
        Bytes::from_owner(Piece { entry: self, end })
    }

    /// Returns the object's JSON.
    #[inline]
    pub fn json_slice(&self) -> Cow<'_, [u8]> {
        let Some(base) = &self.head().base else { return Cow::Borrowed(self.json_of_whole()) };
        let mut out = Vec::with_capacity(self.folded().0);
        self.write_folded(base, &mut out);
        Cow::Owned(out)
    }

    /// Returns the JSON of an entry that is not folded.
    #[inline]
    fn json_of_whole(&self) -> &[u8] {
        &self.buffer()[self.head().json_at as usize..self.end()]
    }

    /// Returns the length of the object's JSON.
    #[inline]
    pub fn json_len(&self) -> usize {
        match self.head().base {
            None => self.json_of_whole().len(),
            Some(_) => self.folded().0,
        }
    }

    /// Returns whether the JSON contains a text, which must not need JSON escapes.
    pub fn has_text(&self, wanted: &str) -> bool {
        memmem::find(&self.json_slice(), wanted.as_bytes()).is_some()
    }

    /// Returns the start of the JSON that list items omit: `kind` and `apiVersion`.
    pub fn head_slice(&self) -> &[u8] {
        &self.base().json_of_whole()[..self.head().item_at as usize]
    }

    /// Appends the object's JSON as a list item, without the leading `{`.
    #[inline]
    pub fn put_item_tail(&self, out: &mut impl BufMut) {
        let item_at = self.head().item_at as usize;
        let Some(base) = &self.head().base else {
            return out.put_slice(&self.json_of_whole()[item_at..]);
        };
        let mut skipped = item_at;
        let made = difference::for_each_piece(self.folded().1, base.json_of_whole(), |piece| {
            let skips = skipped.min(piece.len());
            skipped -= skips;
            out.put_slice(&piece[skips..]);
        });
        made.expect("the difference is from this base");
    }

    /// Returns the length of what [`Entry::put_item_tail`] appends.
    #[inline]
    pub fn item_len(&self) -> usize {
        self.json_len() - self.head().item_at as usize
    }

    /// Returns the length of the object's protobuf message, if it was set.
    pub fn message_bytes(&self) -> Option<u32> {
        Some(self.head().message_bytes.load(Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// Sets the length of the object's protobuf message, in its storage version.
    pub fn set_message_bytes(&self, bytes: u32) {
        self.head().message_bytes.store(bytes, Relaxed);
    }

    /// Returns the bytes of memory of this entry; its base, which others share, is not counted.
    pub fn size(&self) -> usize {
        HEAD_BYTES + self.buffer().len()
    }

    /// Returns what [`Entry::size`] is of the same version when it is not folded.
    pub fn unfolded_size(&self) -> usize {
        HEAD_BYTES + self.head().json_at as usize + self.json_len() + 1
    }
}

impl fmt::Debug for Entry {
    /// Prints key and revision only: objects may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.key(), self.modified())
    }
}

/// The part of an entry that is sent: the JSON, to `end`.
struct Piece {
    entry: Entry,
    end: usize,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.entry.buffer()[self.entry.head().json_at as usize..self.end]
    }
}

/// `bytes` were checked to be UTF-8 when the entry was made.
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// Validates a counted list of pairs at the start of `bytes` and returns its length. Each text is
/// validated alone: the lengths between them are binary, and one of 128 or more is not UTF-8.
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

/// Iterates over labels or fields in an entry's buffer.
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

/// The pairs were counted and validated when the entry was made.
impl ExactSizeIterator for Pairs<'_> {}

impl HasSortKey for Entry {
    #[inline]
    fn sort_key(&self) -> SortKey<'_> {
        (b"", self.key_bytes())
    }
}

/// Returns the sort key of the object with this key among the objects of its resource.
#[inline]
pub fn by_key(key: &str) -> SortKey<'_> {
    (b"", key.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{PREFIX, stored};

    #[test]
    fn a_record_round_trips_with_its_revision() {
        let kv = stored("ns/a", &[("app", "web"), ("tier", "")], 1234);
        let entry = Entry::from_store(PREFIX.len(), &kv).unwrap();
        assert_eq!((entry.namespace(), entry.name()), ("ns", "a"));
        assert_eq!(entry.labels().collect::<Vec<_>>(), [("app", "web"), ("tier", "")]);
        assert_eq!(entry.field("spec.nodeName"), Some("n1"));
        assert_eq!(
            text(&entry.json()),
            r#"{"kind":"K","apiVersion":"v1","metadata":{"resourceVersion":"1234"},"x":1}"#
        );
        assert_eq!(text(&entry.json_line()), format!("{}\n", text(&entry.json_slice())));
        let mut item = vec![];
        entry.put_item_tail(&mut item);
        assert_eq!(text(&item), r#""metadata":{"resourceVersion":"1234"},"x":1}"#);
    }

    #[test]
    fn content_equality_ignores_the_revision() {
        let kv = stored("ns/a", &[("app", "web")], 1234);
        let entry = Entry::from_store(PREFIX.len(), &kv).unwrap();
        assert!(entry.has_content_of(&kv.value));
        let other = stored("ns/a", &[("app", "wet")], 1234);
        assert!(!entry.has_content_of(&other.value));
        for offset in FIXED_BYTES..kv.value.len() {
            let mut value = kv.value.to_vec();
            value[offset] ^= 1;
            let placeholder =
                Parts::parse(&kv.value).map(|p| kv.value.len() - p.json.len() + p.rv_at);
            assert_eq!(entry.has_content_of(&value), Ok(offset) == placeholder, "{offset}");
        }
    }

    #[test]
    fn unreadable_records_return_the_reason() {
        let kv = KeyValue { value: unreadable("it is a riddle"), ..stored("ns/a", &[], 7) };
        let error = Entry::from_store(PREFIX.len(), &kv).unwrap_err();
        let said = "unable to transform key \"/registry/ks/ns/a\": it is a riddle";
        assert_eq!(error.to_string(), said);
    }

    #[test]
    fn invalid_records_are_errors_and_never_panic() {
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
