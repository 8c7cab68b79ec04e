//! Parses types and values in cel-spec's JSON.

use base64::Engine;
use keelson_cel::{Map, Type, Val};
use serde_json::Value as Json;
use std::sync::Arc;

/// Returns the type that cel-spec describes.
pub fn ty(json: &Json) -> Type {
    let Some((kind, of)) = json.as_object().and_then(|map| map.iter().next()) else {
        return Type::Dyn;
    };
    match (kind.as_str(), of.as_str()) {
        ("primitive", Some("BOOL")) => Type::Bool,
        ("primitive", Some("INT64")) => Type::Int,
        ("primitive", Some("UINT64")) => Type::Uint,
        ("primitive", Some("DOUBLE")) => Type::Double,
        ("primitive", Some("STRING")) => Type::String,
        ("primitive", Some("BYTES")) => Type::Bytes,
        ("well_known", Some("TIMESTAMP")) => Type::Timestamp,
        ("well_known", Some("DURATION")) => Type::Duration,
        ("null", _) => Type::Null,
        ("list_type", _) => Type::list(ty(&of["elem_type"])),
        ("map_type", _) => Type::map(ty(&of["key_type"]), ty(&of["value_type"])),
        ("type", _) => Type::Type(Some(Arc::new(ty(of)))),
        ("abstract_type", _) if of["name"] == "optional_type" => {
            Type::optional(ty(&of["parameter_types"][0]))
        }
        _ => Type::Dyn,
    }
}

fn number<T: std::str::FromStr>(json: &Json) -> T {
    let text = json.as_str().map_or_else(|| json.to_string(), str::to_owned);
    text.parse().ok().unwrap_or_else(|| panic!("no number: {text}"))
}

/// Returns the value that cel-spec describes.
pub fn val(json: &Json) -> Val<'static> {
    let Some((kind, of)) = json.as_object().and_then(|map| map.iter().next()) else {
        return Val::Null;
    };
    match kind.as_str() {
        "bool_value" => Val::Bool(of.as_bool().expect("cel-spec's tests are well-formed")),
        "int64_value" => Val::Int(number(of)),
        "uint64_value" => Val::Uint(number(of)),
        "double_value" => Val::Double(match of.as_str() {
            Some("Infinity") => f64::INFINITY,
            Some("-Infinity") => f64::NEG_INFINITY,
            Some("NaN") => f64::NAN,
            _ => number(of),
        }),
        "string_value" => Val::text(of.as_str().expect("cel-spec's tests are well-formed")),
        "bytes_value" => {
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(of.as_str().expect("cel-spec's tests are well-formed"));
            Val::Bytes(bytes.expect("cel-spec's tests are well-formed").into())
        }
        "list_value" => Val::list(of["values"].as_array().into_iter().flatten().map(val).collect()),
        "map_value" => {
            let entries = of["entries"].as_array().into_iter().flatten();
            Val::map(entries.map(|entry| (val(&entry["key"]), val(&entry["value"]))).collect())
        }
        "type_value" => {
            Val::Type(Arc::new(named(of.as_str().expect("cel-spec's tests are well-formed"))))
        }
        "object_value" => object(of),
        _ => Val::Null,
    }
}

fn named(name: &str) -> Type {
    match name {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "string" => Type::String,
        "null_type" => Type::Null,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "optional_type" => Type::optional(Type::Dyn),
        "google.protobuf.Timestamp" => Type::Timestamp,
        "google.protobuf.Duration" => Type::Duration,
        _ => Type::Type(None),
    }
}

fn object(json: &Json) -> Val<'static> {
    let text = json["value"].as_str().unwrap_or_default();
    match json["@type"].as_str().unwrap_or_default() {
        "type.googleapis.com/google.protobuf.Timestamp" => Val::Timestamp(
            keelson_meta::Timestamp::parse(text).expect("cel-spec's tests are well-formed"),
        ),
        "type.googleapis.com/google.protobuf.Duration" => Val::Duration(
            keelson_meta::time::GoDuration::parse(text).expect("cel-spec's tests are well-formed"),
        ),
        _ => Val::Null,
    }
}

/// Whether two values are equal and of one type; NaN equals itself.
pub fn same(one: &Val<'_>, two: &Val<'_>) -> bool {
    match (one, two) {
        (Val::Double(one), Val::Double(two)) => one == two || (one.is_nan() && two.is_nan()),
        (Val::List(one), Val::List(two)) => {
            one.len() == two.len()
                && one.iter().zip(two.iter()).all(|(a, b)| {
                    same(
                        &a.expect("cel-spec's tests are well-formed"),
                        &b.expect("cel-spec's tests are well-formed"),
                    )
                })
        }
        (Val::Map(one), Val::Map(two)) => same_maps(one, two),
        (Val::Type(one), Val::Type(two)) => Val::Type(one.clone()).equals(&Val::Type(two.clone())),
        _ => std::mem::discriminant(one) == std::mem::discriminant(two) && one.equals(two),
    }
}

fn same_maps(one: &Map<'_>, two: &Map<'_>) -> bool {
    let one = one.entries().expect("cel-spec's tests are well-formed");
    let two = two.entries().expect("cel-spec's tests are well-formed");
    one.len() == two.len()
        && one.iter().all(|(key, value)| {
            two.iter().any(|(other, found)| same(key, other) && same(value, found))
        })
}
