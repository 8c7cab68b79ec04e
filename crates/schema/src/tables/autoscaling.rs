//! HorizontalPodAutoscalers (in autoscaling/v2) and scales.

use super::Printer;
use super::column::{AGE, NAME, OBJECT_META, field, integer, string};
use super::row::{NONE, Row, UNKNOWN, UNSET, quantity};
use keelson_meta::Value;

const SPEC: &str = "io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerSpec";
const STATUS: &str = "io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerStatus";

/// Maximum number of metrics in a cell; the rest is counted.
const LISTED_METRICS_MAX: usize = 2;

pub(super) static PRINTERS: &[Printer] = &[
    Printer {
        group: "autoscaling",
        kind: "HorizontalPodAutoscaler",
        columns: &[
            NAME,
            string("Reference", field(SPEC, "scaleTargetRef")),
            string("Targets", field(SPEC, "metrics")),
            string("MinPods", field(SPEC, "minReplicas")),
            string("MaxPods", field(SPEC, "maxReplicas")),
            string("Replicas", field(STATUS, "currentReplicas")),
            AGE,
        ],
        cells: autoscaler,
    },
    Printer {
        group: "autoscaling",
        kind: "Scale",
        columns: &[
            string("Name", field(OBJECT_META, "name")),
            integer("Desired", field("io.k8s.api.autoscaling.v1.ScaleSpec", "replicas")),
            integer("Available", field("io.k8s.api.autoscaling.v1.ScaleStatus", "replicas")),
            AGE,
        ],
        cells: |row| {
            let [wanted, present] = ["spec", "status"].map(|part| row.int(&[part, "replicas"]));
            vec![row.name(), wanted, present, row.age()]
        },
    },
];

fn autoscaler(row: &Row<'_>) -> Vec<Value> {
    let target = ["spec", "scaleTargetRef"];
    let member = |name| row.str(&[target[0], target[1], name]);
    let min = row.obj.int_at(&["spec", "minReplicas"]);
    vec![
        row.name(),
        format!("{}/{}", member("kind"), member("name")).into(),
        metrics(row).into(),
        min.map_or_else(|| UNSET.to_owned(), |min| min.to_string()).into(),
        row.int(&["spec", "maxReplicas"]),
        row.int(&["status", "currentReplicas"]),
        row.age(),
    ]
}

fn metrics(row: &Row<'_>) -> String {
    let specs = row.array(&["spec", "metrics"]);
    if specs.is_empty() {
        return NONE.to_owned();
    }
    let statuses = row.array(&["status", "currentMetrics"]);
    let listed = specs.iter().take(LISTED_METRICS_MAX).enumerate();
    let parts: Vec<String> = listed.map(|(at, spec)| metric(spec, statuses.get(at))).collect();
    let listed = parts.join(", ");
    match specs.len().saturating_sub(LISTED_METRICS_MAX) {
        0 => listed,
        more => format!("{listed} + {more} more..."),
    }
}

/// Formats current and target value of a metric: `cpu: 40%/70%`, `2/10 (avg)`.
fn metric(spec: &Value, status: Option<&Value>) -> String {
    let source = match spec.str_at(&["type"]).unwrap_or_default() {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_owned(),
    };
    let target = |name| spec.at(&[source, "target", name]);
    let has_current = status.is_some_and(|status| status.get(source).is_some());
    let current = |name| status.and_then(|status| status.at(&[source, "current", name]));
    // A missing quantity of a source that is set prints as Go prints nil.
    let amount = |value: Option<&Value>| value.map_or_else(|| "<nil>".to_owned(), quantity);
    let reported = |name| if has_current { amount(current(name)) } else { UNKNOWN.to_owned() };
    match source {
        "pods" => format!("{}/{}", reported("averageValue"), amount(target("averageValue"))),
        "external" | "object" => match target("averageValue") {
            Some(wanted) => {
                let present = current("averageValue").map_or_else(|| UNKNOWN.to_owned(), quantity);
                format!("{present}/{} (avg)", quantity(wanted))
            }
            None => format!("{}/{}", reported("value"), amount(target("value"))),
        },
        _ => {
            let name = spec.str_at(&[source, "name"]).unwrap_or_default();
            if let Some(wanted) = target("averageValue") {
                return format!("{name}: {}/{}", reported("averageValue"), quantity(wanted));
            }
            let percent = |value: Option<&Value>, missing: &str| {
                let share = value.and_then(Value::as_int);
                share.map_or_else(|| missing.to_owned(), |share| format!("{share}%"))
            };
            let present = percent(current("averageUtilization"), UNKNOWN);
            format!("{name}: {present}/{}", percent(target("averageUtilization"), "<auto>"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::row;
    use keelson_meta::{Value, value};

    fn check(metrics: Value, current: Value, expected: &str) {
        let object = value!({
            "metadata": {"name": "h"},
            "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "maxReplicas": 10,
                "metrics": (metrics)},
            "status": {"currentReplicas": 3, "currentMetrics": (current)}
        });
        let printed = row("autoscaling", "HorizontalPodAutoscaler", object);
        assert_eq!(
            printed,
            format!("h | Deployment/d | {expected} | <unset> | 10 | 3 | <unknown>")
        );
    }

    #[test]
    fn each_metric_type_has_its_format() {
        check(value!([]), value!([]), "<none>");
        check(
            value!([
                {"type": "Resource", "resource": {"name": "cpu",
                    "target": {"averageUtilization": 70}}},
                {"type": "ContainerResource", "containerResource": {"name": "memory",
                    "target": {"averageValue": "500Mi"}}},
                {"type": "Pods", "pods": {"target": {"averageValue": "1"}}}
            ]),
            value!([{"resource": {"current": {"averageUtilization": 40}}}]),
            "cpu: 40%/70%, memory: <unknown>/500Mi + 1 more...",
        );
        check(
            value!([
                {"type": "External", "external": {"target": {"averageValue": "10"}}},
                {"type": "Object", "object": {"target": {"value": "5k"}}}
            ]),
            value!([
                {"external": {"current": {"averageValue": "2"}}},
                {"object": {"current": {"value": "1500m"}}}
            ]),
            "2/10 (avg), 1500m/5k",
        );
    }
}
