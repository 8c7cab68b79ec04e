//! Scenarios of Keelson's controllers with Pods created by the test: deletion of namespaces,
//! endpoints, disruption budgets, claims in use, quotas, finished Jobs.

use super::scene::{Scene, all_ready, facts, managers, name, run_pod};
use super::{availability, lifecycle};
use serde_json::{Value, json};

const USED: &str = "/status/used";

/// A namespace that is deleted while Pods run in it.
pub fn namespace(scene: &Scene) {
    for name in ["web-0", "web-1"] {
        run_pod(scene, name, "web", json!({}));
    }
    lifecycle::ended(scene);
}

/// Services of Pods.
pub fn endpoints(scene: &Scene) {
    availability::services(scene, |count| {
        if count == 2 {
            for name in ["web-0", "web-1"] {
                run_pod(scene, name, "web", json!({}));
            }
        } else {
            scene.delete("v1/pods/web-1", "Background");
        }
    });
    for service in ["headless", "outside"] {
        let selector = format!("labelSelector=kubernetes.io/service-name%3D{service}");
        let slices = scene.get(&format!("discovery.k8s.io/v1/endpointslices?{selector}")).body;
        let slice = &slices["items"][0];
        let metadata = &slice["metadata"];
        let owner = &metadata["ownerReferences"][0];
        scene.record(format!(
            "{service}: {} {} {} {} {}",
            metadata["generateName"],
            owner["kind"],
            owner["controller"],
            metadata["labels"],
            managers(slice)
        ));
    }
}

/// A PodDisruptionBudget.
pub fn disruption(scene: &Scene) {
    for name in ["web-0", "web-1", "web-2"] {
        run_pod(scene, name, "web", json!({}));
    }
    availability::budget(scene, |pod| run_pod(scene, pod, "web", json!({})));
}

/// A PersistentVolumeClaim that is deleted while a Pod uses it.
pub fn claims(scene: &Scene) {
    let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "none",
        "resources": {"requests": {"storage": "1Gi"}}});
    let claims = "v1/persistentvolumeclaims";
    for name in ["used", "idle"] {
        scene.create(claims, json!({"metadata": {"name": name}, "spec": spec}));
    }
    let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": "used"}});
    run_pod(scene, "web-0", "web", json!({"volumes": [volume]}));
    all_ready(scene);
    let used = format!("{claims}/used");
    let idle = format!("{claims}/idle");
    let made = scene.get(&used).body;
    scene.record(format!("{} {}", made["metadata"]["finalizers"], managers(&made)));
    scene.delete(&used, "Background");
    scene.delete(&idle, "Background");
    scene.wait_deleted(&idle);
    let held = scene.get(&used).body;
    let is_deleted = held["metadata"]["deletionTimestamp"].is_string();
    scene.record(format!("deleted={is_deleted} {}", held["metadata"]["finalizers"]));
    scene.delete("v1/pods/web-0", "Background");
    scene.wait_deleted(&used);
}

/// The usage of a quota while Pods and other objects are created and deleted.
pub fn quota(scene: &Scene) {
    // An object created during the first count of the quota may be counted twice for some time.
    scene.wait_until("v1/configmaps/kube-root-ca.crt", Value::is_object);
    let hard = json!({"pods": "2", "requests.cpu": "300m", "configmaps": "3", "services": "1",
        "count/widgets.testkit.keelson": "1", "requests.storage": "5Gi"});
    scene
        .create("v1/resourcequotas", json!({"metadata": {"name": "most"}, "spec": {"hard": hard}}));
    let path = "v1/resourcequotas/most";
    let quota = scene.wait_until(path, |quota| quota["status"]["hard"] == hard);
    scene.record(facts(&quota, &[USED]));
    let requests = json!({"requests": {"cpu": "100m"}});
    let containers = json!([{"name": "main", "image": "web:1", "resources": requests}]);
    for name in ["web-0", "web-1"] {
        run_pod(scene, name, "web", json!({"containers": containers}));
    }
    let widget = json!({"apiVersion": "testkit.keelson/v1", "kind": "Widget",
        "metadata": {"name": "widget"}});
    scene.create("testkit.keelson/v1/widgets", widget);
    let used = |pods: &str, widgets: &str| {
        let quota = scene.wait_until(path, |quota| {
            quota["status"]["used"]["pods"] == pods
                && quota["status"]["used"]["count/widgets.testkit.keelson"] == widgets
        });
        scene.record(facts(&quota, &[USED]));
    };
    used("2", "1");
    let refused = scene
        .api
        .post(
            &scene.path("v1/pods"),
            &json!({"metadata": {"name": "web-2"}, "spec": {"containers": containers}}),
        )
        .expect("an answer");
    scene.record(format!("{} {}", refused.code, refused.body["message"]));
    scene.delete("v1/pods/web-1", "Background");
    scene.delete("testkit.keelson/v1/widgets/widget", "Background");
    used("1", "0");
    scene.patch(path, json!({"spec": {"hard": {"configmaps": null, "secrets": "5"}}}));
    let quota = scene.wait_until(path, |quota| quota["status"]["used"]["secrets"].is_string());
    scene.record(format!("{} {}", facts(&quota, &["/status/hard", USED]), managers(&quota)));
}

/// Jobs that the test has finished and that have a ttlSecondsAfterFinished.
pub fn finished(scene: &Scene) {
    let jobs = "batch/v1/jobs";
    let template = json!({"metadata": {"labels": {"app": "job"}}, "spec": {"restartPolicy": "Never",
        "containers": [{"name": "main", "image": "job:1"}]}});
    for (name, seconds) in [("brief", json!(1)), ("long", json!(3600)), ("ever", Value::Null)] {
        let spec = json!({"managedBy": "testkit.keelson/jobs", "template": template,
            "ttlSecondsAfterFinished": seconds});
        let job = scene.create(jobs, json!({"metadata": {"name": name}, "spec": spec}));
        let at = &job["metadata"]["creationTimestamp"];
        let condition =
            |name: &str| json!({"type": name, "status": "True", "lastTransitionTime": at});
        let status = json!({"startTime": at, "completionTime": at, "succeeded": 1,
            "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]});
        scene.patch(&format!("{jobs}/{name}/status"), json!({"status": status}));
    }
    scene.wait_deleted(&format!("{jobs}/brief"));
    let left = scene.get(jobs).body;
    let left = left["items"].as_array().into_iter().flatten().map(name);
    scene.record(format!("left: {:?}", left.collect::<Vec<_>>()));
}
