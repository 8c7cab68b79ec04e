//! Scenarios of deletion: namespaces with content, dependents with all propagation policies.

use super::scene::{Scene, each, name, template};
use serde_json::{Value, json};

const WIDGETS: &str = "testkit.keelson/v1/widgets";
const MAPS: &str = "v1/configmaps";
const SETS: &str = "apps/v1/replicasets";

fn deployment(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"replicas": 2,
        "template": template(name, "web:1", json!({})), "selector": {"matchLabels": {"app": name}}}})
}

/// A namespace that is deleted while a Deployment runs in it.
pub fn namespace(scene: &Scene) {
    scene.create("apps/v1/deployments", deployment("web"));
    ended(scene);
}

/// Deletes the scenario's namespace, which contains two Pods `web` and other objects.
pub fn ended(scene: &Scene) {
    scene.create(
        "v1/services",
        json!({"metadata": {"name": "web"}, "spec": {
        "selector": {"app": "web"}, "ports": [{"port": 80}]}}),
    );
    scene.create("v1/secrets", json!({"metadata": {"name": "secret"}}));
    scene.create(
        WIDGETS,
        json!({"apiVersion": "testkit.keelson/v1", "kind": "Widget",
        "metadata": {"name": "widget"}}),
    );
    let budget = json!({"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}});
    scene.create(
        "policy/v1/poddisruptionbudgets",
        json!({"metadata": {"name": "web"}, "spec": budget}),
    );
    let finalizers = json!(["testkit.keelson/wait"]);
    scene.create(MAPS, json!({"metadata": {"name": "held", "finalizers": finalizers}}));
    scene.wait_until("v1/pods", |pods| {
        pods["items"].as_array().is_some_and(|all| {
            all.len() == 2 && all.iter().all(|pod| pod["status"]["phase"] == "Running")
        })
    });
    let path = "/api/v1/namespaces/namespace";
    scene.delete(path, "Background");
    let left = scene.wait_until(path, |namespace| {
        let all = namespace["status"]["conditions"].as_array().into_iter().flatten();
        let mut waiting = all.filter(|one| one["type"] == "NamespaceFinalizersRemaining");
        waiting.any(|one| one["status"] == "True")
            && left_is_held(namespace)
            && scene.get("v1/pods").body["items"].as_array().is_some_and(Vec::is_empty)
            && scene.get(WIDGETS).body["items"].as_array().is_some_and(Vec::is_empty)
    });
    scene.record(format!("{} {}", left["status"]["phase"], left["spec"]["finalizers"]));
    let all = left["status"]["conditions"].as_array().into_iter().flatten();
    let mut all: Vec<String> =
        all.map(|one| format!("{}: {}", one["type"], one["message"])).collect();
    all.sort();
    scene.record(all.join(", "));
    scene.patch("v1/configmaps/held", json!({"metadata": {"finalizers": null}}));
    scene.wait_deleted(path);
    for resource in [MAPS, "v1/secrets", "v1/services", "apps/v1/deployments", SETS, "v1/events"] {
        scene.record(format!(
            "{resource}: {}",
            each(&scene.get(resource).body, |one| name(one).to_owned())
        ));
    }
}

/// Returns whether only the ConfigMap with a finalizer remains in a namespace.
fn left_is_held(namespace: &Value) -> bool {
    let all = namespace["status"]["conditions"].as_array().into_iter().flatten();
    let mut remaining = all.filter(|one| one["type"] == "NamespaceContentRemaining");
    let message = remaining.next().map(|one| &one["message"]);
    message.is_some_and(|message| {
        message == "Some resources are remaining: configmaps. has 1 resource instances"
    })
}

/// Deletes owners with all propagation policies: a Deployment, a ConfigMap, a custom resource.
pub fn garbage(scene: &Scene) {
    for policy in ["Background", "Foreground", "Orphan"] {
        let app = policy.to_lowercase();
        scene.create("apps/v1/deployments", deployment(&app));
        let set = format!("apps/v1/deployments/{app}");
        scene.wait_until(&set, |web| web["status"]["availableReplicas"] == 2);
        scene.delete(&set, policy);
        scene.wait_deleted(&set);
        let selector = format!("labelSelector=app%3D{app}");
        let left = if policy == "Orphan" { (1, 2) } else { (0, 0) };
        let sets = scene.wait_for_count(&format!("{SETS}?{selector}"), left.0);
        scene.wait_for_count(&format!("v1/pods?{selector}"), left.1);
        let owners = each(&sets, |set| set["metadata"]["ownerReferences"].to_string());
        scene.record(format!("{policy}: replica sets {owners}, pods {}", left.1));
        custom(scene, policy, &app);
    }
}

/// A custom resource that owns a ConfigMap with blockOwnerDeletion, and the reverse.
pub fn custom(scene: &Scene, policy: &str, suffix: &str) {
    let widget = |name: &str, owners: Value| {
        json!({"apiVersion": "testkit.keelson/v1", "kind": "Widget",
            "metadata": {"name": name, "ownerReferences": owners}})
    };
    let owned_by = |owner: &Value| {
        json!([{"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": name(owner),
            "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true}])
    };
    let owner = scene.create(WIDGETS, widget(&format!("owner-{suffix}"), json!([])));
    let metadata = json!({"name": format!("middle-{suffix}"), "ownerReferences": owned_by(&owner)});
    let middle = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    let middle = scene.create(MAPS, middle);
    let last = scene.create(WIDGETS, widget(&format!("last-{suffix}"), owned_by(&middle)));
    let path = format!("{WIDGETS}/{}", name(&owner));
    scene.delete(&path, policy);
    scene.wait_deleted(&path);
    let paths = [format!("{MAPS}/{}", name(&middle)), format!("{WIDGETS}/{}", name(&last))];
    if policy == "Orphan" {
        let middle =
            scene.wait_until(&paths[0], |one| one["metadata"]["ownerReferences"].is_null());
        let last = scene.get(&paths[1]).body;
        let count = last["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len);
        scene.record(format!("{policy}: {} stays, owners of the last: {count}", name(&middle)));
    } else {
        paths.iter().for_each(|path| scene.wait_deleted(path));
        scene.record(format!("{policy}: all are gone"));
    }
}
