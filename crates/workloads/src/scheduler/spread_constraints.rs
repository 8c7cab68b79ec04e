//! The topology spread constraints of a pod.

use crate::sorted_pairs::find;
use keelson_meta::selector::Selector;
use keelson_meta::{Object, Str, Value};

/// A constraint of a pod.
#[derive(Clone, Debug)]
pub struct Constraint {
    pub max_skew: i64,
    pub topology_key: Str,
    pub is_hard: bool,
    pub selector: Selector,
    pub min_domains: usize,
    pub honors_affinity: bool,
    pub honors_taints: bool,
}

impl Constraint {
    /// Reads the constraints of a pod.
    pub fn all(pod: &Object, labels: &[(Str, Str)]) -> Vec<Constraint> {
        let read = |one: &Value| {
            let text = |field: &str| one.str_at(&[field]).unwrap_or_default();
            let selector = Selector::from_object(one.at(&["labelSelector"])).unwrap_or_default();
            Constraint {
                max_skew: one.int_at(&["maxSkew"]).unwrap_or(1),
                topology_key: text("topologyKey").into(),
                is_hard: text("whenUnsatisfiable") == "DoNotSchedule",
                selector: with_keys(selector, one.array_at(&["matchLabelKeys"]), labels),
                min_domains: one
                    .int_at(&["minDomains"])
                    .and_then(|number| usize::try_from(number).ok())
                    .unwrap_or(1),
                honors_affinity: text("nodeAffinityPolicy") != "Ignore",
                honors_taints: text("nodeTaintsPolicy") == "Honor",
            }
        };
        pod.array_at(&["spec", "topologySpreadConstraints"]).iter().map(read).collect()
    }

    /// Returns a constraint of pods that have none.
    pub fn default_of(
        topology_key: &'static str,
        max_skew: i64,
        selector: &Selector,
    ) -> Constraint {
        Constraint {
            max_skew,
            topology_key: Str::new_static(topology_key),
            is_hard: false,
            selector: selector.clone(),
            min_domains: 1,
            honors_affinity: true,
            honors_taints: false,
        }
    }
}

/// Adds requirements for the pod's own values of keys.
fn with_keys(selector: Selector, keys: &[Value], labels: &[(Str, Str)]) -> Selector {
    if selector.is_nothing() || keys.is_empty() {
        return selector;
    }
    let own: Vec<(&str, &str)> = keys
        .iter()
        .filter_map(Value::as_str)
        .filter_map(|key| Some((key, find(labels, key)?)))
        .collect();
    let more = Selector::from_labels(own);
    let all = selector.requirements().iter().chain(more.requirements()).cloned();
    Selector::new(all.collect())
}
