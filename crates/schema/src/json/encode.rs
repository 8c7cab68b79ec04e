//! Encodes objects to JSON by their schema: fields in canonical order, and the zero values that Go
//! always writes.

use crate::json_writer::{write_string, write_value};
use crate::types::{Field, Presence, Schema, Shape, Struct, Types};
use keelson_meta::{Map, Object, Str, Value};
use smallvec::SmallVec;

/// Package of the kinds that kube-apiserver stores as JSON; their empty lists stay empty lists.
const STORED_AS_JSON_PREFIX: &str = "io.k8s.apiextensions-apiserver.";

/// Offsets in an encoded object, from its first byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodedOffsets {
    /// After `{"kind":"Pod","apiVersion":"v1",`.
    pub item_at: usize,
    /// First byte of the text of `metadata.resourceVersion`; 0 if it is not set.
    pub resource_version_at: usize,
}

/// Appends an object, beginning with `kind` and `apiVersion` of the schema.
pub fn encode(schema: &Schema, obj: &Object, out: &mut Vec<u8>) -> EncodedOffsets {
    let start = out.len();
    out.extend_from_slice(b"{\"kind\":");
    write_string(&schema.gvk.kind, out);
    out.extend_from_slice(b",\"apiVersion\":");
    write_string(&schema.gvk.api_version(), out);
    let item_at = out.len() + 1 - start;
    let mut encoder = Encoder::new(&schema.types, out);
    encoder.object(schema.root(), &obj.root, Start::AfterTypeMeta);
    let at = encoder.resource_version_at;
    EncodedOffsets { item_at, resource_version_at: at.saturating_sub(start) }
}

/// Appends an object as an item of a typed list, without `kind` and `apiVersion`.
pub fn encode_list_item(schema: &Schema, obj: &Object, out: &mut Vec<u8>) {
    let mut encoder = Encoder::new(&schema.types, out);
    encoder.object(schema.root(), &obj.root, Start::OpenRoot);
}

/// What precedes the first member.
#[derive(Clone, Copy, PartialEq)]
enum Start {
    /// Nothing: a struct below the root.
    Open,
    /// Nothing: the root of a list item, whose `kind` and `apiVersion` are omitted.
    OpenRoot,
    /// `kind` and `apiVersion`: the root of an object.
    AfterTypeMeta,
}

/// The order of members in the object.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    /// Canonical, as far as encoded.
    Canonical,
    /// Not canonical: the output must be discarded.
    NotCanonical,
    /// Any order.
    Any,
}

struct Encoder<'a> {
    types: &'a Types,
    out: &'a mut Vec<u8>,
    order: Order,
    /// Offset of the text of the first `resourceVersion` of an ObjectMeta.
    resource_version_at: usize,
}

impl<'a> Encoder<'a> {
    fn new(types: &'a Types, out: &'a mut Vec<u8>) -> Self {
        Encoder { types, out, order: Order::Canonical, resource_version_at: 0 }
    }

    /// Writes an object. If its members turn out not to be in canonical order, starts over and
    /// sorts them.
    fn object(&mut self, struct_type: &Struct, map: &Map, start: Start) {
        let first = self.out.len();
        self.members(struct_type, map, start);
        if self.order == Order::NotCanonical {
            self.out.truncate(first);
            self.resource_version_at = 0;
            self.order = Order::Any;
            self.members(struct_type, map, start);
        }
    }

    /// Writes the members and the closing brace.
    fn members(&mut self, struct_type: &Struct, map: &Map, start: Start) {
        let first = self.out.len();
        match self.order {
            Order::Canonical => self.in_order(struct_type, map, start),
            Order::Any => self.sorted(struct_type, map, start),
            Order::NotCanonical => {}
        }
        // Each member begins with a comma; the first one is replaced by the opening brace.
        match (start, self.out.get_mut(first)) {
            (Start::AfterTypeMeta, _) => {}
            (_, Some(comma)) => *comma = b'{',
            (_, None) => self.out.push(b'{'),
        }
        self.out.push(b'}');
    }

    /// Writes members in canonical order, the order of decoded objects. Stops at a member that is
    /// out of order or unknown.
    fn in_order(&mut self, struct_type: &Struct, map: &Map, start: Start) {
        let is_root = start != Start::Open;
        let mut always = struct_type.always();
        let mut next = 0;
        for (key, value) in map.iter() {
            match struct_type.position_near(next, key) {
                Some(at) if is_root && is_type_meta(&struct_type.fields[at]) => {}
                Some(at) if at >= next => {
                    next = at + 1;
                    always = self.write_unset_before(struct_type, at, always, is_root);
                    self.member(struct_type, at, value);
                }
                _ => {
                    self.order = Order::NotCanonical;
                    return;
                }
            }
        }
        self.write_unset_before(struct_type, usize::MAX, always, is_root);
    }

    /// Writes members in any order. Not inlined: it needs stack space that [`Self::in_order`] does
    /// not.
    #[inline(never)]
    fn sorted(&mut self, struct_type: &Struct, map: &Map, start: Start) {
        let is_root = start != Start::Open;
        let (known, unknown) = partition_fields(struct_type, map);
        let mut always = struct_type.always();
        for (at, value) in known {
            if !(is_root && is_type_meta(&struct_type.fields[at])) {
                always = self.write_unset_before(struct_type, at, always, is_root);
                self.member(struct_type, at, value);
            }
        }
        self.write_unset_before(struct_type, usize::MAX, always, is_root);
        for (key, value) in unknown {
            self.out.push(b',');
            write_string(key, self.out);
            self.out.push(b':');
            write_value(value, self.out);
        }
    }

    #[inline(always)]
    fn member(&mut self, struct_type: &Struct, at: usize, value: &Value) {
        let field = &struct_type.fields[at];
        match (value, &field.shape) {
            // Most members are strings, which are written the same way for every shape.
            (Value::String(text), _) => {
                if text.is_empty() && field.presence == Presence::OmitEmpty {
                    return;
                }
                struct_type.write_key(at, self.out);
                if self.resource_version_at == 0 && field.name == "resourceVersion" {
                    self.resource_version_at = self.out.len() + 1;
                }
                write_string(text, self.out);
            }
            (Value::Object(map), Shape::Struct(id)) => {
                if !map.is_empty() || field.presence != Presence::OmitEmpty {
                    struct_type.write_key(at, self.out);
                    self.members(self.types.get(*id), map, Start::Open);
                }
            }
            _ => self.other_member(struct_type, at, value),
        }
    }

    /// Writes a member that is neither a string nor a struct.
    #[inline(never)]
    fn other_member(&mut self, struct_type: &Struct, at: usize, value: &Value) {
        let field = &struct_type.fields[at];
        if field.presence == Presence::OmitEmpty && value.is_empty() {
            return;
        }
        struct_type.write_key(at, self.out);
        // kube-apiserver stores protobuf, which cannot represent an empty list: it is read back as
        // null.
        let is_null = || {
            matches!(field.presence, Presence::Always | Presence::AlwaysNull)
                && !struct_type.name.starts_with(STORED_AS_JSON_PREFIX)
        };
        match value {
            Value::Array(items) if items.is_empty() && is_null() => {
                self.out.extend_from_slice(b"null");
            }
            _ => self.value(&field.shape, value),
        }
    }

    /// Writes the unset `always` fields before `at`, which is set. Returns the remaining ones.
    #[inline(always)]
    fn write_unset_before<'s>(
        &mut self,
        struct_type: &Struct,
        at: usize,
        mut always: &'s [u16],
        is_root: bool,
    ) -> &'s [u16] {
        while let Some(unset) = always.first()
            && usize::from(*unset) <= at
        {
            if usize::from(*unset) < at {
                self.write_unset(struct_type, *unset, is_root);
            }
            always = &always[1..];
        }
        always
    }

    /// Writes an unset field that Go always writes.
    #[inline(never)]
    fn write_unset(&mut self, struct_type: &Struct, at: u16, is_root: bool) {
        let field = &struct_type.fields[usize::from(at)];
        if is_root && is_type_meta(field) {
            return;
        }
        struct_type.write_key(usize::from(at), self.out);
        match field.presence {
            Presence::AlwaysNull => self.out.extend_from_slice(b"null"),
            _ => self.zero(&field.shape),
        }
    }

    fn value(&mut self, shape: &Shape, value: &Value) {
        match (shape, value) {
            (Shape::Struct(id), Value::Object(map)) => {
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
            // Custom resources keep nulls.
            (Shape::Struct(id), Value::Null) if !self.types.get(*id).lenient => self.zero(shape),
            (_, Value::String(text)) => write_string(text, self.out),
            // The text is already compact.
            (Shape::FieldsV1, Value::Raw(text)) => self.out.extend_from_slice(text.as_bytes()),
            _ => write_value(value, self.out),
        }
    }

    /// Writes a map with keys sorted by bytes, as Go does.
    fn map(&mut self, shape: &Shape, map: &Map) {
        self.out.push(b'{');
        if map.iter().is_sorted_by(|a, b| a.0 <= b.0) {
            self.entries(shape, map.iter());
        } else {
            self.entries(shape, map.sorted().into_iter());
        }
        self.out.push(b'}');
    }

    fn entries<'m>(&mut self, shape: &Shape, entries: impl Iterator<Item = (&'m Str, &'m Value)>) {
        for (i, (key, value)) in entries.enumerate() {
            if i > 0 {
                self.out.push(b',');
            }
            write_string(key, self.out);
            self.out.push(b':');
            self.value(shape, value);
        }
    }

    /// Writes the zero value that Go writes for an unset field.
    fn zero(&mut self, shape: &Shape) {
        let text: &[u8] = match shape {
            Shape::String | Shape::Formatted => b"\"\"",
            Shape::Bool => b"false",
            Shape::Int32 | Shape::Int64 | Shape::Double | Shape::Number | Shape::IntOrString => {
                b"0"
            }
            Shape::Quantity => b"\"0\"",
            Shape::Duration => b"\"0s\"",
            Shape::FieldsV1 => b"{}",
            Shape::Bytes
            | Shape::Time
            | Shape::MicroTime
            | Shape::Json
            | Shape::RawExtension
            | Shape::List(_)
            | Shape::Map(_)
            | Shape::SchemaOr(..) => b"null",
            Shape::Struct(id) => {
                self.members(self.types.get(*id), &Map::new(), Start::Open);
                return;
            }
        };
        self.out.extend_from_slice(text);
    }
}

fn is_type_meta(field: &Field) -> bool {
    field.name == "kind" || field.name == "apiVersion"
}

type KnownFields<'m> = SmallVec<[(usize, &'m Value); 24]>;
type UnknownFields<'m> = SmallVec<[(&'m str, &'m Value); 2]>;

/// Splits the members into known fields, in canonical order, and unknown fields, sorted by name.
fn partition_fields<'m>(
    struct_type: &Struct,
    map: &'m Map,
) -> (KnownFields<'m>, UnknownFields<'m>) {
    let mut known = KnownFields::new();
    let mut unknown = UnknownFields::new();
    let mut near = 0;
    for (key, value) in map.iter() {
        match struct_type.position_near(near, key) {
            Some(at) => {
                near = at;
                known.push((at, value));
            }
            None => unknown.push((key, value)),
        }
    }
    if !known.is_sorted_by(|a, b| a.0 <= b.0) {
        known.sort_by_key(|(at, _)| *at);
    }
    unknown.sort_by(|a, b| a.0.cmp(b.0));
    (known, unknown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Catalogue;
    use crate::types::StructId;
    use keelson_meta::{GroupVersionKind, value};

    fn schema() -> Schema {
        let field = |name: &str, shape, presence| Field { presence, ..Field::new(name, shape) };
        let inner = Struct::new(
            "Inner",
            vec![
                field("name", Shape::String, Presence::Always),
                field("resourceVersion", Shape::String, Presence::OmitEmpty),
                field("list", Shape::List(Box::new(list())), Presence::Always),
            ],
        );
        let outer = Struct::new(
            "Outer",
            vec![
                field("apiVersion", Shape::String, Presence::OmitEmpty),
                field("kind", Shape::String, Presence::OmitEmpty),
                field("metadata", Shape::Struct(StructId(0)), Presence::Always),
                field("spec", Shape::Struct(StructId(0)), Presence::Pointer),
            ],
        );
        let types = Types::new(vec![inner, outer]).into();
        Schema { gvk: GroupVersionKind::new("g", "v1", "Outer"), types, root: StructId(1) }
    }

    fn list() -> crate::types::ListShape {
        crate::types::ListShape::atomic(Shape::Struct(StructId(0)))
    }

    fn check(value: Value, want: &str, resource_version: &str) {
        let obj = Object::from_value(value).expect("a map");
        let mut out = b"before".to_vec();
        let marks = encode(&schema(), &obj, &mut out);
        let text = String::from_utf8(out).expect("text");
        assert_eq!(text, format!("before{{\"kind\":\"Outer\",\"apiVersion\":\"g/v1\",{want}"));
        let at = marks.resource_version_at;
        assert!(text["before".len() + at..].starts_with(resource_version), "{at} in {text}");
        assert!(text["before".len() + marks.item_at..].starts_with(want), "{text}");
    }

    #[test]
    fn members_are_written_in_canonical_order() {
        let want = r#""metadata":{"name":"a","resourceVersion":"7","list":null},"#;
        let spec = r#""spec":{"name":"","list":[{"name":"b","list":null}]}}"#;
        let want = format!("{want}{spec}");
        check(
            value!({
                "metadata": {"name": "a", "resourceVersion": "7"},
                "spec": {"list": [{"name": "b"}]},
                "kind": "Outer"
            }),
            &want,
            "7",
        );
        check(
            value!({
                "spec": {"list": [{"name": "b"}]},
                "metadata": {"resourceVersion": "7", "name": "a", "list": null}
            }),
            &want,
            "7",
        );
    }

    #[test]
    fn unknown_fields_come_last() {
        check(
            value!({"z": "<", "metadata": {"y": 1}}),
            r#""metadata":{"name":"","list":null,"y":1},"z":"\u003c"}"#,
            "{",
        );
    }

    /// kube-apiserver 1.36 stores definitions as JSON and other kinds as protobuf.
    #[test]
    fn empty_lists_in_definitions_are_kept() {
        let check = |gvk: GroupVersionKind, given: Value, expected: &str| {
            let schema = Catalogue::shared().schema(&gvk).expect("built in");
            let mut out = vec![];
            encode(&schema, &Object::from_value(given).expect("a map"), &mut out);
            let text = String::from_utf8(out).expect("text");
            assert!(text.contains(expected), "{text}");
        };
        let definition =
            GroupVersionKind::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let given = value!({"status": {"conditions": []}});
        check(definition.clone(), given, r#""conditions":[]"#);
        check(definition, value!({"status": {}}), r#""conditions":null"#);
        let pod = GroupVersionKind::new("", "v1", "Pod");
        check(pod, value!({"spec": {"containers": []}}), r#""containers":null"#);
    }
}
