//! The disruption controller: computes the status of PodDisruptionBudgets, which limits evictions.

use keelson_loops::client::{Client, EventText, InvolvedObject};
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::go_text;
use keelson_loops::int_or_percent::{Rounding, checked};
use keelson_loops::pods::{self, is_ready};
use keelson_loops::queue::Queue;
use keelson_meta::selector::Selector;
use keelson_meta::time::GoDuration;
use keelson_meta::{
    Failure, GroupVersion, Map, Object, Reason, Status, Str, Timestamp, Value, value,
};
use keelson_records::Entry;
use keelson_registry::{InformerEvent, InformerScope, Registry, Subresource, Target};
use keelson_resources::Kind;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The source component of its events.
const COMPONENT: &str = "controllermanager";
const GROUP: &str = "policy";
const RESOURCE: &str = "poddisruptionbudgets";
/// How long an evicted pod may take to be deleted. After that it counts as not disrupted.
const DELETION_SECONDS: i64 = 120;

/// Runs until it is dropped.
pub(crate) async fn run(registry: Arc<Registry>) {
    let client = Client::new(&registry, "disruption-controller");
    control_loop::run(&registry, Disruption { client, selectors: Mutex::default() }).await;
}

struct Disruption {
    client: Client,
    /// The selectors of all budgets, by namespace and name.
    selectors: Mutex<HashMap<Str, HashMap<Str, Selector>>>,
}

/// Namespace and name of a budget.
type Key = (Str, Str);

impl ControlLoop for Disruption {
    type Key = Key;
    const NAME: &'static str = "disruption-controller";
    const SCOPE: InformerScope = InformerScope::Only(&[("", "pods"), (GROUP, RESOURCE)]);
    const WORKERS_MAX: usize = 5;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Key>) -> bool {
        let mut selectors = self.selectors.lock().unwrap_or_else(PoisonError::into_inner);
        let mut insert = |kind: &Kind, entry: &Entry, queue: &mut Queue<Key>| {
            let budget = kind.decode(entry).unwrap_or_default();
            let names = selectors.entry(entry.namespace().into()).or_default();
            names.insert(entry.name().into(), selector_of(&budget).unwrap_or_default());
            queue.add((entry.namespace().into(), entry.name().into()));
        };
        let mut pods = vec![];
        for event in &events {
            match event {
                InformerEvent::Listed(kind, all) if kind.gvr.resource == RESOURCE => {
                    all.range("", "").for_each(|entry| insert(kind, entry, queue));
                }
                InformerEvent::Put { kind, entry, .. } if kind.gvr.resource == RESOURCE => {
                    insert(kind, entry, queue);
                }
                event => pods.push(event),
            }
        }
        for event in pods {
            match event {
                InformerEvent::Deleted { kind, entry } if kind.gvr.resource == RESOURCE => {
                    if let Some(names) = selectors.get_mut(entry.namespace()) {
                        names.remove(entry.name());
                    }
                }
                InformerEvent::Listed(..) => {
                    for (namespace, names) in &*selectors {
                        queue.extend(names.keys().map(|name| (namespace.clone(), name.clone())));
                    }
                }
                InformerEvent::Put { kind, entry, previous } => {
                    let Some(names) = selectors.get(entry.namespace()) else { continue };
                    let is_same = |before: &Entry| pods::is_unchanged(kind, before, entry);
                    if !names.is_empty() && !previous.as_ref().is_some_and(is_same) {
                        let all = [Some(entry), previous.as_ref()];
                        all.into_iter()
                            .flatten()
                            .for_each(|pod| queue_selecting(names, pod, queue));
                    }
                }
                InformerEvent::Deleted { entry, .. } => {
                    if let Some(names) = selectors.get(entry.namespace()) {
                        queue_selecting(names, entry, queue);
                    }
                }
                InformerEvent::Withdrawn(_) => {}
            }
        }
        false
    }

    async fn sync(&self, (namespace, name): Key) -> Result<Option<Duration>, Failure> {
        let Some(kind) = self.client.kind(GROUP, RESOURCE) else { return Ok(None) };
        let known = self.client.registry.cached(&kind, &namespace, &name);
        let Some(entry) = known else { return Ok(None) };
        let budget = kind.decode(&entry)?;
        let pods = self.pods(&budget)?;
        let now = self.client.now();
        let expected = self.expected(&budget, &pods).await;
        let (disrupted, resync_after) = disrupted_pods(&budget, &pods, now);
        let mut changed = budget.clone();
        let expected = match expected {
            Ok(expected) => {
                set_status(&mut changed, &expected, &pods, disrupted, &now.text());
                Ok(expected)
            }
            Err(error) => {
                let message = error.message.as_str();
                changed.object_mut("status").insert("disruptionsAllowed", 0);
                set_condition(&mut changed, false, "SyncFailed", message, 0, &now.text());
                Err(error)
            }
        };
        if changed.get("status") != budget.get("status") {
            let target = Target::of(&kind, &namespace, &name);
            match self.client.update(&target, Subresource::Status, changed).await {
                Err(status) if status.code == 404 => return Ok(None),
                written => drop(written?),
            }
            self.record_events(&budget, &pods, &expected).await;
        }
        Ok(resync_after)
    }
}

fn queue_selecting(budgets: &HashMap<Str, Selector>, pod: &Entry, queue: &mut Queue<Key>) {
    let selecting = budgets.iter().filter(|(_, selector)| selector.matches(|key| pod.label(key)));
    queue.extend(selecting.map(|(name, _)| (pod.namespace().into(), name.clone())));
}

fn selector_of(budget: &Object) -> Option<Selector> {
    Selector::from_object(budget.at(&["spec", "selector"])).ok()
}

/// The desired numbers of pods.
#[derive(Debug, PartialEq, Eq)]
struct Expected {
    pods: i64,
    healthy: i64,
    /// Whether there are pods without a controller, which are not counted.
    has_unmanaged: bool,
}

impl Disruption {
    fn pods(&self, budget: &Object) -> Result<Vec<Object>, Failure> {
        let Some(kind) = self.client.kind("", "pods") else { return Ok(vec![]) };
        let selector = selector_of(budget).unwrap_or_default();
        if budget.at(&["spec", "selector"]).is_none() {
            return Ok(vec![]);
        }
        let prefix = format!("{}/", budget.namespace());
        let all = self.client.registry.cached_all(&kind);
        let selected = all.range(&prefix, "").filter(|pod| selector.matches(|key| pod.label(key)));
        selected.map(|pod| kind.decode(pod)).collect()
    }

    async fn expected(&self, budget: &Object, pods: &[Object]) -> Result<Expected, Failure> {
        let all = i64::try_from(pods.len()).unwrap_or(i64::MAX);
        if let Some(unavailable) = budget.at(&["spec", "maxUnavailable"]) {
            let (scale, has_unmanaged) = self.expected_scale(pods).await?;
            let healthy = scale.saturating_sub(int_or_percent(unavailable, scale)?).max(0);
            return Ok(Expected { pods: scale, healthy, has_unmanaged });
        }
        match budget.at(&["spec", "minAvailable"]) {
            Some(Value::Int(healthy)) => {
                Ok(Expected { pods: all, healthy: *healthy, has_unmanaged: false })
            }
            Some(share) => {
                let (scale, has_unmanaged) = self.expected_scale(pods).await?;
                let healthy = int_or_percent(share, scale)?;
                Ok(Expected { pods: scale, healthy, has_unmanaged })
            }
            None => Ok(Expected { pods: 0, healthy: 0, has_unmanaged: false }),
        }
    }

    /// Returns the desired number of pods of all controllers, and whether a pod has no controller.
    async fn expected_scale(&self, pods: &[Object]) -> Result<(i64, bool), Failure> {
        let mut controllers = HashMap::new();
        let mut sum = 0_i64;
        let mut has_unmanaged = false;
        let mut counted: HashSet<Str> = HashSet::new();
        for pod in pods {
            let Some(controller) = pod.controller() else {
                has_unmanaged = true;
                continue;
            };
            let uid = Str::new(controller.str_at(&["uid"]).unwrap_or_default());
            if controllers.insert(uid, ()).is_some() {
                continue;
            }
            let Some((uid, scale)) = self.scale(pod.namespace(), controller).await? else {
                let why = format!("found no controllers for pod {:?}", pod.name());
                return Err(failure(why));
            };
            // Several ReplicaSets may belong to one Deployment.
            if counted.insert(uid) {
                sum = sum.saturating_add(scale);
            }
        }
        Ok((sum, has_unmanaged))
    }

    /// Returns the uid and the replicas of the workload behind a controller reference.
    async fn scale(
        &self,
        namespace: &str,
        controller: &Value,
    ) -> Result<Option<(Str, i64)>, Failure> {
        let text = |name: &str| controller.str_at(&[name]).unwrap_or_default();
        let registry = &self.client.registry;
        let version = GroupVersion::parse(text("apiVersion")).unwrap_or_default();
        let known = registry.api().of_kind(&version.kind(text("kind"))).cloned();
        let Some(kind) = known else {
            let kind = text("kind");
            let version = text("apiVersion");
            let why = format!("no matches for kind {kind:?} in version {version:?}");
            return Err(failure(why));
        };
        let namespace = if kind.namespaced { namespace } else { "" };
        let cached = registry.cached(&kind, namespace, text("name"));
        let object = cached.map(|entry| kind.decode(&entry)).transpose()?;
        let is_workload = matches!(
            (kind.gvr.group.as_str(), kind.gvr.resource.as_str()),
            ("apps", "replicasets" | "statefulsets" | "deployments")
                | ("", "replicationcontrollers")
        );
        if is_workload {
            let Some(object) = object.filter(|object| object.uid() == text("uid")) else {
                return Ok(None);
            };
            if kind.gvr.resource == "replicasets"
                && let Some(owner) = object.controller()
                && owner.str_at(&["kind"]) == Some("Deployment")
            {
                return Box::pin(self.scale(namespace, owner)).await;
            }
            let replicas = object.int_at(&["spec", "replicas"]).unwrap_or(1);
            return Ok(Some((object.uid().into(), replicas)));
        }
        if !has_scale(registry, &kind) {
            let name = kind.gvr.qualified();
            let why = format!("{name} does not implement the scale subresource");
            return Err(failure(why));
        }
        let scale = self
            .client
            .scale(&Target::of(&kind, namespace, text("name")))
            .await?
            .filter(|scale| scale.uid() == text("uid"));
        Ok(scale
            .map(|scale| (scale.uid().into(), scale.int_at(&["spec", "replicas"]).unwrap_or(0))))
    }

    /// Creates events about a budget that selects no pods or cannot be computed.
    async fn record_events(
        &self,
        budget: &Object,
        pods: &[Object],
        expected: &Result<Expected, Failure>,
    ) {
        let involved = InvolvedObject {
            kind: "PodDisruptionBudget",
            api_version: "policy/v1",
            namespace: budget.namespace(),
            name: budget.name(),
            uid: budget.uid(),
            resource_version: budget.resource_version(),
        };
        let warn = |reason, message| EventText { kind: "Warning", reason, message };
        if pods.is_empty() {
            let message = "No matching pods found";
            let event = EventText { kind: "Normal", reason: "NoPods", message };
            self.client.record_event(COMPONENT, &involved, event).await;
        }
        match expected {
            Err(error) => {
                let why = &error.message;
                let text = format!("Failed to calculate the number of expected pods: {why}");
                let reason = "CalculateExpectedPodCountFailed";
                self.client.record_event(COMPONENT, &involved, warn(reason, &text)).await;
            }
            Ok(expected) if expected.has_unmanaged => {
                let selector = go_text::label_selector(budget.at(&["spec", "selector"]));
                let text = format!(
                    "Pods selected by this PodDisruptionBudget (selector: {selector}) were found \
                     to be unmanaged. As a result, the status of the PDB cannot be calculated \
                     correctly, which may result in undefined behavior. To account for these pods \
                     please set \".spec.minAvailable\" field of the PDB to an integer value."
                );
                self.client.record_event(COMPONENT, &involved, warn("UnmanagedPods", &text)).await;
            }
            Ok(_) => {}
        }
    }
}

/// Returns an error whose message becomes part of the status.
fn failure(why: String) -> Failure {
    Status::new(Reason::Unknown, why)
}

fn has_scale(registry: &Registry, kind: &Kind) -> bool {
    let api = registry.api();
    let endpoint = api.endpoint(&kind.gvr.group, &kind.gvr.version, &kind.gvr.resource);
    endpoint.is_some_and(|endpoint| {
        endpoint.facts.subresources.iter().any(|subresource| subresource.name == "scale")
    })
}

/// Returns an IntOrString as a number; a percentage of `of` is rounded up.
fn int_or_percent(value: &Value, of: i64) -> Result<i64, Failure> {
    let text = value.as_str().unwrap_or_default();
    let invalid = || failure(format!("invalid value for IntOrString: invalid type: {text}"));
    checked(value, of, Rounding::Up).ok_or_else(invalid)
}

/// Returns the pods that were evicted and are not being deleted yet, with the times of their
/// evictions, and the time until the first of them counts as not disrupted.
fn disrupted_pods(budget: &Object, pods: &[Object], now: Timestamp) -> (Map, Option<Duration>) {
    let mut left = Map::new();
    let mut soonest = None;
    let granted = budget.at(&["status", "disruptedPods"]).and_then(Value::as_object);
    for pod in pods.iter().filter(|pod| pod.deletion_timestamp().is_none()) {
        let since = granted.and_then(|granted| granted.get(pod.name()));
        let Some(since) = since.and_then(Value::as_str) else { continue };
        let ends = Timestamp::parse(since)
            .unwrap_or_default()
            .plus(GoDuration::from_seconds(DELETION_SECONDS));
        let wait = ends.since(now).0;
        if wait >= 0 {
            left.insert(pod.name(), since);
            let wait = Duration::from_nanos(wait.unsigned_abs());
            soonest = Some(soonest.map_or(wait, |soonest: Duration| soonest.min(wait)));
        }
    }
    (left, soonest)
}

fn set_status(
    budget: &mut Object,
    expected: &Expected,
    pods: &[Object],
    disrupted: Map,
    now: &str,
) {
    let is_healthy = |pod: &&Object| {
        pod.deletion_timestamp().is_none() && !disrupted.contains_key(pod.name()) && is_ready(pod)
    };
    let healthy = pods.iter().filter(is_healthy).count();
    let healthy = i64::try_from(healthy).unwrap_or(i64::MAX);
    let allowed = if expected.pods <= 0 { 0 } else { (healthy - expected.healthy).max(0) };
    let generation = budget.generation();
    let counts = [
        ("currentHealthy", healthy),
        ("desiredHealthy", expected.healthy),
        ("expectedPods", expected.pods),
        ("disruptionsAllowed", allowed),
        ("observedGeneration", generation),
    ];
    let status = budget.object_mut("status");
    for (name, count) in counts {
        status.insert(name, count);
    }
    if disrupted.is_empty() {
        status.remove("disruptedPods");
    } else {
        status.insert("disruptedPods", disrupted);
    }
    let reason = if allowed > 0 { "SufficientPods" } else { "InsufficientPods" };
    set_condition(budget, allowed > 0, reason, "", generation, now);
}

/// Sets the condition DisruptionAllowed.
fn set_condition(
    budget: &mut Object,
    is_true: bool,
    reason: &str,
    message: &str,
    generation: i64,
    now: &str,
) {
    const TYPE: &str = "DisruptionAllowed";
    let state = if is_true { "True" } else { "False" };
    let status = budget.object_mut("status");
    let Value::Array(all) = status.entry_or("conditions", || Value::Array(vec![])) else { return };
    let known = all.iter().find(|one| one.str_at(&["type"]) == Some(TYPE));
    let since = known
        .filter(|known| known.str_at(&["status"]) == Some(state))
        .and_then(|known| known.str_at(&["lastTransitionTime"]))
        .unwrap_or(now);
    let mut condition = value!({
        "type": TYPE, "status": state, "lastTransitionTime": since,
        "reason": reason, "message": message
    });
    if let (Some(map), true) = (condition.as_object_mut(), generation > 0) {
        map.insert("observedGeneration", generation);
    }
    match all.iter_mut().find(|one| one.str_at(&["type"]) == Some(TYPE)) {
        Some(known) => *known = condition,
        None => all.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_rounded_up() {
        let check = |value: Value, of: i64, want: i64| {
            assert_eq!(int_or_percent(&value, of).expect("a share"), want, "{value:?} of {of}");
        };
        check(2.into(), 10, 2);
        check("50%".into(), 3, 2);
        check("0%".into(), 3, 0);
        check("100%".into(), 7, 7);
        check("1%".into(), 1, 1);
        assert!(int_or_percent(&"a".into(), 1).is_err());
    }

    #[test]
    fn a_pod_that_was_granted_counts_as_gone_for_two_minutes() {
        let budget = value!({"status": {"disruptedPods": {
            "late": "2026-01-01T00:00:00Z", "soon": "2026-01-01T00:02:00Z",
            "gone": "2026-01-01T00:02:00Z", "deleting": "2026-01-01T00:02:00Z"}}});
        let budget = Object::from_value(budget).expect("a map");
        let pod =
            |name: &str| Object::from_value(value!({"metadata": {"name": name}})).expect("a map");
        let mut pods = ["late", "soon", "deleting", "other"].map(pod);
        pods[2].set_meta("deletionTimestamp", "2026-01-01T00:02:00Z");
        let now = Timestamp::parse("2026-01-01T00:02:30Z").expect("a time");
        let (left, again) = disrupted_pods(&budget, &pods, now);
        let names: Vec<&str> = left.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((names, again), (vec!["soon"], Some(Duration::from_secs(90))));
    }
}
