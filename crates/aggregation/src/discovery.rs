//! What the servers behind this one serve, in the form of aggregated discovery: read from a
//! server's own document ([`groups`]), or made of its list for one version ([`resources`]).

use crate::asker;
use keelson_meta::{Map, Str, Value};
use std::collections::HashMap;
use std::sync::Arc;

/// Group and version.
pub(crate) type GroupVersion = (Str, Str);
/// The `resources` of the versions in an aggregated document.
pub(crate) type Groups = HashMap<GroupVersion, Arc<Value>>;

/// The aggregated forms that a server may answer with, the wanted one first.
pub(crate) const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
     application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
const LIST: &str = "APIGroupDiscoveryList";
const GROUP: &str = "apidiscovery.k8s.io";
const VERSIONS: &[&str] = &["v2", "v2beta1"];

/// Whether a `Content-Type` is that of an aggregated document.
pub(crate) fn is_aggregated(media_type: &str) -> bool {
    let mut parts = media_type.split(';').map(str::trim);
    let base = parts.next().unwrap_or_default();
    let parameters: HashMap<String, &str> = parts
        .filter_map(|part| part.split_once('='))
        .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().trim_matches('"')))
        .collect();
    let is = |name: &str, values: &[&str]| {
        parameters.get(name).is_some_and(|value| values.contains(value))
    };
    base.eq_ignore_ascii_case("application/json")
        && is("g", &[GROUP])
        && is("v", VERSIONS)
        && is("as", &[LIST])
}

/// Reads an aggregated document; `None`: it is none.
pub(crate) fn groups(text: &[u8]) -> Option<Groups> {
    let list = asker::parse(text)?;
    let of_kind = list.str_at(&["kind"]) == Some(LIST);
    let api_version = list.str_at(&["apiVersion"])?.strip_prefix(GROUP)?.strip_prefix('/')?;
    if !of_kind || !VERSIONS.contains(&api_version) {
        return None;
    }
    let mut found = Groups::new();
    for group in list.array_at(&["items"]) {
        let name = Str::new(text_at(group, &["metadata", "name"]));
        for version in group.array_at(&["versions"]) {
            let resources = version.array_at(&["resources"]).iter().map(aggregated_resource);
            let resources = Arc::new(Value::Array(resources.collect()));
            found.insert((name.clone(), Str::new(text_at(version, &["version"]))), resources);
        }
    }
    Some(found)
}

/// Takes what the form has out of a resource of an aggregated document.
fn aggregated_resource(given: &Value) -> Value {
    let mut entry = Entry {
        resource: text_at(given, &["resource"]),
        kind: kind(given.get("responseKind")),
        scope: text_at(given, &["scope"]),
        singular: text_at(given, &["singularResource"]),
        given,
    }
    .members();
    let subresources = given.array_at(&["subresources"]).iter().map(|given| {
        let name = text_at(given, &["subresource"]);
        let mut sub = subresource(name, kind(given.get("responseKind")), given);
        let accepted = given.array_at(&["acceptedTypes"]).iter().map(|given| kind(Some(given)));
        let accepted: Vec<Value> = accepted.collect();
        if !accepted.is_empty() {
            sub.insert("acceptedTypes", accepted);
        }
        Value::Object(sub)
    });
    let subresources: Vec<Value> = subresources.collect();
    if !subresources.is_empty() {
        entry.insert("subresources", subresources);
    }
    Value::Object(entry)
}

/// Converts an `APIResourceList` to the `resources` of a version; `None`: it is none, or
/// contradicts itself.
pub(crate) fn resources(text: &[u8]) -> Option<Value> {
    let list = asker::parse(text)?;
    if list.str_at(&["kind"]) != Some("APIResourceList") {
        return None;
    }
    let mut made: Vec<Map> = vec![];
    let mut places: HashMap<&str, usize> = HashMap::new();
    for given in list.array_at(&["resources"]) {
        let name = text_at(given, &["name"]);
        if !name.contains('/') {
            let singular = text_at(given, &["singularName"]);
            let entry = Entry {
                resource: name,
                kind: kind(Some(given)),
                scope: scope(given),
                singular,
                given,
            };
            places.insert(name, made.len());
            made.push(entry.members());
        }
    }
    for given in list.array_at(&["resources"]) {
        let Some((parent, name)) = text_at(given, &["name"]).split_once('/') else { continue };
        // A subresource without a resource brings an entry that has nothing else.
        let place = *places.entry(parent).or_insert_with(|| {
            let kind = kind(None);
            let scope = scope(given);
            let alone = Entry { resource: parent, kind, scope, singular: "", given: &Value::Null };
            made.push(alone.members());
            made.len() - 1
        });
        let of = &mut made[place];
        if of.get("scope").and_then(Value::as_str) != Some(scope(given)) {
            return None;
        }
        let is_typed = !text_at(given, &["kind"]).is_empty();
        let sub = subresource(name, kind(is_typed.then_some(given)), given);
        if let Value::Array(all) = of.entry_or("subresources", || Value::Array(vec![])) {
            all.push(Value::Object(sub));
        }
    }
    Some(Value::Array(made.into_iter().map(Value::Object).collect()))
}

/// A resource, without its subresources.
struct Entry<'a> {
    resource: &'a str,
    kind: Value,
    scope: &'a str,
    singular: &'a str,
    /// What has its words.
    given: &'a Value,
}

impl Entry<'_> {
    fn members(self) -> Map {
        let mut entry = Map::new();
        entry.insert("resource", self.resource);
        entry.insert("responseKind", self.kind);
        entry.insert("scope", self.scope);
        entry.insert("singularResource", self.singular);
        entry.insert("verbs", verbs(self.given));
        for list in ["shortNames", "categories"] {
            let words = words(self.given.array_at(&[list]));
            if !words.is_empty() {
                entry.insert(list, words);
            }
        }
        entry
    }
}

fn subresource(name: &str, kind: Value, given: &Value) -> Map {
    let mut entry = Map::new();
    entry.insert("subresource", name);
    entry.insert("responseKind", kind);
    entry.insert("verbs", verbs(given));
    entry
}

/// Verbs that are not given are null, as in Go.
fn verbs(given: &Value) -> Value {
    match given.get("verbs") {
        Some(Value::Array(verbs)) => Value::Array(words(verbs)),
        _ => Value::Null,
    }
}

fn words(given: &[Value]) -> Vec<Value> {
    given.iter().filter(|word| word.as_str().is_some()).cloned().collect()
}

/// Takes group, version and kind out of an object; what is not given is empty.
fn kind(given: Option<&Value>) -> Value {
    let mut kind = Map::new();
    for name in ["group", "version", "kind"] {
        kind.insert(name, given.map_or("", |given| text_at(given, &[name])));
    }
    Value::Object(kind)
}

fn scope(given: &Value) -> &'static str {
    match given.get("namespaced").and_then(Value::as_bool) {
        Some(true) => "Namespaced",
        _ => "Cluster",
    }
}

fn text_at<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    value.str_at(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;
    use keelson_schema::json;

    fn text(value: &Value) -> Vec<u8> {
        let mut text = vec![];
        json::write_value(value, &mut text);
        text
    }

    #[test]
    fn a_list_of_one_version_becomes_its_resources() {
        let list = value!({"kind": "APIResourceList", "groupVersion": "g/v1", "resources": [
            {"name": "flunders/status", "singularName": "", "namespaced": true, "kind": "Flunder",
             "verbs": ["get"]},
            {"name": "flunders", "singularName": "flunder", "namespaced": true, "kind": "Flunder",
             "verbs": ["get", "list"], "shortNames": ["fl"], "categories": []},
            {"name": "orphans/scale", "group": "autoscaling", "version": "v1", "kind": "Scale",
             "verbs": ["get"]},
            {"name": "orphans/plain", "verbs": []}
        ]});
        let none = || value!({"group": "", "version": "", "kind": ""});
        let flunder = || value!({"group": "", "version": "", "kind": "Flunder"});
        let expected = value!([
            {"resource": "flunders", "responseKind": (flunder()), "scope": "Namespaced",
             "singularResource": "flunder", "verbs": ["get", "list"], "shortNames": ["fl"],
             "subresources": [
                {"subresource": "status", "responseKind": (flunder()), "verbs": ["get"]}]},
            {"resource": "orphans", "responseKind": (none()), "scope": "Cluster",
             "singularResource": "", "verbs": null, "subresources": [
                {"subresource": "scale", "verbs": ["get"],
                 "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"}},
                {"subresource": "plain", "responseKind": (none()), "verbs": []}]}
        ]);
        assert_eq!(resources(&text(&list)), Some(expected));
        let contradiction = value!({"kind": "APIResourceList", "resources": [
            {"name": "a", "namespaced": true}, {"name": "a/b", "namespaced": false}]});
        assert_eq!(resources(&text(&contradiction)), None);
        for other in ["<html>", "{}", r#"{"kind":"APIGroupList"}"#] {
            assert_eq!(resources(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn a_document_of_a_server_is_read_by_group_and_version() {
        let resource = |more: Value| {
            let mut resource = value!({"resource": "flunders", "scope": "Namespaced",
                "singularResource": "flunder", "verbs": ["get"]});
            if let (Some(all), Value::Object(more)) = (resource.as_object_mut(), more) {
                for (name, value) in more.iter() {
                    all.insert(name.clone(), value.clone());
                }
            }
            resource
        };
        let kind = || value!({"group": "g", "version": "v1", "kind": "Flunder"});
        for version in VERSIONS {
            let document = value!({"kind": "APIGroupDiscoveryList",
                "apiVersion": (format!("apidiscovery.k8s.io/{version}")), "items": [
                {"metadata": {"name": "g"}, "versions": [
                    {"version": "v1", "freshness": "Stale", "resources": [
                        (resource(value!({"responseKind": (kind()), "strange": 1}))),
                        (resource(value!({"subresources": [{"subresource": "s", "verbs": []}]})))]},
                    {"version": "v2"}]}]});
            let found = groups(&text(&document)).expect("an aggregated document");
            let of = |version: &str| &*found[&(Str::new("g"), Str::new(version))];
            let [Value::Object(first), second] = of("v1").as_array().expect("a list") else {
                panic!("two resources")
            };
            assert_eq!(first.get("responseKind"), Some(&kind()));
            assert_eq!(first.get("strange"), None);
            let none = value!({"group": "", "version": "", "kind": ""});
            assert_eq!(second.get("responseKind"), Some(&none), "never left out");
            let sub = &second.array_at(&["subresources"])[0];
            assert_eq!(sub.get("responseKind"), Some(&none));
            assert_eq!(*of("v2"), Value::Array(vec![]));
        }
        for other in ["<html>", "{}", r#"{"kind":"APIGroupList","apiVersion":"v1"}"#] {
            assert!(groups(other.as_bytes()).is_none(), "{other}");
        }
    }

    #[test]
    fn the_media_type_tells_an_aggregated_document() {
        let good = [
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            "application/json; as=\"APIGroupDiscoveryList\"; v=v2beta1; g=apidiscovery.k8s.io",
        ];
        let bad = [
            "application/json",
            "application/json;g=apidiscovery.k8s.io;v=v3;as=APIGroupDiscoveryList",
            "application/yaml;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            "",
        ];
        good.iter().for_each(|media_type| assert!(is_aggregated(media_type), "{media_type}"));
        bad.iter().for_each(|media_type| assert!(!is_aggregated(media_type), "{media_type}"));
    }
}
