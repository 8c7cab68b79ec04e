//! What several loops ask of pods.

use keelson_meta::Object;
use keelson_registry::{Entry, Kind};

/// Members of a pod whose changes matter to those who count or reach pods.
const PLACES: [&[&str]; 8] = [
    &["metadata", "labels"],
    &["metadata", "deletionTimestamp"],
    &["metadata", "uid"],
    &["metadata", "ownerReferences"],
    &["spec", "nodeName"],
    &["status", "podIP"],
    &["status", "podIPs"],
    &["status", "phase"],
];

/// Whether two versions of a pod are the same to those who count or reach pods: nodes write its status often.
pub(crate) fn is_same(kind: &Kind, before: &Entry, after: &Entry) -> bool {
    let (Ok(before), Ok(after)) = (kind.decode(before), kind.decode(after)) else { return false };
    PLACES.iter().all(|place| before.at(place) == after.at(place))
        && ready_condition(&before) == ready_condition(&after)
}

/// The condition Ready of a pod: its status, and since when.
pub(crate) fn ready_condition(pod: &Object) -> Option<(&str, &str)> {
    let conditions = pod.array_at(&["status", "conditions"]);
    let ready = conditions.iter().find(|one| one.str_at(&["type"]) == Some("Ready"))?;
    let text = |name| ready.str_at(&[name]).unwrap_or_default();
    Some((text("status"), text("lastTransitionTime")))
}

/// Whether the condition Ready is true.
pub(crate) fn is_ready(pod: &Object) -> bool {
    ready_condition(pod).is_some_and(|(status, _)| status == "True")
}
