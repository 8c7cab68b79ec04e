//! Taints of nodes and tolerations of pods.

use keelson_meta::{Object, Str, Value};

/// The taint of nodes that are cordoned.
pub const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// A taint of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Taint {
    pub key: Str,
    pub value: Str,
    pub effect: Str,
}

impl Taint {
    /// Returns the taints of a node.
    pub fn all(node: &Object) -> Vec<Taint> {
        Taint::list(node.array_at(&["spec", "taints"]))
    }

    /// Reads a list of taints.
    pub fn list(taints: &[Value]) -> Vec<Taint> {
        let text =
            |taint: &Value, field: &str| Str::new(taint.str_at(&[field]).unwrap_or_default());
        let taints = taints.iter().map(|taint| Taint {
            key: text(taint, "key"),
            value: text(taint, "value"),
            effect: text(taint, "effect"),
        });
        taints.collect()
    }

    /// Whether pods that do not tolerate it are not placed on the node.
    pub fn is_hard(&self) -> bool {
        matches!(self.effect.as_str(), "NoSchedule" | "NoExecute")
    }
}

/// A toleration of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Toleration {
    key: Str,
    operator: Str,
    value: Str,
    pub effect: Str,
    /// `tolerationSeconds`; `None`: for ever.
    pub seconds: Option<i64>,
}

impl Toleration {
    /// Returns the tolerations of a pod.
    pub fn all(pod: &Object) -> Vec<Toleration> {
        Toleration::list(pod.array_at(&["spec", "tolerations"]))
    }

    /// Reads a list of tolerations.
    pub fn list(tolerations: &[Value]) -> Vec<Toleration> {
        let text = |one: &Value, field: &str| Str::new(one.str_at(&[field]).unwrap_or_default());
        let all = tolerations.iter().map(|one| Toleration {
            key: text(one, "key"),
            operator: text(one, "operator"),
            value: text(one, "value"),
            effect: text(one, "effect"),
            seconds: one.int_at(&["tolerationSeconds"]),
        });
        all.collect()
    }

    fn concerns(&self, taint: &Taint) -> bool {
        (self.effect.is_empty() || self.effect == taint.effect)
            && (self.key.is_empty() || self.key == taint.key)
    }

    /// Whether it covers a taint by equality or presence.
    pub fn covers(&self, taint: &Taint) -> bool {
        self.concerns(taint)
            && match self.operator.as_str() {
                "Exists" => true,
                "" | "Equal" => self.value == taint.value,
                _ => false,
            }
    }

    /// Whether it covers a taint by comparing numbers (TaintTolerationComparisonOperators).
    fn compares(&self, taint: &Taint) -> bool {
        let number = |text: &str| text.parse::<i64>().ok();
        let numbers = number(&taint.value).zip(number(&self.value));
        self.concerns(taint)
            && match self.operator.as_str() {
                "Lt" => numbers.is_some_and(|(has, wanted)| has < wanted),
                "Gt" => numbers.is_some_and(|(has, wanted)| has > wanted),
                _ => false,
            }
    }
}

/// Whether one of the tolerations covers a taint, for the scheduler.
pub fn is_tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    tolerations.iter().any(|one| one.covers(taint) || one.compares(taint))
}

/// Returns the first taint that keeps a pod away.
pub fn untolerated<'a>(taints: &'a [Taint], tolerations: &[Toleration]) -> Option<&'a Taint> {
    taints.iter().find(|taint| taint.is_hard() && !is_tolerated(taint, tolerations))
}

/// Returns the number of taints because of which a pod is rather placed elsewhere.
pub fn soft_untolerated(taints: &[Taint], tolerations: &[Toleration]) -> i64 {
    let soft: Vec<Toleration> = tolerations
        .iter()
        .filter(|one| one.effect.is_empty() || one.effect == "PreferNoSchedule")
        .cloned()
        .collect();
    let untolerated = taints
        .iter()
        .filter(|taint| taint.effect == "PreferNoSchedule" && !is_tolerated(taint, &soft));
    i64::try_from(untolerated.count()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    #[test]
    fn tolerations_cover_taints_by_key_value_and_effect() {
        let check = |toleration: Value, want: bool| {
            let taint = Taint { key: "k".into(), value: "5".into(), effect: "NoSchedule".into() };
            let pod = value!({"spec": {"tolerations": [(toleration.clone())]}});
            let tolerations = Toleration::all(&Object::from_value(pod).unwrap_or_default());
            assert_eq!(is_tolerated(&taint, &tolerations), want, "{toleration:?}");
        };
        check(value!({"operator": "Exists"}), true);
        check(value!({"key": "k", "operator": "Exists"}), true);
        check(value!({"key": "k", "operator": "Exists", "effect": "NoExecute"}), false);
        check(value!({"key": "k", "value": "5"}), true);
        check(value!({"key": "k", "value": "6"}), false);
        check(value!({"key": "j", "operator": "Exists"}), false);
        check(value!({"key": "k", "operator": "Gt", "value": "4"}), true);
        check(value!({"key": "k", "operator": "Lt", "value": "4"}), false);
    }
}
