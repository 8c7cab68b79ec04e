//! [`step`]: the next status of a pod on a simulated node, a pure function of the pod and the time.

use super::container::{Container, Effects, Role};
use super::events::PodEvent;
use super::needs::Needs;
use super::pod_facts::{Rejection, Started};
use super::script::{self, Ending};
use super::{after, behavior, conditions};
use keelson_meta::{Map, Object, Str, Timestamp, Value, value};
use std::time::Duration;

/// What a node knows besides the pod.
pub struct Surroundings<'a> {
    pub now: Timestamp,
    pub host_ips: &'a [Str],
    /// The address that the pod has or gets.
    pub pod_ip: Option<&'a str>,
    pub needs: &'a Needs,
    pub rejection: Option<&'a Rejection>,
    pub started: &'a Started,
}

/// What happens to a pod.
#[derive(Debug, Default, PartialEq)]
pub struct Outcome {
    /// The new status; `None`: it stays.
    pub status: Option<Value>,
    pub events: Vec<PodEvent>,
    /// When the next step is due without a change of the pod.
    pub wake: Option<Timestamp>,
    /// Whether the pod has ended and is to be removed from the server.
    pub is_removed: bool,
    /// Times to remember.
    pub started: Started,
}

/// Returns what happens to a pod now.
pub fn step(pod: &Object, surroundings: &Surroundings<'_>) -> Outcome {
    let is_deleted = pod.deletion_timestamp().is_some();
    let is_accepted = !pod.str_at(&["status", "startTime"]).is_empty();
    match pod.str_at(&["status", "phase"]) {
        "Succeeded" | "Failed" => return Outcome { is_removed: is_deleted, ..Outcome::default() },
        _ if is_deleted && !is_accepted => {
            return Outcome { is_removed: true, ..Outcome::default() };
        }
        _ => {}
    }
    if let Some(rejection) = surroundings.rejection.filter(|_| !is_accepted) {
        return rejected(pod, rejection, surroundings.now);
    }
    let mut life = Life::of(pod, surroundings);
    life.run();
    life.outcome()
}

fn rejected(pod: &Object, rejection: &Rejection, now: Timestamp) -> Outcome {
    let mut status = pod.get("status").and_then(Value::as_object).cloned().unwrap_or_default();
    status.insert("phase", "Failed");
    status.insert("reason", rejection.reason.as_str());
    status.insert("message", format!("Pod was rejected: {}", rejection.message));
    status.insert("startTime", now.text());
    if pod.generation() > 0 {
        status.insert("observedGeneration", pod.generation());
    }
    Outcome { status: Some(status.into()), ..Outcome::default() }
}

/// A pod on its way to its next status.
struct Life<'a> {
    pod: &'a Object,
    surroundings: &'a Surroundings<'a>,
    containers: Vec<Container<'a>>,
    effects: Effects,
    /// Whether there is a sandbox with an address.
    has_sandbox: bool,
    is_stopped: bool,
    is_removed: bool,
    /// Reason and message of a pod that the node stopped.
    stopped_for: Option<(&'static str, &'static str)>,
}

impl<'a> Life<'a> {
    fn of(pod: &'a Object, surroundings: &'a Surroundings<'a>) -> Life<'a> {
        let roles = [
            ("initContainers", Role::Init),
            ("containers", Role::Main),
            ("ephemeralContainers", Role::Ephemeral),
        ];
        let containers: Vec<Container<'a>> = roles
            .into_iter()
            .flat_map(|(field, role)| {
                pod.array_at(&["spec", field]).iter().map(move |spec| {
                    let is_sidecar =
                        role == Role::Init && spec.str_at(&["restartPolicy"]) == Some("Always");
                    let role = if is_sidecar { Role::Sidecar } else { role };
                    Container::of(pod, spec, role, surroundings.started)
                })
            })
            .collect();
        let has_sandbox = containers.iter().any(|one| !one.is_new());
        Life {
            pod,
            surroundings,
            containers,
            effects: Effects::default(),
            has_sandbox,
            is_stopped: false,
            is_removed: false,
            stopped_for: None,
        }
    }

    /// Returns when the node accepted the pod.
    fn accepted(&self) -> Timestamp {
        let exact = self.surroundings.started.get("").copied();
        let known = Timestamp::parse(self.pod.str_at(&["status", "startTime"])).ok();
        exact.or(known).unwrap_or(self.surroundings.now)
    }

    fn run(&mut self) {
        let now = self.surroundings.now;
        if let Some(deleted) = self.pod.deletion_timestamp() {
            let latest = Timestamp::parse(deleted).unwrap_or(now);
            let end = self.termination_time(latest);
            if end > now {
                return self.effects.wake_at(end);
            }
            self.stop(now);
            self.is_removed = true;
            return;
        }
        if let Some(seconds) = self.pod.int_at(&["spec", "activeDeadlineSeconds"]) {
            let deadline = after(self.accepted(), seconds_of(seconds));
            if deadline <= now {
                let message = "Pod was active on the node longer than the specified deadline";
                self.stopped_for = Some(("DeadlineExceeded", message));
                return self.stop(now);
            }
            self.effects.wake_at(deadline);
        }
        let delay = behavior::start_delay(self.pod);
        let begin = after(self.accepted(), delay);
        if !delay.is_zero() && self.pod.str_at(&["status", "startTime"]).is_empty() {
            self.effects.started.insert(Str::default(), now);
        }
        if begin > now && !self.has_sandbox {
            return self.effects.wake_at(begin);
        }
        if !self.surroundings.needs.volumes.is_empty() && !self.has_sandbox {
            return self.report_volumes();
        }
        self.has_sandbox = true;
        self.drive();
    }

    fn report_volumes(&mut self) {
        // The event is created when the pod is accepted, not each time that somebody looks.
        if !self.pod.str_at(&["status", "startTime"]).is_empty() {
            return;
        }
        for (volume, why) in &self.surroundings.needs.volumes {
            let text = if why.starts_with("error processing") {
                format!(
                    "Unable to attach or mount volumes: unmounted volumes=[{volume}], unattached volumes=[], failed to process volumes=[{volume}]: {why}"
                )
            } else {
                format!("MountVolume.SetUp failed for volume {volume:?} : {why}")
            };
            self.effects.events.push(PodEvent {
                is_warning: true,
                reason: "FailedMount",
                field_path: Str::default(),
                message: text,
            });
        }
    }

    /// Starts, ends and restarts containers in their order.
    fn drive(&mut self) {
        let now = self.surroundings.now;
        let needs = self.surroundings.needs;
        let mut is_blocked = false;
        let has_run = self.containers.iter().any(|one| one.role == Role::Main && !one.is_new());
        for one in &mut self.containers {
            match one.role {
                Role::Init if is_blocked || has_run => continue,
                Role::Sidecar | Role::Main if is_blocked => continue,
                _ => {}
            }
            if one.role == Role::Init && one.exit_code() == Some(0) {
                continue;
            }
            one.drive(now, needs, &mut self.effects);
            is_blocked |= match one.role {
                Role::Init => one.exit_code() != Some(0),
                Role::Sidecar => !one.is_started(now) && !has_run,
                Role::Main | Role::Ephemeral => false,
            };
        }
        // Sidecars end after the others, in reverse order.
        if matches!(self.phase(), "Succeeded" | "Failed") {
            for one in self.containers.iter_mut().rev().filter(|one| one.role == Role::Sidecar) {
                one.stop(now, &mut self.effects);
            }
            self.effects.wake = None;
        }
    }

    fn stop(&mut self, at: Timestamp) {
        self.is_stopped = true;
        self.has_sandbox = false;
        for one in &mut self.containers {
            one.stop(at, &mut self.effects);
        }
    }

    /// Returns when the containers of a deleted pod end: after their hooks, and not after the end
    /// of the grace period.
    fn termination_time(&self, latest: Timestamp) -> Timestamp {
        let grace = self.pod.deletion_grace_period_seconds().unwrap_or(0);
        let begin = Timestamp::new(latest.seconds - grace, latest.nanos);
        let hooks = self.containers.iter().filter(|one| one.is_running()).map(|one| {
            let hook = one.spec.at(&["lifecycle", "preStop"]);
            if let Some(seconds) = hook.and_then(|hook| hook.int_at(&["sleep", "seconds"])) {
                return seconds_of(seconds);
            }
            let words = hook.map(|hook| hook.array_at(&["exec", "command"])).unwrap_or_default();
            let argv: Vec<String> =
                words.iter().filter_map(Value::as_str).map(str::to_owned).collect();
            match script::ending(&argv, &|_| None) {
                Ending::Exit(duration, _) => duration,
                Ending::Never => Duration::ZERO,
            }
        });
        after(begin, hooks.max().unwrap_or_default()).min(latest)
    }

    fn phase(&self) -> &'static str {
        if self.stopped_for.is_some() {
            return "Failed";
        }
        let now = self.surroundings.now;
        let phase = conditions::phase(self.pod, &self.containers, self.is_stopped, now);
        // A pod that was stopped before its containers started has failed.
        if self.is_stopped && !matches!(phase, "Succeeded" | "Failed") { "Failed" } else { phase }
    }

    fn outcome(mut self) -> Outcome {
        let status = self.status();
        let is_same = self.pod.get("status").and_then(Value::as_object) == Some(&status);
        Outcome {
            status: (!is_same).then(|| status.into()),
            events: std::mem::take(&mut self.effects.events),
            wake: self.effects.wake,
            is_removed: self.is_removed,
            started: std::mem::take(&mut self.effects.started),
        }
    }

    fn status(&self) -> Map {
        let pod = self.pod;
        let now = self.surroundings.now;
        let phase = self.phase();
        let mut status = pod.get("status").and_then(Value::as_object).cloned().unwrap_or_default();
        status.insert("phase", phase);
        if let Some((reason, message)) = self.stopped_for {
            status.insert("reason", reason);
            status.insert("message", message);
        }
        if pod.generation() > 0 {
            status.insert("observedGeneration", pod.generation());
        }
        if !status.contains_key("startTime") {
            status.insert("startTime", now.text());
        }
        let conditions =
            conditions::conditions(pod, &self.containers, phase, self.has_sandbox_at(phase), now);
        status.insert("conditions", conditions);
        let address = |ip: &str| value!({"ip": ip});
        if let Some(first) = self.surroundings.host_ips.first() {
            status.insert("hostIP", first.clone());
            let all: Vec<Value> = self.surroundings.host_ips.iter().map(|ip| address(ip)).collect();
            status.insert("hostIPs", all);
        }
        if self.has_sandbox
            && let Some(ip) = self.surroundings.pod_ip
        {
            status.insert("podIP", ip);
            status.insert("podIPs", vec![address(ip)]);
        }
        self.insert_containers(&mut status);
        status
    }

    /// Whether the sandbox is there: it is removed when a pod has ended.
    fn has_sandbox_at(&self, phase: &str) -> bool {
        self.has_sandbox && !matches!(phase, "Succeeded" | "Failed")
    }

    fn insert_containers(&self, status: &mut Map) {
        let has_init =
            self.containers.iter().any(|one| matches!(one.role, Role::Init | Role::Sidecar));
        let reason = if has_init { "PodInitializing" } else { "ContainerCreating" };
        for field in ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"] {
            let of_field = self.containers.iter().filter(|one| one.role.status_field() == field);
            let statuses: Vec<Value> =
                of_field.map(|one| one.status(self.surroundings.now, reason)).collect();
            if !statuses.is_empty() {
                status.insert(field, statuses);
            }
        }
    }
}

fn seconds_of(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

#[cfg(test)]
#[path = "pod_tests.rs"]
mod tests;
