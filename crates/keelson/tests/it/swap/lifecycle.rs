//! Scenes of what goes: namespaces with everything inside, dependents under all three policies.

use super::scene::{Scene, each, name, template};
use serde_json::{Value, json};

const WIDGETS: &str = "testkit.keelson/v1/widgets";
const MAPS: &str = "v1/configmaps";
const SETS: &str = "apps/v1/replicasets";

fn deployment(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"replicas": 2,
        "template": template(name, "web:1", json!({})), "selector": {"matchLabels": {"app": name}}}})
}

/// A namespace that is deleted while a deployment runs in it.
pub fn namespace(scene: &Scene) {
    scene.make("apps/v1/deployments", deployment("web"));
    ended(scene);
}

/// Deletes the namespace of a scene with everything in it: two pods `web` that run or soon will, and more.
pub fn ended(scene: &Scene) {
    scene.make(
        "v1/services",
        json!({"metadata": {"name": "web"}, "spec": {
        "selector": {"app": "web"}, "ports": [{"port": 80}]}}),
    );
    scene.make("v1/secrets", json!({"metadata": {"name": "secret"}}));
    scene.make(
        WIDGETS,
        json!({"apiVersion": "testkit.keelson/v1", "kind": "Widget",
        "metadata": {"name": "widget"}}),
    );
    let budget = json!({"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}});
    scene.make(
        "policy/v1/poddisruptionbudgets",
        json!({"metadata": {"name": "web"}, "spec": budget}),
    );
    let finalizers = json!(["testkit.keelson/wait"]);
    scene.make(MAPS, json!({"metadata": {"name": "held", "finalizers": finalizers}}));
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
    scene.say(format!("{} {}", left["status"]["phase"], left["spec"]["finalizers"]));
    let all = left["status"]["conditions"].as_array().into_iter().flatten();
    let mut all: Vec<String> =
        all.map(|one| format!("{}: {}", one["type"], one["message"])).collect();
    all.sort();
    scene.say(all.join(", "));
    scene.change("v1/configmaps/held", json!({"metadata": {"finalizers": null}}));
    scene.gone(path);
    for resource in [MAPS, "v1/secrets", "v1/services", "apps/v1/deployments", SETS, "v1/events"] {
        scene.say(format!(
            "{resource}: {}",
            each(&scene.get(resource).body, |one| name(one).to_owned())
        ));
    }
}

/// Whether what remains of a namespace is the one ConfigMap that is held.
fn left_is_held(namespace: &Value) -> bool {
    let all = namespace["status"]["conditions"].as_array().into_iter().flatten();
    let mut remaining = all.filter(|one| one["type"] == "NamespaceContentRemaining");
    let message = remaining.next().map(|one| &one["message"]);
    message.is_some_and(|message| {
        message == "Some resources are remaining: configmaps. has 1 resource instances"
    })
}

/// Owners that go under all three policies: a deployment, an object, a custom resource.
pub fn garbage(scene: &Scene) {
    for policy in ["Background", "Foreground", "Orphan"] {
        let app = policy.to_lowercase();
        scene.make("apps/v1/deployments", deployment(&app));
        let set = format!("apps/v1/deployments/{app}");
        scene.wait_until(&set, |web| web["status"]["availableReplicas"] == 2);
        scene.delete(&set, policy);
        scene.gone(&set);
        let selector = format!("labelSelector=app%3D{app}");
        let left = if policy == "Orphan" { (1, 2) } else { (0, 0) };
        let sets = scene.until_count(&format!("{SETS}?{selector}"), left.0);
        scene.until_count(&format!("v1/pods?{selector}"), left.1);
        let owners = each(&sets, |set| set["metadata"]["ownerReferences"].to_string());
        scene.say(format!("{policy}: replica sets {owners}, pods {}", left.1));
        custom(scene, policy, &app);
    }
}

/// A custom resource with a ConfigMap that blocks it, and the reverse.
pub fn custom(scene: &Scene, policy: &str, suffix: &str) {
    let widget = |name: &str, owners: Value| {
        json!({"apiVersion": "testkit.keelson/v1", "kind": "Widget",
            "metadata": {"name": name, "ownerReferences": owners}})
    };
    let owned_by = |owner: &Value| {
        json!([{"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": name(owner),
            "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true}])
    };
    let owner = scene.make(WIDGETS, widget(&format!("owner-{suffix}"), json!([])));
    let metadata = json!({"name": format!("middle-{suffix}"), "ownerReferences": owned_by(&owner)});
    let middle = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    let middle = scene.make(MAPS, middle);
    let last = scene.make(WIDGETS, widget(&format!("last-{suffix}"), owned_by(&middle)));
    let path = format!("{WIDGETS}/{}", name(&owner));
    scene.delete(&path, policy);
    scene.gone(&path);
    let paths = [format!("{MAPS}/{}", name(&middle)), format!("{WIDGETS}/{}", name(&last))];
    if policy == "Orphan" {
        let middle =
            scene.wait_until(&paths[0], |one| one["metadata"]["ownerReferences"].is_null());
        let last = scene.get(&paths[1]).body;
        let count = last["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len);
        scene.say(format!("{policy}: {} stays, owners of the last: {count}", name(&middle)));
    } else {
        paths.iter().for_each(|path| scene.gone(path));
        scene.say(format!("{policy}: all are gone"));
    }
}
