//! What is known about the health of a node: what its kubelet reported and when.

use keelson_meta::time::GoDuration;
use keelson_meta::{Object, Str, Timestamp, Value, value};
use std::time::Duration;

/// How long a node may be silent before its conditions are unknown.
const GRACE: i64 = 50;
/// How long a new node may take to report for the first time.
const STARTUP_GRACE: i64 = 60;
/// The conditions that become unknown.
const CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// Facts about a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Health {
    pub uid: Str,
    /// Region and zone.
    pub zone: Str,
    /// Status of the condition Ready; `None`: there is none.
    pub ready: Option<Str>,
    heartbeat: Str,
    /// When the node was last heard of.
    pub seen: Timestamp,
    /// Whether its state does not count for its zone.
    pub is_excluded: bool,
    /// Whether it has the taints NoExecute of nodes that are not ready and that do not report.
    pub has_not_ready: bool,
    pub has_unreachable: bool,
}

/// When taints NoExecute of a node must change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tainting {
    /// They are right.
    None,
    /// One must go or be exchanged, which evicts no further pods.
    Now,
    /// The node must get one when it is its turn.
    InTurn,
}

impl Health {
    /// Updates what is known by the present state of the node.
    pub fn of(node: &Object, known: Option<&Health>, now: Timestamp) -> Health {
        let conditions = node.array_at(&["status", "conditions"]).iter();
        let ready = conditions.into_iter().find(|one| one.str_at(&["type"]) == Some("Ready"));
        let text = |name: &str| {
            let text = ready.and_then(|ready| ready.str_at(&[name]));
            text.map(Str::new)
        };
        let heartbeat = text("lastHeartbeatTime").unwrap_or_default();
        let known = known.filter(|known| known.uid == node.uid());
        let seen = match known {
            Some(known)
                if known.heartbeat == heartbeat && known.ready.is_some() == ready.is_some() =>
            {
                known.seen
            }
            None if ready.is_none() => Timestamp::parse(node.creation_timestamp()).unwrap_or(now),
            _ => now,
        };
        let has_taint = |key: &str| {
            let mut taints = node.array_at(&["spec", "taints"]).iter();
            taints.any(|taint| {
                taint.str_at(&["effect"]) == Some("NoExecute")
                    && taint.str_at(&["key"]) == Some(key)
            })
        };
        Health {
            uid: node.uid().into(),
            zone: zone_of(node),
            ready: text("status"),
            heartbeat,
            seen,
            is_excluded: node.label("node.kubernetes.io/exclude-disruption").is_some(),
            has_not_ready: has_taint(super::taints::NOT_READY),
            has_unreachable: has_taint(super::taints::UNREACHABLE),
        }
    }

    /// Returns how long the node may yet be silent; `None`: it was silent for too long.
    pub fn remaining(&self, now: Timestamp) -> Option<Duration> {
        let grace = if self.ready.is_some() { GRACE } else { STARTUP_GRACE };
        let left = self.seen.plus(GoDuration::from_seconds(grace)).since(now).0;
        u64::try_from(left).ok().map(Duration::from_nanos)
    }

    pub fn is_ready(&self) -> bool {
        self.ready.as_deref() == Some("True")
    }

    pub fn is_tainted(&self) -> bool {
        self.has_not_ready || self.has_unreachable
    }

    /// Returns what must happen to its taints NoExecute.
    pub fn tainting(&self) -> Tainting {
        let (right, wrong) = match self.ready.as_deref() {
            Some("True") if self.is_tainted() => return Tainting::Now,
            Some("False") => (self.has_not_ready, self.has_unreachable),
            Some("Unknown") => (self.has_unreachable, self.has_not_ready),
            _ => return Tainting::None,
        };
        match (right, wrong) {
            (_, true) => Tainting::Now,
            (true, false) => Tainting::None,
            (false, false) => Tainting::InTurn,
        }
    }
}

/// Returns region and zone of a node.
fn zone_of(node: &Object) -> Str {
    let label =
        |names: [&str; 2]| names.into_iter().find_map(|name| node.label(name)).unwrap_or_default();
    let region =
        label(["topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"]);
    let zone = label(["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"]);
    if region.is_empty() && zone.is_empty() {
        return Str::default();
    }
    format!("{region}:\0:{zone}").into()
}

/// Makes the conditions of a silent node unknown. Returns the new state if Ready has changed, and
/// whether it was true before.
pub(super) fn make_unknown(node: &Object, now: Timestamp) -> Option<(Object, bool)> {
    let mut changed = node.clone();
    let created = node.creation_timestamp();
    let status = changed.object_mut("status");
    let Value::Array(all) = status.entry_or("conditions", || Value::Array(vec![])) else {
        return None;
    };
    let mut is_changed = false;
    let mut was_ready = false;
    for kind in CONDITIONS {
        let known = all.iter_mut().find(|one| one.str_at(&["type"]) == Some(kind));
        let Some(map) = known.and_then(Value::as_object_mut) else {
            is_changed |= kind == "Ready";
            all.push(
                value!({"type": kind, "status": "Unknown", "reason": "NodeStatusNeverUpdated",
                "message": "Kubelet never posted node status.", "lastHeartbeatTime": created,
                "lastTransitionTime": (now.text())}),
            );
            continue;
        };
        let state = map.get("status").and_then(Value::as_str).unwrap_or_default();
        if state == "Unknown" {
            continue;
        }
        if kind == "Ready" {
            (is_changed, was_ready) = (true, state == "True");
        }
        map.insert("status", "Unknown");
        map.insert("reason", "NodeStatusUnknown");
        map.insert("message", "Kubelet stopped posting node status.");
        map.insert("lastTransitionTime", now.text());
    }
    is_changed.then_some((changed, was_ready))
}

/// Makes the condition Ready of a pod false. `None`: it has none, or it is false already.
pub(super) fn make_unready(pod: &Object, now: Timestamp) -> Option<Object> {
    let mut changed = pod.clone();
    let conditions = changed.object_mut("status").get_mut("conditions")?.as_array_mut()?;
    let ready = conditions.iter_mut().find(|one| one.str_at(&["type"]) == Some("Ready"))?;
    if ready.str_at(&["status"]) == Some("False") {
        return None;
    }
    let map = ready.as_object_mut()?;
    map.insert("status", "False");
    map.insert("lastTransitionTime", now.text());
    Some(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(ready: Option<(&str, &str)>) -> Object {
        let ready = ready.map(|(status, heartbeat)| {
            value!({"type": "Ready", "status": status, "lastHeartbeatTime": heartbeat})
        });
        let conditions: Vec<Value> = ready.into_iter().collect();
        Object::from_value(value!({"metadata": {"uid": "u",
            "creationTimestamp": "1970-01-01T00:01:00Z"}, "status": {"conditions": (conditions)}}))
        .expect("a map")
    }

    #[test]
    fn a_node_is_heard_of_when_its_heartbeat_changes() {
        let at = |seconds| Timestamp::new(seconds, 0);
        let silent = Health::of(&node(None), None, at(65));
        assert_eq!(
            (silent.seen, silent.remaining(at(70))),
            (at(60), Some(Duration::from_secs(50)))
        );
        assert_eq!(silent.remaining(at(121)), None);
        let first = Health::of(&node(Some(("True", "a"))), Some(&silent), at(70));
        let same = Health::of(&node(Some(("True", "a"))), Some(&first), at(80));
        let second = Health::of(&node(Some(("True", "b"))), Some(&same), at(90));
        assert_eq!([first.seen, same.seen, second.seen], [at(70), at(70), at(90)]);
        assert_eq!(same.remaining(at(120)), Some(Duration::ZERO));
        assert_eq!(same.remaining(at(121)), None);
    }

    #[test]
    fn a_node_waits_for_its_first_taint_only() {
        let check = |ready: &str, has_not_ready: bool, has_unreachable: bool, want: Tainting| {
            let ready = Some(ready.into());
            let health = Health { ready, has_not_ready, has_unreachable, ..Health::default() };
            assert_eq!(health.tainting(), want, "{health:?}");
        };
        check("True", false, false, Tainting::None);
        check("True", true, false, Tainting::Now);
        check("False", false, false, Tainting::InTurn);
        check("False", true, false, Tainting::None);
        check("False", false, true, Tainting::Now);
        check("Unknown", true, false, Tainting::Now);
        check("Unknown", false, true, Tainting::None);
        assert_eq!(Health::default().tainting(), Tainting::None);
    }

    #[test]
    fn silent_nodes_become_unknown_once() {
        let now = Timestamp::new(100, 0);
        let (changed, was_ready) = make_unknown(&node(Some(("True", "a"))), now).expect("a change");
        assert!(was_ready);
        let reasons: Vec<&str> = changed
            .array_at(&["status", "conditions"])
            .iter()
            .filter_map(|one| one.str_at(&["reason"]))
            .collect();
        let never = "NodeStatusNeverUpdated";
        assert_eq!(reasons, ["NodeStatusUnknown", never, never, never]);
        assert_eq!(make_unknown(&changed, now), None);
        let (_, was_ready) = make_unknown(&node(None), now).expect("a change");
        assert!(!was_ready);
    }
}
