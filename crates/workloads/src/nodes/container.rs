//! [`Container`]: one container of a pod, its state as the status of the pod has it, and the steps
//! from one state to the next.

use super::after;
use super::behavior::{self, Behavior};
use super::events::PodEvent;
use super::needs::Needs;
use super::pod_facts::Started;
use super::script::Ending;
use crate::random;
use keelson_meta::{Map, Object, Str, Timestamp, Value, value};
use std::time::Duration;

/// Delay before the second restart of a container; doubled for each further one.
const BACKOFF: Duration = Duration::from_secs(10);
const BACKOFF_MAX: Duration = Duration::from_secs(300);
/// How long after a failed pull of an image the state says that it is being retried.
const PULL_BACKOFF: Duration = Duration::from_secs(10);

/// The place of a container in the life of its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Runs to its end before the next one starts.
    Init,
    /// Starts in the order of init containers, and runs as long as the pod does.
    Sidecar,
    Main,
    Ephemeral,
}

/// The state of a container.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// It has not started, or not again.
    Waiting {
        reason: Str,
        message: Str,
    },
    Running {
        since: Timestamp,
    },
    Terminated(Terminated),
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Terminated {
    pub code: i64,
    pub started: Timestamp,
    pub finished: Timestamp,
    /// The identity that it had.
    pub id: Str,
}

/// One container and its state.
#[derive(Debug)]
pub struct Container<'a> {
    pub pod: &'a Object,
    pub spec: &'a Value,
    pub role: Role,
    pub behavior: Behavior,
    pub state: State,
    pub last: Option<Terminated>,
    pub restarts: i64,
    /// The exact time of the last start, if it ends by itself.
    pub exact_start: Option<Timestamp>,
    /// When the image was tried first, if that failed.
    pull_failed: Option<Timestamp>,
}

/// What came of a step of containers.
#[derive(Debug, Default)]
pub struct Effects {
    pub events: Vec<PodEvent>,
    /// When the next step is due.
    pub wake: Option<Timestamp>,
    pub started: Started,
}

impl Effects {
    /// Makes the next step due at a time, unless it is due earlier.
    pub fn wake_at(&mut self, at: Timestamp) {
        self.wake = Some(self.wake.map_or(at, |known| known.min(at)));
    }
}

impl<'a> Container<'a> {
    /// Reads a container and its entry in the status of its pod.
    pub fn of(pod: &'a Object, spec: &'a Value, role: Role, started: &Started) -> Container<'a> {
        let name = spec.str_at(&["name"]).unwrap_or_default();
        let statuses = pod.array_at(&["status", role.status_field()]);
        let status = statuses.iter().find(|one| one.str_at(&["name"]) == Some(name));
        let state =
            status.and_then(|status| status.get("state")).map_or_else(not_started, read_state);
        let exact = started.get(name).copied();
        let exact_start = exact.filter(
            |exact| matches!(&state, State::Running { since } if *since == exact.truncated()),
        );
        let is_pull_retried =
            matches!(&state, State::Waiting { reason, .. } if reason == "ErrImagePull");
        Container {
            pod,
            spec,
            role,
            behavior: behavior::of(pod, spec, role == Role::Main),
            state,
            last: status.and_then(|one| one.at(&["lastState", "terminated"])).map(read_terminated),
            restarts: status.and_then(|one| one.int_at(&["restartCount"])).unwrap_or(0),
            exact_start,
            pull_failed: exact.filter(|_| is_pull_retried),
        }
    }

    pub fn name(&self) -> &'a str {
        self.spec.str_at(&["name"]).unwrap_or_default()
    }

    fn image(&self) -> &'a str {
        self.spec.str_at(&["image"]).unwrap_or_default()
    }

    pub fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    /// Whether it never started.
    pub fn is_new(&self) -> bool {
        matches!(self.state, State::Waiting { .. }) && self.last.is_none()
    }

    /// Returns the exit code, if it has ended and was not started again.
    pub fn exit_code(&self) -> Option<i64> {
        match &self.state {
            State::Terminated(ended) => Some(ended.code),
            _ => None,
        }
    }

    fn started_at(&self) -> Option<Timestamp> {
        match self.state {
            State::Running { since } => Some(self.exact_start.unwrap_or(since)),
            _ => None,
        }
    }

    /// Returns when a probe first succeeds often enough; `None` if there is no such probe.
    fn probe_time(&self, probe: &str, start: Timestamp) -> Option<Timestamp> {
        let probe = self.spec.at(&[probe])?;
        let number = |field: &str, default: i64| probe.int_at(&[field]).unwrap_or(default).max(0);
        let repeated = (number("successThreshold", 1) - 1).max(0) * number("periodSeconds", 10);
        let seconds = number("initialDelaySeconds", 0).saturating_add(repeated);
        Some(after(start, Duration::from_secs(u64::try_from(seconds).unwrap_or(0))))
    }

    /// Returns when it counts as started; `None` if it does not run.
    fn startup_time(&self) -> Option<Timestamp> {
        let start = self.started_at()?;
        Some(self.probe_time("startupProbe", start).unwrap_or(start))
    }

    pub fn is_started(&self, now: Timestamp) -> bool {
        self.startup_time().is_some_and(|at| at <= now)
    }

    /// Returns when it is ready; `None` if it will not be.
    fn ready_time(&self) -> Option<Timestamp> {
        let startup = self.startup_time().filter(|_| !self.behavior.is_unready)?;
        let ready = self.started_at().and_then(|start| self.probe_time("readinessProbe", start));
        Some(ready.unwrap_or(startup).max(startup))
    }

    pub fn is_ready(&self, now: Timestamp) -> bool {
        match &self.state {
            State::Terminated(ended) => self.role == Role::Init && ended.code == 0,
            _ if self.role == Role::Init => false,
            _ => self.ready_time().is_some_and(|at| at <= now),
        }
    }

    /// Whether it starts again after it has ended.
    pub fn restarts_after(&self, code: i64) -> bool {
        let rules = self.spec.array_at(&["restartPolicyRules"]).iter();
        let is_matching = |rule: &&Value| {
            let codes = rule.array_at(&["exitCodes", "values"]).iter();
            let has = codes.filter_map(Value::as_int).any(|one| one == code);
            has == (rule.str_at(&["exitCodes", "operator"]) == Some("In"))
        };
        if rules.clone().any(|rule| is_matching(&rule)) {
            return true;
        }
        let own = self.spec.str_at(&["restartPolicy"]);
        let policy = own.unwrap_or_else(|| self.pod.str_at(&["spec", "restartPolicy"]));
        match (self.role, policy) {
            (Role::Sidecar, _) | (Role::Main, "Always" | "") => true,
            (Role::Ephemeral, _) | (_, "Never") => false,
            (Role::Init | Role::Main, _) => code != 0,
        }
    }

    /// Brings the container to its state at a time: starts it, ends it, starts it again.
    pub fn drive(&mut self, now: Timestamp, needs: &Needs, effects: &mut Effects) {
        // Each turn makes at least one start at `now`, of which the second is delayed.
        for _ in 0..4 {
            let due = match &self.state {
                State::Waiting { .. } if self.last.is_none() => {
                    return self.begin_unless_hindered(now, needs, effects);
                }
                State::Running { .. } => match (self.started_at(), self.behavior.ending) {
                    (Some(start), Ending::Exit(duration, code)) => {
                        let at = after(start, duration);
                        if at > now {
                            effects.wake_at(at);
                            return self.wake_for_probes(now, effects);
                        }
                        self.end(code, at);
                        continue;
                    }
                    _ => return self.wake_for_probes(now, effects),
                },
                State::Terminated(ended) if !self.restarts_after(ended.code) => return,
                State::Terminated(ended) => after(ended.finished, backoff(self.restarts)),
                State::Waiting { .. } => {
                    let finished = self.last.as_ref().map_or(now, |last| last.finished);
                    after(finished, backoff(self.restarts))
                }
            };
            if due > now {
                effects.wake_at(due);
                return self.wait_for_restart(effects);
            }
            if let State::Terminated(ended) = &self.state {
                self.last = Some(ended.clone());
            }
            self.restarts += 1;
            self.begin(now, effects);
        }
    }

    fn wake_for_probes(&self, now: Timestamp, effects: &mut Effects) {
        for at in [self.startup_time(), self.ready_time()].into_iter().flatten() {
            if at > now {
                effects.wake_at(at);
            }
        }
    }

    fn begin_unless_hindered(&mut self, now: Timestamp, needs: &Needs, effects: &mut Effects) {
        let image = self.image();
        if self.behavior.is_pull_failing {
            let why = format!("failed to pull and unpack image {image:?}: not found");
            let first = self.pull_failed;
            let is_new = !matches!(&self.state, State::Waiting { reason, .. }
                if matches!(reason.as_str(), "ErrImagePull" | "ImagePullBackOff"));
            if is_new {
                let text = format!("Failed to pull image {image:?}: {why}");
                effects.events.push(self.event(
                    false,
                    "Pulling",
                    format!("Pulling image {image:?}"),
                ));
                effects.events.push(self.event(true, "Failed", text));
                effects.events.push(self.event(true, "Failed", "Error: ErrImagePull".to_owned()));
                self.state = waiting("ErrImagePull", &why);
                effects.started.insert(self.name().into(), now);
                effects.wake_at(after(now, PULL_BACKOFF));
            } else if first.is_none_or(|first| after(first, PULL_BACKOFF) <= now) {
                let text = format!("Back-off pulling image {image:?}");
                if !matches!(&self.state, State::Waiting { reason, .. } if reason == "ImagePullBackOff")
                {
                    effects.events.push(self.event(false, "BackOff", text.clone()));
                    let why = "Error: ImagePullBackOff".to_owned();
                    effects.events.push(self.event(true, "Failed", why));
                }
                self.state = waiting("ImagePullBackOff", &format!("{text}: ErrImagePull: {why}"));
            } else if let Some(first) = first {
                effects.wake_at(after(first, PULL_BACKOFF));
            }
            return;
        }
        let unmet = needs.containers.iter().find(|(name, _)| name == self.name());
        if let Some((_, why)) = unmet {
            let is_new = !matches!(&self.state, State::Waiting { reason, .. }
                if reason == "CreateContainerConfigError");
            if is_new {
                effects.events.push(self.event(true, "Failed", format!("Error: {why}")));
            }
            self.state = waiting("CreateContainerConfigError", why);
            return;
        }
        self.begin(now, effects);
        self.drive(now, needs, effects);
    }

    fn begin(&mut self, now: Timestamp, effects: &mut Effects) {
        self.state = State::Running { since: now.truncated() };
        if !matches!(self.behavior.ending, Ending::Never) {
            self.exact_start = Some(now);
            effects.started.insert(self.name().into(), now);
        }
        let present = format!(
            "Container image {:?} already present on machine and can be accessed by the pod",
            self.image()
        );
        let texts = [
            ("Pulled", present),
            ("Created", "Container created".to_owned()),
            ("Started", "Container started".to_owned()),
        ];
        effects.events.extend(texts.map(|(reason, text)| self.event(false, reason, text)));
    }

    fn end(&mut self, code: i64, at: Timestamp) {
        let State::Running { since } = self.state else { return };
        let finished = at.truncated();
        let id = self.id();
        self.state = State::Terminated(Terminated { code, started: since, finished, id });
    }

    /// Ends the container as a kubelet does that stops the pod.
    pub fn stop(&mut self, at: Timestamp, effects: &mut Effects) {
        if self.is_running() {
            let text = format!("Stopping container {}", self.name());
            effects.events.push(self.event(false, "Killing", text));
            self.end(self.behavior.terminated_code, at);
        }
    }

    fn wait_for_restart(&mut self, effects: &mut Effects) {
        let pod = self.pod;
        let name = self.name();
        let place = format!("{}_{}({})", pod.name(), pod.namespace(), pod.uid());
        if let State::Terminated(ended) = &self.state {
            self.last = Some(ended.clone());
            let text = format!("Back-off restarting failed container {name} in pod {place}");
            effects.events.push(self.event(true, "BackOff", text));
        }
        let seconds = backoff(self.restarts).as_secs();
        let delay =
            keelson_meta::time::GoDuration::from_seconds(i64::try_from(seconds).unwrap_or(0));
        let text = format!("back-off {delay} restarting failed container={name} pod={place}");
        self.state = waiting("CrashLoopBackOff", &text);
    }

    fn event(&self, is_warning: bool, reason: &'static str, message: String) -> PodEvent {
        let list = match self.role {
            Role::Init | Role::Sidecar => "initContainers",
            Role::Main => "containers",
            Role::Ephemeral => "ephemeralContainers",
        };
        let field_path = Str::new(format!("spec.{list}{{{}}}", self.name()));
        PodEvent { is_warning, reason, field_path, message }
    }

    /// Returns the identity of the running or last container.
    fn id(&self) -> Str {
        let facts = format!("{} {} {}", self.pod.uid(), self.name(), self.restarts);
        Str::new(format!("keelson://{}", random::hex(&facts, 64)))
    }

    /// Returns its entry in the status of the pod. `default_reason`: why it waits if it never
    /// started.
    pub fn status(&self, now: Timestamp, default_reason: &str) -> Value {
        let mut status = Map::new();
        status.insert("name", self.name());
        let default = waiting(default_reason, "");
        let state =
            if self.is_new() && self.state == not_started() { &default } else { &self.state };
        let has_run = !self.is_new();
        status.insert("state", state_value(state));
        let last = self.last.as_ref().map(|last| value!({"terminated": (terminated_value(last))}));
        status.insert("lastState", last.unwrap_or_else(|| Map::new().into()));
        status.insert("ready", self.is_ready(now));
        status.insert("restartCount", self.restarts);
        status.insert(
            "image",
            if has_run { full_image(self.image()).into() } else { Str::new(self.image()) },
        );
        status.insert("imageID", if has_run { image_id(self.image()) } else { String::new() });
        if has_run {
            let id = match state {
                State::Terminated(ended) => ended.id.clone(),
                State::Waiting { .. } => {
                    self.last.as_ref().map_or_else(Str::default, |last| last.id.clone())
                }
                State::Running { .. } => self.id(),
            };
            status.insert("containerID", id);
        }
        status.insert("started", self.is_started(now));
        if self.is_running() {
            let resources = self.spec.get("resources").cloned();
            status.insert("resources", resources.unwrap_or_else(|| Map::new().into()));
        }
        let mounts: Vec<Value> = self.spec.array_at(&["volumeMounts"]).iter().map(mount).collect();
        if !mounts.is_empty() {
            status.insert("volumeMounts", mounts);
        }
        status.into()
    }
}

impl Role {
    pub fn status_field(self) -> &'static str {
        match self {
            Role::Init | Role::Sidecar => "initContainerStatuses",
            Role::Main => "containerStatuses",
            Role::Ephemeral => "ephemeralContainerStatuses",
        }
    }
}

/// Returns the delay before a container that was restarted so often starts again after its end. The
/// first restart is at once.
fn backoff(restarts: i64) -> Duration {
    if restarts <= 0 {
        return Duration::ZERO;
    }
    let doublings = u32::try_from(restarts - 1).unwrap_or(0).min(10);
    BACKOFF_MAX.min(BACKOFF * (1 << doublings))
}

fn not_started() -> State {
    waiting("", "")
}

fn waiting(reason: &str, message: &str) -> State {
    State::Waiting { reason: reason.into(), message: message.into() }
}

fn time(value: &Value, field: &str) -> Timestamp {
    value.str_at(&[field]).and_then(|text| Timestamp::parse(text).ok()).unwrap_or_default()
}

fn read_state(state: &Value) -> State {
    if let Some(running) = state.get("running").filter(|one| !one.is_null()) {
        return State::Running { since: time(running, "startedAt") };
    }
    if let Some(ended) = state.get("terminated").filter(|one| !one.is_null()) {
        return State::Terminated(read_terminated(ended));
    }
    let text = |field: &str| state.str_at(&["waiting", field]).unwrap_or_default();
    match text("reason") {
        "" | "ContainerCreating" | "PodInitializing" => not_started(),
        reason => waiting(reason, text("message")),
    }
}

fn read_terminated(ended: &Value) -> Terminated {
    Terminated {
        code: ended.int_at(&["exitCode"]).unwrap_or(0),
        started: time(ended, "startedAt"),
        finished: time(ended, "finishedAt"),
        id: ended.str_at(&["containerID"]).unwrap_or_default().into(),
    }
}

fn state_value(state: &State) -> Value {
    match state {
        State::Waiting { reason, message } if message.is_empty() => {
            value!({"waiting": {"reason": (reason.clone())}})
        }
        State::Waiting { reason, message } => {
            value!({"waiting": {"reason": (reason.clone()), "message": (message.clone())}})
        }
        State::Running { since } => value!({"running": {"startedAt": (since.text())}}),
        State::Terminated(ended) => value!({"terminated": (terminated_value(ended))}),
    }
}

fn terminated_value(ended: &Terminated) -> Value {
    value!({
        "exitCode": (ended.code), "reason": (if ended.code == 0 { "Completed" } else { "Error" }),
        "startedAt": (ended.started.text()), "finishedAt": (ended.finished.text()),
        "containerID": (ended.id.clone())
    })
}

fn mount(mount: &Value) -> Value {
    let mut status = Map::new();
    for field in ["name", "mountPath", "readOnly"] {
        if let Some(value) = mount.get(field).filter(|value| !value.is_empty()) {
            status.insert(field, value.clone());
        }
    }
    if status.contains_key("readOnly") {
        let wanted = mount.str_at(&["recursiveReadOnly"]).unwrap_or("Disabled");
        let given = if wanted == "IfPossible" { "Enabled" } else { wanted };
        status.insert("recursiveReadOnly", given);
    }
    status.into()
}

/// Returns an image's name with registry, repository and tag.
fn full_image(image: &str) -> String {
    let first = image.split('/').next().unwrap_or_default();
    let has_registry =
        image.contains('/') && (first.contains('.') || first.contains(':') || first == "localhost");
    let named = match (has_registry, image.contains('/')) {
        (true, _) => image.to_owned(),
        (false, true) => format!("docker.io/{image}"),
        (false, false) => format!("docker.io/library/{image}"),
    };
    let last = named.rsplit('/').next().unwrap_or_default();
    if last.contains(':') || last.contains('@') { named } else { format!("{named}:latest") }
}

fn image_id(image: &str) -> String {
    let full = full_image(image);
    if full.contains('@') {
        return full;
    }
    let repository = full.rsplit_once(':').map_or(full.as_str(), |(repository, _)| repository);
    format!("{repository}@sha256:{}", random::hex(&full, 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_are_delayed_more_and_more() {
        let check = |restarts, seconds| assert_eq!(backoff(restarts).as_secs(), seconds);
        check(0, 0);
        check(1, 10);
        check(2, 20);
        check(5, 160);
        check(6, 300);
        check(1_000, 300);
    }

    #[test]
    fn images_have_their_full_names() {
        let check = |image: &str, want: &str| assert_eq!(full_image(image), want);
        check("nginx", "docker.io/library/nginx:latest");
        check("bitnami/redis:7", "docker.io/bitnami/redis:7");
        check("registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.10");
        check("localhost:5000/x", "localhost:5000/x:latest");
        assert!(image_id("nginx:1").starts_with("docker.io/library/nginx@sha256:"));
    }
}
