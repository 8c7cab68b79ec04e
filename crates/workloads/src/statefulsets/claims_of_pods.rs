//! The owners of claims, by the retention policy of a StatefulSet: claims that are to be deleted
//! with the set or with a pod that is not wanted any more have it as their controller.

use super::identity::is_in_range;
use crate::pod_control::controller_reference;
use keelson_meta::{Object, Value};

/// Whether claims are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Retention {
    deletes_with_set: bool,
    deletes_when_scaled: bool,
}

fn retention(set: &Object) -> Retention {
    let path = ["spec", "persistentVolumeClaimRetentionPolicy"];
    let is_delete = |name| set.str_at(&[path[0], path[1], name]) == "Delete";
    Retention {
        deletes_with_set: is_delete("whenDeleted"),
        deletes_when_scaled: is_delete("whenScaled"),
    }
}

/// Whether claims of unwanted pods stay and are used again.
pub(super) fn reuses_claims(set: &Object) -> bool {
    !retention(set).deletes_when_scaled
}

fn owners(claim: &Object) -> &[Value] {
    claim.array_at(&["metadata", "ownerReferences"])
}

/// Whether a reference names this object, whatever its uid.
fn names(reference: &Value, object: &Object) -> bool {
    let text = |name| reference.str_at(&[name]).unwrap_or_default();
    text("apiVersion") == object.api_version()
        && text("kind") == object.kind()
        && text("name") == object.name()
}

fn has_uid(reference: &Value, object: &Object) -> bool {
    reference.str_at(&["uid"]).unwrap_or_default() == object.uid()
}

fn is_controller(reference: &Value) -> bool {
    reference.get("controller").and_then(Value::as_bool) == Some(true)
}

fn is_owned_by(claim: &Object, object: &Object) -> bool {
    owners(claim).iter().any(|reference| has_uid(reference, object))
}

/// Whether a claim belongs to an earlier object of the same name.
pub(super) fn is_stale(claim: &Object, object: &Object) -> bool {
    let named = owners(claim).iter().find(|reference| names(reference, object));
    named.is_some_and(|reference| !has_uid(reference, object))
}

/// Whether a claim has another controller than the set or the pod, so that the policy is not
/// applied.
pub(super) fn has_other_controller(claim: &Object, set: &Object, pod: &Object) -> bool {
    let retention = retention(set);
    if !retention.deletes_with_set && !retention.deletes_when_scaled {
        return false;
    }
    owners(claim).iter().any(|reference| {
        match [set, pod].into_iter().find(|object| names(reference, object)) {
            Some(object) => !has_uid(reference, object),
            None => is_controller(reference),
        }
    })
}

/// Returns whether the set and the pod should be controllers of a claim.
fn wanted(set: &Object, pod: &Object) -> (bool, bool) {
    let retention = retention(set);
    let is_condemned = !is_in_range(pod, set);
    let by_pod = retention.deletes_when_scaled && is_condemned;
    (retention.deletes_with_set && !by_pod, by_pod)
}

/// Whether the owners of a claim are as the policy wants them, or must not be touched.
pub(super) fn is_up_to_date(claim: &Object, set: &Object, pod: &Object) -> bool {
    if is_stale(claim, set) || is_stale(claim, pod) {
        return true;
    }
    if has_other_controller(claim, set, pod) {
        return !is_owned_by(claim, set) && !is_owned_by(claim, pod);
    }
    let is_mere_owner = owners(claim).iter().any(|reference| {
        (has_uid(reference, set) || has_uid(reference, pod)) && !is_controller(reference)
    });
    !is_mere_owner && (is_owned_by(claim, set), is_owned_by(claim, pod)) == wanted(set, pod)
}

/// Makes the owners of a claim those that the policy wants.
pub(super) fn set_owners(claim: &mut Object, set: &Object, pod: &Object) {
    let has_other = has_other_controller(claim, set, pod);
    let is_ours = |one: &Value| names(one, set) || names(one, pod);
    let mut kept: Vec<Value> =
        owners(claim).iter().filter(|reference| !is_ours(reference)).cloned().collect();
    if !has_other {
        let (by_set, by_pod) = wanted(set, pod);
        let new = [(by_pod, pod), (by_set, set)].into_iter().filter(|(is_wanted, _)| *is_wanted);
        kept.extend(new.map(|(_, object)| controller_reference(object)));
    }
    if kept.is_empty() {
        claim.metadata_mut().remove("ownerReferences");
    } else {
        claim.metadata_mut().insert("ownerReferences", kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    fn object(kind: &str, api_version: &str, name: &str, uid: &str) -> Object {
        let object = value!({"apiVersion": api_version, "kind": kind,
            "metadata": {"name": name, "uid": uid}});
        Object::from_value(object).expect("a map")
    }

    fn set(when_deleted: &str, when_scaled: &str) -> Object {
        let mut set = object("StatefulSet", "apps/v1", "db", "set");
        let policy = value!({"whenDeleted": when_deleted, "whenScaled": when_scaled});
        set.object_mut("spec").insert("replicas", 2);
        set.object_mut("spec").insert("persistentVolumeClaimRetentionPolicy", policy);
        set
    }

    #[test]
    fn a_claim_is_controlled_by_what_it_is_deleted_with() {
        let check = |deleted: &str, scaled: &str, ordinal: &str, wanted: &[&str]| {
            let set = set(deleted, scaled);
            let pod = object("Pod", "v1", &format!("db-{ordinal}"), "pod");
            let mut claim = object("PersistentVolumeClaim", "v1", "data-db-0", "claim");
            set_owners(&mut claim, &set, &pod);
            let uids: Vec<&str> =
                owners(&claim).iter().filter_map(|one| one.str_at(&["uid"])).collect();
            assert_eq!(uids, wanted, "{deleted} {scaled} {ordinal}");
            assert!(is_up_to_date(&claim, &set, &pod));
        };
        for ordinal in ["0", "5"] {
            check("Retain", "Retain", ordinal, &[]);
            check("Delete", "Retain", ordinal, &["set"]);
        }
        check("Retain", "Delete", "0", &[]);
        check("Retain", "Delete", "5", &["pod"]);
        check("Delete", "Delete", "0", &["set"]);
        check("Delete", "Delete", "5", &["pod"]);
    }

    #[test]
    fn claims_of_others_are_not_touched() {
        let set = set("Delete", "Delete");
        let pod = object("Pod", "v1", "db-0", "pod");
        let mut claim = object("PersistentVolumeClaim", "v1", "data-db-0", "claim");
        let other = object("Thing", "x.io/v1", "other", "other");
        claim.metadata_mut().insert("ownerReferences", vec![controller_reference(&other)]);
        assert!(has_other_controller(&claim, &set, &pod) && is_up_to_date(&claim, &set, &pod));
        let earlier = object("StatefulSet", "apps/v1", "db", "earlier");
        claim.metadata_mut().insert("ownerReferences", vec![controller_reference(&earlier)]);
        assert!(is_stale(&claim, &set) && is_up_to_date(&claim, &set, &pod));
    }
}
