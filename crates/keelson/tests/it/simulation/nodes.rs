//! Simulated nodes, when time is stepped and when they fail.

use super::start;
use crate::controllers::{MERGE, settle};
use crate::http::Client;
use keelson::Simulation;
use serde_json::json;
use std::time::Duration;

const NODES: &str = "/api/v1/nodes";

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
