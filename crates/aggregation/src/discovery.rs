//! The resources of a server behind this one, in the form of aggregated discovery.

use keelson_meta::{Map, Value};

/// Converts an `APIResourceList` to the `resources` of a version in aggregated discovery.
pub(crate) fn aggregated(list: &Value, group: &str, version: &str) -> Value {
    let mut out: Vec<Map> = vec![];
    for resource in list.array_at(&["resources"]) {
        let name = resource.str_at(&["name"]).unwrap_or_default();
        let kind = response_kind(resource, group, version);
        match name.split_once('/') {
            None => out.push(resource_entry(resource, name, kind)),
            Some((of, sub)) => {
                let mut entry = Map::new();
                entry.insert("subresource", sub);
                entry.insert("responseKind", kind);
                entry.insert("verbs", verbs(resource));
                let is_parent =
                    |parent: &&mut Map| parent.get("resource").and_then(Value::as_str) == Some(of);
                if let Some(parent) = out.iter_mut().find(is_parent)
                    && let Value::Array(subs) =
                        parent.entry_or("subresources", || Value::Array(vec![]))
                {
                    subs.push(Value::Object(entry));
                }
            }
        }
    }
    Value::Array(out.into_iter().map(Value::Object).collect())
}

fn resource_entry(resource: &Value, name: &str, kind: Value) -> Map {
    let is_namespaced = resource.get("namespaced").and_then(Value::as_bool) == Some(true);
    let mut entry = Map::new();
    entry.insert("resource", name);
    entry.insert("responseKind", kind);
    entry.insert("scope", if is_namespaced { "Namespaced" } else { "Cluster" });
    entry.insert("singularResource", resource.str_at(&["singularName"]).unwrap_or_default());
    entry.insert("verbs", verbs(resource));
    for list in ["shortNames", "categories"] {
        if let Some(words) = resource.get(list).filter(|words| !words.is_null()) {
            entry.insert(list, words.clone());
        }
    }
    entry
}

fn verbs(resource: &Value) -> Value {
    resource.get("verbs").cloned().unwrap_or_else(|| Value::Array(vec![]))
}

fn response_kind(resource: &Value, group: &str, version: &str) -> Value {
    let mut kind = Map::new();
    let given = |name: &str| resource.str_at(&[name]).filter(|text| !text.is_empty());
    kind.insert("group", given("group").unwrap_or(group));
    kind.insert("version", given("version").unwrap_or(version));
    kind.insert("kind", given("kind").unwrap_or_default());
    Value::Object(kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    #[test]
    fn subresources_stand_with_their_resource() {
        let list = value!({"kind": "APIResourceList", "groupVersion": "g/v1", "resources": [
            {"name": "flunders", "singularName": "flunder", "namespaced": true, "kind": "Flunder",
             "verbs": ["get", "list"], "shortNames": ["fl"]},
            {"name": "flunders/status", "singularName": "", "namespaced": true, "kind": "Flunder",
             "verbs": ["get"]},
            {"name": "orphans/status", "kind": "X", "verbs": []}
        ]});
        let expected = value!([
            {"resource": "flunders", "responseKind": {"group": "g", "version": "v1", "kind": "Flunder"},
             "scope": "Namespaced", "singularResource": "flunder", "verbs": ["get", "list"],
             "shortNames": ["fl"], "subresources": [
                {"subresource": "status",
                 "responseKind": {"group": "g", "version": "v1", "kind": "Flunder"}, "verbs": ["get"]}
             ]}
        ]);
        assert_eq!(aggregated(&list, "g", "v1"), expected);
    }
}
