//! What the metrics of an autoscaler ask for, with their entries in its status.

use super::metrics;
use super::replicas::{self, Proposal, Target, Tolerances};
use keelson_loops::client::Client;
use keelson_loops::go_text;
use keelson_meta::quantity::{Format, Quantity};
use keelson_meta::selector::Selector;
use keelson_meta::{Map, Object, Timestamp, Value, value};

const TOLERANCE: f64 = 0.1;

/// What is known about an autoscaler and its workload.
pub(super) struct Input<'a> {
    pub client: &'a Client,
    pub scaler: &'a Object,
    pub selector: &'a Selector,
    /// The pods that the selector selects.
    pub pods: &'a [Object],
    pub spec_replicas: i64,
    pub status_replicas: i64,
    pub now: Timestamp,
}

/// What all metrics together ask for.
#[derive(Debug, Default)]
pub(super) struct Computed {
    pub replicas: i64,
    /// The metric that asks for most.
    pub metric: String,
    /// `status.currentMetrics`.
    pub statuses: Vec<Value>,
    /// Reason and message of each metric that could not be read.
    pub failures: Vec<(&'static str, String)>,
    /// The first failure with its metric.
    first_error: String,
}

impl Computed {
    /// Whether replicas may be set. While a metric is not known, they must not decrease.
    pub fn is_valid(&self, current: i64) -> bool {
        self.failures.len() < self.statuses.len()
            && (self.failures.is_empty() || self.replicas >= current)
    }

    pub fn error(&self) -> String {
        let failed = self.failures.len();
        let all = self.statuses.len();
        let first = &self.first_error;
        format!("invalid metrics ({failed} invalid out of {all}), first error is: {first}")
    }
}

/// Looks at all metrics.
pub(super) fn compute(input: &Input<'_>) -> Computed {
    let mut computed = Computed::default();
    for metric in input.scaler.array_at(&["spec", "metrics"]) {
        match of_metric(input, metric) {
            Ok(found) => {
                if computed.replicas == 0 || found.replicas > computed.replicas {
                    (computed.replicas, computed.metric) = (found.replicas, found.name);
                }
                computed.statuses.push(found.status);
            }
            Err(failed) => {
                if computed.failures.is_empty() {
                    computed.first_error = format!("{}{}", failed.prefix, failed.why);
                }
                computed.failures.push((failed.reason, failed.why));
                computed.statuses.push(value!({"type": ""}));
            }
        }
    }
    computed
}

/// What one metric asks for.
struct Found {
    replicas: i64,
    name: String,
    status: Value,
}

struct Failed {
    reason: &'static str,
    why: String,
    /// What comes before `why` in the error of all metrics.
    prefix: String,
}

/// Why a metric could not be read.
struct Why {
    text: String,
    /// What comes before it in the error of all metrics, but not in the condition.
    prefix: String,
}

impl From<String> for Why {
    fn from(text: String) -> Why {
        Why { text, prefix: String::new() }
    }
}

fn of_metric(input: &Input<'_>, metric: &Value) -> Result<Found, Failed> {
    let source = |name: &str| metric.get(name).cloned().unwrap_or_default();
    let text = |source: &Value, path: &[&str]| source.str_at(path).unwrap_or_default().to_owned();
    let (result, reason, prefix) = match metric.str_at(&["type"]).unwrap_or_default() {
        "Resource" => {
            let source = source("resource");
            let prefix =
                format!("failed to get {} resource metric value", text(&source, &["name"]));
            (of_resource(input, &source, ""), "FailedGetResourceMetric", prefix)
        }
        "ContainerResource" => {
            let source = source("containerResource");
            let container = text(&source, &["container"]);
            let prefix = format!("failed to get {container} container metric value");
            let found = of_resource(input, &source, &container);
            (found, "FailedGetContainerResourceMetric", prefix)
        }
        "Pods" => {
            let prefix = "failed to get pods metric value".to_owned();
            (of_pods(input, &source("pods")), "FailedGetPodsMetric", prefix)
        }
        "Object" => {
            let prefix = "failed to get object metric value".to_owned();
            (of_object(input, &source("object")), "FailedGetObjectMetric", prefix)
        }
        "External" => {
            let source = source("external");
            let name = text(&source, &["metric", "name"]);
            let prefix = format!("failed to get {name} external metric value");
            (of_external(input, &source), "FailedGetExternalMetric", prefix)
        }
        other => {
            let why = format!("unknown metric source type {other:?}");
            return Err(Failed { reason: "InvalidMetricSourceType", prefix: String::new(), why });
        }
    };
    result.map_err(|why: Why| Failed {
        reason,
        prefix: format!("{prefix}: {}", why.prefix),
        why: why.text,
    })
}

fn tolerances(scaler: &Object) -> Tolerances {
    let of = |name: &str| {
        let text = scaler.str_at(&["spec", "behavior", name, "tolerance"]);
        text.parse::<Quantity>().map_or(TOLERANCE, |tolerance| tolerance.as_f64())
    };
    Tolerances { down: of("scaleDown"), up: of("scaleUp") }
}

/// Returns a field of the target as thousandths.
fn target_of(source: &Value, name: &str) -> Option<i64> {
    let text = source.str_at(&["target", name])?;
    text.parse::<Quantity>().ok().map(|quantity| quantity.milli_value())
}

fn quantity(milli: i64, format: Format) -> String {
    Quantity::from_milli(milli, format).to_string()
}

fn of_resource(input: &Input<'_>, source: &Value, container: &str) -> Result<Found, Why> {
    let resource = source.str_at(&["name"]).unwrap_or_default();
    let namespace = input.scaler.namespace();
    let samples =
        || metrics::of_resource(input.client, namespace, input.selector, resource, container);
    let compute = |target: &Target<'_>, samples| {
        let allowed = tolerances(input.scaler);
        let is_cpu = resource == "cpu";
        replicas::of_pods(
            input.spec_replicas,
            target,
            samples,
            input.pods,
            is_cpu,
            allowed,
            input.now,
        )
    };
    let format = if resource == "memory" { Format::BinarySi } else { Format::DecimalSi };
    let mut current = Map::new();
    let (proposal, name) = if let Some(target) = target_of(source, "averageValue") {
        let failed = |why| format!("failed to get {resource} usage: {why}");
        let proposal = samples().and_then(|samples| compute(&Target::Average(target), samples));
        (proposal.map_err(failed)?, format!("{resource} resource"))
    } else if let Some(target) = source.int_at(&["target", "averageUtilization"]) {
        let failed = |why| format!("failed to get {resource} utilization: {why}");
        let proposal = samples()
            .and_then(|samples| {
                let requests = replicas::requests(input.pods, container, resource);
                compute(&Target::Utilization(target, &requests), samples)
            })
            .map_err(failed)?;
        current.insert("averageUtilization", proposal.utilization);
        let of = if container.is_empty() { "" } else { "container " };
        (proposal, format!("{resource} {of}resource utilization (percentage of request)"))
    } else {
        let why = "invalid resource metric source: neither an average utilization target nor an \
                   average value (usage) target was set";
        return Err(why.to_owned().into());
    };
    current.insert("averageValue", quantity(proposal.value, format));
    let mut status = value!({"name": resource, "current": (current)});
    let (kind, member) = if container.is_empty() {
        ("Resource", "resource")
    } else {
        ("ContainerResource", "containerResource")
    };
    if let (Some(map), false) = (status.as_object_mut(), container.is_empty()) {
        map.insert("container", container);
    }
    Ok(found(proposal, name, kind, member, status))
}

fn found(proposal: Proposal, name: String, kind: &str, member: &str, status: Value) -> Found {
    let mut entry = Map::new();
    entry.insert("type", kind);
    entry.insert(member, status);
    Found { replicas: proposal.replicas, name, status: Value::Object(entry) }
}

/// Returns `metric` of a status.
fn identifier(source: &Value) -> Value {
    let mut metric = value!({"name": (source.str_at(&["metric", "name"]).unwrap_or_default())});
    let selector = source.at(&["metric", "selector"]).filter(|selector| !selector.is_null());
    if let (Some(map), Some(selector)) = (metric.as_object_mut(), selector) {
        map.insert("selector", selector.clone());
    }
    metric
}

/// Returns name and selector of a metric.
fn metric_of(source: &Value) -> (&str, Option<&Value>) {
    let selector = source.at(&["metric", "selector"]).filter(|selector| !selector.is_null());
    (source.str_at(&["metric", "name"]).unwrap_or_default(), selector)
}

fn of_pods(input: &Input<'_>, source: &Value) -> Result<Found, Why> {
    let namespace = input.scaler.namespace();
    let (metric, selector) = metric_of(source);
    let samples = metrics::of_pods(input.client, namespace, input.selector, metric, selector)?;
    let target = Target::Average(target_of(source, "averageValue").unwrap_or(0));
    let allowed = tolerances(input.scaler);
    let proposal = replicas::of_pods(
        input.spec_replicas,
        &target,
        samples,
        input.pods,
        false,
        allowed,
        input.now,
    )?;
    let average = quantity(proposal.value, Format::DecimalSi);
    let status = value!({"metric": (identifier(source)), "current": {"averageValue": (average)}});
    Ok(found(proposal, format!("pods metric {}", metric), "Pods", "pods", status))
}

fn of_object(input: &Input<'_>, source: &Value) -> Result<Found, Why> {
    let namespace = input.scaler.namespace();
    let object = source.get("describedObject").cloned().unwrap_or_default();
    let (metric, selector) = metric_of(source);
    let read = || metrics::of_object(input.client, namespace, &object, metric, selector);
    let kind = object.str_at(&["kind"]).unwrap_or_default();
    let tolerances = tolerances(input.scaler);
    let (proposal, member, name) = match source.str_at(&["target", "type"]) {
        Some("Value") if let Some(target) = target_of(source, "value") => {
            let value = read()?;
            let proposal =
                replicas::of_value(input.spec_replicas, value, target, input.pods, tolerances)?;
            (proposal, "value", format!("{kind} metric {}", metric))
        }
        Some("AverageValue") if let Some(target) = target_of(source, "averageValue") => {
            let prefix = format!("failed to get {} object metric: ", metric);
            let failed = |text| Why { text, prefix };
            let value = read().map_err(failed)?;
            let proposal = replicas::of_share(input.status_replicas, value, target, tolerances);
            let selector = go_text::label_selector(selector);
            (proposal, "averageValue", format!("external metric {}({selector})", metric))
        }
        _ => {
            let why = "invalid object metric source: neither a value target nor an average value \
                       target was set";
            return Err(why.to_owned().into());
        }
    };
    let mut current = Map::new();
    current.insert(member, quantity(proposal.value, Format::DecimalSi));
    let status = value!({"metric": (identifier(source)), "describedObject": (object),
        "current": (current)});
    Ok(found(proposal, name, "Object", "object", status))
}

fn of_external(input: &Input<'_>, source: &Value) -> Result<Found, Why> {
    let (metric, selector) = metric_of(source);
    let read = || metrics::of_external(input.client, input.scaler.namespace(), metric, selector);
    let tolerances = tolerances(input.scaler);
    let (proposal, member) = if let Some(target) = target_of(source, "averageValue") {
        let prefix = format!("failed to get {} external metric: ", metric);
        let failed = |text| Why { text, prefix };
        let value = read().map_err(failed)?;
        (replicas::of_share(input.status_replicas, value, target, tolerances), "averageValue")
    } else if let Some(target) = target_of(source, "value") {
        let prefix = format!("failed to get external metric {}: ", metric);
        let failed = |text| Why { text, prefix };
        let proposal = read().and_then(|value| {
            replicas::of_value(input.spec_replicas, value, target, input.pods, tolerances)
        });
        (proposal.map_err(failed)?, "value")
    } else {
        let why = "invalid external metric source: neither a value target nor an average value \
                   target was set";
        return Err(why.to_owned().into());
    };
    let mut current = Map::new();
    current.insert(member, quantity(proposal.value, Format::DecimalSi));
    let status = value!({"metric": (identifier(source)), "current": (current)});
    let name = format!("external metric {}({})", metric, go_text::label_selector(selector));
    Ok(found(proposal, name, "External", "external", status))
}
