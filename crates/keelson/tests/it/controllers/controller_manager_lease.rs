//! The server's controllers are stopped while a kube-controller-manager renews its lease.

use super::{MAPS, create, dependent, owned_by, wait_deleted, with_controllers};
use crate::http::{Client, Server};
use keelson::Keelson;
use serde_json::{Value, json};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const ABSENT: &str = "00000000-0000-0000-0000-000000000001";

fn lease(seconds: u64) -> Value {
    json!({"metadata": {"name": "kube-controller-manager"}, "spec": {
        "holderIdentity": "kcm", "leaseDurationSeconds": seconds,
        "renewTime": "9999-01-01T00:00:00.000000Z"}})
}

fn orphan(client: &Client, name: &str) -> String {
    create(client, MAPS, &dependent(name, &[owned_by("nobody", ABSENT, false)]));
    format!("{MAPS}/{name}")
}

fn is_stopped(server: &Server, is_stopped: bool) {
    super::wait_until("the loops notice the lease", || {
        server.keelson.defers_controllers() == is_stopped
    });
}

#[test]
fn controllers_stop_while_a_kube_controller_manager_holds_the_lease() {
    let server = with_controllers();
    let client = server.client();
    wait_deleted(&client, &orphan(&client, "before"));
    create(&client, LEASES, &lease(3600));
    is_stopped(&server, true);
    let path = orphan(&client, "meanwhile");
    create(&client, "/api/v1/namespaces", &json!({"metadata": {"name": "other"}}));
    assert_eq!(client.get(&path).status, 200);
    assert_eq!(client.get("/api/v1/namespaces/other/serviceaccounts/default").status, 404);
    // It releases its lease, and the remaining work is done.
    let freed = json!({"spec": {"holderIdentity": ""}});
    let path_of_lease = format!("{LEASES}/kube-controller-manager");
    let patched = client.call("PATCH", &path_of_lease, super::MERGE, Some(&freed));
    assert_eq!(patched.status, 200, "{patched:?}");
    wait_deleted(&client, &path);
    client.poll("/api/v1/namespaces/other/serviceaccounts/default", |got| got.status == 200);
    server.stop();
}

#[test]
fn controllers_resume_when_the_lease_is_not_renewed() {
    let server = with_controllers();
    let client = server.client();
    create(&client, LEASES, &lease(1));
    is_stopped(&server, true);
    wait_deleted(&client, &orphan(&client, "left"));
    is_stopped(&server, false);
    server.stop();
}

#[test]
fn controllers_named_by_flag_run_regardless_of_the_lease() {
    let mut builder = Keelson::builder();
    builder.controllers.selected = vec!["*".to_owned(), "-serviceaccount-controller".to_owned()];
    let server = Server::start_plain(builder);
    let client = server.client();
    create(&client, LEASES, &lease(3600));
    wait_deleted(&client, &orphan(&client, "left"));
    create(&client, "/api/v1/namespaces", &json!({"metadata": {"name": "other"}}));
    client.poll("/api/v1/namespaces/other/configmaps/kube-root-ca.crt", |got| got.status == 200);
    let accounts = client.get("/api/v1/namespaces/other/serviceaccounts");
    assert_eq!(accounts.body["items"], json!([]));
    assert!(!server.keelson.defers_controllers());
    server.stop();
}
