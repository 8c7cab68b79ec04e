//! Phase and conditions of a pod, as a kubelet derives them from the states of its containers.

use super::container::{Container, Role, State};
use keelson_meta::{Map, Object, Timestamp, Value};

/// Returns the phase. `is_stopped`: the pod was stopped, so that no container starts again.
pub fn phase(
    pod: &Object,
    containers: &[Container<'_>],
    is_stopped: bool,
    now: Timestamp,
) -> &'static str {
    let never = pod.str_at(&["spec", "restartPolicy"]) == "Never";
    let of = |role: Role| containers.iter().filter(move |one| one.role == role);
    let mut pending_init = 0;
    let mut failed_init = 0;
    for one in of(Role::Init) {
        match (&one.state, &one.last) {
            (State::Terminated(ended), _) => failed_init += i32::from(ended.code != 0),
            (State::Waiting { .. }, Some(last)) => failed_init += i32::from(last.code != 0),
            _ => pending_init += 1,
        }
    }
    let has_initialized = of(Role::Main).any(|one| !one.is_new());
    let mut running = 0;
    let mut waiting = 0;
    let mut stopped = 0;
    let mut succeeded = 0;
    let mut failed = 0;
    let mut pending_sidecars = 0;
    for one in of(Role::Sidecar) {
        if one.is_running() {
            running += 1;
            pending_sidecars += i32::from(!one.is_started(now));
        } else if one.is_new() {
            waiting += 1;
            pending_sidecars += 1;
        }
    }
    for one in of(Role::Main) {
        match &one.state {
            State::Running { .. } => running += 1,
            State::Waiting { .. } if one.last.is_none() => waiting += 1,
            State::Waiting { .. } => stopped += 1,
            State::Terminated(ended) => {
                stopped += 1;
                succeeded += i32::from(ended.code == 0);
                failed += i32::from(ended.code != 0 && !one.restarts_after(ended.code));
            }
        }
    }
    if failed_init > 0 && never {
        return "Failed";
    }
    if pending_init > 0 || failed_init > 0 || (pending_sidecars > 0 && !has_initialized) {
        return "Pending";
    }
    // A sidecar that waits does not hold back containers that have started.
    if waiting > 0 {
        return "Pending";
    }
    let main = of(Role::Main).count();
    let is_over = stopped == i32::try_from(main).unwrap_or(i32::MAX)
        && of(Role::Main)
            .all(|one| one.exit_code().is_some_and(|code| is_stopped || !one.restarts_after(code)));
    match () {
        () if is_over && stopped == succeeded => "Succeeded",
        () if is_over && (failed > 0 || is_stopped) => "Failed",
        () if running > 0 || stopped > 0 => "Running",
        () => "Pending",
    }
}

/// A condition: type, whether it holds, reason and message.
struct Row {
    name: &'static str,
    holds: bool,
    reason: &'static str,
    message: String,
}

impl Row {
    fn new(name: &'static str, holds: bool) -> Row {
        Row { name, holds, reason: "", message: String::new() }
    }
}

/// Returns the conditions of a pod: those of a kubelet, with the times of unchanged ones, and after
/// them those that others wrote.
pub fn conditions(
    pod: &Object,
    containers: &[Container<'_>],
    phase: &str,
    has_sandbox: bool,
    now: Timestamp,
) -> Vec<Value> {
    let containers_ready = containers_ready(containers, phase, now);
    let rows = [
        Row::new("PodReadyToStartContainers", has_sandbox),
        initialized(containers, phase, now),
        ready(pod, &containers_ready),
        containers_ready,
        Row::new("PodScheduled", true),
    ];
    let old = pod.array_at(&["status", "conditions"]);
    let mut new: Vec<Value> = rows.iter().map(|row| condition(pod, row, old, now)).collect();
    let is_own = |one: &&Value| rows.iter().any(|row| one.str_at(&["type"]) == Some(row.name));
    new.extend(old.iter().filter(|one| !is_own(one)).cloned());
    new
}

fn condition(pod: &Object, row: &Row, old: &[Value], now: Timestamp) -> Value {
    let status = if row.holds { "True" } else { "False" };
    let known = old.iter().find(|one| one.str_at(&["type"]) == Some(row.name));
    let since = known
        .filter(|known| known.str_at(&["status"]) == Some(status))
        .and_then(|known| known.get("lastTransitionTime").cloned());
    let mut condition = Map::new();
    condition.insert("type", row.name);
    if pod.generation() > 0 {
        condition.insert("observedGeneration", pod.generation());
    }
    condition.insert("status", status);
    condition.insert("lastProbeTime", Value::Null);
    condition.insert("lastTransitionTime", since.unwrap_or_else(|| now.text().into()));
    if !row.reason.is_empty() {
        condition.insert("reason", row.reason);
    }
    if !row.message.is_empty() {
        condition.insert("message", row.message.as_str());
    }
    condition.into()
}

fn names(containers: &[&Container<'_>]) -> String {
    let names: Vec<&str> = containers.iter().map(|one| one.name()).collect();
    names.join(" ")
}

fn initialized(containers: &[Container<'_>], phase: &str, now: Timestamp) -> Row {
    let mut row = Row::new("Initialized", true);
    let has_started = containers.iter().any(|one| one.role == Role::Main && !one.is_new());
    let is_incomplete = |one: &&Container<'_>| match one.role {
        Role::Init => one.exit_code() != Some(0),
        Role::Sidecar => !one.is_started(now) && one.exit_code().is_none(),
        Role::Main | Role::Ephemeral => false,
    };
    let incomplete: Vec<&Container<'_>> = containers.iter().filter(is_incomplete).collect();
    if phase == "Succeeded" {
        row.reason = "PodCompleted";
    } else if !has_started && !incomplete.is_empty() {
        row.holds = false;
        row.reason = "ContainersNotInitialized";
        row.message = format!("containers with incomplete status: [{}]", names(&incomplete));
    }
    row
}

fn containers_ready(containers: &[Container<'_>], phase: &str, now: Timestamp) -> Row {
    let mut row = Row::new("ContainersReady", true);
    let is_unready =
        |one: &&Container<'_>| matches!(one.role, Role::Sidecar | Role::Main) && !one.is_ready(now);
    let unready: Vec<&Container<'_>> = containers.iter().filter(is_unready).collect();
    match phase {
        "Succeeded" => (row.holds, row.reason) = (false, "PodCompleted"),
        "Failed" => (row.holds, row.reason) = (false, "PodFailed"),
        _ if !unready.is_empty() => {
            (row.holds, row.reason) = (false, "ContainersNotReady");
            row.message = format!("containers with unready status: [{}]", names(&unready));
        }
        _ => {}
    }
    row
}

fn ready(pod: &Object, containers_ready: &Row) -> Row {
    let mut row = Row::new("Ready", containers_ready.holds);
    if !containers_ready.holds {
        row.reason = containers_ready.reason;
        row.message.clone_from(&containers_ready.message);
        return row;
    }
    let conditions = pod.array_at(&["status", "conditions"]);
    let mut unmet = vec![];
    for gate in pod.array_at(&["spec", "readinessGates"]) {
        let name = gate.str_at(&["conditionType"]).unwrap_or_default();
        let known = conditions.iter().find(|one| one.str_at(&["type"]) == Some(name));
        match known.map(|known| known.str_at(&["status"]).unwrap_or_default()) {
            None => unmet.push(format!(
                "corresponding condition of pod readiness gate {name:?} does not exist."
            )),
            Some("True") => {}
            Some(status) => unmet.push(format!(
                "the status of pod readiness gate {name:?} is not \"True\", but {status}"
            )),
        }
    }
    if !unmet.is_empty() {
        (row.holds, row.reason, row.message) = (false, "ReadinessGatesNotReady", unmet.join(", "));
    }
    row
}
