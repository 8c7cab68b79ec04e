//! The pods of a DaemonSet: their template, and the node that each of them is for.

use super::placement::tolerations;
use crate::pod_facts::is_terminal;
use keelson_meta::{Object, Str, Timestamp, Value, value};
use std::cmp::Ordering;
use std::collections::BTreeMap;

pub(super) const REVISION_LABEL: &str = "controller-revision-hash";
const GENERATION_LABEL: &str = "pod-template-generation";
const GENERATION_ANNOTATION: &str = "deprecated.daemonset.template.generation";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// Pods by the name of their node.
pub(super) type ByNode = BTreeMap<Str, Vec<Object>>;

/// Returns the generation of the template that old clients use.
fn generation(set: &Object) -> Option<i64> {
    set.annotation(GENERATION_ANNOTATION)?.parse().ok()
}

/// Returns the template of the pods of a set with the hash of their revision.
pub(super) fn template(set: &Object, hash: &str) -> Value {
    let mut template = set.at(&["spec", "template"]).cloned().unwrap_or_default();
    if let Some(members) = template.as_object_mut() {
        let all = tolerations(members.get("spec").unwrap_or(&Value::Null));
        members.object_at("spec").insert("tolerations", all);
        let labels = members.object_at("metadata").object_at("labels");
        if let Some(generation) = generation(set) {
            labels.insert(GENERATION_LABEL, generation.to_string());
        }
        if !hash.is_empty() {
            labels.insert(REVISION_LABEL, hash);
        }
    }
    template
}

/// Binds a template to a node: the scheduler places its pod there only.
pub(super) fn for_node(mut template: Value, node: &str) -> Value {
    let terms = value!([{"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": [node]}]}]);
    if let Some(members) = template.as_object_mut() {
        let affinity = members.object_at("spec").object_at("affinity");
        affinity.object_at("nodeAffinity").object_at(REQUIRED).insert("nodeSelectorTerms", terms);
    }
    template
}

/// Returns the node that a pod is for.
fn target(pod: &Object) -> Option<&str> {
    let bound = pod.str_at(&["spec", "nodeName"]);
    if !bound.is_empty() {
        return Some(bound);
    }
    let required = pod.at(&["spec", "affinity", "nodeAffinity", REQUIRED])?;
    let mut fields = required
        .array_at(&["nodeSelectorTerms"])
        .iter()
        .flat_map(|term| term.array_at(&["matchFields"]));
    let field = fields.find(|field| {
        field.str_at(&["key"]) == Some("metadata.name") && field.str_at(&["operator"]) == Some("In")
    })?;
    match field.array_at(&["values"]) {
        [name] => name.as_str(),
        _ => None,
    }
}

/// Returns the pods by node. Those that have ended and are being deleted are left out: nothing more
/// is to be done about them.
pub(super) fn by_node(pods: &[Object]) -> ByNode {
    let mut all = ByNode::new();
    for pod in pods.iter().filter(|pod| !is_terminal(pod) || pod.deletion_timestamp().is_none()) {
        if let Some(node) = target(pod) {
            all.entry(node.into()).or_default().push(pod.clone());
        }
    }
    all
}

/// Whether a pod has the present template.
pub(super) fn is_updated(pod: &Object, set: &Object, hash: &str) -> bool {
    let has_hash = !hash.is_empty() && pod.label(REVISION_LABEL) == Some(hash);
    let generation = generation(set).map(|generation| generation.to_string());
    has_hash || (generation.is_some() && pod.label(GENERATION_LABEL) == generation.as_deref())
}

/// Compares by age: pods with a node first, then older ones.
pub(super) fn by_age(one: &Object, other: &Object) -> Ordering {
    let is_unbound = |pod: &Object| pod.str_at(&["spec", "nodeName"]).is_empty();
    let created = |pod: &Object| Timestamp::parse(pod.creation_timestamp()).ok();
    is_unbound(one)
        .cmp(&is_unbound(other))
        .then_with(|| created(one).cmp(&created(other)))
        .then_with(|| one.name().cmp(other.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_bound_to_its_node_by_affinity() {
        let set = value!({
            "metadata": {"annotations": {"deprecated.daemonset.template.generation": "3"}},
            "spec": {"template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"affinity": {"nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "x", "operator": "Exists"}]}]}}}}}}
        });
        let set = Object::from_value(set).expect("a map");
        let template = for_node(template(&set, "h"), "n1");
        let pod = Object::from_value(template).expect("a map");
        assert_eq!(target(&pod), Some("n1"));
        let labels =
            value!({"a": "b", "pod-template-generation": "3", "controller-revision-hash": "h"});
        assert_eq!(pod.at(&["metadata", "labels"]), Some(&labels));
        assert_eq!(pod.array_at(&["spec", "tolerations"]).len(), 6);
        assert!(is_updated(&pod, &set, "h") && is_updated(&pod, &set, "other"));
        assert!(!is_updated(&pod, &Object::new(), "other"));
    }
}
