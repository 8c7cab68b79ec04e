//! Conversion of CustomResourceDefinitions to and from v1beta1, in which kube-apiserver stores them
//! because it is shorter (issue 82292). There, fields that all versions share are top-level fields.

use keelson_meta::{Map, Object, Str, Value, value};

/// Fields of a version in v1, and the top-level field of v1beta1 for a value that all versions
/// share.
const SHARED: [(&str, &str); 4] = [
    ("schema", "validation"),
    ("subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
];

/// Fields of the spec in the order of the Go struct.
const SPEC: [&str; 11] = [
    "group",
    "version",
    "names",
    "scope",
    "validation",
    "subresources",
    "versions",
    "additionalPrinterColumns",
    "selectableFields",
    "conversion",
    "preserveUnknownFields",
];

/// Converts v1 to v1beta1.
pub(super) fn to_v1beta1(obj: &mut Object) {
    let spec = obj.object_mut("spec");
    let mut versions = take_maps(spec, "versions");
    if let Some(name) = versions.first().and_then(|version| version.get("name")).cloned() {
        spec.insert("version", name);
        let mut schema_is_shared = false;
        for (in_version, in_spec) in SHARED {
            let first = versions[0].get(in_version).cloned();
            let is_shared =
                versions.iter().all(|version| version.get(in_version) == first.as_ref());
            schema_is_shared |= in_version == "schema" && is_shared;
            if !is_shared || (in_version == "selectableFields" && !schema_is_shared) {
                continue;
            }
            for version in &mut versions {
                version.remove(in_version);
            }
            if let Some(first) = first {
                spec.insert(in_spec, first);
            }
        }
    }
    put_maps(spec, "versions", versions);
    if let Some(Value::Object(conversion)) = spec.get_mut("conversion")
        && let Some(Value::Object(mut webhook)) = conversion.remove("webhook")
    {
        for (from, to) in [
            ("clientConfig", "webhookClientConfig"),
            ("conversionReviewVersions", "conversionReviewVersions"),
        ] {
            if let Some(member) = webhook.remove(from) {
                conversion.insert(to, member);
            }
        }
    }
    // A pointer in v1beta1, a value in v1.
    spec.entry_or("preserveUnknownFields", || Value::Bool(false));
    let place = |name: &Str| SPEC.iter().position(|known| name == known);
    let mut members: Vec<(Str, Value)> = std::mem::take(spec).into_iter().collect();
    members.sort_by_key(|(name, _)| place(name));
    *spec = members.into_iter().collect();
}

/// Converts v1beta1, with its defaults, to v1.
pub(super) fn to_v1(obj: &mut Object) {
    let spec = obj.object_mut("spec");
    default_names(spec);
    let mut versions = take_maps(spec, "versions");
    if let Some(Value::String(name)) = spec.remove("version")
        && versions.is_empty()
    {
        let only = value!({"name": (name), "served": true, "storage": true});
        versions.extend(only.as_object().cloned());
    }
    for (in_version, in_spec) in SHARED {
        if let Some(shared) = spec.remove(in_spec) {
            for version in &mut versions {
                version.insert(in_version, shared.clone());
            }
        }
    }
    put_maps(spec, "versions", versions);
    spec.entry_or("scope", || "Namespaced".into());
    spec.entry_or("preserveUnknownFields", || Value::Bool(true));
    let conversion = spec.object_at("conversion");
    conversion.entry_or("strategy", || "None".into());
    if conversion.get("strategy").and_then(Value::as_str) == Some("Webhook") {
        conversion.entry_or("conversionReviewVersions", || value!(["v1beta1"]));
    }
    let mut webhook = Map::new();
    if let Some(config) = conversion.remove("webhookClientConfig") {
        webhook.insert("clientConfig", config);
    }
    if let Some(versions) = conversion.remove("conversionReviewVersions") {
        webhook.insert("conversionReviewVersions", versions);
    }
    if !webhook.is_empty() {
        conversion.insert("webhook", webhook);
    }
}

fn default_names(spec: &mut Map) {
    let names = spec.object_at("names");
    let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    if !kind.is_empty() {
        names.entry_or("singular", || kind.to_lowercase().into());
        names.entry_or("listKind", || format!("{kind}List").into());
    }
}

/// Removes a list of maps.
fn take_maps(from: &mut Map, name: &str) -> Vec<Map> {
    let Some(Value::Array(items)) = from.remove(name) else { return vec![] };
    let maps = items.into_iter().filter_map(|item| match item {
        Value::Object(map) => Some(map),
        _ => None,
    });
    maps.collect()
}

fn put_maps(to: &mut Map, name: &str, maps: Vec<Map>) {
    if !maps.is_empty() {
        to.insert(name, maps.into_iter().map(Value::Object).collect::<Vec<_>>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the conversion of a definition in both directions.
    fn check(v1: Value, v1beta1: Value) {
        let mut obj = Object::from_value(v1.clone()).expect("a map");
        to_v1beta1(&mut obj);
        assert_eq!(obj.clone().into_value(), v1beta1);
        let order = obj.get("spec").and_then(Value::as_object).expect("a spec");
        let places = order.iter().map(|(name, _)| SPEC.iter().position(|known| name == known));
        assert!(places.is_sorted(), "{order:?}");
        to_v1(&mut obj);
        let mut v1 = v1;
        v1.as_object_mut().expect("a map").object_at("spec").insert("preserveUnknownFields", false);
        assert_eq!(obj.into_value(), v1);
    }

    #[test]
    fn shared_fields_are_stored_once() {
        let names = value!({"kind": "A", "plural": "as", "singular": "a", "listKind": "AList"});
        let schema = value!({"openAPIV3Schema": {"type": "object"}});
        let subresources = value!({"status": {}});
        let version = |name: &str| {
            value!({"name": name, "served": true, "storage": (name == "v1"),
                "schema": (schema.clone()), "subresources": (subresources.clone())})
        };
        let webhook = value!({"clientConfig": {"url": "u"}, "conversionReviewVersions": ["v1"]});
        check(
            value!({"spec": {"group": "g", "names": (names.clone()), "scope": "Cluster",
                "conversion": {"strategy": "Webhook", "webhook": (webhook)},
                "versions": [(version("v1")), (version("v2"))]}}),
            value!({"spec": {"group": "g", "version": "v1", "names": (names), "scope": "Cluster",
                "validation": (schema), "subresources": (subresources),
                "versions": [{"name": "v1", "served": true, "storage": true},
                    {"name": "v2", "served": true, "storage": false}],
                "conversion": {"strategy": "Webhook", "webhookClientConfig": {"url": "u"},
                    "conversionReviewVersions": ["v1"]},
                "preserveUnknownFields": false}}),
        );
    }

    #[test]
    fn different_fields_stay_in_their_versions() {
        let names = value!({"kind": "A", "plural": "as", "singular": "a", "listKind": "AList"});
        let versions = value!([
            {"name": "v1", "schema": {"openAPIV3Schema": {"type": "object"}},
                "selectableFields": [{"jsonPath": ".a"}]},
            {"name": "v2", "schema": {"openAPIV3Schema": {"description": "d"}},
                "selectableFields": [{"jsonPath": ".a"}]}
        ]);
        let conversion = value!({"strategy": "None"});
        check(
            value!({"spec": {"names": (names.clone()), "scope": "Cluster",
                "conversion": (conversion.clone()), "versions": (versions.clone())}}),
            value!({"spec": {"version": "v1", "names": (names), "scope": "Cluster",
                "conversion": (conversion), "versions": (versions),
                "preserveUnknownFields": false}}),
        );
    }
}
