//! CustomResourceDefinitions (apiextensions `registry/customresourcedefinition`).

mod defaults;
mod error_order;
mod field_path;
mod internal_types;
mod lists;
mod members;
mod open_api;
mod rules;
mod schema;
mod selectable;
mod structural;
mod validate;

pub use defaults::validate as validate_defaults;
pub use error_order::{rule_errors_index, schema_errors_index};
pub use open_api::invalid_schema_fields;
pub use schema::is_structural;
pub use validate::set_approval;

use crate::check::{child, children, default, default_empty};
use crate::strategy::Strategy;
use keelson_meta::{Map, Object, Str, Value, value};
use keelson_schema::structural::is_format;
use std::collections::BTreeSet;

/// The finalizer that keeps a definition until its custom resources are deleted.
pub const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// CustomResourceDefinitions.
pub(super) const fn definition(base: Strategy) -> Strategy {
    Strategy {
        default: fill,
        prepare_create,
        prepare_update,
        terminate: Some(terminate),
        validate: validate::definition,
        validate_status: validate::status,
        warnings,
        ..base
    }
}

fn fill(definition: &mut Object) {
    let storage = storage_version(definition);
    let stored = definition.array_at(&["status", "storedVersions"]);
    if stored.is_empty() && !storage.is_empty() {
        definition.object_mut("status").insert("storedVersions", vec![Value::String(storage)]);
    }
    let Some(spec) = child(&mut definition.root, "spec") else { return };
    if let Some(names) = child(spec, "names") {
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        default_empty(names, "singular", kind.to_lowercase());
        if !kind.is_empty() {
            default_empty(names, "listKind", format!("{kind}List"));
        }
    }
    if spec.get("conversion").is_none() {
        spec.insert("conversion", value!({"strategy": "None"}));
    }
    let webhook = child(spec, "conversion").and_then(|conversion| child(conversion, "webhook"));
    let service = webhook.and_then(|webhook| child(webhook, "clientConfig"));
    if let Some(service) = service.and_then(|config| child(config, "service")) {
        default(service, "port", 443);
    }
    for version in children(spec, "versions") {
        default(version, "served", false);
        default(version, "storage", false);
    }
}

/// Warns of unknown formats in the schemas of a definition that the old one did not have.
fn warnings(new: &Object, old: Option<&Object>) -> Vec<Str> {
    let of = |definition: &Object| {
        let mut unknown = BTreeSet::new();
        for (_, schema, _) in schemas(definition) {
            collect_unknown_formats(schema, &mut unknown);
        }
        unknown
    };
    let mut unknown = of(new);
    let old = old.map(of).unwrap_or_default();
    unknown.retain(|format| !old.contains(format));
    unknown.iter().map(|format| Str::from(format!("unrecognized format {format:?}"))).collect()
}

fn collect_unknown_formats(schema: &Map, unknown: &mut BTreeSet<Str>) {
    let kind = schema.get("type").and_then(Value::as_str).unwrap_or_default();
    if let Some(Value::String(format)) = schema.get("format")
        && !format.is_empty()
        && !is_known_format(kind, format)
    {
        unknown.insert(format.clone());
    }
    let inner = schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(Map::iter)
        .map(|(_, value)| value);
    let lists = ["allOf", "anyOf", "oneOf"].iter().filter_map(|name| schema.get(name)?.as_array());
    let others =
        ["items", "additionalProperties", "not"].iter().filter_map(|name| schema.get(name));
    for inner in inner.chain(lists.flatten()).chain(others).filter_map(Value::as_object) {
        collect_unknown_formats(inner, unknown);
    }
}

/// Returns whether a format is known for a type; without a type, for strings.
pub fn is_known_format(kind: &str, format: &str) -> bool {
    match kind {
        "string" | "" => is_format(format),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    }
}

/// Returns the storage version.
pub fn storage_version(definition: &Object) -> Str {
    let versions = definition.array_at(&["spec", "versions"]);
    let storage = versions.iter().find(|version| version.get("storage") == Some(&true.into()));
    let name = storage.and_then(|version| version.get("name"));
    name.and_then(Value::as_str).map(Str::new).unwrap_or_default()
}

/// Returns the name of the first version that says it is the storage version, which may be empty;
/// `None` if there is no such version.
fn named_storage_version(definition: &Object) -> Option<Value> {
    let mut versions = definition.array_at(&["spec", "versions"]).iter();
    let storage = versions.find(|version| version.get("storage") == Some(&true.into()))?;
    Some(storage.get("name").cloned().unwrap_or("".into()))
}

fn prepare_create(definition: &mut Object) {
    let stored = Vec::from_iter(named_storage_version(definition));
    definition.root.insert(
        "status",
        value!({
            "conditions": null, "acceptedNames": {"plural": "", "kind": ""},
            "storedVersions": (stored)
        }),
    );
}

fn prepare_update(new: &mut Object, old: &Object) {
    // Any former storage version may still be that of a stored object.
    let now = named_storage_version(new);
    let mut status = old.get("status").and_then(Value::as_object).cloned().unwrap_or_default();
    let mut stored = match status.remove("storedVersions") {
        Some(Value::Array(stored)) => stored,
        _ => vec![],
    };
    stored.extend(now.filter(|now| !stored.contains(now)));
    status.insert("storedVersions", stored);
    new.root.insert("status", status);
}

/// Sets the condition `Terminating` until the custom resources are deleted.
fn terminate(definition: &mut Object, now: &str) {
    let has_it = definition.finalizers().any(|name| name == CLEANUP_FINALIZER);
    if !has_it {
        let mut finalizers = definition.array_at(&["metadata", "finalizers"]).to_vec();
        finalizers.push(Value::from(CLEANUP_FINALIZER));
        definition.metadata_mut().insert("finalizers", finalizers);
    }
    let why =
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    set_condition(definition, "Terminating", true, "InstanceDeletionPending", why, now);
}

/// Sets a condition of a definition. Returns whether it changed. `lastTransitionTime` changes only
/// with the status.
pub fn set_condition(
    definition: &mut Object,
    kind: &'static str,
    is_true: bool,
    reason: &str,
    message: &str,
    now: &str,
) -> bool {
    let status = definition.object_mut("status");
    let mut conditions = match status.remove("conditions") {
        Some(Value::Array(conditions)) => conditions,
        _ => vec![],
    };
    let word = if is_true { "True" } else { "False" };
    let mut wanted = Map::new();
    for (name, text) in [
        ("type", kind),
        ("status", word),
        ("lastTransitionTime", now),
        ("reason", reason),
        ("message", message),
    ] {
        wanted.insert(Str::new(name), text);
    }
    let is_kind = |known: &&mut Value| known.get("type").and_then(Value::as_str) == Some(kind);
    let is_changed = match conditions.iter_mut().find(is_kind) {
        None => {
            conditions.push(wanted.into());
            true
        }
        Some(known) => {
            if known.get("status").and_then(Value::as_str) == Some(word)
                && let Some(since) = known.get("lastTransitionTime")
            {
                wanted.insert("lastTransitionTime", since.clone());
            }
            let wanted = Value::Object(wanted);
            let is_changed = *known != wanted;
            *known = wanted;
            is_changed
        }
    };
    status.insert("conditions", conditions);
    is_changed
}

/// Returns whether a condition of a definition is true.
pub fn has_condition(definition: &Object, kind: &str) -> bool {
    definition.array_at(&["status", "conditions"]).iter().any(|condition| {
        let is = |name: &str, text: &str| condition.get(name).and_then(Value::as_str) == Some(text);
        is("type", kind) && is("status", "True")
    })
}

/// Returns the schemas of a definition, each with the index of its version and its path in error
/// messages. Upstream reports a schema that all versions share once, as a top-level field.
pub fn schemas(definition: &Object) -> Vec<(usize, &Map, String)> {
    let versions = definition.array_at(&["spec", "versions"]);
    let is_common = validate::is_common(versions, "schema");
    let schemas = versions.iter().enumerate().filter_map(|(i, version)| {
        let schema = version.at(&["schema", "openAPIV3Schema"])?.as_object()?;
        let field = match is_common {
            true => "spec.validation.openAPIV3Schema".to_owned(),
            false => format!("spec.versions[{i}].schema.openAPIV3Schema"),
        };
        Some((i, schema, field))
    });
    schemas.take(if is_common { 1 } else { usize::MAX }).collect()
}
