//! [`Val`]: what an expression evaluates to. Values of an object borrow from it; nothing is copied until
//! an expression makes something new.

mod json;

pub use json::adapt;

use crate::authorizer::AuthorizerVal;
use crate::format::NamedFormat;
use crate::semver::Semver;
use crate::types::{Declared, ListKind, ObjectType, Type};
use crate::url::Url;
use keelson_meta::ip::Cidr;
use keelson_meta::time::{GoDuration, Timestamp};
use keelson_meta::{Quantity, Str, Value};
use std::net::IpAddr;
use std::sync::Arc;

/// A value of the language.
#[derive(Clone, Debug)]
pub enum Val<'a> {
    /// `null`.
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer with a sign.
    Int(i64),
    /// An integer without a sign.
    Uint(u64),
    /// A float.
    Double(f64),
    /// Text.
    String(Text<'a>),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// A point in time.
    Timestamp(Timestamp),
    /// A span of time.
    Duration(GoDuration),
    /// A list.
    List(List<'a>),
    /// A map or an object.
    Map(Map<'a>),
    /// A type.
    Type(Arc<Type>),
    /// A value or none.
    Optional(Option<Arc<Val<'a>>>),
    /// A value of a library.
    Opaque(Arc<Opaque<'a>>),
}

/// Text that is borrowed from an object or an expression, or was made while evaluating.
#[derive(Clone, Debug)]
pub enum Text<'a> {
    /// Text of an object or of the expression.
    Borrowed(&'a str),
    /// Text that was made.
    Owned(Str),
}

impl Text<'_> {
    /// The text.
    pub fn as_str(&self) -> &str {
        match self {
            Text::Borrowed(text) => text,
            Text::Owned(text) => text,
        }
    }
}

/// A list of an object, or one that was made while evaluating.
#[derive(Clone, Debug)]
pub enum List<'a> {
    /// Items of an object.
    Json {
        /// The items.
        items: &'a [Value],
        /// What the schema says of each.
        item: Option<&'a Declared>,
        /// How it is compared and added to.
        kind: &'a ListKind,
    },
    /// Items that were made.
    Owned(Arc<Vec<Val<'a>>>),
    /// Two lists as one: adding lists copies nothing, as it costs next to nothing.
    Joined(Arc<Joined<'a>>),
}

/// Two lists, one behind the other.
#[derive(Debug)]
pub struct Joined<'a> {
    left: List<'a>,
    right: List<'a>,
    /// Saturates: doubling a list costs little, so its length may be beyond all counting.
    len: usize,
}

/// A map of an object, or one that was made while evaluating.
#[derive(Clone, Debug)]
pub enum Map<'a> {
    /// A JSON map without a schema.
    Plain(&'a keelson_meta::Map),
    /// A JSON map whose values have one schema.
    Values(&'a keelson_meta::Map, &'a Declared),
    /// An object with declared fields.
    Object(&'a keelson_meta::Map, &'a ObjectType),
    /// Entries that were made.
    Owned(Arc<OwnedMap<'a>>),
}

/// Values of libraries.
#[derive(Debug)]
pub enum Opaque<'a> {
    /// `kubernetes.Quantity`.
    Quantity(Quantity),
    /// `kubernetes.URL`.
    Url(Url),
    /// `net.IP`.
    Ip(IpAddr),
    /// `net.CIDR`.
    Cidr(Cidr),
    /// `kubernetes.Semver`.
    Semver(Semver),
    /// `kubernetes.NamedFormat`.
    Format(&'static NamedFormat),
    /// The authorizer and what is built from it.
    Authorizer(AuthorizerVal<'a>),
}

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvalError(Box<Fault>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Fault {
    message: String,
    cause: Cause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Value,
    CostLimit,
    Interrupt,
}

/// What evaluating gives.
pub type Evaluated<'a> = Result<Val<'a>, EvalError>;

impl EvalError {
    /// An error of a value: another operand of `&&` or `||` may still decide.
    #[cold]
    pub fn new(message: impl Into<String>) -> Self {
        EvalError(Box::new(Fault { message: message.into(), cause: Cause::Value }))
    }

    #[cold]
    pub(crate) fn cost_limit() -> Self {
        let message = "operation cancelled: actual cost limit exceeded".to_owned();
        EvalError(Box::new(Fault { message, cause: Cause::CostLimit }))
    }

    #[cold]
    pub(crate) fn interrupted() -> Self {
        let message = "operation interrupted".to_owned();
        EvalError(Box::new(Fault { message, cause: Cause::Interrupt }))
    }

    /// The function has nothing to do with values of the first argument's type.
    #[cold]
    pub(crate) fn no_overload_of(function: &str) -> Self {
        EvalError::new(format!("{NO_SUCH_OVERLOAD}: {function}"))
    }

    #[cold]
    pub(crate) fn no_overload() -> Self {
        EvalError::new(NO_SUCH_OVERLOAD)
    }

    /// Whether evaluation ended because it cost too much.
    pub fn is_cost_limit(&self) -> bool {
        self.0.cause == Cause::CostLimit
    }

    /// Whether evaluation ended before the expression was done.
    pub fn is_cancelled(&self) -> bool {
        self.0.cause != Cause::Value
    }

    /// The message.
    pub fn message(&self) -> &str {
        &self.0.message
    }
}

/// The message for arguments that fit no overload.
pub const NO_SUCH_OVERLOAD: &str = "no such overload";

impl std::fmt::Display for EvalError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for EvalError {}

/// A key of a map, in a form in which equal keys are equal: `1` and `1u` are one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Key {
    Bool(bool),
    Number(i128),
    /// The bits of a double that is no whole number.
    Double(u64),
    String(Str),
}

impl Key {
    /// The key that a value is, when it can be one; a double can when it is a whole number.
    pub(crate) fn of(val: &Val<'_>) -> Option<Key> {
        Some(match val {
            Val::Bool(flag) => Key::Bool(*flag),
            Val::Int(number) => Key::Number((*number).into()),
            Val::Uint(number) => Key::Number((*number).into()),
            Val::Double(number) if number.fract() == 0.0 && number.abs() < 2_f64.powi(65) => {
                Key::Number(*number as i128)
            }
            Val::Double(number) => Key::Double(number.to_bits()),
            Val::String(text) => Key::String(text.as_str().into()),
            _ => return None,
        })
    }
}

/// A map that was made while evaluating, in the order of insertion.
#[derive(Clone, Debug, Default)]
pub struct OwnedMap<'a> {
    /// The type it is of, when it is a struct.
    type_name: Option<Str>,
    entries: Vec<(Val<'a>, Val<'a>)>,
    /// Places by key.
    places: std::collections::BTreeMap<Key, usize>,
}

impl<'a> OwnedMap<'a> {
    pub(crate) fn of_type(name: Str) -> Self {
        OwnedMap { type_name: Some(name), ..OwnedMap::default() }
    }

    /// The type that it was made as: `Object.spec`; none for maps.
    pub fn type_name(&self) -> Option<&str> {
        self.type_name.as_deref()
    }

    /// Adds an entry; false when its key is there already.
    pub(crate) fn insert(&mut self, key: Key, name: Val<'a>, value: Val<'a>) -> bool {
        let place = self.entries.len();
        match self.places.entry(key) {
            std::collections::btree_map::Entry::Occupied(_) => false,
            std::collections::btree_map::Entry::Vacant(slot) => {
                slot.insert(place);
                self.entries.push((name, value));
                true
            }
        }
    }

    /// Adds an entry, in the place of one with the same key.
    pub(crate) fn set(&mut self, key: Key, name: Val<'a>, value: Val<'a>) {
        match self.places.get(&key) {
            Some(place) => self.entries[*place] = (name, value),
            None => {
                self.insert(key, name, value);
            }
        }
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Val<'a>> {
        self.places.get(key).map(|place| &self.entries[*place].1)
    }

    /// Keys and values.
    pub fn entries(&self) -> &[(Val<'a>, Val<'a>)] {
        &self.entries
    }
}

impl<'a> Val<'a> {
    /// Text that was made.
    pub fn text(text: impl Into<Str>) -> Self {
        Val::String(Text::Owned(text.into()))
    }

    /// A list that was made.
    pub fn list(items: Vec<Val<'a>>) -> Self {
        Val::List(List::Owned(Arc::new(items)))
    }

    /// A map that was made; of two entries with one key the first stays.
    pub fn map(entries: Vec<(Val<'a>, Val<'a>)>) -> Self {
        let mut out = OwnedMap::default();
        for (key, value) in entries {
            if let Some(place) = Key::of(&key) {
                out.insert(place, key, value);
            }
        }
        Val::Map(Map::Owned(Arc::new(out)))
    }

    pub(crate) fn opaque(value: Opaque<'a>) -> Self {
        Val::Opaque(Arc::new(value))
    }

    pub(crate) fn some(value: Val<'a>) -> Self {
        Val::Optional(Some(Arc::new(value)))
    }

    /// The text, when it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Val::String(text) => Some(text.as_str()),
            _ => None,
        }
    }

    /// The boolean, when it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Val::Bool(flag) => Some(*flag),
            _ => None,
        }
    }

    /// Its type, as `type(value)` has it.
    pub fn ty(&self) -> Type {
        match self {
            Val::Null => Type::Null,
            Val::Bool(_) => Type::Bool,
            Val::Int(_) => Type::Int,
            Val::Uint(_) => Type::Uint,
            Val::Double(_) => Type::Double,
            Val::String(_) => Type::String,
            Val::Bytes(_) => Type::Bytes,
            Val::Timestamp(_) => Type::Timestamp,
            Val::Duration(_) => Type::Duration,
            Val::List(_) => Type::list(Type::Dyn),
            Val::Map(map) => match map.type_name() {
                Some(name) => Type::Struct(name.into()),
                None => Type::map(Type::Dyn, Type::Dyn),
            },
            Val::Type(_) => Type::Type(None),
            Val::Optional(_) => Type::optional(Type::Dyn),
            Val::Opaque(opaque) => Type::Opaque(opaque.type_name()),
        }
    }

    /// What `size()` gives at evaluation; 1 for what has no size.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Val::String(text) => count_chars(text.as_str()),
            Val::Bytes(bytes) => bytes.len() as u64,
            Val::List(list) => list.len() as u64,
            Val::Map(map) => map.len() as u64,
            Val::Opaque(opaque) => opaque.size(),
            _ => 1,
        }
    }
}

/// Characters of a text.
pub(crate) fn count_chars(text: &str) -> u64 {
    text.chars().count() as u64
}

impl Opaque<'_> {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Opaque::Quantity(_) => "kubernetes.Quantity",
            Opaque::Url(_) => "kubernetes.URL",
            Opaque::Ip(_) => "net.IP",
            Opaque::Cidr(_) => "net.CIDR",
            Opaque::Semver(_) => "kubernetes.Semver",
            Opaque::Format(_) => "kubernetes.NamedFormat",
            Opaque::Authorizer(val) => val.type_name(),
        }
    }

    fn size(&self) -> u64 {
        match self {
            Opaque::Ip(IpAddr::V4(_)) => 4,
            Opaque::Ip(IpAddr::V6(_)) => 16,
            Opaque::Cidr(cidr) => u64::from(cidr.prefix_bits).div_ceil(8),
            _ => 1,
        }
    }
}

impl<'a> List<'a> {
    /// Number of items.
    pub fn len(&self) -> usize {
        match self {
            List::Json { items, .. } => items.len(),
            List::Owned(items) => items.len(),
            List::Joined(joined) => joined.len,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// This list with another behind it.
    pub(crate) fn join(self, other: List<'a>) -> List<'a> {
        if self.is_empty() {
            return other;
        }
        if other.is_empty() {
            return self;
        }
        let len = self.len().saturating_add(other.len());
        List::Joined(Arc::new(Joined { left: self, right: other, len }))
    }

    /// The item at a place.
    pub fn get(&self, at: usize) -> Option<Evaluated<'a>> {
        match self {
            List::Json { items, item, .. } => items.get(at).map(|value| adapt(value, *item)),
            List::Owned(items) => items.get(at).cloned().map(Ok),
            List::Joined(joined) => match at.checked_sub(joined.left.len()) {
                None => joined.left.get(at),
                Some(rest) => joined.right.get(rest),
            },
        }
    }

    /// All items.
    pub fn iter(&self) -> impl Iterator<Item = Evaluated<'a>> + '_ {
        Items { part: self, at: 0, behind: vec![] }
    }

    /// All items as a vector.
    pub(crate) fn to_vec(&self) -> Result<Vec<Val<'a>>, EvalError> {
        match self {
            List::Json { .. } | List::Joined(_) => self.iter().collect(),
            List::Owned(items) => Ok(items.to_vec()),
        }
    }
}

/// Walks over a list, however it was put together.
struct Items<'v, 'a> {
    part: &'v List<'a>,
    at: usize,
    /// Parts that follow, the next one last.
    behind: Vec<&'v List<'a>>,
}

impl<'a> Iterator for Items<'_, 'a> {
    type Item = Evaluated<'a>;

    fn next(&mut self) -> Option<Evaluated<'a>> {
        loop {
            if let List::Joined(joined) = self.part {
                self.behind.push(&joined.right);
                self.part = &joined.left;
                continue;
            }
            if let Some(item) = self.part.get(self.at) {
                self.at += 1;
                return Some(item);
            }
            self.part = self.behind.pop()?;
            self.at = 0;
        }
    }
}

impl<'a> Map<'a> {
    /// Number of entries.
    pub fn len(&self) -> usize {
        match self {
            Map::Plain(map) | Map::Values(map, _) | Map::Object(map, _) => map.len(),
            Map::Owned(map) => map.entries.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn type_name(&self) -> Option<&str> {
        match self {
            Map::Owned(map) => map.type_name(),
            _ => None,
        }
    }

    /// The value of a field or of a key that is text; none when it is absent.
    pub fn field(&self, name: &str) -> Option<Evaluated<'a>> {
        match self {
            Map::Plain(map) => map.get(name).map(|value| adapt(value, None)),
            Map::Values(map, declared) => map.get(name).map(|value| adapt(value, Some(declared))),
            Map::Object(map, object) => {
                let field = object.field(name)?;
                let value = map.get(&field.property).filter(|value| !value.is_null())?;
                Some(adapt(value, Some(&field.declared)))
            }
            Map::Owned(map) => map.get(&Key::String(name.into())).cloned().map(Ok),
        }
    }

    /// The value of a key of any type; none when it is absent.
    pub(crate) fn find(&self, key: &Val<'_>) -> Option<Evaluated<'a>> {
        match (self, key) {
            (_, Val::String(text)) => self.field(text.as_str()),
            (Map::Owned(map), _) => map.get(&Key::of(key)?).cloned().map(Ok),
            _ => None,
        }
    }

    /// Whether a key is there. A field of an object that is null is not.
    pub(crate) fn contains(&self, key: &Val<'_>) -> bool {
        match (self, key) {
            (Map::Plain(map) | Map::Values(map, _), Val::String(text)) => {
                map.contains_key(text.as_str())
            }
            (Map::Object(..), Val::String(text)) => self.field(text.as_str()).is_some(),
            (Map::Owned(map), _) => Key::of(key).is_some_and(|key| map.get(&key).is_some()),
            _ => false,
        }
    }

    /// The keys, in the map's order.
    pub(crate) fn keys(&self) -> Vec<Val<'a>> {
        fn text<'a>(key: &'a Str) -> Val<'a> {
            Val::String(Text::Borrowed(key.as_str()))
        }
        match self {
            Map::Plain(map) | Map::Values(map, _) => map.iter().map(|(key, _)| text(key)).collect(),
            Map::Object(map, object) => {
                let present = |property: &str| map.get(property).is_some_and(|v| !v.is_null());
                let fields = object.fields().iter().filter(|field| present(&field.property));
                fields.map(|field| text(&field.name)).collect()
            }
            Map::Owned(map) => map.entries.iter().map(|(key, _)| key.clone()).collect(),
        }
    }

    /// Keys with their values, in the map's order.
    pub fn entries(&self) -> Result<Vec<(Val<'a>, Val<'a>)>, EvalError> {
        if let Map::Owned(map) = self {
            return Ok(map.entries.clone());
        }
        let mut out = vec![];
        for key in self.keys() {
            if let Some(value) = self.find(&key) {
                out.push((key, value?));
            }
        }
        Ok(out)
    }
}
