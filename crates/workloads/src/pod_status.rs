//! Changes of the status of pods by loops that end them.

use crate::stored::set_condition;
use keelson_loops::client::Client;
use keelson_meta::{Failure, Map, Object, Timestamp, Value, value};
use keelson_registry::options::PatchForm;
use keelson_registry::{Subresource, Target};
use keelson_resources::Kind;
use std::sync::Arc;

/// Sets the condition DisruptionTarget of a pod to true and returns whether it changed.
pub(crate) fn set_disruption_target(
    pod: &mut Object,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> bool {
    const TYPE: &str = "DisruptionTarget";
    let before = pod.at(&["status", "conditions"]).cloned();
    let mut wanted = Map::new();
    wanted.insert("type", TYPE);
    wanted.insert("status", "True");
    wanted.insert("reason", reason);
    wanted.insert("message", message);
    wanted.insert("lastTransitionTime", now.text());
    if pod.generation() > 0 {
        wanted.insert("observedGeneration", pod.generation());
    }
    set_condition(pod, wanted, now);
    before.as_ref() != pod.at(&["status", "conditions"])
}

/// Stores the status of a pod, if it is still the same pod.
pub(crate) async fn patch(
    client: &Client,
    kind: &Arc<Kind>,
    before: &Object,
    after: &Object,
) -> Result<(), Failure> {
    let Some(changes) = changes(before, after) else { return Ok(()) };
    let target = Target::of(kind, before.namespace(), before.name());
    let patch = value!({"metadata": {"uid": (before.uid())}, "status": (changes)});
    client.patch(&target, Subresource::Status, PatchForm::Strategic, &patch).await.map(drop)
}

/// Returns the members of the status that were changed; lists of conditions in their new order.
fn changes(before: &Object, after: &Object) -> Option<Map> {
    let mut changes = Map::new();
    let status = after.get("status").and_then(Value::as_object)?;
    for (name, new) in status.iter() {
        if before.at(&["status", name]) == Some(new) {
            continue;
        }
        changes.insert(name.clone(), new.clone());
        if name == "conditions" {
            let types = new
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|one| Some(value!({"type": (one.str_at(&["type"])?)})));
            changes.insert("$setElementOrder/conditions", types.collect::<Vec<_>>());
        }
    }
    (!changes.is_empty()).then_some(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: R-COND-08.
    #[test]
    fn a_condition_is_set_once() {
        let mut pod = Object::from_value(value!({"metadata": {"generation": 2},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}))
        .expect("a map");
        let before = pod.clone();
        let now = Timestamp::new(0, 0);
        assert!(set_disruption_target(&mut pod, "R", "m", now));
        assert!(!set_disruption_target(&mut pod, "R", "m", Timestamp::new(60, 0)));
        let target = value!({"type": "DisruptionTarget", "status": "True", "reason": "R",
            "message": "m", "lastTransitionTime": "1970-01-01T00:00:00Z", "observedGeneration": 2});
        let wanted = value!({
            "conditions": [{"type": "Ready", "status": "True"}, (target)],
            "$setElementOrder/conditions": [{"type": "Ready"}, {"type": "DisruptionTarget"}]});
        assert_eq!(changes(&before, &pod).map(Value::Object), Some(wanted));
        assert_eq!(changes(&pod, &pod), None);
    }
}
