//! PodTolerationRestriction: default and allowed tolerations of pods in a namespace's annotations.

use crate::attributes::Recorder;
use crate::plug_ins::tolerations::{includes, merge};
use crate::request::{Operation, Request};
use keelson_meta::{Failure, Object, Reason, Status, Value, value};
use keelson_schema::json;

const DEFAULTS: &str = "scheduler.alpha.kubernetes.io/defaultTolerations";
const ALLOWED: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";

pub(crate) fn admit(
    req: &Request<'_>,
    pod: &mut Object,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    if !writes_pod(req) {
        return Ok(());
    }
    let mut more = vec![];
    if req.operation == Operation::Create {
        let given = annotation(req, DEFAULTS)?;
        more = given.unwrap_or_else(|| req.config.default_tolerations.clone());
    }
    if !crate::plug_ins::quota::is_best_effort(pod) {
        more.push(value!({
            "key": "node.kubernetes.io/memory-pressure", "operator": "Exists",
            "effect": "NoSchedule"
        }));
    }
    if !more.is_empty() {
        let all = merge(pod.array_at(&["spec", "tolerations"]), &more);
        pod.object_mut("spec").insert("tolerations", all);
    }
    validate(req, pod, recorder)
}

pub(crate) fn validate(
    req: &Request<'_>,
    pod: &Object,
    _recorder: &mut Recorder,
) -> Result<(), Failure> {
    let own = pod.array_at(&["spec", "tolerations"]);
    if !writes_pod(req) || own.is_empty() {
        return Ok(());
    }
    let (allowed, scope) = match annotation(req, ALLOWED)? {
        Some(allowed) => (allowed, "namespace"),
        None => (req.config.tolerations_whitelist.clone(), "cluster"),
    };
    let is_allowed = |one: &Value| allowed.iter().any(|wide| includes(wide, one));
    if allowed.is_empty() || own.iter().all(is_allowed) {
        return Ok(());
    }
    let why = format!(
        "pod tolerations (possibly merged with namespace default tolerations) conflict with its \
         {scope} whitelist"
    );
    Err(Status::new(Reason::Unknown, why))
}

fn writes_pod(req: &Request<'_>) -> bool {
    req.is("", "pods") && matches!(req.operation, Operation::Create | Operation::Update)
}

/// Returns the tolerations in an annotation of the namespace; `None` without the annotation.
fn annotation(req: &Request<'_>, name: &str) -> Result<Option<Vec<Value>>, Failure> {
    let namespace = req.stored.get("", "namespaces", "", req.namespace)?;
    let Some(text) = namespace.as_ref().and_then(|namespace| namespace.annotation(name)) else {
        return Ok(None);
    };
    if text.is_empty() {
        return Ok(Some(vec![]));
    }
    let parsed = json::parse(text.as_bytes())
        .map_err(|why| Status::new(Reason::Unknown, why.to_string()))?;
    Ok(Some(parsed.value.as_array().unwrap_or_default().to_vec()))
}
