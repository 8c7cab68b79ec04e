//! The horizontal pod autoscaler: sets the replicas of a workload by what its pods use.
//!
//! Each autoscaler is looked at every second rather than every 15 seconds as by default upstream,
//! so that a test does not wait; the rules of rates and stabilization count time, not looks.

mod behavior;
mod metrics;
mod proposals;
mod replicas;

use crate::stored::{self, name_of};
use behavior::{Bounds, History};
use keelson_loops::client::Client;
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::events::Recorder;
use keelson_loops::queue::Queue;
use keelson_meta::selector::{Selector, parse};
use keelson_meta::{Failure, GroupVersion, Object, Status, Str, Timestamp, Value, value};
use keelson_records::Entry;
use keelson_registry::{InformerEvent, InformerScope, Subresource, Target};
use proposals::{Computed, Input};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const GROUP: &str = "autoscaling";
const RESOURCE: &str = "horizontalpodautoscalers";
/// The source component of its events.
const COMPONENT: &str = "horizontal-pod-autoscaler";
/// Time between two looks at an autoscaler.
const PERIOD: Duration = Duration::from_secs(1);

/// Runs until it is dropped.
pub(crate) async fn run(context: crate::Context) {
    let client = Client::new(&context.registry, "horizontal-pod-autoscaler");
    let events = Recorder::new(&client, COMPONENT);
    let autoscaling = Autoscaling { client, events, known: Mutex::default() };
    control_loop::run(&context.registry, autoscaling).await;
}

struct Autoscaling {
    client: Client,
    events: Recorder,
    known: Mutex<HashMap<Key, Memory>>,
}

/// Namespace and name of an autoscaler.
type Key = (Str, Str);

/// What is remembered about an autoscaler.
#[derive(Debug, Default)]
struct Memory {
    history: History,
    /// What selects the pods of its workload.
    selector: Option<Selector>,
}

impl ControlLoop for Autoscaling {
    type Key = Key;
    const NAME: &'static str = "horizontal-pod-autoscaler-controller";
    const SCOPE: InformerScope = InformerScope::Only(&[(GROUP, RESOURCE)]);
    const WORKERS_MAX: usize = 5;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Key>) -> bool {
        for event in &events {
            match event {
                InformerEvent::Listed(_, all) => queue.extend(all.range("", "").map(name_of)),
                // Its own writes of the status are no reason for another look.
                InformerEvent::Put { kind, entry, previous } => {
                    let spec = |entry: &Entry| kind.decode(entry).ok()?.get("spec").cloned();
                    if previous.as_ref().is_none_or(|old| spec(old) != spec(entry)) {
                        queue.add(name_of(entry));
                    }
                }
                InformerEvent::Deleted { entry, .. } => queue.add(name_of(entry)),
                InformerEvent::Withdrawn(_) => {}
            }
        }
        false
    }

    async fn sync(&self, key: Key) -> Result<Option<Duration>, Failure> {
        let Some(kind) = self.client.kind(GROUP, RESOURCE) else { return Ok(None) };
        let known = self.client.registry.cached(&kind, &key.0, &key.1);
        let Some(scaler) = known.map(|entry| kind.decode(&entry)).transpose()? else {
            self.known().remove(&key);
            return Ok(None);
        };
        let stored = scaler.get("status").cloned();
        let now = self.client.now();
        let mut sync = Sync { all: self, key: &key, scaler, now };
        let failed = sync.run().await.err();
        if sync.scaler.get("status") != stored.as_ref() {
            let target = Target::of(&kind, &key.0, &key.1);
            let scaler = sync.scaler.clone();
            match self.client.update(&target, Subresource::Status, scaler).await {
                Err(error) if error.code == 404 => return Ok(None),
                Err(error) => {
                    sync.warn("FailedUpdateStatus", &error.message);
                    return Err(error);
                }
                Ok(_) => {}
            }
        }
        if let Some((reason, message)) = failed {
            // What an administrator must mend is told by events and conditions.
            sync.warn(reason, &message);
        }
        Ok(Some(PERIOD))
    }
}

impl Autoscaling {
    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Memory>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reason and message of a last event.
type Failed = (&'static str, String);

/// One sync of an autoscaler. Its status is changed in `scaler`.
struct Sync<'a> {
    all: &'a Autoscaling,
    key: &'a Key,
    scaler: Object,
    now: Timestamp,
}

impl Sync<'_> {
    fn event(&self, kind: &'static str, reason: &str, message: &str) {
        self.all.events.about(&self.all.client, &self.scaler, kind, (reason, message));
    }

    fn warn(&self, reason: &str, message: &str) {
        self.event("Warning", reason, message);
    }

    fn set(&mut self, kind: &'static str, is_true: bool, reason: &str, message: &str) {
        set_condition(&mut self.scaler, kind, is_true, reason, message, self.now);
    }

    async fn run(&mut self) -> Result<(), Failed> {
        let (target, scale) = match self.scale().await {
            Ok(found) => found,
            Err(why) => {
                let message = format!(
                    "the HPA controller was unable to get the target's current scale: {why}"
                );
                self.set("AbleToScale", false, "FailedGetScale", &message);
                return Err(("FailedGetScale", why));
            }
        };
        let message = "the HPA controller was able to get the target's current scale";
        self.set("AbleToScale", true, "SucceededGetScale", message);
        let current = scale.int_at(&["spec", "replicas"]).unwrap_or(0);
        self.all.known().entry(self.key.clone()).or_default().history.begin(current, self.now);
        let min = self.scaler.int_at(&["spec", "minReplicas"]).unwrap_or(1);
        let max = self.scaler.int_at(&["spec", "maxReplicas"]).unwrap_or(1);
        let mut statuses = vec![];
        let mut desired = current;
        let mut why = String::new();
        if current == 0 {
            let message = "scaling is disabled since the replica count of the target is zero";
            self.set("ScalingActive", false, "ScalingDisabled", message);
        } else if current > max {
            (desired, why) = (max, "Current number of replicas above Spec.MaxReplicas".to_owned());
        } else if current < min {
            (desired, why) = (min, "Current number of replicas below Spec.MinReplicas".to_owned());
        } else {
            let computed = match self.compute(&scale) {
                Ok(computed) => computed,
                Err((found, message)) => {
                    let before = self.scaler.int_at(&["status", "desiredReplicas"]).unwrap_or(0);
                    self.set_status(current, before, found, false);
                    return Err(("FailedComputeMetricsReplicas", message));
                }
            };
            let Computed { replicas, metric, statuses: found, .. } = computed;
            statuses = found;
            if replicas > current {
                why = format!("{metric} above target");
            } else if replicas < current {
                "All metrics below target".clone_into(&mut why);
            }
            desired = self.limit(Bounds { current, desired: replicas, min, max });
        }
        if desired != current {
            self.rescale(&target, scale, current, desired, &why, &statuses).await?;
        }
        self.set_status(current, desired, statuses, desired != current);
        Ok(())
    }

    /// Returns the scaled object and its Scale.
    async fn scale(&self) -> Result<(Target, Object), String> {
        let text = |name: &str| self.scaler.str_at(&["spec", "scaleTargetRef", name]);
        let kind = text("kind");
        let name = text("name");
        let version = GroupVersion::parse(text("apiVersion"))
            .ok_or_else(|| format!("unexpected GroupVersion string: {}", text("apiVersion")))?;
        let registry = &self.all.client.registry;
        let api = registry.api();
        // Any served version of the kind will do.
        let of_group = |kind_of: &std::sync::Arc<keelson_resources::Kind>| {
            kind_of.gvr.group == version.group
                && kind_of.versions.iter().any(|schema| schema.gvk.kind == kind)
        };
        let found = api.kinds().find(|one| of_group(one)).cloned().ok_or_else(|| {
            let group = &version.group;
            if group.is_empty() {
                format!("no matches for kind {kind:?} in group \"\"")
            } else {
                format!("no matches for kind {kind:?} in group {group:?}")
            }
        })?;
        let target = Target::of(&found, self.scaler.namespace(), name);
        let scale = self
            .all
            .client
            .scale(&target)
            .await
            .and_then(|scale| scale.ok_or_else(|| target.not_found()));
        scale.map(|scale| (target, scale)).map_err(|error| error.message.clone())
    }

    /// Returns the selector of the pods; an error is told by an event and the condition.
    fn selector(&mut self, text: &str) -> Result<Selector, String> {
        if text.is_empty() {
            let why = "selector is required";
            self.warn("SelectorRequired", why);
            let message = "the HPA target's scale is missing a selector";
            self.set("ScalingActive", false, "InvalidSelector", message);
            return Err(why.to_owned());
        }
        let selector = match parse(text) {
            Ok(selector) => selector,
            Err(why) => {
                let why = format!(
                    "couldn't convert selector into a corresponding internal selector object: {why}"
                );
                self.warn("InvalidSelector", &why);
                self.set("ScalingActive", false, "InvalidSelector", &why);
                return Err(why);
            }
        };
        let pods = self.pods(&selector);
        let others = {
            let mut known = self.all.known();
            known.entry(self.key.clone()).or_default().selector = Some(selector.clone());
            let selects = |memory: &Memory| {
                let selector = memory.selector.as_ref();
                selector.is_some_and(|all| pods.iter().any(|pod| all.matches_object(pod)))
            };
            let same = known.iter().filter(|(key, memory)| key.0 == self.key.0 && selects(memory));
            let mut names: Vec<String> =
                same.map(|((namespace, name), _)| format!("{{{name} {namespace}}}")).collect();
            names.sort();
            names
        };
        if others.len() > 1 {
            let others = others.join(" ");
            let why =
                format!("pods by selector {text} are controlled by multiple HPAs: [{others}]");
            self.warn("AmbiguousSelector", &why);
            self.set("ScalingActive", false, "AmbiguousSelector", &why);
            return Err(why);
        }
        Ok(selector)
    }

    fn pods(&self, selector: &Selector) -> Vec<Object> {
        let Some(kind) = self.all.client.kind("", "pods") else { return vec![] };
        let all = self.all.client.registry.cached_all(&kind);
        let prefix = format!("{}/", self.key.0);
        let selected = all.range(&prefix, "").filter(|pod| selector.matches(|key| pod.label(key)));
        selected.filter_map(|pod| kind.decode(pod).ok()).collect()
    }

    /// Returns the replicas that the metrics ask for: the most of any metric. An error has the
    /// statuses of the metrics that are known.
    fn compute(&mut self, scale: &Object) -> Result<Computed, (Vec<Value>, String)> {
        let text = scale.str_at(&["status", "selector"]).to_owned();
        let selector = self.selector(&text).map_err(|why| (vec![], why))?;
        let pods = self.pods(&selector);
        let spec_replicas = scale.int_at(&["spec", "replicas"]).unwrap_or(0);
        let status_replicas = scale.int_at(&["status", "replicas"]).unwrap_or(0);
        let input = Input {
            client: &self.all.client,
            scaler: &self.scaler,
            selector: &selector,
            pods: &pods,
            spec_replicas,
            status_replicas,
            now: self.now,
        };
        let computed = proposals::compute(&input);
        for (reason, why) in &computed.failures {
            self.warn(reason, why);
        }
        if computed.is_valid(spec_replicas) {
            let metric = &computed.metric;
            let message =
                format!("the HPA was able to successfully calculate a replica count from {metric}");
            self.set("ScalingActive", true, "ValidMetricFound", &message);
            return Ok(computed);
        }
        if let Some((reason, why)) = computed.failures.first() {
            let message = format!("the HPA was unable to compute the replica count: {why}");
            self.set("ScalingActive", false, reason, &message);
        }
        let error = computed.error();
        Err((computed.statuses, error))
    }

    fn limit(&mut self, bounds: Bounds) -> i64 {
        let limited = {
            let mut known = self.all.known();
            let memory = known.entry(self.key.clone()).or_default();
            memory.history.limit(&self.scaler, bounds, self.now)
        };
        self.set("AbleToScale", true, limited.able.0, limited.able.1);
        let (is_limited, reason, message) = limited.limited;
        self.set("ScalingLimited", is_limited, reason, message);
        limited.replicas
    }

    async fn rescale(
        &mut self,
        target: &Target,
        scale: Object,
        current: i64,
        desired: i64,
        why: &str,
        statuses: &[Value],
    ) -> Result<(), Failed> {
        if let Err(error) = self.write_scale(target, scale, desired).await {
            let message = format!(
                "the HPA controller was unable to update the target scale: {}",
                error.message
            );
            self.set("AbleToScale", false, "FailedUpdateScale", &message);
            let before = self.scaler.int_at(&["status", "desiredReplicas"]).unwrap_or(0);
            self.set_status(current, before, statuses.to_vec(), false);
            let error = &error.message;
            let message = format!("New size: {desired}; reason: {why}; error: {error}");
            return Err(("FailedRescale", message));
        }
        let message =
            format!("the HPA controller was able to update the target scale to {desired}");
        self.set("AbleToScale", true, "SucceededRescale", &message);
        let message = format!("New size: {desired}; reason: {why}");
        self.event("Normal", "SuccessfulRescale", &message);
        let mut known = self.all.known();
        let memory = known.entry(self.key.clone()).or_default();
        memory.history.changed_to(&self.scaler, current, desired, self.now);
        Ok(())
    }

    /// Stores the replicas. After a conflict, the latest Scale is changed.
    async fn write_scale(
        &self,
        target: &Target,
        mut scale: Object,
        replicas: i64,
    ) -> Result<(), Failure> {
        const TRIES: usize = 5;
        let client = &self.all.client;
        for _ in 1..TRIES {
            scale.object_mut("spec").insert("replicas", replicas);
            match client.update_scale(target, scale).await {
                Err(error) if error.code == 409 => {}
                result => return result,
            }
            scale = client.scale(target).await?.ok_or_else(|| target.not_found())?;
        }
        Err(Status::modified(target.gvr(), &target.name))
    }

    fn set_status(&mut self, current: i64, desired: i64, metrics: Vec<Value>, is_rescaled: bool) {
        let now = self.now.text();
        let old = self.scaler.get("status").and_then(Value::as_object).cloned().unwrap_or_default();
        let status = self.scaler.object_mut("status");
        *status = keelson_meta::Map::new();
        if current != 0 {
            status.insert("currentReplicas", current);
        }
        status.insert("desiredReplicas", desired);
        for name in ["lastScaleTime", "conditions"] {
            old.get(name).map(|value| status.insert(name, value.clone()));
        }
        if is_rescaled {
            status.insert("lastScaleTime", now);
        }
        if !metrics.is_empty() {
            status.insert("currentMetrics", metrics);
        }
    }
}

/// Sets a condition; its time changes with its status only.
fn set_condition(
    scaler: &mut Object,
    kind: &'static str,
    is_true: bool,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let state = if is_true { "True" } else { "False" };
    let condition = value!({"type": kind, "status": state, "lastTransitionTime": (now.text()),
        "reason": reason, "message": message});
    if let Value::Object(condition) = condition {
        stored::set_condition(scaler, condition, now);
    }
}
