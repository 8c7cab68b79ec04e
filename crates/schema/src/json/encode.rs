//! Object to JSON through its schema: members in canonical order, members that Go always writes filled
//! in with their zero value.

use super::write::{write_string, write_value};
use crate::types::{Field, Presence, Schema, Shape, Struct, Types};
use keelson_meta::{Map, Object, Value};
use smallvec::SmallVec;

/// Places in an encoded object, counted from its first byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// After `{"kind":"Pod","apiVersion":"v1",`.
    pub item_at: usize,
    /// The first byte of the text of `metadata.resourceVersion`; 0 when it is not set.
    pub resource_version_at: usize,
}

/// Appends the object with `kind` and `apiVersion` of the schema in front.
pub fn encode(schema: &Schema, obj: &Object, out: &mut Vec<u8>) -> Marks {
    let start = out.len();
    out.extend_from_slice(b"{\"kind\":");
    write_string(&schema.gvk.kind, out);
    out.extend_from_slice(b",\"apiVersion\":");
    write_string(&schema.gvk.api_version(), out);
    let item_at = out.len() + 1 - start;
    let mut encoder = Encoder { types: &schema.types, out, resource_version_at: 0 };
    encoder.members(schema.root(), &obj.root, Start::AfterTypeMeta);
    let at = encoder.resource_version_at;
    Marks { item_at, resource_version_at: at.saturating_sub(start) }
}

/// Appends the object as an item of a typed list, which carries neither `kind` nor `apiVersion`.
pub fn encode_list_item(schema: &Schema, obj: &Object, out: &mut Vec<u8>) {
    out.push(b'{');
    let mut encoder = Encoder { types: &schema.types, out, resource_version_at: 0 };
    encoder.members(schema.root(), &obj.root, Start::OpenRoot);
}

/// What stands before the first member.
#[derive(Clone, Copy, PartialEq)]
enum Start {
    /// `{` of a struct below the root.
    Open,
    /// `{` of the root, whose `kind` and `apiVersion` are left out.
    OpenRoot,
    /// `kind` and `apiVersion` of the root.
    AfterTypeMeta,
}

struct Encoder<'a> {
    types: &'a Types,
    out: &'a mut Vec<u8>,
    /// Where the text of the first `resourceVersion` of an ObjectMeta was written.
    resource_version_at: usize,
}

impl Encoder<'_> {
    /// Writes the members and the closing brace.
    fn members(&mut self, of: &Struct, map: &Map, start: Start) {
        let mut first = start != Start::AfterTypeMeta;
        let is_root = start != Start::Open;
        let (known, unknown) = place(of, map);
        let mut known = known.into_iter().peekable();
        for (at, field) in of.fields.iter().enumerate() {
            let given = known.next_if(|(place, _)| usize::from(*place) == at).map(|(_, v)| v);
            if is_root && (field.name == "kind" || field.name == "apiVersion") {
                continue;
            }
            match (given, field.presence) {
                (None, Presence::Pointer | Presence::OmitEmpty) => continue,
                (Some(value), Presence::OmitEmpty) if value.is_empty() => continue,
                _ => {}
            }
            if !first {
                self.out.push(b',');
            }
            first = false;
            self.key(field);
            match given {
                Some(value) => {
                    if self.resource_version_at == 0 && field.name == "resourceVersion" {
                        self.resource_version_at = self.out.len() + 1;
                    }
                    self.value(&field.shape, value);
                }
                None if field.presence == Presence::AlwaysNull => {
                    self.out.extend_from_slice(b"null");
                }
                None => self.zero(&field.shape),
            }
        }
        for (key, value) in unknown {
            if !first {
                self.out.push(b',');
            }
            first = false;
            write_string(key, self.out);
            self.out.push(b':');
            write_value(value, self.out);
        }
        self.out.push(b'}');
    }

    fn key(&mut self, field: &Field) {
        // Field names of schemas are plain words.
        self.out.push(b'"');
        self.out.extend_from_slice(field.name.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    fn value(&mut self, shape: &Shape, value: &Value) {
        match (shape, value) {
            (Shape::Struct(id), Value::Object(map)) => {
                self.out.push(b'{');
                self.members(self.types.get(*id), map, Start::Open);
            }
            (Shape::List(list), Value::Array(items)) => {
                self.out.push(b'[');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        self.out.push(b',');
                    }
                    self.value(&list.item, item);
                }
                self.out.push(b']');
            }
            (Shape::Map(map_shape), Value::Object(map)) => self.map(&map_shape.value, map),
            (Shape::SchemaOr(_, id), Value::Object(_)) => self.value(&Shape::Struct(*id), value),
            (Shape::SchemaOr(_, id), Value::Array(items))
                if items.iter().any(|i| i.as_object().is_some()) =>
            {
                self.out.push(b'[');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        self.out.push(b',');
                    }
                    self.value(&Shape::Struct(*id), item);
                }
                self.out.push(b']');
            }
            (Shape::Struct(_), Value::Null) => self.zero(shape),
            _ => write_value(value, self.out),
        }
    }

    /// Map keys are written in the order of their bytes, as Go writes them.
    fn map(&mut self, shape: &Shape, map: &Map) {
        self.out.push(b'{');
        let mut entries: SmallVec<[_; 16]> = map.iter().collect();
        if !entries.is_sorted_by(|a, b| a.0 <= b.0) {
            entries.sort_by(|a, b| a.0.cmp(b.0));
        }
        for (i, (key, value)) in entries.into_iter().enumerate() {
            if i > 0 {
                self.out.push(b',');
            }
            write_string(key, self.out);
            self.out.push(b':');
            self.value(shape, value);
        }
        self.out.push(b'}');
    }

    /// The zero value that Go writes for a member that is not set.
    fn zero(&mut self, shape: &Shape) {
        let text: &[u8] = match shape {
            Shape::String | Shape::Bytes => b"\"\"",
            Shape::Bool => b"false",
            Shape::Int32 | Shape::Int64 | Shape::Double | Shape::IntOrString => b"0",
            Shape::Quantity => b"\"0\"",
            Shape::Duration => b"\"0s\"",
            Shape::FieldsV1 => b"{}",
            Shape::Time
            | Shape::MicroTime
            | Shape::Json
            | Shape::RawExtension
            | Shape::List(_)
            | Shape::Map(_)
            | Shape::SchemaOr(..) => b"null",
            Shape::Struct(id) => {
                self.out.push(b'{');
                self.members(self.types.get(*id), &Map::new(), Start::Open);
                return;
            }
        };
        self.out.extend_from_slice(text);
    }
}

type Placed<'m> = SmallVec<[(u16, &'m Value); 24]>;
type Unplaced<'m> = SmallVec<[(&'m str, &'m Value); 2]>;

/// The entries with their fields' places in canonical order, and those no field names, sorted.
fn place<'m>(of: &Struct, map: &'m Map) -> (Placed<'m>, Unplaced<'m>) {
    let mut known = Placed::new();
    let mut unknown = Unplaced::new();
    for (key, value) in map.iter() {
        match of.position(key) {
            // A struct has fewer than 65536 fields: checked when it was made.
            Some(at) => known.push((at as u16, value)),
            None => unknown.push((key, value)),
        }
    }
    if !known.is_sorted_by(|a, b| a.0 <= b.0) {
        known.sort_by_key(|(at, _)| *at);
    }
    unknown.sort_by(|a, b| a.0.cmp(b.0));
    (known, unknown)
}
