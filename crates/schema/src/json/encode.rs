//! Object to JSON through its schema: members in canonical order, members that Go always writes filled
//! in with their zero value.

use crate::json_writer::{write_string, write_value};
use crate::types::{Field, Presence, Schema, Shape, Struct, Types};
use keelson_meta::{Map, Object, Str, Value};
use smallvec::SmallVec;

/// Kinds that the reference stores as JSON, in which an empty list stays one.
const STORED_AS_JSON: &str = "io.k8s.apiextensions-apiserver.";

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
    let mut encoder = Encoder::new(&schema.types, out);
    encoder.object(schema.root(), &obj.root, Start::AfterTypeMeta);
    let at = encoder.resource_version_at;
    Marks { item_at, resource_version_at: at.saturating_sub(start) }
}

/// Appends the object as an item of a typed list, which carries neither `kind` nor `apiVersion`.
pub fn encode_list_item(schema: &Schema, obj: &Object, out: &mut Vec<u8>) {
    let mut encoder = Encoder::new(&schema.types, out);
    encoder.object(schema.root(), &obj.root, Start::OpenRoot);
}

/// What stands before the first member.
#[derive(Clone, Copy, PartialEq)]
enum Start {
    /// Nothing, in a struct below the root.
    Open,
    /// Nothing, in the root, whose `kind` and `apiVersion` are left out.
    OpenRoot,
    /// `kind` and `apiVersion` of the root.
    AfterTypeMeta,
}

/// How the members of an object's structs stand.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    /// In the order in which they are written, as far as was seen.
    Canonical,
    /// Not so: what was written is worthless.
    Broken,
    /// In any order.
    Any,
}

struct Encoder<'a> {
    types: &'a Types,
    out: &'a mut Vec<u8>,
    order: Order,
    /// Where the text of the first `resourceVersion` of an ObjectMeta was written.
    resource_version_at: usize,
}

impl<'a> Encoder<'a> {
    fn new(types: &'a Types, out: &'a mut Vec<u8>) -> Self {
        Encoder { types, out, order: Order::Canonical, resource_version_at: 0 }
    }

    /// Writes the object; a second time when its members turn out not to stand in order.
    fn object(&mut self, of: &Struct, map: &Map, start: Start) {
        let first = self.out.len();
        self.members(of, map, start);
        if self.order == Order::Broken {
            self.out.truncate(first);
            self.resource_version_at = 0;
            self.order = Order::Any;
            self.members(of, map, start);
        }
    }

    /// Writes the members and the closing brace.
    fn members(&mut self, of: &Struct, map: &Map, start: Start) {
        let first = self.out.len();
        match self.order {
            Order::Canonical => self.in_order(of, map, start),
            Order::Any => self.sorted(of, map, start),
            Order::Broken => {}
        }
        // A comma stands before each member: before the first one it is the bracket or not there.
        match (start, self.out.get_mut(first)) {
            (Start::AfterTypeMeta, _) => {}
            (_, Some(comma)) => *comma = b'{',
            (_, None) => self.out.push(b'{'),
        }
        self.out.push(b'}');
    }

    /// Writes members that stand in canonical order, as they do in all objects that were decoded. Ends
    /// when they do not, or when no field has a member's name.
    fn in_order(&mut self, of: &Struct, map: &Map, start: Start) {
        let is_root = start != Start::Open;
        let mut always = of.always();
        let mut next = 0;
        for (key, value) in map.iter() {
            match of.position_near(next, key) {
                Some(at) if is_root && is_type_meta(&of.fields[at]) => {}
                Some(at) if at >= next => {
                    next = at + 1;
                    always = self.unset_before(of, at, always, is_root);
                    self.member(of, at, value);
                }
                _ => {
                    self.order = Order::Broken;
                    return;
                }
            }
        }
        self.unset_before(of, usize::MAX, always, is_root);
    }

    /// Writes members that stand in any order. Kept apart, since it takes room that [`Self::in_order`] does
    /// not need at each level.
    #[inline(never)]
    fn sorted(&mut self, of: &Struct, map: &Map, start: Start) {
        let is_root = start != Start::Open;
        let (known, unknown) = place(of, map);
        let mut always = of.always();
        for (at, value) in known {
            if !(is_root && is_type_meta(&of.fields[at])) {
                always = self.unset_before(of, at, always, is_root);
                self.member(of, at, value);
            }
        }
        self.unset_before(of, usize::MAX, always, is_root);
        for (key, value) in unknown {
            self.out.push(b',');
            write_string(key, self.out);
            self.out.push(b':');
            write_value(value, self.out);
        }
    }

    #[inline(always)]
    fn member(&mut self, of: &Struct, at: usize, value: &Value) {
        let field = &of.fields[at];
        match (value, &field.shape) {
            // Most members are text, which is written in one way whatever the shape.
            (Value::String(text), _) => {
                if text.is_empty() && field.presence == Presence::OmitEmpty {
                    return;
                }
                of.write_key(at, self.out);
                if self.resource_version_at == 0 && field.name == "resourceVersion" {
                    self.resource_version_at = self.out.len() + 1;
                }
                write_string(text, self.out);
            }
            (Value::Object(map), Shape::Struct(id)) => {
                if !map.is_empty() || field.presence != Presence::OmitEmpty {
                    of.write_key(at, self.out);
                    self.members(self.types.get(*id), map, Start::Open);
                }
            }
            _ => self.other(of, at, value),
        }
    }

    /// Writes a member that is neither text nor a struct.
    #[inline(never)]
    fn other(&mut self, of: &Struct, at: usize, value: &Value) {
        let field = &of.fields[at];
        if field.presence == Presence::OmitEmpty && value.is_empty() {
            return;
        }
        of.write_key(at, self.out);
        // Protobuf, in which the reference stores, knows no empty lists: they are read back as null.
        let is_null = || {
            matches!(field.presence, Presence::Always | Presence::AlwaysNull)
                && !of.name.starts_with(STORED_AS_JSON)
        };
        match value {
            Value::Array(items) if items.is_empty() && is_null() => {
                self.out.extend_from_slice(b"null");
            }
            _ => self.value(&field.shape, value),
        }
    }

    /// Writes those of the `always` members that stand before `at`, which is set; gives the later ones.
    #[inline(always)]
    fn unset_before<'s>(
        &mut self,
        of: &Struct,
        at: usize,
        mut always: &'s [u16],
        is_root: bool,
    ) -> &'s [u16] {
        while let Some(unset) = always.first()
            && usize::from(*unset) <= at
        {
            if usize::from(*unset) < at {
                self.unset(of, *unset, is_root);
            }
            always = &always[1..];
        }
        always
    }

    /// Writes a member that is written although it is not set.
    #[inline(never)]
    fn unset(&mut self, of: &Struct, at: u16, is_root: bool) {
        let field = &of.fields[usize::from(at)];
        if is_root && is_type_meta(field) {
            return;
        }
        of.write_key(usize::from(at), self.out);
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
            // Null is a value of its own in custom resources.
            (Shape::Struct(id), Value::Null) if !self.types.get(*id).lenient => self.zero(shape),
            (_, Value::String(text)) => write_string(text, self.out),
            // It is compact.
            (Shape::FieldsV1, Value::Raw(text)) => self.out.extend_from_slice(text.as_bytes()),
            _ => write_value(value, self.out),
        }
    }

    /// Map keys are written in the order of their bytes, as Go writes them.
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

    /// The zero value that Go writes for a member that is not set.
    fn zero(&mut self, shape: &Shape) {
        let text: &[u8] = match shape {
            Shape::String | Shape::Formatted => b"\"\"",
            Shape::Bool => b"false",
            Shape::Int32 | Shape::Int64 | Shape::Double | Shape::IntOrString => b"0",
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

type Placed<'m> = SmallVec<[(usize, &'m Value); 24]>;
type Unplaced<'m> = SmallVec<[(&'m str, &'m Value); 2]>;

/// The entries with their fields' places in canonical order, and those no field names, sorted.
fn place<'m>(of: &Struct, map: &'m Map) -> (Placed<'m>, Unplaced<'m>) {
    let mut known = Placed::new();
    let mut unknown = Unplaced::new();
    let mut near = 0;
    for (key, value) in map.iter() {
        match of.position_near(near, key) {
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
        crate::types::ListShape {
            item: Shape::Struct(StructId(0)),
            kind: crate::ListKind::Atomic,
            patch_merge: false,
            patch_merge_key: None,
        }
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
    fn members_are_written_in_order_wherever_they_stand() {
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
    fn what_no_field_names_comes_last() {
        check(
            value!({"z": "<", "metadata": {"y": 1}}),
            r#""metadata":{"name":"","list":null,"y":1},"z":"\u003c"}"#,
            "{",
        );
    }

    /// As kube-apiserver 1.36 answers: it stores definitions as JSON, and other kinds as protobuf.
    #[test]
    fn empty_lists_of_definitions_stay_empty_lists() {
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
