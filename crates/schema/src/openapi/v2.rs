//! Paths in OpenAPI 2.0.

use super::operations::{Answer, Body, Operation, PathItem};
use super::parameters::{self, Parameter};
use super::schemas::{Dialect, kind_value, object};
use super::v3::status_code_text;
use super::{static_text, text};
use keelson_meta::{Map, Str, Value};
use std::collections::BTreeSet;

/// Request bodies that are shared: type name and key.
const SHARED_BODIES: [(&str, &str); 2] = [
    ("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions", "body-2Y1dVQaQ"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Patch", "body-78PwaGsr"),
];

/// Returns an entry of `paths`.
pub(super) fn path_item(item: &PathItem) -> Value {
    let mut out = Map::new();
    for operation in &item.operations {
        out.insert(Str::new_static(operation.method), self::operation(operation));
    }
    if !item.parameters.is_empty() {
        let parameters: Vec<Value> = item.parameters.iter().map(parameter).collect();
        out.insert(Str::new_static("parameters"), parameters);
    }
    out.sort();
    Value::Object(out)
}

fn operation(operation: &Operation) -> Value {
    let mut out = Map::new();
    let mut put = |name: &'static str, value: Value| {
        out.insert(Str::new_static(name), value);
    };
    if !operation.consumes.is_empty() {
        put("consumes", list(operation.consumes));
    }
    put("description", text(operation.description.as_str()));
    put("operationId", text(operation.id.as_str()));
    let own = operation.parameters.iter().map(parameter);
    // `body` sorts before all other names.
    let parameters: Vec<Value> = operation.body.iter().map(body).chain(own).collect();
    if !parameters.is_empty() {
        put("parameters", Value::Array(parameters));
    }
    put("produces", list(operation.produces));
    put("responses", responses(operation));
    put("schemes", list(&["https"]));
    put("tags", Value::Array(vec![Value::String(operation.tag.clone())]));
    if !operation.action.is_empty() {
        put("x-kubernetes-action", static_text(operation.action));
    }
    if let Some(kind) = &operation.kind {
        put("x-kubernetes-group-version-kind", kind_value(kind));
    }
    Value::Object(out)
}

fn list(words: &[&'static str]) -> Value {
    Value::Array(words.iter().map(|word| static_text(word)).collect())
}

fn responses(operation: &Operation) -> Value {
    let schema = match &operation.answer {
        Answer::Text => object([("type", static_text("string"))]),
        Answer::Type(name) => Dialect::V2.reference(name),
    };
    let mut out = Map::new();
    for code in operation.codes {
        let (code, description) = status_code_text(*code);
        let answer = object([("description", description), ("schema", schema.clone())]);
        out.insert(Str::new_static(code), answer);
    }
    let (code, description) = status_code_text(401);
    out.insert(Str::new_static(code), object([("description", description)]));
    Value::Object(out)
}

fn shared(key: &str) -> Value {
    object([("$ref", text(format!("#/parameters/{key}")))])
}

fn parameter(of: &Parameter) -> Value {
    if of.key.is_empty() { full(of) } else { shared(of.key) }
}

fn full(of: &Parameter) -> Value {
    let mut out = Map::new();
    out.insert(Str::new_static("description"), text(of.description.clone()));
    out.insert(Str::new_static("in"), static_text(of.place));
    out.insert(Str::new_static("name"), static_text(of.name));
    if of.place == "path" {
        out.insert(Str::new_static("required"), true);
    }
    out.insert(Str::new_static("type"), static_text(of.kind));
    out.insert(Str::new_static("uniqueItems"), true);
    Value::Object(out)
}

fn body(of: &Body) -> Value {
    match SHARED_BODIES.iter().find(|(name, _)| *name == of.type_name) {
        Some((_, key)) => shared(key),
        None => full_body(&of.type_name, of.required),
    }
}

fn full_body(type_name: &str, required: bool) -> Value {
    let mut out = Map::new();
    out.insert(Str::new_static("in"), static_text("body"));
    out.insert(Str::new_static("name"), static_text("body"));
    if required {
        out.insert(Str::new_static("required"), true);
    }
    out.insert(Str::new_static("schema"), Dialect::V2.reference(type_name));
    Value::Object(out)
}

/// Returns the shared parameters of these paths, by key.
pub(super) fn shared_parameters(items: &[PathItem]) -> Vec<(&'static str, Value)> {
    let operations = || items.iter().flat_map(|item| &item.operations);
    let of_paths = items.iter().flat_map(|item| &item.parameters);
    let of_operations = operations().flat_map(|operation| &operation.parameters);
    let used: BTreeSet<&str> = of_paths.chain(of_operations).map(|p| p.key).collect();
    let bodies: BTreeSet<&str> =
        operations().filter_map(|o| o.body.as_ref()).map(|body| body.type_name.as_str()).collect();
    let mut out: Vec<(&str, Value)> = SHARED_BODIES
        .iter()
        .filter(|(name, _)| bodies.contains(name))
        .map(|(name, key)| (*key, full_body(name, name.ends_with(".Patch"))))
        .collect();
    let parameters = parameters::shared().into_iter().filter(|p| used.contains(p.key));
    out.extend(parameters.map(|p| (p.key, full(&p))));
    out.sort_by_key(|(key, _)| *key);
    out
}
