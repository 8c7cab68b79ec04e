//! Where metrics come from: resources of the groups of the metrics APIs that this server serves.
//!
//! A CustomResourceDefinition replaces metrics-server (`pods` of metrics.k8s.io, kind PodMetrics).
//! For custom metrics it is `metricvalues` of custom.metrics.k8s.io with `describedObject`,
//! `metricName` (or `metric.name`) and `value`; for external metrics `externalmetricvalues` of
//! external.metrics.k8s.io with `metricName`, `metricLabels` and `value`. An APIService elsewhere
//! is not asked.

use super::replicas::{Sample, Samples};
use keelson_loops::client::Client;
use keelson_meta::quantity::Quantity;
use keelson_meta::selector::Selector;
use keelson_meta::time::GoDuration;
use keelson_meta::{Object, Str, Timestamp, Value};

pub(super) const RESOURCE_GROUP: &str = "metrics.k8s.io";
pub(super) const CUSTOM_GROUP: &str = "custom.metrics.k8s.io";
pub(super) const EXTERNAL_GROUP: &str = "external.metrics.k8s.io";
/// The window of a custom metric that states none.
const CUSTOM_WINDOW_SECONDS: i64 = 60;

fn milli(value: Option<&Value>) -> i64 {
    let number = value.and_then(Value::as_int).map(|number| number.saturating_mul(1000));
    let text = value.and_then(Value::as_str).and_then(|text| text.parse::<Quantity>().ok());
    number.or_else(|| text.map(|quantity| quantity.milli_value())).unwrap_or(0)
}

fn timestamp(object: &Object) -> Timestamp {
    Timestamp::parse(object.str_at(&["timestamp"])).unwrap_or_default()
}

/// Returns the objects of a resource in a namespace; `None`: it is not served.
fn objects(client: &Client, group: &str, resource: &str, namespace: &str) -> Option<Vec<Object>> {
    let kind = client.kind(group, resource)?;
    let prefix = format!("{namespace}/");
    let all = client.registry.cached_all(&kind);
    Some(all.range(&prefix, "").filter_map(|entry| kind.decode(entry).ok()).collect())
}

/// Returns the usage of a resource by pods, in one container or in all.
pub(super) fn of_resource(
    client: &Client,
    namespace: &str,
    selector: &Selector,
    resource: &str,
    container: &str,
) -> Result<Samples, String> {
    let failed = |why: &str| Err(format!("unable to get metrics for resource {resource}: {why}"));
    let Some(all) = objects(client, RESOURCE_GROUP, "pods", namespace) else {
        return failed(
            "unable to fetch metrics from resource metrics API: the server could not find the \
             requested resource (get pods.metrics.k8s.io)",
        );
    };
    let all: Vec<Object> = all.into_iter().filter(|one| selector.matches_object(one)).collect();
    if all.is_empty() {
        return failed("no metrics returned from resource metrics API");
    }
    let sample = |object: &Object| {
        let window = GoDuration::parse(object.str_at(&["window"])).unwrap_or_default();
        let containers = object.array_at(&["containers"]);
        let usage = |one: &Value| one.at(&["usage", resource]).map(|usage| milli(Some(usage)));
        let value = if container.is_empty() {
            let usages: Option<Vec<i64>> = containers.iter().map(usage).collect();
            usages.filter(|usages| !usages.is_empty()).map(|usages| usages.iter().sum())
        } else {
            let named = |one: &&Value| one.str_at(&["name"]) == Some(container);
            containers.iter().find(named).and_then(usage)
        };
        Some((Str::new(object.name()), Sample { value: value?, at: timestamp(object), window }))
    };
    Ok(all.iter().filter_map(sample).collect())
}

/// Whether a custom metric has a name and labels.
fn is_metric(object: &Object, name: &str, labels: Option<&Value>) -> bool {
    let found = [&["metricName"][..], &["metric", "name"]].map(|path| object.str_at(path));
    let selector = labels.map(|labels| Selector::from_object(Some(labels)));
    let label = |key: &str| {
        let own = object.at(&["metricLabels", key]).and_then(Value::as_str);
        own.or_else(|| object.label(key))
    };
    found.contains(&name)
        && selector.is_none_or(|selector| selector.is_ok_and(|all| all.matches(label)))
}

/// Returns a custom metric of each pod.
pub(super) fn of_pods(
    client: &Client,
    namespace: &str,
    selector: &Selector,
    name: &str,
    labels: Option<&Value>,
) -> Result<Samples, String> {
    let failed = |why: &str| Err(format!("unable to get metric {name}: {why}"));
    let Some(all) = objects(client, CUSTOM_GROUP, "metricvalues", namespace) else {
        return failed(
            "unable to fetch metrics from custom metrics API: no custom metrics API \
             (custom.metrics.k8s.io) registered",
        );
    };
    let pods = client.kind("", "pods");
    let is_selected = |pod: &str| {
        let entry = pods.as_ref().and_then(|pods| client.registry.cached(pods, namespace, pod));
        entry.is_some_and(|entry| selector.matches(|key| entry.label(key)))
    };
    let mut samples = Samples::new();
    for one in all.iter().filter(|one| is_metric(one, name, labels)) {
        let pod = one.str_at(&["describedObject", "name"]);
        let kind = one.str_at(&["describedObject", "kind"]);
        if !matches!(kind, "" | "Pod") || !is_selected(pod) {
            continue;
        }
        let seconds = one.int_at(&["windowSeconds"]).unwrap_or(CUSTOM_WINDOW_SECONDS);
        let window = GoDuration::from_seconds(seconds);
        let sample = Sample { value: milli(one.get("value")), at: timestamp(one), window };
        samples.insert(pod.into(), sample);
    }
    if samples.is_empty() {
        return failed("no metrics returned from custom metrics API");
    }
    Ok(samples)
}

/// Returns a custom metric of one object.
pub(super) fn of_object(
    client: &Client,
    namespace: &str,
    object: &Value,
    name: &str,
    labels: Option<&Value>,
) -> Result<i64, String> {
    let text = |field: &str| object.str_at(&[field]).unwrap_or_default();
    let failed = |why: &str| {
        let kind = text("kind");
        let object = text("name");
        let why = format!("unable to fetch metrics from custom metrics API: {why}");
        // The parts are in this order upstream, although the words do not fit them.
        Err(format!("unable to get metric {name}: {kind} on {namespace} {object}/{why}"))
    };
    let Some(all) = objects(client, CUSTOM_GROUP, "metricvalues", namespace) else {
        return failed("no custom metrics API (custom.metrics.k8s.io) registered");
    };
    let is_wanted = |one: &&Object| {
        is_metric(one, name, labels)
            && ["kind", "name"]
                .iter()
                .all(|field| one.str_at(&["describedObject", field]) == text(field))
    };
    match all.iter().find(is_wanted) {
        Some(one) => Ok(milli(one.get("value"))),
        None => failed(&format!(
            "the server could not find the metric {name} for {} {}",
            text("kind").to_lowercase(),
            text("name")
        )),
    }
}

/// Returns the sum of an external metric.
pub(super) fn of_external(
    client: &Client,
    namespace: &str,
    name: &str,
    labels: Option<&Value>,
) -> Result<i64, String> {
    let failed = |why: &str| {
        let selector = keelson_loops::go_text::label_selector(labels);
        Err(format!("unable to get external metric {namespace}/{name}/{selector}: {why}"))
    };
    let Some(all) = objects(client, EXTERNAL_GROUP, "externalmetricvalues", namespace) else {
        return failed(&format!(
            "unable to fetch metrics from external metrics API: the server could not find the \
             requested resource (get {name}.external.metrics.k8s.io)"
        ));
    };
    let mut found = all.iter().filter(|one| is_metric(one, name, labels)).peekable();
    if found.peek().is_none() {
        return failed("no metrics returned from external metrics API");
    }
    Ok(found.map(|one| milli(one.get("value"))).fold(0, i64::saturating_add))
}
