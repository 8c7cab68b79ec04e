//! Conversion between the versions of a kind: those that are served, and those in which objects are kept.

mod definitions;
mod older;

use keelson_meta::{GroupVersionKind, Map, Object, Value};

/// Moves an object from one version to another of the same kind.
pub fn convert(mut obj: Object, from: &GroupVersionKind, to: &GroupVersionKind) -> Object {
    match (from.group.as_str(), from.kind.as_str(), to.group.as_str(), to.version.as_str()) {
        ("", "Event", "events.k8s.io", _) => rename(&mut obj, CORE_TO_EVENTS),
        ("events.k8s.io", "Event", "", _) => {
            let back: Vec<(&str, &str)> = CORE_TO_EVENTS.iter().map(|(a, b)| (*b, *a)).collect();
            rename(&mut obj, &back);
        }
        ("autoscaling", "HorizontalPodAutoscaler", _, "v2") if from.version == "v1" => {
            hpa_to_v2(&mut obj);
        }
        ("autoscaling", "HorizontalPodAutoscaler", _, "v1") => hpa_to_v1(&mut obj),
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

/// Members of core/v1 Event and what events.k8s.io/v1 calls them.
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

/// Where autoscaling/v1 keeps what only v2 can say.
const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";

fn cpu_metric(kind: &str, holder: &str, percent: Value) -> Value {
    let mut amount = Map::new();
    if kind == "Utilization" {
        amount.insert("type", "Utilization");
    }
    amount.insert("averageUtilization", percent);
    let mut resource = Map::new();
    resource.insert("name", "cpu");
    resource.insert(holder, amount);
    let mut metric = Map::new();
    metric.insert("type", "Resource");
    metric.insert("resource", resource);
    Value::Object(metric)
}

fn hpa_to_v2(obj: &mut Object) {
    let mut metrics = vec![];
    if let Some(percent) = obj.object_mut("spec").remove("targetCPUUtilizationPercentage") {
        metrics.push(cpu_metric("Utilization", "target", percent));
    }
    metrics.extend(
        from_annotation(obj, METRICS)
            .and_then(|v| v.as_array().map(<[_]>::to_vec))
            .unwrap_or_default(),
    );
    if !metrics.is_empty() {
        obj.object_mut("spec").insert("metrics", metrics);
    }
    if let Some(behavior) = from_annotation(obj, BEHAVIOR) {
        obj.object_mut("spec").insert("behavior", behavior);
    }
    let mut current = vec![];
    if let Some(status) = obj.root.get_mut("status").and_then(Value::as_object_mut)
        && let Some(percent) = status.remove("currentCPUUtilizationPercentage")
    {
        current.push(cpu_metric("", "current", percent));
    }
    current.extend(
        from_annotation(obj, CURRENT_METRICS)
            .and_then(|v| v.as_array().map(<[_]>::to_vec))
            .unwrap_or_default(),
    );
    if !current.is_empty() {
        obj.object_mut("status").insert("currentMetrics", current);
    }
    if let Some(conditions) = from_annotation(obj, CONDITIONS) {
        obj.object_mut("status").insert("conditions", conditions);
    }
}

fn hpa_to_v1(obj: &mut Object) {
    let take = |obj: &mut Object, part: &str, name: &str| {
        obj.root.get_mut(part).and_then(Value::as_object_mut).and_then(|map| map.remove(name))
    };
    if let Some(Value::Array(metrics)) = take(obj, "spec", "metrics") {
        let rest = take_cpu(metrics, "target", |percent| {
            obj.object_mut("spec").insert("targetCPUUtilizationPercentage", percent);
        });
        to_annotation(obj, METRICS, rest);
    }
    if let Some(behavior) = take(obj, "spec", "behavior") {
        write_annotation(obj, BEHAVIOR, &behavior);
    }
    if let Some(Value::Array(metrics)) = take(obj, "status", "currentMetrics") {
        let rest = take_cpu(metrics, "current", |percent| {
            obj.object_mut("status").insert("currentCPUUtilizationPercentage", percent);
        });
        to_annotation(obj, CURRENT_METRICS, rest);
    }
    if let Some(conditions) = take(obj, "status", "conditions") {
        write_annotation(obj, CONDITIONS, &conditions);
    }
}

/// Takes the first cpu utilization out of a list of metrics.
fn take_cpu(metrics: Vec<Value>, holder: &str, mut found: impl FnMut(Value)) -> Vec<Value> {
    let mut taken = false;
    metrics
        .into_iter()
        .filter(|metric| {
            let cpu = metric.str_at(&["resource", "name"]) == Some("cpu");
            match metric.at(&["resource", holder, "averageUtilization"]) {
                Some(percent) if cpu && !taken => {
                    taken = true;
                    found(percent.clone());
                    false
                }
                _ => true,
            }
        })
        .collect()
}

fn to_annotation(obj: &mut Object, name: &str, items: Vec<Value>) {
    if !items.is_empty() {
        write_annotation(obj, name, &Value::Array(items));
    }
}

fn write_annotation(obj: &mut Object, name: &str, value: &Value) {
    let mut text = vec![];
    keelson_schema::json::write_value(value, &mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    obj.metadata_mut().object_at("annotations").insert(name, text);
}

fn from_annotation(obj: &mut Object, name: &str) -> Option<Value> {
    let annotations = obj.root.get_mut("metadata")?.as_object_mut()?.get_mut("annotations")?;
    let text = annotations.as_object_mut()?.remove(name)?;
    if annotations.is_empty() {
        obj.metadata_mut().remove("annotations");
    }
    keelson_schema::json::parse(text.as_str()?.as_bytes()).ok().map(|parsed| parsed.value)
}
