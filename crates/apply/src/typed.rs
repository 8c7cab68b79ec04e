//! Values seen through their schema, as server-side apply sees them: which parts are leaves, which
//! items of lists are the same item, and what Go shows where nothing is set.

mod atomic;
mod check;
mod compare;
mod element;
mod merge;
mod owned;
mod reconcile;
mod remove;

pub use atomic::atomics;
pub use check::check;
pub use compare::{Comparison, compare};
pub use merge::merge;
pub(crate) use owned::with_named_fields;
pub use owned::{owned, owned_without};
pub(crate) use reconcile::reconcile;
pub(crate) use remove::remove;

use keelson_meta::{Map, Str, Value};
use keelson_schema::types::ListShape;
use keelson_schema::{Field, ListKind, Presence, Shape, Struct, Types};
use smallvec::SmallVec;
use std::fmt;

/// Something that does not fit its schema: where, and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// `.spec.ports[port=80]`.
    pub path: String,
    /// Why.
    pub message: String,
}

/// All that does not fit, as upstream shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Misfits(pub Vec<Misfit>);

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            return f.write_str(&self.message);
        }
        write!(f, "{}: {}", self.path, self.message)
    }
}

impl fmt::Display for Misfits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [one] = self.0.as_slice() {
            return one.fmt(f);
        }
        f.write_str("errors:")?;
        self.0.iter().try_for_each(|misfit| write!(f, "\n  {misfit}"))
    }
}

impl std::error::Error for Misfits {}

/// How an object came to be, which decides what an absent member means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As a client wrote it: what is absent is absent.
    Written,
    /// A stored or decoded object: where Go holds a zero value, that value is there.
    Decoded,
    /// The same, merged with a configuration: empty lists and maps count, which Go would omit.
    Merged,
}

/// What server-side apply makes of a shape.
#[derive(Clone, Copy)]
pub(crate) enum Kind<'t> {
    /// Text, numbers, booleans.
    Scalar(Scalar),
    /// A struct, each member of which has owners of its own.
    Struct(&'t Struct),
    /// A map, each entry of which has owners of its own.
    Map(&'t Shape),
    /// A list whose items have owners of their own.
    List(&'t ListShape),
    /// A list, map or struct with one owner.
    Atomic(&'t Shape),
    /// Whatever the value is: scalars and lists are leaves, maps have entries of the same kind.
    Deduced,
    /// Whatever the value is, it is one leaf.
    Untyped,
}

/// The types of scalars that apply tells apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scalar {
    String,
    Numeric,
    Boolean,
    Any,
}

impl<'t> Kind<'t> {
    pub(crate) fn of(types: &'t Types, shape: &'t Shape) -> Self {
        match shape {
            Shape::String | Shape::Bytes | Shape::Duration => Kind::Scalar(Scalar::String),
            Shape::Bool => Kind::Scalar(Scalar::Boolean),
            Shape::Int32 | Shape::Int64 | Shape::Double => Kind::Scalar(Scalar::Numeric),
            Shape::Quantity | Shape::Time | Shape::MicroTime | Shape::Formatted => {
                Kind::Scalar(Scalar::Any)
            }
            Shape::IntOrString | Shape::Json | Shape::FieldsV1 | Shape::SchemaOr(..) => {
                Kind::Deduced
            }
            Shape::RawExtension => Kind::Untyped,
            Shape::Struct(id) => match types.get(*id) {
                of if of.atomic => Kind::Atomic(shape),
                of => Kind::Struct(of),
            },
            Shape::Map(map) if map.atomic => Kind::Atomic(shape),
            Shape::Map(map) => Kind::Map(&map.value),
            Shape::List(list) if list.kind == ListKind::Atomic => Kind::Atomic(shape),
            Shape::List(list) => Kind::List(list),
        }
    }

    /// The kind of a field of a struct.
    pub(crate) fn of_field(types: &'t Types, field: &'t Field) -> Self {
        match &field.shape {
            Shape::Struct(id) if field.granular => Kind::Struct(types.get(*id)),
            shape => Kind::of(types, shape),
        }
    }

    /// The kind of the member `name` of a map or struct, and whether it is a field.
    pub(crate) fn member(&self, types: &'t Types, name: &str) -> (Option<Kind<'t>>, bool) {
        match self {
            Kind::Struct(of) => match of.field(name) {
                Some(field) => (Some(Kind::of_field(types, field)), true),
                None if allows_unknown(of) => (Some(Kind::Deduced), false),
                None => (None, false),
            },
            Kind::Map(value) => (Some(Kind::of(types, value)), false),
            Kind::Deduced => (Some(Kind::Deduced), false),
            _ => (None, false),
        }
    }

    /// True when the value at hand is one leaf.
    pub(crate) fn is_leaf(&self, value: &Value) -> bool {
        match self {
            Kind::Scalar(_) | Kind::Atomic(_) | Kind::Untyped => true,
            Kind::Deduced => !matches!(value, Value::Object(_) | Value::Null),
            Kind::Struct(_) | Kind::Map(_) | Kind::List(_) => false,
        }
    }
}

/// An object without declared members takes any, and so does all that is within one that takes any.
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

/// The zero value of a shape, where Go holds it by value.
pub(crate) fn zero(shape: &Shape) -> &'static Value {
    match shape {
        Shape::String | Shape::Formatted => &NO_TEXT,
        Shape::Bool => &FALSE,
        Shape::Int32 | Shape::Int64 | Shape::Double | Shape::IntOrString => &ZERO,
        Shape::Quantity => &NO_QUANTITY,
        Shape::Duration => &NO_DURATION,
        Shape::Struct(_) => &EMPTY,
        _ => &NULL,
    }
}

/// Fields of a struct whose places are held without an allocation.
const FIELDS: usize = 64;

/// The members of an object by the place of their field.
pub(crate) struct Members<'v> {
    map: &'v Map,
    /// For each field the place of its member in the map, counted from one; zero: there is none.
    places: SmallVec<[u16; FIELDS]>,
}

impl<'v> Members<'v> {
    /// Finds the field of each member once. Members mostly stand in the order of the fields.
    pub fn of(of: &Struct, map: &'v Map) -> Self {
        let mut places = SmallVec::from_elem(0, of.fields.len());
        let mut next = 0;
        for (place, (name, _)) in (1..=u16::MAX).zip(map.iter()) {
            if let Some(at) = of.position_near(next, name) {
                places[at] = place;
                next = at + 1;
            }
        }
        Members { map, places }
    }

    /// What the member at the place of `field` is, present or not.
    pub fn look(&self, form: Form, at: usize, field: &Field) -> Option<&'v Value> {
        let given = match self.places[at] {
            // More members than places can count: most are of no field.
            0 if self.map.len() > usize::from(u16::MAX) => self.map.get(&field.name),
            0 => None,
            place => self.map.value_at(usize::from(place) - 1),
        };
        match (form, field.presence) {
            (Form::Written, _) | (_, Presence::Pointer) => given,
            (_, Presence::Always) => Some(given.unwrap_or(zero(&field.shape))),
            (_, Presence::AlwaysNull) => Some(given.unwrap_or(&NULL)),
            (_, Presence::OmitEmpty) => match &field.shape {
                Shape::Struct(_) => Some(given.unwrap_or(&EMPTY)),
                Shape::List(_) | Shape::Map(_) if form == Form::Decoded => {
                    given.filter(|value| !value.is_empty())
                }
                _ => given,
            },
        }
    }
}
