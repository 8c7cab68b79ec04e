//! The pod subresources `ephemeralcontainers` and `resize`.

use super::resources::qos_class;
use super::{annotations, containers, spec, update};
use crate::check::{Field, child, take};
use crate::equality::equal_or_empty;
use crate::equality::{self, go};
use crate::gates;
use crate::strategy::SubresourceStrategy;
use keelson_meta::{ErrorList, Feature, FieldError, Map, Object, Path, Value};
use std::collections::HashMap;

const RESIZABLE: &str = "only cpu and memory resources are mutable";
const NO_POD_LEVEL_RESIZE: &str = "resize of pods with pod-level resources is forbidden when \
                                   InPlacePodLevelResourcesVerticalScalingEnabled feature gate is \
                                   disabled";

/// The rules of both subresources.
pub(super) const PARTS: &[SubresourceStrategy] = &[
    SubresourceStrategy {
        name: "ephemeralcontainers",
        prepare: restore_except_ephemeral_containers,
        validate: validate_ephemeral_containers,
    },
    SubresourceStrategy {
        name: "resize",
        prepare: restore_except_resources,
        validate: validate_resize,
    },
];

const LISTS: [&str; 2] = ["containers", "initContainers"];
/// The resources that a resize may change.
const RESIZED: [&str; 2] = ["cpu", "memory"];

/// Replaces the new pod by the stored one, except for metadata that validation compares. Returns
/// the new spec.
fn restore(new: &mut Object, old: &Object) -> Map {
    let desired = std::mem::take(new);
    *new = old.clone();
    const TAKEN: [&str; 7] = [
        "resourceVersion",
        "managedFields",
        "uid",
        "name",
        "namespace",
        "generateName",
        "deletionGracePeriodSeconds",
    ];
    for name in TAKEN {
        match desired.metadata().and_then(|metadata| metadata.get(name)) {
            Some(value) => new.metadata_mut().insert(name, value.clone()),
            None => new.metadata_mut().remove(name),
        };
    }
    desired.get("spec").and_then(Value::as_object).cloned().unwrap_or_default()
}

fn restore_except_ephemeral_containers(new: &mut Object, old: &Object) {
    let desired = restore(new, old);
    take(Some(&desired), new.object_mut("spec"), "ephemeralContainers");
}

/// Restores everything except resources. If the containers are not those of before, in their order,
/// they stay as sent, for validation to reject.
fn restore_except_resources(new: &mut Object, old: &Object) {
    let desired = restore(new, old);
    let spec = new.object_mut("spec");
    if gates::is_on(Feature::InPlacePodLevelResourcesVerticalScaling) {
        take(Some(&desired), spec, "resources");
    }
    for list in LISTS {
        if !names_of(&desired, list).eq(names_of(spec, list)) {
            take(Some(&desired), spec, list);
            continue;
        }
        let containers = desired.get(list).and_then(Value::as_array).unwrap_or_default();
        let stored = spec.get_mut(list).and_then(Value::as_array_mut);
        for (stored, desired) in stored.into_iter().flatten().zip(containers) {
            if let (Some(stored), Some(desired)) = (stored.as_object_mut(), desired.as_object()) {
                for name in ["resources", "resizePolicy"] {
                    take(Some(desired), stored, name);
                }
            }
        }
    }
}

/// Returns the names of containers.
fn names_of<'s>(spec: &'s Map, list: &str) -> impl Iterator<Item = Option<&'s str>> {
    let containers = spec.get(list).and_then(Value::as_array).unwrap_or_default();
    containers.iter().map(|container| container.str_at(&["name"]))
}

fn validate_ephemeral_containers(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let at = Field::of(new, "spec");
    spec::pod_spec(&at, Some(new.name()), &mut errors);
    containers::images(&at, &mut errors);
    let Some(old) = old else { return errors };
    if is_mirror(old) {
        let words = "static pods do not support ephemeral containers";
        errors.push(FieldError::forbidden(&Path::ROOT.key(""), words));
        return errors;
    }
    let list = at.field("ephemeralContainers");
    let desired: HashMap<&str, &Value> = list
        .array()
        .iter()
        .filter_map(|container| Some((container.str_at(&["name"])?, container)))
        .collect();
    for stored in old.array_at(&["spec", "ephemeralContainers"]) {
        let name = stored.str_at(&["name"]).unwrap_or_default();
        match desired.get(name) {
            None => {
                let words = format!("existing ephemeral containers {name:?} may not be removed\n");
                list.forbidden(&mut errors, &words);
            }
            Some(desired) if !equality::equal(go::EPHEMERAL_CONTAINER, desired, stored) => {
                let lines = update::differences(desired, stored);
                let words =
                    format!("existing ephemeral containers {name:?} may not be changed\n{lines}");
                list.forbidden(&mut errors, &words);
            }
            Some(_) => {}
        }
    }
    errors
}

fn is_mirror(pod: &Object) -> bool {
    pod.meta_map("annotations").any(|(key, _)| key == annotations::MIRROR)
}

fn validate_resize(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let at = Field::of(new, "spec");
    let Some(old) = old else { return errors };
    let unsupported = if is_mirror(old) {
        Some("static pods cannot be resized")
    } else if old.str_at(&["spec", "os", "name"]) == "windows" {
        Some("windows pods cannot be resized")
    } else {
        None
    };
    if let Some(words) = unsupported {
        errors.push(FieldError::forbidden(&Path::ROOT.key(""), words));
        return errors;
    }
    spec::pod_spec(&at, Some(new.name()), &mut errors);
    containers::images(&at, &mut errors);
    let before = Field::of(old, "spec");
    let stored_class = old.str_at(&["status", "qosClass"]);
    let class = if stored_class.is_empty() { qos_class(old) } else { stored_class };
    if class != qos_class(new) {
        let words = "Pod QOS Class may not change as a result of resizing";
        at.invalid_as(&mut errors, class, words);
    }
    if !may_resize(old) {
        at.forbidden(&mut errors, "Pod running on node without support for resize");
    }
    if has_amounts(at.get("resources")) || has_amounts(before.get("resources")) {
        if !gates::is_on(Feature::InPlacePodLevelResourcesVerticalScaling) {
            errors.push(FieldError::forbidden(&Path::ROOT.key(""), NO_POD_LEVEL_RESIZE));
            return errors;
        }
        pod_level(&at, &before, &mut errors);
    }
    if !old.array_at(&["status", "nodeAllocatableResourceClaimStatuses"]).is_empty() {
        at.forbidden(&mut errors, "pods with node allocatable resource claims cannot be resized");
    }
    if !has_same_containers(&at, &before, &mut errors) {
        return errors;
    }
    for list in ["initContainers", "containers"] {
        let is_checked = |old: &Value| list == "containers" || is_resizable_at_first(old);
        resources_not_removed(&at.field(list), before.field(list).array(), is_checked, &mut errors);
    }
    only_resized(&at, &before, &mut errors);
    errors
}

/// Returns whether the kubelet of a pod says which resources its containers have, as those do that
/// can resize them. Before a container runs, nobody knows.
fn may_resize(pod: &Object) -> bool {
    let statuses = pod.array_at(&["status", "containerStatuses"]);
    let running = statuses
        .iter()
        .find(|status| status.at(&["state", "running"]).is_some_and(|running| !running.is_null()));
    running.is_none_or(|status| status.get("resources").is_some_and(|given| !given.is_null()))
}

fn has_amounts(resources: &Value) -> bool {
    ["requests", "limits"].iter().any(|list| {
        resources.get(list).and_then(Value::as_object).is_some_and(|amounts| !amounts.is_empty())
    })
}

/// Checks a change of the resources of the whole pod.
fn pod_level(at: &Field<'_, '_>, before: &Field<'_, '_>, errors: &mut ErrorList) {
    let of_pod = at.field("resources");
    if before.has("resources") && !of_pod.is_set() {
        return of_pod.forbidden(errors, "pod-level resources cannot be removed");
    }
    amounts_not_removed(&of_pod, before.value, "pod-level resource", errors);
    let rest = with_stored_amounts(at.value, before.value);
    if !equal_or_empty(rest.get("resources").unwrap_or(&Value::Null), before.get("resources")) {
        at.forbidden(errors, &format!("{RESIZABLE} at pod-level"));
    }
}

fn is_restartable(container: &Value) -> bool {
    container.str_at(&["restartPolicy"]) == Some("Always")
}

/// Returns whether the resources of an init container can be changed.
fn is_resizable_at_first(container: &Value) -> bool {
    is_restartable(container) || gates::is_on(Feature::InPlacePodVerticalScalingInitContainers)
}

/// Checks that the containers and their order are unchanged.
fn has_same_containers(at: &Field<'_, '_>, before: &Field<'_, '_>, errors: &mut ErrorList) -> bool {
    let found = errors.len();
    for list in LISTS {
        let now = at.field(list);
        let then = before.field(list);
        if now.array().len() != then.array().len() {
            let words = format!("{list} may not be added or removed on resize");
            now.forbidden(errors, &words);
            continue;
        }
        for (container, stored) in now.items().zip(then.array()) {
            let name = container.field("name");
            if stored.str_at(&["name"]) != Some(name.text()) {
                name.forbidden(
                    errors,
                    &format!("{list} may not be renamed or reordered on resize"),
                );
            }
        }
    }
    errors.len() == found
}

/// Checks that no stored request or limit is removed.
fn resources_not_removed(
    at: &Field<'_, '_>,
    stored: &[Value],
    is_checked: impl Fn(&Value) -> bool,
    errors: &mut ErrorList,
) {
    for (container, stored) in at.items().zip(stored).filter(|(_, stored)| is_checked(stored)) {
        amounts_not_removed(&container.field("resources"), stored, "resource", errors);
    }
}

/// Checks that `resources` have all requests and limits of a stored container or pod spec.
fn amounts_not_removed(
    resources: &Field<'_, '_>,
    stored: &Value,
    what: &str,
    errors: &mut ErrorList,
) {
    for list in ["requests", "limits"] {
        let now = resources.field(list);
        let then = stored.at(&["resources", list]).and_then(Value::as_object);
        if then.into_iter().flat_map(Map::iter).any(|(name, _)| !now.has(name)) {
            now.forbidden(errors, &format!("{what} {list} cannot be removed"));
        }
    }
}

fn only_resized(at: &Field<'_, '_>, before: &Field<'_, '_>, errors: &mut ErrorList) {
    let differs = |now: &Value, then: &Value| {
        let mut now = with_stored_amounts(now, then);
        // Upstream drops the claims before the comparison, so containers with claims cannot be
        // resized.
        if let Some(resources) = child(&mut now, "resources") {
            resources.remove("claims");
        }
        !equality::equal(go::CONTAINER, &Value::Object(now), then)
    };
    let list = at.field("containers");
    let mut pairs = list.items().zip(before.field("containers").array());
    if pairs.any(|(now, then)| differs(now.value, then)) {
        at.forbidden(errors, RESIZABLE);
    }
    let list = at.field("initContainers");
    for (container, stored) in list.items().zip(before.field("initContainers").array()) {
        let is_modified = !equality::equal(go::CONTAINER, container.value, stored);
        if !is_resizable_at_first(container.value) {
            if is_modified {
                let words = "resources for non-sidecar init containers are immutable";
                at.forbidden(errors, words);
            }
            continue;
        }
        if differs(container.value, stored) {
            let words = "only cpu and memory resources for init or sidecar containers are mutable";
            container.forbidden(errors, words);
        }
        let policies = container.field("resizePolicy");
        let restarts =
            policies.items().filter(|one| one.str("restartPolicy") == "RestartContainer");
        if is_modified && !is_restartable(container.value) {
            for _ in restarts {
                let words = "non-sidecar init containers with a resize policy of RestartContainer \
                             cannot be resized";
                container.forbidden(errors, words);
            }
        }
    }
}

/// Returns a container or pod spec with the stored amounts of resizable resources.
fn with_stored_amounts(desired: &Value, stored: &Value) -> Map {
    let mut desired = desired.as_object().cloned().unwrap_or_default();
    if desired.get("resources").is_none() && stored.get("resources").is_none() {
        return desired;
    }
    let resources = desired.object_at("resources");
    for list in ["requests", "limits"] {
        let amounts = resources.object_at(list);
        for name in RESIZED {
            match stored.at(&["resources", list, name]) {
                Some(amount) => amounts.insert(name, amount.clone()),
                None => amounts.remove(name),
            };
        }
    }
    desired
}
