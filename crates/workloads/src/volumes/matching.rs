//! Which volume a claim gets, and what binding writes into both: pure functions.

use keelson_meta::quantity::Quantity;
use keelson_meta::selector::Selector;
use keelson_meta::{Map, Object, Value, value};
use std::cmp::Reverse;

/// Annotation of a claim whose binding is complete.
pub(crate) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Annotation of objects that this loop, not their creator, has bound.
pub(crate) const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// Annotation of a provisioned volume.
pub(crate) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Annotation of a claim: the node that the scheduler has chosen for its first pod.
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Annotations of a claim: who provisions its volume.
pub(crate) const PROVISIONERS: [&str; 2] =
    ["volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-provisioner"];
const CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const DEFAULT_CLASS: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];

/// Returns the storage class of a claim or a volume, empty if there is none.
pub(crate) fn class_of(object: &Object) -> &str {
    object.annotation(CLASS).unwrap_or_else(|| object.str_at(&["spec", "storageClassName"]))
}

/// Whether a claim states a class, even an empty one.
pub(crate) fn states_class(claim: &Object) -> bool {
    claim.annotation(CLASS).is_some()
        || claim.at(&["spec", "storageClassName"]).and_then(Value::as_str).is_some()
}

/// Returns the default class: the newest of those that are marked.
pub(crate) fn default_class(classes: &[Object]) -> Option<&str> {
    let is_default =
        |class: &&Object| DEFAULT_CLASS.iter().any(|name| class.annotation(name) == Some("true"));
    let marked = classes.iter().filter(is_default);
    let newest = marked.min_by_key(|class| (Reverse(class.creation_timestamp()), class.name()));
    newest.map(Object::name)
}

fn amount(value: Option<&Value>) -> Quantity {
    let text = value.and_then(Value::as_str).unwrap_or("0");
    text.parse().unwrap_or_else(|_| Quantity::new(0, keelson_meta::quantity::Format::BinarySi))
}

pub(crate) fn requested(claim: &Object) -> Quantity {
    amount(claim.at(&["spec", "resources", "requests", "storage"]))
}

pub(crate) fn capacity(volume: &Object) -> Quantity {
    amount(volume.at(&["spec", "capacity", "storage"]))
}

/// Whether a volume is reserved for a claim.
pub(crate) fn is_bound_to(volume: &Object, claim: &Object) -> bool {
    let text = |name: &str| volume.str_at(&["spec", "claimRef", name]);
    volume.at(&["spec", "claimRef"]).is_some_and(Value::is_map)
        && text("name") == claim.name()
        && text("namespace") == claim.namespace()
        && (text("uid").is_empty() || text("uid") == claim.uid())
}

pub(crate) fn has_other_mode(claim: &Object, volume: &Object) -> bool {
    let mode = |object: &Object| match object.str_at(&["spec", "volumeMode"]) {
        "" => "Filesystem".to_owned(),
        mode => mode.to_owned(),
    };
    mode(claim) != mode(volume)
}

fn attributes(object: &Object) -> &str {
    object.str_at(&["spec", "volumeAttributesClassName"])
}

fn has_modes(claim: &Object, volume: &Object) -> bool {
    let offered = volume.array_at(&["spec", "accessModes"]);
    claim.array_at(&["spec", "accessModes"]).iter().all(|mode| offered.contains(mode))
}

/// Returns why a volume that a claim asks for by name does not suit it.
pub(crate) fn mismatch(volume: &Object, claim: &Object) -> Option<String> {
    let why = if volume.deletion_timestamp().is_some() {
        return Some(format!("the volume is marked for deletion {:?}", volume.name()));
    } else if capacity(volume).value() < requested(claim).value() {
        "requested PV is too small"
    } else if class_of(volume) != class_of(claim) {
        "storageClassName does not match"
    } else if attributes(volume) != attributes(claim) {
        "volumeAttributesClassName does not match"
    } else if has_other_mode(claim, volume) {
        "incompatible volumeMode"
    } else if !has_modes(claim, volume) {
        "incompatible accessMode"
    } else {
        return None;
    };
    Some(why.to_owned())
}

/// Returns the best volume for a claim: one that is reserved for it, else the smallest that is
/// large enough, those with the fewest access modes first. `is_delayed`: the scheduler decides, so
/// only a reserved volume will do.
pub(crate) fn find_best<'v>(
    claim: &Object,
    volumes: impl IntoIterator<Item = &'v Object>,
    is_delayed: bool,
) -> Option<&'v Object> {
    let selector =
        claim.at(&["spec", "selector"]).map(|selector| Selector::from_object(Some(selector)));
    let wanted = requested(claim);
    let suits = |volume: &&Object| {
        let is_free = !volume.at(&["spec", "claimRef"]).is_some_and(Value::is_map);
        let is_reserved = is_bound_to(volume, claim);
        if !(is_free || is_reserved)
            || !has_modes(claim, volume)
            || capacity(volume) < wanted
            || has_other_mode(claim, volume)
            || attributes(volume) != attributes(claim)
            || volume.deletion_timestamp().is_some()
        {
            return false;
        }
        is_reserved
            || !is_delayed
                && volume.str_at(&["status", "phase"]) == "Available"
                && class_of(volume) == class_of(claim)
                && selector.as_ref().is_none_or(|selector| {
                    selector.as_ref().is_ok_and(|selector| selector.matches_object(volume))
                })
    };
    let rank = |volume: &&Object| {
        let modes = volume.array_at(&["spec", "accessModes"]).len();
        (modes, !is_bound_to(volume, claim), capacity(volume), volume.name().to_owned())
    };
    volumes.into_iter().filter(suits).min_by_key(rank)
}

/// Returns the reference of a volume to its claim.
pub(crate) fn claim_reference(claim: &Object) -> Value {
    value!({"kind": "PersistentVolumeClaim", "namespace": (claim.namespace()),
        "name": (claim.name()), "uid": (claim.uid()), "apiVersion": "v1",
        "resourceVersion": (claim.resource_version())})
}

fn annotate(object: &mut Object, name: &'static str, text: &str) -> bool {
    if object.annotation(name).is_some() {
        return false;
    }
    object.metadata_mut().object_at("annotations").insert(name, text);
    true
}

/// Returns the volume with a reference to the claim; `None`: it has one.
pub(crate) fn bind_volume(volume: &Object, claim: &Object) -> Option<Object> {
    let text = |name: &str| volume.str_at(&["spec", "claimRef", name]);
    let is_same = text("name") == claim.name()
        && text("namespace") == claim.namespace()
        && text("uid") == claim.uid();
    let mut bound = volume.clone();
    if !is_same {
        bound.object_mut("spec").insert("claimRef", claim_reference(claim));
    }
    let is_marked = !is_bound_to(volume, claim) && annotate(&mut bound, BOUND_BY_CONTROLLER, "yes");
    (is_marked || !is_same).then_some(bound)
}

/// Returns the claim with the name of its volume; `None`: it has it.
pub(crate) fn bind_claim(claim: &Object, volume: &Object) -> Option<Object> {
    let mut bound = claim.clone();
    let is_new = claim.str_at(&["spec", "volumeName"]) != volume.name();
    if is_new {
        bound.object_mut("spec").insert("volumeName", volume.name());
        annotate(&mut bound, BOUND_BY_CONTROLLER, "yes");
    }
    (annotate(&mut bound, BIND_COMPLETED, "yes") || is_new).then_some(bound)
}

/// Returns the volume without its claim. One that its creator has reserved stays reserved.
pub(crate) fn unbind_volume(volume: &Object) -> Object {
    let mut free = volume.clone();
    if volume.annotation(BOUND_BY_CONTROLLER).is_none() {
        free.object_mut("spec").object_at("claimRef").remove("uid");
        return free;
    }
    free.object_mut("spec").remove("claimRef");
    let annotations = free.metadata_mut().object_at("annotations");
    annotations.remove(BOUND_BY_CONTROLLER);
    if annotations.is_empty() {
        free.metadata_mut().remove("annotations");
    }
    free
}

/// Returns the claim with another status; `None`: it has it. Capacity and access modes are those of
/// the volume.
pub(crate) fn claim_status(claim: &Object, phase: &str, volume: Option<&Object>) -> Option<Object> {
    let mut changed = claim.clone();
    let is_new = claim.str_at(&["status", "phase"]) != phase;
    let status = changed.object_mut("status");
    status.insert("phase", phase);
    let class = "currentVolumeAttributesClassName";
    match volume {
        None => {
            for name in ["accessModes", "capacity", class] {
                status.remove(name);
            }
        }
        Some(volume) => {
            let member = |name: &str| volume.at(&["spec", name]).filter(|value| !value.is_null());
            member("accessModes").map(|modes| status.insert("accessModes", modes.clone()));
            if is_new {
                let capacity = member("capacity").cloned();
                status.insert("capacity", capacity.unwrap_or_else(|| Map::new().into()));
                let attributes = member("volumeAttributesClassName");
                attributes.map(|name| status.insert(class, name.clone()));
            }
        }
    }
    (changed != *claim).then_some(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim() -> Object {
        Object::from_value(value!({
            "metadata": {"name": "data", "namespace": "n", "uid": "c", "resourceVersion": "7"},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
                "resources": {"requests": {"storage": "2Gi"}}}}))
        .expect("a map")
    }

    fn volume(name: &str, size: &str, change: impl Fn(&mut Object)) -> Object {
        let mut volume = Object::from_value(value!({"metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
                "capacity": {"storage": size}}, "status": {"phase": "Available"}}))
        .expect("a map");
        change(&mut volume);
        volume
    }

    #[test]
    fn the_smallest_volume_that_suits_is_chosen() {
        let reserve = |volume: &mut Object, name: &str| {
            let claim = value!({"name": name, "namespace": "n"});
            volume.object_mut("spec").insert("claimRef", claim);
        };
        let many = |volume: &mut Object| {
            let modes = value!(["ReadWriteOnce", "ReadOnlyMany"]);
            volume.object_mut("spec").insert("accessModes", modes);
        };
        let class = |volume: &mut Object| {
            volume.object_mut("spec").insert("storageClassName", "slow");
        };
        let check = |volumes: &[Object], is_delayed: bool, want: Option<&str>| {
            let found = find_best(&claim(), volumes, is_delayed);
            assert_eq!(found.map(Object::name), want);
        };
        let plain = |_: &mut Object| ();
        let some = [
            volume("small", "1Gi", plain),
            volume("large", "9Gi", plain),
            volume("right", "2Gi", class),
            volume("good", "3Gi", plain),
            volume("many", "2Gi", many),
            volume("taken", "2Gi", |volume| reserve(volume, "other")),
        ];
        check(&some, false, Some("good"));
        check(&some, true, None);
        let mine =
            [volume("good", "3Gi", plain), volume("mine", "5Gi", |one| reserve(one, "data"))];
        check(&mine, false, Some("mine"));
        check(&mine, true, Some("mine"));
    }

    #[test]
    fn binding_marks_both_sides() {
        let claim = claim();
        let volume = volume("v", "3Gi", |_| ());
        let bound = bind_volume(&volume, &claim).expect("a change");
        assert_eq!(bound.annotation(BOUND_BY_CONTROLLER), Some("yes"));
        assert!(is_bound_to(&bound, &claim) && bind_volume(&bound, &claim).is_none());
        assert_eq!(unbind_volume(&bound), volume);
        let chosen = bind_claim(&claim, &bound).expect("a change");
        assert_eq!(chosen.annotation(BIND_COMPLETED), Some("yes"));
        assert!(bind_claim(&chosen, &bound).is_none());
        let done = claim_status(&chosen, "Bound", Some(&bound)).expect("a change");
        let wanted = value!({"phase": "Bound", "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "3Gi"}});
        assert_eq!(done.get("status"), Some(&wanted));
        assert!(claim_status(&done, "Bound", Some(&bound)).is_none());
        let lost = claim_status(&done, "Lost", None).expect("a change");
        assert_eq!(lost.get("status"), Some(&value!({"phase": "Lost"})));
    }

    #[test]
    fn the_newest_default_class_counts() {
        let class = |name: &str, created: &str, is_default: &str| {
            Object::from_value(value!({"metadata": {"name": name, "creationTimestamp": created,
                "annotations": {"storageclass.kubernetes.io/is-default-class": is_default}}}))
            .expect("a map")
        };
        let classes = [
            class("a", "2026-01-01T00:00:00Z", "true"),
            class("c", "2026-01-02T00:00:00Z", "true"),
            class("b", "2026-01-02T00:00:00Z", "true"),
            class("d", "2026-01-03T00:00:00Z", "false"),
        ];
        assert_eq!(default_class(&classes), Some("b"));
        assert_eq!(default_class(&classes[3..]), None);
    }
}
