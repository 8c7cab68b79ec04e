//! On which nodes a DaemonSet runs: by node name, node selector, node affinity and taints.

use crate::node_terms::NodeAffinity;
use crate::sorted_pairs::labels_of;
use crate::taints::{Taint, Toleration};
use keelson_meta::{Object, Str, Value, value};
use keelson_records::Entry;
use keelson_resources::Kind;

/// What placement asks of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Node {
    pub name: Str,
    /// Sorted by key.
    pub labels: Vec<(Str, Str)>,
    /// Without their times, which are no reason to look at all sets.
    pub taints: Vec<Taint>,
}

impl Node {
    /// Reads a stored node.
    pub fn read(kind: &Kind, entry: &Entry) -> Option<Node> {
        Some(Node::of(&kind.decode(entry).ok()?))
    }

    /// Returns the facts of a node.
    pub fn of(node: &Object) -> Node {
        Node { name: node.name().into(), labels: labels_of(node), taints: Taint::all(node) }
    }
}

/// Whether pods run on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A pod is created if there is none.
    Run,
    /// A pod that is there stays.
    Stay,
    /// A pod that is there is deleted.
    Leave,
}

/// What the template of a set asks of nodes.
pub(super) struct Placement {
    /// The only node; empty: any.
    node_name: Str,
    affinity: NodeAffinity,
    tolerations: Vec<Toleration>,
}

impl Placement {
    /// Returns the placement of a set.
    pub fn of(set: &Object) -> Placement {
        let spec = set.at(&["spec", "template", "spec"]).unwrap_or(&Value::Null);
        Placement {
            node_name: spec.str_at(&["nodeName"]).unwrap_or_default().into(),
            affinity: NodeAffinity::of_spec(spec),
            tolerations: Toleration::list(&tolerations(spec)),
        }
    }

    /// Judges a node.
    pub fn judge(&self, node: &Node) -> Verdict {
        let is_named = self.node_name.is_empty() || self.node_name == node.name;
        if !is_named || !self.affinity.matches(&node.name, &node.labels) {
            return Verdict::Leave;
        }
        let is_kept_off = |effects: &[&str]| {
            let hard = |taint: &&Taint| effects.contains(&taint.effect.as_str());
            node.taints.iter().filter(hard).any(|taint| !self.tolerates(taint))
        };
        if !is_kept_off(&["NoSchedule", "NoExecute"]) {
            Verdict::Run
        } else if is_kept_off(&["NoExecute"]) {
            Verdict::Leave
        } else {
            Verdict::Stay
        }
    }

    fn tolerates(&self, taint: &Taint) -> bool {
        self.tolerations.iter().any(|toleration| toleration.covers(taint))
    }
}

/// Returns the tolerations of the pods: those of the template, and of what happens to nodes.
pub(super) fn tolerations(spec: &Value) -> Vec<Value> {
    let mut all = spec.array_at(&["tolerations"]).to_vec();
    let is_on_host = spec.get("hostNetwork").and_then(Value::as_bool) == Some(true);
    let added = [
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
        ("network-unavailable", "NoSchedule"),
    ];
    for (name, effect) in added.into_iter().take(if is_on_host { 7 } else { 6 }) {
        let key = format!("node.kubernetes.io/{name}");
        let new = value!({"key": (key), "operator": "Exists", "effect": effect});
        // One with a limited time is replaced.
        let members = ["key", "operator", "effect", "value"];
        let is_same = |known: &Value| {
            members.iter().all(|name| {
                known.str_at(&[name]).unwrap_or_default() == new.str_at(&[name]).unwrap_or_default()
            })
        };
        match all.iter().position(is_same) {
            Some(place) => all[place] = new,
            None => all.push(new),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(labels: Value, taints: Value) -> Node {
        let node = value!({
            "metadata": {"name": "n1", "labels": (labels)}, "spec": {"taints": (taints)}
        });
        Node::of(&Object::from_value(node).expect("a map"))
    }

    fn judge(spec: Value, node: &Node) -> Verdict {
        let set = Object::from_value(value!({"spec": {"template": {"spec": (spec)}}}));
        Placement::of(&set.expect("a map")).judge(node)
    }

    #[test]
    fn taints_keep_pods_off_unless_they_are_tolerated() {
        let check = |taint: Value, tolerations: Value, wanted: Verdict| {
            let node = node(value!({}), value!([(taint.clone())]));
            assert_eq!(judge(value!({"tolerations": (tolerations)}), &node), wanted, "{taint:?}");
        };
        let taint = |key: &str, effect: &str| value!({"key": key, "value": "v", "effect": effect});
        check(taint("a", "NoSchedule"), value!([]), Verdict::Stay);
        check(taint("a", "NoExecute"), value!([]), Verdict::Leave);
        check(taint("a", "PreferNoSchedule"), value!([]), Verdict::Run);
        check(taint("a", "NoExecute"), value!([{"operator": "Exists"}]), Verdict::Run);
        check(taint("a", "NoSchedule"), value!([{"key": "a", "value": "v"}]), Verdict::Run);
        check(taint("a", "NoSchedule"), value!([{"key": "a", "value": "w"}]), Verdict::Stay);
        check(taint("node.kubernetes.io/unschedulable", "NoSchedule"), value!([]), Verdict::Run);
        check(taint("node.kubernetes.io/not-ready", "NoExecute"), value!([]), Verdict::Run);
        let network = "node.kubernetes.io/network-unavailable";
        check(taint(network, "NoSchedule"), value!([]), Verdict::Stay);
    }

    #[test]
    fn names_selectors_and_affinity_select_nodes() {
        let node = node(value!({"zone": "a", "size": "5"}), value!([]));
        let check =
            |spec: Value, wanted| assert_eq!(judge(spec.clone(), &node), wanted, "{spec:?}");
        let terms = |terms: Value| {
            value!({"affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": (terms)}}}})
        };
        check(value!({}), Verdict::Run);
        check(value!({"nodeName": "n2"}), Verdict::Leave);
        check(value!({"nodeSelector": {"zone": "a"}}), Verdict::Run);
        check(value!({"nodeSelector": {"zone": "b"}}), Verdict::Leave);
        check(terms(value!([{}])), Verdict::Leave);
        let one = |key: &str, operator: &str, values: Value| value!({"key": key, "operator": operator, "values": (values)});
        let labels = |one: Value| terms(value!([{"matchExpressions": [(one)]}]));
        check(labels(one("zone", "In", value!(["a", "b"]))), Verdict::Run);
        check(labels(one("zone", "NotIn", value!(["a"]))), Verdict::Leave);
        check(labels(one("size", "Gt", value!(["4"]))), Verdict::Run);
        check(labels(one("size", "Lt", value!(["4"]))), Verdict::Leave);
        let fields = |one: Value| terms(value!([{"matchFields": [(one)]}]));
        check(fields(one("metadata.name", "In", value!(["n1"]))), Verdict::Run);
        check(fields(one("metadata.name", "NotIn", value!(["n1"]))), Verdict::Leave);
    }
}
