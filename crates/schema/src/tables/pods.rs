//! Pods: READY, STATUS and RESTARTS are computed from all containers, init containers first.

use super::column::{AGE, NAME, field, literal, string};
use super::row::{NONE, Row, condition, is_true};
use super::{Column, Printer};
use keelson_meta::{Object, Seen, Value, value};

const STATUS: &str = "io.k8s.api.core.v1.PodStatus";
const SPEC: &str = "io.k8s.api.core.v1.PodSpec";

const COLUMNS: &[Column] = &[
    NAME,
    string("Ready", literal("The number of ready containers and of all containers.")),
    string("Status", literal("The state of the pod.")),
    string(
        "Restarts",
        literal("The number of container restarts, and the time since the last one."),
    ),
    AGE,
    string("IP", field(STATUS, "podIP")).wide(),
    string("Node", field(SPEC, "nodeName")).wide(),
    string("Nominated Node", field(STATUS, "nominatedNodeName")).wide(),
    string("Readiness Gates", field(SPEC, "readinessGates")).wide(),
];

pub(super) static PRINTERS: &[Printer] =
    &[Printer { group: "", kind: "Pod", columns: COLUMNS, cells: pod }];

/// Returns the row condition of a pod that has ended; kubectl can hide such rows.
pub(super) fn row_conditions(obj: &Object) -> Vec<Value> {
    let (reason, message) = match obj.str_at(&["status", "phase"]) {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return vec![],
    };
    vec![value!({"type": "Completed", "status": "True", "reason": reason, "message": message})]
}

fn pod(row: &Row<'_>) -> Vec<Value> {
    let summary = Summary::of(row);
    vec![
        row.name(),
        format!("{}/{}", summary.ready, summary.total).into(),
        summary.reason.as_str().into(),
        summary.restarts.print(row).into(),
        row.age(),
        pod_ip(row),
        row.text_or(&["spec", "nodeName"], NONE),
        row.text_or(&["status", "nominatedNodeName"], NONE),
        readiness_gates(row).into(),
    ]
}

fn pod_ip(row: &Row<'_>) -> Value {
    let ips = row.array(&["status", "podIPs"]);
    let first = ips.first().and_then(|ip| ip.str_at(&["ip"]));
    // Older objects have only the single address.
    let ip = first.unwrap_or_else(|| row.str(&["status", "podIP"]));
    if ip.is_empty() { NONE.into() } else { ip.into() }
}

fn readiness_gates(row: &Row<'_>) -> String {
    let gates = row.array(&["spec", "readinessGates"]);
    if gates.is_empty() {
        return NONE.to_owned();
    }
    let conditions = row.array(&["status", "conditions"]);
    let met =
        |gate: &&Value| is_true(conditions, gate.str_at(&["conditionType"]).unwrap_or_default());
    format!("{}/{}", gates.iter().filter(met).count(), gates.len())
}

/// The restarts of containers, and the end of the last restarted one.
#[derive(Clone, Copy, Default)]
struct Restarts<'a> {
    count: i64,
    /// RFC 3339 in UTC, so that it compares as text; empty for never.
    last: &'a str,
}

impl<'a> Restarts<'a> {
    fn add(&mut self, status: &'a Value) {
        self.count += status.int_at(&["restartCount"]).unwrap_or(0);
        let ended = status.str_at(&["lastState", "terminated", "finishedAt"]).unwrap_or_default();
        self.last = self.last.max(ended);
    }

    fn print(self, row: &Row<'_>) -> String {
        if self.count == 0 || self.last.is_empty() {
            return self.count.to_string();
        }
        format!("{} ({} ago)", self.count, row.since(self.last))
    }
}

struct Summary<'a> {
    ready: usize,
    total: usize,
    reason: String,
    restarts: Restarts<'a>,
}

impl<'a> Summary<'a> {
    fn of(row: &Row<'a>) -> Self {
        let init = row.array(&["spec", "initContainers"]);
        let total = row.array(&["spec", "containers"]).len()
            + init.iter().filter(|container| is_restartable(container)).count();
        let mut summary =
            Summary { ready: 0, total, reason: phase_reason(row), restarts: Restarts::default() };
        let (initializing, of_sidecars) = summary.init_containers(row, init);
        let conditions = row.array(&["status", "conditions"]);
        if !initializing || is_true(conditions, "Initialized") {
            summary.restarts = of_sidecars;
            summary.containers(row, conditions);
        }
        if row.is_deleting() {
            if row.str(&["status", "reason"]) == "NodeLost" {
                summary.reason = "Unknown".to_owned();
            } else if !matches!(row.str(&["status", "phase"]), "Failed" | "Succeeded") {
                summary.reason = "Terminating".to_owned();
            }
        }
        summary
    }

    /// Visits the init containers up to the first one that is not done. Returns whether there is
    /// one, and the restarts of sidecar containers.
    fn init_containers(&mut self, row: &Row<'a>, specs: &[Value]) -> (bool, Restarts<'a>) {
        let mut of_sidecars = Restarts::default();
        let statuses = row.array(&["status", "initContainerStatuses"]);
        let sidecars: Seen<Option<&str>> =
            specs.iter().filter(|c| is_restartable(c)).map(|c| c.str_at(&["name"])).collect();
        for (index, status) in statuses.iter().enumerate() {
            self.restarts.add(status);
            let name = status.str_at(&["name"]);
            let sidecar = sidecars.contains(&name);
            if sidecar {
                of_sidecars.add(status);
            }
            let terminated = status.at(&["state", "terminated"]).filter(|state| !state.is_null());
            if terminated.is_some_and(|state| state.int_at(&["exitCode"]).unwrap_or(0) == 0) {
                continue;
            }
            if sidecar && status.get("started").and_then(Value::as_bool) == Some(true) {
                self.ready += usize::from(is_ready(status));
                continue;
            }
            let waiting = status.str_at(&["state", "waiting", "reason"]).unwrap_or_default();
            self.reason = match terminated {
                Some(state) => format!("Init:{}", ended_reason(state)),
                None if !waiting.is_empty() && waiting != "PodInitializing" => {
                    format!("Init:{waiting}")
                }
                None => format!("Init:{index}/{}", specs.len()),
            };
            return (true, of_sidecars);
        }
        (false, of_sidecars)
    }

    /// Visits the containers; the first one with a reason determines the status.
    fn containers(&mut self, row: &Row<'a>, conditions: &[Value]) {
        let mut has_running = false;
        for status in row.array(&["status", "containerStatuses"]).iter().rev() {
            self.restarts.add(status);
            let waiting = status.str_at(&["state", "waiting", "reason"]).unwrap_or_default();
            let state = |name| status.at(&["state", name]).filter(|state| !state.is_null());
            if !waiting.is_empty() {
                self.reason = waiting.to_owned();
            } else if let Some(terminated) = state("terminated") {
                self.reason = ended_reason(terminated);
            } else if is_ready(status) && state("running").is_some() {
                has_running = true;
                self.ready += 1;
            }
        }
        // A pod with an ended container still runs while another one does.
        if self.reason == "Completed" && has_running {
            let ready = is_true(conditions, "Ready");
            self.reason = if ready { "Running" } else { "NotReady" }.to_owned();
        }
    }
}

fn phase_reason(row: &Row<'_>) -> String {
    let gated = "SchedulingGated";
    let scheduled = condition(row.array(&["status", "conditions"]), "PodScheduled");
    if scheduled.and_then(|c| c.str_at(&["reason"])) == Some(gated) {
        return gated.to_owned();
    }
    match row.str(&["status", "reason"]) {
        "" => row.str(&["status", "phase"]).to_owned(),
        reason => reason.to_owned(),
    }
}

/// Returns why a container ended: its reason, the signal, or the exit code.
fn ended_reason(terminated: &Value) -> String {
    let reason = terminated.str_at(&["reason"]).unwrap_or_default();
    let signal = terminated.int_at(&["signal"]).unwrap_or(0);
    match (reason, signal) {
        ("", 0) => format!("ExitCode:{}", terminated.int_at(&["exitCode"]).unwrap_or(0)),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn is_ready(status: &Value) -> bool {
    status.get("ready").and_then(Value::as_bool) == Some(true)
}

/// Whether an init container is a sidecar (`restartPolicy: Always`).
fn is_restartable(container: &Value) -> bool {
    container.str_at(&["restartPolicy"]) == Some("Always")
}

#[cfg(test)]
mod tests {
    use super::super::tests::row;
    use super::*;

    fn check(spec: Value, status: Value, expected: &str) {
        let object = value!({"metadata": {"name": "p"}, "spec": (spec), "status": (status)});
        assert_eq!(row("", "Pod", object), format!("p | {expected}"));
    }

    #[test]
    fn a_new_pod_is_pending() {
        check(
            value!({"containers": [{"name": "a"}]}),
            value!({"phase": "Pending"}),
            "0/1 | Pending | 0 | <unknown> | <none> | <none> | <none> | <none>",
        );
    }

    #[test]
    fn reason_of_a_waiting_container_is_the_status() {
        check(
            value!({"containers": [{"name": "a"}], "nodeName": "n"}),
            value!({"phase": "Running", "podIPs": [{"ip": "10.1.1.1"}], "containerStatuses": [{
                "name": "a", "restartCount": 4,
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"finishedAt": "2024-01-01T00:00:00Z"}}
            }]}),
            "0/1 | CrashLoopBackOff | 4 (10m ago) | <unknown> | 10.1.1.1 | n | <none> | <none>",
        );
    }

    #[test]
    fn init_containers_come_first() {
        let spec = || {
            value!({"containers": [{"name": "a"}], "initContainers": [
                {"name": "i"}, {"name": "s", "restartPolicy": "Always"}, {"name": "j"}
            ]})
        };
        let rest = "<unknown> | <none> | <none> | <none> | <none>";
        check(
            spec(),
            value!({"phase": "Pending", "initContainerStatuses": [
                {"name": "i", "state": {"terminated": {"exitCode": 0}}},
                {"name": "s", "started": true, "ready": true, "restartCount": 2,
                    "state": {"running": {}}},
                {"name": "j", "state": {"waiting": {"reason": "PodInitializing"}}}
            ]}),
            &format!("1/2 | Init:2/3 | 2 | {rest}"),
        );
        check(
            spec(),
            value!({"phase": "Pending", "initContainerStatuses": [
                {"name": "i", "state": {"terminated": {"exitCode": 3}}}
            ]}),
            &format!("0/2 | Init:ExitCode:3 | 0 | {rest}"),
        );
        check(
            spec(),
            value!({"phase": "Running", "initContainerStatuses": [
                {"name": "i", "restartCount": 7, "state": {"terminated": {"exitCode": 0}}},
                {"name": "s", "started": true, "ready": true, "restartCount": 2,
                    "state": {"running": {}}},
                {"name": "j", "state": {"terminated": {"exitCode": 0}}}
            ], "containerStatuses": [
                {"name": "a", "ready": true, "restartCount": 1, "state": {"running": {}}}
            ]}),
            &format!("2/2 | Running | 3 | {rest}"),
        );
    }

    #[test]
    fn pod_is_running_while_one_container_runs() {
        let statuses = || {
            value!([
                {"name": "a", "state": {"terminated": {"reason": "Completed"}}},
                {"name": "b", "ready": true, "state": {"running": {}}}
            ])
        };
        let spec = || value!({"containers": [{"name": "a"}, {"name": "b"}]});
        let rest = "0 | <unknown> | <none> | <none> | <none> | <none>";
        check(
            spec(),
            value!({"phase": "Running", "containerStatuses": (statuses())}),
            &format!("1/2 | NotReady | {rest}"),
        );
        check(
            spec(),
            value!({"phase": "Running", "containerStatuses": (statuses()),
                "conditions": [{"type": "Ready", "status": "True"}]}),
            &format!("1/2 | Running | {rest}"),
        );
    }

    #[test]
    fn readiness_gates_and_exit_reasons_are_shown() {
        let rest = "0 | <unknown> | <none> | <none> | <none>";
        check(
            value!({"containers": [{"name": "a"}], "readinessGates": [
                {"conditionType": "x/a"}, {"conditionType": "x/b"}
            ]}),
            value!({"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"},
                {"type": "x/a", "status": "True"}
            ]}),
            &format!("0/1 | SchedulingGated | {rest} | 1/2"),
        );
        check(
            value!({"containers": [{"name": "a"}]}),
            value!({"phase": "Running", "containerStatuses": [
                {"name": "a", "state": {"terminated": {"signal": 9, "exitCode": 137}}}
            ]}),
            &format!("0/1 | Signal:9 | {rest} | <none>"),
        );
    }

    #[test]
    fn a_pod_in_deletion_is_terminating_until_it_ends() {
        let status = |phase: &str, reason: &str| {
            let object = value!({
                "metadata": {"name": "p", "deletionTimestamp": "2024-01-01T00:00:00Z"},
                "status": {"phase": phase, "reason": reason}
            });
            row("", "Pod", object).split(" | ").nth(2).unwrap_or_default().to_owned()
        };
        assert_eq!(status("Running", ""), "Terminating");
        assert_eq!(status("Running", "NodeLost"), "Unknown");
        assert_eq!(status("Failed", "Evicted"), "Evicted");
    }

    #[test]
    fn ended_pods_have_a_row_condition() {
        let object = |phase: &str| {
            Object::from_value(value!({"status": {"phase": phase}})).unwrap_or_default()
        };
        assert_eq!(
            row_conditions(&object("Failed")),
            [value!({"type": "Completed", "status": "True", "reason": "Failed",
                "message": "The pod failed."})]
        );
        assert!(row_conditions(&object("Running")).is_empty());
    }
}
