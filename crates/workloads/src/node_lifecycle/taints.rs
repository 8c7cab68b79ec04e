//! The taints of nodes that follow from their conditions.

use keelson_meta::{Object, Timestamp, Value, value};

/// The taints NoExecute of nodes that are not ready and that do not report.
pub(super) const NOT_READY: &str = "node.kubernetes.io/not-ready";
pub(super) const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Condition, status and the key of the taint.
const BY_CONDITION: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];

/// A change of the taints of one effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub effect: &'static str,
    pub add: Vec<&'static str>,
    pub remove: Vec<&'static str>,
}

impl Change {
    /// Returns the taints of a node after the change; `None`: it has them already.
    pub fn apply(&self, node: &Object, now: Timestamp) -> Option<Vec<Value>> {
        let is = |taint: &Value, keys: &[&'static str]| {
            taint.str_at(&["effect"]) == Some(self.effect)
                && taint.str_at(&["key"]).is_some_and(|key| keys.contains(&key))
        };
        let before = node.array_at(&["spec", "taints"]);
        let kept = before.iter().filter(|taint| !is(taint, &self.remove));
        let mut taints: Vec<Value> = kept.cloned().collect();
        for key in &self.add {
            if !taints.iter().any(|taint| is(taint, &[key])) {
                taints.push(value!({"key": (*key), "effect": (self.effect),
                    "timeAdded": (now.text())}));
            }
        }
        (taints != before).then_some(taints)
    }
}

/// Returns how the taints NoSchedule of a node must change.
pub(super) fn no_schedule(node: &Object) -> Change {
    let conditions = node.array_at(&["status", "conditions"]).iter();
    let mut add: Vec<&str> = conditions
        .filter_map(|condition| {
            let text = |name: &str| condition.str_at(&[name]).unwrap_or_default();
            let is = |row: &&(&str, &str, &str)| (row.0, row.1) == (text("type"), text("status"));
            BY_CONDITION.iter().find(is).map(|row| row.2)
        })
        .collect();
    if node.at(&["spec", "unschedulable"]).and_then(Value::as_bool) == Some(true) {
        add.push(UNSCHEDULABLE);
    }
    let all = BY_CONDITION.iter().map(|row| row.2).chain([UNSCHEDULABLE]);
    let remove = all.filter(|key| !add.contains(key)).collect();
    Change { effect: "NoSchedule", add, remove }
}

/// Returns how the taints NoExecute of a node must change. A node that is ready has none.
pub(super) fn no_execute(ready: &str) -> Change {
    let (add, remove) = match ready {
        "False" => (vec![NOT_READY], vec![UNREACHABLE]),
        "Unknown" => (vec![UNREACHABLE], vec![NOT_READY]),
        _ => (vec![], vec![UNREACHABLE, NOT_READY]),
    };
    Change { effect: "NoExecute", add, remove }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taints_follow_conditions() {
        let check = |conditions: Value, taints: Value, want: Option<&str>| {
            let node =
                value!({"spec": {"taints": (taints)}, "status": {"conditions": (conditions)}});
            let node = Object::from_value(node).expect("a map");
            let taints = no_schedule(&node).apply(&node, Timestamp::new(0, 0));
            let text = |taint: &Value| {
                let text = |name: &str| taint.str_at(&[name]).unwrap_or_default().to_owned();
                format!("{}:{}", text("key").replace("node.kubernetes.io/", ""), text("effect"))
            };
            let found = taints.map(|all| all.iter().map(text).collect::<Vec<_>>().join(" "));
            assert_eq!(found.as_deref(), want);
        };
        let ready = |status: &str| value!({"type": "Ready", "status": status});
        let taint = |key: &str, effect: &str| value!({"key": key, "effect": effect});
        check(value!([(ready("True"))]), value!([]), None);
        check(value!([(ready("False"))]), value!([]), Some("not-ready:NoSchedule"));
        let both = value!([(ready("Unknown")), {"type": "DiskPressure", "status": "True"}]);
        let mine =
            value!([{"key": "mine", "effect": "NoSchedule"}, (taint(NOT_READY, "NoSchedule"))]);
        let want = "mine:NoSchedule unreachable:NoSchedule disk-pressure:NoSchedule";
        check(both, mine, Some(want));
        let other = value!([(taint(NOT_READY, "NoExecute"))]);
        check(value!([(ready("True"))]), other, None);
        let gone = value!([(taint(NOT_READY, "NoSchedule"))]);
        check(value!([(ready("True"))]), gone, Some(""));
    }

    #[test]
    fn an_unreachable_node_is_not_also_not_ready() {
        let taints = value!([{"key": NOT_READY, "effect": "NoExecute"}]);
        let node = Object::from_value(value!({"spec": {"taints": (taints)}})).expect("a map");
        let after = no_execute("Unknown").apply(&node, Timestamp::new(0, 0));
        let wanted = value!([{"key": UNREACHABLE, "effect": "NoExecute",
            "timeAdded": "1970-01-01T00:00:00Z"}]);
        assert_eq!(after.map(Value::Array), Some(wanted));
        assert_eq!(no_execute("True").apply(&node, Timestamp::new(0, 0)), Some(vec![]));
    }
}
