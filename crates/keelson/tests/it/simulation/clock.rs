//! The time of a simulated cluster, which a test steps and scales.

use super::start;
use crate::controllers::{MERGE, create, settle, wait_deleted};
use crate::ephemeral::{Ephemeral, keelson};
use crate::http::{Client, Server};
use keelson::{Clock, Simulation, SteppedClock};
use serde_json::{Value, json};
use std::path::Path;

const STATUS: &str = "/keelson/simulation";
const CLOCK: &str = "/keelson/simulation/clock";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

/// Starts a server without nodes, and returns its clock, too.
fn without_nodes() -> (Server, SteppedClock) {
    start(Simulation { nodes: 0, ..Simulation::default() })
}

/// Creates a Job that has finished at `time`, and is deleted a day later.
fn finished_job(client: &Client, name: &str, time: &str) {
    let template = json!({"spec": {"restartPolicy": "Never",
        "containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"ttlSecondsAfterFinished": 86_400, "suspend": true, "template": template});
    create(client, JOBS, &json!({"metadata": {"name": name}, "spec": spec}));
    let condition =
        |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": time});
    let conditions = [condition("SuccessCriteriaMet"), condition("Complete")];
    let status = json!({"startTime": time, "completionTime": time, "succeeded": 1,
        "conditions": conditions});
    let path = format!("{JOBS}/{name}/status");
    let patched = client.call("PATCH", &path, MERGE, Some(&json!({"status": status})));
    assert_eq!(patched.status, 200, "{patched:?}");
}

#[test]
fn what_waits_for_a_day_happens_when_the_clock_is_stepped() {
    let (server, clock) = without_nodes();
    let client = server.client();
    let job = format!("{JOBS}/done");
    finished_job(&client, "done", &clock.now().text());
    let stepped = client.post(&format!("{CLOCK}?step=23h"), &Value::Null);
    assert_eq!(stepped.status, 200, "{stepped:?}");
    settle(&client);
    assert_eq!(client.get(&job).status, 200);
    clock.step(std::time::Duration::from_secs(3600));
    wait_deleted(&client, &job);
    // Objects have the time of the cluster, too.
    finished_job(&client, "next", &clock.now().text());
    let created = client.get(&format!("{JOBS}/next")).body["metadata"]["creationTimestamp"].clone();
    assert!(created.as_str() > stepped.body["time"].as_str(), "{created}");
    let scaled = client.post(&format!("{CLOCK}?rate=10000"), &Value::Null);
    assert_eq!(scaled.body["rate"], 10000.0);
    clock.step(std::time::Duration::from_secs(80_000));
    wait_deleted(&client, &format!("{JOBS}/next"));
    server.stop();
}

#[test]
fn only_sensible_times_are_taken() {
    let (server, _) = without_nodes();
    let client = server.client();
    for query in ["", "?step=-1s", "?step=soon", "?rate=0", "?rate=NaN", "?rate=1&step=x", "?by=1s"]
    {
        let refused = client.post(&format!("{CLOCK}{query}"), &Value::Null);
        assert_eq!(refused.status, 400, "{query}: {refused:?}");
    }
    assert_eq!(client.get(STATUS).body["rate"], 1.0);
    assert_eq!(client.get(CLOCK).status, 404);
    server.stop();
}

/// Runs `keelson simulation` and returns its output, or its errors.
fn simulation(kubeconfig: &Path, arguments: &[&str]) -> Result<String, String> {
    let mut command = keelson(&["simulation"]);
    let output =
        command.args(arguments).arg("--kubeconfig").arg(kubeconfig).output().expect("a process");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[test]
fn the_command_asks_the_server_that_simulates() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("kubeconfig");
    let _server = Ephemeral::start(&path, &["--simulate", "--simulate-nodes=0"]);
    let before = simulation(&path, &["status", "-o", "json"]).expect("a status");
    let before: Value = serde_json::from_str(&before).expect("JSON");
    assert_eq!((&before["rate"], &before["nodes"]), (&json!(1), &json!(0)));
    simulation(&path, &["step", "240h"]).expect("a step");
    let after = simulation(&path, &["rate", "2.5"]).expect("a rate");
    assert!(after.contains("2.5 seconds"), "{after}");
    assert!(after.as_str() > before["time"].as_str().expect("a time"), "{after}");
    let error = simulation(&path, &["step", "soon"]).expect_err("no duration");
    assert!(error.contains("DURATION"), "{error}");
}

#[test]
fn the_command_says_when_the_server_simulates_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("kubeconfig");
    let _server = Ephemeral::start(&path, &[]);
    let error = simulation(&path, &["status"]).expect_err("no simulation");
    assert!(error.contains("started without --simulate"), "{error}");
}
