//! Creation to deletion of all built-in resources that are enabled by default.

use crate::http::{Client, Response, Server};
use crate::minimal::{collection, minimal, name, stored_resources};
use keelson::Keelson;
use keelson_schema::catalogue::Resource;
use serde_json::{Value, json};

/// Number of built-in resources with create and list that are enabled by default, so that a change
/// is noticed.
const RESOURCES: usize = 60;

/// Proves: R-WATCH-01.
#[test]
fn every_resource_passes_all_verbs() {
    let mut builder = Keelson::builder().in_memory();
    // Writes of controllers would interfere with those of the test, conditions of FlowSchemas among
    // them.
    let loops = ["namespace-controller", "serviceaccount-controller"];
    builder.controllers.selected = loops.map(str::to_owned).to_vec();
    builder.serving.limits.fairness = false;
    let server = Server::start_plain(builder);
    let client = server.client();
    let mut faults = vec![];
    let mut count = 0;
    for resource in stored_resources() {
        count += 1;
        if let Err(fault) = life(&client, resource) {
            faults.push(format!("{}/{}: {fault}", resource.kind.group, resource.name));
        }
    }
    println!("{count} resources, {} with faults", faults.len());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert_eq!(count, RESOURCES);
    server.stop();
}

/// Tests one object of the resource from creation to deletion.
fn life(client: &Client, resource: &Resource) -> Result<(), String> {
    let all = collection(resource);
    let one = format!("{all}/{}", name(&resource.name));
    let only = format!("fieldSelector=metadata.name%3D{}", name(&resource.name));

    let before = client.get(&all);
    let revision = before.body["metadata"]["resourceVersion"].as_str().unwrap_or("none");
    let obj = minimal(resource);
    let made = expect("create", client.post(&all, &obj), 201)?;
    let read = expect("get", client.get(&one), 200)?;
    if resource.name == "customresourcedefinitions" {
        // The server writes their status at once.
        same("what was created", &made["spec"], &read["spec"])?;
    } else {
        same("what was created", &made, &read)?;
    }

    let list = expect("list", client.get(&format!("{all}?{only}")), 200)?;
    same("items listed", &json!(1), &json!(list["items"].as_array().map_or(0, Vec::len)))?;
    same("kind of list", &json!(format!("{}List", resource.kind.kind)), &list["kind"])?;

    let query = format!("watch=true&resourceVersion={revision}&{only}");
    let events = client.watch(&format!("{all}?{query}"), 1)?;
    same("type of event", &json!("ADDED"), &events[0]["type"])?;
    same("uid watched", &made["metadata"]["uid"], &events[0]["object"]["metadata"]["uid"])?;

    patches(client, &one, &obj)?;

    let table = expect("table", client.table(&format!("{all}?{only}")), 200)?;
    let length = |member: &str| table[member].as_array().map_or(0, Vec::len);
    same("rows", &json!(1), &json!(length("rows")))?;
    if length("columnDefinitions") == 0 {
        return Err(format!("no columns: {table}"));
    }
    let cells = table["rows"][0]["cells"].as_array().map_or(0, Vec::len);
    // IPAddress rows have an age cell without a column, as upstream.
    let silent = usize::from(resource.name == "ipaddresses");
    same("cells", &json!(length("columnDefinitions") + silent), &json!(cells))?;

    end(client, &one)
}

/// Sets a label with each patch type.
fn patches(client: &Client, one: &str, obj: &Value) -> Result<(), String> {
    let label = |name: &str| json!({"metadata": {"labels": {name: "yes"}}});
    let members = json!([{"op": "add", "path": "/metadata/labels", "value": {"json": "yes"}}]);
    let mut applied = json!({"apiVersion": obj["apiVersion"], "kind": obj["kind"]});
    applied["metadata"] = json!({"name": obj["metadata"]["name"], "labels": {"apply": "yes"}});
    let rows = [
        ("json", "application/json-patch+json", members),
        ("merge", "application/merge-patch+json", label("merge")),
        ("strategic", "application/strategic-merge-patch+json", label("strategic")),
        ("apply", "application/apply-patch+yaml", applied),
    ];
    let path = format!("{one}?fieldManager=tester");
    for (name, kind, patch) in &rows {
        let answer = expect(name, client.call("PATCH", &path, kind, Some(patch)), 200)?;
        same(name, &json!("yes"), &answer["metadata"]["labels"][name])?;
    }
    let read = expect("get after patches", client.get(one), 200)?;
    for (name, ..) in rows {
        same(name, &json!("yes"), &read["metadata"]["labels"][name])?;
    }
    Ok(())
}

/// Deletes the object, and removes finalizers that a controller would remove.
fn end(client: &Client, one: &str) -> Result<(), String> {
    expect("delete", client.delete(one), 200)?;
    let read = client.get(one);
    if read.status == 200 && read.body["metadata"]["finalizers"].is_array() {
        let deleted = read.body["metadata"]["deletionTimestamp"].is_string();
        same("deleted", &json!(true), &json!(deleted))?;
        let free = json!({"metadata": {"finalizers": null}});
        let freed = client.call("PATCH", one, "application/merge-patch+json", Some(&free));
        // The server itself removes the finalizer of definitions.
        if freed.status != 404 || !one.contains("/customresourcedefinitions/") {
            expect("free", freed, 200)?;
        }
    }
    client.poll(one, |answer| answer.status == 404);
    Ok(())
}

fn expect(step: &str, answer: Response, status: u16) -> Result<Value, String> {
    if answer.status == status {
        Ok(answer.body)
    } else {
        Err(format!("{step}: {} {}", answer.status, answer.body))
    }
}

fn same(what: &str, expected: &Value, got: &Value) -> Result<(), String> {
    if expected == got { Ok(()) } else { Err(format!("{what}: {got} instead of {expected}")) }
}

/// The server keeps them as text until they are read.
#[test]
fn a_json_patch_can_test_managed_fields() {
    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    let server = Server::start_plain(Keelson::builder().in_memory().no_controllers());
    let client = server.client();
    let map = json!({"metadata": {"name": "a"}, "data": {"k": "1"}});
    assert_eq!(client.post(MAPS, &map).status, 201);
    let fields = "/metadata/managedFields/0/fieldsV1/f:data";
    let patch = json!([
        {"op": "test", "path": fields, "value": {".": {}, "f:k": {}}},
        {"op": "remove", "path": format!("{fields}/f:k")},
        {"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}},
    ]);
    let path = format!("{MAPS}/a?fieldManager=other");
    let answer = client.call("PATCH", &path, "application/json-patch+json", Some(&patch));
    assert_eq!(answer.status, 200, "{answer:?}");
    let owners = answer.body["metadata"]["managedFields"].as_array().expect("owners");
    let owned = |by_other: bool| {
        let owner = owners.iter().find(|owner| (owner["manager"] == "other") == by_other);
        owner.expect("two owners")["fieldsV1"].clone()
    };
    assert_eq!(owned(false), json!({"f:data": {}}));
    let labels = json!({".": {}, "f:seen": {}});
    assert_eq!(owned(true), json!({"f:metadata": {"f:labels": labels}}));
    server.stop();
}
