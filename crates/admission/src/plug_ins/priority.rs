//! Priority: sets the priority of a pod from its class; there is only one default class.

use crate::attributes::Recorder;
use crate::plug_ins::pod_groups;
use crate::plug_ins::priority_classes::{GROUP, RESOURCE, default_class};
use crate::request::{Operation, Request};
use keelson_meta::{Failure, Object, Value};

pub(crate) fn admit(
    req: &Request<'_>,
    obj: &mut Object,
    _recorder: &mut Recorder,
) -> Result<(), Failure> {
    if !req.is("", "pods") {
        return pod_groups::set_priority(req, obj);
    }
    match req.operation {
        Operation::Create => resolve(req, obj),
        Operation::Update => {
            restore_unset(req, obj);
            Ok(())
        }
        Operation::Delete | Operation::Connect => Ok(()),
    }
}

/// Keeps fields that were set on creation when an update omits them.
fn restore_unset(req: &Request<'_>, pod: &mut Object) {
    for name in ["priority", "preemptionPolicy"] {
        let before = req.old.and_then(|old| old.at(&["spec", name])).filter(|v| !v.is_null());
        if let Some(before) = before
            && pod.at(&["spec", name]).is_none()
        {
            pod.object_mut("spec").insert(name, before.clone());
        }
    }
}

fn resolve(req: &Request<'_>, pod: &mut Object) -> Result<(), Failure> {
    let name = pod.str_at(&["spec", "priorityClassName"]);
    let class = if name.is_empty() {
        default_class(req)?
    } else {
        let found = req.stored.get(GROUP, RESOURCE, "", name)?;
        let why = || req.forbidden(pod, &format!("no PriorityClass with name {name} was found"));
        Some(found.ok_or_else(why)?)
    };
    let priority = class.as_ref().and_then(|class| class.int_at(&["value"])).unwrap_or(0);
    let policy = match &class {
        Some(class) => class.str_at(&["preemptionPolicy"]),
        None => "PreemptLowerPriority",
    };
    let policy = policy.to_owned();
    if let Some(given) = pod.int_at(&["spec", "priority"]).filter(|given| *given != priority) {
        let why = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority \
             admission controller computed {priority} from the given PriorityClass name"
        );
        return Err(req.forbidden(pod, &why));
    }
    let given = pod.at(&["spec", "preemptionPolicy"]).and_then(Value::as_str);
    if let Some(given) = given.filter(|given| !policy.is_empty() && *given != policy) {
        let why = format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; \
             priority admission controller computed {policy} from the given PriorityClass name"
        );
        return Err(req.forbidden(pod, &why));
    }
    let spec = pod.object_mut("spec");
    spec.insert("priority", priority);
    if !policy.is_empty() {
        spec.insert("preemptionPolicy", policy);
    }
    if let Some(class) = class {
        spec.insert("priorityClassName", class.name());
    }
    Ok(())
}

pub(crate) fn validate(
    req: &Request<'_>,
    obj: &Object,
    _recorder: &mut Recorder,
) -> Result<(), Failure> {
    let is_default = || obj.at(&["globalDefault"]).and_then(|v| v.as_bool()) == Some(true);
    if !req.is(GROUP, RESOURCE) || req.operation == Operation::Delete || !is_default() {
        return Ok(());
    }
    match default_class(req)? {
        Some(other) if req.operation == Operation::Create || other.name() != obj.name() => {
            let why = format!(
                "PriorityClass {} is already marked as default. Only one default can exist",
                other.name()
            );
            Err(req.forbidden(obj, &why))
        }
        _ => Ok(()),
    }
}
