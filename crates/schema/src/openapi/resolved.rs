//! The schema of one kind with references resolved (apiserver `pkg/cel/openapi/resolver`).

use super::custom::CustomType;
use super::descriptions::Descriptions;
use super::facts::Facts;
use super::schemas::{Dialect, GroupVersions, Schemas, object};
use super::{CustomVersion, OpenApi, static_text};
use keelson_meta::{GroupVersionKind, Map, Str, Value};
use std::collections::BTreeMap;

/// Schema keywords that constrain values; descriptive ones are dropped.
const VALIDATION_KEYWORDS: [&str; 7] = [
    "type",
    "format",
    "enum",
    "nullable",
    "required",
    "x-kubernetes-int-or-string",
    "x-kubernetes-preserve-unknown-fields",
];

impl OpenApi<'_> {
    /// Returns the v3 schema of a kind without references: types, formats, properties, items. A
    /// recursive schema becomes an object without properties. Returns `None` if the kind is not
    /// served.
    pub fn resolved(&self, kind: &GroupVersionKind) -> Option<Value> {
        let custom = self
            .custom
            .iter()
            .find(|custom| custom.group == kind.group && custom.version == kind.version)
            .filter(|custom| custom.serves(&kind.kind));
        let own = custom.map(CustomVersion::types).unwrap_or_default();
        let name = match custom {
            Some(custom) => custom.type_name(&kind.kind),
            None => self.catalogue.types.get(self.catalogue.schema(kind)?.root).name.clone(),
        };
        let facts = Facts::read();
        let descriptions = Descriptions::read();
        let schemas =
            Schemas::new(self.catalogue, &facts, &descriptions, Dialect::V3, GroupVersions::All);
        let mut resolver = Resolver { schemas: &schemas, own: &own, open: vec![] };
        Some(resolver.named(&name))
    }
}

struct Resolver<'a> {
    schemas: &'a Schemas<'a>,
    own: &'a BTreeMap<Str, CustomType<'a>>,
    /// Names of the enclosing schemas.
    open: Vec<Str>,
}

impl Resolver<'_> {
    fn named(&mut self, name: &str) -> Value {
        if self.open.iter().any(|open| open == name) {
            return object([("type", static_text("object"))]);
        }
        self.open.push(name.into());
        let schema = match self.own.get(name) {
            Some(own) => own.schema(Dialect::V3),
            None => self.schemas.definition(name),
        };
        let resolved = self.schema(&schema);
        self.open.pop();
        resolved
    }

    fn schema(&mut self, schema: &Value) -> Value {
        if let Some(name) = reference(schema) {
            return self.named(name);
        }
        let Some(schema) = schema.as_object() else { return schema.clone() };
        let mut out = Map::new();
        for (name, value) in schema.iter() {
            let value = match name.as_str() {
                "properties" => {
                    let properties = value
                        .as_object()
                        .into_iter()
                        .flat_map(Map::iter)
                        .map(|(name, at)| (name.clone(), self.schema(at)));
                    Value::Object(properties.collect())
                }
                "items" | "additionalProperties" => self.schema(value),
                kept if VALIDATION_KEYWORDS.contains(&kept) => value.clone(),
                _ => continue,
            };
            out.insert(name.clone(), value);
        }
        Value::Object(out)
    }
}

/// Returns the name of the referenced schema: a `$ref`, alone or in an `allOf` beside a default.
fn reference(schema: &Value) -> Option<&str> {
    let place = match schema.array_at(&["allOf"]) {
        [only] => only.str_at(&["$ref"]),
        _ => schema.str_at(&["$ref"]),
    };
    place?.rsplit('/').next()
}
