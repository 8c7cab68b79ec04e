//! The control loops of a server of its own, without a kube-controller-manager.

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

/// A server with all loops; pods need no service account.
pub fn with_controllers() -> Server {
    let off = ["ServiceAccount".to_owned()];
    let admission = AdmissionChain::new(&[], &off).expect("there is such a plug-in");
    Server::start_plain(Builder { admission, ..Keelson::builder() })
}

/// Makes an object; its uid.
pub fn make(client: &Client, path: &str, object: &Value) -> String {
    let made = client.post(path, object);
    assert_eq!(made.status, 201, "{made:?}");
    made.body["metadata"]["uid"].as_str().expect("a uid").to_owned()
}

/// A reference to a ConfigMap.
pub fn owned_by(name: &str, uid: &str, blocks: bool) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid,
        "blockOwnerDeletion": blocks})
}

/// A ConfigMap, or whatever has no more than metadata, with owners.
pub fn dependent(name: &str, owners: &[Value]) -> Value {
    json!({"metadata": {"name": name, "ownerReferences": owners}})
}

/// Deletes an object as a policy says.
pub fn delete(client: &Client, path: &str, policy: &str) {
    let deleted = client.delete(&format!("{path}?propagationPolicy={policy}"));
    assert_eq!(deleted.status, 200, "{deleted:?}");
}

/// Waits until an object is gone.
pub fn gone(client: &Client, path: &str) {
    client.poll(path, |answer| answer.status == 404);
}

/// Waits until all loops have taken in what was written before: an object without an owner is collected only
/// after what came before it was looked at.
pub fn settle(client: &Client) {
    let owner = owned_by("nobody", "00000000-0000-0000-0000-000000000000", false);
    make(client, MAPS, &dependent("settle", &[owner]));
    gone(client, &format!("{MAPS}/settle"));
}

/// Polls until a condition holds.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + POLL_TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}
