//! The types of kinds: structs with fields in canonical order, and the shapes of fields.
//!
//! One [`Types`] holds all structs of the catalogue or of one CustomResourceDefinition. Structs
//! refer to each other by [`StructId`], which allows recursive types.

mod index;

use foldhash::HashMap;
use index::NameIndex;
use keelson_meta::{GroupVersionKind, Str, Value};
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

/// Index of a struct in its [`Types`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StructId(pub u32);

/// A set of structs that refer to each other.
#[derive(Debug, Default)]
pub struct Types {
    structs: Vec<Struct>,
    by_name: HashMap<Str, StructId>,
    is_custom_resource: bool,
}

impl Types {
    /// Creates the set. The [`StructId`] of a struct is its index in the list.
    pub fn new(structs: Vec<Struct>) -> Self {
        let by_name =
            structs.iter().zip(0..).map(|(s, id)| (s.name.clone(), StructId(id))).collect();
        let is_custom_resource = structs.iter().any(|of| of.lenient);
        Types { structs, by_name, is_custom_resource }
    }

    /// Whether these are the types of a custom resource.
    pub fn is_custom_resource(&self) -> bool {
        self.is_custom_resource
    }

    /// Returns a struct. `id` must belong to this `Types`.
    pub fn get(&self, id: StructId) -> &Struct {
        &self.structs[id.0 as usize]
    }

    /// Finds a struct by its full name, for instance `io.k8s.api.core.v1.Pod`.
    pub fn find(&self, name: &str) -> Option<StructId> {
        self.by_name.get(name).copied()
    }

    /// Iterates over all structs, in order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (StructId, &Struct)> {
        self.structs.iter().zip(0..).map(|(s, id)| (StructId(id), s))
    }
}

/// Types that several schemas share. They may be created on first use: most definitions of a
/// cluster have no objects.
#[derive(Clone, Debug)]
pub struct SharedTypes(Arc<LazyLock<Types, MakeTypes>>);

type MakeTypes = Box<dyn FnOnce() -> Types + Send + Sync>;

impl SharedTypes {
    /// Returns types that `make` creates on first use.
    pub fn lazy(make: impl FnOnce() -> Types + Send + Sync + 'static) -> SharedTypes {
        SharedTypes(Arc::new(LazyLock::new(Box::new(make))))
    }
}

impl From<Types> for SharedTypes {
    fn from(types: Types) -> SharedTypes {
        SharedTypes::lazy(move || types)
    }
}

impl Deref for SharedTypes {
    type Target = Types;

    fn deref(&self) -> &Types {
        &self.0
    }
}

/// The type of one kind of objects, by which they are decoded, encoded, defaulted, patched and
/// described.
#[derive(Clone, Debug)]
pub struct Schema {
    /// The kind.
    pub gvk: GroupVersionKind,
    /// The structs that `root` refers to.
    pub types: SharedTypes,
    /// The struct of the object.
    pub root: StructId,
}

impl Schema {
    /// Returns the struct of the object.
    pub fn root(&self) -> &Struct {
        self.types.get(self.root)
    }
}

/// An object type: a JSON object with known fields.
#[derive(Clone, Debug, Default)]
pub struct Struct {
    /// Full name, as in OpenAPI.
    pub name: Str,
    /// In canonical order: the order of the Go struct and of the protobuf message.
    pub fields: Vec<Field>,
    /// Invariant: indexes the names of `fields`.
    index: NameIndex,
    /// Returns the indices of the fields that are encoded even if unset, in order.
    always: Box<[u16]>,
    /// `x-kubernetes-map-type: atomic`: one owner for the whole struct.
    pub atomic: bool,
    /// Whether unknown fields are kept (`x-kubernetes-preserve-unknown-fields`).
    pub preserve_unknown: bool,
    /// Whether an enclosing value keeps unknown fields. This struct prunes them, but server-side
    /// apply does not reject them.
    pub inside_preserve_unknown: bool,
    /// Whether decoding keeps values of a wrong type. It does for custom resources, because
    /// validation reports them.
    pub lenient: bool,
    /// The protobuf message. Invariant: sorted by tag, as is each embedded message.
    message: Box<[ProtoField]>,
}

/// A field of a struct's protobuf message.
#[derive(Clone, Debug)]
pub(crate) struct ProtoField {
    /// Field number.
    pub tag: u32,
    /// The content of the field.
    pub content: ProtoContent,
}

/// The content of a protobuf field.
#[derive(Clone, Debug)]
pub(crate) enum ProtoContent {
    /// The field with this index in `fields`.
    Member(u16),
    /// An embedded message that JSON inlines: its fields are fields of the struct.
    Embedded(Box<EmbeddedMessage>),
}

/// A message within a struct's protobuf message that JSON inlines.
#[derive(Clone, Debug)]
pub(crate) struct EmbeddedMessage {
    /// Whether it is encoded even if none of its fields is set.
    pub always: bool,
    /// Its fields.
    pub proto_fields: Vec<ProtoField>,
}

impl Struct {
    /// Creates a struct. `fields` must be in canonical order.
    pub fn new(name: impl Into<Str>, fields: Vec<Field>) -> Self {
        Struct::with_embedded(name, fields, &[])
    }

    /// Creates a struct with embedded messages that are always encoded, given by their tags.
    pub fn with_embedded(
        name: impl Into<Str>,
        mut fields: Vec<Field>,
        embedded: &[TagPath],
    ) -> Self {
        fields.shrink_to_fit();
        let index = NameIndex::new(&fields);
        let is_always =
            |field: &Field| matches!(field.presence, Presence::Always | Presence::AlwaysNull);
        let always = fields
            .iter()
            .zip(0..)
            .filter(|(field, _)| is_always(field))
            .map(|(_, at)| at)
            .collect();
        let message = message(&fields, embedded);
        Struct { name: name.into(), fields, index, always, message, ..Struct::default() }
    }

    /// Returns the struct as one of a custom resource: values of a wrong type are kept for
    /// validation to report, and with `is_open` unknown fields too.
    pub(crate) fn of_custom_resource(self, is_open: bool, atomic: bool) -> Self {
        Struct { lenient: true, preserve_unknown: is_open, atomic, ..self }
    }

    /// Same as [`Struct::position`], but faster when the field is the next one that is set, at or
    /// after `from`.
    pub fn position_near(&self, from: usize, name: &str) -> Option<usize> {
        self.index.next(from, name).or_else(|| self.position(name))
    }

    /// Returns the index of the field at or after `from` whose `name":` the text begins with. May
    /// return `None` for later fields and names with escapes.
    #[inline(always)]
    pub(crate) fn next_in(&self, from: usize, text: &[u8]) -> Option<usize> {
        self.index.next_in(from, text)
    }

    /// Returns the length of `name":` of a field.
    #[inline(always)]
    pub(crate) fn key_length(&self, at: usize) -> usize {
        self.index.key_length(at)
    }

    /// Appends `,"name":` of a field.
    #[inline]
    pub(crate) fn write_key(&self, at: usize, out: &mut Vec<u8>) {
        self.index.write_key(at, out);
    }

    /// Whether it has fields that are encoded even if unset.
    pub fn has_always_fields(&self) -> bool {
        !self.always.is_empty()
    }

    /// Returns the indices of the fields that are encoded even if unset, in order.
    pub(crate) fn always(&self) -> &[u16] {
        &self.always
    }

    /// Returns the protobuf message, in order of tags.
    pub(crate) fn message(&self) -> &[ProtoField] {
        &self.message
    }

    /// Returns the index of the field with this JSON name.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.index.position(&self.fields, name)
    }

    /// Returns the field with this JSON name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.position(name).map(|at| &self.fields[at])
    }
}

/// Builds the protobuf message. An embedded message that is not in `embedded` is only encoded if
/// one of its fields is set.
fn message(fields: &[Field], embedded: &[TagPath]) -> Box<[ProtoField]> {
    let mut tagged: Vec<(&TagPath, u16)> =
        fields.iter().zip(0..).map(|(field, at)| (&field.tag, at)).collect();
    tagged.retain(|(tag, _)| !tag.is_empty());
    tagged.sort();
    let mut out = Vec::with_capacity(tagged.len());
    for (path, at) in tagged {
        let mut proto_fields = &mut out;
        for depth in 1..path.len() {
            let tag = path[depth - 1];
            if proto_fields.last().is_none_or(|last: &ProtoField| last.tag != tag) {
                let always = embedded.iter().any(|embedded| embedded[..] == path[..depth]);
                let embedded = Box::new(EmbeddedMessage { always, proto_fields: vec![] });
                proto_fields.push(ProtoField { tag, content: ProtoContent::Embedded(embedded) });
            }
            match proto_fields.last_mut().map(|last| &mut last.content) {
                Some(ProtoContent::Embedded(inner)) => proto_fields = &mut inner.proto_fields,
                _ => unreachable!("tag {tag} is a member and a message"),
            }
        }
        proto_fields
            .push(ProtoField { tag: path[path.len() - 1], content: ProtoContent::Member(at) });
    }
    out.into_boxed_slice()
}

/// The protobuf field numbers of a field: one, or several for a field of an embedded message that
/// JSON inlines (`[2, 5]`: field 5 of the message in field 2). Empty: not in protobuf.
pub type TagPath = smallvec::SmallVec<[u32; 2]>;

/// When a field is encoded although it is unset, or omitted although it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// A Go pointer, or a field of a custom resource: encoded if set, even with a zero value.
    Pointer,
    /// A Go value with `omitempty`: a zero value is the same as an unset one. Protobuf still
    /// encodes scalars.
    OmitEmpty,
    /// A Go value without `omitempty`: always encoded. An unset field has its zero value: `""`, 0,
    /// false, `{}` with its own such fields, `null` for lists and maps.
    Always,
    /// A Go pointer without `omitempty`: always encoded, as `null` if unset.
    AlwaysNull,
}

/// A field of a struct.
#[derive(Clone, Debug)]
pub struct Field {
    /// JSON name.
    pub name: Str,
    /// Protobuf field number.
    pub tag: TagPath,
    /// Type.
    pub shape: Shape,
    /// When it is encoded.
    pub presence: Presence,
    /// Whether OpenAPI lists it as required.
    pub required: bool,
    /// `nullable: true` of a custom resource: null is a valid value.
    pub nullable: bool,
    /// Whether the schema of a custom resource gives no type.
    pub untyped: bool,
    /// OpenAPI default. For a Go value only if it differs from the zero value.
    pub default: Option<Box<Value>>,
    /// Enum values, in OpenAPI's order; empty: any value.
    pub enumeration: Box<[Str]>,
    /// `x-kubernetes-map-type: granular` of the field, which overrides an atomic type.
    pub granular: bool,
    /// `x-kubernetes-patch-strategy` has `retainKeys`.
    pub retain_keys: bool,
    /// `x-kubernetes-patch-strategy` is `replace`: a strategic patch replaces the member, map or
    /// not.
    pub patch_replace: bool,
}

impl Field {
    /// Whether Go would omit the value although the client set it.
    #[inline]
    pub(crate) fn is_omitted(&self, value: &Value) -> bool {
        match self.presence {
            Presence::Pointer | Presence::AlwaysNull => false,
            Presence::OmitEmpty => match self.shape {
                // An empty list or map differs from an absent one until the object is encoded.
                Shape::Struct(_) | Shape::List(_) | Shape::Map(_) => value.is_null(),
                _ => value.is_empty(),
            },
            Presence::Always => value.is_null() && !self.nullable,
        }
    }

    /// Creates an optional field.
    pub fn new(name: impl Into<Str>, shape: Shape) -> Self {
        Field {
            name: name.into(),
            tag: TagPath::new(),
            shape,
            presence: Presence::Pointer,
            required: false,
            nullable: false,
            untyped: false,
            default: None,
            enumeration: Box::default(),
            granular: false,
            retain_keys: false,
            patch_replace: false,
        }
    }

    /// Creates an optional field that Go omits when it is empty.
    pub fn omit_empty(name: impl Into<Str>, shape: Shape) -> Self {
        Field { presence: Presence::OmitEmpty, ..Field::new(name, shape) }
    }
}

/// The type of a value.
#[derive(Clone, Debug)]
pub enum Shape {
    /// A string.
    String,
    /// A boolean.
    Bool,
    /// A 32-bit integer.
    Int32,
    /// A 64-bit integer.
    Int64,
    /// A floating-point number.
    Double,
    /// A number of a custom resource: an integer stays one.
    Number,
    /// Bytes; base64 in JSON.
    Bytes,
    /// RFC 3339 with seconds (meta/v1 Time).
    Time,
    /// RFC 3339 with microseconds (meta/v1 MicroTime).
    MicroTime,
    /// Go duration, nanoseconds in protobuf (meta/v1 Duration).
    Duration,
    /// A quantity such as `100m` or `1Gi`; numbers are accepted too.
    Quantity,
    /// An integer or a string.
    IntOrString,
    /// A string with a format, in a custom resource. Server-side apply accepts any scalar;
    /// validation reports errors.
    Formatted,
    /// Any JSON value (apiextensions JSON); protobuf wraps the raw bytes.
    Json,
    /// An embedded object of any kind (runtime.RawExtension).
    RawExtension,
    /// The field set of a field manager (meta/v1 FieldsV1).
    FieldsV1,
    /// A JSON schema, or a list of schemas, a boolean, or a list of strings (apiextensions
    /// JSONSchemaPropsOr...).
    SchemaOr(SchemaOr, StructId),
    /// A struct.
    Struct(StructId),
    /// A list.
    List(Box<ListShape>),
    /// A map with string keys.
    Map(Box<MapShape>),
}

/// The alternative form of a JSONSchemaPropsOr... value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaOr {
    /// A list of schemas.
    Array,
    /// A boolean.
    Bool,
    /// A list of strings.
    StringArray,
}

/// The item type of a list and its merge rules.
#[derive(Clone, Debug)]
pub struct ListShape {
    /// Type of the items.
    pub item: Shape,
    /// `x-kubernetes-list-type` (default atomic), for server-side apply.
    pub kind: ListKind,
    /// `x-kubernetes-patch-strategy` has `merge`, for strategic merge patch.
    pub patch_merge: bool,
    /// `x-kubernetes-patch-merge-key`; `None` on a merged list of scalars.
    pub patch_merge_key: Option<Str>,
    /// What null items of a custom resource become.
    pub default: Option<Box<Value>>,
}

impl ListShape {
    /// Creates a list that every merge replaces.
    pub fn atomic(item: Shape) -> Self {
        let kind = ListKind::Atomic;
        ListShape { item, kind, patch_merge: false, patch_merge_key: None, default: None }
    }
}

/// `x-kubernetes-list-type`: how server-side apply merges a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListKind {
    /// The whole list has one owner.
    Atomic,
    /// Items are identified by value.
    Set,
    /// Items are identified by these key fields.
    Map(Box<[Str]>),
}

/// The value type of a map and its merge rules.
#[derive(Clone, Debug)]
pub struct MapShape {
    /// Type of the values.
    pub value: Shape,
    /// Whether null values of a custom resource are kept: they are `nullable`, or have a default.
    pub nullable: bool,
    /// What null values of a custom resource become.
    pub default: Option<Box<Value>>,
    /// `x-kubernetes-map-type: atomic`.
    pub atomic: bool,
}
