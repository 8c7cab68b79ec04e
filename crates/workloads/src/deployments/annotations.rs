//! The annotations by which a Deployment and its ReplicaSets know their revisions and sizes.

use super::replica_set::{DESIRED_REPLICAS, MAX_REPLICAS, REVISION, replicas, revision};
use super::strategy::max_surge;
use keelson_meta::{Map, Object};

const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
pub(super) const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";
/// Annotations that are not copied between a Deployment and its ReplicaSets.
const NOT_COPIED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    ROLLBACK_TO,
];
/// Maximum length of the list of earlier revisions.
const HISTORY_BYTES_MAX: usize = 2000;

fn annotations_mut(object: &mut Object) -> &mut Map {
    object.metadata_mut().object_at("annotations")
}

/// Sets an annotation and returns whether it had another value.
pub(super) fn set(object: &mut Object, name: &'static str, text: &str) -> bool {
    let is_other = object.annotation(name) != Some(text);
    if is_other {
        annotations_mut(object).insert(name, text);
    }
    is_other
}

/// Records the present size of a Deployment in a ReplicaSet; returns whether that is a change.
pub(super) fn set_sizes(set_object: &mut Object, deployment: &Object) -> bool {
    let desired = replicas(deployment);
    let is_other = set(set_object, DESIRED_REPLICAS, &desired.to_string());
    let most = desired + max_surge(deployment);
    set(set_object, MAX_REPLICAS, &most.to_string()) || is_other
}

/// Copies the annotations of a Deployment to its new ReplicaSet and sets its revision; returns
/// whether that is a change.
pub(super) fn set_new(deployment: &Object, set_object: &mut Object, new_revision: i64) -> bool {
    let mut is_changed = false;
    for (name, text) in deployment.meta_map("annotations") {
        if !NOT_COPIED.contains(&name) && set_object.annotation(name) != Some(text) {
            annotations_mut(set_object).insert(name, text);
            is_changed = true;
        }
    }
    let old = set_object.annotation(REVISION).map(str::to_owned);
    let Some(old_revision) = revision_or_empty(old.as_deref()) else { return false };
    if old_revision >= new_revision {
        return is_changed;
    }
    set(set_object, REVISION, &new_revision.to_string());
    if let Some(old) = old {
        add_to_history(set_object, &old);
    }
    true
}

/// An empty annotation counts as no revision.
fn revision_or_empty(text: Option<&str>) -> Option<i64> {
    match text {
        None | Some("") => Some(0),
        Some(text) => text.parse().ok(),
    }
}

/// Appends an earlier revision; the first ones are dropped when the list is too long.
fn add_to_history(set_object: &mut Object, old: &str) {
    let history = set_object.annotation(REVISION_HISTORY).unwrap_or_default().to_owned();
    let mut revisions: Vec<&str> = history.split(',').collect();
    if revisions[0].is_empty() {
        set(set_object, REVISION_HISTORY, old);
        return;
    }
    let mut length = history.len() + old.len() + 1;
    let mut dropped = 0;
    while length > HISTORY_BYTES_MAX && dropped < revisions.len() {
        length -= revisions[dropped].len() + 1;
        dropped += 1;
    }
    if length <= HISTORY_BYTES_MAX {
        revisions.drain(..dropped);
        revisions.push(old);
        set(set_object, REVISION_HISTORY, &revisions.join(","));
    }
}

/// Gives a Deployment the annotations of the ReplicaSet to which it is rolled back.
pub(super) fn restore(deployment: &mut Object, set_object: &Object) {
    annotations_mut(deployment).retain(|name, _| NOT_COPIED.contains(&name.as_str()));
    for (name, text) in set_object.meta_map("annotations") {
        if !NOT_COPIED.contains(&name) {
            annotations_mut(deployment).insert(name, text);
        }
    }
}

/// Returns the revision to which a Deployment is to be rolled back.
pub(super) fn rollback_to(deployment: &Object) -> Option<i64> {
    deployment.annotation(ROLLBACK_TO)?.parse().ok()
}

/// Removes the wish to be rolled back.
pub(super) fn clear_rollback(deployment: &mut Object) {
    annotations_mut(deployment).remove(ROLLBACK_TO);
}

/// Returns the highest revision.
pub(super) fn max_revision<'o>(sets: impl IntoIterator<Item = &'o Object>) -> i64 {
    sets.into_iter().filter_map(revision).fold(0, i64::max)
}

/// Returns the second highest revision.
pub(super) fn last_revision<'o>(sets: impl IntoIterator<Item = &'o Object>) -> i64 {
    let mut first = 0;
    let mut second = 0;
    for revision in sets.into_iter().filter_map(revision) {
        if revision >= first {
            (first, second) = (revision, first);
        } else {
            second = second.max(revision);
        }
    }
    second
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::{Value, value};

    fn object(annotations: Value) -> Object {
        let object = value!({"metadata": {"annotations": (annotations)}, "spec": {"replicas": 2}});
        Object::from_value(object).expect("a map")
    }

    #[test]
    fn the_new_set_gets_the_annotations_and_the_next_revision() {
        let deployment = object(value!({"a": "b", "deployment.kubernetes.io/revision": "7"}));
        let mut set = object(value!({}));
        assert!(set_new(&deployment, &mut set, 3));
        let wanted = value!({"a": "b", "deployment.kubernetes.io/revision": "3"});
        assert_eq!(set.at(&["metadata", "annotations"]), Some(&wanted));
        assert!(!set_new(&deployment, &mut set, 3));
        assert!(!set_new(&deployment, &mut set, 2));
        assert!(set_new(&deployment, &mut set, 5));
        assert!(set_new(&deployment, &mut set, 6));
        assert_eq!(set.annotation(REVISION), Some("6"));
        assert_eq!(set.annotation(REVISION_HISTORY), Some("3,5"));
    }

    #[test]
    fn a_long_history_loses_its_first_revisions() {
        let long = format!("1,{}", "2".repeat(1996));
        let mut set = object(value!({"deployment.kubernetes.io/revision": "40",
            "deployment.kubernetes.io/revision-history": (long.as_str())}));
        set_new(&object(value!({})), &mut set, 41);
        let wanted = format!("{},40", "2".repeat(1996));
        assert_eq!(set.annotation(REVISION_HISTORY), Some(wanted.as_str()));
    }

    #[test]
    fn the_last_revision_is_the_second_highest() {
        let sets = ["3", "x", "1", "2"]
            .map(|one| object(value!({"deployment.kubernetes.io/revision": one})));
        assert_eq!((max_revision(&sets), last_revision(&sets)), (3, 2));
    }
}
