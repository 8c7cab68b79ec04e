//! Plug-ins with one rule: AlwaysDeny, DenyServiceExternalIPs, LimitPodHardAntiAffinityTopology,
//! NamespaceExists.

use crate::attributes::Recorder;
use crate::request::{Operation, Request};
use keelson_meta::{Failure, GroupVersionResource, Object, Status, Str};
use std::collections::HashSet;

/// AlwaysDeny.
pub(crate) fn deny_mutation(
    req: &Request<'_>,
    obj: &mut Object,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    deny(req, obj, recorder)
}

/// AlwaysDeny.
pub(crate) fn deny(
    req: &Request<'_>,
    obj: &Object,
    _recorder: &mut Recorder,
) -> Result<(), Failure> {
    Err(req.forbidden(obj, "admission control is denying all modifications"))
}

/// DenyServiceExternalIPs: rejects new external IPs of a service.
pub(crate) fn deny_external_ips(
    req: &Request<'_>,
    service: &Object,
    _recorder: &mut Recorder,
) -> Result<(), Failure> {
    let writes = matches!(req.operation, Operation::Create | Operation::Update);
    if !writes || !req.is("", "services") {
        return Ok(());
    }
    let path = ["spec", "externalIPs"];
    let ips = |service: &'_ Object| -> HashSet<Option<Str>> {
        service.array_at(&path).iter().map(|ip| ip.as_str().map(Str::new)).collect()
    };
    if ips(service).is_subset(&req.old.map(ips).unwrap_or_default()) {
        return Ok(());
    }
    Err(req.forbidden(service, "Use of external IPs is denied by admission control"))
}

/// LimitPodHardAntiAffinityTopology: required anti-affinity may only use the hostname topology.
pub(crate) fn limit_anti_affinity(
    req: &Request<'_>,
    pod: &Object,
    _recorder: &mut Recorder,
) -> Result<(), Failure> {
    const HOST: &str = "kubernetes.io/hostname";
    let writes = matches!(req.operation, Operation::Create | Operation::Update);
    if !writes || !req.is("", "pods") {
        return Ok(());
    }
    let path =
        ["spec", "affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution"];
    for term in pod.array_at(&path) {
        let key = term.str_at(&["topologyKey"]).unwrap_or_default();
        if key != HOST {
            let why = format!(
                "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only \
                 key {HOST} is allowed"
            );
            return Err(req.forbidden(pod, &why));
        }
    }
    Ok(())
}

/// NamespaceExists: namespaced objects require an existing namespace.
pub(crate) fn namespace_exists(
    req: &Request<'_>,
    _obj: &Object,
    _recorder: &mut Recorder,
) -> Result<(), Failure> {
    let is_namespace = req.is_below("", "namespaces");
    let exists = || req.stored.is_terminating(req.namespace).is_some();
    if req.namespace.is_empty() || is_namespace || exists() {
        return Ok(());
    }
    let namespaces = GroupVersionResource::new("", "v1", "namespaces");
    Err(Status::not_found(&namespaces, req.namespace))
}
