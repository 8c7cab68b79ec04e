//! Logs of pods on simulated nodes, and what cannot be done with them.

use super::start;
use crate::controllers::create;
use crate::http::Client;
use keelson::Simulation;
use serde_json::json;
use std::io::Read;

const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod(client: &Client, name: &str, command: &[&str]) {
    let containers = json!([{"name": "c", "image": "i", "command": command}]);
    let annotations = json!({"simulation.keelson.dev/log": "hello\nworld"});
    let spec = json!({"restartPolicy": "Never", "containers": containers});
    let metadata = json!({"name": name, "annotations": annotations});
    create(client, PODS, &json!({"metadata": metadata, "spec": spec}));
}

fn in_phase(client: &Client, name: &str, phase: &str) {
    client.poll(&format!("{PODS}/{name}"), |got| got.body["status"]["phase"] == phase);
}

fn log(client: &Client, query: &str) -> String {
    let (media_type, mut body) = client.stream(&format!("{PODS}/p/log{query}"), "");
    assert_eq!(media_type, "text/plain");
    let mut text = String::new();
    body.read_to_string(&mut text).expect("text");
    text
}

#[test]
fn a_log_says_what_the_simulation_did_and_ends_with_the_container() {
    let (server, clock) = start(Simulation::default());
    let client = server.client();
    pod(&client, "p", &["sleep", "3600"]);
    in_phase(&client, "p", "Running");
    let began = "hello\nworld\n[simulated] started; nothing runs, not even \"sleep\" \"3600\"\n";
    assert_eq!(log(&client, ""), began);
    assert_eq!(log(&client, "?tailLines=1&limitBytes=11"), "[simulated]");
    let follower = server.client();
    let following = std::thread::spawn(move || log(&follower, "?follow=1"));
    clock.step(std::time::Duration::from_secs(3601));
    let all = following.join().expect("a log");
    assert_eq!(all, format!("{began}[simulated] ended with exit code 0 (Completed)\n"));
    server.stop();
}

#[test]
fn nothing_connects_to_a_simulated_node() {
    let (server, _) = start(Simulation::default());
    let client = server.client();
    pod(&client, "p", &["sleep", "3600"]);
    in_phase(&client, "p", "Running");
    let why = "node \"keelson-node-0\" is simulated: no container runs on it, so there is nothing \
               to connect to; logs say what the simulation did";
    let node = "/api/v1/nodes/keelson-node-0/proxy/pods";
    for path in [&format!("{PODS}/p/exec?command=ls&stdout=1"), &format!("{PODS}/p/proxy/"), node] {
        let refused = client.get(path);
        assert_eq!((refused.status, &refused.body["message"]), (400, &why.into()), "{path}");
    }
    server.stop();
}
