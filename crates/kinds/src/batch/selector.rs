//! The selector of a job, which the server generates unless `manualSelector` is set.

use crate::check::Field;
use crate::check::default;
use keelson_meta::selector::Selector;
use keelson_meta::{ErrorList, FieldError, Map, Object, Value};

const CONTROLLER: &str = "batch.kubernetes.io/controller-uid";
const NAME: &str = "batch.kubernetes.io/job-name";
/// The legacy labels without a domain.
const OLD_CONTROLLER: &str = "controller-uid";
const OLD_NAME: &str = "job-name";

fn is_manual(job: &Object) -> bool {
    job.at(&["spec", "manualSelector"]).and_then(Value::as_bool) == Some(true)
}

/// Adds the generated labels to the template and to the selector. Keeps values that the client
/// sent.
pub(super) fn generate(job: &mut Object) {
    if is_manual(job) {
        return;
    }
    let name = job.name().to_owned();
    let uid = job.uid().to_owned();
    let spec = job.object_mut("spec");
    let labels = spec.object_at("template").object_at("metadata").object_at("labels");
    for (key, text) in
        [(OLD_NAME, &name), (NAME, &name), (OLD_CONTROLLER, &uid), (CONTROLLER, &uid)]
    {
        default(labels, key, text.as_str());
    }
    labels.sort();
    let chosen: &mut Map = spec.object_at("selector").object_at("matchLabels");
    default(chosen, CONTROLLER, uid);
    chosen.sort();
}

/// Checks that the client set no other values for the generated labels. Old jobs may lack the
/// labels with a domain.
pub(super) fn validate(job: &Object, old: Option<&Object>, errors: &mut ErrorList) {
    let had = |key: &str| {
        old.is_none_or(|old| old.at(&["spec", "template", "metadata", "labels", key]).is_some())
    };
    let has_domain = had(CONTROLLER) && had(NAME);
    let spec = Field::of(job, "spec");
    let selector = spec.field("selector");
    if is_manual(job) || !selector.is_set() {
        return;
    }
    let template = spec.field("template");
    let metadata = template.field("metadata");
    let labels = metadata.field("labels");
    let name = job.name();
    let uid = job.uid();
    for (key, expected) in
        [(OLD_CONTROLLER, uid), (OLD_NAME, name), (CONTROLLER, uid), (NAME, name)]
    {
        if !has_domain && matches!(key, CONTROLLER | NAME) {
            continue;
        }
        let words = format!("must be '{expected}'");
        let place = labels.path.key(key);
        match labels.str(key) {
            "" if !labels.has(key) => errors.push(FieldError::required(&place, &words)),
            found if found != expected => {
                errors.push(FieldError::invalid(&place, labels.value.clone(), &words));
            }
            _ => {}
        }
    }
    let chosen = selector.get("matchLabels").as_object();
    let only = chosen.is_some_and(|map| map.len() == 1)
        && chosen.is_some_and(|map| {
            let text = |key: &str| map.get(key).and_then(Value::as_str);
            text(CONTROLLER) == Some(uid) || (!has_domain && text(OLD_CONTROLLER) == Some(uid))
        })
        && selector.get("matchExpressions").is_empty();
    // An invalid selector is reported elsewhere.
    if !only && Selector::from_object(selector.get_self()).is_ok() {
        selector.invalid_selector(errors, "`selector` not auto-generated");
    }
}
