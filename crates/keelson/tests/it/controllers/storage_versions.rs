//! StorageVersionMigrations: objects are rewritten in the storage version of their definition.

use super::{MAPS, create};
use crate::http::{Client, Server};
use keelson::Keelson;
use keelson_meta::Features;
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const MIGRATIONS: &str = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

fn migrating() -> Server {
    let features = Features::parse(["StorageVersionMigrator=true"]).expect("a feature gate");
    let served = ("storagemigration.k8s.io/v1beta1".to_owned(), true);
    Server::start_plain(Keelson::builder().with(|builder| {
        builder.apis.features = features;
        builder.apis.runtime_config = vec![served];
    }))
}

/// Returns a definition with two versions and the storage version.
fn definition(stored: &str) -> Value {
    let version = |name: &str| {
        json!({"name": name, "served": true, "storage": name == stored,
            "schema": {"openAPIV3Schema": {"type": "object"}}})
    };
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [version("v1"), version("v2")]}})
}

/// Migrates a resource and waits for a condition. Returns all conditions.
fn migrate(client: &Client, group: &str, resource: &str, condition: &str) -> Vec<String> {
    let spec = json!({"resource": {"group": group, "resource": resource}});
    create(client, MIGRATIONS, &json!({"metadata": {"name": resource}, "spec": spec}));
    let all = |body: &Value| body["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let done = client.poll(&format!("{MIGRATIONS}/{resource}"), |got| {
        all(&got.body).iter().any(|one| one["type"] == condition && one["status"] == "True")
    });
    let text = |one: &Value| {
        ["type", "status", "reason"].map(|name| one[name].as_str().unwrap_or_default()).join(" ")
    };
    all(&done.body).iter().map(text).collect()
}

#[test]
fn a_migration_rewrites_custom_resources_and_updates_stored_versions() {
    let server = migrating();
    let client = server.client();
    create(&client, DEFINITIONS, &definition("v1"));
    client.poll(WIDGETS, |answer| answer.status == 200);
    let widget = |name: &str| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}});
    create(&client, WIDGETS, &widget("old"));
    let stored_form = || {
        let served = client.get("/apis/example.com/v1").body["resources"].clone();
        served[0]["storageVersionHash"].as_str().unwrap_or_default().to_owned()
    };
    let first_form = stored_form();
    let patch = json!({"spec": definition("v2")["spec"]});
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let changed = client.call("PATCH", &path, super::MERGE, Some(&patch));
    assert_eq!(changed.body["status"]["storedVersions"], json!(["v1", "v2"]), "{changed:?}");
    super::wait_until("objects are stored in v2", || stored_form() != first_form);
    create(&client, WIDGETS, &widget("new"));
    let versions = || {
        ["old", "new"].map(|name| {
            let got = client.get(&format!("{WIDGETS}/{name}")).body;
            (got["metadata"]["resourceVersion"].clone(), got["metadata"]["managedFields"].clone())
        })
    };
    let before = versions();
    let ended = migrate(&client, "example.com", "widgets", "Succeeded");
    let want =
        ["Running False MigrationCompleted", "Succeeded True StorageVersionMigrationSucceeded"];
    assert_eq!(ended, want);
    let after = versions();
    assert_ne!(before[0].0, after[0].0, "it was stored in v1");
    assert_eq!(before[1], after[1], "it was stored in v2 already");
    assert_eq!(before[0].1, after[0].1, "nobody owns other fields than before");
    let definition = client.get(&path).body;
    assert_eq!(definition["status"]["storedVersions"], json!(["v2"]));
    server.stop();
}

#[test]
fn a_migration_waits_until_the_new_storage_version_is_served() {
    let server = migrating();
    let client = server.client();
    create(&client, DEFINITIONS, &definition("v1"));
    client.poll(WIDGETS, |answer| answer.status == 200);
    let path = format!("{DEFINITIONS}/widgets.example.com");
    for (stored, name) in [("v2", "one"), ("v1", "two"), ("v2", "three"), ("v1", "four")] {
        let widget =
            json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}});
        create(&client, WIDGETS, &widget);
        let patch = json!({"spec": definition(stored)["spec"]});
        assert_eq!(client.call("PATCH", &path, super::MERGE, Some(&patch)).status, 200);
        let before = client.get(&format!("{WIDGETS}/{name}")).body;
        migrate(&client, "example.com", "widgets", "Succeeded");
        let after = client.get(&format!("{WIDGETS}/{name}")).body;
        assert_ne!(before["metadata"], after["metadata"], "stored again in {stored}");
        let definition = client.get(&path).body;
        assert_eq!(definition["status"]["storedVersions"], json!([stored]));
        assert_eq!(client.delete(&format!("{MIGRATIONS}/widgets")).status, 200);
    }
    server.stop();
}

#[test]
fn a_migration_leaves_objects_of_the_storage_version_as_they_are() {
    let server = migrating();
    let client = server.client();
    create(&client, MAPS, &json!({"metadata": {"name": "a"}, "data": {"k": "v"}}));
    let before = client.get(&format!("{MAPS}/a")).body;
    migrate(&client, "", "configmaps", "Succeeded");
    assert_eq!(client.get(&format!("{MAPS}/a")).body, before);
    let migration = client.get(&format!("{MIGRATIONS}/configmaps")).body;
    assert!(migration["status"]["resourceVersion"].is_string(), "{migration}");
    server.stop();
}

#[test]
fn a_migration_waits_for_a_resource_that_is_not_served() {
    let server = migrating();
    let client = server.client();
    let running = migrate(&client, "example.com", "widgets", "Running");
    assert_eq!(running, ["Running True MigrationRunning"]);
    create(&client, DEFINITIONS, &definition("v1"));
    client.poll(&format!("{MIGRATIONS}/widgets"), |got| {
        got.body["status"]["conditions"][1]["type"] == "Succeeded"
    });
    server.stop();
}
