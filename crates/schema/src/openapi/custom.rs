//! Resources that are not in the catalogue, as documents show them (apiextensions
//! `controller/openapi/builder`): their own schema, with the standard kind, apiVersion and
//! metadata.

use super::descriptions::standard;
use super::operations::META;
use super::schemas::{Dialect, object};
use super::{static_text, text};
use crate::catalogue::Resource;
use crate::json;
use crate::structural::DEPTH_MAX;
use keelson_meta::{Map, Str, Value};
use std::collections::BTreeMap;

const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

/// A served group version with its custom resources.
pub struct CustomVersion<'a> {
    /// API group.
    pub group: &'a str,
    /// `v1`.
    pub version: &'a str,
    /// In discovery order.
    pub resources: Vec<CustomResource<'a>>,
}

/// A custom resource.
pub struct CustomResource<'a> {
    /// Names, verbs and subresources.
    pub facts: &'a Resource,
    /// `WidgetList`.
    pub list_kind: &'a str,
    /// Its OpenAPI v3 schema as JSON; empty for an object with any content.
    pub schema: Box<dyn AsRef<[u8]> + 'a>,
    /// Identifies the schema in document hashes; `None`: the schema itself is hashed.
    pub schema_id: Option<String>,
    /// The selectable fields: `spec.color`.
    pub selectable: Vec<String>,
}

/// The type of a custom resource or of its list. The schema is only built on demand, because a
/// document may have thousands.
pub(super) struct CustomType<'a> {
    version: &'a CustomVersion<'a>,
    resource: &'a CustomResource<'a>,
    is_list: bool,
}

impl CustomType<'_> {
    /// Returns the schema as documents show it.
    pub(super) fn schema(&self, dialect: Dialect) -> Value {
        let CustomType { version, resource, is_list } = self;
        let kind = &resource.facts.kind.kind;
        match is_list {
            true => version.list(resource, &version.type_name(kind), dialect),
            false => version.object(resource, kind, dialect),
        }
    }
}

impl<'a> CustomVersion<'a> {
    /// Returns the path of the document: `apis/example.com/v1`.
    pub(super) fn document(&self) -> String {
        format!("apis/{}/{}", self.group, self.version)
    }

    /// Returns the full name of a kind: `com.example.v1.Widget`.
    pub(super) fn type_name(&self, kind: &str) -> Str {
        let mut parts: Vec<&str> = self.group.split('.').collect();
        parts.reverse();
        Str::from(format!("{}.{}.{kind}", parts.join("."), self.version))
    }

    /// Whether a resource has this kind.
    pub(super) fn serves(&self, kind: &str) -> bool {
        self.resources.iter().any(|known| known.facts.kind.kind == kind)
    }

    /// Returns the list kind of a resource.
    pub(super) fn list_kind(&self, resource: &Resource) -> Option<&str> {
        let found = self.resources.iter().find(|known| known.facts.name == resource.name);
        found.map(|found| found.list_kind)
    }

    /// Whether a path is that of this version's document.
    pub(super) fn is_at(&self, path: &str) -> bool {
        let version = path.strip_prefix("apis/").and_then(|rest| rest.split_once('/'));
        version == Some((self.group, self.version))
    }

    /// Returns the types of the resources and their lists, by full name.
    pub(super) fn types(&'a self) -> BTreeMap<Str, CustomType<'a>> {
        let mut out = BTreeMap::new();
        for resource in &self.resources {
            let own = |is_list| CustomType { version: self, resource, is_list };
            out.insert(self.type_name(resource.list_kind), own(true));
            out.insert(self.type_name(&resource.facts.kind.kind), own(false));
        }
        out
    }

    fn object(&self, resource: &CustomResource<'_>, kind: &str, dialect: Dialect) -> Value {
        let schema = json::parse((*resource.schema).as_ref()).ok().map(|parsed| parsed.value);
        let mut out = match schema {
            Some(Value::Object(schema)) => schema,
            _ => {
                let members = [("type", static_text("object")), (PRESERVE, true.into())];
                members.into_iter().map(|(name, value)| (Str::new_static(name), value)).collect()
            }
        };
        // `kubectl explain` fails on v2 schemas that have properties and preserve unknown fields.
        let is_open = dialect == Dialect::V2 && out.remove(PRESERVE) == Some(true.into());
        to_published_form(&mut out, dialect, 0);
        let mut properties = match out.remove("properties") {
            Some(Value::Object(properties)) => properties,
            _ => Map::new(),
        };
        if !is_open {
            add_type_meta(&mut properties);
            properties.insert("metadata", reference("ObjectMeta", dialect));
            properties.sort();
            out.insert("properties", properties);
        }
        out.insert("x-kubernetes-group-version-kind", self.gvk(kind));
        Value::Object(add_selectable_fields(out, resource))
    }

    fn list(&self, resource: &CustomResource<'_>, name: &str, dialect: Dialect) -> Value {
        let mut properties = Map::new();
        add_type_meta(&mut properties);
        let items = object([
            ("description", text(format!("The {} of the list.", resource.facts.name))),
            ("type", static_text("array")),
            ("items", dialect.reference(name)),
        ]);
        properties.insert("items", items);
        properties.insert("metadata", reference("ListMeta", dialect));
        properties.sort();
        let out = object([
            ("description", text(format!("A list of {}.", resource.facts.name))),
            ("type", static_text("object")),
            ("required", Value::Array(vec![static_text("items")])),
            ("properties", Value::Object(properties)),
            ("x-kubernetes-group-version-kind", self.gvk(resource.list_kind)),
        ]);
        match out {
            Value::Object(out) => Value::Object(add_selectable_fields(out, resource)),
            out => out,
        }
    }

    fn gvk(&self, kind: &str) -> Value {
        let gvk = object([
            ("group", text(self.group)),
            ("kind", text(kind)),
            ("version", text(self.version)),
        ]);
        Value::Array(vec![gvk])
    }
}

fn add_selectable_fields(mut schema: Map, resource: &CustomResource<'_>) -> Map {
    let field = |path: &String| object([("fieldPath", text(path.as_str()))]);
    if !resource.selectable.is_empty() {
        let fields: Vec<Value> = resource.selectable.iter().map(field).collect();
        schema.insert("x-kubernetes-selectable-fields", fields);
    }
    schema
}

/// Converts a schema to its published form.
fn to_published_form(schema: &mut Map, dialect: Dialect, depth: usize) {
    if depth > DEPTH_MAX {
        return;
    }
    let is = |name: &str| schema.get(name) == Some(&true.into());
    let is_embedded = is("x-kubernetes-embedded-resource");
    let is_open = is(PRESERVE);
    let is_nullable = is("nullable");
    let is_int_or_string = is(INT_OR_STRING);
    if is_embedded {
        let mut properties = match schema.remove("properties") {
            Some(Value::Object(properties)) => properties,
            _ => Map::new(),
        };
        add_type_meta(&mut properties);
        properties.insert("metadata", reference("ObjectMeta", dialect));
        properties.sort();
        schema.insert("properties", properties);
        let required = schema.remove("required");
        let more = required.as_ref().and_then(Value::as_array).unwrap_or_default();
        let is_new = |name: &&Value| !matches!(name.as_str(), Some("kind" | "apiVersion"));
        let all = more
            .iter()
            .filter(is_new)
            .cloned()
            .chain([static_text("kind"), static_text("apiVersion")]);
        schema.insert("required", all.collect::<Vec<Value>>());
    }
    match dialect {
        Dialect::V3 if is_int_or_string && !schema.contains_key("anyOf") => {
            let types = ["integer", "string"].map(|kind| object([("type", static_text(kind))]));
            schema.insert("anyOf", types.to_vec());
        }
        Dialect::V3 => {}
        Dialect::V2 => remove_v3_only(schema, is_nullable, is_open, is_int_or_string),
    }
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for (_, member) in properties.iter_mut() {
            if let Value::Object(member) = member {
                to_published_form(member, dialect, depth + 1);
            }
        }
    }
    for name in ["items", "additionalProperties"] {
        if let Some(Value::Object(inner)) = schema.get_mut(name) {
            to_published_form(inner, dialect, depth + 1);
        }
    }
}

/// Removes what OpenAPI v2 does not support or kubectl cannot read.
fn remove_v3_only(schema: &mut Map, is_nullable: bool, is_open: bool, is_int_or_string: bool) {
    for name in ["allOf", "anyOf", "oneOf", "not", "default", "nullable"] {
        schema.remove(name);
    }
    if is_nullable || is_open || is_int_or_string {
        schema.remove("type");
    }
    if is_nullable || is_open {
        for name in ["items", "properties", "required"] {
            schema.remove(name);
        }
    }
    let is_nullable = |name: &Value| {
        let member = name.as_str().and_then(|name| schema.get("properties")?.get(name));
        member.is_some_and(|member| member.get("nullable") == Some(&true.into()))
    };
    if let Some(required) = schema.get("required").and_then(Value::as_array) {
        let required: Vec<Value> =
            required.iter().filter(|name| !is_nullable(name)).cloned().collect();
        match required.is_empty() {
            true => drop(schema.remove("required")),
            false => drop(schema.insert("required", required)),
        }
    }
}

fn add_type_meta(properties: &mut Map) {
    for (name, description) in [("apiVersion", standard::API_VERSION), ("kind", standard::KIND)] {
        let of =
            object([("description", static_text(description)), ("type", static_text("string"))]);
        properties.insert(name, of);
    }
}

fn reference(name: &str, dialect: Dialect) -> Value {
    let description = match name {
        "ListMeta" => "Metadata of the list.",
        _ => standard::METADATA,
    };
    let reference = dialect.reference(&format!("{META}{name}"));
    let mut out = match (dialect, reference) {
        (Dialect::V2, Value::Object(reference)) => reference,
        (_, reference) => {
            let mut out = Map::new();
            out.insert("allOf", Value::Array(vec![reference]));
            out
        }
    };
    out.insert("description", static_text(description));
    out.sort();
    Value::Object(out)
}
