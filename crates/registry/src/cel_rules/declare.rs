//! The types of the language that a structural schema declares (apiserver `cel/common.SchemaDeclType`).

use keelson_cel::{Declared, DeclaredField, ListKind, ObjectType, Shape, escape};
use keelson_meta::{Map, Str, Value};
use keelson_schema::structural::DEPTH_MAX;
use std::sync::Arc;

/// The most that a request carries, of which unbounded sizes are a part.
const REQUEST_BYTES_MAX: u64 = 3 * 1024 * 1024;

/// The type of a whole object: kind and the names in its metadata can be read too.
pub(super) fn root(schema: &Map) -> Declared {
    match declared(schema, 0) {
        Some(Declared { shape: Shape::Object(object), nullable, size_max }) => {
            let fields = with_type_meta(object.fields().to_vec());
            Declared {
                shape: Shape::Object(Arc::new(ObjectType::new("object", fields))),
                nullable,
                size_max,
            }
        }
        Some(other) => other,
        None => Declared::new(Shape::Dyn),
    }
}

/// The type of a member of an object.
pub(super) fn property(of: &Declared, name: &str) -> Option<Arc<Declared>> {
    let Shape::Object(object) = &of.shape else { return None };
    let field = object.fields().iter().find(|field| field.property == name);
    field.map(|field| field.declared.clone())
}

fn field(name: &str, declared: Declared) -> Option<DeclaredField> {
    let escaped = escape(name)?;
    Some(DeclaredField {
        name: escaped.into(),
        property: Str::new(name),
        declared: Arc::new(declared),
    })
}

fn text(chars_max: u64) -> Declared {
    Declared::new(Shape::String).with_size_max(chars_max)
}

fn with_type_meta(mut fields: Vec<DeclaredField>) -> Vec<DeclaredField> {
    fields.retain(|field| !matches!(&*field.property, "kind" | "apiVersion" | "metadata"));
    let names = ["name", "generateName"].map(|name| field(name, text(253)));
    let names = ObjectType::new("object", names.into_iter().flatten().collect());
    let metadata = Declared::new(Shape::Object(Arc::new(names)));
    let unbounded = || text(REQUEST_BYTES_MAX - 2);
    let more =
        [field("kind", unbounded()), field("apiVersion", unbounded()), field("metadata", metadata)];
    fields.extend(more.into_iter().flatten());
    fields
}

fn declared(schema: &Map, depth: usize) -> Option<Declared> {
    if depth > DEPTH_MAX {
        return None;
    }
    let word = |name: &str| schema.get(name).and_then(Value::as_str).unwrap_or_default();
    let flag = |name: &str| schema.get(name).and_then(Value::as_bool).unwrap_or_default();
    let size = |name: &str| {
        schema.get(name).and_then(Value::as_int).and_then(|size| u64::try_from(size).ok())
    };
    let child = |name: &str| declared(schema.get(name)?.as_object()?, depth + 1);
    let nullable = flag("nullable");
    if flag("x-kubernetes-int-or-string") {
        let size_max = size("maxLength").unwrap_or(REQUEST_BYTES_MAX - 2);
        return Some(Declared { shape: Shape::IntOrString, nullable, size_max });
    }
    let (shape, size_max) = match word("type") {
        "array" => {
            let items = child("items")?;
            let kind = match word("x-kubernetes-list-type") {
                "set" => ListKind::Set,
                "map" => {
                    let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
                    let keys = keys.unwrap_or_default().iter().filter_map(Value::as_str);
                    ListKind::Map(keys.map(Str::new).collect())
                }
                _ => ListKind::Atomic,
            };
            let count = size("maxItems").unwrap_or((REQUEST_BYTES_MAX - 2) / smallest(&items));
            (Shape::List(Arc::new(items), kind), count)
        }
        "object" if schema.get("additionalProperties").is_some() => {
            let values = child("additionalProperties").unwrap_or(Declared::new(Shape::Dyn));
            let least = smallest(&values) + 4;
            let count = size("maxProperties").unwrap_or((REQUEST_BYTES_MAX - 2) / least);
            (Shape::Map(Arc::new(values)), count)
        }
        "object" => (object(schema, depth), 0),
        "boolean" => (Shape::Bool, 0),
        "integer" => (Shape::Int, 0),
        "number" => (Shape::Double, 0),
        "string" => string(word("format"), size("maxLength")),
        "" => (Shape::Dyn, 0),
        _ => return None,
    };
    Some(Declared { shape, nullable, size_max })
}

fn object(schema: &Map, depth: usize) -> Shape {
    let properties = schema.get("properties").and_then(Value::as_object);
    let fields = properties
        .into_iter()
        .flat_map(Map::iter)
        .filter_map(|(name, schema)| field(name, declared(schema.as_object()?, depth + 1)?));
    let fields = fields.collect();
    let is_embedded = schema.get("x-kubernetes-embedded-resource") == Some(&true.into());
    let fields = if is_embedded { with_type_meta(fields) } else { fields };
    Shape::Object(Arc::new(ObjectType::new("object", fields)))
}

fn string(format: &str, length: Option<u64>) -> (Shape, u64) {
    let unbounded = REQUEST_BYTES_MAX - 2;
    match format {
        "byte" => (Shape::Bytes, length.unwrap_or(unbounded)),
        "duration" => (Shape::Duration, length.unwrap_or(unbounded)),
        "date" => (Shape::Date, 10),
        "date-time" => (Shape::Timestamp, 25),
        _ => (Shape::String, length.unwrap_or(unbounded)),
    }
}

/// Bytes of the smallest JSON of a value, with the comma after it.
fn smallest(declared: &Declared) -> u64 {
    match declared.shape {
        Shape::Bool => 5,
        Shape::Date => 13,
        Shape::Timestamp => 23,
        Shape::Int | Shape::Double | Shape::Dyn | Shape::IntOrString => 2,
        _ => 3,
    }
}
