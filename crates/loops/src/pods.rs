//! Facts about pods that several loops use.

use keelson_meta::Object;
use keelson_records::Entry;
use keelson_resources::Kind;

/// The paths of a pod that decide whether it is counted or reached.
const COMPARED_PATHS: [&[&str]; 8] = [
    &["metadata", "labels"],
    &["metadata", "deletionTimestamp"],
    &["metadata", "uid"],
    &["metadata", "ownerReferences"],
    &["spec", "nodeName"],
    &["status", "podIP"],
    &["status", "podIPs"],
    &["status", "phase"],
];

/// Whether an update of a pod changes none of the facts that loops use. Kubelets update the status
/// often.
pub fn is_unchanged(kind: &Kind, before: &Entry, after: &Entry) -> bool {
    let (Ok(before), Ok(after)) = (kind.decode(before), kind.decode(after)) else { return false };
    COMPARED_PATHS.iter().all(|path| before.at(path) == after.at(path))
        && ready_condition(&before) == ready_condition(&after)
}

/// Returns status and lastTransitionTime of the condition Ready.
pub fn ready_condition(pod: &Object) -> Option<(&str, &str)> {
    let conditions = pod.array_at(&["status", "conditions"]);
    let ready = conditions.iter().find(|one| one.str_at(&["type"]) == Some("Ready"))?;
    let text = |name| ready.str_at(&[name]).unwrap_or_default();
    Some((text("status"), text("lastTransitionTime")))
}

/// Whether the condition Ready is true.
pub fn is_ready(pod: &Object) -> bool {
    ready_condition(pod).is_some_and(|(status, _)| status == "True")
}
