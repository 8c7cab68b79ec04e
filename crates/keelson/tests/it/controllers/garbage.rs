//! Garbage collection: all propagation policies, and all ways in which an owner may be absent.

use super::{
    MAPS, MERGE, create, delete, dependent, owned_by, settle, wait_deleted, wait_until,
    with_controllers, with_controllers_and,
};
use crate::http::{Client, Response};
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

fn path(name: &str) -> String {
    format!("{MAPS}/{name}")
}

fn owner(client: &Client, name: &str) -> String {
    create(client, MAPS, &dependent(name, &[]))
}

fn owners_of(client: &Client, name: &str) -> Vec<Value> {
    let owners = &client.get(&path(name)).body["metadata"]["ownerReferences"];
    owners.as_array().into_iter().flatten().map(|owner| owner["name"].clone()).collect()
}

fn serve_widgets(client: &Client) {
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    create(client, DEFINITIONS, &definition);
    client.poll(WIDGETS, |answer| answer.status == 200);
}

fn widget(name: &str, owners: &[Value]) -> Value {
    let mut widget = dependent(name, owners);
    widget["apiVersion"] = "example.com/v1".into();
    widget["kind"] = "Widget".into();
    widget
}

fn owned_by_widget(name: &str, uid: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "name": name, "uid": uid})
}

#[test]
fn dependents_are_deleted_after_their_owner_also_custom_resources() {
    let server = with_controllers();
    let client = server.client();
    serve_widgets(&client);
    let uid = owner(&client, "top");
    let uid = create(&client, WIDGETS, &widget("middle", &[owned_by("top", &uid, false)]));
    create(&client, MAPS, &dependent("bottom", &[owned_by_widget("middle", &uid)]));
    settle(&client);
    assert_eq!(client.get(&path("bottom")).status, 200, "as long as its owner is there");
    delete(&client, &path("top"), "Background");
    assert_eq!(client.get(&path("top")).status, 404, "in the background the owner goes first");
    wait_deleted(&client, &format!("{WIDGETS}/middle"));
    wait_deleted(&client, &path("bottom"));
    server.stop();
}

#[test]
fn an_owner_in_foreground_deletion_waits_for_dependents_that_block_it() {
    let server = with_controllers();
    let client = server.client();
    let uid = owner(&client, "owner");
    for (name, blocks) in [("blocks", true), ("follows", false)] {
        let mut object = dependent(name, &[owned_by("owner", &uid, blocks)]);
        object["metadata"]["finalizers"] = json!(["example.com/hold"]);
        create(&client, MAPS, &object);
    }
    delete(&client, &path("owner"), "Foreground");
    for name in ["blocks", "follows"] {
        client.poll(&path(name), |got| !got.body["metadata"]["deletionTimestamp"].is_null());
    }
    settle(&client);
    let waiting = client.get(&path("owner")).body;
    assert_eq!(waiting["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    let release = json!({"metadata": {"finalizers": null}});
    assert_eq!(client.call("PATCH", &path("blocks"), MERGE, Some(&release)).status, 200);
    wait_deleted(&client, &path("owner"));
    assert_eq!(client.get(&path("follows")).status, 200, "it is not waited for");
    server.stop();
}

#[test]
fn an_owner_is_deleted_when_its_dependent_no_longer_blocks() {
    let server = with_controllers();
    let client = server.client();
    let uid = owner(&client, "owner");
    let other = owner(&client, "other");
    let owners = [owned_by("owner", &uid, true), owned_by("other", &other, true)];
    create(&client, MAPS, &dependent("shared", &owners));
    delete(&client, &path("owner"), "Foreground");
    wait_deleted(&client, &path("owner"));
    assert_eq!(owners_of(&client, "shared"), ["other"], "its other owner keeps it");
    server.stop();
}

#[test]
fn cycles_of_blocking_owners_in_foreground_deletion_are_deleted() {
    let server = with_controllers();
    let client = server.client();
    let first = owner(&client, "first");
    let second = create(&client, MAPS, &dependent("second", &[owned_by("first", &first, true)]));
    let patch = json!({"metadata": {"ownerReferences": [owned_by("second", &second, true)]}});
    assert_eq!(client.call("PATCH", &path("first"), MERGE, Some(&patch)).status, 200);
    delete(&client, &path("first"), "Foreground");
    wait_deleted(&client, &path("first"));
    wait_deleted(&client, &path("second"));
    server.stop();
}

/// Both wait for their dependents when they get references to each other, so neither is processed
/// as a dependent first.
#[test]
fn cycles_that_form_during_foreground_deletion_are_deleted() {
    let server = with_controllers();
    let client = server.client();
    let uids = ["first", "second"].map(|name| {
        let uid = owner(&client, name);
        let mut holder = dependent(&format!("holder-of-{name}"), &[owned_by(name, &uid, true)]);
        holder["metadata"]["finalizers"] = json!(["example.com/held"]);
        create(&client, MAPS, &holder);
        delete(&client, &path(name), "Foreground");
        uid
    });
    for (name, other, uid) in [("first", "second", &uids[1]), ("second", "first", &uids[0])] {
        let patch = json!({"metadata": {"ownerReferences": [owned_by(other, uid, true)]}});
        assert_eq!(client.call("PATCH", &path(name), MERGE, Some(&patch)).status, 200);
    }
    let patch = json!({"metadata": {"finalizers": null}});
    for name in ["first", "second"] {
        let holder = path(&format!("holder-of-{name}"));
        assert_eq!(client.call("PATCH", &holder, MERGE, Some(&patch)).status, 200);
    }
    wait_deleted(&client, &path("first"));
    wait_deleted(&client, &path("second"));
    server.stop();
}

#[test]
fn orphans_lose_their_owner_reference_and_stay() {
    let server = with_controllers();
    let client = server.client();
    let uid = owner(&client, "owner");
    let other = owner(&client, "other");
    create(&client, MAPS, &dependent("one", &[owned_by("owner", &uid, true)]));
    let owners = [owned_by("other", &other, false), owned_by("owner", &uid, false)];
    create(&client, MAPS, &dependent("two", &owners));
    delete(&client, &path("owner"), "Orphan");
    wait_deleted(&client, &path("owner"));
    assert_eq!(owners_of(&client, "one"), [""; 0]);
    assert_eq!(owners_of(&client, "two"), ["other"]);
    settle(&client);
    assert_eq!(client.get(&path("one")).status, 200);
    server.stop();
}

#[test]
fn dependents_of_an_absent_owner_are_deleted() {
    let server = with_controllers();
    let client = server.client();
    let uid = owner(&client, "owner");
    let absent = "00000000-0000-0000-0000-000000000001";
    // An unknown uid, the uid of another object, and an unknown name.
    create(&client, MAPS, &dependent("absent", &[owned_by("nobody", absent, true)]));
    create(&client, MAPS, &dependent("wrong-uid", &[owned_by("owner", absent, true)]));
    create(&client, MAPS, &dependent("wrong-name", &[owned_by("nobody", &uid, true)]));
    let owners = [owned_by("owner", &uid, true), owned_by("nobody", absent, true)];
    create(&client, MAPS, &dependent("kept", &owners));
    for name in ["absent", "wrong-uid", "wrong-name"] {
        wait_deleted(&client, &path(name));
    }
    wait_until("the absent owner is taken off", || owners_of(&client, "kept") == ["owner"]);
    // A new object with the name of the owner has another uid.
    create(&client, MAPS, &dependent("held", &[owned_by("owner", &uid, false)]));
    settle(&client);
    delete(&client, &path("owner"), "Background");
    owner(&client, "owner");
    wait_deleted(&client, &path("held"));
    wait_deleted(&client, &path("kept"));
    server.stop();
}

#[test]
fn dependents_of_a_kind_that_is_not_served_wait_until_it_is() {
    let server = with_controllers();
    let client = server.client();
    let absent = "00000000-0000-0000-0000-000000000001";
    create(&client, MAPS, &dependent("waits", &[owned_by_widget("w", absent)]));
    settle(&client);
    assert_eq!(client.get(&path("waits")).status, 200);
    serve_widgets(&client);
    wait_deleted(&client, &path("waits"));
    server.stop();
}

#[test]
fn owners_in_other_namespaces_are_reported_and_ignored() {
    let server = with_controllers();
    let client = server.client();
    let uid = owner(&client, "owner");
    create(&client, "/api/v1/namespaces", &json!({"metadata": {"name": "other"}}));
    let other = "/api/v1/namespaces/other/configmaps";
    create(&client, other, &dependent("dep", &[owned_by("owner", &uid, false)]));
    create(&client, ROLES, &dependent("cluster-dep", &[owned_by("owner", &uid, false)]));
    wait_deleted(&client, &format!("{other}/dep"));
    for (namespace, of, name) in [("other", "other", "dep"), ("default", "", "cluster-dep")] {
        let events = format!(
            "/api/v1/namespaces/{namespace}/events?fieldSelector=reason=OwnerRefInvalidNamespace"
        );
        let events = client.poll(&events, |got| got.body["items"][0].is_object()).body;
        let event = &events["items"][0];
        let message = format!(
            "ownerRef [v1/ConfigMap, namespace: {of}, name: owner, uid: {uid}] does not exist in \
             namespace \"{of}\""
        );
        assert_eq!((&event["message"], &event["type"]), (&message.into(), &"Warning".into()));
        assert_eq!(event["involvedObject"]["name"], name);
        assert_eq!(event["source"]["component"], "garbage-collector-controller");
    }
    assert_eq!(client.get(&format!("{ROLES}/cluster-dep")).status, 200, "nothing is known of it");
    server.stop();
}

#[test]
fn jobs_and_replication_controllers_orphan_by_default() {
    let server = with_controllers();
    let client = server.client();
    let pod = json!({"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"});
    let job = json!({"metadata": {"name": "job"}, "spec": {"template": {"spec": pod}}});
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let uid = create(&client, jobs, &job);
    let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": uid});
    create(&client, MAPS, &dependent("dep", &[owner]));
    let deleted = client.delete(&format!("{jobs}/job")).body;
    assert_eq!(deleted["metadata"]["finalizers"], json!(["orphan"]));
    wait_deleted(&client, &format!("{jobs}/job"));
    assert_eq!(owners_of(&client, "dep"), [""; 0]);
    server.stop();
}

#[test]
fn the_garbage_collector_is_limited_by_its_role() {
    let server = with_controllers();
    let client = server.client();
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let binding = format!("{bindings}/system:controller:generic-garbage-collector");
    let mut given = client.get(&binding).body;
    assert_eq!(client.delete(&binding).status, 200);
    let absent = "00000000-0000-0000-0000-000000000001";
    create(&client, MAPS, &dependent("dep", &[owned_by("nobody", absent, false)]));
    // Other controllers continue.
    create(&client, "/api/v1/namespaces", &json!({"metadata": {"name": "other"}}));
    client.poll("/api/v1/namespaces/other/configmaps/kube-root-ca.crt", |got| got.status == 200);
    assert_eq!(client.get(&path("dep")).status, 200);
    given["metadata"] = json!({"name": given["metadata"]["name"]});
    create(&client, bindings, &given);
    wait_deleted(&client, &path("dep"));
    server.stop();
}

#[test]
fn garbage_from_before_a_restart_is_collected() {
    let dir = tempfile::tempdir().expect("a folder");
    let builder = || keelson::Keelson::builder().data_dir(dir.path());
    let server = crate::http::Server::start_plain(builder().no_controllers());
    let client = server.client();
    let uid = owner(&client, "owner");
    create(&client, MAPS, &dependent("dep", &[owned_by("owner", &uid, false)]));
    let uid = owner(&client, "waiting");
    create(&client, MAPS, &dependent("blocks", &[owned_by("waiting", &uid, true)]));
    delete(&client, &path("owner"), "Background");
    delete(&client, &path("waiting"), "Foreground");
    server.stop();
    let server = crate::http::Server::start_plain(builder());
    let client = server.client();
    for name in ["dep", "blocks", "waiting"] {
        wait_deleted(&client, &path(name));
    }
    server.stop();
}

/// The metrics of work queues name the loops that run.
#[test]
fn without_garbage_collection_dependents_stay_and_its_loop_does_not_run() {
    let server = with_controllers_and(|builder| builder.apis.garbage_collection = false);
    let client = server.client();
    let uid = owner(&client, "owner");
    create(&client, MAPS, &dependent("dependent", &[owned_by("owner", &uid, true)]));
    delete(&client, &path("owner"), "Foreground");
    assert_eq!(client.get(&path("owner")).status, 404, "it waits for nobody");
    let queue = |name: &str| format!("workqueue_adds_total{{name=\"{name}\"}}");
    let last = queue("ttl-after-finished-controller");
    let has_last =
        |answer: &Response| answer.body.as_str().is_some_and(|text| text.contains(&last));
    let metrics = client.poll("/metrics", has_last).body;
    let metrics = metrics.as_str().unwrap_or_default();
    assert!(!metrics.contains(&queue("garbage-collector-controller")), "{metrics}");
    assert_eq!(owners_of(&client, "dependent"), ["owner"]);
    server.stop();
}
