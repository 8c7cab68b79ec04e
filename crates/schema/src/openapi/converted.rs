//! OpenAPI 3.0 made of a whole v2 document, for servers that have no v3 (kube-openapi's
//! `openapiconv`).

use super::remote::DEPTH_MAX;
use keelson_meta::{Map, Str, Value};

/// What references to types begin with, in v2 and in v3.
const DEFINITION: &str = "#/definitions/";
const SCHEMA: &str = "#/components/schemas/";
/// The same of shared parameters and answers.
const PARAMETER: &str = "#/parameters/";
const RESPONSE: &str = "#/responses/";
const V3_RESPONSE: &str = "#/components/responses/";

const METHODS: &[&str] = &["get", "put", "post", "delete", "options", "head", "patch"];

/// Returns the v3 form of a v2 document; `None` for one that is too deep.
pub fn v3_of_v2(document: &Value) -> Option<Value> {
    if document.depth() > DEPTH_MAX {
        return None;
    }
    let given = document.as_object()?;
    let mut out = Map::new();
    out.insert("openapi", "3.0.0");
    copy(given, &["info", "externalDocs"], &mut out);
    let produces = given.get("produces");
    let mut components = Map::new();
    let mut put = |from: &str, to: &'static str, convert: &dyn Fn(&Value) -> Value| {
        if let Some(all) = given.get(from).and_then(Value::as_object) {
            components.insert(to, each(all, convert));
        }
    };
    put("responses", "responses", &|one| response(one, produces));
    put("definitions", "schemas", &schema);
    put("securityDefinitions", "securitySchemes", &security_scheme);
    if let Some(paths) = given.get("paths").and_then(Value::as_object) {
        let shared = given.get("parameters");
        let item = |(name, item): (&Str, &Value)| match is_extension(name) {
            true => (name.clone(), item.clone()),
            false => (name.clone(), path_item(item, shared)),
        };
        out.insert("paths", paths.iter().map(item).collect::<Map>());
    }
    out.insert("components", components);
    Some(Value::Object(out))
}

fn each(all: &Map, convert: &dyn Fn(&Value) -> Value) -> Map {
    all.iter().map(|(name, one)| (name.clone(), convert(one))).collect()
}

fn is_extension(name: &str) -> bool {
    name.starts_with("x-")
}

/// Copies members as they are, and all extensions.
fn copy(given: &Map, names: &[&str], out: &mut Map) {
    for (name, value) in given.iter() {
        if names.contains(&name.as_str()) || is_extension(name) {
            out.insert(name.clone(), value.clone());
        }
    }
}

fn path_item(given: &Value, shared: Option<&Value>) -> Value {
    let Some(given) = given.as_object() else { return Value::Null };
    let mut out = Map::new();
    copy(given, &["$ref"], &mut out);
    for method in METHODS {
        if let Some(of) = given.get(method).and_then(Value::as_object) {
            out.insert(*method, operation(of, shared));
        }
    }
    let parameters = given.get("parameters").and_then(Value::as_array).unwrap_or_default();
    let parameters: Vec<Value> =
        parameters.iter().map(|one| parameter(resolved(one, shared))).collect();
    if !parameters.is_empty() {
        out.insert("parameters", parameters);
    }
    Value::Object(out)
}

fn operation(given: &Map, shared: Option<&Value>) -> Map {
    let mut out = Map::new();
    let same = ["description", "externalDocs", "tags", "summary", "deprecated", "operationId"];
    copy(given, &same, &mut out);
    let mut parameters: Vec<Value> = vec![];
    for one in given.get("parameters").and_then(Value::as_array).unwrap_or_default() {
        let one = resolved(one, shared);
        let body = one.get("schema").filter(|_| one.str_at(&["name"]) == Some("body"));
        match body {
            Some(body) => {
                let mut request = Map::new();
                if let Some(content) = content(given.get("consumes"), body) {
                    request.insert("content", content);
                }
                out.insert("requestBody", request);
            }
            None => parameters.push(parameter(one)),
        }
    }
    if !parameters.is_empty() {
        out.insert("parameters", parameters);
    }
    let produces = given.get("produces");
    let responses = given.get("responses").and_then(Value::as_object);
    let responses = responses.into_iter().flat_map(Map::iter).map(|(code, one)| {
        let one = if is_extension(code) { one.clone() } else { response(one, produces) };
        (code.clone(), one)
    });
    out.insert("responses", responses.collect::<Map>());
    out
}

/// Returns the shared parameter that a reference names: v3 has no place for those with bodies.
fn resolved<'a>(given: &'a Value, shared: Option<&'a Value>) -> &'a Value {
    let name = given.str_at(&["$ref"]).and_then(|to| to.strip_prefix(PARAMETER));
    name.and_then(|name| shared?.get(name)).unwrap_or(given)
}

fn parameter(given: &Value) -> Value {
    let Some(given) = given.as_object() else { return Value::Null };
    let mut out = Map::new();
    let same = ["$ref", "name", "description", "in", "required", "allowEmptyValue"];
    copy(given, &same, &mut out);
    let of_type = match given.get("schema") {
        Some(given) => schema(given),
        None => {
            let mut simple = Map::new();
            copy(given, &["type", "format", "uniqueItems"], &mut simple);
            simple.retain(|name, _| !is_extension(name));
            Value::Object(simple)
        }
    };
    out.insert("schema", of_type);
    Value::Object(out)
}

fn response(given: &Value, produces: Option<&Value>) -> Value {
    let Some(given) = given.as_object() else { return Value::Null };
    let mut out = Map::new();
    copy(given, &["description"], &mut out);
    if let Some(to) = given.get("$ref").and_then(Value::as_str) {
        let name = to.strip_prefix(RESPONSE);
        out.insert("$ref", name.map_or(to.to_owned(), |name| format!("{V3_RESPONSE}{name}")));
    }
    if let Some(content) = given.get("schema").and_then(|schema| content(produces, schema)) {
        out.insert("content", content);
    }
    Value::Object(out)
}

/// Returns the content of a body in these media types; `None`: none are given.
fn content(media_types: Option<&Value>, given: &Value) -> Option<Map> {
    let media_types = media_types?.as_array()?.iter().filter_map(Value::as_str);
    let one = |media_type: &str| {
        let mut of = Map::new();
        of.insert("schema", schema(given));
        (Str::new(media_type), Value::Object(of))
    };
    Some(media_types.map(one).collect())
}

fn security_scheme(given: &Value) -> Value {
    let Some(given) = given.as_object() else { return Value::Null };
    let mut out = Map::new();
    copy(given, &["description", "type", "name", "in"], &mut out);
    if let Some(flow) = given.get("flow").and_then(Value::as_str) {
        let mut of = Map::new();
        copy(given, &["tokenUrl", "scopes"], &mut of);
        of.retain(|name, _| !is_extension(name));
        if let Some(url) = given.get("authorizationUrl") {
            of.insert("authorizationUrl", url.clone());
        }
        let mut flows = Map::new();
        flows.insert(flow, of);
        out.insert("flows", flows);
    }
    Value::Object(out)
}

/// Converts a type: its references name types of v3, and stand alone.
fn schema(given: &Value) -> Value {
    let Some(given) = given.as_object() else { return given.clone() };
    let mut out = Map::new();
    let mut reference = None;
    for (name, value) in given.iter() {
        let converted = match (name.as_str(), value) {
            ("$ref", Value::String(to)) => {
                let name = to.split_once(DEFINITION).map(|(_, name)| format!("{SCHEMA}{name}"));
                reference = Some(name.unwrap_or_else(|| to.to_string()));
                continue;
            }
            ("properties", Value::Object(all)) => Value::Object(each(all, &schema)),
            ("items" | "allOf" | "anyOf" | "oneOf", Value::Array(all)) => {
                Value::Array(all.iter().map(schema).collect())
            }
            ("items" | "additionalProperties" | "additionalItems" | "not", one) => schema(one),
            (_, value) => value.clone(),
        };
        out.insert(name.clone(), converted);
    }
    let Some(to) = reference else { return Value::Object(out) };
    let mut alone = Map::new();
    alone.insert("$ref", to);
    if out.is_empty() {
        return Value::Object(alone);
    }
    out.insert("allOf", vec![Value::Object(alone)]);
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    #[test]
    fn types_and_paths_are_those_of_the_v2_document() {
        let v2 = value!({
            "swagger": "2.0", "info": {"title": "t", "version": "1"},
            "securityDefinitions": {"B": {"type": "apiKey", "name": "authorization", "in": "header"}},
            "parameters": {
                "p": {"in": "query", "name": "pretty", "type": "string", "uniqueItems": true},
                "b": {"in": "body", "name": "body", "schema": {"$ref": "#/definitions/Thing"}}},
            "definitions": {
                "Size": {"type": "string"},
                "Thing": {"type": "object", "x-kubernetes-group-version-kind": [{"kind": "Thing"}],
                    "properties": {
                        "size": {"$ref": "#/definitions/Size", "description": "d", "default": {}},
                        "sizes": {"type": "array", "items": {"$ref": "#/definitions/Size"}},
                        "by": {"additionalProperties": {"$ref": "#/definitions/Size"}},
                        "any": {"additionalProperties": true}}}},
            "paths": {"/apis/g/v1/things": {
                "parameters": [{"$ref": "#/parameters/p"}],
                "post": {"consumes": ["*/*"], "produces": ["application/json", "application/yaml"],
                    "operationId": "create", "schemes": ["https"], "x-kubernetes-action": "post",
                    "parameters": [{"$ref": "#/parameters/b"}],
                    "responses": {
                        "200": {"description": "OK", "schema": {"$ref": "#/definitions/Thing"}},
                        "401": {"description": "Unauthorized"}}}}}
        });
        let size = || value!({"$ref": "#/components/schemas/Size"});
        let thing = || value!({"schema": {"$ref": "#/components/schemas/Thing"}});
        let expected = value!({
            "openapi": "3.0.0", "info": {"title": "t", "version": "1"},
            "components": {
                "securitySchemes": {"B": {"type": "apiKey", "name": "authorization", "in": "header"}},
                "schemas": {
                    "Size": {"type": "string"},
                    "Thing": {"type": "object", "x-kubernetes-group-version-kind": [{"kind": "Thing"}],
                        "properties": {
                            "size": {"allOf": [(size())], "description": "d", "default": {}},
                            "sizes": {"type": "array", "items": (size())},
                            "by": {"additionalProperties": (size())},
                            "any": {"additionalProperties": true}}}}},
            "paths": {"/apis/g/v1/things": {
                "parameters": [{"in": "query", "name": "pretty",
                    "schema": {"type": "string", "uniqueItems": true}}],
                "post": {"operationId": "create", "x-kubernetes-action": "post",
                    "requestBody": {"content": {"*/*": (thing())}},
                    "responses": {
                        "200": {"description": "OK", "content": {
                            "application/json": (thing()), "application/yaml": (thing())}},
                        "401": {"description": "Unauthorized"}}}}}
        });
        assert_eq!(v3_of_v2(&v2), Some(expected));
    }

    #[test]
    fn what_is_no_document_is_not_converted() {
        assert_eq!(v3_of_v2(&Value::Null), None);
        let deep = (0..DEPTH_MAX).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
        assert_eq!(v3_of_v2(&value!({"definitions": (deep)})), None);
        let odd = value!({"paths": {"/a": 1}, "definitions": {"A": 1}, "responses": {"R": []}});
        assert!(v3_of_v2(&odd).is_some(), "no panic");
    }
}
