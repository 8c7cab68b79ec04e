//! The identity of the pods of a StatefulSet: their ordinals, names, labels and volumes.

use crate::pod_control::pod_from_template;
use keelson_meta::{Map, Object, Value, value};

pub(super) const POD_NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";
pub(super) const REVISION_LABEL: &str = "controller-revision-hash";

/// Splits the name of a pod into the name of its set and its ordinal.
fn split(name: &str) -> Option<(&str, &str)> {
    let (parent, digits) = name.rsplit_once('-')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some((parent, digits))
}

/// Returns the name of the set that the name of a pod contains.
pub(super) fn parent(pod: &str) -> Option<&str> {
    Some(split(pod)?.0)
}

/// Returns the ordinal of a pod.
pub(super) fn ordinal(pod: &Object) -> Option<i64> {
    split(pod.name())?.1.parse::<i32>().ok().map(i64::from)
}

/// Returns the first ordinal of a set.
pub(super) fn start(set: &Object) -> i64 {
    set.int_at(&["spec", "ordinals", "start"]).unwrap_or(0)
}

/// Returns the desired number of pods.
pub(super) fn replicas(set: &Object) -> i64 {
    set.int_at(&["spec", "replicas"]).unwrap_or(1)
}

/// Whether the set wants a pod with the ordinal of this one.
pub(super) fn is_in_range(pod: &Object, set: &Object) -> bool {
    let start = start(set);
    ordinal(pod).is_some_and(|ordinal| ordinal >= start && ordinal < start + replicas(set))
}

/// Returns the name of the revision of a pod.
pub(super) fn revision(pod: &Object) -> &str {
    pod.label(REVISION_LABEL).unwrap_or_default()
}

/// Returns the name of a claim.
pub(super) fn claim_name(template: &Value, set: &Object, ordinal: i64) -> String {
    let template = template.str_at(&["metadata", "name"]).unwrap_or_default();
    format!("{template}-{}-{ordinal}", set.name())
}

/// Returns the templates of claims.
pub(super) fn claim_templates(set: &Object) -> &[Value] {
    set.array_at(&["spec", "volumeClaimTemplates"])
}

/// Whether a pod has the labels of its identity.
pub(super) fn has_identity(pod: &Object, set: &Object) -> bool {
    let name = ordinal(pod).map(|ordinal| format!("{}-{ordinal}", set.name()));
    name.as_deref() == Some(pod.name()) && pod.label(POD_NAME_LABEL) == Some(pod.name())
}

/// Whether a pod has the volumes of its claims.
pub(super) fn has_storage(pod: &Object, set: &Object) -> bool {
    let Some(ordinal) = ordinal(pod) else { return false };
    claim_templates(set).iter().all(|template| {
        let name = template.str_at(&["metadata", "name"]);
        let mut volumes = pod.array_at(&["spec", "volumes"]).iter();
        let volume = volumes.find(|volume| volume.str_at(&["name"]) == name);
        let claim = volume.and_then(|one| one.str_at(&["persistentVolumeClaim", "claimName"]));
        claim == Some(claim_name(template, set, ordinal).as_str())
    })
}

/// Gives a pod the labels of its identity.
pub(super) fn set_identity(pod: &mut Object, ordinal: i64) {
    let name = pod.name().to_owned();
    let labels = pod.metadata_mut().object_at("labels");
    labels.insert(POD_NAME_LABEL, name);
    labels.insert(POD_INDEX_LABEL, ordinal.to_string());
}

/// Gives a pod the volumes of its claims, in place of others with these names.
pub(super) fn set_storage(pod: &mut Object, set: &Object, ordinal: i64) {
    let templates = claim_templates(set);
    let mut volumes: Vec<Value> = vec![];
    for template in templates {
        let name = template.str_at(&["metadata", "name"]).unwrap_or_default();
        let claim = claim_name(template, set, ordinal);
        volumes.push(value!({"name": name, "persistentVolumeClaim": {"claimName": (claim)}}));
    }
    let is_claimed = |volume: &&Value| {
        let name = volume.str_at(&["name"]);
        templates.iter().any(|template| template.str_at(&["metadata", "name"]) == name)
    };
    let kept = pod.array_at(&["spec", "volumes"]).iter().filter(|volume| !is_claimed(volume));
    volumes.extend(kept.cloned());
    if !volumes.is_empty() {
        pod.object_mut("spec").insert("volumes", volumes);
    }
}

/// Returns the pod with an ordinal, with a template of the set.
pub(super) fn new_pod(set: &Object, template: &Value, revision: &str, ordinal: i64) -> Object {
    let mut pod = pod_from_template(template, set);
    let name = format!("{}-{ordinal}", set.name());
    pod.set_meta("name", &name);
    pod.set_meta("namespace", set.namespace());
    set_identity(&mut pod, ordinal);
    pod.metadata_mut().object_at("labels").insert(REVISION_LABEL, revision);
    let subdomain = set.str_at(&["spec", "serviceName"]);
    let spec = pod.object_mut("spec");
    spec.insert("hostname", name);
    spec.remove("subdomain");
    if !subdomain.is_empty() {
        spec.insert("subdomain", subdomain);
    }
    set_storage(&mut pod, set, ordinal);
    pod
}

/// Returns the claim of a pod, from a template of the set.
pub(super) fn new_claim(template: &Value, set: &Object, ordinal: i64) -> Object {
    let mut claim = Object::from_value(template.clone()).unwrap_or_default();
    claim.root.remove("status");
    let name = claim_name(template, set, ordinal);
    claim.set_meta("name", &name);
    claim.set_meta("namespace", set.namespace());
    let labels = set.at(&["spec", "selector", "matchLabels"]).and_then(Value::as_object);
    for (name, text) in labels.unwrap_or(&Map::new()).iter() {
        claim.metadata_mut().object_at("labels").insert(name.clone(), text.clone());
    }
    claim
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set() -> Object {
        let set = value!({
            "apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {"name": "db", "namespace": "n", "uid": "u"},
            "spec": {
                "replicas": 2, "ordinals": {"start": 3}, "serviceName": "svc",
                "selector": {"matchLabels": {"a": "b"}},
                "template": {"metadata": {"labels": {"a": "b"}},
                    "spec": {"volumes": [{"name": "data"}, {"name": "tmp", "emptyDir": {}}]}},
                "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}]
            }
        });
        Object::from_value(set).expect("a map")
    }

    #[test]
    fn a_pod_has_the_name_labels_and_volumes_of_its_ordinal() {
        let set = set();
        let template = set.at(&["spec", "template"]).cloned().expect("a template");
        let pod = new_pod(&set, &template, "db-1", 4);
        assert_eq!((pod.name(), ordinal(&pod), parent("db-4")), ("db-4", Some(4), Some("db")));
        let labels = value!({"a": "b", "statefulset.kubernetes.io/pod-name": "db-4",
            "apps.kubernetes.io/pod-index": "4", "controller-revision-hash": "db-1"});
        assert_eq!(pod.at(&["metadata", "labels"]), Some(&labels));
        let spec = value!({"hostname": "db-4", "subdomain": "svc", "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-4"}},
            {"name": "tmp", "emptyDir": {}}]});
        assert_eq!(pod.get("spec"), Some(&spec));
        assert!(has_identity(&pod, &set) && has_storage(&pod, &set) && is_in_range(&pod, &set));
        let claim = new_claim(&claim_templates(&set)[0], &set, 4);
        assert_eq!((claim.name(), claim.label("a")), ("data-db-4", Some("b")));
    }

    #[test]
    fn only_names_that_end_with_a_number_have_an_ordinal() {
        let check = |name: &str, wanted: Option<i64>| {
            let mut pod = Object::new();
            pod.set_meta("name", name);
            assert_eq!(ordinal(&pod), wanted, "{name}");
        };
        check("db-0", Some(0));
        check("my-db-12", Some(12));
        check("db", None);
        check("db-", None);
        check("db-x", None);
        check("db-9999999999", None);
    }
}
