//! What the scheduler writes: bindings, conditions, events, the end of pods, and the choice of
//! volumes.

use super::NAME;
use super::devices::{Allocation, ClaimKey};
use super::pod::{Pod, PodKey};
use super::volumes::Binding;
use crate::stored::set_condition;
use keelson_loops::client::Client;
use keelson_meta::{Failure, Map, Object, Str, Timestamp, Value, value};
use keelson_registry::options::DeleteOptions;
use keelson_registry::{NewObject, Subresource, Target};
use std::sync::Arc;

/// The finalizer of allocated claims of devices.
const DELETE_PROTECTION: &str = "resource.kubernetes.io/delete-protection";
/// `reportingInstance` of its events.
const INSTANCE: &str = "default-scheduler-keelson";

/// Binds a pod to a node and creates the event about it.
pub async fn bind(client: &Client, pod: &Pod, node: &str) -> Result<(), Failure> {
    let Some(kind) = client.kind("", "pods") else { return Ok(()) };
    let namespace = &pod.key.0;
    let name = &pod.key.1;
    let binding = value!({
        "metadata": {"name": (name.clone()), "namespace": (namespace.clone()),
            "uid": (pod.uid.clone())},
        "target": {"kind": "Node", "name": node}
    });
    let target = Target::of(&kind, namespace, name);
    let binding = Object::from_value(binding).unwrap_or_default();
    client.act(&target, "binding", binding).await?;
    let note = format!("Successfully assigned {namespace}/{name} to {node}");
    let event = Event { is_warning: false, reason: "Scheduled", action: "Binding", note: &note };
    record(client, &pod.key, &pod.uid, &event).await;
    Ok(())
}

/// Writes which volumes claims get, or on which node they are made, and on which node the pod is
/// expected meanwhile.
pub async fn choose_volumes(
    client: &Client,
    pod: &Pod,
    node: &str,
    bindings: &[Binding],
) -> Result<(), Failure> {
    expect_on(client, pod, node).await?;
    let kinds = (client.kind("", "persistentvolumes"), client.kind("", "persistentvolumeclaims"));
    let (Some(volumes), Some(claims)) = kinds else { return Ok(()) };
    for binding in bindings {
        match binding {
            Binding::Volume(claim, volume) => {
                let claim = client.get(&Target::of(&claims, &claim.0, &claim.1)).await?;
                let target = Target::of(&volumes, "", volume);
                let claim = claim.ok_or_else(|| target.not_found())?;
                let change = |live: Option<&Object>| {
                    let mut object = live.cloned().ok_or_else(|| target.not_found())?;
                    reserve(&mut object, &claim);
                    Ok(NewObject { object, managed: false, warnings: vec![] })
                };
                client.modify(&target, Subresource::None, &change).await?;
            }
            Binding::Provision(claim) => {
                let target = Target::of(&claims, &claim.0, &claim.1);
                let change = |live: Option<&Object>| {
                    let mut object = live.cloned().ok_or_else(|| target.not_found())?;
                    let annotations = object.metadata_mut().object_at("annotations");
                    annotations.insert("volume.kubernetes.io/selected-node", node);
                    Ok(NewObject { object, managed: false, warnings: vec![] })
                };
                client.modify(&target, Subresource::None, &change).await?;
            }
        }
    }
    Ok(())
}

/// Writes on which node a pod is expected.
async fn expect_on(client: &Client, pod: &Pod, node: &str) -> Result<(), Failure> {
    let Some(kind) = client.kind("", "pods") else { return Ok(()) };
    let target = Target::of(&kind, &pod.key.0, &pod.key.1);
    let change = |live: Option<&Object>| {
        let live = live.filter(|live| live.uid() == pod.uid);
        let mut object = live.cloned().ok_or_else(|| target.not_found())?;
        object.object_mut("status").insert("nominatedNodeName", node);
        Ok(NewObject { object, managed: false, warnings: vec![] })
    };
    client.modify(&target, Subresource::Status, &change).await
}

/// Writes which devices the claims of a pod get, and that all its claims are reserved for it.
pub async fn reserve_devices(
    client: &Client,
    pod: &Pod,
    claims: &[Str],
    chosen: &[(ClaimKey, Allocation)],
) -> Result<(), Failure> {
    let Some(kind) = client.kind("resource.k8s.io", "resourceclaims") else { return Ok(()) };
    let now = client.now();
    for name in claims {
        let target = Target::of(&kind, &pod.key.0, name);
        let allocation = chosen.iter().find(|(key, _)| key.1 == *name).map(|(_, one)| one);
        let protect = |live: Option<&Object>| {
            let mut object = live.cloned().ok_or_else(|| target.not_found())?;
            if !object.finalizers().any(|one| one == DELETE_PROTECTION) {
                let finalizers =
                    object.metadata_mut().entry_or("finalizers", || Value::Array(vec![]));
                if let Some(finalizers) = finalizers.as_array_mut() {
                    finalizers.push(DELETE_PROTECTION.into());
                }
            }
            Ok(NewObject { object, managed: false, warnings: vec![] })
        };
        let reserve = |live: Option<&Object>| {
            let mut object = live.cloned().ok_or_else(|| target.not_found())?;
            reserve_claim(&mut object, pod, allocation, now);
            Ok(NewObject { object, managed: false, warnings: vec![] })
        };
        if allocation.is_some() {
            client.modify(&target, Subresource::None, &protect).await?;
        }
        client.modify(&target, Subresource::Status, &reserve).await?;
    }
    Ok(())
}

fn reserve_claim(claim: &mut Object, pod: &Pod, allocation: Option<&Allocation>, now: Timestamp) {
    let status = claim.object_mut("status");
    if let Some(allocation) = allocation.filter(|_| !status.contains_key("allocation")) {
        let results: Vec<Value> = allocation
            .results
            .iter()
            .map(|(request, (driver, pool, device))| {
                value!({"request": (request.as_str()), "driver": (driver.clone()),
                "pool": (pool.clone()), "device": (device.clone())})
            })
            .collect();
        let mut written =
            value!({"devices": {"results": (results)}, "allocationTimestamp": (now.text())});
        if let (Some(node), Some(map)) = (&allocation.node, written.as_object_mut()) {
            let selector = value!({"nodeSelectorTerms": [{"matchFields": [
                {"key": "metadata.name", "operator": "In", "values": [(node.clone())]}]}]});
            map.insert("nodeSelector", selector);
        }
        status.insert("allocation", written);
    }
    let reserved = status.entry_or("reservedFor", || Value::Array(vec![]));
    let Some(reserved) = reserved.as_array_mut() else { return };
    if !reserved.iter().any(|one| one.str_at(&["uid"]) == Some(pod.uid.as_str())) {
        reserved.push(value!({"resource": "pods", "name": (pod.key.1.clone()),
            "uid": (pod.uid.clone())}));
    }
}

/// Reserves a volume for a claim.
fn reserve(volume: &mut Object, claim: &Object) {
    let is_reserved = volume.str_at(&["spec", "claimRef", "name"]) == claim.name();
    let reference = value!({
        "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": (claim.namespace()),
        "name": (claim.name()), "uid": (claim.uid()),
        "resourceVersion": (claim.resource_version())
    });
    volume.object_mut("spec").insert("claimRef", reference);
    if !is_reserved {
        let annotations = volume.metadata_mut().object_at("annotations");
        annotations.insert("pv.kubernetes.io/bound-by-controller", "yes");
    }
}

/// What is reported about a pod that is not placed.
#[derive(Debug)]
pub struct Report {
    pub reason: &'static str,
    pub message: String,
    /// The node on which it waits for room; `None`: as before.
    pub nominated: Option<Str>,
}

/// Writes the condition of a pod that is not placed, and creates the event about it.
pub async fn report(client: &Client, pod: &Pod, report: &Report) -> Result<(), Failure> {
    let Some(kind) = client.kind("", "pods") else { return Ok(()) };
    let target = Target::of(&kind, &pod.key.0, &pod.key.1);
    let now = client.now();
    let Some(known) = client.registry.cached(&kind, &pod.key.0, &pod.key.1) else { return Ok(()) };
    let mut known = kind.decode(&known)?;
    if known.uid() != pod.uid || !set_unscheduled(&mut known, report, now) {
        return Ok(());
    }
    let event = Event {
        is_warning: true,
        reason: "FailedScheduling",
        action: "Scheduling",
        note: &report.message,
    };
    record(client, &pod.key, &pod.uid, &event).await;
    let change = |live: Option<&Object>| {
        let mut object = live.cloned().ok_or_else(|| target.not_found())?;
        if object.uid() == pod.uid && object.str_at(&["spec", "nodeName"]).is_empty() {
            set_unscheduled(&mut object, report, now);
        }
        Ok(NewObject { object, managed: false, warnings: vec![] })
    };
    match client.modify(&target, Subresource::Status, &change).await {
        Err(status) if status.code == 404 => Ok(()),
        result => result,
    }
}

/// Sets the condition PodScheduled to false. Returns whether anything changed.
fn set_unscheduled(pod: &mut Object, report: &Report, now: Timestamp) -> bool {
    let before = pod.get("status").cloned();
    let mut condition = Map::new();
    condition.insert("type", "PodScheduled");
    if pod.generation() > 0 {
        condition.insert("observedGeneration", pod.generation());
    }
    condition.insert("status", "False");
    condition.insert("lastProbeTime", Value::Null);
    condition.insert("reason", report.reason);
    condition.insert("message", report.message.as_str());
    set_condition(pod, condition, now);
    match &report.nominated {
        Some(node) if node.is_empty() => {
            pod.object_mut("status").remove("nominatedNodeName");
        }
        Some(node) => {
            pod.object_mut("status").insert("nominatedNodeName", node.clone());
        }
        None => {}
    }
    pod.get("status") != before.as_ref()
}

/// Ends pods so that another one can be placed on their node.
pub async fn preempt(
    client: &Client,
    preemptor: &Pod,
    node: &str,
    victims: &[Arc<Pod>],
) -> Result<(), Failure> {
    let Some(kind) = client.kind("", "pods") else { return Ok(()) };
    for victim in victims {
        let target = Target::of(&kind, &victim.key.0, &victim.key.1);
        let now = client.now();
        let change = |live: Option<&Object>| {
            let mut object = live.cloned().ok_or_else(|| target.not_found())?;
            if object.uid() == victim.uid {
                set_disrupted(&mut object, now);
            }
            Ok(NewObject { object, managed: false, warnings: vec![] })
        };
        let options = DeleteOptions { uid: Some(victim.uid.clone()), ..DeleteOptions::default() };
        let written = client.modify(&target, Subresource::Status, &change).await;
        let deleted = match written {
            Ok(()) => client.delete(&target, &options).await.map(drop),
            failed => failed,
        };
        match deleted {
            Err(status) if status.code == 404 => continue,
            result => result?,
        }
        let note = format!("Preempted by pod {} on node {node}", preemptor.uid);
        let event =
            Event { is_warning: false, reason: "Preempted", action: "Preempting", note: &note };
        record(client, &victim.key, &victim.uid, &event).await;
    }
    Ok(())
}

fn set_disrupted(pod: &mut Object, now: Timestamp) {
    let mut condition = Map::new();
    condition.insert("type", "DisruptionTarget");
    if pod.generation() > 0 {
        condition.insert("observedGeneration", pod.generation());
    }
    condition.insert("status", "True");
    condition.insert("lastProbeTime", Value::Null);
    condition.insert("reason", "PreemptionByScheduler");
    let message = format!("{NAME}: preempting to accommodate a higher priority pod");
    condition.insert("message", message);
    set_condition(pod, condition, now);
}

struct Event<'a> {
    is_warning: bool,
    reason: &'static str,
    action: &'static str,
    note: &'a str,
}

/// Creates an event about a pod. A failure is only logged.
async fn record(client: &Client, key: &PodKey, uid: &Str, event: &Event<'_>) {
    let Some(kind) = client.kind("events.k8s.io", "events") else { return };
    let now = client.now();
    let nanos = i128::from(now.seconds) * 1_000_000_000 + i128::from(now.nanos);
    let name = format!("{}.{nanos:x}", key.1);
    let pods = client.kind("", "pods");
    let cached = pods.and_then(|pods| {
        let entry = client.registry.cached(&pods, &key.0, &key.1)?;
        Some(Str::new(format!("{}", entry.modified().0)))
    });
    let mut regarding = value!({
        "kind": "Pod", "namespace": (key.0.clone()), "name": (key.1.clone()),
        "uid": (uid.clone()), "apiVersion": "v1"
    });
    if let (Some(map), Some(version)) = (regarding.as_object_mut(), cached) {
        map.insert("resourceVersion", version);
    }
    let fields = value!({
        "metadata": {"name": (name.as_str()), "namespace": (key.0.clone())},
        "eventTime": (now.micro().to_string()), "reportingController": NAME,
        "reportingInstance": INSTANCE, "action": (event.action), "reason": (event.reason),
        "regarding": (regarding), "note": (event.note),
        "type": (if event.is_warning { "Warning" } else { "Normal" })
    });
    let target = Target::of(&kind, &key.0, &name);
    let new = Object::from_value(fields).unwrap_or_default();
    match client.create(&target, new).await {
        // The namespace is terminating.
        Err(error) if error.code == 403 => tracing::debug!(%error, "event not stored"),
        Err(error) => tracing::warn!(%error, reason = event.reason, "event not stored"),
        Ok(_) => {}
    }
}
