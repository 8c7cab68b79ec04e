//! Discovery compared with that of a kube-apiserver 1.36, with default versions and with all
//! versions. The aggregated documents are compared whole, the legacy ones are derived from them.

use crate::world::{Client, Options, Server};
use keelson_testkit::prerequisites::reference_data;
use serde_json::{Map, Value, json};

fn get(client: &Client, path: &str, accept: &str) -> Value {
    let answer = client.raw_response("GET", path, &format!("Accept: {accept}\r\n"), &[]);
    assert_eq!(answer.status, 200, "{path}");
    serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Adds the paths at which two documents differ.
fn differences(at: &str, got: &Value, want: &Value, out: &mut Vec<String>) {
    match (got, want) {
        (Value::Object(got), Value::Object(want)) => {
            let mut names: Vec<&String> = got.keys().chain(want.keys()).collect();
            names.sort();
            names.dedup();
            for name in names {
                let got = got.get(name);
                let want = want.get(name);
                let null = Value::Null;
                let at = format!("{at}.{name}");
                differences(&at, got.unwrap_or(&null), want.unwrap_or(&null), out);
            }
        }
        (Value::Array(got), Value::Array(want)) if got.len() == want.len() => {
            for (i, (got, want)) in got.iter().zip(want).enumerate() {
                differences(&format!("{at}[{i}]"), got, want, out);
            }
        }
        _ if got == want => {}
        _ => out.push(format!("{at}: got {got}, want {want}")),
    }
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// Returns the legacy entry of a resource or subresource of an aggregated document.
fn legacy_entry(name: String, namespaced: bool, from: &Value) -> Value {
    let mut entry = Map::new();
    entry.insert("name".to_owned(), name.into());
    entry.insert("singularName".to_owned(), text(from, "singularResource").into());
    entry.insert("namespaced".to_owned(), namespaced.into());
    for name in ["group", "version"] {
        let word = text(&from["responseKind"], name);
        if !word.is_empty() {
            entry.insert(name.to_owned(), word.into());
        }
    }
    entry.insert("kind".to_owned(), from["responseKind"]["kind"].clone());
    for name in ["verbs", "shortNames", "categories"] {
        if !from[name].is_null() {
            entry.insert(name.to_owned(), from[name].clone());
        }
    }
    Value::Object(entry)
}

/// Returns the legacy list of a version, derived from its aggregated document.
fn legacy_resources(group_version: &str, version: &Value) -> Value {
    let mut resources = vec![];
    for resource in version["resources"].as_array().into_iter().flatten() {
        let namespaced = text(resource, "scope") == "Namespaced";
        let name = text(resource, "resource");
        resources.push(legacy_entry(name.to_owned(), namespaced, resource));
        for sub in resource["subresources"].as_array().into_iter().flatten() {
            let name = format!("{name}/{}", text(sub, "subresource"));
            resources.push(legacy_entry(name, namespaced, sub));
        }
    }
    json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": resources})
}

/// Returns the legacy document of a group, derived from its aggregated one.
fn legacy_group(group: &Value) -> Value {
    let name = text(&group["metadata"], "name");
    let versions: Vec<Value> = group["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|version| {
            let version = text(version, "version");
            json!({"groupVersion": format!("{name}/{version}"), "version": version})
        })
        .collect();
    json!({"name": name, "preferredVersion": versions[0], "versions": versions})
}

/// Removes what only the legacy form has: storage version hashes, and the kind and version of the
/// document.
fn plain(mut document: Value) -> Value {
    for resource in document["resources"].as_array_mut().into_iter().flatten() {
        resource.as_object_mut().map(|entry| entry.remove("storageVersionHash"));
    }
    if let Some(map) = document.as_object_mut() {
        map.remove("apiVersion");
    }
    document
}

fn check_legacy(client: &Client, want: &Value, out: &mut Vec<String>) -> usize {
    let get = |path: &str| get(client, path, "application/json");
    let mut documents = 0;
    let core = want["api"]["items"][0]["versions"].as_array().into_iter().flatten();
    let mut versions: Vec<(String, Value)> = core
        .map(|version| {
            let name = text(version, "version");
            (format!("/api/{name}"), legacy_resources(name, version))
        })
        .collect();
    let mut groups = vec![];
    for group in want["apis"]["items"].as_array().into_iter().flatten() {
        let name = text(&group["metadata"], "name");
        let mut document = legacy_group(group);
        groups.push(document.clone());
        document["kind"] = "APIGroup".into();
        versions.push((format!("/apis/{name}"), document));
        for version in group["versions"].as_array().into_iter().flatten() {
            let group_version = format!("{name}/{}", text(version, "version"));
            let list = legacy_resources(&group_version, version);
            versions.push((format!("/apis/{group_version}"), list));
        }
    }
    versions.push(("/apis".to_owned(), json!({"kind": "APIGroupList", "groups": groups})));
    for (path, want) in versions {
        documents += 1;
        differences(&path, &plain(get(&path)), &want, out);
    }
    documents
}

fn check(name: &str, all: bool) {
    let Some(dir) = reference_data("reference") else { return };
    let body = std::fs::read(dir.join(name)).expect("the reference is readable");
    let want: Value = serde_json::from_slice(&body).expect("the reference is JSON");
    let mut options = Options::default();
    if all {
        options.runtime_config.push(("api/all".to_owned(), true));
    }
    let server = Server::start_plain(options);
    let client = server.client();
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let mut found = vec![];
    for root in ["api", "apis"] {
        let got = get(&client, &format!("/{root}"), accept);
        differences(&format!("/{root} (aggregated)"), &got, &want[root], &mut found);
    }
    let documents = check_legacy(&client, &want, &mut found) + 2;
    server.stop();
    println!("{name}: {documents} documents, {} differences", found.len());
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
}

/// Proves: R-DISC-01, R-DISC-03, R-DISC-08.
#[test]
fn default_discovery_matches_upstream() {
    check("discovery-aggregated-default.json", false);
}

#[test]
fn discovery_of_all_apis_matches_upstream() {
    check("discovery-aggregated-all.json", true);
}

/// The kind of a custom resource has its group and version, where that of a built-in one leaves
/// them out.
#[test]
fn custom_resources_say_group_and_version_of_their_kind() {
    let server = Server::start_plain(Options::default());
    let client = server.client();
    let version = json!({"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object"}}, "subresources": {"status": {}}});
    let definition = json!({"metadata": {"name": "ships.example.org"}, "spec": {"group": "example.org",
        "scope": "Namespaced", "versions": [version],
        "names": {"plural": "ships", "singular": "ship", "kind": "Ship"}}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(client.post(definitions, &definition).status, 201);
    client.poll("/apis/example.org/v1/ships", |answer| answer.status == 200);
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let document = get(&client, "/apis", accept);
    let mut groups = document["items"].as_array().into_iter().flatten();
    let group = groups.find(|group| group["metadata"]["name"] == "example.org").expect("the group");
    let ships = &group["versions"][0]["resources"][0];
    let kind = json!({"group": "example.org", "version": "v1", "kind": "Ship"});
    assert_eq!(ships["responseKind"], kind);
    assert_eq!(ships["subresources"][0]["responseKind"], kind);
    server.stop();
}

/// Groups of the same priority: `/apis` sorts them by their APIServices (`v1.later.test` before
/// `v1alpha1.early.test`), aggregated discovery by their names.
#[test]
fn groups_of_definitions_are_in_the_order_of_their_api_services() {
    let server = Server::start_plain(Options::default());
    let client = server.client();
    for (group, version) in [("early.test", "v1alpha1"), ("later.test", "v1")] {
        let definition = json!({"metadata": {"name": format!("ships.{group}")}, "spec": {
            "group": group, "scope": "Cluster", "names": {"plural": "ships", "kind": "Ship"},
            "versions": [{"name": version, "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        assert_eq!(client.post(definitions, &definition).status, 201);
        client.poll(&format!("/apis/{group}/{version}/ships"), |answer| answer.status == 200);
    }
    let names = |groups: &Value, name: &str| -> Vec<String> {
        let groups = groups.as_array().expect("groups").iter();
        let names = groups.map(|group| group.pointer(name).expect("a name"));
        let names = names.map(|name| name.as_str().expect("a text").to_owned());
        names.filter(|name| name.ends_with(".test")).collect()
    };
    let legacy = client.get("/apis");
    assert_eq!(names(&legacy.body["groups"], "/name"), ["later.test", "early.test"]);
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let aggregated = get(&client, "/apis", accept);
    assert_eq!(names(&aggregated["items"], "/metadata/name"), ["early.test", "later.test"]);
    server.stop();
}
