//! The steps of the fake kubelet: pure functions of a pod.

use serde_json::{Value, json};

/// Annotation of a pod whose containers terminate by themselves: the exit code, or a
/// comma-separated one for each completion index of a Job. Pods without it run until they are
/// deleted.
pub const EXIT_CODES: &str = "testkit.keelson/exit-codes";
/// Annotation of a pod that never becomes ready.
pub const UNREADY: &str = "testkit.keelson/unready";
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// The next step for a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Wait until the pod changes.
    Wait,
    /// Apply this strategic merge patch to its status.
    Report(Value),
    /// The containers have terminated: delete the pod from the server.
    Remove,
}

/// Returns the next step for a pod with the address `ip` on a node with the address `host_ip`.
pub fn next_step(pod: &Value, ip: &str, host_ip: &str, now: &str) -> Step {
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    let is_deleted = pod["metadata"]["deletionTimestamp"].is_string();
    match phase {
        "Succeeded" | "Failed" if is_deleted => Step::Remove,
        "Succeeded" | "Failed" => Step::Wait,
        _ if is_deleted => Step::Report(terminated_status(pod, 0, now)),
        "Running" => match exit_code(pod) {
            Some(code) => Step::Report(terminated_status(pod, code, now)),
            None => Step::Wait,
        },
        _ => Step::Report(running_status(pod, ip, host_ip, now)),
    }
}

fn annotation<'p>(pod: &'p Value, name: &str) -> Option<&'p str> {
    pod["metadata"]["annotations"][name].as_str()
}

/// Returns the code with which the containers of a pod exit; `None` if they run until they are
/// deleted.
fn exit_code(pod: &Value) -> Option<i64> {
    let codes: Vec<&str> = annotation(pod, EXIT_CODES)?.split(',').collect();
    let index = annotation(pod, INDEX).and_then(|index| index.parse().ok()).unwrap_or(0);
    codes.get(index).or(codes.last())?.trim().parse().ok()
}

fn names(pod: &Value) -> impl Iterator<Item = (&Value, &Value)> {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    containers.map(|container| (&container["name"], &container["image"]))
}

fn conditions(pod: &Value, rows: &[(&str, bool, Option<&str>)], now: &str) -> Value {
    let generation = &pod["metadata"]["generation"];
    let condition = |(name, holds, reason): &(&str, bool, Option<&str>)| {
        let status = if *holds { "True" } else { "False" };
        json!({"type": name, "status": status, "reason": reason, "lastTransitionTime": now,
            "lastProbeTime": null, "observedGeneration": generation})
    };
    rows.iter().map(condition).collect()
}

fn running_status(pod: &Value, ip: &str, host_ip: &str, now: &str) -> Value {
    let is_ready = annotation(pod, UNREADY).is_none();
    let unready = (!is_ready).then_some("ContainersNotReady");
    let rows = [
        ("PodReadyToStartContainers", true, None),
        ("Initialized", true, None),
        ("Ready", is_ready, unready),
        ("ContainersReady", is_ready, unready),
    ];
    let statuses = names(pod).map(|(name, image)| {
        json!({"name": name, "image": image, "imageID": "sha256:0", "containerID": "testkit://0",
            "ready": is_ready, "started": true, "restartCount": 0, "state": {"running": {"startedAt": now}}})
    });
    json!({"metadata": {"uid": pod["metadata"]["uid"]}, "status": {
        "phase": "Running", "startTime": now, "hostIP": host_ip, "hostIPs": [{"ip": host_ip}],
        "podIP": ip, "podIPs": [{"ip": ip}], "observedGeneration": pod["metadata"]["generation"],
        "conditions": conditions(pod, &rows, now), "containerStatuses": statuses.collect::<Value>()}})
}

fn terminated_status(pod: &Value, code: i64, now: &str) -> Value {
    let (phase, reason) = if code == 0 { ("Succeeded", "Completed") } else { ("Failed", "Error") };
    let why = if code == 0 { "PodCompleted" } else { "PodFailed" };
    let rows = [
        ("PodReadyToStartContainers", false, None),
        ("Initialized", true, (code == 0).then_some(why)),
        ("Ready", false, Some(why)),
        ("ContainersReady", false, Some(why)),
    ];
    let statuses = names(pod).map(|(name, image)| {
        let terminated = json!({"exitCode": code, "reason": reason, "startedAt": now,
            "finishedAt": now, "containerID": "testkit://0"});
        json!({"name": name, "image": image, "imageID": "sha256:0", "containerID": "testkit://0",
            "ready": false, "started": false, "restartCount": 0,
            "state": {"running": null, "waiting": null, "terminated": terminated}})
    });
    json!({"metadata": {"uid": pod["metadata"]["uid"]}, "status": {
        "phase": phase, "conditions": conditions(pod, &rows, now),
        "containerStatuses": statuses.collect::<Value>()}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(phase: &str, annotations: Value, is_deleted: bool) -> Value {
        let deleted = is_deleted.then_some("2026-01-01T00:00:00Z");
        json!({"metadata": {"annotations": annotations, "deletionTimestamp": deleted},
            "spec": {"containers": [{"name": "c", "image": "i"}]}, "status": {"phase": phase}})
    }

    /// Returns the reported phase and exit code, or the step.
    fn step(pod: &Value) -> String {
        match next_step(pod, "10.0.0.1", "10.1.0.1", "2026-01-01T00:00:00Z") {
            Step::Report(patch) => {
                let code = &patch["status"]["containerStatuses"][0]["state"]["terminated"];
                format!("{} {}", patch["status"]["phase"], code["exitCode"])
            }
            step => format!("{step:?}"),
        }
    }

    #[test]
    fn a_pod_runs_until_it_exits_or_is_deleted() {
        let check = |phase, annotations: Value, is_deleted, want: &str| {
            assert_eq!(step(&pod(phase, annotations, is_deleted)), want);
        };
        let codes = |codes: &str, index: &str| json!({EXIT_CODES: codes, INDEX: index});
        check("Pending", json!({}), false, r#""Running" null"#);
        check("Running", json!({}), false, "Wait");
        check("Running", json!({EXIT_CODES: "0"}), false, r#""Succeeded" 0"#);
        check("Running", codes("0,3,0", "1"), false, r#""Failed" 3"#);
        check("Running", codes("0,3,0", "7"), false, r#""Succeeded" 0"#);
        check("Running", json!({}), true, r#""Succeeded" 0"#);
        check("Succeeded", json!({}), false, "Wait");
        check("Succeeded", json!({}), true, "Remove");
    }
}
