//! ExtendedResourceToleration: adds tolerations for the taints of nodes with the extended resources
//! that a pod requests.

use crate::attributes::Recorder;
use crate::plug_ins::pod::{Side, container_amounts};
use crate::request::{Operation, Request};
use keelson_meta::{Failure, Object, Str, Value, value};
use std::collections::BTreeSet;

pub(crate) fn admit(
    req: &Request<'_>,
    pod: &mut Object,
    _recorder: &mut Recorder,
) -> Result<(), Failure> {
    if !req.is("", "pods") || !matches!(req.operation, Operation::Create | Operation::Update) {
        return Ok(());
    }
    let lists = ["initContainers", "containers"];
    let containers = lists.iter().flat_map(|list| pod.array_at(&["spec", list]));
    let requested = containers.flat_map(|container| container_amounts(container, Side::Requests));
    let mut names: BTreeSet<String> =
        requested.map(|(name, _)| name).filter(|name| is_extended(name)).collect();
    if names.is_empty() {
        return Ok(());
    }
    let mut all = pod.array_at(&["spec", "tolerations"]).to_vec();
    for known in &all {
        let key = known.str_at(&["key"]).unwrap_or_default();
        if names.contains(key) && *known == toleration(key) {
            names.remove(key);
        }
    }
    all.extend(names.iter().map(|name| toleration(name)));
    pod.object_mut("spec").insert("tolerations", all);
    Ok(())
}

fn toleration(key: &str) -> Value {
    value!({"key": (Str::new(key)), "operator": "Exists", "effect": "NoSchedule"})
}

/// Returns whether a resource is an extended one (`helper.IsExtendedResourceName`).
fn is_extended(name: &str) -> bool {
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    !is_native && !name.starts_with("requests.")
}
