//! DefaultTolerationSeconds: how long pods tolerate nodes that are not ready or unreachable. Also
//! merges lists of tolerations.

use crate::attributes::Recorder;
use crate::request::{Operation, Request};
use keelson_meta::{Failure, Object, Str, Value, value};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

fn text<'v>(toleration: &'v Value, name: &str) -> &'v str {
    toleration.str_at(&[name]).unwrap_or_default()
}

pub(crate) fn add_defaults(
    req: &Request<'_>,
    pod: &mut Object,
    _recorder: &mut Recorder,
) -> Result<(), Failure> {
    if !req.is("", "pods") || req.operation == Operation::Delete {
        return Ok(());
    }
    let taints =
        [(NOT_READY, req.config.not_ready_seconds), (UNREACHABLE, req.config.unreachable_seconds)];
    for (taint, seconds) in taints {
        let known = pod.array_at(&["spec", "tolerations"]).iter().any(|toleration| {
            matches!(text(toleration, "key"), key if key.is_empty() || key == taint)
                && matches!(text(toleration, "effect"), "" | "NoExecute")
        });
        if known {
            continue;
        }
        let toleration = value!({
            "effect": "NoExecute", "key": (Str::new_static(taint)), "operator": "Exists", "tolerationSeconds": seconds
        });
        let all = pod
            .object_mut("spec")
            .entry_or("tolerations", || Value::Array(Vec::with_capacity(taints.len())));
        match all {
            Value::Array(all) => all.push(toleration),
            other => *other = Value::Array(vec![toleration]),
        }
    }
    Ok(())
}

/// Maximum tolerations that are compared pairwise.
const COMPARED_MAX: usize = 1_000;

/// Merges two lists and drops tolerations that others include. Above [`COMPARED_MAX`] they are
/// kept, which does not change what is tolerated.
pub(crate) fn merge(first: &[Value], second: &[Value]) -> Vec<Value> {
    let all: Vec<&Value> = first.iter().chain(second).collect();
    if all.len() > COMPARED_MAX {
        return all.into_iter().cloned().collect();
    }
    let mut merged: Vec<Value> = vec![];
    for (index, one) in all.iter().enumerate() {
        let before = merged.iter().any(|other| includes(other, one));
        let later = all[index + 1..].iter().any(|other| other != one && includes(other, one));
        if !before && !later {
            merged.push((*one).clone());
        }
    }
    merged
}

/// Returns whether `wide` tolerates everything that `narrow` does (`pkg/util/tolerations`).
pub(crate) fn includes(wide: &Value, narrow: &Value) -> bool {
    if wide == narrow {
        return true;
    }
    let same = |name: &str| text(wide, name) == text(narrow, name);
    let every_key = text(wide, "key").is_empty() && text(wide, "operator") == "Exists";
    if !same("key") && !every_key {
        return false;
    }
    if !same("effect") && !text(wide, "effect").is_empty() {
        return false;
    }
    if text(wide, "effect") == "NoExecute"
        && let Some(limit) = wide.int_at(&["tolerationSeconds"])
        && narrow.int_at(&["tolerationSeconds"]).is_none_or(|seconds| seconds > limit)
    {
        return false;
    }
    match text(wide, "operator") {
        "Equal" | "" => matches!(text(narrow, "operator"), "Equal" | "") && same("value"),
        operator => operator == "Exists",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(first: Value, second: Value, want: Value) {
        let items = |v: &Value| v.as_array().unwrap_or_default().to_vec();
        assert_eq!(Value::Array(merge(&items(&first), &items(&second))), want);
    }

    #[test]
    fn the_wider_of_two_tolerations_is_kept() {
        let key = value!({"key": "a", "operator": "Exists"});
        let narrow =
            value!({"key": "a", "operator": "Equal", "value": "1", "effect": "NoSchedule"});
        check(value!([(narrow.clone())]), value!([(key.clone())]), value!([(key.clone())]));
        let every = value!({"operator": "Exists"});
        check(value!([(key.clone()), (narrow)]), value!([(every.clone())]), value!([(every)]));
        let other = value!({"key": "b", "operator": "Exists"});
        check(value!([(key.clone())]), value!([(other.clone())]), value!([(key), (other)]));
    }

    #[test]
    fn too_many_tolerations_are_not_merged() {
        let list = |name: &str| -> Vec<Value> {
            (0..COMPARED_MAX).map(|at| value!({"key": (format!("{name}{at}"))})).collect()
        };
        assert_eq!(merge(&list("a"), &list("a")).len(), 2 * COMPARED_MAX);
        assert_eq!(merge(&list("a"), &[]).len(), COMPARED_MAX);
        assert_eq!(merge(&list("a")[1..], &list("a")[1..2]).len(), COMPARED_MAX - 1);
    }

    #[test]
    fn a_limited_toleration_does_not_include_an_unlimited_one() {
        let short = value!({"key": "a", "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": 5});
        let long = value!({"key": "a", "operator": "Exists", "effect": "NoExecute"});
        check(value!([(short)]), value!([(long.clone())]), value!([(long)]));
    }
}
