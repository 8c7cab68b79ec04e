//! The server's own controllers, without kube-controller-manager.

mod certificates;
mod chaos;
mod controller_manager_lease;
mod garbage;
mod identity;
mod policy_types;
mod storage_versions;
mod tokens;
mod workloads;

use crate::http::{Client, POLL_TIMEOUT, Server};
use keelson::{AdmissionChain, Builder, Keelson};
use serde_json::{Value, json};
use std::time::Instant;

pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub const MERGE: &str = "application/merge-patch+json";

/// A server with all controllers; Pods need no service account.
pub fn with_controllers() -> Server {
    with_controllers_and(|_| {})
}

/// The same, with a change of its configuration.
pub fn with_controllers_and(change: impl FnOnce(&mut Builder)) -> Server {
    let off = ["ServiceAccount".to_owned()];
    let admission = AdmissionChain::new(&[], &off).expect("there is such a plug-in");
    let mut builder = Keelson::builder().with(|builder| builder.admission.chain = admission);
    change(&mut builder);
    Server::start_plain(builder)
}

/// Creates an object. Returns its uid.
pub fn create(client: &Client, path: &str, object: &Value) -> String {
    let made = client.post(path, object);
    assert_eq!(made.status, 201, "{made:?}");
    made.body["metadata"]["uid"].as_str().expect("a uid").to_owned()
}

/// Returns an owner reference to a ConfigMap.
pub fn owned_by(name: &str, uid: &str, blocks: bool) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid,
        "blockOwnerDeletion": blocks})
}

/// Returns an object with owners, without further fields.
pub fn dependent(name: &str, owners: &[Value]) -> Value {
    json!({"metadata": {"name": name, "ownerReferences": owners}})
}

/// Deletes an object with a propagation policy.
pub fn delete(client: &Client, path: &str, policy: &str) {
    let deleted = client.delete(&format!("{path}?propagationPolicy={policy}"));
    assert_eq!(deleted.status, 200, "{deleted:?}");
}

/// Waits until an object does not exist.
pub fn wait_deleted(client: &Client, path: &str) {
    client.poll(path, |answer| answer.status == 404);
}

/// Waits until the garbage collector has processed all earlier writes: it collects an object with
/// an absent owner only after them.
pub fn settle(client: &Client) {
    let owner = owned_by("nobody", "00000000-0000-0000-0000-000000000000", false);
    create(client, MAPS, &dependent("settle", &[owner]));
    wait_deleted(client, &format!("{MAPS}/settle"));
}

/// Polls until a condition holds.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + POLL_TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}
