//! Scenarios of Keelson's controllers for objects: garbage collection, service accounts and tokens,
//! bootstrap tokens, aggregated ClusterRoles, type checks of policies, protection of volumes,
//! ServiceCIDRs.

use super::cluster::items;
use super::identity;
use super::lifecycle;
use super::scene::{Scene, conditions, has, managers, name};
use serde_json::{Value, json};

const MAPS: &str = "v1/configmaps";

fn owned(name: &str, owner: &Value) -> Value {
    let reference = json!([{"apiVersion": owner["apiVersion"], "kind": owner["kind"],
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}]);
    json!({"metadata": {"name": name, "ownerReferences": reference}})
}

/// Deletes owners with all propagation policies; owner references with a wrong uid or kind.
pub fn garbage(scene: &Scene) {
    for policy in ["Background", "Foreground", "Orphan"] {
        lifecycle::custom(scene, policy, &policy.to_lowercase());
    }
    let there = scene.create(MAPS, json!({"metadata": {"name": "there"}}));
    let owner = |api_version: &str, kind: &str, of: &Value| {
        json!({"apiVersion": api_version, "kind": kind,
            "metadata": {"name": of["metadata"]["name"], "uid": of["metadata"]["uid"]}})
    };
    // An owner of an unserved kind may exist, so its dependents stay.
    scene.create(MAPS, owned("unserved", &owner("nobody.testkit.keelson/v1", "Nobody", &there)));
    // One reference has the uid of another object, the other a wrong kind.
    scene.create(MAPS, owned("wrong-kind", &owner("v1", "Secret", &there)));
    scene.wait_deleted(&format!("{MAPS}/wrong-kind"));
    let far =
        scene.get("/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication");
    let far = owner("v1", "ConfigMap", &far.body);
    let uid = far["metadata"]["uid"].as_str().expect("a uid").to_owned();
    scene.create(MAPS, owned("far", &far));
    scene.wait_deleted(&format!("{MAPS}/far"));
    let events =
        scene.wait_for_count("v1/events?fieldSelector=reason%3DOwnerRefInvalidNamespace", 1);
    let event = &items(&events).next().expect("an event");
    let object = &event["involvedObject"];
    scene.record(format!(
        "{} {} {} {} {} {} {}",
        event["type"],
        event["message"].to_string().replace(&uid, "UID"),
        event["source"],
        event["reportingComponent"],
        object["kind"],
        object["name"],
        object["apiVersion"]
    ));
    // One of two owners still exists.
    let second = scene.create(MAPS, json!({"metadata": {"name": "second"}}));
    let mut both = owned("both", &owner("v1", "ConfigMap", &there));
    let more = owned("", &owner("v1", "ConfigMap", &second))["metadata"]["ownerReferences"].take();
    both["metadata"]["ownerReferences"]
        .as_array_mut()
        .expect("owners")
        .extend(more.as_array().cloned().into_iter().flatten());
    scene.create(MAPS, both);
    scene.delete(&format!("{MAPS}/there"), "Background");
    let both = scene.wait_until(&format!("{MAPS}/both"), |both| {
        both["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len) == 1
    });
    scene.record(format!("{} {}", both["metadata"]["ownerReferences"][0]["name"], managers(&both)));
    scene.record(format!("unserved: {}", scene.get(&format!("{MAPS}/unserved")).code));
}

/// A CertificateSigningRequest that its signer rejects.
pub fn refused_certificate(scene: &Scene) {
    let path = identity::approved(scene, &["server auth"]);
    let failed = scene.wait_until(&path, |got| has(got, "Failed", "True"));
    let all = failed["status"]["conditions"].as_array().into_iter().flatten();
    let messages: Vec<&Value> = all.map(|one| &one["message"]).collect();
    scene.record(format!("{} {messages:?} {}", conditions(&failed), managers(&failed)));
    let path = identity::approved(scene, &["client auth"]);
    let signed = scene.wait_until(&path, |got| got["status"]["certificate"].is_string());
    scene.record(managers(&signed));
}

/// Objects that each namespace has and that are created again; tokens, which are deleted with their
/// accounts.
pub fn accounts(scene: &Scene) {
    let account = "v1/serviceaccounts/default";
    let authority = "v1/configmaps/kube-root-ca.crt";
    for path in [account, authority] {
        let before = scene.wait_until(path, Value::is_object);
        scene.delete(path, "Background");
        let uid = &before["metadata"]["uid"];
        let after = scene.wait_until(path, |after| &after["metadata"]["uid"] != uid);
        scene.record(format!("{} {}", after["metadata"]["annotations"], managers(&after)));
    }
    let before = scene.get(authority).body;
    scene.patch(authority, json!({"data": {"ca.crt": "none", "more": "none"}}));
    let after = scene.wait_until(authority, |after| after["data"] == before["data"]);
    scene.record(managers(&after));
    scene.create("v1/serviceaccounts", json!({"metadata": {"name": "robot"}}));
    let annotations = json!({"kubernetes.io/service-account.name": "robot"});
    let secret = json!({"metadata": {"name": "robot", "annotations": annotations},
        "type": "kubernetes.io/service-account-token"});
    scene.create("v1/secrets", secret);
    let filled = scene.wait_until("v1/secrets/robot", |secret| secret["data"]["token"].is_string());
    let keys: Vec<_> =
        filled["data"].as_object().into_iter().flatten().map(|(key, _)| key).collect();
    let account = scene.get("v1/serviceaccounts/robot").body;
    scene.record(format!("{keys:?} {} {}", account["secrets"], managers(&filled)));
    scene.delete("v1/serviceaccounts/robot", "Background");
    scene.wait_deleted("v1/secrets/robot");
}

/// The ConfigMap cluster-info with signatures by bootstrap tokens; expired tokens.
pub fn bootstrap_tokens(scene: &Scene) {
    let secrets = "/api/v1/namespaces/kube-system/secrets";
    let token = |id: &str, expiration: &str| {
        let data = json!({"token-id": id, "token-secret": "0123456789abcdef",
            "usage-bootstrap-signing": "true", "expiration": expiration});
        json!({"metadata": {"name": format!("bootstrap-token-{id}")},
            "type": "bootstrap.kubernetes.io/token", "stringData": data})
    };
    scene.create(secrets, token("ghijkl", "2100-01-01T00:00:00Z"));
    scene.create(secrets, token("mnopqr", "2020-01-01T00:00:00Z"));
    let map = json!({"metadata": {"name": "cluster-info"},
        "data": {"kubeconfig": "apiVersion: v1\nkind: Config\n"}});
    scene.create("/api/v1/namespaces/kube-public/configmaps", map);
    let path = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
    let signature = "jws-kubeconfig-ghijkl";
    // The other signature is by the node's token.
    let signed = scene.wait_until(path, |map| {
        [signature, "jws-kubeconfig-abcdef"].iter().all(|key| map["data"][key].is_string())
    });
    scene.record(format!("{} {}", signed["data"], managers(&signed)));
    scene.wait_deleted(&format!("{secrets}/bootstrap-token-mnopqr"));
    scene.delete(&format!("{secrets}/bootstrap-token-ghijkl"), "Background");
    let left = scene.wait_until(path, |map| map["data"][signature].is_null());
    scene.record(left["data"].to_string());
}

/// An aggregated ClusterRole whose parts are created and deleted.
pub fn roles(scene: &Scene) {
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let labels = json!({"testkit.keelson/part": ""});
    let rule = json!({"selectors": [{"matchLabels": labels}]});
    let whole = json!({"clusterRoleSelectors": rule["selectors"]});
    scene.create(roles, json!({"metadata": {"name": "swap-whole"}, "aggregationRule": whole}));
    for (name, resource) in [("swap-part-b", "pods"), ("swap-part-a", "secrets")] {
        let rules = json!([{"apiGroups": [""], "resources": [resource], "verbs": ["get"]}]);
        scene.create(roles, json!({"metadata": {"name": name, "labels": labels}, "rules": rules}));
    }
    let path = format!("{roles}/swap-whole");
    let count = |role: &Value| role["rules"].as_array().map_or(0, Vec::len);
    let role = scene.wait_until(&path, |role| count(role) == 2);
    scene.record(format!("{} {}", role["rules"], managers(&role)));
    scene.delete(&format!("{roles}/swap-part-a"), "Background");
    scene.record(scene.wait_until(&path, |role| count(role) == 1)["rules"].to_string());
}

/// Warnings of the type check of a policy.
pub fn policies(scene: &Scene) {
    let policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let rules = json!([{"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"],
        "resources": ["deployments"]}]);
    for (name, expression) in
        [("right", "object.spec.replicas < 100000"), ("wrong", "object.spec.replica < 100000")]
    {
        let spec = json!({"matchConstraints": {"resourceRules": rules},
            "validations": [{"expression": expression}]});
        let name = format!("swap-{name}");
        scene.create(policies, json!({"metadata": {"name": name}, "spec": spec}));
        let policy = scene.wait_until(&format!("{policies}/{name}"), |policy| {
            policy["status"]["observedGeneration"] == policy["metadata"]["generation"]
        });
        scene.record(format!("{} {}", policy["status"], managers(&policy)));
    }
}

/// Volumes and VolumeAttributesClasses, which are protected while they are in use.
pub fn volumes(scene: &Scene) {
    let spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/tmp"}, "storageClassName": "none"});
    let volumes = "/api/v1/persistentvolumes";
    let made = scene.create(volumes, json!({"metadata": {"name": "swap-idle"}, "spec": spec}));
    scene.record(made["metadata"]["finalizers"].to_string());
    scene.delete(&format!("{volumes}/swap-idle"), "Background");
    scene.wait_deleted(&format!("{volumes}/swap-idle"));
    let classes = "/apis/storage.k8s.io/v1/volumeattributesclasses";
    let class = json!({"metadata": {"name": "swap"}, "driverName": "testkit.keelson",
        "parameters": {"a": "b"}});
    scene.create(classes, class);
    let path = format!("{classes}/swap");
    let made = scene.wait_until(&path, |class| class["metadata"]["finalizers"].is_array());
    scene.record(format!("{} {}", made["metadata"]["finalizers"], managers(&made)));
    let claim = json!({"metadata": {"name": "claim"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "none",
        "volumeAttributesClassName": "swap"}});
    scene.create("v1/persistentvolumeclaims", claim);
    scene.delete(&path, "Background");
    let held = scene.get(&path).body;
    scene.record(format!("{} {}", name(&held), held["metadata"]["finalizers"]));
    scene.delete("v1/persistentvolumeclaims/claim", "Background");
    scene.wait_deleted(&path);
}

/// A ServiceCIDR, which is protected while it contains addresses that no other has.
pub fn addresses(scene: &Scene) {
    let ranges = "/apis/networking.k8s.io/v1/servicecidrs";
    let range = json!({"metadata": {"name": "swap"}, "spec": {"cidrs": ["10.99.0.0/24"]}});
    scene.create(ranges, range);
    let path = format!("{ranges}/swap");
    let ready = scene.wait_until(&path, |range| has(range, "Ready", "True"));
    let finalizers = &ready["metadata"]["finalizers"];
    scene.record(format!("{finalizers} {} {}", conditions(&ready), managers(&ready)));
    let service = json!({"metadata": {"name": "far"}, "spec": {"clusterIP": "10.99.0.9",
        "ports": [{"port": 80}]}});
    let services = scene.path("v1/services");
    let made = keelson_testkit::poll(super::scene::POLL_TIMEOUT, || {
        // The server allocates from the range once its cache has the Ready condition.
        scene.api.post(&services, &service).ok().filter(|got| got.code == 201)
    });
    assert!(made.is_some(), "{:?}", scene.api.post(&services, &service));
    scene.delete(&path, "Background");
    let held = scene.wait_until(&path, |range| has(range, "Ready", "False"));
    let all = held["status"]["conditions"].as_array().into_iter().flatten();
    let messages: Vec<&Value> = all.map(|one| &one["message"]).collect();
    scene.record(format!("{} {messages:?}", conditions(&held)));
    scene.delete("v1/services/far", "Background");
    scene.wait_deleted(&path);
}
