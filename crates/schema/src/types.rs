//! What a kind is made of: structs with fields in canonical order, and the shapes that fields have.
//!
//! One [`Types`] holds all structs of one origin (the catalogue of built-in types, or one custom
//! resource definition); structs refer to each other by [`StructId`], so recursive types are no problem.

use keelson_meta::{GroupVersionKind, Str, Value};
use std::collections::HashMap;
use std::sync::Arc;

/// The place of a struct in its [`Types`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StructId(pub u32);

/// All structs of one origin.
#[derive(Debug, Default)]
pub struct Types {
    structs: Vec<Struct>,
    by_name: HashMap<Str, StructId>,
}

impl Types {
    /// Takes structs whose [`StructId`]s are their places in the list.
    pub fn new(structs: Vec<Struct>) -> Self {
        let by_name =
            structs.iter().zip(0..).map(|(s, id)| (s.name.clone(), StructId(id))).collect();
        Types { structs, by_name }
    }

    /// The struct at `id`, which must come from this `Types`.
    pub fn get(&self, id: StructId) -> &Struct {
        &self.structs[id.0 as usize]
    }

    /// Finds a struct by its full name, for instance `io.k8s.api.core.v1.Pod`.
    pub fn find(&self, name: &str) -> Option<StructId> {
        self.by_name.get(name).copied()
    }

    /// All structs in order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (StructId, &Struct)> {
        self.structs.iter().zip(0..).map(|(s, id)| (StructId(id), s))
    }
}

/// The type of one kind of object: what decoders, encoders and all that walks an object need.
#[derive(Clone, Debug)]
pub struct Schema {
    /// The kind.
    pub gvk: GroupVersionKind,
    /// Where `root` and everything below it lives.
    pub types: Arc<Types>,
    /// The object itself.
    pub root: StructId,
}

impl Schema {
    /// The struct of the object itself.
    pub fn root(&self) -> &Struct {
        self.types.get(self.root)
    }
}

/// A JSON object with known members.
#[derive(Clone, Debug, Default)]
pub struct Struct {
    /// Full name, as OpenAPI names it.
    pub name: Str,
    /// In canonical order: that of the Go struct, which is that of the protobuf message.
    pub fields: Vec<Field>,
    /// Places in `fields`, sorted by JSON name. Invariant: as long as `fields`.
    by_name: Vec<u16>,
    /// `x-kubernetes-map-type: atomic`: one owner for the whole struct.
    pub atomic: bool,
    /// Members that no field names are kept (`x-kubernetes-preserve-unknown-fields`).
    pub preserve_unknown: bool,
    /// Embedded messages that JSON does not show: (protobuf tag path, full name).
    pub inlined: Vec<(TagPath, Str)>,
}

impl Struct {
    /// Takes fields in canonical order.
    pub fn new(name: impl Into<Str>, fields: Vec<Field>) -> Self {
        let count = u16::try_from(fields.len()).expect("a struct has fewer than 65536 fields");
        let mut by_name: Vec<u16> = (0..count).collect();
        by_name.sort_by(|a, b| fields[usize::from(*a)].name.cmp(&fields[usize::from(*b)].name));
        Struct { name: name.into(), fields, by_name, ..Struct::default() }
    }

    /// The place in `fields` of the field with this JSON name.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.by_name
            .binary_search_by(|at| self.fields[usize::from(*at)].name.as_str().cmp(name))
            .ok()
            .map(|found| usize::from(self.by_name[found]))
    }

    /// The field with this JSON name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.position(name).map(|at| &self.fields[at])
    }
}

/// The protobuf field numbers that lead to a field: one, or more when the field belongs to a message
/// that JSON shows inline (`[2, 5]`: field 5 of the embedded message in field 2). Empty: not in protobuf.
pub type TagPath = smallvec::SmallVec<[u32; 2]>;

/// When a member is written although the client gave nothing, or left out although it gave something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// A Go pointer, or a member of a custom resource: written exactly when set, zero values included.
    Pointer,
    /// A Go value with `omitempty`: a zero value is the same as nothing. Protobuf still writes scalars.
    OmitEmpty,
    /// A Go value without `omitempty`: always written, with its zero value when not set (`""`, 0, false,
    /// `{}` with its own such members, `null` for lists and maps).
    Always,
    /// A Go pointer without `omitempty`: always written, as `null` when not set.
    AlwaysNull,
}

/// One member of a struct.
#[derive(Clone, Debug)]
pub struct Field {
    /// JSON name.
    pub name: Str,
    /// Protobuf field number.
    pub tag: TagPath,
    /// Type.
    pub shape: Shape,
    /// When it is written.
    pub presence: Presence,
    /// Listed as required in OpenAPI.
    pub required: bool,
    /// `nullable: true` of a custom resource: null is a value of its own.
    pub nullable: bool,
    /// OpenAPI default, when it is not the zero value.
    pub default: Option<Value>,
    /// Allowed values, in the order OpenAPI lists them; empty: any.
    pub enumeration: Box<[Str]>,
    /// `x-kubernetes-patch-strategy` has `retainKeys`.
    pub retain_keys: bool,
}

impl Field {
    /// A plain optional field, for building custom schemas and tests.
    pub fn new(name: impl Into<Str>, shape: Shape) -> Self {
        Field {
            name: name.into(),
            tag: TagPath::new(),
            shape,
            presence: Presence::Pointer,
            required: false,
            nullable: false,
            default: None,
            enumeration: Box::default(),
            retain_keys: false,
        }
    }
}

/// The type of a value.
#[derive(Clone, Debug)]
pub enum Shape {
    /// Text.
    String,
    /// true or false.
    Bool,
    /// A whole number of 32 bits.
    Int32,
    /// A whole number of 64 bits.
    Int64,
    /// A floating-point number.
    Double,
    /// Bytes; base64 in JSON.
    Bytes,
    /// RFC 3339 to the second (meta/v1 Time).
    Time,
    /// RFC 3339 to the microsecond (meta/v1 MicroTime).
    MicroTime,
    /// Go duration text, nanoseconds in protobuf (meta/v1 Duration).
    Duration,
    /// `100m`, `1Gi`; a number is accepted too.
    Quantity,
    /// An integer or text.
    IntOrString,
    /// Any JSON value (apiextensions JSON); protobuf wraps the raw bytes.
    Json,
    /// An embedded object of any kind (runtime.RawExtension).
    RawExtension,
    /// The field set of a manager (meta/v1 FieldsV1).
    FieldsV1,
    /// A schema, or a list of schemas / a boolean / a list of strings (apiextensions JSONSchemaPropsOr...).
    SchemaOr(SchemaOr, StructId),
    /// A struct.
    Struct(StructId),
    /// A list.
    List(Box<ListShape>),
    /// A map with string keys.
    Map(Box<MapShape>),
}

/// The second form that a JSONSchemaPropsOr... value can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaOr {
    /// A list of schemas.
    Array,
    /// A boolean.
    Bool,
    /// A list of strings.
    StringArray,
}

/// A list's items and how they are merged.
#[derive(Clone, Debug)]
pub struct ListShape {
    /// Type of the items.
    pub item: Shape,
    /// `x-kubernetes-list-type` (absent is atomic), for server-side apply.
    pub kind: ListKind,
    /// `x-kubernetes-patch-strategy` has `merge`, for strategic merge patch.
    pub patch_merge: bool,
    /// `x-kubernetes-patch-merge-key`; `None` on a merged list of scalars.
    pub patch_merge_key: Option<Str>,
}

/// How server-side apply sees a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListKind {
    /// One owner for the whole list.
    Atomic,
    /// Items are told apart by value.
    Set,
    /// Items are told apart by these members.
    Map(Box<[Str]>),
}

/// A map's values.
#[derive(Clone, Debug)]
pub struct MapShape {
    /// Type of the values.
    pub value: Shape,
    /// `x-kubernetes-map-type: atomic`.
    pub atomic: bool,
}
