//! Finds a member of a struct by its name, which every decoder and encoder does for every member.

use super::Field;

/// The names of a struct's fields, three ways: hashed, by their first bytes, and as JSON keys.
#[derive(Clone, Debug, Default)]
pub(super) struct NameIndex {
    /// Places of fields, with open addressing. Invariant: at least half empty, and every field is found
    /// from the slot of its hash by going to the next slot until it is met.
    slots: Box<[u16]>,
    shift: u32,
    /// The first four bytes of `name":` for each field.
    heads: Box<[u32]>,
    /// `,"name":` for each field.
    keys: Box<[Box<[u8]>]>,
}

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
        NameIndex { slots, shift, heads, keys: fields.iter().map(key).collect() }
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

    /// The place of the field with this name at or after `from`; members mostly stand in order.
    pub fn next(&self, fields: &[Field], from: usize, name: &str) -> Option<usize> {
        let head = head(name.as_bytes());
        let later = self.heads.get(from..)?;
        let place = from + later.iter().position(|other| *other == head)?;
        let other = fields.get(place)?.name.as_str();
        // The names of a schema are shared, so most are told by where they are.
        let is_same = other.len() == name.len()
            && (std::ptr::eq(other.as_ptr(), name.as_ptr()) || other == name);
        is_same.then_some(place)
    }

    /// The place of the field at or after `from` whose `name":` the text begins with, and how many bytes
    /// those are.
    pub fn next_in(&self, from: usize, text: &[u8]) -> Option<(usize, usize)> {
        let head = u32::from_le_bytes(*text.first_chunk()?);
        let later = self.heads.get(from..)?;
        let place = from + later.iter().position(|other| *other == head)?;
        let key = self.key(place).get(KEY_NAME_AT..)?;
        text.starts_with(key).then_some((place, key.len()))
    }

    /// `,"name":` of the field at this place.
    pub fn key(&self, place: usize) -> &[u8] {
        &self.keys[place]
    }
}

/// `,"name":` of a field.
fn key(field: &Field) -> Box<[u8]> {
    let mut key = Vec::with_capacity(field.name.len() + 4);
    key.push(b',');
    crate::json::write_string(&field.name, &mut key);
    key.push(b':');
    key.into_boxed_slice()
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
            let near = index.next(&fields, place, name);
            assert_eq!(near, Some(place), "{name}");
            let text = format!("{name}\":1");
            let want = (name.len() > 1).then_some((place, name.len() + 2));
            assert_eq!(index.next_in(place, text.as_bytes()), want, "{name}");
        }
        for name in ["", "b", "i", "ke", "keyrin", "keyringg", "é"] {
            assert_eq!(index.position(&fields, name), None, "{name}");
            assert_eq!(index.next(&fields, 0, name), None, "{name}");
            assert_eq!(index.next_in(0, format!("{name}\":1").as_bytes()), None, "{name}");
        }
        let none = NameIndex::new(&[]);
        assert_eq!((none.position(&[], "a"), none.next(&[], 0, "a")), (None, None));
    }
}
