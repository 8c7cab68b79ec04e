//! Paths in OpenAPI 3.0.

use super::operations::{Answer, Operation, PathItem};
use super::parameters::Parameter;
use super::schemas::{Dialect, kind_value, object};
use super::{static_text, text};
use keelson_meta::{Map, Str, Value};

/// Returns an entry of `paths`.
pub(super) fn path_item(item: &PathItem) -> Value {
    let mut out = Map::new();
    for operation in &item.operations {
        out.insert(Str::new_static(operation.method), self::operation(operation));
    }
    if !item.parameters.is_empty() {
        out.insert(Str::new_static("parameters"), list(&item.parameters));
    }
    out.sort();
    Value::Object(out)
}

fn operation(operation: &Operation) -> Value {
    let mut out = Map::new();
    let mut put = |name: &'static str, value: Value| {
        out.insert(Str::new_static(name), value);
    };
    put("description", text(operation.description.as_str()));
    put("operationId", text(operation.id.as_str()));
    if !operation.parameters.is_empty() {
        put("parameters", list(&operation.parameters));
    }
    if let Some(body) = &operation.body {
        let content = content(operation.consumes, &Dialect::V3.reference(&body.type_name));
        let mut request = Map::new();
        request.insert(Str::new_static("content"), content);
        if body.required {
            request.insert(Str::new_static("required"), true);
        }
        put("requestBody", Value::Object(request));
    }
    put("responses", responses(operation));
    put("tags", Value::Array(vec![Value::String(operation.tag.clone())]));
    if !operation.action.is_empty() {
        put("x-kubernetes-action", static_text(operation.action));
    }
    if let Some(kind) = &operation.kind {
        put("x-kubernetes-group-version-kind", kind_value(kind));
    }
    Value::Object(out)
}

fn responses(operation: &Operation) -> Value {
    let schema = match &operation.answer {
        Answer::Text => object([("type", static_text("string"))]),
        Answer::Type(name) => Dialect::V3.reference(name),
    };
    let content = content(operation.produces, &schema);
    let mut out = Map::new();
    for code in operation.codes {
        let (code, description) = status_code_text(*code);
        let answer = object([("content", content.clone()), ("description", description)]);
        out.insert(Str::new_static(code), answer);
    }
    let (code, description) = status_code_text(401);
    out.insert(Str::new_static(code), object([("description", description)]));
    Value::Object(out)
}

/// Returns a status code and its description.
pub(super) fn status_code_text(code: u16) -> (&'static str, Value) {
    let (code, text) = match code {
        200 => ("200", "OK"),
        201 => ("201", "Created"),
        202 => ("202", "Accepted"),
        _ => ("401", "Unauthorized"),
    };
    (code, static_text(text))
}

fn content(media: &[&'static str], schema: &Value) -> Value {
    let mut out: Map = media
        .iter()
        .map(|name| (Str::new_static(name), object([("schema", schema.clone())])))
        .collect();
    out.sort();
    Value::Object(out)
}

fn list(parameters: &[Parameter]) -> Value {
    let one = |parameter: &Parameter| {
        let mut out = Map::new();
        out.insert(Str::new_static("description"), text(parameter.description.clone()));
        out.insert(Str::new_static("in"), static_text(parameter.place));
        out.insert(Str::new_static("name"), static_text(parameter.name));
        if parameter.place == "path" {
            out.insert(Str::new_static("required"), true);
        }
        let schema = object([("type", static_text(parameter.kind)), ("uniqueItems", true.into())]);
        out.insert(Str::new_static("schema"), schema);
        Value::Object(out)
    };
    Value::Array(parameters.iter().map(one).collect())
}
