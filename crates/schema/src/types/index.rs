//! Finds a field of a struct by name, which decoders and encoders do for every field.

use super::Field;

/// An index of field names: by hash, by their first bytes, by address, and as JSON keys.
#[derive(Clone, Debug, Default)]
pub(super) struct NameIndex {
    /// Hash table of field indices, with open addressing. Invariant: at least half of it is empty,
    /// and each field is in the first free slot from that of its hash.
    slots: Box<[u16]>,
    shift: u32,
    /// The first four bytes of `name":` for each field.
    heads: Box<[u32]>,
    /// The address of each name; 0 for an inline name, which moves with its field.
    addresses: Box<[usize]>,
    /// `,"name":` for each field.
    keys: Box<[Key]>,
}

/// `,"name":` of a field.
#[derive(Clone, Debug)]
struct Key {
    /// The beginning, padded with zeros. A copy of constant length needs no function call.
    short: [u8; KEY_SHORT_BYTES],
    /// Mask of the bytes of `name":` among the first [`KEY_FIRST_BYTES`].
    first_mask: u128,
    /// Length of the whole key.
    length: u32,
    /// The whole key, if it is longer than `short`.
    long: Option<Box<[u8]>>,
}

/// Nearly all keys are at most this long.
const KEY_SHORT_BYTES: usize = 32;

/// Bytes of a name that are compared at once.
const KEY_FIRST_BYTES: usize = 16;

const EMPTY: u16 = u16::MAX;

/// Offset of the name in a key, after `,"`.
const KEY_NAME_AT: usize = 2;

impl NameIndex {
    /// Creates the index. Panics with 65535 fields or more.
    pub fn new(fields: &[Field]) -> Self {
        let size = (fields.len() * 2).next_power_of_two();
        let mut slots = vec![EMPTY; size].into_boxed_slice();
        let shift = u32::BITS - size.ilog2();
        for (field, place) in fields.iter().zip(0..) {
            assert!(place != EMPTY, "a struct has fewer than 65535 fields");
            let mut at = slot(field.name.as_bytes(), shift);
            while slots[at] != EMPTY {
                at = (at + 1) & (size - 1);
            }
            slots[at] = place;
        }
        let heads = fields.iter().map(|field| head(field.name.as_bytes())).collect();
        let addresses = fields.iter().map(address).collect();
        let mut buffer = vec![];
        let keys = fields.iter().map(|field| Key::new(field, &mut buffer)).collect();
        NameIndex { slots, shift, heads, addresses, keys }
    }

    /// Returns the index of the field with this name.
    pub fn position(&self, fields: &[Field], name: &str) -> Option<usize> {
        let mut at = slot(name.as_bytes(), self.shift);
        loop {
            // A struct without fields has at most one slot, which is empty.
            let place = *self.slots.get(at)?;
            let field = fields.get(usize::from(place))?;
            if field.name.as_str() == name {
                return Some(usize::from(place));
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    /// Returns the index of the field with this name at or after `from`, if the name is the field's
    /// own string or a clone of it. This holds for decoded objects, whose members are mostly in
    /// order.
    #[inline]
    pub fn next(&self, from: usize, name: &str) -> Option<usize> {
        let place = place_of(&self.addresses, from, name.as_ptr().addr())?;
        (self.keys.get(place)?.length() == name.len() + KEY_SIGNS).then_some(place)
    }

    /// Returns the index of the field at or after `from` whose `name":` the text begins with. Also
    /// `None` if little text is left.
    #[inline(always)]
    pub fn next_in(&self, from: usize, text: &[u8]) -> Option<usize> {
        if self.keys.get(from)?.begins(text) { Some(from) } else { self.later_in(from + 1, text) }
    }

    /// Same as [`Self::next_in`] for fields after `from`.
    #[inline(never)]
    fn later_in(&self, from: usize, text: &[u8]) -> Option<usize> {
        let head = u32::from_le_bytes(*text.first_chunk()?);
        let place = place_of(&self.heads, from, head)?;
        self.keys.get(place)?.begins(text).then_some(place)
    }

    /// Returns the length of `name":` of a field.
    #[inline(always)]
    pub fn key_length(&self, place: usize) -> usize {
        self.keys[place].length() - KEY_NAME_AT
    }

    /// Returns `,"name":` of a field.
    #[cfg(test)]
    fn key(&self, place: usize) -> &[u8] {
        self.keys[place].whole()
    }

    /// Appends `,"name":` of a field.
    #[inline]
    pub fn write_key(&self, place: usize, out: &mut Vec<u8>) {
        let key = &self.keys[place];
        if let Some(long) = &key.long {
            out.extend_from_slice(long);
            return;
        }
        let end = out.len() + key.length();
        out.extend_from_slice(&key.short);
        out.truncate(end);
    }
}

/// Returns the first index at or after `from` with this value; most often it is `from`.
#[inline(always)]
fn place_of<T: PartialEq>(values: &[T], from: usize, value: T) -> Option<usize> {
    if *values.get(from)? == value {
        return Some(from);
    }
    (from + 1..values.len()).find(|place| values[*place] == value)
}

/// Bytes of a key besides the name.
const KEY_SIGNS: usize = 4;

impl Key {
    /// Creates the key of a field; `whole` is a buffer.
    fn new(field: &Field, whole: &mut Vec<u8>) -> Key {
        whole.clear();
        whole.push(b',');
        crate::json_writer::write_string(&field.name, whole);
        whole.push(b':');
        let length = u32::try_from(whole.len()).expect("a field's name is short");
        whole.resize(whole.len().max(KEY_SHORT_BYTES), 0);
        let short = *whole.first_chunk().expect("it was extended to this length");
        whole.truncate(length as usize);
        let bits = 8 * (whole.len() - KEY_NAME_AT).min(KEY_FIRST_BYTES) as u32;
        let first_mask = u128::MAX.checked_shr(u128::BITS - bits).unwrap_or_default();
        let long = (whole.len() > KEY_SHORT_BYTES).then(|| whole.as_slice().into());
        Key { short, first_mask, length, long }
    }

    #[inline(always)]
    fn length(&self) -> usize {
        self.length as usize
    }

    /// Returns the whole key.
    fn whole(&self) -> &[u8] {
        self.long.as_deref().unwrap_or_else(|| &self.short[..self.length()])
    }

    /// Whether the text begins with `name":`. May return false for a text shorter than
    /// [`KEY_FIRST_BYTES`].
    #[inline(always)]
    fn begins(&self, text: &[u8]) -> bool {
        let (Some(first), Some(key)) =
            (text.first_chunk(), self.short[KEY_NAME_AT..].first_chunk())
        else {
            return false;
        };
        let differing = u128::from_le_bytes(*first) ^ u128::from_le_bytes(*key);
        differing & self.first_mask == 0
            && (self.length() <= KEY_NAME_AT + KEY_FIRST_BYTES || self.begins_long(text))
    }

    /// Same as [`Self::begins`] for a long key whose first bytes match.
    fn begins_long(&self, text: &[u8]) -> bool {
        let key = &self.whole()[KEY_NAME_AT..];
        let Some(text) = text.get(..key.len()) else { return false };
        if key.len() <= 2 * KEY_FIRST_BYTES {
            // The last bytes may overlap with the first ones.
            return text.last_chunk::<KEY_FIRST_BYTES>() == key.last_chunk();
        }
        text == key
    }
}

/// Returns the address of a field's name, 0 if it is stored inline.
fn address(field: &Field) -> usize {
    let text = field.name.as_ptr().addr();
    let own = std::ptr::from_ref(&field.name).addr();
    if (own..own + size_of_val(&field.name)).contains(&text) { 0 } else { text }
}

/// Returns the first four bytes of `name":`; 0 for a name of one character, which is only found by
/// hash.
fn head(name: &[u8]) -> u32 {
    if let Some(head) = name.first_chunk() {
        return u32::from_le_bytes(*head);
    }
    match name {
        [a, b, c] => u32::from_le_bytes([*a, *b, *c, b'"']),
        [a, b] => u32::from_le_bytes([*a, *b, b'"', b':']),
        _ => 0,
    }
}

/// Returns the hash slot of a name. Its length and three of its bytes distinguish most names of a
/// struct.
fn slot(name: &[u8], shift: u32) -> usize {
    let [first, .., last] = name else { return 0 };
    let middle = name[name.len() / 2];
    let mixed = u32::from_le_bytes([*first, middle, *last, name.len() as u8]);
    // The upper bits of the product depend on all bits of the factor.
    (u64::from(mixed.wrapping_mul(0x9e37_79b1)) >> shift) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shape;
    use keelson_meta::Str;

    /// Text after a key, long enough for it to be compared.
    const AFTER: &str = ",\"after\":\"0123456789\"}";

    #[test]
    fn only_field_names_are_found() {
        let names =
            ["a", "id", "key", "keys", "keyring", "x-kubernetes-y", "$ref", "kind", "kinds"];
        let fields: Vec<Field> =
            names.iter().map(|name| Field::new(*name, Shape::String)).collect();
        let index = NameIndex::new(&fields);
        for (place, name) in names.iter().enumerate() {
            assert_eq!(index.position(&fields, name), Some(place), "{name}");
            assert_eq!(index.key(place), format!(",{name:?}:").as_bytes());
            // These names are stored inline.
            assert_eq!(index.next(place, &fields[place].name), None, "{name}");
            assert_eq!(index.key_length(place), name.len() + 2);
            let text = format!("{name}\":1{AFTER}");
            assert_eq!(index.next_in(place, text.as_bytes()), Some(place), "{name}");
        }
        for name in ["", "b", "i", "ke", "keyrin", "keyringg", "é"] {
            assert_eq!(index.position(&fields, name), None, "{name}");
            assert_eq!(index.next_in(0, format!("{name}\":1{AFTER}").as_bytes()), None, "{name}");
        }
        assert_eq!(index.next_in(0, b"a\":1}"), None);
        let none = NameIndex::new(&[]);
        assert_eq!((none.position(&[], "a"), none.next(0, "a")), (None, None));
    }

    #[test]
    fn names_are_found_by_address() {
        let names: [Str; 3] =
            [Str::new_static("a"), "x".repeat(40).into(), Str::new_static("containers")];
        let fields: Vec<Field> =
            names.iter().map(|name| Field::new(name.clone(), Shape::String)).collect();
        let index = NameIndex::new(&fields);
        for (place, name) in names.iter().enumerate() {
            assert_eq!(index.next(0, name), Some(place), "{name}");
            assert_eq!(index.next(place + 1, name), None, "{name}");
            let mut out = b"{".to_vec();
            index.write_key(place, &mut out);
            assert_eq!(out, format!("{{,{name:?}:").as_bytes());
            for from in 0..=place {
                let text = format!("{name}\":1{AFTER}");
                assert_eq!(index.next_in(from, text.as_bytes()), Some(place), "{name}");
                let other = format!("{name}\\\":1{AFTER}");
                assert_eq!(index.next_in(from, other.as_bytes()), None, "{name}");
            }
        }
        // A prefix has the same address as the name.
        assert_eq!(index.next(0, &names[2][..4]), None);
    }
}
