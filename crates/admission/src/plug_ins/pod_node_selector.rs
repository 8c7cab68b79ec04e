//! PodNodeSelector: adds the node selector in a namespace's annotation to its pods; the
//! configuration limits their selectors.

use crate::attributes::Recorder;
use crate::request::Request;
use keelson_meta::{Failure, Map, Object, Reason, Status, Str, Value, names};

const ANNOTATION: &str = "scheduler.alpha.kubernetes.io/node-selector";
/// The configuration key for all namespaces.
const CLUSTER_DEFAULT: &str = "clusterDefaultNodeSelector";

type Labels = Vec<(String, String)>;

pub(crate) fn admit(
    req: &Request<'_>,
    pod: &mut Object,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    if !req.creates("", "pods") {
        return Ok(());
    }
    let labels = namespace_selector(req)?;
    let own = pod.at(&["spec", "nodeSelector"]).and_then(Value::as_object);
    let conflicts = labels.iter().any(|(key, value)| {
        own.and_then(|own| own.get(key)).is_some_and(|given| given.as_str() != Some(value))
    });
    if conflicts {
        let why = "pod node label selector conflicts with its namespace node label selector";
        return Err(req.forbidden(pod, why));
    }
    if !labels.is_empty() {
        let selector = pod.object_mut("spec").entry_or("nodeSelector", || Map::new().into());
        if let Some(selector) = selector.as_object_mut() {
            for (key, value) in labels {
                selector.insert(Str::from(key), value.as_str());
            }
        }
    }
    validate(req, pod, recorder)
}

pub(crate) fn validate(
    req: &Request<'_>,
    pod: &Object,
    _recorder: &mut Recorder,
) -> Result<(), Failure> {
    if !req.creates("", "pods") {
        return Ok(());
    }
    let allowed = req.config.node_selectors.get(req.namespace).map_or("", String::as_str);
    let allowed = labels_of(allowed)?;
    let mut own = pod
        .at(&["spec", "nodeSelector"])
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(Map::iter);
    let is_allowed = |(key, value): (&Str, &Value)| {
        allowed.iter().any(|(name, label)| name == key && value.as_str() == Some(label))
    };
    if allowed.is_empty() || own.all(is_allowed) {
        return Ok(());
    }
    let why = "pod node label selector labels conflict with its namespace whitelist";
    Err(req.forbidden(pod, why))
}

/// Returns the selector in the namespace's annotation, else in the configuration.
fn namespace_selector(req: &Request<'_>) -> Result<Labels, Failure> {
    let namespace = req.stored.get("", "namespaces", "", req.namespace)?;
    match namespace.as_ref().and_then(|namespace| namespace.annotation(ANNOTATION)) {
        Some(text) => labels_of(text),
        None => labels_of(req.config.node_selectors.get(CLUSTER_DEFAULT).map_or("", |s| s)),
    }
}

/// Parses `key=value,key=value` (apimachinery `labels.ConvertSelectorToLabelsMap`).
fn labels_of(text: &str) -> Result<Labels, Failure> {
    let fail = |why: String| Status::new(Reason::Unknown, why);
    let mut labels = vec![];
    for term in text.split(',').filter(|_| !text.is_empty()) {
        let parts: Vec<&str> = term.split('=').collect();
        let [key, value] = parts.as_slice() else {
            return Err(fail(format!("invalid selector: [{}]", parts.join(" "))));
        };
        let key = key.trim();
        let value = value.trim();
        let errors =
            names::is_qualified_name(key).into_iter().chain(names::is_valid_label_value(value));
        if let Some(why) = errors.into_iter().next() {
            return Err(fail(format!("invalid selector: [{key} {value}]: {why}")));
        }
        labels.push((key.to_owned(), value.to_owned()));
    }
    Ok(labels)
}
