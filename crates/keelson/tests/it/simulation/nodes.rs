//! Simulated nodes, when time is stepped and when they fail.

use super::start;
use crate::controllers::{MERGE, create, settle};
use crate::http::Client;
use keelson::Simulation;
use serde_json::json;
use std::time::Duration;

const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn in_state(client: &Client, node: &str, ready: &str) {
    client.poll(&format!("{NODES}/{node}"), |got| {
        let conditions = got.body["status"]["conditions"].as_array().into_iter().flatten();
        conditions.into_iter().any(|one| one["type"] == "Ready" && one["status"] == ready)
    });
}

#[test]
fn a_step_of_the_clock_loses_the_nodes_that_have_no_power_and_no_other() {
    let (server, clock) = start(Simulation { nodes: 3, ..Simulation::default() });
    let client = server.client();
    let names = ["keelson-node-0", "keelson-node-1", "keelson-node-2"];
    names.iter().for_each(|name| in_state(&client, name, "True"));
    let failed = json!({"metadata": {"annotations": {"simulation.keelson.dev/failed": "true"}}});
    let path = format!("{NODES}/{}", names[1]);
    assert_eq!(client.call("PATCH", &path, MERGE, Some(&failed)).status, 200);
    settle(&client);
    for _ in 0..3 {
        clock.step(Duration::from_secs(86_400));
        in_state(&client, names[1], "Unknown");
    }
    let events = client.get("/api/v1/namespaces/default/events?fieldSelector=reason=NodeNotReady");
    let lost: Vec<_> = events.body["items"].as_array().into_iter().flatten().collect();
    let of = |event: &&serde_json::Value| event["involvedObject"]["name"] != names[1];
    assert!(!lost.iter().any(of), "{lost:#?}");
    let back = json!({"metadata": {"annotations": {"simulation.keelson.dev/failed": null}}});
    assert_eq!(client.call("PATCH", &path, MERGE, Some(&back)).status, 200);
    in_state(&client, names[1], "True");
    server.stop();
}

/// A kubelet refuses a pod that was bound to it past the scheduler and asks for other labels.
#[test]
fn a_node_refuses_a_pod_that_asks_for_another_node() {
    let (server, _) = start(Simulation::default());
    let client = server.client();
    in_state(&client, "keelson-node-0", "True");
    for (name, hostname) in [("here", "keelson-node-0"), ("elsewhere", "other")] {
        let selector = json!({"kubernetes.io/hostname": hostname});
        let spec = json!({"nodeName": "keelson-node-0", "nodeSelector": selector,
            "containers": [{"name": "c", "image": "i"}]});
        create(&client, PODS, &json!({"metadata": {"name": name}, "spec": spec}));
    }
    client.poll(&format!("{PODS}/here"), |got| got.body["status"]["phase"] == "Running");
    client.poll(&format!("{PODS}/elsewhere"), |got| got.body["status"]["phase"] == "Failed");
    let refused = client.get(&format!("{PODS}/elsewhere")).body["status"].clone();
    assert_eq!(refused["reason"], "NodeAffinity");
    assert_eq!(
        refused["message"],
        "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node \
         affinity/selector"
    );
    server.stop();
}
