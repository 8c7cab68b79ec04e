//! Resources that are not in the catalogue, as documents show them (apiextensions
//! `controller/openapi/builder`): their schema is what their producer says, with kind, apiVersion and
//! metadata as every object has them.

use super::facts::Facts;
use super::operations::{META, PathItem};
use super::paths::{self, Scope};
use super::schemas::{Dialect, object};
use super::{fixed, text};
use crate::catalogue::{Catalogue, Resource};
use crate::json;
use keelson_meta::{Map, Str, Value};
use std::collections::BTreeMap;

/// Content types of custom objects.
const MEDIA: &[&str] = &["application/json", "application/yaml"];

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
    pub schema: &'a [u8],
}

impl<'a> CustomVersion<'a> {
    /// `apis/example.com/v1`.
    pub(super) fn document(&self) -> String {
        format!("apis/{}/{}", self.group, self.version)
    }

    /// The paths of the resources, sorted. Custom resources have no deprecated `/watch/` paths.
    pub(super) fn paths(&'a self, catalogue: &'a Catalogue, facts: &'a Facts) -> Vec<PathItem> {
        let resources = self.resources.iter().map(|resource| resource.facts);
        let mut items =
            Scope::paths(catalogue, facts, (self.group, self.version), resources, Some(self));
        let root = format!("/{}/", self.document());
        let watches = format!("{root}watch/");
        items.retain(|item| item.path != root && !item.path.starts_with(&watches));
        for operation in items.iter_mut().flat_map(|item| &mut item.operations) {
            operation.produces = MEDIA;
            if operation.consumes != paths::ANY_MEDIA {
                operation.consumes = MEDIA;
            }
        }
        items
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

    /// The types of the resources and of their lists, by full name.
    pub(super) fn definitions(&self, dialect: Dialect) -> BTreeMap<Str, Value> {
        let mut out = BTreeMap::new();
        for resource in &self.resources {
            let kind = &resource.facts.kind.kind;
            let name = self.type_name(kind);
            let list = self.list(resource, &name, dialect);
            out.insert(self.type_name(resource.list_kind), list);
            out.insert(name, self.object(resource, kind, dialect));
        }
        out
    }

    fn object(&self, resource: &CustomResource<'_>, kind: &str, dialect: Dialect) -> Value {
        let schema = json::parse(resource.schema).ok().map(|parsed| parsed.value);
        let mut out = match schema {
            Some(Value::Object(schema)) => schema,
            _ => {
                let unknown = Str::new_static("x-kubernetes-preserve-unknown-fields");
                let members = [(Str::new_static("type"), fixed("object")), (unknown, true.into())];
                members.into_iter().collect()
            }
        };
        let mut properties = match out.remove("properties") {
            Some(Value::Object(properties)) => properties,
            _ => Map::new(),
        };
        type_members(&mut properties);
        properties.insert("metadata", reference("ObjectMeta", dialect));
        properties.sort();
        out.insert("properties", properties);
        out.insert("x-kubernetes-group-version-kind", self.gvk(kind));
        Value::Object(out)
    }

    fn list(&self, resource: &CustomResource<'_>, name: &str, dialect: Dialect) -> Value {
        let mut properties = Map::new();
        type_members(&mut properties);
        let items = object([("type", fixed("array")), ("items", dialect.reference(name))]);
        properties.insert("items", items);
        properties.insert("metadata", reference("ListMeta", dialect));
        properties.sort();
        object([
            ("description", text(format!("A list of {}.", resource.facts.name))),
            ("type", fixed("object")),
            ("required", Value::Array(vec![fixed("items")])),
            ("properties", Value::Object(properties)),
            ("x-kubernetes-group-version-kind", self.gvk(resource.list_kind)),
        ])
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

fn type_members(properties: &mut Map) {
    for name in ["apiVersion", "kind"] {
        properties.insert(name, object([("type", fixed("string"))]));
    }
}

fn reference(name: &str, dialect: Dialect) -> Value {
    let reference = dialect.reference(&format!("{META}{name}"));
    match dialect {
        Dialect::V3 => object([("allOf", Value::Array(vec![reference]))]),
        Dialect::V2 => reference,
    }
}
