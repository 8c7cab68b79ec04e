//! [`Val`]: the values of expressions. Values of an object borrow from it; only new values are
//! allocated.

mod json;

pub use json::adapt;

use crate::authorizer::AuthorizerVal;
use crate::char_index;
use crate::format::NamedFormat;
use crate::meter::{self, Ended};
use crate::semver::Semver;
use crate::types::{DeclType, ListKind, ObjectType, Type};
use keelson_meta::go_url::Url;
use keelson_meta::ip::Cidr;
use keelson_meta::time::{GoDuration, Timestamp};
use keelson_meta::{Quantity, Str, Value};
use std::net::IpAddr;
use std::sync::Arc;

/// A CEL value.
#[derive(Clone, Debug)]
pub enum Val<'a> {
    /// `null`.
    Null,
    /// A boolean.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A float.
    Double(f64),
    /// Text.
    String(Text<'a>),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// A timestamp.
    Timestamp(Timestamp),
    /// A duration.
    Duration(GoDuration),
    /// A list.
    List(List<'a>),
    /// A map or an object.
    Map(Map<'a>),
    /// A type.
    Type(Arc<Type>),
    /// An optional value.
    Optional(Option<Arc<Val<'a>>>),
    /// A library value.
    Opaque(Arc<Opaque<'a>>),
}

/// Text, borrowed from an object or expression, or created at evaluation.
#[derive(Clone, Debug)]
pub enum Text<'a> {
    /// Borrowed from an object or expression.
    Borrowed(&'a str),
    /// Text created at evaluation.
    Owned(Str),
}

impl Text<'_> {
    /// Returns the text.
    pub fn as_str(&self) -> &str {
        match self {
            Text::Borrowed(text) => text,
            Text::Owned(text) => text,
        }
    }

    /// Returns the text, and itself if the evaluation made it.
    fn parts(&self) -> (&str, Option<&Str>) {
        match self {
            Text::Borrowed(text) => (text, None),
            Text::Owned(text) => (text, Some(text)),
        }
    }

    /// Returns the number of characters.
    pub(crate) fn chars(&self) -> usize {
        let (text, made) = self.parts();
        char_index::count(text, made)
    }

    /// Returns the byte offset of the character at index `at`; the end of the text is a valid
    /// index.
    pub(crate) fn offset(&self, at: usize) -> Option<usize> {
        let (text, made) = self.parts();
        char_index::offset(text, made, at)
    }

    /// Returns the number of characters before a byte offset.
    pub(crate) fn chars_before(&self, offset: usize) -> usize {
        let (text, made) = self.parts();
        char_index::before(text, made, offset)
    }
}

/// A list, borrowed from an object or created at evaluation.
#[derive(Clone, Debug)]
pub enum List<'a> {
    /// A list of an object.
    Json {
        /// The items.
        items: &'a [Value],
        /// The type of the items; `None` without a schema.
        item: Option<&'a DeclType>,
        /// The list type.
        kind: &'a ListKind,
    },
    /// A list created at evaluation.
    Owned(Arc<OwnedList<'a>>),
    /// A concatenation. It copies nothing, because its cost does not depend on the size.
    Concat(Arc<ConcatList<'a>>),
}

/// A list created at evaluation.
#[derive(Clone, Debug, Default)]
pub struct OwnedList<'a> {
    items: Vec<Val<'a>>,
    /// Depth of the values inside it.
    depth: usize,
}

/// The concatenation of two lists.
#[derive(Debug)]
pub struct ConcatList<'a> {
    left: List<'a>,
    right: List<'a>,
    /// Saturates: repeated doubling costs little and can exceed `usize`.
    len: usize,
    /// Depth of the values inside it.
    depth: usize,
}

/// Maximum depth of values that an evaluation makes. Values are compared, converted and dropped
/// recursively. The objects of the API are less deep.
const VALUE_DEPTH_MAX: usize = 500;

fn check_depth(depth: usize) -> Result<(), EvalError> {
    if depth > VALUE_DEPTH_MAX { Err(EvalError::exhausted()) } else { Ok(()) }
}

impl<'a> OwnedList<'a> {
    fn new(items: Vec<Val<'a>>) -> Self {
        let depth = items.iter().map(Val::depth).max().unwrap_or(0);
        OwnedList { items, depth }
    }

    fn push(&mut self, item: Val<'a>) -> Result<(), EvalError> {
        self.depth = self.depth.max(item.depth());
        self.items.push(item);
        check_depth(self.depth)
    }
}

/// Chains of concatenations are dropped one by one, because their length has no limit.
impl Drop for ConcatList<'_> {
    fn drop(&mut self) {
        let nothing = || List::Json { items: &[], item: None, kind: &ListKind::Atomic };
        let is_end = |list: &List<'_>| !matches!(list, List::Concat(_));
        if is_end(&self.left) && is_end(&self.right) {
            return;
        }
        let mut pending = vec![
            std::mem::replace(&mut self.left, nothing()),
            std::mem::replace(&mut self.right, nothing()),
        ];
        while let Some(list) = pending.pop() {
            let List::Concat(joined) = list else { continue };
            if let Some(mut joined) = Arc::into_inner(joined) {
                pending.push(std::mem::replace(&mut joined.left, nothing()));
                pending.push(std::mem::replace(&mut joined.right, nothing()));
            }
        }
    }
}

/// A map, borrowed from an object or created at evaluation.
#[derive(Clone, Debug)]
pub enum Map<'a> {
    /// A JSON map without a schema.
    Plain(&'a keelson_meta::Map),
    /// A JSON map whose values have one type.
    Values(&'a keelson_meta::Map, &'a DeclType),
    /// An object with declared fields.
    Object(&'a keelson_meta::Map, &'a ObjectType),
    /// A map created at evaluation.
    Owned(Arc<OwnedMap<'a>>),
}

/// A library value.
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
    /// The authorizer, and the checks and decisions made with it.
    Authorizer(AuthorizerVal<'a>),
}

/// An evaluation error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvalError(Box<ErrorInner>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct ErrorInner {
    message: String,
    cause: Cause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Value,
    CostLimit,
    /// An evaluation has used its work or its memory.
    Exhausted,
    Interrupt,
}

/// The result of an evaluation.
pub type EvalResult<'a> = Result<Val<'a>, EvalError>;

impl EvalError {
    /// Creates an ordinary error: an operand of `&&` or `||` that decides the result hides it.
    #[cold]
    pub fn new(message: impl Into<String>) -> Self {
        EvalError(Box::new(ErrorInner { message: message.into(), cause: Cause::Value }))
    }

    #[cold]
    pub(crate) fn cost_limit() -> Self {
        let message = "operation cancelled: actual cost limit exceeded".to_owned();
        EvalError(Box::new(ErrorInner { message, cause: Cause::CostLimit }))
    }

    /// The error of work and memory beyond their limits. It reads as that of the cost limit, the
    /// only such limit that upstream has.
    #[cold]
    pub(crate) fn exhausted() -> Self {
        let mut error = EvalError::cost_limit();
        error.0.cause = Cause::Exhausted;
        error
    }

    #[cold]
    pub(crate) fn interrupted() -> Self {
        let message = "operation interrupted".to_owned();
        EvalError(Box::new(ErrorInner { message, cause: Cause::Interrupt }))
    }

    /// No overload of the function takes the first argument.
    #[cold]
    pub(crate) fn no_overload_of(function: &str) -> Self {
        EvalError::new(format!("{NO_SUCH_OVERLOAD}: {function}"))
    }

    #[cold]
    pub(crate) fn no_overload() -> Self {
        EvalError::new(NO_SUCH_OVERLOAD)
    }

    /// Whether the cost limit, or the limit of work or memory, was exceeded.
    pub fn is_cost_limit(&self) -> bool {
        matches!(self.0.cause, Cause::CostLimit | Cause::Exhausted)
    }

    /// Returns the error with another message. A cost limit that was exceeded becomes an ordinary
    /// error: it was that of another evaluation.
    pub(crate) fn within(self, message: impl FnOnce(&str) -> String) -> EvalError {
        let cause = match self.0.cause {
            Cause::Value | Cause::CostLimit => Cause::Value,
            Cause::Exhausted => Cause::Exhausted,
            Cause::Interrupt => return self,
        };
        EvalError(Box::new(ErrorInner { message: message(&self.0.message), cause }))
    }

    /// Whether the evaluation was cancelled, by a limit or an interrupt. No operator hides this
    /// error.
    pub fn is_cancelled(&self) -> bool {
        self.0.cause != Cause::Value
    }

    /// Returns the message.
    pub fn message(&self) -> &str {
        &self.0.message
    }
}

impl From<Ended> for EvalError {
    #[cold]
    fn from(ended: Ended) -> EvalError {
        match ended {
            Ended::Exhausted => EvalError::exhausted(),
            Ended::Interrupted => EvalError::interrupted(),
        }
    }
}

/// Counts the memory of this many items of a new list, before it is made.
#[inline]
pub(crate) fn make_items(count: usize) -> Result<(), EvalError> {
    Ok(meter::make(count.saturating_mul(size_of::<Val<'_>>()))?)
}

/// The message when no overload matches the arguments.
pub const NO_SUCH_OVERLOAD: &str = "no such overload";

impl std::fmt::Display for EvalError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for EvalError {}

/// A map key, normalized so that `1` and `1u` are equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Key {
    Bool(bool),
    Number(i128),
    /// The bits of a double with a fraction.
    Double(u64),
    String(Str),
}

impl Key {
    /// Returns the key for a value, `None` for types that cannot be keys.
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

/// A map created at evaluation, in insertion order.
#[derive(Clone, Debug, Default)]
pub struct OwnedMap<'a> {
    /// The name of its type, for a struct.
    type_name: Option<Str>,
    entries: Vec<(Val<'a>, Val<'a>)>,
    /// Indices in `entries`, by key.
    places: std::collections::BTreeMap<Key, usize>,
    /// Depth of the values inside it.
    depth: usize,
}

/// Memory of an entry, without the text of its key.
const MAP_ENTRY_BYTES: usize = 2 * size_of::<Val<'_>>() + size_of::<Key>() + size_of::<usize>();

impl<'a> OwnedMap<'a> {
    pub(crate) fn of_type(name: Str) -> Self {
        OwnedMap { type_name: Some(name), ..OwnedMap::default() }
    }

    /// Returns the type name of a struct such as `Object.spec`, `None` for a map.
    pub fn type_name(&self) -> Option<&str> {
        self.type_name.as_deref()
    }

    /// Counts the memory of an entry with this key, before it is added.
    pub(crate) fn make_entry(key: &Val<'_>) -> Result<(), EvalError> {
        let text = key.as_str().map_or(0, str::len);
        Ok(meter::make(MAP_ENTRY_BYTES.saturating_add(text))?)
    }

    /// Returns the map as a value.
    pub(crate) fn finish(self) -> EvalResult<'a> {
        self.check_depth()?;
        Ok(Val::Map(Map::Owned(Arc::new(self))))
    }

    pub(crate) fn check_depth(&self) -> Result<(), EvalError> {
        check_depth(self.depth)
    }

    /// Adds an entry. Returns false if the key exists.
    pub(crate) fn insert(&mut self, key: Key, name: Val<'a>, value: Val<'a>) -> bool {
        let place = self.entries.len();
        match self.places.entry(key) {
            std::collections::btree_map::Entry::Occupied(_) => false,
            std::collections::btree_map::Entry::Vacant(slot) => {
                slot.insert(place);
                self.depth = self.depth.max(value.depth());
                self.entries.push((name, value));
                true
            }
        }
    }

    /// Adds or replaces an entry.
    pub(crate) fn set(&mut self, key: Key, name: Val<'a>, value: Val<'a>) {
        match self.places.get(&key) {
            Some(place) => {
                self.depth = self.depth.max(value.depth());
                self.entries[*place] = (name, value);
            }
            None => {
                self.insert(key, name, value);
            }
        }
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Val<'a>> {
        self.places.get(key).map(|place| &self.entries[*place].1)
    }

    /// Returns the keys and values.
    pub fn entries(&self) -> &[(Val<'a>, Val<'a>)] {
        &self.entries
    }
}

impl<'a> Val<'a> {
    /// Text created at evaluation.
    pub fn text(text: impl Into<Str>) -> Self {
        Val::String(Text::Owned(text.into()))
    }

    /// Creates a list.
    pub fn list(items: Vec<Val<'a>>) -> Self {
        Val::List(List::Owned(Arc::new(OwnedList::new(items))))
    }

    /// Creates a list whose memory was counted. A list that is too deep is an error.
    pub(crate) fn made_list(items: Vec<Val<'a>>) -> EvalResult<'a> {
        let list = OwnedList::new(items);
        check_depth(list.depth)?;
        Ok(Val::List(List::Owned(Arc::new(list))))
    }

    /// Creates a text and counts its memory.
    pub(crate) fn made_text(text: impl Into<Str> + AsRef<str>) -> EvalResult<'a> {
        meter::make(text.as_ref().len())?;
        Ok(Val::text(text))
    }

    /// Creates bytes and counts their memory.
    pub(crate) fn made_bytes(bytes: Vec<u8>) -> EvalResult<'a> {
        meter::make(bytes.len())?;
        Ok(Val::Bytes(bytes.into()))
    }

    /// Creates an optional value. A value that is too deep is an error.
    pub(crate) fn made_some(value: Val<'a>) -> EvalResult<'a> {
        check_depth(value.depth() + 1)?;
        Ok(Val::some(value))
    }

    /// Returns how many values made at evaluation are inside each other here, this one included.
    fn depth(&self) -> usize {
        let mut outer = 0;
        let mut val = self;
        while let Val::Optional(Some(inner)) = val {
            outer += 1;
            val = inner;
        }
        outer
            + match val {
                Val::List(List::Owned(list)) => list.depth + 1,
                Val::List(List::Concat(joined)) => joined.depth + 1,
                Val::Map(Map::Owned(map)) => map.depth + 1,
                _ => 0,
            }
    }

    /// Creates a map. The first of two entries with one key wins.
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

    /// Returns the text of a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Val::String(text) => Some(text.as_str()),
            _ => None,
        }
    }

    /// Returns the value of a boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Val::Bool(flag) => Some(*flag),
            _ => None,
        }
    }

    /// Returns the type, as `type(value)` shows it.
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

    /// Returns the size for cost computation; 1 for values without a size.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Val::String(text) => text.chars() as u64,
            Val::Bytes(bytes) => bytes.len() as u64,
            Val::List(list) => list.len() as u64,
            Val::Map(map) => map.len() as u64,
            Val::Opaque(opaque) => opaque.size(),
            _ => 1,
        }
    }
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
    /// Returns the number of items.
    pub fn len(&self) -> usize {
        match self {
            List::Json { items, .. } => items.len(),
            List::Owned(list) => list.items.len(),
            List::Concat(joined) => joined.len,
        }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Concatenates two lists.
    pub(crate) fn join(self, other: List<'a>) -> List<'a> {
        if self.is_empty() {
            return other;
        }
        if other.is_empty() {
            return self;
        }
        let len = self.len().saturating_add(other.len());
        let depth = self.depth().max(other.depth());
        List::Concat(Arc::new(ConcatList { left: self, right: other, len, depth }))
    }

    /// Returns the depth of the values inside it.
    fn depth(&self) -> usize {
        match self {
            List::Json { .. } => 0,
            List::Owned(list) => list.depth,
            List::Concat(joined) => joined.depth,
        }
    }

    /// Adds an item, in place if this is the only reference to the list.
    pub(crate) fn append(self, item: Val<'a>) -> Result<List<'a>, EvalError> {
        let mut list = match self {
            List::Owned(list) => list,
            other => Arc::new(OwnedList::new(other.to_vec()?)),
        };
        Arc::make_mut(&mut list).push(item)?;
        Ok(List::Owned(list))
    }

    /// Returns the item at an index.
    pub fn get(&self, at: usize) -> Option<EvalResult<'a>> {
        let mut part = self;
        let mut at = at;
        loop {
            match part {
                List::Json { items, item, .. } => {
                    return items.get(at).map(|value| adapt(value, *item));
                }
                List::Owned(list) => return list.items.get(at).cloned().map(Ok),
                List::Concat(joined) => match at.checked_sub(joined.left.len()) {
                    None => part = &joined.left,
                    Some(rest) => (part, at) = (&joined.right, rest),
                },
            }
        }
    }

    /// Iterates over the items.
    pub fn iter(&self) -> impl Iterator<Item = EvalResult<'a>> + '_ {
        Items { part: self, at: 0, pending: vec![] }
    }

    /// Returns the items as a vector, whose memory is counted.
    pub(crate) fn to_vec(&self) -> Result<Vec<Val<'a>>, EvalError> {
        make_items(self.len())?;
        match self {
            List::Json { .. } | List::Concat(_) => self.iter().collect(),
            List::Owned(list) => Ok(list.items.clone()),
        }
    }
}

/// Iterates over a list; concatenations are flattened without recursion.
struct Items<'v, 'a> {
    part: &'v List<'a>,
    at: usize,
    /// The lists that follow, next one last.
    pending: Vec<&'v List<'a>>,
}

impl<'a> Iterator for Items<'_, 'a> {
    type Item = EvalResult<'a>;

    fn next(&mut self) -> Option<EvalResult<'a>> {
        loop {
            if let List::Concat(joined) = self.part {
                self.pending.push(&joined.right);
                self.part = &joined.left;
                continue;
            }
            if let Some(item) = self.part.get(self.at) {
                self.at += 1;
                return Some(item);
            }
            self.part = self.pending.pop()?;
            self.at = 0;
        }
    }
}

impl<'a> Map<'a> {
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        match self {
            Map::Plain(map) | Map::Values(map, _) | Map::Object(map, _) => map.len(),
            Map::Owned(map) => map.entries.len(),
        }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn type_name(&self) -> Option<&str> {
        match self {
            Map::Owned(map) => map.type_name(),
            _ => None,
        }
    }

    /// Returns the value of a field or of a string key.
    pub fn field(&self, name: &str) -> Option<EvalResult<'a>> {
        match self {
            Map::Plain(map) => map.get(name).map(|value| adapt(value, None)),
            Map::Values(map, decl_type) => map.get(name).map(|value| adapt(value, Some(decl_type))),
            Map::Object(map, object) => {
                let field = object.field(name)?;
                let value = map.get(&field.property).filter(|value| !value.is_null())?;
                Some(adapt(value, Some(&field.decl_type)))
            }
            Map::Owned(map) => map.get(&Key::String(name.into())).cloned().map(Ok),
        }
    }

    /// Returns the value of a key of any type.
    pub(crate) fn find(&self, key: &Val<'_>) -> Option<EvalResult<'a>> {
        match (self, key) {
            (_, Val::String(text)) => self.field(text.as_str()),
            (Map::Owned(map), _) => map.get(&Key::of(key)?).cloned().map(Ok),
            _ => None,
        }
    }

    /// Whether a key exists. A null field of an object does not.
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

    /// Returns the keys, in map order.
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

    /// Returns the entries, in map order.
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
