//! Finds a member of a struct by its name, which every decoder and encoder does for every member.

use super::Field;

/// The names of a struct's fields: hashed, by their first bytes, by where they are, and as JSON keys.
#[derive(Clone, Debug, Default)]
pub(super) struct NameIndex {
    /// Places of fields, with open addressing. Invariant: at least half empty, and every field is found
    /// from the slot of its hash by going to the next slot until it is met.
    slots: Box<[u16]>,
    shift: u32,
    /// The first four bytes of `name":` for each field.
    heads: Box<[u32]>,
    /// Where the names are; 0 for one that moves with its field.
    addresses: Box<[usize]>,
    /// `,"name":` for each field.
    keys: Box<[Key]>,
}

/// `,"name":` of a field.
#[derive(Clone, Debug)]
struct Key {
    /// The beginning, filled up with zeros: bytes of a known number are copied without a call.
    short: [u8; KEY_SHORT_BYTES],
    /// Bits of those of the first [`KEY_FIRST_BYTES`] of `name":` that it has.
    first_mask: u128,
    /// Bytes of all of it.
    length: u32,
    /// All of it, when it is longer than `short`.
    long: Option<Box<[u8]>>,
}

/// Bytes of nearly all keys.
const KEY_SHORT_BYTES: usize = 32;

/// Bytes of a key's name that are compared at once.
const KEY_FIRST_BYTES: usize = 16;

const EMPTY: u16 = u16::MAX;

/// Bytes of a key before the name: `,"`.
const KEY_NAME_AT: usize = 2;

impl NameIndex {
    /// The index of fewer than 65535 fields.
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
        NameIndex { slots, shift, heads, addresses, keys: fields.iter().map(Key::new).collect() }
    }

    /// The place of the field with this name.
    pub fn position(&self, fields: &[Field], name: &str) -> Option<usize> {
        let mut at = slot(name.as_bytes(), self.shift);
        loop {
            // A struct without fields has one slot at most, and that is empty.
            let place = *self.slots.get(at)?;
            let field = fields.get(usize::from(place))?;
            if field.name.as_str() == name {
                return Some(usize::from(place));
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    /// The place of the field with this name at or after `from`, when the name is the field's own or a clone
    /// of it, which those of decoded objects are; members mostly stand in order.
    #[inline]
    pub fn next(&self, from: usize, name: &str) -> Option<usize> {
        let place = place_of(&self.addresses, from, name.as_ptr().addr())?;
        (self.keys.get(place)?.length() == name.len() + KEY_SIGNS).then_some(place)
    }

    /// The place of the field at or after `from` whose `name":` the text begins with. None also when the text
    /// ends soon.
    #[inline(always)]
    pub fn next_in(&self, from: usize, text: &[u8]) -> Option<usize> {
        if self.keys.get(from)?.begins(text) { Some(from) } else { self.later_in(from + 1, text) }
    }

    /// The same, when it is not the field at `from` itself most often.
    #[inline(never)]
    fn later_in(&self, from: usize, text: &[u8]) -> Option<usize> {
        let head = u32::from_le_bytes(*text.first_chunk()?);
        let place = place_of(&self.heads, from, head)?;
        self.keys.get(place)?.begins(text).then_some(place)
    }

    /// Bytes of `name":` of the field at this place.
    #[inline(always)]
    pub fn key_length(&self, place: usize) -> usize {
        self.keys[place].length() - KEY_NAME_AT
    }

    /// `,"name":` of the field at this place.
    #[cfg(test)]
    fn key(&self, place: usize) -> &[u8] {
        self.keys[place].whole()
    }

    /// Appends `,"name":` of the field at this place.
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

/// The first place at or after `from` that holds `what`; most often it is the first one looked at.
#[inline(always)]
fn place_of<T: PartialEq>(of: &[T], from: usize, what: T) -> Option<usize> {
    if *of.get(from)? == what {
        return Some(from);
    }
    (from + 1..of.len()).find(|place| of[*place] == what)
}

/// Bytes of a key beside the name.
const KEY_SIGNS: usize = 4;

impl Key {
    fn new(field: &Field) -> Key {
        let mut whole = Vec::with_capacity(field.name.len() + KEY_SIGNS);
        whole.push(b',');
        crate::json_writer::write_string(&field.name, &mut whole);
        whole.push(b':');
        let mut short = [0; KEY_SHORT_BYTES];
        for (to, from) in short.iter_mut().zip(&whole) {
            *to = *from;
        }
        let bits = 8 * (whole.len() - KEY_NAME_AT).min(KEY_FIRST_BYTES) as u32;
        let first_mask = u128::MAX.checked_shr(u128::BITS - bits).unwrap_or_default();
        let length = u32::try_from(whole.len()).expect("a field's name is short");
        let long = (whole.len() > KEY_SHORT_BYTES).then(|| whole.into_boxed_slice());
        Key { short, first_mask, length, long }
    }

    #[inline(always)]
    fn length(&self) -> usize {
        self.length as usize
    }

    /// All of it.
    fn whole(&self) -> &[u8] {
        self.long.as_deref().unwrap_or_else(|| &self.short[..self.length()])
    }

    /// Whether the text begins with `name":`. A text of fewer than [`KEY_FIRST_BYTES`] may be said not to.
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

    /// The same for a long key, the first bytes of which the text begins with.
    fn begins_long(&self, text: &[u8]) -> bool {
        let key = &self.whole()[KEY_NAME_AT..];
        let Some(text) = text.get(..key.len()) else { return false };
        if key.len() <= 2 * KEY_FIRST_BYTES {
            // The last ones may overlap with the first ones.
            return text.last_chunk::<KEY_FIRST_BYTES>() == key.last_chunk();
        }
        text == key
    }
}

/// Where a field's name is, if it stays there however the field moves.
fn address(field: &Field) -> usize {
    let text = field.name.as_ptr().addr();
    let own = std::ptr::from_ref(&field.name).addr();
    if (own..own + size_of_val(&field.name)).contains(&text) { 0 } else { text }
}

/// The first four bytes of `name":`; 0 for a name of one letter, which is found by its hash only.
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

/// The slot of a name: its length and three of its bytes tell most names of a struct apart.
fn slot(name: &[u8], shift: u32) -> usize {
    let [first, .., last] = name else { return 0 };
    let middle = name[name.len() / 2];
    let mixed = u32::from_le_bytes([*first, middle, *last, name.len() as u8]);
    // The product's upper bits depend on all of the factor.
    (u64::from(mixed.wrapping_mul(0x9e37_79b1)) >> shift) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shape;
    use keelson_meta::Str;

    /// Enough text after a key for it to be compared.
    const AFTER: &str = ",\"after\":\"0123456789\"}";

    #[test]
    fn every_name_is_found_and_no_other() {
        let names =
            ["a", "id", "key", "keys", "keyring", "x-kubernetes-y", "$ref", "kind", "kinds"];
        let fields: Vec<Field> =
            names.iter().map(|name| Field::new(*name, Shape::String)).collect();
        let index = NameIndex::new(&fields);
        for (place, name) in names.iter().enumerate() {
            assert_eq!(index.position(&fields, name), Some(place), "{name}");
            assert_eq!(index.key(place), format!(",{name:?}:").as_bytes());
            // These names are short and stand in their fields.
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
    fn a_name_that_stays_is_known_by_its_place() {
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
        // A part of a name begins where the name begins.
        assert_eq!(index.next(0, &names[2][..4]), None);
    }
}
