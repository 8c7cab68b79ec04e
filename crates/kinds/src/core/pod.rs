//! Pods and pod templates.

mod annotations;
mod containers;
mod context;
pub(crate) mod defaults;
mod env;
mod gated;
pub(crate) mod paths;
pub(crate) mod probes;
pub(crate) mod resources;
pub(crate) mod scheduling;
mod security;
pub(crate) mod spec;
mod status;
mod subresources;
mod update;
pub(crate) mod volumes;
pub(crate) mod warnings;

pub(crate) use gated::{GATED_STATUS, POD_SPEC};
pub(super) use update::differences;

use crate::check::{Field, child, children};
use crate::gates;
use crate::strategy::Strategy;
use keelson_meta::{ErrorList, Feature, Map, Object, Str, Value, value};
use std::collections::HashMap;

/// The default `terminationGracePeriodSeconds`.
const POD_GRACE_SECONDS: i64 = 30;

/// Pods.
pub(super) const fn pod(base: Strategy) -> Strategy {
    Strategy {
        default: |obj| {
            defaults::pod(obj);
            status::default_addresses(obj);
        },
        // Its QoS class is read; the rest is replaced.
        status_on_create: true,
        prepare_create,
        prepare_update,
        prepare_status: |new, old| {
            // The QoS class is computed at creation and stays.
            if new.str_at(&["status", "qosClass"]).is_empty()
                && let Some(class) = old.at(&["status", "qosClass"]).cloned()
            {
                new.object_mut("status").insert("qosClass", class);
            }
        },
        validate,
        validate_status: status::validate,
        prepare_warnings: annotations::warnings,
        warnings: warnings::of_pod,
        subresources: subresources::PARTS,
        grace_period: Some(grace_period),
        ..base
    }
}

/// PodTemplates.
pub(super) const fn pod_template(base: Strategy) -> Strategy {
    Strategy {
        default: |obj| defaults::template(&mut obj.root),
        validate: |new, _| {
            let mut errors = ErrorList::new();
            spec::template(&Field::of(new, "template"), &mut errors);
            errors
        },
        warnings: warnings::of_pod_template,
        ..base
    }
}

fn prepare_create(pod: &mut Object) {
    let now = pod.creation_timestamp().to_owned();
    clamp_grace_period(pod.object_mut("spec"));
    // Upstream asks the pod itself first, so that a class that the client sent stays.
    let class: Str = match pod.str_at(&["status", "qosClass"]) {
        "" => Str::new_static(resources::qos_class(pod)),
        given => given.into(),
    };
    let gated = !pod.array_at(&["spec", "schedulingGates"]).is_empty();
    merge_match_label_keys(pod);
    app_armor_from_annotations(pod);
    let mut status = Map::with_capacity(2);
    status.insert("phase", "Pending");
    status.insert("qosClass", class);
    if gated {
        let condition = value!({
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "lastProbeTime": null, "lastTransitionTime": (now.as_str()),
            "message": "Scheduling is blocked due to non-empty scheduling gates"
        });
        status.insert("conditions", vec![condition]);
    }
    pod.root.insert("status", status);
}

/// A negative grace period counts as 1 second.
fn clamp_grace_period(spec: &mut Map) {
    const NAME: &str = "terminationGracePeriodSeconds";
    if spec.get(NAME).and_then(Value::as_int).is_some_and(|seconds| seconds < 0) {
        spec.insert(NAME, 1);
    }
}

fn prepare_update(new: &mut Object, _: &Object) {
    clamp_grace_period(new.object_mut("spec"));
}

/// Merges `matchLabelKeys` and `mismatchLabelKeys` into the label selectors, with the values of the
/// pod's labels.
fn merge_match_label_keys(pod: &mut Object) {
    let has = |name: &str| pod.at(&["spec", name]).is_some();
    if !has("topologySpreadConstraints") && !has("affinity") {
        return;
    }
    let labels: Map =
        pod.at(&["metadata", "labels"]).and_then(Value::as_object).cloned().unwrap_or_default();
    let spec = pod.object_mut("spec");
    if gates::is_on(Feature::MatchLabelKeysInPodTopologySpread)
        && gates::is_on(Feature::MatchLabelKeysInPodTopologySpreadSelectorMerge)
    {
        for constraint in children(spec, "topologySpreadConstraints") {
            merge(constraint, "matchLabelKeys", "In", &labels);
        }
    }
    let Some(affinity) = child(spec, "affinity") else { return };
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(pods) = child(affinity, kind) else { continue };
        for term in children(pods, "requiredDuringSchedulingIgnoredDuringExecution") {
            merge(term, "matchLabelKeys", "In", &labels);
            merge(term, "mismatchLabelKeys", "NotIn", &labels);
        }
        for weighted in children(pods, "preferredDuringSchedulingIgnoredDuringExecution") {
            if let Some(term) = child(weighted, "podAffinityTerm") {
                merge(term, "matchLabelKeys", "In", &labels);
                merge(term, "mismatchLabelKeys", "NotIn", &labels);
            }
        }
    }
}

fn merge(term: &mut Map, keys: &str, operator: &str, labels: &Map) {
    let keys = term.get(keys).and_then(Value::as_array).unwrap_or_default().to_vec();
    let Some(selector) = child(term, "labelSelector") else { return };
    for key in keys.iter().filter_map(Value::as_str) {
        let Some(value) = labels.get(key).and_then(Value::as_str) else { continue };
        let condition = value!({"key": key, "operator": operator, "values": [value]});
        let list = selector.entry_or("matchExpressions", || Value::Array(vec![]));
        if let Value::Array(items) = list {
            items.push(condition);
        }
    }
}

/// Copies AppArmor profiles from annotations to containers without one.
fn app_armor_from_annotations(pod: &mut Object) {
    let of_pod = pod.at(&["spec", "securityContext", "appArmorProfile"]).cloned();
    let found: HashMap<String, Value> = pod
        .meta_map("annotations")
        .filter_map(|(key, text)| {
            Some((key.strip_prefix(annotations::APPARMOR)?.to_owned(), app_armor_profile(text)?))
        })
        .collect();
    if found.is_empty() {
        return;
    }
    let spec = pod.object_mut("spec");
    for list in ["initContainers", "containers"] {
        for container in children(spec, list) {
            let name = container.get("name").and_then(Value::as_str).unwrap_or_default();
            let Some(profile) = found.get(name) else { continue };
            if Some(profile) != of_pod.as_ref() {
                let context = container.object_at("securityContext");
                crate::check::default(context, "appArmorProfile", profile.clone());
            }
        }
    }
}

fn app_armor_profile(text: &str) -> Option<Value> {
    match text {
        "runtime/default" => Some(value!({"type": "RuntimeDefault"})),
        "unconfined" => Some(value!({"type": "Unconfined"})),
        _ => {
            let profile = text.strip_prefix("localhost/").filter(|profile| !profile.is_empty())?;
            Some(value!({"type": "Localhost", "localhostProfile": profile}))
        }
    }
}

/// Returns the grace period: 0 for a pod that is not scheduled or has ended.
fn grace_period(pod: &Object, requested: Option<i64>) -> i64 {
    let declared = pod.int_at(&["spec", "terminationGracePeriodSeconds"]);
    let period = requested.or(declared).unwrap_or(POD_GRACE_SECONDS);
    let ended = matches!(pod.str_at(&["status", "phase"]), "Failed" | "Succeeded");
    if pod.str_at(&["spec", "nodeName"]).is_empty() || ended {
        return 0;
    }
    // A negative grace period counts as 1 second.
    if period < 0 { 1 } else { period }
}

fn validate(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let at = Field::of(new, "spec");
    let metadata = Field::of(new, "metadata");
    let annotations = metadata.field("annotations");
    annotations::validate(&annotations, &at, annotations::is_cost_of(old), &mut errors);
    spec::pod_spec(&at, Some(new.name()), &mut errors);
    containers::images(&at, &mut errors);
    if let Some(old) = old {
        annotations::validate_update(new, old, &mut errors);
        update::validate(new, old, &mut errors);
        return errors;
    }
    annotations::match_fields(&annotations, &at, &mut errors);
    let ephemeral = at.field("ephemeralContainers");
    if !ephemeral.array().is_empty() {
        ephemeral.forbidden(&mut errors, "cannot be set on create");
    }
    let gates = at.field("schedulingGates");
    if !at.str("nodeName").is_empty() && !gates.array().is_empty() {
        let words = "cannot be set until all schedulingGates have been cleared";
        at.field("nodeName").forbidden(&mut errors, words);
    }
    errors
}
