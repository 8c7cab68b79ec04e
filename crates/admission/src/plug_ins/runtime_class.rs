//! RuntimeClass: sets overhead and scheduling of a pod from its runtime class.

use crate::attributes::Recorder;
use crate::plug_ins::pod::quantity;
use crate::plug_ins::tolerations;
use crate::request::{Request, invalid_name_reason};
use keelson_meta::{Failure, Map, Object, Reason, Status, Value};

pub(crate) fn admit(
    req: &Request<'_>,
    pod: &mut Object,
    _recorder: &mut Recorder,
) -> Result<(), Failure> {
    if !req.creates("", "pods") {
        return Ok(());
    }
    let Some(class) = class_of(req, pod)? else {
        return Ok(());
    };
    if let Some(fixed) = overhead_of(&class) {
        if given_overhead(pod).is_some_and(|given| !is_same(given, fixed)) {
            return Err(req.forbidden(pod, OVERHEAD_DIFFERS));
        }
        pod.object_mut("spec").insert("overhead", Value::Object(fixed.clone()));
    }
    if let Some(scheduling) = class.at(&["scheduling"]).filter(|v| v.as_object().is_some()) {
        merge_selector(req, pod, scheduling)?;
        let own = pod.array_at(&["spec", "tolerations"]);
        let merged = tolerations::merge(own, scheduling.array_at(&["tolerations"]));
        if !merged.is_empty() {
            pod.object_mut("spec").insert("tolerations", merged);
        }
    }
    Ok(())
}

pub(crate) fn validate(
    req: &Request<'_>,
    pod: &Object,
    _recorder: &mut Recorder,
) -> Result<(), Failure> {
    if !req.creates("", "pods") {
        return Ok(());
    }
    let class = class_of(req, pod)?;
    match (class.as_ref().and_then(overhead_of), given_overhead(pod)) {
        (Some(fixed), given) if !given.is_some_and(|given| is_same(given, fixed)) => {
            Err(req.forbidden(pod, OVERHEAD_DIFFERS))
        }
        (None, Some(_)) => {
            let why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined \
                       Overhead";
            Err(req.forbidden(pod, why))
        }
        _ => Ok(()),
    }
}

const OVERHEAD_DIFFERS: &str =
    "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

fn class_of(req: &Request<'_>, pod: &Object) -> Result<Option<Object>, Failure> {
    let Some(name) = pod.at(&["spec", "runtimeClassName"]).and_then(Value::as_str) else {
        return Ok(None);
    };
    if name.is_empty() {
        return Err(Status::new(Reason::Unknown, "resource name may not be empty"));
    }
    if let Some(why) = invalid_name_reason(name) {
        return Err(Status::new(Reason::Unknown, why));
    }
    let class = req.stored.get("node.k8s.io", "runtimeclasses", "", name)?;
    let why = || req.forbidden(pod, &format!("pod rejected: RuntimeClass {name:?} not found"));
    class.ok_or_else(why).map(Some)
}

fn overhead_of(class: &Object) -> Option<&Map> {
    class.at(&["overhead", "podFixed"]).and_then(Value::as_object)
}

fn given_overhead(pod: &Object) -> Option<&Map> {
    pod.at(&["spec", "overhead"]).and_then(Value::as_object)
}

fn is_same(a: &Map, b: &Map) -> bool {
    a.len() == b.len()
        && a.iter().all(|(name, amount)| {
            b.get(name).is_some_and(|other| quantity(Some(amount)) == quantity(Some(other)))
        })
}

fn merge_selector(req: &Request<'_>, pod: &mut Object, scheduling: &Value) -> Result<(), Failure> {
    let Some(wanted) = scheduling.get("nodeSelector").and_then(Value::as_object) else {
        return Ok(());
    };
    for (key, want) in wanted.sorted() {
        let given = pod.at(&["spec", "nodeSelector"]).and_then(|own| own.get(key));
        if let Some(given) = given.filter(|given| *given != want) {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let why = format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; \
                 pod.spec.nodeSelector[{key}] = {}",
                text(want),
                text(given)
            );
            return Err(req.forbidden(pod, &why));
        }
        pod.object_mut("spec").object_at("nodeSelector").insert(key.clone(), want.clone());
    }
    Ok(())
}
