//! DaemonSets of a simulated cluster, when nodes are tainted.

use super::start;
use crate::controllers::{MERGE, create};
use crate::http::Client;
use keelson::Simulation;
use serde_json::{Value, json};

const NODE: &str = "/api/v1/nodes/keelson-node-0";
const SETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";

fn daemon_set(name: &str, selector: Value) -> Value {
    let labels = json!({"app": name});
    let spec = json!({"nodeSelector": selector, "containers": [{"name": "c", "image": "i"}]});
    let template = json!({"metadata": {"labels": labels}, "spec": spec});
    let spec = json!({"selector": {"matchLabels": labels}, "template": template});
    json!({"metadata": {"name": name}, "spec": spec})
}

fn patch(client: &Client, path: &str, patch: &Value) {
    assert_eq!(client.call("PATCH", path, MERGE, Some(patch)).status, 200, "{path}");
}

/// Whether a set reports these numbers of nodes: wanted, and misplaced.
fn has_counts(set: &Value, wanted: u64, misplaced: u64) -> bool {
    let status = &set["status"];
    status["desiredNumberScheduled"] == wanted
        && status["numberMisscheduled"] == misplaced
        && status["numberAvailable"].as_u64().unwrap_or(0) == wanted
}

fn wait_for_counts(client: &Client, name: &str, wanted: u64, misplaced: u64) {
    client.poll(&format!("{SETS}/{name}"), |got| has_counts(&got.body, wanted, misplaced));
}

/// As with kube-controller-manager 1.36.3.
#[test]
fn a_pod_that_may_stay_on_a_tainted_node_is_misplaced_with_the_next_change() {
    let (server, _) = start(Simulation::default());
    let client = server.client();
    client.poll(NODE, |got| got.status == 200);
    patch(&client, NODE, &json!({"metadata": {"labels": {"visitors": "yes"}}}));
    create(&client, SETS, &daemon_set("stays", json!({})));
    create(&client, SETS, &daemon_set("leaves", json!({"visitors": "yes"})));
    wait_for_counts(&client, "stays", 1, 0);
    wait_for_counts(&client, "leaves", 1, 0);
    let taints = json!([{"key": "t", "effect": "NoSchedule"}]);
    let change = json!({"metadata": {"labels": {"visitors": null}}, "spec": {"taints": taints}});
    patch(&client, NODE, &change);
    wait_for_counts(&client, "leaves", 0, 0);
    let stays = client.get(&format!("{SETS}/stays")).body;
    assert!(has_counts(&stays, 1, 0), "{:#}", stays["status"]);
    let note = json!({"metadata": {"annotations": {"note": "1"}}});
    patch(&client, &format!("{SETS}/stays"), &note);
    wait_for_counts(&client, "stays", 0, 1);
    patch(&client, NODE, &json!({"spec": {"taints": null}}));
    wait_for_counts(&client, "stays", 1, 0);
    server.stop();
}
