//! What a kind is made of: structs with fields in canonical order, and the shapes that fields have.
//!
//! One [`Types`] holds all structs of one origin (the catalogue of built-in types, or one custom
//! resource definition); structs refer to each other by [`StructId`], so recursive types are no problem.

mod index;

use index::NameIndex;
use keelson_meta::{GroupVersionKind, Str, Value};
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

/// The place of a struct in its [`Types`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StructId(pub u32);

/// All structs of one origin.
#[derive(Debug, Default)]
pub struct Types {
    structs: Vec<Struct>,
    by_name: HashMap<Str, StructId>,
    is_custom_resource: bool,
}

impl Types {
    /// Takes structs whose [`StructId`]s are their places in the list.
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

/// Types that several schemas share. They may be made when they are first asked for: most definitions of a
/// cluster are of kinds of which there is no object.
#[derive(Clone, Debug)]
pub struct SharedTypes(Arc<LazyLock<Types, MakeTypes>>);

type MakeTypes = Box<dyn FnOnce() -> Types + Send + Sync>;

impl SharedTypes {
    /// Types that `make` gives when they are first asked for.
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

/// The type of one kind of object: what decoders, encoders and all that walks an object need.
#[derive(Clone, Debug)]
pub struct Schema {
    /// The kind.
    pub gvk: GroupVersionKind,
    /// Where `root` and everything below it lives.
    pub types: SharedTypes,
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
    /// Invariant: of the names of `fields`.
    index: NameIndex,
    /// Places of the fields that are written although they are not set, in order.
    always: Box<[u16]>,
    /// `x-kubernetes-map-type: atomic`: one owner for the whole struct.
    pub atomic: bool,
    /// Members that no field names are kept (`x-kubernetes-preserve-unknown-fields`).
    pub preserve_unknown: bool,
    /// It lies within a value that keeps such members: they are taken away here, and server-side apply does not
    /// refuse them.
    pub within_open: bool,
    /// Members of another type than their field's are kept: they are refused by validation, as those of custom
    /// resources are, and not by decoding.
    pub lenient: bool,
    /// The protobuf message. Invariant: sorted by tag, and so in each inlined message.
    message: Box<[Slot]>,
}

/// A field of a struct's protobuf message.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    /// Field number.
    pub tag: u32,
    /// What it holds.
    pub holds: Holds,
}

/// What a field of a struct's protobuf message holds.
#[derive(Clone, Debug)]
pub(crate) enum Holds {
    /// The member at this place in `fields`.
    Member(u16),
    /// A message that JSON does not show; its members are those of the struct.
    Inlined(Box<Inlined>),
}

/// A message within a struct's protobuf message that JSON does not show.
#[derive(Clone, Debug)]
pub(crate) struct Inlined {
    /// Written even when none of its members is set.
    pub always: bool,
    /// Its fields.
    pub slots: Vec<Slot>,
}

impl Struct {
    /// Takes fields in canonical order.
    pub fn new(name: impl Into<Str>, mut fields: Vec<Field>) -> Self {
        fields.shrink_to_fit();
        let index = NameIndex::new(&fields);
        let is_always =
            |field: &Field| matches!(field.presence, Presence::Always | Presence::AlwaysNull);
        let always = fields.iter().zip(0..).filter(|(field, _)| is_always(field));
        let always = always.map(|(_, at)| at).collect();
        let message = message(&fields, &[]);
        Struct { name: name.into(), fields, index, always, message, ..Struct::default() }
    }

    /// The same struct of a custom resource: members of wrong types are kept for validation to refuse, and
    /// those that no field names too, if `is_open`.
    pub(crate) fn of_custom_resource(self, is_open: bool, atomic: bool) -> Self {
        Struct { lenient: true, preserve_unknown: is_open, atomic, ..self }
    }

    /// The same struct with messages embedded in its protobuf message that JSON does not show and that
    /// are always written, by the tags that lead to them.
    pub fn with_inlined(mut self, inlined: &[TagPath]) -> Self {
        self.message = message(&self.fields, inlined);
        self
    }

    /// The same as [`Struct::position`], quick when the field is the next one of those that are set, at or
    /// after `from`.
    pub fn position_near(&self, from: usize, name: &str) -> Option<usize> {
        self.index.next(from, name).or_else(|| self.position(name))
    }

    /// The place of the field at or after `from` whose `name":` the text begins with; none when it is none of
    /// the next fields or written in another way.
    #[inline(always)]
    pub(crate) fn next_in(&self, from: usize, text: &[u8]) -> Option<usize> {
        self.index.next_in(from, text)
    }

    /// Bytes of `name":` of the field at this place.
    #[inline(always)]
    pub(crate) fn key_length(&self, at: usize) -> usize {
        self.index.key_length(at)
    }

    /// Appends `,"name":` of the field at this place.
    #[inline]
    pub(crate) fn write_key(&self, at: usize, out: &mut Vec<u8>) {
        self.index.write_key(at, out);
    }

    /// Whether it has fields that are written although they are not set.
    pub fn writes_unset(&self) -> bool {
        !self.always.is_empty()
    }

    /// Places of the fields that are written although they are not set, in order.
    pub(crate) fn always(&self) -> &[u16] {
        &self.always
    }

    /// The protobuf message, in order of tags.
    pub(crate) fn message(&self) -> &[Slot] {
        &self.message
    }

    /// The place in `fields` of the field with this JSON name.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.index.position(&self.fields, name)
    }

    /// The field with this JSON name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.position(name).map(|at| &self.fields[at])
    }
}

/// Lays the members out by their tags. An embedded message that is not in `inlined` is written only when
/// one of its members is set.
fn message(fields: &[Field], inlined: &[TagPath]) -> Box<[Slot]> {
    let mut tagged: Vec<(&TagPath, u16)> =
        fields.iter().zip(0..).map(|(field, at)| (&field.tag, at)).collect();
    tagged.retain(|(tag, _)| !tag.is_empty());
    tagged.sort();
    let mut out = Vec::with_capacity(tagged.len());
    for (path, at) in tagged {
        let mut slots = &mut out;
        for depth in 1..path.len() {
            let tag = path[depth - 1];
            if slots.last().is_none_or(|last: &Slot| last.tag != tag) {
                let always = inlined.iter().any(|inlined| inlined[..] == path[..depth]);
                let inlined = Box::new(Inlined { always, slots: vec![] });
                slots.push(Slot { tag, holds: Holds::Inlined(inlined) });
            }
            match slots.last_mut().map(|last| &mut last.holds) {
                Some(Holds::Inlined(inner)) => slots = &mut inner.slots,
                _ => unreachable!("tag {tag} is a member and a message"),
            }
        }
        slots.push(Slot { tag: path[path.len() - 1], holds: Holds::Member(at) });
    }
    out.into_boxed_slice()
}

/// The protobuf field numbers that lead to a field: one, or more when the field belongs to a message
/// that JSON does not show (`[2, 5]`: field 5 of the embedded message in field 2). Empty: not in protobuf.
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
    /// OpenAPI default. Of a Go value it is here only when it is not the zero value, since that is what
    /// the member has anyway.
    pub default: Option<Box<Value>>,
    /// Allowed values, in the order OpenAPI lists them; empty: any.
    pub enumeration: Box<[Str]>,
    /// `x-kubernetes-map-type: granular` of the member: its fields have owners of their own, though its
    /// type is atomic elsewhere.
    pub granular: bool,
    /// `x-kubernetes-patch-strategy` has `retainKeys`.
    pub retain_keys: bool,
    /// `x-kubernetes-patch-strategy` is `replace`: a strategic patch replaces the member, map or not.
    pub patch_replace: bool,
}

impl Field {
    /// Whether Go would not write the member although the client gave it.
    #[inline]
    pub(crate) fn is_left_out(&self, value: &Value) -> bool {
        match self.presence {
            Presence::Pointer | Presence::AlwaysNull => false,
            Presence::OmitEmpty => match self.shape {
                // An empty list or map is not the same as an absent one until the object is written.
                Shape::Struct(_) | Shape::List(_) | Shape::Map(_) => value.is_null(),
                _ => value.is_empty(),
            },
            Presence::Always => value.is_null() && !self.nullable,
        }
    }

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
            granular: false,
            retain_keys: false,
            patch_replace: false,
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
    /// Text with a format, in a custom resource: server-side apply takes any scalar there, and the validation
    /// says what is wrong with it.
    Formatted,
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
    /// Whether the values of a custom resource are `nullable`.
    pub nullable: bool,
    /// `x-kubernetes-map-type: atomic`.
    pub atomic: bool,
}
