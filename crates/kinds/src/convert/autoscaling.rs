//! Conversion of HorizontalPodAutoscalers between autoscaling/v1 and v2. Like upstream, v1 keeps
//! the fields of v2 in annotations: metrics in an older format, behavior with the names of the
//! internal Go struct.

use keelson_meta::{Map, Object, Str, Value, value};
use keelson_schema::json;

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const CPU_PERCENT: i64 = 80;

/// One metric source: its type, its field, and the v2 paths of its v1 fields. `{}` stands for
/// `target` in a spec and `current` in a status, and so does a `*` at the start of a v1 name.
struct Source {
    kind: &'static str,
    member: &'static str,
    fields: &'static [(&'static str, &'static [&'static str])],
}

const SOURCES: &[Source] = &[
    Source {
        kind: "Object",
        member: "object",
        fields: &[
            ("target", &["describedObject"]),
            ("metricName", &["metric", "name"]),
            ("*Value", &["{}", "value"]),
            ("selector", &["metric", "selector"]),
            ("averageValue", &["{}", "averageValue"]),
        ],
    },
    Source {
        kind: "Pods",
        member: "pods",
        fields: &[
            ("metricName", &["metric", "name"]),
            ("*AverageValue", &["{}", "averageValue"]),
            ("selector", &["metric", "selector"]),
        ],
    },
    Source {
        kind: "Resource",
        member: "resource",
        fields: &[
            ("name", &["name"]),
            ("*AverageUtilization", &["{}", "averageUtilization"]),
            ("*AverageValue", &["{}", "averageValue"]),
        ],
    },
    Source {
        kind: "ContainerResource",
        member: "containerResource",
        fields: &[
            ("name", &["name"]),
            ("*AverageUtilization", &["{}", "averageUtilization"]),
            ("*AverageValue", &["{}", "averageValue"]),
            ("container", &["container"]),
        ],
    },
    Source {
        kind: "External",
        member: "external",
        fields: &[
            ("metricName", &["metric", "name"]),
            ("metricSelector", &["metric", "selector"]),
            ("*Value", &["{}", "value"]),
            ("*AverageValue", &["{}", "averageValue"]),
        ],
    },
];

/// Converts autoscaling/v1 to v2.
pub(super) fn to_v2(obj: &mut Object) {
    let percent = obj.object_mut("spec").remove("targetCPUUtilizationPercentage");
    let mut metrics: Vec<Value> = take_annotation(obj, METRICS)
        .and_then(|list| metrics_to_v2(&list, "target"))
        .unwrap_or_default();
    metrics.extend(percent.map(|percent| cpu_metric("target", percent)));
    if metrics.is_empty() {
        metrics.push(cpu_metric("target", Value::Int(CPU_PERCENT)));
    }
    obj.object_mut("spec").insert("metrics", metrics);
    if let Some(behavior) = take_annotation(obj, BEHAVIOR).filter(|v| v.as_object().is_some()) {
        obj.object_mut("spec").insert("behavior", lower_case(behavior));
    }
    let status = obj.root.get_mut("status").and_then(Value::as_object_mut);
    let percent = status.and_then(|status| status.remove("currentCPUUtilizationPercentage"));
    let current = take_annotation(obj, CURRENT_METRICS)
        .and_then(|list| metrics_to_v2(&list, "current"))
        .or_else(|| percent.map(|percent| vec![cpu_metric("current", percent)]));
    if let Some(current) = current {
        obj.object_mut("status").insert("currentMetrics", current);
    }
    if let Some(conditions) = take_annotation(obj, CONDITIONS).filter(|v| v.as_array().is_some()) {
        obj.object_mut("status").insert("conditions", conditions);
    }
}

/// Converts autoscaling/v2 to v1.
pub(super) fn to_v1(obj: &mut Object) {
    let take = |obj: &mut Object, part: &str, name: &str| {
        obj.root.get_mut(part).and_then(Value::as_object_mut).and_then(|map| map.remove(name))
    };
    if let Some(Value::Array(metrics)) = take(obj, "spec", "metrics") {
        if let Some(percent) = metrics.iter().find_map(|metric| cpu_percent(metric, "target")) {
            obj.object_mut("spec").insert("targetCPUUtilizationPercentage", percent.clone());
        }
        let rest: Vec<Value> = metrics
            .iter()
            .filter(|metric| cpu_percent(metric, "target").is_none())
            .map(|metric| metric_to_v1(metric, "target"))
            .collect();
        if !rest.is_empty() {
            write_annotation(obj, METRICS, &Value::Array(rest));
        }
    }
    if let Some(behavior) = take(obj, "spec", "behavior") {
        write_annotation(obj, BEHAVIOR, &internal_behavior(&behavior));
    }
    if let Some(Value::Array(metrics)) = take(obj, "status", "currentMetrics") {
        if let Some(percent) = metrics.iter().find_map(|metric| cpu_percent(metric, "current")) {
            obj.object_mut("status").insert("currentCPUUtilizationPercentage", percent.clone());
        }
        let all: Vec<Value> =
            metrics.iter().map(|metric| metric_to_v1(metric, "current")).collect();
        if !all.is_empty() {
            write_annotation(obj, CURRENT_METRICS, &Value::Array(all));
        }
    }
    if let Some(conditions) = take(obj, "status", "conditions").filter(|list| !list.is_empty()) {
        write_annotation(obj, CONDITIONS, &conditions);
    }
}

fn cpu_metric(holder: &'static str, percent: Value) -> Value {
    let mut amount = Map::new();
    if holder == "target" {
        amount.insert("type", "Utilization");
    }
    amount.insert("averageUtilization", percent);
    let mut resource = Map::new();
    resource.insert("name", "cpu");
    resource.insert(holder, amount);
    value!({"type": "Resource", "resource": (resource)})
}

fn cpu_percent<'v>(metric: &'v Value, holder: &str) -> Option<&'v Value> {
    if metric.str_at(&["type"]) != Some("Resource")
        || metric.str_at(&["resource", "name"]) != Some("cpu")
    {
        return None;
    }
    metric.at(&["resource", holder, "averageUtilization"]).filter(|percent| !percent.is_null())
}

/// Returns the v1 name of a field.
fn first_name(name: &str, holder: &str) -> Str {
    match name.strip_prefix('*') {
        Some(rest) => Str::from(format!("{holder}{rest}")),
        None => Str::new(name),
    }
}

fn metric_to_v1(metric: &Value, holder: &str) -> Value {
    let mut out = Map::new();
    out.insert("type", metric.str_at(&["type"]).unwrap_or_default());
    for source in SOURCES {
        let Some(given) = metric.get(source.member).filter(|given| !given.is_null()) else {
            continue;
        };
        let mut members = Map::new();
        for (name, path) in source.fields {
            let path: Vec<&str> =
                path.iter().map(|step| if *step == "{}" { holder } else { step }).collect();
            let found = given.at(&path).filter(|value| !value.is_null());
            if let Some(value) = found.cloned().or_else(|| always(source.kind, name, holder)) {
                members.insert(first_name(name, holder), value);
            }
        }
        out.insert(source.member, members);
    }
    Value::Object(out)
}

/// Returns the value that v1 writes for a field that v2 omits.
fn always(kind: &str, name: &str, holder: &str) -> Option<Value> {
    let is_written = match holder {
        "target" => matches!((kind, name), ("Object", "*Value") | ("Pods", "*AverageValue")),
        _ => matches!(
            (kind, name),
            ("Object" | "External", "*Value")
                | ("Pods" | "Resource" | "ContainerResource", "*AverageValue")
        ),
    };
    is_written.then(|| Value::from("0"))
}

/// Converts the metrics of v1; `None` when they are invalid.
fn metrics_to_v2(list: &Value, holder: &'static str) -> Option<Vec<Value>> {
    list.as_array()?.iter().map(|metric| metric_to_v2(metric, holder)).collect()
}

fn metric_to_v2(metric: &Value, holder: &'static str) -> Option<Value> {
    let given = metric.as_object()?;
    let mut out = Map::new();
    if let Some(kind) = member(given, "type") {
        out.insert("type", kind.as_str()?);
    }
    for source in SOURCES {
        let Some(given) = member(given, source.member).filter(|given| !given.is_null()) else {
            continue;
        };
        let given = given.as_object()?;
        let mut made = Map::new();
        for (name, path) in source.fields {
            let found = member(given, &first_name(name, holder));
            let Some(value) = found.cloned().or_else(|| always(source.kind, name, holder)) else {
                continue;
            };
            put(&mut made, path, holder, value);
        }
        if holder == "target" {
            let kind = target_kind(source.kind, given);
            let target = made.object_at("target");
            let rest = std::mem::take(target);
            target.insert("type", kind);
            rest.into_iter().for_each(|(name, value)| drop(target.insert(name, value)));
        }
        out.insert(source.member, made);
    }
    Some(Value::Object(out))
}

/// Derives the target type of a v1 metric from its fields.
fn target_kind(kind: &str, given: &Map) -> &'static str {
    let has = |name: &str| member(given, name).is_some_and(|value| !value.is_null());
    match kind {
        "Object" if !has("averageValue") => "Value",
        "External" if has("targetValue") => "Value",
        "Resource" | "ContainerResource" if has("targetAverageUtilization") => "Utilization",
        _ => "AverageValue",
    }
}

fn put(map: &mut Map, path: &[&'static str], holder: &'static str, value: Value) {
    let name = |step: &&'static str| if *step == "{}" { holder } else { *step };
    match path {
        [only] => drop(map.insert(name(only), value)),
        [first, rest @ ..] => put(map.object_at(name(first)), rest, holder, value),
        [] => {}
    }
}

/// Returns a field by its name; like Go, ignores case.
fn member<'m>(map: &'m Map, name: &str) -> Option<&'m Value> {
    map.get(name).or_else(|| {
        map.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    })
}

/// Converts behavior to the internal Go struct, which writes all its fields.
fn internal_behavior(behavior: &Value) -> Value {
    let rules = |name: &str| {
        let Some(rules) = behavior.get(name).filter(|rules| !rules.is_null()) else {
            return Value::Null;
        };
        let at = |name: &str| rules.get(name).cloned().unwrap_or_default();
        let policies = rules.array_at(&["policies"]).iter().map(|policy| {
            let at = |name: &str| policy.get(name).cloned().unwrap_or_default();
            let value = at("value");
            let seconds = at("periodSeconds");
            value!({"Type": (at("type")), "Value": (value), "PeriodSeconds": (seconds)})
        });
        let policies = match rules.get("policies") {
            None | Some(Value::Null) => Value::Null,
            Some(_) => Value::Array(policies.collect()),
        };
        let window = at("stabilizationWindowSeconds");
        let select = at("selectPolicy");
        value!({
            "StabilizationWindowSeconds": (window), "SelectPolicy": (select),
            "Policies": (policies), "Tolerance": (at("tolerance"))
        })
    };
    value!({"ScaleUp": (rules("scaleUp")), "ScaleDown": (rules("scaleDown"))})
}

/// Lowercases the first letter of all names and drops null fields.
fn lower_case(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let members = map.into_iter().filter(|(_, value)| !value.is_null());
            let lowered = members.map(|(name, value)| {
                let mut chars = name.chars();
                let first = chars.next().map(|c| c.to_ascii_lowercase());
                let name: String = first.into_iter().chain(chars).collect();
                (Str::from(name), lower_case(value))
            });
            Value::Object(lowered.collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(lower_case).collect()),
        other => other,
    }
}

fn write_annotation(obj: &mut Object, name: &str, value: &Value) {
    let mut text = vec![];
    json::write_value(value, &mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    let annotations = obj.metadata_mut().object_at("annotations");
    annotations.insert(name, text);
    annotations.sort();
}

/// Removes an annotation and returns its JSON value if it is valid.
fn take_annotation(obj: &mut Object, name: &str) -> Option<Value> {
    let annotations = obj.root.get_mut("metadata")?.as_object_mut()?.get_mut("annotations")?;
    let text = annotations.as_object_mut()?.remove(name)?;
    if annotations.is_empty() {
        obj.metadata_mut().remove("annotations");
    }
    json::parse(text.as_str()?.as_bytes()).ok().map(|parsed| parsed.value)
}
