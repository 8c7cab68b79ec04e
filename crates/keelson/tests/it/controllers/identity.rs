//! Identity leases of API servers.

use super::create;
use crate::http::Server;
use keelson::Keelson;
use serde_json::{Value, json};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

/// Returns the identity lease of the only server, if it exists.
fn own(list: &Value) -> Option<&Value> {
    let mut items = list["items"].as_array().into_iter().flatten();
    items
        .find(|item| item["metadata"]["name"].as_str().is_some_and(|n| n.starts_with("apiserver-")))
}

#[test]
fn a_server_has_an_identity_lease_and_deletes_expired_ones() {
    let dir = tempfile::tempdir().expect("a folder");
    let start = || Server::start_plain(Keelson::builder().data_dir(dir.path()));
    let server = start();
    let client = server.client();
    let first = client.poll(LEASES, |got| own(&got.body).is_some()).body;
    let lease = own(&first).expect("it was there").clone();
    let metadata = &lease["metadata"];
    let spec = &lease["spec"];
    assert_eq!(metadata["labels"]["apiserver.kubernetes.io/identity"], "kube-apiserver");
    let address = metadata["annotations"]["kubernetes.io/peer-advertise-address"].as_str();
    let port = format!(":{}", server.keelson.address().port());
    assert!(address.is_some_and(|address| address.ends_with(&port)), "{lease}");
    assert_eq!(metadata["managedFields"][0]["manager"], "kube-apiserver");
    assert_eq!(spec["leaseDurationSeconds"], 3600);
    let name = metadata["name"].as_str().expect("a name");
    let holder = spec["holderIdentity"].as_str().expect("a holder");
    assert!(holder.strip_prefix(name).is_some_and(|rest| rest.starts_with('_')), "{lease}");

    let old = |name: &str, identity: &str, spec: Value| {
        let labels = json!({"apiserver.kubernetes.io/identity": identity});
        create(
            &client,
            LEASES,
            &json!({"metadata": {"name": name, "labels": labels}, "spec": spec}),
        );
    };
    let long_ago = json!({"holderIdentity": "x", "leaseDurationSeconds": 10,
        "renewTime": "2026-01-01T00:00:00.000000Z"});
    old("ended", "kube-apiserver", long_ago.clone());
    old("untold", "kube-apiserver", json!({"holderIdentity": "x"}));
    old("others", "others", long_ago);
    server.stop();

    let server = start();
    let client = server.client();
    // The lease of the previous server is deleted, not reused.
    let is_new =
        |list: &Value| own(list).is_some_and(|new| new["metadata"]["uid"] != metadata["uid"]);
    let collected = |list: &Value| list["items"].as_array().is_some_and(|all| all.len() == 2);
    let last = client.poll(LEASES, |got| is_new(&got.body) && collected(&got.body)).body;
    assert_eq!(own(&last).map(|new| &new["metadata"]["name"]), Some(&metadata["name"]));
    let names =
        last["items"].as_array().into_iter().flatten().map(|item| &item["metadata"]["name"]);
    assert!(names.clone().any(|name| name == "others"), "{last}");
    server.stop();
}
