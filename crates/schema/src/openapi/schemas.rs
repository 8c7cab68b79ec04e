//! The OpenAPI schemas of built-in types: structs, and the few other shapes that have a name.

use super::descriptions::Descriptions;
use super::facts::{Facts, MemberFacts};
use super::{static_text, text};
use crate::catalogue::Catalogue;
use crate::types::{
    Field, ListKind, ListShape, Presence, SchemaOr, Shape, Struct, StructId, Types,
};
use keelson_meta::{GroupVersionKind, Map, Str, Value};
use std::collections::{BTreeSet, HashMap};

/// Groups that kube-apiserver's documents of custom resources omit.
const NOT_IN_CUSTOM_RESOURCE_DOCUMENTS: [&str; 4] =
    ["admission.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "imagepolicy.k8s.io"];

/// The group versions that are listed at types that all groups share, such as DeleteOptions.
#[derive(Clone, Copy, Debug)]
pub(super) enum GroupVersions<'a> {
    All,
    /// The core group and this group version.
    Of((&'a str, &'a str)),
    /// The group versions in documents of custom resources.
    CustomResources,
}

/// The OpenAPI version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// OpenAPI 3.0, with defaults and alternatives.
    V3,
    /// Swagger 2.0.
    V2,
}

impl Dialect {
    /// Returns `{"$ref": ..}` to a type.
    pub fn reference(self, name: &str) -> Value {
        let place = match self {
            Dialect::V3 => "#/components/schemas/",
            Dialect::V2 => "#/definitions/",
        };
        object([("$ref", text(format!("{place}{name}")))])
    }
}

/// Returns an object with the given members.
pub(super) fn object<const N: usize>(members: [(&'static str, Value); N]) -> Value {
    Value::Object(members.into_iter().map(|(name, value)| (Str::new_static(name), value)).collect())
}

/// Builds the schemas of a document.
pub(super) struct Schemas<'a> {
    catalogue: &'a Catalogue,
    facts: &'a Facts,
    descriptions: &'a Descriptions,
    dialect: Dialect,
    /// The group versions that shared types list.
    group_versions: GroupVersions<'a>,
    kinds: HashMap<StructId, Vec<&'a GroupVersionKind>>,
}

impl<'a> Schemas<'a> {
    /// Creates a builder for the catalogue's types in one dialect.
    pub fn new(
        catalogue: &'a Catalogue,
        facts: &'a Facts,
        descriptions: &'a Descriptions,
        dialect: Dialect,
        group_versions: GroupVersions<'a>,
    ) -> Self {
        let mut kinds: HashMap<StructId, Vec<&GroupVersionKind>> = HashMap::new();
        for (kind, id) in catalogue.kinds() {
            kinds.entry(id).or_default().push(kind);
        }
        for list in kinds.values_mut() {
            list.sort_by(|a, b| (&a.group, &a.version).cmp(&(&b.group, &b.version)));
        }
        Schemas { catalogue, facts, descriptions, dialect, group_versions, kinds }
    }

    /// Returns the schema of a type.
    pub fn definition(&self, name: &str) -> Value {
        let mut out = Map::new();
        if let Some(text) = self.descriptions.of_type(name) {
            out.insert(Str::new_static("description"), text.as_ref());
        }
        match self.catalogue.types.find(name) {
            Some(id) => self.structure(name, id, &mut out),
            None => named_shape(name, self.dialect, &mut out),
        }
        Value::Object(out)
    }

    fn structure(&self, name: &str, id: StructId, out: &mut Map) {
        let struct_type = self.catalogue.types.get(id);
        let facts = self.facts.of(name);
        if !struct_type.fields.is_empty() {
            let mut properties: Map = struct_type
                .fields
                .iter()
                .map(|field| {
                    let facts = facts.map(|facts| facts.member(&field.name)).unwrap_or_default();
                    (field.name.clone(), self.property(name, field, facts))
                })
                .collect();
            properties.sort();
            out.insert(Str::new_static("properties"), properties);
        }
        let required: Vec<Value> = struct_type
            .fields
            .iter()
            .filter(|f| f.required)
            .map(|f| Value::String(f.name.clone()))
            .collect();
        if !required.is_empty() {
            out.insert(Str::new_static("required"), required);
        }
        if !facts.is_some_and(|facts| facts.no_type) {
            out.insert(Str::new_static("type"), static_text("object"));
        }
        let kinds = self.kinds_of(struct_type, id);
        if !kinds.is_empty() {
            out.insert(Str::new_static("x-kubernetes-group-version-kind"), kinds);
        }
        if struct_type.atomic {
            out.insert(Str::new_static("x-kubernetes-map-type"), static_text("atomic"));
        }
        if struct_type.preserve_unknown {
            out.insert(Str::new_static("x-kubernetes-preserve-unknown-fields"), true);
        }
        if let Some(unions) = facts.and_then(|facts| facts.unions) {
            out.insert(Str::new_static("x-kubernetes-unions"), json(unions));
        }
    }

    /// Returns the kinds of a struct, as the document lists them.
    fn kinds_of(&self, struct_type: &Struct, id: StructId) -> Vec<Value> {
        if let Some(kinds) = self.kinds.get(&id) {
            return kinds.iter().map(|kind| kind_value(kind)).collect();
        }
        let short = struct_type.name.rsplit('.').next().unwrap_or_default();
        let is_everywhere = self
            .catalogue
            .schema(&GroupVersionKind::new("", "v1", short))
            .is_some_and(|schema| schema.root == id);
        if !is_everywhere {
            return vec![];
        }
        let group_versions =
            self.facts.every_version.iter().filter(|place| match self.group_versions {
                GroupVersions::Of(own) => **place == ("", "v1") || **place == own,
                GroupVersions::CustomResources => {
                    !NOT_IN_CUSTOM_RESOURCE_DOCUMENTS.contains(&place.0)
                }
                GroupVersions::All => true,
            });
        group_versions.map(|(g, v)| kind_value(&GroupVersionKind::new(*g, *v, short))).collect()
    }

    fn property(&self, struct_type: &str, field: &Field, facts: MemberFacts) -> Value {
        let description = self.descriptions.of_member(struct_type, &field.name);
        let mut out = Map::new();
        let default = if self.dialect == Dialect::V3 { default(field, facts) } else { None };
        let is_reference = self.type_of(&field.shape, facts, &mut out);
        if is_reference && self.dialect == Dialect::V3 && !facts.bare {
            let reference = std::mem::take(&mut out);
            out.insert(Str::new_static("allOf"), vec![Value::Object(reference)]);
        }
        if let Some(default) = default {
            out.insert(Str::new_static("default"), default);
        }
        if let (Some(text), false) = (description, facts.bare) {
            out.insert(Str::new_static("description"), text.as_ref());
        }
        if !field.enumeration.is_empty() {
            let values: Vec<Value> =
                field.enumeration.iter().map(|value| Value::String(value.clone())).collect();
            out.insert(Str::new_static("enum"), values);
        }
        self.merge_extensions(struct_type, field, facts, &mut out);
        out.sort();
        Value::Object(out)
    }

    /// Writes the type of a shape. Returns true for a reference to a named type.
    fn type_of(&self, shape: &Shape, facts: MemberFacts, out: &mut Map) -> bool {
        let (kind, format) = match shape {
            Shape::String | Shape::Formatted => ("string", ""),
            Shape::Bool => ("boolean", ""),
            Shape::Int32 => ("integer", "int32"),
            Shape::Int64 => ("integer", "int64"),
            Shape::Double => ("number", "double"),
            Shape::Bytes => ("string", "byte"),
            Shape::Duration => ("string", ""),
            Shape::List(list) => {
                out.insert(Str::new_static("items"), self.inner(&list.item, facts));
                ("array", "")
            }
            Shape::Map(map) => {
                let values = self.inner(&map.value, facts);
                out.insert(Str::new_static("additionalProperties"), values);
                ("object", "")
            }
            _ => {
                let name = shape_name(shape, &self.catalogue.types);
                let Value::Object(reference) = self.dialect.reference(name) else { return true };
                *out = reference;
                return true;
            }
        };
        out.insert(Str::new_static("type"), static_text(kind));
        if !format.is_empty() {
            out.insert(Str::new_static("format"), static_text(format));
        }
        false
    }

    /// Returns the schema of list items or map values. In v3 it says their zero value.
    fn inner(&self, shape: &Shape, facts: MemberFacts) -> Value {
        let mut out = Map::new();
        self.type_of(shape, MemberFacts::default(), &mut out);
        if self.dialect == Dialect::V3
            && let Some(zero) = zero_of_item(shape)
        {
            if matches!(shape, Shape::Struct(_)) {
                let reference = std::mem::take(&mut out);
                out.insert(Str::new_static("allOf"), vec![Value::Object(reference)]);
            }
            out.insert(Str::new_static("default"), zero);
        }
        if let Some(values) = facts.item_enumeration {
            let values: Vec<Value> =
                values.split('|').map(|value| text(value.replace('+', " "))).collect();
            out.insert(Str::new_static("enum"), values);
        }
        Value::Object(out)
    }

    /// Writes the `x-kubernetes-*` extensions about merging.
    fn merge_extensions(
        &self,
        struct_type: &str,
        field: &Field,
        facts: MemberFacts,
        out: &mut Map,
    ) {
        match &field.shape {
            Shape::List(list) => {
                let is_list_of_kind = field.name == "items" && struct_type.ends_with("List");
                if !facts.unstated && !is_list_of_kind {
                    list_type(list, out);
                }
                if let Some(key) = &list.patch_merge_key {
                    out.insert(Str::new_static("x-kubernetes-patch-merge-key"), key.clone());
                }
                let strategy = match (list.patch_merge, field.retain_keys) {
                    (true, true) => "merge,retainKeys",
                    (true, false) => "merge",
                    (false, true) => "retainKeys",
                    (false, false) => return,
                };
                out.insert(Str::new_static("x-kubernetes-patch-strategy"), static_text(strategy));
            }
            shape => {
                if matches!(shape, Shape::Map(map) if map.atomic) {
                    out.insert(Str::new_static("x-kubernetes-map-type"), static_text("atomic"));
                } else if facts.granular {
                    out.insert(Str::new_static("x-kubernetes-map-type"), static_text("granular"));
                }
                if let Some(kind) = facts.list_type {
                    out.insert(Str::new_static("x-kubernetes-list-type"), static_text(kind));
                }
                let strategy = if field.retain_keys { Some("retainKeys") } else { facts.patch };
                if let Some(strategy) = strategy {
                    out.insert(
                        Str::new_static("x-kubernetes-patch-strategy"),
                        static_text(strategy),
                    );
                }
            }
        }
    }
}

fn list_type(list: &ListShape, out: &mut Map) {
    let kind = match &list.kind {
        ListKind::Atomic => "atomic",
        ListKind::Set => "set",
        ListKind::Map(keys) => {
            let keys: Vec<Value> = keys.iter().map(|key| Value::String(key.clone())).collect();
            out.insert(Str::new_static("x-kubernetes-list-map-keys"), keys);
            "map"
        }
    };
    out.insert(Str::new_static("x-kubernetes-list-type"), static_text(kind));
}

/// Returns the default as OpenAPI v3 shows it: that of the field, or the zero value of a Go value
/// that is always encoded.
fn default(field: &Field, facts: MemberFacts) -> Option<Value> {
    if facts.no_default {
        return None;
    }
    if let Some(text) = facts.default {
        return Some(json(text));
    }
    if let Some(value) = &field.default {
        return Some(Value::clone(value));
    }
    if field.presence != Presence::Always {
        return None;
    }
    match &field.shape {
        Shape::Bytes | Shape::Double | Shape::List(_) | Shape::Map(_) => None,
        Shape::Json | Shape::RawExtension | Shape::FieldsV1 => None,
        shape => Some(zero_of_item(shape).unwrap_or_else(|| Value::Object(Map::new()))),
    }
}

/// Returns the zero value of an item of a list or map, if its schema says it: that of a Go type
/// that has no schema of its own making.
fn zero_of_item(shape: &Shape) -> Option<Value> {
    match shape {
        Shape::String => Some(static_text("")),
        Shape::Bool => Some(false.into()),
        Shape::Int32 | Shape::Int64 => Some(0.into()),
        Shape::Struct(_) => Some(Value::Object(Map::new())),
        _ => None,
    }
}

/// Returns `{"group": .., "kind": .., "version": ..}`.
pub(super) fn kind_value(kind: &GroupVersionKind) -> Value {
    object([
        ("group", Value::String(kind.group.clone())),
        ("kind", Value::String(kind.kind.clone())),
        ("version", Value::String(kind.version.clone())),
    ])
}

/// Parses JSON of the tables, which is compiled in.
fn json(text: &str) -> Value {
    crate::json::parse(text.as_bytes()).expect("the tables hold JSON").value
}

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// Returns the full name of a named shape.
fn shape_name<'a>(shape: &Shape, types: &'a Types) -> &'a str {
    match shape {
        Shape::Struct(id) => &types.get(*id).name,
        Shape::Time => "io.k8s.apimachinery.pkg.apis.meta.v1.Time",
        Shape::MicroTime => "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime",
        Shape::FieldsV1 => "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
        Shape::Quantity => "io.k8s.apimachinery.pkg.api.resource.Quantity",
        Shape::IntOrString => "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        Shape::RawExtension => "io.k8s.apimachinery.pkg.runtime.RawExtension",
        Shape::SchemaOr(SchemaOr::Array, _) => {
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray"
        }
        Shape::SchemaOr(SchemaOr::Bool, _) => {
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool"
        }
        Shape::SchemaOr(SchemaOr::StringArray, _) => {
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray"
        }
        _ => "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
    }
}

/// Writes the schema of a named type that is not a struct. Unknown types accept any value.
fn named_shape(name: &str, dialect: Dialect, out: &mut Map) {
    let mut put = |name: &'static str, value: &'static str| {
        out.insert(Str::new_static(name), static_text(value));
    };
    match name.strip_prefix(META).or_else(|| name.rsplit('.').next()).unwrap_or(name) {
        "Time" | "MicroTime" => {
            put("format", "date-time");
            put("type", "string");
        }
        "FieldsV1" | "Patch" | "RawExtension" => put("type", "object"),
        "Quantity" if dialect == Dialect::V2 => put("type", "string"),
        "Quantity" => one_of(["string", "number"], out),
        "IntOrString" => {
            put("format", "int-or-string");
            match dialect {
                Dialect::V2 => put("type", "string"),
                Dialect::V3 => one_of(["integer", "string"], out),
            }
        }
        _ => {}
    }
}

fn one_of(types: [&'static str; 2], out: &mut Map) {
    let types: Vec<Value> =
        types.iter().map(|kind| object([("type", static_text(kind))])).collect();
    out.insert(Str::new_static("oneOf"), types);
}

/// Returns the names of all types that the given ones refer to, directly or not, including
/// themselves.
pub(super) fn reachable(types: &Types, roots: impl IntoIterator<Item = Str>) -> BTreeSet<Str> {
    let mut seen = BTreeSet::new();
    let mut todo: Vec<Str> = roots.into_iter().collect();
    while let Some(name) = todo.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        let Some(id) = types.find(&name) else { continue };
        for field in &types.get(id).fields {
            let mut shape = &field.shape;
            loop {
                match shape {
                    Shape::List(list) => shape = &list.item,
                    Shape::Map(map) => shape = &map.value,
                    Shape::String | Shape::Bool | Shape::Int32 | Shape::Int64 => break,
                    Shape::Double | Shape::Bytes | Shape::Duration => break,
                    _ => {
                        let next = shape_name(shape, types);
                        if !seen.contains(next) {
                            todo.push(Str::new(next));
                        }
                        break;
                    }
                }
            }
        }
    }
    seen
}
