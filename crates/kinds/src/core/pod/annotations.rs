//! Validates pod annotations: AppArmor and seccomp profiles, tolerations, deletion cost, mirror
//! pods.

use super::scheduling;
use crate::check::Field;
use crate::gates;
use keelson_meta::status::quote;
use keelson_meta::{ErrorList, Feature, Map, Object, SmallSet, Str, Value};
use keelson_schema::json;

/// The prefix of annotations that name a container's AppArmor profile.
pub(super) const APPARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
/// The annotation of mirror pods.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const LOCALHOST: &str = "localhost/";
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Validates the annotations of a pod or template. `is_cost_checked` is false for an update that
/// keeps an invalid deletion cost.
pub(super) fn validate(
    at: &Field<'_, '_>,
    spec: &Field<'_, '_>,
    is_cost_checked: bool,
    errors: &mut ErrorList,
) {
    if at.value.as_object().is_none_or(Map::is_empty) {
        return;
    }
    let mirror = at.field_at(MIRROR);
    if mirror.is_set() && spec.str("nodeName").is_empty() {
        mirror.invalid(errors, "must set spec.nodeName if mirror pod annotation is set");
    }
    tolerations(at, errors);
    let cost = at.field_at(DELETION_COST);
    let is_cost_checked = is_cost_checked && gates::is_on(Feature::PodDeletionCost);
    if is_cost_checked && cost.is_set() && !is_cost(cost.text()) {
        cost.invalid(errors, "must be a 32bit integer");
    }
    if at.has(SECCOMP_POD) {
        seccomp(&at.field(SECCOMP_POD), errors);
    }
    for (key, _) in at.entries().filter(|(key, _)| key.starts_with(SECCOMP_CONTAINER)) {
        seccomp(&at.field(key), errors);
    }
    app_armor(at, spec, errors);
}

/// Returns whether a text is a deletion cost: an integer without `+` or leading zeros.
fn is_cost(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_plain = !digits.starts_with('+') && (digits == "0" || !digits.starts_with('0'));
    is_plain && text.parse::<i32>().is_ok()
}

fn tolerations(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let text = at.str(TOLERATIONS);
    if text.is_empty() {
        return;
    }
    match json::parse(text.as_bytes()) {
        Ok(parsed) => {
            scheduling::tolerations(
                &Field { value: &parsed.value, path: at.path.field(TOLERATIONS) },
                errors,
            );
        }
        Err(why) => at.invalid_as(errors, TOLERATIONS, &why.to_string()),
    }
}

fn seccomp(at: &Field<'_, '_>, errors: &mut ErrorList) {
    match at.text() {
        "runtime/default" | "docker/default" | "unconfined" => {}
        text => match text.strip_prefix(LOCALHOST) {
            Some(path) => {
                let path = Value::from(path);
                super::paths::descending(&Field { value: &path, path: at.path }, errors);
            }
            None => at.invalid(errors, "must be a valid seccomp profile"),
        },
    }
}

fn app_armor(at: &Field<'_, '_>, spec: &Field<'_, '_>, errors: &mut ErrorList) {
    let mut profiles = at.entries().filter(|(key, _)| key.starts_with(APPARMOR)).peekable();
    if profiles.peek().is_none() {
        return;
    }
    let containers = CONTAINERS.iter().flat_map(|list| spec.get(list).as_array()).flatten();
    let names: SmallSet<&str> = containers.filter_map(|c| c.str_at(&["name"])).collect();
    for (key, profile) in profiles {
        let name = &key[APPARMOR.len()..];
        if !names.contains(name) {
            profile.invalid_as(errors, name, "container not found");
        }
        let text = profile.text();
        if !matches!(text, "" | "runtime/default" | "unconfined") && !text.starts_with(LOCALHOST) {
            let words = format!("invalid AppArmor profile name: {}", quote(text));
            profile.invalid(errors, &words);
        }
    }
}

/// Checks that a profile that is set in an annotation and in a field is the same in both.
pub(super) fn match_fields(at: &Field<'_, '_>, spec: &Field<'_, '_>, errors: &mut ErrorList) {
    let annotations = at.value.as_object().into_iter().flat_map(Map::iter);
    if !annotations.into_iter().any(|(key, _)| key.starts_with(APPARMOR)) {
        return;
    }
    let of_pod = spec.value.at(&["securityContext", "appArmorProfile"]);
    if spec.value.str_at(&["os", "name"]) == Some("windows") {
        return;
    }
    for list in CONTAINERS {
        for container in spec.field(list).items() {
            let annotation = at.get(&format!("{APPARMOR}{}", container.str("name")));
            let own = container.value.at(&["securityContext", "appArmorProfile"]);
            let (Some(annotation), Some(profile)) = (annotation.as_str(), own.or(of_pod)) else {
                continue;
            };
            let context = container.field("securityContext");
            let field = context.field("appArmorProfile");
            let path = annotation.strip_prefix(LOCALHOST);
            let is_type = match profile.str_at(&["type"]) {
                Some("Unconfined") => annotation == "unconfined",
                Some("RuntimeDefault") => matches!(annotation, "" | "runtime/default"),
                Some("Localhost") => path.is_some(),
                _ => true,
            };
            if !is_type {
                let words = "apparmor type in annotation and field must match";
                field.field("type").forbidden(errors, words);
            } else if path.is_some() && profile.str_at(&["localhostProfile"]) != path {
                let words = "apparmor profile in annotation and field must match";
                field.field("localhostProfile").forbidden(errors, words);
            }
        }
    }
}

/// Validates the changes of annotations in an update, and then all annotations again.
pub(super) fn validate_update(new: &Object, old: &Object, errors: &mut ErrorList) {
    let none = Value::Null;
    let metadata = Field::of(new, "metadata");
    let at = metadata.field("annotations");
    let stored = old.at(&["metadata", "annotations"]).unwrap_or(&none);
    if at.value == stored && stored.is_null() {
        return;
    }
    let before = Field { value: stored, path: at.path };
    let what = |key: &str| match key {
        MIRROR => Some("mirror pod annotation"),
        _ => key.starts_with(APPARMOR).then_some("AppArmor annotations"),
    };
    for (key, value) in before.entries() {
        if let Some(what) = what(key).filter(|_| at.get(key) != value.value) {
            at.field_at(key).forbidden(errors, &format!("may not remove or update {what}"));
        }
    }
    for (key, value) in at.entries() {
        if let Some(what) = what(key).filter(|_| !before.has(key)) {
            value.forbidden(errors, &format!("may not add {what}"));
        }
    }
    validate(&at, &Field::of(new, "spec"), is_cost_of(Some(old)), errors);
}

/// Returns whether the deletion cost is validated, given the stored pod.
pub(super) fn is_cost_of(old: Option<&Object>) -> bool {
    let cost = old.and_then(|old| old.at(&["metadata", "annotations", DELETION_COST]));
    cost.and_then(Value::as_str).is_none_or(is_cost)
}

/// Returns warnings about AppArmor annotations.
pub(super) fn warnings(pod: &Object) -> Vec<Str> {
    if !pod.meta_map("annotations").any(|(key, _)| key.starts_with(APPARMOR)) {
        return vec![];
    }
    let of_pod = pod.at(&["spec", "securityContext", "appArmorProfile"]);
    let lists = ["initContainers", "containers"].map(|list| pod.array_at(&["spec", list]));
    let mut out = vec![];
    for container in lists.into_iter().flatten() {
        let key = format!("{APPARMOR}{}", container.str_at(&["name"]).unwrap_or_default());
        let text = pod.at(&["metadata", "annotations", &key]).and_then(Value::as_str);
        let is_told = text.is_some_and(|text| {
            let field = super::app_armor_profile(text);
            container.at(&["securityContext", "appArmorProfile"]).is_none()
                && (field.is_none() || field.as_ref() != of_pod)
        });
        if is_told {
            out.push(Str::from(format!(
                "metadata.annotations[{key}]: deprecated since v1.30; use the \"appArmorProfile\" \
                 field instead"
            )));
        }
    }
    out
}
