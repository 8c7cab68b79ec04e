//! What containers on simulated nodes are said to have logged: the lines of an annotation, and what
//! the simulation did, which its status says.

use crate::{SimulatedPorts, Simulation};
use keelson_meta::status::quote;
use keelson_meta::{Failure, Object, Status, Timestamp, Value};
use keelson_registry::hooks::{PodPort, PortHandler, SimulatedLog, SimulatedNodes};
use std::sync::Arc;

/// The annotation of a pod with the lines that its containers log when they start.
const LOG: &str = "simulation.keelson.dev/log";
/// The lists of containers in a pod's spec, and those of their statuses.
const CONTAINERS: [(&str, &str); 3] = [
    ("containers", "containerStatuses"),
    ("initContainers", "initContainerStatuses"),
    ("ephemeralContainers", "ephemeralContainerStatuses"),
];

/// Returns the nodes that this crate simulates.
pub fn simulated_nodes(simulation: &Simulation) -> Arc<dyn SimulatedNodes> {
    Arc::new(Nodes { ports: simulation.ports.clone() })
}

struct Nodes {
    ports: SimulatedPorts,
}

impl SimulatedNodes for Nodes {
    fn has(&self, node: &Object) -> bool {
        super::node::is_simulated(node)
    }

    fn log(&self, pod: &Object, container: &str, previous: bool) -> Result<SimulatedLog, Failure> {
        log(pod, container, previous)
    }

    fn has_ports(&self, pod: &Object) -> bool {
        self.ports.has_any(pod.namespace(), pod.name())
    }

    fn port(&self, port: &PodPort) -> Option<PortHandler> {
        self.ports.handler(port)
    }
}

/// Returns the log of a container. Fails with the messages of a kubelet.
fn log(pod: &Object, container: &str, previous: bool) -> Result<SimulatedLog, Failure> {
    let quoted = quote(container);
    let pod_name = quote(pod.name());
    let (spec, status) = find(pod, container);
    let waiting = |reason: &str| {
        let why = format!("container {quoted} in pod {pod_name} is waiting to start: {reason}");
        Status::bad_request(why)
    };
    let Some(status) = status else {
        return Err(Status::bad_request(format!(
            "container {quoted} in pod {pod_name} is not available"
        )));
    };
    let state = |list: &str, name: &str| status.at(&[list, name]).filter(|one| !one.is_null());
    if previous {
        let why = format!("previous terminated container {quoted} in pod {pod_name} not found");
        let last = state("lastState", "terminated").ok_or_else(|| Status::bad_request(why))?;
        return Ok(SimulatedLog { lines: ended(pod, spec, last), is_over: true });
    }
    if let Some(ended_state) = state("state", "terminated") {
        return Ok(SimulatedLog { lines: ended(pod, spec, ended_state), is_over: true });
    }
    if let Some(running) = state("state", "running") {
        return Ok(SimulatedLog { lines: began(pod, spec, running), is_over: false });
    }
    // Between two runs the log is that of the last one; nobody follows it to the next.
    if let Some(last) = state("lastState", "terminated") {
        return Ok(SimulatedLog { lines: ended(pod, spec, last), is_over: true });
    }
    let reason = status.str_at(&["state", "waiting", "reason"]);
    Err(waiting(reason.filter(|reason| !reason.is_empty()).unwrap_or("ContainerCreating")))
}

/// Returns spec and status of a container.
fn find<'p>(pod: &'p Object, container: &str) -> (Option<&'p Value>, Option<&'p Value>) {
    let named = |part: &str, list: &str| {
        let mut all = pod.array_at(&[part, list]).iter();
        all.find(|one| one.str_at(&["name"]) == Some(container))
    };
    let mut all =
        CONTAINERS.iter().map(|(spec, status)| (named("spec", spec), named("status", status)));
    all.find(|(spec, _)| spec.is_some()).unwrap_or_default()
}

fn time(state: &Value, name: &str) -> Timestamp {
    Timestamp::parse(state.str_at(&[name]).unwrap_or_default()).unwrap_or_default()
}

/// Returns what a container logs when it starts.
fn began(pod: &Object, spec: Option<&Value>, state: &Value) -> Vec<(Timestamp, String)> {
    let began = time(state, "startedAt");
    let mut lines = vec![];
    if let Some(text) = pod.annotation(LOG) {
        lines.extend(text.lines().map(|line| (began, line.to_owned())));
    }
    let command: Vec<String> = ["command", "args"]
        .iter()
        .flat_map(|name| {
            let words = spec.map(|spec| spec.array_at(&[name])).unwrap_or_default();
            words.iter().filter_map(Value::as_str).map(quote)
        })
        .collect();
    let what = match command.is_empty() {
        true => "the command of its image".to_owned(),
        false => command.join(" "),
    };
    let told = format!("[simulated] started; nothing runs, not even {what}");
    lines.push((began, told));
    lines
}

/// Returns what a container logs in the run that ended in a state.
fn ended(pod: &Object, spec: Option<&Value>, state: &Value) -> Vec<(Timestamp, String)> {
    let mut lines = began(pod, spec, state);
    let code = state.int_at(&["exitCode"]).unwrap_or_default();
    let reason = state.str_at(&["reason"]).unwrap_or_default();
    let told = format!("[simulated] ended with exit code {code} ({reason})");
    lines.push((time(state, "finishedAt"), told));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    /// Returns the lines, or the error.
    fn told(state: Value, last: Value, previous: bool) -> String {
        let pod = value!({
            "metadata": {"name": "p", "annotations": {"simulation.keelson.dev/log": "one\ntwo\n"}},
            "spec": {"containers": [{"name": "c", "command": ["sh", "-c"], "args": ["exit 3"]}]},
            "status": {"containerStatuses": [
                {"name": "c", "state": (state), "lastState": (last)}]}});
        let pod = Object::from_value(pod).expect("a pod");
        match log(&pod, "c", previous) {
            Ok(log) => {
                let lines: Vec<String> = log
                    .lines
                    .iter()
                    .map(|(time, line)| format!("{} {line}", &time.text()[14..19]))
                    .collect();
                format!("{} {}", log.is_over, lines.join(" | "))
            }
            Err(error) => error.message.to_string(),
        }
    }

    #[test]
    fn a_log_says_what_the_status_says() {
        let running = || value!({"running": {"startedAt": "2026-01-01T00:01:00Z"}});
        let ended = || {
            value!({"terminated": {"startedAt": "2026-01-01T00:02:00Z", "exitCode": 3,
                "finishedAt": "2026-01-01T00:03:00Z", "reason": "Error"}})
        };
        let waiting = || value!({"waiting": {"reason": "CrashLoopBackOff"}});
        let none = || value!({});
        let began = |at: &str| {
            format!(
                "{at} one | {at} two | {at} [simulated] started; nothing runs, not even \
                 \"sh\" \"-c\" \"exit 3\""
            )
        };
        let all = format!("{} | 03:00 [simulated] ended with exit code 3 (Error)", began("02:00"));
        assert_eq!(told(running(), none(), false), format!("false {}", began("01:00")));
        assert_eq!(told(ended(), none(), false), format!("true {all}"));
        assert_eq!(told(running(), ended(), true), format!("true {all}"));
        assert_eq!(told(waiting(), ended(), false), format!("true {all}"));
        let crash = "container \"c\" in pod \"p\" is waiting to start: CrashLoopBackOff";
        assert_eq!(told(waiting(), none(), false), crash);
        let no_previous = "previous terminated container \"c\" in pod \"p\" not found";
        assert_eq!(told(running(), none(), true), no_previous);
    }
}
