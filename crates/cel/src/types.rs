//! Types of expressions, and types that a schema declares.

use keelson_meta::Str;
use std::fmt;
use std::sync::Arc;

/// The type of an expression or a variable.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// Any value; what it is shows at evaluation.
    Dyn,
    /// Any value too, where a declaration says so: `google.protobuf.Any`.
    Any,
    /// The type of `null`.
    Null,
    /// `bool`.
    Bool,
    /// 64 bits with a sign.
    Int,
    /// 64 bits without a sign.
    Uint,
    /// A 64-bit float.
    Double,
    /// Text.
    String,
    /// Bytes.
    Bytes,
    /// A point in time.
    Timestamp,
    /// A span of time.
    Duration,
    /// A list of values of one type.
    List(Arc<Type>),
    /// A map from keys to values.
    Map(Arc<Type>, Arc<Type>),
    /// A value or none.
    Optional(Arc<Type>),
    /// An object with declared fields.
    Object(Arc<ObjectType>),
    /// A type of which expressions make values: `Object.spec` or `JSONPatch` of admission policies.
    Struct(Str),
    /// A type of a library, such as `kubernetes.Quantity`.
    Opaque(&'static str),
    /// A type as a value: `type(1)`.
    Type(Option<Arc<Type>>),
    /// A parameter of a function's signature, or a variable of the checker.
    #[doc(hidden)]
    Param(u32),
    /// The type of what did not check.
    #[doc(hidden)]
    Error,
}

impl Type {
    /// `list(item)`.
    pub fn list(item: Type) -> Type {
        Type::List(Arc::new(item))
    }

    /// `map(key, value)`.
    pub fn map(key: Type, value: Type) -> Type {
        Type::Map(Arc::new(key), Arc::new(value))
    }

    /// `optional_type(inner)`.
    pub fn optional(inner: Type) -> Type {
        Type::Optional(Arc::new(inner))
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Type::Dyn | Type::Any | Type::Error)
    }

    /// The type of a field of a struct; none when it has no such field.
    pub(crate) fn struct_field(name: &str, field: &str) -> Option<Type> {
        match (name, field) {
            ("JSONPatch", "op" | "path" | "from") => Some(Type::String),
            ("JSONPatch", "value") => Some(Type::Dyn),
            ("JSONPatch", _) => None,
            // An `Object` is whatever the policy says; the server looks at it when it is applied.
            _ => Some(Type::Dyn),
        }
    }

    /// Whether values are of a fixed size.
    pub(crate) fn is_scalar(&self) -> bool {
        match self {
            Type::Bool
            | Type::Double
            | Type::Duration
            | Type::Int
            | Type::Timestamp
            | Type::Uint => true,
            Type::Optional(inner) => inner.is_scalar(),
            _ => false,
        }
    }

    /// Whether `null` may stand for a value of it.
    pub(crate) fn is_nullable(&self) -> bool {
        matches!(
            self,
            Type::Null
                | Type::Object(_)
                | Type::Struct(_)
                | Type::Opaque(_)
                | Type::Optional(_)
                | Type::Timestamp
                | Type::Duration
        )
    }

    /// The name of the type of a value, as `type(value)` has it.
    pub(crate) fn runtime_name(&self) -> &str {
        match self {
            Type::Dyn | Type::Any | Type::Error | Type::Param(_) => "dyn",
            Type::Null => "null_type",
            Type::Bool => "bool",
            Type::Int => "int",
            Type::Uint => "uint",
            Type::Double => "double",
            Type::String => "string",
            Type::Bytes => "bytes",
            Type::Timestamp => "google.protobuf.Timestamp",
            Type::Duration => "google.protobuf.Duration",
            Type::List(_) => "list",
            Type::Map(..) => "map",
            Type::Optional(_) => "optional_type",
            Type::Object(object) => &object.name,
            Type::Struct(name) => name,
            Type::Opaque(name) => name,
            Type::Type(_) => "type",
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Any => f.write_str("any"),
            Type::Null => f.write_str("null"),
            Type::Timestamp => f.write_str("timestamp"),
            Type::Duration => f.write_str("duration"),
            Type::List(item) => write!(f, "list({item})"),
            Type::Map(key, value) => write!(f, "map({key}, {value})"),
            Type::Optional(inner) => write!(f, "optional_type({inner})"),
            Type::Type(Some(of)) => write!(f, "type({of})"),
            Type::Type(None) => f.write_str("type"),
            Type::Param(number) => write!(f, "_var{number}"),
            Type::Error => f.write_str("!error!"),
            _ => f.write_str(self.runtime_name()),
        }
    }
}

/// An object type: its name in messages and its fields.
pub struct ObjectType {
    name: Str,
    /// Invariant: sorted by name.
    fields: Vec<DeclaredField>,
}

/// A field of an [`ObjectType`].
#[derive(Clone, Debug)]
pub struct DeclaredField {
    /// As expressions name it; [`escape`] makes this from the property's name.
    pub name: Str,
    /// As the property is called in the object.
    pub property: Str,
    /// What it holds.
    pub declared: Arc<Declared>,
}

impl ObjectType {
    /// Makes the type from its fields; of two with one name, one is kept.
    pub fn new(name: impl Into<Str>, mut fields: Vec<DeclaredField>) -> Self {
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        fields.dedup_by(|a, b| a.name == b.name);
        ObjectType { name: name.into(), fields }
    }

    /// The name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The fields, sorted by name.
    pub fn fields(&self) -> &[DeclaredField] {
        &self.fields
    }

    /// The field that expressions call `name`.
    pub fn field(&self, name: &str) -> Option<&DeclaredField> {
        let at = self.fields.binary_search_by(|field| field.name.as_str().cmp(name)).ok()?;
        self.fields.get(at)
    }
}

impl PartialEq for ObjectType {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for ObjectType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// What a schema says of a value: how JSON becomes a value of the language, and how large it may be.
#[derive(Clone, Debug)]
pub struct Declared {
    /// Its form.
    pub shape: Shape,
    /// Whether `null` may stand there.
    pub nullable: bool,
    /// The most items, properties or bytes it has; 0 for what has no size. Upstream counts four bytes for
    /// each character that `maxLength` allows.
    pub size_max: u64,
}

/// The form of a [`Declared`] value.
#[derive(Clone, Debug)]
pub enum Shape {
    /// Whatever the JSON is: maps, lists, strings, numbers.
    Dyn,
    /// The same, where expressions are checked as if it was of a type: a value that another expression
    /// computes.
    Computed(Type),
    /// An integer or a string.
    IntOrString,
    /// A boolean.
    Bool,
    /// An integer.
    Int,
    /// A number; integers become doubles.
    Double,
    /// Text.
    String,
    /// Bytes, in JSON as base64.
    Bytes,
    /// A point in time, in JSON as RFC 3339.
    Timestamp,
    /// A date, in JSON as `2006-01-02`.
    Date,
    /// A span, in JSON as Go writes it.
    Duration,
    /// A list.
    List(Arc<Declared>, ListKind),
    /// A map from strings.
    Map(Arc<Declared>),
    /// An object with known fields.
    Object(Arc<ObjectType>),
}

/// How a list is compared and added to: `x-kubernetes-list-type`.
#[derive(Clone, Debug, PartialEq)]
pub enum ListKind {
    /// By place.
    Atomic,
    /// As a set of its items.
    Set,
    /// By the values of these properties of its items.
    Map(Vec<Str>),
}

impl Declared {
    /// A value of this shape that is never null.
    pub fn new(shape: Shape) -> Self {
        Declared { shape, nullable: false, size_max: 0 }
    }

    /// The same with a maximum size.
    pub fn with_size_max(self, size_max: u64) -> Self {
        Declared { size_max, ..self }
    }

    /// The type of expressions that give this value.
    pub fn ty(&self) -> Type {
        match &self.shape {
            Shape::Dyn | Shape::IntOrString => Type::Dyn,
            Shape::Computed(ty) => ty.clone(),
            Shape::Bool => Type::Bool,
            Shape::Int => Type::Int,
            Shape::Double => Type::Double,
            Shape::String => Type::String,
            Shape::Bytes => Type::Bytes,
            Shape::Timestamp | Shape::Date => Type::Timestamp,
            Shape::Duration => Type::Duration,
            Shape::List(items, _) => Type::list(items.ty()),
            Shape::Map(values) => Type::map(Type::String, values.ty()),
            Shape::Object(object) => Type::Object(object.clone()),
        }
    }
}

/// Words that no expression can use as a name.
const KEYWORDS: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// How expressions name a property: `a-b` is `a__dash__b`, `namespace` is `__namespace__`. None when the
/// property cannot be named.
pub fn escape(property: &str) -> Option<String> {
    let first = property.chars().next()?;
    if KEYWORDS.contains(&property) {
        return Some(format!("__{property}__"));
    }
    if first.is_ascii_digit() {
        return None;
    }
    let mut out = String::with_capacity(property.len());
    let mut rest = property;
    while let Some(c) = rest.chars().next() {
        let (piece, length) = match c {
            '_' if rest.starts_with("__") => ("__underscores__", 2),
            '.' => ("__dot__", 1),
            '-' => ("__dash__", 1),
            '/' => ("__slash__", 1),
            '_' | 'a'..='z' | 'A'..='Z' | '0'..='9' => (&rest[..1], 1),
            _ => return None,
        };
        out.push_str(piece);
        rest = &rest[length..];
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_escaped() {
        let check = |property: &str, expected: Option<&str>| {
            assert_eq!(escape(property).as_deref(), expected, "{property}");
        };
        check("spec", Some("spec"));
        check("namespace", Some("__namespace__"));
        check("a-b.c/d", Some("a__dash__b__dot__c__slash__d"));
        check("a__b_c", Some("a__underscores__b_c"));
        check("1a", None);
        check("a b", None);
        check("", None);
        check("int", Some("int"));
    }

    #[test]
    fn types_print_as_upstream() {
        let check = |ty: Type, expected: &str| assert_eq!(ty.to_string(), expected);
        check(Type::map(Type::String, Type::list(Type::Dyn)), "map(string, list(dyn))");
        check(Type::optional(Type::Timestamp), "optional_type(timestamp)");
        check(Type::Type(Some(Arc::new(Type::Int))), "type(int)");
        check(Type::Null, "null");
    }
}
