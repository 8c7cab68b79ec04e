//! What discovery says of servers behind this one: of their aggregated documents, of their lists,
//! and of servers that are gone.

use super::scripted::{AGGREGATED, AGGREGATED_BETA, Page, Registered, Scripted};
use super::{DEFINITIONS, SERVICES, external_service};
use crate::http::{Client, POLL_TIMEOUT, Response, Server, without_controllers};
use serde_json::{Value, json};
use std::time::Instant;

const GROUP: &str = "behind.example";
const V1: Registered = Registered { group: GROUP, version: "v1", priorities: (100, 10) };
const V2: Registered = Registered { group: GROUP, version: "v2", priorities: (100, 20) };

/// A server that knows the service `behind`.
fn front() -> Server {
    let server = Server::start_plain(without_controllers());
    external_service(&server.client());
    server
}

fn apis(client: &Client, more: &str) -> Response {
    client.request("GET", "/apis", &format!("Accept: {AGGREGATED}\r\n{more}"), None)
}

/// Waits until aggregated discovery says something of a group, and returns all.
fn poll_group(client: &Client, group: &str, holds: impl Fn(&Value) -> bool) -> Response {
    let deadline = Instant::now() + POLL_TIMEOUT;
    loop {
        let answer = apis(client, "");
        let found = group_in(&answer.body, group);
        if holds(&found) {
            return answer;
        }
        assert!(Instant::now() < deadline, "{group} stays {found}");
        std::thread::yield_now();
    }
}

fn group_in(list: &Value, name: &str) -> Value {
    let mut items = list["items"].as_array().into_iter().flatten();
    items.find(|item| item["metadata"]["name"] == name).cloned().unwrap_or_default()
}

fn is_current(group: &Value) -> bool {
    let versions = group["versions"].as_array().cloned().unwrap_or_default();
    !versions.is_empty() && versions.iter().all(|version| version["freshness"] == "Current")
}

fn names<'a>(list: &'a Value, name: &[&str]) -> Vec<&'a str> {
    let items = list.as_array().into_iter().flatten();
    let name_of = |item: &'a Value| name.iter().fold(item, |at, part| &at[*part]).as_str();
    items.filter_map(name_of).collect()
}

fn things() -> Value {
    json!({"resource": "things", "scope": "Namespaced", "singularResource": "thing",
        "responseKind": {"group": GROUP, "version": "v1", "kind": "Thing"},
        "verbs": ["get", "list"], "categories": ["all"]})
}

/// An aggregated document of `v1`, and of `other.example/v1`.
fn document(version: &str, resources: &[Value]) -> Value {
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {}, "items": [
            {"metadata": {"name": GROUP},
             "versions": [{"version": "v1", "freshness": "Current", "resources": resources}]},
            {"metadata": {"name": "other.example"},
             "versions": [{"version": "v1", "freshness": "Current", "resources": []}]}]})
}

/// The old list of a version, which names another resource than the aggregated document.
fn old_list(version: &str) -> Page {
    Page::json(json!({"kind": "APIResourceList", "apiVersion": "v1",
        "groupVersion": format!("{GROUP}/{version}"), "resources": [
            {"name": "olds", "singularName": "old", "namespaced": true, "kind": "Old",
             "verbs": ["get"], "shortNames": ["o"]},
            {"name": "olds/status", "singularName": "", "namespaced": true, "kind": "Old",
             "verbs": ["get"]}]}))
}

fn other_list() -> Page {
    Page::json(json!({"kind": "APIResourceList", "groupVersion": "other.example/v1",
        "resources": []}))
}

fn definition(group: &str) -> Value {
    json!({"metadata": {"name": format!("customs.{group}")}, "spec": {
        "group": group, "scope": "Namespaced", "names": {"plural": "customs", "kind": "Custom"},
        "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object"}}}]}})
}

#[test]
fn the_document_of_a_server_is_merged_by_priority() {
    let tagged = |tag, resources: &[Value]| Page {
        media_type: AGGREGATED,
        tag: Some(tag),
        body: document("v2", resources),
    };
    let behind = Scripted::start(&[
        ("/apis", tagged("\"a\"", &[things()])),
        ("/apis/behind.example/v1", old_list("v1")),
        ("/apis/behind.example/v2", old_list("v2")),
        ("/apis/other.example/v1", other_list()),
    ]);
    let front = front();
    let client = front.client();
    assert_eq!(client.post(DEFINITIONS, &definition("custom.example")).status, 201);
    let other = Registered { group: "other.example", version: "v1", priorities: (2000, 10) };
    [V1, V2, other].iter().for_each(|of| behind.register(&client, *of));
    poll_group(&client, "other.example", is_current);
    poll_group(&client, "custom.example", is_current);
    let answer = poll_group(&client, GROUP, |group| {
        is_current(group) && group["versions"].as_array().is_some_and(|all| all.len() == 2)
    });
    // The server does not name v2: it is there, and has nothing.
    let versions = json!([{"version": "v2", "freshness": "Current"},
        {"version": "v1", "freshness": "Current", "resources": [things()]}]);
    assert_eq!(group_in(&answer.body, GROUP)["versions"], versions);
    let order = ["other.example", "custom.example", GROUP];
    let own = |all: Vec<&str>| -> Vec<String> {
        all.into_iter().filter(|name| name.ends_with(".example")).map(str::to_owned).collect()
    };
    assert_eq!(own(names(&answer.body["items"], &["metadata", "name"])), order);
    let plain = client.get("/apis").body;
    assert_eq!(own(names(&plain["groups"], &["name"])), order);
    let group = client.get("/apis/behind.example").body;
    assert_eq!(group["preferredVersion"]["version"], "v2");
    let tag = answer.header("etag").expect("an ETag").to_owned();
    let is_known = |tag: &str| apis(&client, &format!("If-None-Match: {tag}\r\n")).status == 304;
    assert!(is_known(&tag));
    // The server says something new.
    let mut new = things();
    new["resource"] = "others".into();
    behind.set("/apis", tagged("\"b\"", &[things(), new]));
    poll_group(&client, GROUP, |group| {
        names(&group["versions"][1]["resources"], &["resource"]) == ["things", "others"]
    });
    assert!(!is_known(&tag));
    let asked = behind.asked("/apis");
    let both = format!("{AGGREGATED},{AGGREGATED_BETA}");
    assert!(asked.iter().all(|asked| asked.accept == both), "{asked:?}");
    assert_eq!(asked[0].known, "");
    assert!(asked[1..].iter().all(|asked| !asked.known.is_empty()), "{asked:?}");
    // All its versions come of one request, and each document is sent once.
    assert_eq!(asked.iter().filter(|asked| asked.status == 200).count(), 2, "{asked:?}");
    front.stop();
}

#[test]
fn a_server_may_know_the_beta_form_only() {
    let body = document("v2beta1", &[things()]);
    let behind = Scripted::start(&[
        ("/apis", Page { media_type: AGGREGATED_BETA, tag: None, body }),
        ("/apis/behind.example/v1", old_list("v1")),
    ]);
    let front = front();
    let client = front.client();
    behind.register(&client, V1);
    let answer = poll_group(&client, GROUP, is_current);
    let resources = &group_in(&answer.body, GROUP)["versions"][0]["resources"];
    assert_eq!(*resources, json!([things()]));
    front.stop();
}

#[test]
fn a_server_may_know_lists_only() {
    let groups = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []});
    let behind = Scripted::start(&[
        ("/apis", Page::json(groups)),
        ("/apis/behind.example/v1", old_list("v1")),
    ]);
    let front = front();
    let client = front.client();
    behind.register(&client, V1);
    let answer = poll_group(&client, GROUP, is_current);
    let kind = json!({"group": "", "version": "", "kind": "Old"});
    let resources = json!([{"resource": "olds", "responseKind": kind, "scope": "Namespaced",
        "singularResource": "old", "verbs": ["get"], "shortNames": ["o"], "subresources": [
            {"subresource": "status", "responseKind": kind, "verbs": ["get"]}]}]);
    assert_eq!(group_in(&answer.body, GROUP)["versions"][0]["resources"], resources);
    front.stop();
}

#[test]
fn a_server_that_is_gone_is_stale_and_one_that_is_withdrawn_is_not_there() {
    let body = document("v2", &[things()]);
    let pages = [
        ("/apis", Page { media_type: AGGREGATED, tag: Some("\"a\""), body }),
        ("/apis/behind.example/v1", old_list("v1")),
    ];
    let behind = Scripted::start(&pages);
    let front = front();
    let client = front.client();
    behind.register(&client, V1);
    poll_group(&client, GROUP, is_current);
    drop(behind);
    let stale = json!([{"version": "v1", "freshness": "Stale"}]);
    poll_group(&client, GROUP, |group| group["versions"] == stale);
    let path = format!("{SERVICES}/v1.behind.example");
    client.poll(&path, |answer| answer.body["status"]["conditions"][0]["status"] == "False");
    assert_eq!(client.delete(&path).status, 200);
    poll_group(&client, GROUP, Value::is_null);
    front.stop();
}

#[test]
fn this_server_and_another_may_serve_versions_of_one_group() {
    let list = json!({"kind": "APIResourceList", "groupVersion": "shared.example/v2",
        "resources": [{"name": "fars", "kind": "Far", "namespaced": true, "verbs": ["get"]}]});
    let behind = Scripted::start(&[("/apis/shared.example/v2", Page::json(list))]);
    let front = front();
    let client = front.client();
    assert_eq!(client.post(DEFINITIONS, &definition("shared.example")).status, 201);
    // The version of the definition has the priority 100.
    for (version, priority, order) in [("v2", 200, ["v2", "v1"]), ("v3", 50, ["v2", "v1"])] {
        let priorities = (100, priority);
        behind.register(&client, Registered { group: "shared.example", version, priorities });
        let answer = poll_group(&client, "shared.example", |group| {
            group["versions"]
                .as_array()
                .is_some_and(|all| all.iter().any(|one| one["version"] == version) && all.len() > 1)
        });
        let group = group_in(&answer.body, "shared.example");
        assert_eq!(names(&group["versions"], &["version"])[..2], order);
    }
    let answer = poll_group(&client, "shared.example", |group| {
        group["versions"][0]["freshness"] == "Current"
    });
    let group = group_in(&answer.body, "shared.example");
    assert_eq!(names(&group["versions"], &["version"]), ["v2", "v1", "v3"]);
    let resource = |version: usize| group["versions"][version]["resources"][0]["resource"].clone();
    assert_eq!((resource(0), resource(1)), (json!("fars"), json!("customs")));
    assert_eq!(group["versions"][2], json!({"version": "v3", "freshness": "Stale"}));
    let listed = client.get("/apis/shared.example").body;
    assert_eq!(names(&listed["versions"], &["version"]), ["v2", "v1", "v3"]);
    let customs = "/apis/shared.example/v1/namespaces/default/customs";
    client.poll(customs, |answer| answer.status == 200);
    assert_eq!(client.get("/apis/shared.example/v2").body["resources"][0]["name"], "fars");
    front.stop();
}
