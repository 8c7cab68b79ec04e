//! TaintNodesByCondition: adds the not-ready taint to new nodes. PodTopologyLabels: copies zone and
//! region of a node to its pods.

use crate::attributes::Recorder;
use crate::request::{Operation, Request};
use keelson_meta::{Failure, Feature, Object, Value, value};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const TOPOLOGY: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

pub(crate) fn taint_new(
    req: &Request<'_>,
    node: &mut Object,
    _recorder: &mut Recorder,
) -> Result<(), Failure> {
    if !req.creates("", "nodes") {
        return Ok(());
    }
    let known = node.array_at(&["spec", "taints"]).iter().any(|taint| {
        taint.str_at(&["key"]) == Some(NOT_READY) && taint.str_at(&["effect"]) == Some("NoSchedule")
    });
    if known {
        return Ok(());
    }
    let taint = value!({"effect": "NoSchedule", "key": NOT_READY});
    let taints = node.object_mut("spec").entry_or("taints", || Value::Array(vec![]));
    match taints {
        Value::Array(taints) => taints.push(taint),
        other => *other = Value::Array(vec![taint]),
    }
    Ok(())
}

/// Handles pods that are created with a node, and bindings, whose labels are copied to the pod.
pub(crate) fn copy_topology(
    req: &Request<'_>,
    obj: &mut Object,
    _recorder: &mut Recorder,
) -> Result<(), Failure> {
    let is_on = req.features.is_on(Feature::PodTopologyLabelsAdmission);
    if !is_on || req.operation != Operation::Create || !req.is_below("", "pods") {
        return Ok(());
    }
    let node = match req.subresource {
        "" => obj.str_at(&["spec", "nodeName"]),
        "binding" if obj.str_at(&["target", "kind"]) == "Node" => obj.str_at(&["target", "name"]),
        _ => "",
    };
    if node.is_empty() {
        return Ok(());
    }
    let Some(node) = req.stored.get("", "nodes", "", node)? else {
        return Ok(());
    };
    for key in TOPOLOGY {
        if let Some(label) = node.label(key) {
            obj.metadata_mut().object_at("labels").insert(key, label);
        }
    }
    Ok(())
}
