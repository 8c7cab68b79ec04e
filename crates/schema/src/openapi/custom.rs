//! Resources that are not in the catalogue, as documents show them (apiextensions
//! `controller/openapi/builder`): their schema is what their producer says, with kind, apiVersion and
//! metadata as every object has them.

use super::operations::META;
use super::schemas::{Dialect, object};
use super::{fixed, text};
use crate::catalogue::Resource;
use crate::json;
use crate::structural::DEPTH_MAX;
use keelson_meta::{Map, Str, Value};
use std::collections::BTreeMap;

const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

/// A served version of a group, with its resources that are not in the catalogue.
pub struct CustomVersion<'a> {
    /// API group.
    pub group: &'a str,
    /// `v1`.
    pub version: &'a str,
    /// In the order of discovery.
    pub resources: Vec<CustomResource<'a>>,
}

/// A resource that is not in the catalogue.
pub struct CustomResource<'a> {
    /// Names, verbs and subresources.
    pub facts: &'a Resource,
    /// `WidgetList`.
    pub list_kind: &'a str,
    /// Its schema in OpenAPI v3, as JSON; empty: an object of which nothing is known.
    pub schema: Box<dyn AsRef<[u8]> + 'a>,
    /// Another one for another schema, from which tags of documents are made; none: the schema itself.
    pub schema_id: Option<String>,
    /// The fields that field selectors may ask for: `spec.color`.
    pub selectable: Vec<String>,
}

/// A type of a resource that is not in the catalogue, or of its lists. Its schema is made when it is asked for: a
/// document may have thousands.
pub(super) struct OwnType<'a> {
    version: &'a CustomVersion<'a>,
    resource: &'a CustomResource<'a>,
    is_list: bool,
}

impl OwnType<'_> {
    /// Its schema as documents show it.
    pub(super) fn schema(&self, dialect: Dialect) -> Value {
        let OwnType { version, resource, is_list } = self;
        let kind = &resource.facts.kind.kind;
        match is_list {
            true => version.list(resource, &version.type_name(kind), dialect),
            false => version.object(resource, kind, dialect),
        }
    }
}

impl<'a> CustomVersion<'a> {
    /// `apis/example.com/v1`.
    pub(super) fn document(&self) -> String {
        format!("apis/{}/{}", self.group, self.version)
    }

    /// The full name of a kind of this version: `com.example.v1.Widget`.
    pub(super) fn type_name(&self, kind: &str) -> Str {
        let mut parts: Vec<&str> = self.group.split('.').collect();
        parts.reverse();
        Str::from(format!("{}.{}.{kind}", parts.join("."), self.version))
    }

    /// Whether a resource of this kind is among these.
    pub(super) fn serves(&self, kind: &str) -> bool {
        self.resources.iter().any(|known| known.facts.kind.kind == kind)
    }

    /// The list kind of a resource.
    pub(super) fn list_kind(&self, resource: &Resource) -> Option<&str> {
        let found = self.resources.iter().find(|known| known.facts.name == resource.name);
        found.map(|found| found.list_kind)
    }

    /// Whether a path is that of the document of this version.
    pub(super) fn is_at(&self, path: &str) -> bool {
        let version = path.strip_prefix("apis/").and_then(|rest| rest.split_once('/'));
        version == Some((self.group, self.version))
    }

    /// The types of the resources and of their lists, by full name.
    pub(super) fn types(&'a self) -> BTreeMap<Str, OwnType<'a>> {
        let mut out = BTreeMap::new();
        for resource in &self.resources {
            let own = |is_list| OwnType { version: self, resource, is_list };
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
                let members = [("type", fixed("object")), (PRESERVE, true.into())];
                members.into_iter().map(|(name, value)| (Str::new_static(name), value)).collect()
            }
        };
        // kubectl's explanations of v2 documents fail at properties of what may have others.
        let is_open = dialect == Dialect::V2 && out.remove(PRESERVE) == Some(true.into());
        publish(&mut out, dialect, 0);
        let mut properties = match out.remove("properties") {
            Some(Value::Object(properties)) => properties,
            _ => Map::new(),
        };
        if !is_open {
            type_members(&mut properties);
            properties.insert("metadata", reference("ObjectMeta", dialect));
            properties.sort();
            out.insert("properties", properties);
        }
        out.insert("x-kubernetes-group-version-kind", self.gvk(kind));
        Value::Object(with_selectable(out, resource))
    }

    fn list(&self, resource: &CustomResource<'_>, name: &str, dialect: Dialect) -> Value {
        let mut properties = Map::new();
        type_members(&mut properties);
        let items = object([
            ("description", text(format!("The {} of the list.", resource.facts.name))),
            ("type", fixed("array")),
            ("items", dialect.reference(name)),
        ]);
        properties.insert("items", items);
        properties.insert("metadata", reference("ListMeta", dialect));
        properties.sort();
        let out = object([
            ("description", text(format!("A list of {}.", resource.facts.name))),
            ("type", fixed("object")),
            ("required", Value::Array(vec![fixed("items")])),
            ("properties", Value::Object(properties)),
            ("x-kubernetes-group-version-kind", self.gvk(resource.list_kind)),
        ]);
        match out {
            Value::Object(out) => Value::Object(with_selectable(out, resource)),
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

fn with_selectable(mut schema: Map, resource: &CustomResource<'_>) -> Map {
    let field = |path: &String| object([("fieldPath", text(path.as_str()))]);
    if !resource.selectable.is_empty() {
        let fields: Vec<Value> = resource.selectable.iter().map(field).collect();
        schema.insert("x-kubernetes-selectable-fields", fields);
    }
    schema
}

/// Makes of a schema what documents show of it.
fn publish(schema: &mut Map, dialect: Dialect, depth: usize) {
    if depth > DEPTH_MAX {
        return;
    }
    let is = |name: &str| schema.get(name) == Some(&true.into());
    let (is_embedded, is_open) = (is("x-kubernetes-embedded-resource"), is(PRESERVE));
    let (is_nullable, is_int_or_string) = (is("nullable"), is(INT_OR_STRING));
    if is_embedded {
        let mut properties = match schema.remove("properties") {
            Some(Value::Object(properties)) => properties,
            _ => Map::new(),
        };
        type_members(&mut properties);
        properties.insert("metadata", reference("ObjectMeta", dialect));
        properties.sort();
        schema.insert("properties", properties);
        let required = schema.remove("required");
        let more = required.as_ref().and_then(Value::as_array).unwrap_or_default();
        let is_new = |name: &&Value| !matches!(name.as_str(), Some("kind" | "apiVersion"));
        let all = more.iter().filter(is_new).cloned().chain([fixed("kind"), fixed("apiVersion")]);
        schema.insert("required", all.collect::<Vec<Value>>());
    }
    match dialect {
        Dialect::V3 if is_int_or_string && !schema.contains_key("anyOf") => {
            let types = ["integer", "string"].map(|kind| object([("type", fixed(kind))]));
            schema.insert("anyOf", types.to_vec());
        }
        Dialect::V3 => {}
        Dialect::V2 => without_v3(schema, is_nullable, is_open, is_int_or_string),
    }
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for (_, member) in properties.iter_mut() {
            if let Value::Object(member) = member {
                publish(member, dialect, depth + 1);
            }
        }
    }
    for name in ["items", "additionalProperties"] {
        if let Some(Value::Object(inner)) = schema.get_mut(name) {
            publish(inner, dialect, depth + 1);
        }
    }
}

/// Takes out of a schema what OpenAPI v2 cannot say, or kubectl cannot read.
fn without_v3(schema: &mut Map, is_nullable: bool, is_open: bool, is_int_or_string: bool) {
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

fn type_members(properties: &mut Map) {
    for (name, description) in [
        ("apiVersion", "The group and version of the schema of this object."),
        ("kind", "The kind of this object."),
    ] {
        let of = object([("description", fixed(description)), ("type", fixed("string"))]);
        properties.insert(name, of);
    }
}

fn reference(name: &str, dialect: Dialect) -> Value {
    let description = match name {
        "ListMeta" => "Metadata of the list.",
        _ => "Metadata that every object has.",
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
    out.insert("description", fixed(description));
    out.sort();
    Value::Object(out)
}
