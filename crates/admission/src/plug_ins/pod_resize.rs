//! PodResizeValidator: limits a resize to the node's allocatable resources, and to Linux.

use crate::attributes::Recorder;
use crate::plug_ins::pod::{Side, add, amounts, pod_amounts};
use crate::request::{Operation, Request};
use keelson_meta::status::Cause;
use keelson_meta::{Failure, Object, Str};

const OS: &str = "kubernetes.io/os";

pub(crate) fn validate(
    req: &Request<'_>,
    pod: &Object,
    _recorder: &mut Recorder,
) -> Result<(), Failure> {
    let is_resize = req.operation == Operation::Update && req.subresource == "resize";
    if !is_resize || !req.is_below("", "pods") {
        return Ok(());
    }
    let node = pod.str_at(&["spec", "nodeName"]);
    let is_changed = req.old.is_some_and(|old| old.at(&["spec"]) != pod.at(&["spec"]));
    if node.is_empty() || !is_changed {
        return Ok(());
    }
    let Some(node) = req.stored.get("", "nodes", "", node)? else {
        return Err(req.forbidden(pod, &format!("node {node:?} not found")));
    };
    let os = node.label(OS).unwrap_or_default();
    if os != "linux" {
        let name = node.name();
        let why = format!("pod resize is only supported on linux nodes, node {name:?} is {os:?}");
        return Err(rejection(req, pod, &why, "UnsupportedPlatform"));
    }
    match shortage(pod, &node) {
        Some(why) => Err(rejection(req, pod, &why, "NodeCapacity")),
        None => Ok(()),
    }
}

/// Returns the resources that exceed the node's allocatable.
fn shortage(pod: &Object, node: &Object) -> Option<String> {
    let mut requests = pod_amounts(pod, Side::Requests);
    add(&mut requests, &amounts(pod.at(&["spec", "overhead"])));
    let allocatable = amounts(node.at(&["status", "allocatable"]));
    let mut short = vec![];
    for name in ["cpu", "memory"] {
        let amount = |of: &crate::Amounts| {
            of.get(name).map_or(0, |amount| match name {
                "cpu" => amount.milli_value(),
                _ => amount.value(),
            })
        };
        let requested = amount(&requests);
        let allocatable = amount(&allocatable);
        if requested > allocatable {
            short.push(format!("{name}, requested: {requested}, allocatable: {allocatable}"));
        }
    }
    let short = short.join("; ");
    (!short.is_empty()).then(|| format!("node didn't have enough allocatable resources: {short}"))
}

fn rejection(req: &Request<'_>, pod: &Object, why: &str, reason: &'static str) -> Failure {
    let mut failure = req.forbidden(pod, why);
    let cause = Cause { reason: Str::new_static(reason), ..Cause::default() };
    failure.details.get_or_insert_default().causes.push(cause);
    failure
}
