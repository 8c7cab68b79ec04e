//! The end of a namespace.

use crate::http::{Server, revision_of};
use keelson::Keelson;
use serde_json::json;

/// As long as a pod is there, so is the policy that shields it (CVE-2024-7598).
#[test]
fn pods_go_before_what_protects_them() {
    let server = Server::start_plain(Keelson::builder());
    let client = server.client();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}});
    assert_eq!(client.post("/api/v1/namespaces", &namespace).status, 201);
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "finalizers": ["example.com/wait"]},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let pods = "/api/v1/namespaces/ns/pods";
    // Its service account is made by a loop.
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
    let (pod, policy) = (revision_of(&released), revision_of(&event["object"]));
    assert!(policy > pod, "the policy went at {policy}, the pod at {pod}");
    client.poll("/api/v1/namespaces/ns", |answer| answer.status == 404);
}
