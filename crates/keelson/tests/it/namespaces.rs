//! Deletion of namespaces.

use crate::http::{Server, revision_of};
use keelson::Keelson;
use serde_json::json;

/// NetworkPolicies exist as long as Pods do (CVE-2024-7598).
///
/// Proves: R-KIND-26.
#[test]
fn pods_are_deleted_before_objects_that_protect_them() {
    let server = Server::start_plain(Keelson::builder());
    let client = server.client();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}});
    assert_eq!(client.post("/api/v1/namespaces", &namespace).status, 201);
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "finalizers": ["example.com/wait"]},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let pods = "/api/v1/namespaces/ns/pods";
    // A controller creates its service account.
    client.poll("/api/v1/namespaces/ns/serviceaccounts/default", |answer| answer.status == 200);
    assert_eq!(client.post(pods, &pod).status, 201);
    let policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "shield"}, "spec": {"podSelector": {}}});
    let policies = "/apis/networking.k8s.io/v1/namespaces/ns/networkpolicies";
    assert_eq!(client.post(policies, &policy).status, 201);
    let revision = revision_of(&client.get(policies).body);
    let mut deletions =
        client.open_watch(&format!("{policies}?watch=1&resourceVersion={revision}"));

    assert_eq!(client.delete("/api/v1/namespaces/ns").status, 200);
    let path = format!("{pods}/p");
    client.poll(&path, |answer| answer.body["metadata"].get("deletionTimestamp").is_some());
    let release = json!({"metadata": {"finalizers": null}});
    let released = client.call("PATCH", &path, "application/merge-patch+json", Some(&release)).body;
    let event = deletions.next().expect("the policy goes too");
    assert_eq!(event["type"], "DELETED");
    let pod = revision_of(&released);
    let policy = revision_of(&event["object"]);
    assert!(policy > pod, "the policy went at {policy}, the pod at {pod}");
    client.poll("/api/v1/namespaces/ns", |answer| answer.status == 404);
}

/// Objects of a namespace before its deletion, in addition to those of controllers.
const OBJECTS: usize = 600;

#[test]
fn namespace_conditions_name_the_remaining_content() {
    let server = Server::start_plain(Keelson::builder());
    let client = server.client();
    let namespace = json!({"metadata": {"name": "ns"}});
    assert_eq!(client.post("/api/v1/namespaces", &namespace).status, 201);
    let maps = "/api/v1/namespaces/ns/configmaps";
    for n in 0..OBJECTS {
        let map = json!({"metadata": {"name": format!("m{n}")}});
        assert_eq!(client.post(maps, &map).status, 201);
    }
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    assert_eq!(client.post(maps, &held).status, 201);
    assert_eq!(client.delete("/api/v1/namespaces/ns").status, 200);
    let message = "Some resources are remaining: configmaps. has 1 resource instances";
    let left = client.poll("/api/v1/namespaces/ns", |got| {
        got.body["status"]["conditions"][3]["message"] == message
    });
    let conditions = left.body["status"]["conditions"].as_array().expect("conditions");
    let facts: Vec<_> = conditions
        .iter()
        .map(|one| ["type", "status", "reason"].map(|name| one[name].as_str().unwrap_or_default()))
        .collect();
    let want = [
        ["NamespaceDeletionDiscoveryFailure", "False", "ResourcesDiscovered"],
        ["NamespaceDeletionGroupVersionParsingFailure", "False", "ParsedGroupVersions"],
        ["NamespaceDeletionContentFailure", "False", "ContentDeleted"],
        ["NamespaceContentRemaining", "True", "SomeResourcesRemain"],
        ["NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain"],
    ];
    assert_eq!(facts, want);
    let message = "Some content in the namespace has finalizers remaining: example.com/hold in 1 \
                   resource instances";
    assert_eq!(conditions[4]["message"], message);
    let release = json!({"metadata": {"finalizers": null}});
    let path = format!("{maps}/held");
    let released = client.call("PATCH", &path, "application/merge-patch+json", Some(&release));
    assert_eq!(released.status, 200);
    client.poll("/api/v1/namespaces/ns", |answer| answer.status == 404);
    server.stop();
}
