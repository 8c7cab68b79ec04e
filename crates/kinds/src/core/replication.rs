//! ReplicationControllers, and the rules of replicas and templates that they share with the
//! workloads of other groups.

use crate::check::{Field, child, default, default_empty};
use crate::core::pod;
use crate::strategy::Strategy;
use keelson_meta::selector::Selector;
use keelson_meta::{ErrorList, Map, Object, Value};

const NO_MATCH: &str = "`selector` does not match template `labels`";
/// The field of a spec or status with the number of replicas.
pub(crate) const REPLICAS: &str = "replicas";

/// ReplicationControllers.
pub(super) const fn replication_controller(base: Strategy) -> Strategy {
    Strategy {
        default: default_replication_controller,
        validate: |new, _| validate_replication_controller(new),
        validate_status: |new, _| replica_set_status(new),
        warnings: pod::warnings::of_named_workload,
        ..base
    }
}

fn default_replication_controller(obj: &mut Object) {
    let spec = obj.object_mut("spec");
    default(spec, REPLICAS, 1);
    let Some(template) = child(spec, "template") else { return };
    pod::defaults::pod_spec(template.object_at("spec"));
    let labels = template.get("metadata").and_then(|m| m.get("labels")).cloned();
    let Some(labels) = labels.filter(|labels| !labels.is_empty()) else { return };
    default_empty(spec, "selector", labels.clone());
    default_empty(obj.metadata_mut(), "labels", labels);
}

fn validate_replication_controller(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    spec.field("minReadySeconds").not_negative(&mut errors);
    let selector = spec.field("selector");
    selector.not_empty(&mut errors, "");
    spec.field(REPLICAS).not_negative(&mut errors);
    let template = spec.field("template");
    if !template.is_set() {
        template.required(&mut errors, "");
        return errors;
    }
    let labels = selector
        .value
        .as_object()
        .into_iter()
        .flat_map(Map::iter)
        .map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()));
    let chosen = Selector::from_labels(labels);
    replicated_template(&template, &chosen, "ReplicationController", &mut errors);
    errors
}

/// Validates the status of a ReplicationController or ReplicaSet.
pub(crate) fn replica_set_status(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let status = Field::of(new, "status");
    let counts = [
        REPLICAS,
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "terminatingReplicas",
        "observedGeneration",
    ];
    counts.iter().for_each(|name| status.field(name).not_negative(&mut errors));
    at_most_replicas(&status, &["fullyLabeledReplicas", "readyReplicas"], &mut errors);
    available(&status, &mut errors);
    errors
}

/// Returns whether a selector matches the labels of a template.
pub(crate) fn selector_matches(selector: &Selector, template: &Field<'_, '_>) -> bool {
    let labels = template.value.at(&["metadata", "labels"]);
    let find = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
    selector.matches(find)
}

/// Validates a template, whose labels a selector must match.
pub(crate) fn replicated_template(
    at: &Field<'_, '_>,
    selector: &Selector,
    kind: &str,
    errors: &mut ErrorList,
) {
    if !selector.is_everything() && !selector_matches(selector, at) {
        labels_do_not_match(at, errors);
    }
    pod::spec::template(at, errors);
    require_restart_always(at, kind, errors);
}

/// Reports a template whose labels the selector does not match.
pub(crate) fn labels_do_not_match(template: &Field<'_, '_>, errors: &mut ErrorList) {
    let metadata = template.field("metadata");
    let labels = metadata.field("labels");
    labels.invalid_as(errors, labels.value.clone().sorted(), NO_MATCH);
}

/// Requires `restartPolicy: Always` and no `activeDeadlineSeconds`.
pub(crate) fn require_restart_always(template: &Field<'_, '_>, kind: &str, errors: &mut ErrorList) {
    let spec = template.field("spec");
    spec.field("restartPolicy").one_of(errors, &["Always"]);
    if spec.has("activeDeadlineSeconds") {
        let words = format!("activeDeadlineSeconds in {kind} is not Supported");
        spec.field("activeDeadlineSeconds").forbidden(errors, &words);
    }
}

/// Checks that these counts are at most `status.replicas`.
pub(crate) fn at_most_replicas(status: &Field<'_, '_>, names: &[&str], errors: &mut ErrorList) {
    let replicas = status.int(REPLICAS).unwrap_or(0);
    for name in names {
        let at = status.field(name);
        if at.number() > replicas {
            at.invalid_as(errors, at.number(), "cannot be greater than status.replicas");
        }
    }
}

/// Validates `availableReplicas`.
pub(crate) fn available(status: &Field<'_, '_>, errors: &mut ErrorList) {
    available_of(status, "readyReplicas", errors);
}

/// Validates `availableReplicas`. `ready` is upstream's name of the ready count.
pub(crate) fn available_of(status: &Field<'_, '_>, ready: &str, errors: &mut ErrorList) {
    at_most_replicas(status, &["availableReplicas"], errors);
    let at = status.field("availableReplicas");
    if at.number() > status.int("readyReplicas").unwrap_or(0) {
        at.invalid_as(errors, at.number(), &format!("cannot be greater than {ready}"));
    }
}
