//! PodGroupProtection and PodGroupWorkloadExists, and Priority for PodGroups.

use crate::attributes::Recorder;
use crate::plug_ins::priority_classes::default_class;
use crate::plug_ins::storage::add_finalizer;
use crate::request::Request;
use keelson_meta::{Failure, Feature, Object};

const GROUP: &str = "scheduling.k8s.io";
const POD_GROUPS: &str = "podgroups";
const FINALIZER: &str = "scheduling.k8s.io/podgroup-protection";

/// Adds the finalizer that protects a PodGroup while pods use it.
pub(crate) fn protect(
    req: &Request<'_>,
    group: &mut Object,
    _recorder: &mut Recorder,
) -> Result<(), Failure> {
    if req.creates(GROUP, POD_GROUPS) {
        add_finalizer(group, FINALIZER);
    }
    Ok(())
}

/// Requires the Workload and the template of a PodGroup to exist.
pub(crate) fn check_workload(
    req: &Request<'_>,
    group: &Object,
    _recorder: &mut Recorder,
) -> Result<(), Failure> {
    let Some(reference) = group.at(&["spec", "podGroupTemplateRef", "workload"]) else {
        return Ok(());
    };
    if !req.creates(GROUP, POD_GROUPS) {
        return Ok(());
    }
    let name = |member: &str| reference.str_at(&[member]).unwrap_or_default();
    let workload = name("workloadName");
    let template = name("podGroupTemplateName");
    let Some(found) = req.stored.get(GROUP, "workloads", req.namespace, workload)? else {
        let why = format!("PodGroup rejected: Workload \"{workload}\" not found");
        return Err(req.forbidden(group, &why));
    };
    let templates = found.array_at(&["spec", "podGroupTemplates"]);
    if templates.iter().any(|known| known.str_at(&["name"]) == Some(template)) {
        return Ok(());
    }
    let why = format!(
        "PodGroup rejected: PodGroupTemplate \"{template}\" not found in Workload \"{workload}\""
    );
    Err(req.forbidden(group, &why))
}

/// Sets the priority of a new PodGroup from its class.
pub(crate) fn set_priority(req: &Request<'_>, group: &mut Object) -> Result<(), Failure> {
    if !req.creates(GROUP, POD_GROUPS) || !req.features.is_on(Feature::WorkloadAwarePreemption) {
        return Ok(());
    }
    let name = group.str_at(&["spec", "priorityClassName"]);
    let class = if name.is_empty() {
        default_class(req)?
    } else {
        let found = req.stored.get(GROUP, "priorityclasses", "", name)?;
        let why = || req.forbidden(group, &format!("no PriorityClass with name {name} was found"));
        Some(found.ok_or_else(why)?)
    };
    let priority = class.as_ref().and_then(|class| class.int_at(&["value"])).unwrap_or(0);
    if let Some(given) = group.int_at(&["spec", "priority"]).filter(|given| *given != priority) {
        let why = format!(
            "priority set in the pod group ({given}) must match the priority computed \
             ({priority}) based on the priority class set in the spec"
        );
        return Err(req.forbidden(group, &why));
    }
    let spec = group.object_mut("spec");
    spec.insert("priority", priority);
    if let Some(class) = class {
        spec.insert("priorityClassName", class.name());
    }
    Ok(())
}
