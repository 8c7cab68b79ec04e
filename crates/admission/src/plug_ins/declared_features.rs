//! NodeDeclaredFeatureValidator: rejects updates of a bound pod that require features its node does
//! not declare.

use crate::attributes::Recorder;
use crate::request::{Operation, Request};
use keelson_meta::{Failure, Feature, Object, Value};

/// Returns whether an update from the first pod to the second requires a feature of its node.
type Requires = fn(&Object, &Object) -> bool;

/// The features that an update of a pod may require, in the order of the error message.
const FEATURES: [(&str, Requires); 2] = [
    ("InPlacePodLevelResourcesVerticalScaling", resizes_pod_level),
    ("InPlacePodVerticalScalingInitContainers", resizes_init_container),
];

pub(crate) fn validate(
    req: &Request<'_>,
    pod: &Object,
    _recorder: &mut Recorder,
) -> Result<(), Failure> {
    let is_update = req.operation == Operation::Update && req.is_below("", "pods");
    if !is_update
        || !matches!(req.subresource, "" | "resize")
        || !req.features.is_on(Feature::NodeDeclaredFeatures)
    {
        return Ok(());
    }
    let name = pod.str_at(&["spec", "nodeName"]);
    let Some(old) = req.old.filter(|_| !name.is_empty()) else { return Ok(()) };
    if !FEATURES.iter().any(|(_, requires)| requires(old, pod)) {
        return Ok(());
    }
    let Some(node) = req.stored.get("", "nodes", "", name)? else {
        return Err(req.forbidden(pod, &format!("node {name:?} not found")));
    };
    let declared = node.array_at(&["status", "declaredFeatures"]);
    let is_declared = |feature: &str| declared.iter().any(|known| known.as_str() == Some(feature));
    let required = FEATURES.iter().filter(|(_, requires)| requires(old, pod));
    let missing: Vec<&str> =
        required.map(|(feature, _)| *feature).filter(|feature| !is_declared(feature)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let why = format!(
        "pod update requires features {} which are not available on node {name:?}",
        missing.join(", ")
    );
    Err(req.forbidden(pod, &why))
}

fn resizes_pod_level(old: &Object, pod: &Object) -> bool {
    old.at(&["spec", "resources"]) != pod.at(&["spec", "resources"])
}

/// Returns whether the resources of an init container that is not a sidecar change.
fn resizes_init_container(old: &Object, pod: &Object) -> bool {
    let path = ["spec", "initContainers"];
    let is_sidecar = |container: &Value| container.str_at(&["restartPolicy"]) == Some("Always");
    let mut pairs = old.array_at(&path).iter().zip(pod.array_at(&path));
    pairs.any(|(old, new)| !is_sidecar(old) && resources(old) != resources(new))
}

fn resources(container: &Value) -> Option<&Value> {
    container.get("resources").filter(|resources| !resources.is_empty())
}
