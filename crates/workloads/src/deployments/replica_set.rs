//! Facts about the ReplicaSets of a Deployment.

use keelson_meta::{Object, Timestamp};
use std::cmp::Ordering;

/// Returns the desired number of pods.
pub(super) fn replicas(object: &Object) -> i64 {
    object.int_at(&["spec", "replicas"]).unwrap_or(1)
}

/// Returns a number of the status.
pub(super) fn counted(object: &Object, name: &str) -> i64 {
    object.int_at(&["status", name]).unwrap_or(0)
}

/// Returns the sum of a number of the status.
pub(super) fn sum_counted<'o>(objects: impl IntoIterator<Item = &'o Object>, name: &str) -> i64 {
    objects.into_iter().map(|object| counted(object, name)).sum()
}

/// Returns the sum of the desired numbers of pods.
pub(super) fn sum_replicas<'o>(objects: impl IntoIterator<Item = &'o Object>) -> i64 {
    objects.into_iter().map(replicas).sum()
}

/// Compares by age: older ones first, then by name.
pub(super) fn by_age(one: &Object, other: &Object) -> Ordering {
    let created = |object: &Object| Timestamp::parse(object.creation_timestamp()).ok();
    created(one).cmp(&created(other)).then_with(|| one.name().cmp(other.name()))
}

/// Compares by size: larger ones first, then newer ones.
pub(super) fn by_size_newer(one: &Object, other: &Object) -> Ordering {
    replicas(other).cmp(&replicas(one)).then_with(|| by_age(other, one))
}

/// Compares by size: larger ones first, then older ones.
pub(super) fn by_size_older(one: &Object, other: &Object) -> Ordering {
    replicas(other).cmp(&replicas(one)).then_with(|| by_age(one, other))
}

/// Compares by revision: lower ones first, then older ones.
pub(super) fn by_revision(one: &Object, other: &Object) -> Ordering {
    match (revision(one), revision(other)) {
        (Some(mine), Some(its)) => mine.cmp(&its).then_with(|| by_age(one, other)),
        _ => by_age(one, other),
    }
}

/// The annotations with the size of the Deployment when a ReplicaSet was sized, and with the
/// largest size that it had then.
pub(super) const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
pub(super) const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";

/// The annotation with the number of a revision.
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";

/// Returns the revision: 0 if there is none, `None` if it is not a number.
pub(super) fn revision(object: &Object) -> Option<i64> {
    object.annotation(REVISION).map_or(Some(0), |text| text.parse().ok())
}

fn number(object: &Object, name: &str) -> Option<i64> {
    let number: u32 = object.annotation(name)?.parse().ok()?;
    i32::try_from(number).ok().map(i64::from)
}

/// Returns the size of the Deployment when this ReplicaSet was sized.
pub(super) fn desired_replicas(set: &Object) -> Option<i64> {
    number(set, DESIRED_REPLICAS)
}

/// Returns the largest size that the Deployment had then.
pub(super) fn max_replicas(set: &Object) -> Option<i64> {
    number(set, MAX_REPLICAS)
}
