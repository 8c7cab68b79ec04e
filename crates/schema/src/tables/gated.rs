//! Kinds that are only served with a feature gate.

use super::Printer;
use super::column::{AGE, Column, NAME, field, integer, literal, string};
use super::row::{NONE, Row, condition, text};
use keelson_meta::Value;

const BUNDLE: &str = "io.k8s.api.certificates.v1beta1.ClusterTrustBundleSpec";
const REQUEST: &str = "io.k8s.api.certificates.v1beta1.PodCertificateRequestSpec";
const POD_GROUP: &str = "io.k8s.api.scheduling.v1alpha2.PodGroupSpec";
const TAINT: &str = "io.k8s.api.resource.v1beta2.DeviceTaint";

pub(super) static PRINTERS: &[Printer] = &[
    Printer {
        group: "certificates.k8s.io",
        kind: "ClusterTrustBundle",
        columns: &[NAME, string("SignerName", field(BUNDLE, "signerName"))],
        cells: |row| vec![row.name(), row.text_or(&["spec", "signerName"], NONE)],
    },
    Printer {
        group: "certificates.k8s.io",
        kind: "PodCertificateRequest",
        columns: &[
            NAME,
            string("PodName", field(REQUEST, "podName")),
            string("ServiceAccountName", field(REQUEST, "serviceAccountName")),
            string("NodeName", field(REQUEST, "nodeName")),
            string("SignerName", field(REQUEST, "signerName")),
            string("State", literal("The state of the request.")),
            string("UnverifiedUserAnnotations", field(REQUEST, "unverifiedUserAnnotations")),
        ],
        cells: certificate_request,
    },
    Printer {
        group: "scheduling.k8s.io",
        kind: "PodGroup",
        columns: &[
            NAME,
            string("Policy", field(POD_GROUP, "schedulingPolicy")),
            string("Workload", literal("The workload of the group.")),
            string("Status", literal("Whether the group is scheduled.")),
            AGE,
        ],
        cells: pod_group,
    },
    Printer {
        group: "scheduling.k8s.io",
        kind: "Workload",
        columns: &[NAME, AGE],
        cells: |row| vec![row.name(), row.age()],
    },
    Printer {
        group: "storagemigration.k8s.io",
        kind: "StorageVersionMigration",
        columns: &[
            Column { format: "", ..NAME },
            string("Resource", literal("The resource whose objects are migrated.")),
            string("Status", literal("The state of the migration.")),
        ],
        cells: migration,
    },
    Printer {
        group: "resource.k8s.io",
        kind: "DeviceTaintRule",
        columns: &[
            NAME,
            string("Key", field(TAINT, "key")),
            string("Value", field(TAINT, "value")),
            string("Effect", field(TAINT, "effect")),
            string("TimeAdded", field(TAINT, "timeAdded")),
            AGE,
        ],
        cells: taint_rule,
    },
    Printer {
        group: "resource.k8s.io",
        kind: "ResourcePoolStatusRequest",
        columns: &[
            NAME,
            string("Driver", literal("The driver of the requested pools.")),
            string("Total", literal("The number of devices.")),
            string("Available", literal("The number of available devices.")),
            string("Allocated", literal("The number of allocated devices.")),
            string("Unavailable", literal("The number of unavailable devices.")),
            string("Errors", literal("The number of pools with validation errors.")),
            integer("Pools", literal("The number of pools.")),
            string("Status", literal("The state of the request.")),
            string("Completed", literal("The time since the request was completed.")),
        ],
        cells: pool_status,
    },
];

fn is_true(row: &Row<'_>, kind: &str) -> bool {
    let found = condition(row.array(&["status", "conditions"]), kind);
    found.is_some_and(|found| found.str_at(&["status"]) == Some("True"))
}

fn certificate_request(row: &Row<'_>) -> Vec<Value> {
    let state = ["Issued", "Denied", "Failed"].into_iter().find(|kind| is_true(row, kind));
    vec![
        row.name(),
        row.text(&["spec", "podName"]),
        row.text(&["spec", "serviceAccountName"]),
        row.text(&["spec", "nodeName"]),
        row.text(&["spec", "signerName"]),
        state.unwrap_or("Pending").into(),
        row.labels(&["spec", "unverifiedUserAnnotations"]),
    ]
}

fn pod_group(row: &Row<'_>) -> Vec<Value> {
    let policy = ["spec", "schedulingPolicy", "gang"];
    let gang = row.obj.at(&policy).is_some_and(|gang| !gang.is_null());
    let scheduled = condition(row.array(&["status", "conditions"]), "PodGroupScheduled");
    let status = match scheduled.and_then(|found| found.str_at(&["status"])) {
        Some("True") => "Scheduled",
        Some("False") => "Unschedulable",
        _ => "Pending",
    };
    vec![
        row.name(),
        if gang { "Gang" } else { "Basic" }.into(),
        row.text_or(&["spec", "podGroupTemplateRef", "workload", "workloadName"], NONE),
        status.into(),
        row.age(),
    ]
}

fn migration(row: &Row<'_>) -> Vec<Value> {
    let resource = row.str(&["spec", "resource", "resource"]);
    let group = row.str(&["spec", "resource", "group"]);
    let dot = if group.is_empty() { "" } else { "." };
    let status = ["Succeeded", "Failed", "Running"].into_iter().find(|kind| is_true(row, kind));
    vec![row.name(), format!("{resource}{dot}{group}").into(), status.unwrap_or("Unknown").into()]
}

fn taint_rule(row: &Row<'_>) -> Vec<Value> {
    vec![
        row.name(),
        row.text(&["spec", "taint", "key"]),
        row.text(&["spec", "taint", "value"]),
        row.text(&["spec", "taint", "effect"]),
        row.since(row.str(&["spec", "taint", "timeAdded"])).into(),
        row.age(),
    ]
}

fn pool_status(row: &Row<'_>) -> Vec<Value> {
    let pools = row.array(&["status", "pools"]);
    let is_failed = is_true(row, "Failed");
    let has_status = !is_failed && row.obj.at(&["status", "poolCount"]).is_some();
    let or_dash = |number: i64| if has_status { number.to_string() } else { "-".to_owned() };
    let sum = |name: &str| or_dash(pools.iter().filter_map(|pool| pool.int_at(&[name])).sum());
    let faults = pools.iter().filter(|pool| pool.str_at(&["validationError"]).is_some()).count();
    let complete = condition(row.array(&["status", "conditions"]), "Complete")
        .filter(|found| found.str_at(&["status"]) == Some("True"));
    let state = match complete {
        Some(_) => "Complete",
        None if is_failed => "Failed",
        None => "Pending",
    };
    let completed = complete.and_then(|found| found.get("lastTransitionTime"));
    vec![
        row.name(),
        row.text(&["spec", "driver"]),
        sum("totalDevices").into(),
        sum("availableDevices").into(),
        sum("allocatedDevices").into(),
        sum("unavailableDevices").into(),
        or_dash(i64::try_from(faults).unwrap_or(i64::MAX)).into(),
        row.int(&["status", "poolCount"]),
        state.into(),
        completed.map_or_else(|| NONE.to_owned(), |time| row.since(text(time))).into(),
    ]
}
