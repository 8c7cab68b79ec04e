//! The schema of one kind with the schemas that it refers to in their places (apiserver
//! `pkg/cel/openapi/resolver`).

use super::custom::OwnType;
use super::descriptions::Descriptions;
use super::facts::Facts;
use super::schemas::{Dialect, Places, Schemas, object};
use super::{CustomVersion, OpenApi, fixed};
use keelson_meta::{GroupVersionKind, Map, Str, Value};
use std::collections::BTreeMap;

/// What of a schema says which values it takes; the rest is for people.
const KEPT: [&str; 7] = [
    "type",
    "format",
    "enum",
    "nullable",
    "required",
    "x-kubernetes-int-or-string",
    "x-kubernetes-preserve-unknown-fields",
];

impl OpenApi<'_> {
    /// The v3 schema of a kind without references: types, formats, properties, items. A schema within itself is an
    /// object without properties. None: the kind is not served.
    pub fn resolved(&self, kind: &GroupVersionKind) -> Option<Value> {
        let custom = self
            .custom
            .iter()
            .find(|custom| custom.group == kind.group && custom.version == kind.version);
        let custom = custom.filter(|custom| custom.serves(&kind.kind));
        let own = custom.map(CustomVersion::types).unwrap_or_default();
        let name = match custom {
            Some(custom) => custom.type_name(&kind.kind),
            None => self.catalogue.types.get(self.catalogue.schema(kind)?.root).name.clone(),
        };
        let (facts, descriptions) = (Facts::read(), Descriptions::read());
        let schemas = Schemas::new(self.catalogue, &facts, &descriptions, Dialect::V3, Places::All);
        let mut resolver = Resolver { schemas: &schemas, own: &own, open: vec![] };
        Some(resolver.named(&name))
    }
}

struct Resolver<'a> {
    schemas: &'a Schemas<'a>,
    own: &'a BTreeMap<Str, OwnType<'a>>,
    /// Names of the schemas around the one at hand.
    open: Vec<Str>,
}

impl Resolver<'_> {
    fn named(&mut self, name: &str) -> Value {
        if self.open.iter().any(|open| open == name) {
            return object([("type", fixed("object"))]);
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
                    let properties = value.as_object().into_iter().flat_map(Map::iter);
                    let properties = properties.map(|(name, at)| (name.clone(), self.schema(at)));
                    Value::Object(properties.collect())
                }
                "items" | "additionalProperties" => self.schema(value),
                kept if KEPT.contains(&kept) => value.clone(),
                _ => continue,
            };
            out.insert(name.clone(), value);
        }
        Value::Object(out)
    }
}

/// The name of the schema that this one stands for: by itself, or beside a default.
fn reference(schema: &Value) -> Option<&str> {
    let place = match schema.array_at(&["allOf"]) {
        [only] => only.str_at(&["$ref"]),
        _ => schema.str_at(&["$ref"]),
    };
    place?.rsplit('/').next()
}
