//! Typed values of server-side apply: field sets, comparison, merge and removal by schema. The
//! schema says which values are leaves, which list items are the same item, and which zero values
//! Go writes for unset fields.

mod atomic;
mod compare;
mod element;
mod field_set;
mod merge;
mod reconcile;
mod remove;
mod validate;

pub use atomic::atomic_paths;
pub use compare::{Comparison, compare};
pub(crate) use field_set::with_named_fields;
pub use field_set::{field_set, field_set_without};
pub use merge::merge;
pub(crate) use reconcile::reconcile;
pub(crate) use remove::remove;
pub use validate::{has_types, validate, validate_types};

use keelson_meta::{Map, Str, Value};
use keelson_schema::types::ListShape;
use keelson_schema::{Field, ListKind, Presence, Shape, Struct, Types};
use smallvec::SmallVec;
use std::fmt;

/// A value that does not match its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidationError {
    /// The path of the value: `.spec.ports[port=80]`.
    pub path: String,
    /// Upstream's message.
    pub message: String,
}

/// All validation errors of an object. `Display` shows them as upstream does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValidationErrors(pub Vec<ValidationError>);

impl fmt::Display for ValidationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            return f.write_str(&self.message);
        }
        write!(f, "{}: {}", self.path, self.message)
    }
}

impl fmt::Display for ValidationErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [one] = self.0.as_slice() {
            return one.fmt(f);
        }
        f.write_str("errors:")?;
        self.0.iter().try_for_each(|error| write!(f, "\n  {error}"))
    }
}

impl std::error::Error for ValidationErrors {}

/// The form of an object, which decides what an absent member means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As a client wrote it: absent members are not set.
    Written,
    /// Stored or decoded: absent members that Go holds by value have their zero value.
    Decoded,
    /// Decoded and then merged with a configuration: like `Decoded`, but empty lists and maps,
    /// which Go would omit, are set.
    Merged,
}

/// How server-side apply treats the values of a shape.
#[derive(Clone, Copy)]
pub(crate) enum MergeKind<'t> {
    /// A string, number or boolean: a leaf.
    Scalar(Scalar),
    /// A granular struct: each field has its own managers.
    Struct(&'t Struct),
    /// A granular map: each entry has its own managers.
    Map(&'t Shape),
    /// A list of type `set` or `map`: each item has its own managers.
    List(&'t ListShape),
    /// An atomic list, map or struct: a leaf.
    Atomic(&'t Shape),
    /// Decided by the value: scalars and lists are leaves, maps are granular with values of this
    /// kind.
    Deduced,
    /// Any value, as a leaf.
    Untyped,
}

/// The scalar types that validation distinguishes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scalar {
    String,
    Numeric,
    Boolean,
    Any,
}

impl<'t> MergeKind<'t> {
    pub(crate) fn of(types: &'t Types, shape: &'t Shape) -> Self {
        match shape {
            Shape::String | Shape::Bytes | Shape::Duration => MergeKind::Scalar(Scalar::String),
            Shape::Bool => MergeKind::Scalar(Scalar::Boolean),
            Shape::Int32 | Shape::Int64 | Shape::Double | Shape::Number => {
                MergeKind::Scalar(Scalar::Numeric)
            }
            Shape::Quantity | Shape::Time | Shape::MicroTime | Shape::Formatted => {
                MergeKind::Scalar(Scalar::Any)
            }
            Shape::IntOrString | Shape::Json | Shape::FieldsV1 | Shape::SchemaOr(..) => {
                MergeKind::Deduced
            }
            Shape::RawExtension => MergeKind::Untyped,
            Shape::Struct(id) => match types.get(*id) {
                of if of.atomic => MergeKind::Atomic(shape),
                of => MergeKind::Struct(of),
            },
            Shape::Map(map) if map.atomic => MergeKind::Atomic(shape),
            Shape::Map(map) => MergeKind::Map(&map.value),
            Shape::List(list) if list.kind == ListKind::Atomic => MergeKind::Atomic(shape),
            Shape::List(list) => MergeKind::List(list),
        }
    }

    /// Returns the kind of a field of a struct.
    pub(crate) fn of_field(types: &'t Types, field: &'t Field) -> Self {
        match &field.shape {
            Shape::Struct(id) if field.granular => MergeKind::Struct(types.get(*id)),
            shape => MergeKind::of(types, shape),
        }
    }

    /// Returns the kind of the member `name` of a map or struct, and whether it is a declared
    /// field.
    pub(crate) fn member(&self, types: &'t Types, name: &str) -> (Option<MergeKind<'t>>, bool) {
        match self {
            MergeKind::Struct(of) => match of.field(name) {
                Some(field) => (Some(MergeKind::of_field(types, field)), true),
                None if allows_unknown(of) => (Some(MergeKind::Deduced), false),
                None => (None, false),
            },
            MergeKind::Map(value) => (Some(MergeKind::of(types, value)), false),
            MergeKind::Deduced => (Some(MergeKind::Deduced), false),
            _ => (None, false),
        }
    }

    /// Returns whether `value` is a leaf.
    pub(crate) fn is_leaf(&self, value: &Value) -> bool {
        match self {
            MergeKind::Scalar(_) | MergeKind::Atomic(_) | MergeKind::Untyped => true,
            MergeKind::Deduced => !matches!(value, Value::Object(_) | Value::Null),
            MergeKind::Struct(_) | MergeKind::Map(_) | MergeKind::List(_) => false,
        }
    }
}

/// Returns whether a struct allows undeclared members: one without fields does, and everything
/// inside one that preserves unknown fields.
pub(crate) fn allows_unknown(of: &Struct) -> bool {
    of.preserve_unknown || of.inside_preserve_unknown || of.fields.is_empty()
}

static EMPTY: Value = Value::Object(Map::new());
static NULL: Value = Value::Null;
static ZERO: Value = Value::Int(0);
static FALSE: Value = Value::Bool(false);
static NO_TEXT: Value = Value::String(Str::new_static(""));
static NO_QUANTITY: Value = Value::String(Str::new_static("0"));
static NO_DURATION: Value = Value::String(Str::new_static("0s"));

/// Returns the zero value of a shape that Go holds by value.
pub(crate) fn zero(shape: &Shape) -> &'static Value {
    match shape {
        Shape::String | Shape::Formatted => &NO_TEXT,
        Shape::Bool => &FALSE,
        Shape::Int32 | Shape::Int64 | Shape::Double | Shape::Number | Shape::IntOrString => &ZERO,
        Shape::Quantity => &NO_QUANTITY,
        Shape::Duration => &NO_DURATION,
        Shape::Struct(_) => &EMPTY,
        _ => &NULL,
    }
}

/// Fields of a struct whose positions need no allocation.
const INLINE_FIELDS: usize = 64;

/// The members of an object, indexed by the position of their field in the struct.
pub(crate) struct Members<'v> {
    map: &'v Map,
    /// For each field the position of its member in the map, counted from one; zero: absent.
    positions: SmallVec<[u16; INLINE_FIELDS]>,
}

impl<'v> Members<'v> {
    /// Indexes the members of a map. Fast when they have the order of the fields, as is usual.
    pub fn of(of: &Struct, map: &'v Map) -> Self {
        let mut positions = SmallVec::from_elem(0, of.fields.len());
        let mut next = 0;
        for (position, (name, _)) in (1..=u16::MAX).zip(map.iter()) {
            if let Some(at) = of.position_near(next, name) {
                positions[at] = position;
                next = at + 1;
            }
        }
        Members { map, positions }
    }

    /// Returns the value of `field`, the field at position `at` of the struct; a zero value if the
    /// form has it.
    pub fn get(&self, form: Form, at: usize, field: &Field) -> Option<&'v Value> {
        let value = match self.positions[at] {
            // Members beyond 65,535 are not indexed.
            0 if self.map.len() > usize::from(u16::MAX) => self.map.get(&field.name),
            0 => None,
            position => self.map.value_at(usize::from(position) - 1),
        };
        match (form, field.presence) {
            (Form::Written, _) | (_, Presence::Pointer) => value,
            (_, Presence::Always) => Some(value.unwrap_or(zero(&field.shape))),
            (_, Presence::AlwaysNull) => Some(value.unwrap_or(&NULL)),
            (_, Presence::OmitEmpty) => match &field.shape {
                Shape::Struct(_) => Some(value.unwrap_or(&EMPTY)),
                Shape::List(_) | Shape::Map(_) if form == Form::Decoded => {
                    value.filter(|value| !value.is_empty())
                }
                _ => value,
            },
        }
    }
}
