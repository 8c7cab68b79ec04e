//! How many pods the ReplicaSets of a Deployment may have: limits of a rolling update, and how a
//! change of the size is shared among them.

use super::replica_set::{counted, max_replicas, replicas, sum_replicas};
use keelson_loops::int_or_percent::{Rounding, resolve};
use keelson_meta::{Object, Value};

const ROLLING: &[&str] = &["spec", "strategy", "rollingUpdate"];

/// Whether pods are replaced step by step.
pub(super) fn is_rolling(deployment: &Object) -> bool {
    deployment.str_at(&["spec", "strategy", "type"]) == "RollingUpdate"
}

/// Returns surge and unavailability, of which at least one is positive.
fn limits(deployment: &Object) -> (i64, i64) {
    let field = |name| deployment.at(ROLLING).and_then(|rolling: &Value| rolling.get(name));
    let desired = replicas(deployment);
    let surge = resolve(field("maxSurge"), desired, Rounding::Up);
    let unavailable = resolve(field("maxUnavailable"), desired, Rounding::Down);
    if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
}

/// Returns how many pods there may be beyond the desired number.
pub(super) fn max_surge(deployment: &Object) -> i64 {
    if is_rolling(deployment) { limits(deployment).0 } else { 0 }
}

/// Returns how many of the desired pods may be unavailable.
pub(super) fn max_unavailable(deployment: &Object) -> i64 {
    let desired = replicas(deployment);
    if !is_rolling(deployment) || desired == 0 { 0 } else { limits(deployment).1.min(desired) }
}

/// Returns the size that the new ReplicaSet should have now.
pub(super) fn new_size<'o>(
    deployment: &Object,
    all: impl IntoIterator<Item = &'o Object>,
    size: i64,
) -> i64 {
    let desired = replicas(deployment);
    if !is_rolling(deployment) {
        return desired;
    }
    let surge = deployment.at(ROLLING).and_then(|rolling| rolling.get("maxSurge"));
    let most = desired + resolve(surge, desired, Rounding::Up);
    let now = sum_replicas(all);
    if now >= most { size } else { size + (most - now).min(desired - size) }
}

/// Returns how much of `to_add` a ReplicaSet gets when `added` is given away already.
pub(super) fn share(set: &Object, deployment: &Object, to_add: i64, added: i64) -> i64 {
    if replicas(set) == 0 || to_add == 0 || to_add == added {
        return 0;
    }
    let fraction = fraction(set, deployment);
    let left = to_add - added;
    if to_add > 0 { fraction.min(left) } else { fraction.max(left) }
}

/// Returns by how much a ReplicaSet changes if it keeps its part of the Deployment.
fn fraction(set: &Object, deployment: &Object) -> i64 {
    let size = replicas(set);
    if replicas(deployment) == 0 {
        return -size;
    }
    let most = replicas(deployment) + max_surge(deployment);
    let before = max_replicas(set)
        .filter(|before| *before != 0)
        .unwrap_or_else(|| counted(deployment, "replicas"));
    if before == 0 {
        return 0;
    }
    // Rounded half away from zero, in 32 bits.
    let new = (size * most) as f64 / before as f64;
    let rounded = if new < 0.0 { new - 0.5 } else { new + 0.5 };
    i64::from(rounded as i32) - size
}

/// Shares a change of the size of a Deployment among its active ReplicaSets, the largest first, and
/// returns their new sizes.
pub(super) fn proportional_sizes(deployment: &Object, sets: &[Object], to_add: i64) -> Vec<i64> {
    let mut added = 0;
    let mut sizes: Vec<i64> = vec![];
    for set in sets {
        let part = share(set, deployment, to_add, added);
        sizes.push(replicas(set) + part);
        added += part;
    }
    if to_add != 0
        && let Some(first) = sizes.first_mut()
    {
        *first = (*first + to_add - added).max(0);
    }
    sizes
}

/// Returns how many pods all active ReplicaSets may have more than now.
pub(super) fn missing(deployment: &Object, active: &[Object]) -> i64 {
    let desired = replicas(deployment);
    let allowed = if desired > 0 { desired + max_surge(deployment) } else { 0 };
    allowed - sum_replicas(active)
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    fn deployment(replicas: i64, surge: Value, unavailable: Value) -> Object {
        let deployment = value!({"spec": {"replicas": replicas, "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": (surge), "maxUnavailable": (unavailable)}}}});
        Object::from_value(deployment).expect("a map")
    }

    fn set(replicas: i64, max: &str) -> Object {
        let set = value!({
            "metadata": {"annotations": {"deployment.kubernetes.io/max-replicas": max}},
            "spec": {"replicas": replicas}
        });
        Object::from_value(set).expect("a map")
    }

    #[test]
    fn one_pod_may_be_unavailable_if_nothing_else_is_allowed() {
        let check = |replicas, surge: Value, unavailable: Value, wanted| {
            let deployment = deployment(replicas, surge, unavailable);
            let got = (max_surge(&deployment), max_unavailable(&deployment));
            assert_eq!(got, wanted, "{deployment:?}");
        };
        check(10, "25%".into(), "25%".into(), (3, 2));
        check(1, "25%".into(), "25%".into(), (1, 0));
        check(3, 0.into(), "1%".into(), (0, 1));
        check(2, 1.into(), 5.into(), (1, 2));
        check(0, 1.into(), 1.into(), (1, 0));
    }

    #[test]
    fn the_new_set_grows_as_far_as_the_surge_allows() {
        let deployment = deployment(10, 3.into(), 2.into());
        let size = |old: i64, new: i64| new_size(&deployment, &[set(old, ""), set(new, "")], new);
        assert_eq!([size(10, 0), size(8, 3), size(13, 0), size(0, 4)], [3, 5, 0, 10]);
    }

    #[test]
    fn a_change_of_size_is_shared_by_proportion() {
        let check = |replicas: i64, surge: i64, sizes: &[i64], max: &str, wanted: &[i64]| {
            let deployment = deployment(replicas, surge.into(), 0.into());
            let sets: Vec<Object> = sizes.iter().map(|size| set(*size, max)).collect();
            let to_add = missing(&deployment, &sets);
            assert_eq!(
                proportional_sizes(&deployment, &sets, to_add),
                wanted,
                "{replicas} {sizes:?}"
            );
        };
        check(20, 0, &[5, 5], "10", &[10, 10]);
        check(5, 0, &[5, 5], "10", &[2, 3]);
        check(0, 3, &[8, 5], "13", &[0, 0]);
        check(11, 0, &[5, 5], "10", &[6, 5]);
        check(30, 3, &[8, 5], "13", &[20, 13]);
        check(10, 0, &[5, 5], "10", &[5, 5]);
    }
}
