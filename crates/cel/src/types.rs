//! Types of expressions ([`Type`]) and types that a schema declares ([`DeclType`]).

use keelson_meta::Str;
use std::fmt;
use std::sync::Arc;

/// The type of an expression or a variable.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// Any value; its type is known only at evaluation.
    Dyn,
    /// `google.protobuf.Any`: any value.
    Any,
    /// The type of `null`.
    Null,
    /// `bool`.
    Bool,
    /// `int`: a signed 64-bit integer.
    Int,
    /// `uint`: an unsigned 64-bit integer.
    Uint,
    /// `double`: a 64-bit float.
    Double,
    /// A string.
    String,
    /// `bytes`.
    Bytes,
    /// `google.protobuf.Timestamp`.
    Timestamp,
    /// `google.protobuf.Duration`.
    Duration,
    /// A list of values of one type.
    List(Arc<Type>),
    /// A map from keys to values.
    Map(Arc<Type>, Arc<Type>),
    /// `optional_type`: a value or none.
    Optional(Arc<Type>),
    /// An object with declared fields.
    Object(Arc<ObjectType>),
    /// A type with struct literals: `Object.spec` or `JSONPatch` of mutating admission policies.
    Struct(Str),
    /// An opaque library type, such as `kubernetes.Quantity`.
    Opaque(&'static str),
    /// The type of types, such as the type of `type(1)`.
    Type(Option<Arc<Type>>),
    /// A type parameter of a signature, or a type variable of the checker.
    #[doc(hidden)]
    Param(u32),
    /// The type of an expression with an error.
    #[doc(hidden)]
    Error,
}

impl Type {
    /// Returns `list(item)`.
    pub fn list(item: Type) -> Type {
        Type::List(Arc::new(item))
    }

    /// Returns `map(key, value)`.
    pub fn map(key: Type, value: Type) -> Type {
        Type::Map(Arc::new(key), Arc::new(value))
    }

    /// Returns `optional_type(inner)`.
    pub fn optional(inner: Type) -> Type {
        Type::Optional(Arc::new(inner))
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Type::Dyn | Type::Any | Type::Error)
    }

    /// Returns the type of a field of a struct, `None` for an unknown field.
    pub(crate) fn struct_field(name: &str, field: &str) -> Option<Type> {
        match (name, field) {
            ("JSONPatch", "op" | "path" | "from") => Some(Type::String),
            ("JSONPatch", "value") => Some(Type::Dyn),
            ("JSONPatch", _) => None,
            // Fields of `Object` are not declared; they are checked when the result is applied.
            _ => Some(Type::Dyn),
        }
    }

    /// Whether values have a fixed size.
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

    /// Whether `null` is assignable to it.
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

    /// Returns the type name, as `type(value)` shows it.
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

/// An object type: a name for messages, and fields.
pub struct ObjectType {
    name: Str,
    /// Invariant: sorted by name.
    fields: Vec<DeclField>,
}

/// A field of an [`ObjectType`].
#[derive(Clone, Debug)]
pub struct DeclField {
    /// The name in expressions: the property's name after [`escape`].
    pub name: Str,
    /// The name of the property in the object.
    pub property: Str,
    /// Its type.
    pub decl_type: Arc<DeclType>,
}

impl ObjectType {
    /// Creates an object type. Of two fields with one name, one is kept.
    pub fn new(name: impl Into<Str>, mut fields: Vec<DeclField>) -> Self {
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        fields.dedup_by(|a, b| a.name == b.name);
        ObjectType { name: name.into(), fields }
    }

    /// Returns the name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the fields, sorted by name.
    pub fn fields(&self) -> &[DeclField] {
        &self.fields
    }

    /// Returns the field with this name in expressions.
    pub fn field(&self, name: &str) -> Option<&DeclField> {
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

/// The type that a schema declares for a value: how JSON is converted, and the maximum size
/// (upstream's `DeclType`).
#[derive(Clone, Debug)]
pub struct DeclType {
    /// The shape of the value.
    pub shape: Shape,
    /// Whether the value may be `null`.
    pub nullable: bool,
    /// Maximum number of items, properties or bytes; 0 for values without a size. Upstream counts
    /// four bytes per character of `maxLength`.
    pub size_max: u64,
}

/// The shape of a [`DeclType`].
#[derive(Clone, Debug)]
pub enum Shape {
    /// Any JSON value.
    Dyn,
    /// Any JSON value; expressions are checked as if it had this type.
    CheckedAs(Type),
    /// An integer or a string.
    IntOrString,
    /// A boolean.
    Bool,
    /// An integer.
    Int,
    /// A number; integers are converted to doubles.
    Double,
    /// A string.
    String,
    /// Bytes; base64 in JSON.
    Bytes,
    /// A timestamp; RFC 3339 in JSON.
    Timestamp,
    /// A date; `2006-01-02` in JSON.
    Date,
    /// A duration; Go's format in JSON.
    Duration,
    /// A list.
    List(Arc<DeclType>, ListKind),
    /// A map from strings.
    Map(Arc<DeclType>),
    /// An object with known fields.
    Object(Arc<ObjectType>),
}

/// How lists are compared and concatenated: `x-kubernetes-list-type`.
#[derive(Clone, Debug, PartialEq)]
pub enum ListKind {
    /// By position.
    Atomic,
    /// As a set.
    Set,
    /// By the values of these key properties.
    Map(Vec<Str>),
}

impl DeclType {
    /// Returns a type of this shape that is not nullable.
    pub fn new(shape: Shape) -> Self {
        DeclType { shape, nullable: false, size_max: 0 }
    }

    /// Returns the type with a maximum size.
    pub fn with_size_max(self, size_max: u64) -> Self {
        DeclType { size_max, ..self }
    }

    /// Returns the expression type of values.
    pub fn ty(&self) -> Type {
        match &self.shape {
            Shape::Dyn | Shape::IntOrString => Type::Dyn,
            Shape::CheckedAs(ty) => ty.clone(),
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

/// Reserved words, which cannot be identifiers.
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

/// Escapes a property name as an identifier: `a-b` becomes `a__dash__b`, `namespace` becomes
/// `__namespace__`. Returns `None` if the name cannot be escaped.
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
    fn types_print_as_in_upstream() {
        let check = |ty: Type, expected: &str| assert_eq!(ty.to_string(), expected);
        check(Type::map(Type::String, Type::list(Type::Dyn)), "map(string, list(dyn))");
        check(Type::optional(Type::Timestamp), "optional_type(timestamp)");
        check(Type::Type(Some(Arc::new(Type::Int))), "type(int)");
        check(Type::Null, "null");
    }
}
