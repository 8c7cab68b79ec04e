//! Conversion of built-in kinds between served and storage versions.

mod autoscaling;
mod definitions;
mod older;

use keelson_meta::{GroupVersionKind, Object};

/// Converts an object from one version of its kind to another.
pub fn convert(mut obj: Object, from: &GroupVersionKind, to: &GroupVersionKind) -> Object {
    match (from.group.as_str(), from.kind.as_str(), to.group.as_str(), to.version.as_str()) {
        ("", "Event", "events.k8s.io", _) => rename(&mut obj, CORE_TO_EVENTS),
        ("events.k8s.io", "Event", "", _) => {
            let back: Vec<(&str, &str)> = CORE_TO_EVENTS.iter().map(|(a, b)| (*b, *a)).collect();
            rename(&mut obj, &back);
        }
        ("autoscaling", "HorizontalPodAutoscaler", _, "v2") if from.version == "v1" => {
            autoscaling::to_v2(&mut obj);
        }
        ("autoscaling", "HorizontalPodAutoscaler", _, "v1") => autoscaling::to_v1(&mut obj),
        ("apiextensions.k8s.io", "CustomResourceDefinition", _, "v1beta1") => {
            definitions::to_v1beta1(&mut obj);
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition", _, "v1")
            if from.version == "v1beta1" =>
        {
            definitions::to_v1(&mut obj);
        }
        ("resource.k8s.io", _, _, "v1beta1") if from.version == "v1" => {
            older::from_newest(&mut obj, to);
        }
        (_, _, _, "v1") => older::to_newest(&mut obj, from),
        _ => {}
    }
    obj.set_gvk(to);
    obj
}

/// Fields of core/v1 Event and their names in events.k8s.io/v1.
const CORE_TO_EVENTS: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

fn rename(obj: &mut Object, names: &[(&str, &str)]) {
    for (from, to) in names {
        if let Some(value) = obj.root.remove(from) {
            obj.root.insert(*to, value);
        }
    }
}
