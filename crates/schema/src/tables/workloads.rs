//! Workloads: deployments, sets, jobs, pod templates, controller revisions, disruption budgets.

use super::Printer;
use super::column::{
    AGE, CONTAINERS, Column, IMAGES, NAME, boolean, field, integer, literal, string,
};
use super::row::{NONE, Row, UNSET, human_seconds, is_true};
use keelson_meta::{GroupVersion, Timestamp, Value, selector::Selector};

const RC_SPEC: &str = "io.k8s.api.core.v1.ReplicationControllerSpec";
const RC_STATUS: &str = "io.k8s.api.core.v1.ReplicationControllerStatus";
const RS_SPEC: &str = "io.k8s.api.apps.v1.ReplicaSetSpec";
const RS_STATUS: &str = "io.k8s.api.apps.v1.ReplicaSetStatus";
const DS_STATUS: &str = "io.k8s.api.apps.v1.DaemonSetStatus";
const JOB_SPEC: &str = "io.k8s.api.batch.v1.JobSpec";
const CRON_SPEC: &str = "io.k8s.api.batch.v1.CronJobSpec";
const CRON_STATUS: &str = "io.k8s.api.batch.v1.CronJobStatus";
const DEPLOYMENT_STATUS: &str = "io.k8s.api.apps.v1.DeploymentStatus";

const READY_PODS: Column =
    string("Ready", literal("The number of ready pods and of desired pods."));

pub(super) static PRINTERS: &[Printer] = &[
    Printer {
        group: "apps",
        kind: "Deployment",
        columns: &[
            NAME,
            READY_PODS,
            string("Up-to-date", field(DEPLOYMENT_STATUS, "updatedReplicas")),
            string("Available", field(DEPLOYMENT_STATUS, "availableReplicas")),
            AGE,
            CONTAINERS,
            IMAGES,
            string("Selector", field("io.k8s.api.apps.v1.DeploymentSpec", "selector")).wide(),
        ],
        cells: deployment,
    },
    Printer {
        group: "apps",
        kind: "ReplicaSet",
        columns: &[
            NAME,
            integer("Desired", field(RS_SPEC, "replicas")),
            integer("Current", field(RS_STATUS, "replicas")),
            integer("Ready", field(RS_STATUS, "readyReplicas")),
            AGE,
            CONTAINERS,
            IMAGES,
            string("Selector", field(RS_SPEC, "selector")).wide(),
        ],
        cells: replica_set,
    },
    Printer {
        group: "",
        kind: "ReplicationController",
        columns: &[
            NAME,
            integer("Desired", field(RC_SPEC, "replicas")),
            integer("Current", field(RC_STATUS, "replicas")),
            integer("Ready", field(RC_STATUS, "readyReplicas")),
            AGE,
            CONTAINERS,
            IMAGES,
            string("Selector", field(RC_SPEC, "selector")).wide(),
        ],
        cells: replication_controller,
    },
    Printer {
        group: "apps",
        kind: "StatefulSet",
        columns: &[NAME, READY_PODS, AGE, CONTAINERS, IMAGES],
        cells: stateful_set,
    },
    Printer {
        group: "apps",
        kind: "DaemonSet",
        columns: &[
            NAME,
            integer("Desired", field(DS_STATUS, "desiredNumberScheduled")),
            integer("Current", field(DS_STATUS, "currentNumberScheduled")),
            integer("Ready", field(DS_STATUS, "numberReady")),
            integer("Up-to-date", field(DS_STATUS, "updatedNumberScheduled")),
            integer("Available", field(DS_STATUS, "numberAvailable")),
            string("Node Selector", field("io.k8s.api.core.v1.PodSpec", "nodeSelector")),
            AGE,
            CONTAINERS,
            IMAGES,
            string("Selector", field("io.k8s.api.apps.v1.DaemonSetSpec", "selector")).wide(),
        ],
        cells: daemon_set,
    },
    Printer {
        group: "batch",
        kind: "Job",
        columns: &[
            NAME,
            string("Status", literal("The state of the job.")),
            string("Completions", field("io.k8s.api.batch.v1.JobStatus", "succeeded")),
            string("Duration", literal("The time from start to completion, or until now.")),
            AGE,
            CONTAINERS,
            IMAGES,
            string("Selector", field(JOB_SPEC, "selector")).wide(),
        ],
        cells: job,
    },
    Printer {
        group: "batch",
        kind: "CronJob",
        columns: &[
            NAME,
            string("Schedule", field(CRON_SPEC, "schedule")),
            string("Timezone", field(CRON_SPEC, "timeZone")),
            boolean("Suspend", field(CRON_SPEC, "suspend")),
            integer("Active", field(CRON_STATUS, "active")),
            string("Last Schedule", field(CRON_STATUS, "lastScheduleTime")),
            AGE,
            CONTAINERS,
            IMAGES,
            string("Selector", field(JOB_SPEC, "selector")).wide(),
        ],
        cells: cron_job,
    },
    Printer {
        group: "apps",
        kind: "ControllerRevision",
        columns: &[
            NAME,
            string("Controller", literal("The object that the revision belongs to.")),
            string("Revision", field("io.k8s.api.apps.v1.ControllerRevision", "revision")),
            AGE,
        ],
        cells: controller_revision,
    },
    Printer {
        group: "",
        kind: "PodTemplate",
        columns: &[
            NAME,
            string("Containers", literal("The containers of the template.")),
            string("Images", literal("The images of the template's containers.")),
            string("Pod Labels", literal("The labels of the pods of the template.")),
        ],
        cells: pod_template,
    },
    Printer {
        group: "policy",
        kind: "PodDisruptionBudget",
        columns: &[
            NAME,
            string("Min Available", literal("The number of pods that must stay available.")),
            string("Max Unavailable", literal("The number of pods that may be unavailable.")),
            integer("Allowed Disruptions", literal("The number of pods that may be evicted now.")),
            AGE,
        ],
        cells: disruption_budget,
    },
];

const TEMPLATE_CONTAINERS: &[&str] = &["spec", "template", "spec", "containers"];

/// Returns name, `middle`, age, and the containers of the template.
fn workload(row: &Row<'_>, middle: Vec<Value>) -> Vec<Value> {
    let mut cells = vec![row.name()];
    cells.extend(middle);
    cells.push(row.age());
    cells.extend(row.containers(TEMPLATE_CONTAINERS));
    cells
}

fn ready_of_wanted(row: &Row<'_>) -> Value {
    let ready = row.number(&["status", "readyReplicas"]);
    format!("{ready}/{}", row.number(&["spec", "replicas"])).into()
}

fn deployment(row: &Row<'_>) -> Vec<Value> {
    let mut cells = workload(
        row,
        vec![
            ready_of_wanted(row),
            row.int(&["status", "updatedReplicas"]),
            row.int(&["status", "availableReplicas"]),
        ],
    );
    let selector = Selector::from_object(row.obj.at(&["spec", "selector"]));
    cells.push(selector.map_or_else(|_| "<invalid>".into(), |s| s.to_string().into()));
    cells
}

fn replica_set(row: &Row<'_>) -> Vec<Value> {
    let mut cells = workload(row, replica_counts(row));
    cells.push(row.selector(&["spec", "selector"]));
    cells
}

fn replication_controller(row: &Row<'_>) -> Vec<Value> {
    let mut cells = workload(row, replica_counts(row));
    cells.push(row.labels(&["spec", "selector"]));
    cells
}

fn replica_counts(row: &Row<'_>) -> Vec<Value> {
    vec![
        row.int(&["spec", "replicas"]),
        row.int(&["status", "replicas"]),
        row.int(&["status", "readyReplicas"]),
    ]
}

fn stateful_set(row: &Row<'_>) -> Vec<Value> {
    workload(row, vec![ready_of_wanted(row)])
}

fn daemon_set(row: &Row<'_>) -> Vec<Value> {
    let mut cells = workload(
        row,
        vec![
            row.int(&["status", "desiredNumberScheduled"]),
            row.int(&["status", "currentNumberScheduled"]),
            row.int(&["status", "numberReady"]),
            row.int(&["status", "updatedNumberScheduled"]),
            row.int(&["status", "numberAvailable"]),
            row.labels(&["spec", "template", "spec", "nodeSelector"]),
        ],
    );
    cells.push(row.selector(&["spec", "selector"]));
    cells
}

fn job(row: &Row<'_>) -> Vec<Value> {
    let middle =
        vec![job_status(row).into(), job_completions(row).into(), job_duration(row).into()];
    let mut cells = workload(row, middle);
    cells.push(row.selector(&["spec", "selector"]));
    cells
}

fn job_status(row: &Row<'_>) -> &'static str {
    let conditions = row.array(&["status", "conditions"]);
    match () {
        () if is_true(conditions, "Complete") => "Complete",
        () if is_true(conditions, "Failed") => "Failed",
        () if row.is_deleting() => "Terminating",
        () if is_true(conditions, "Suspended") => "Suspended",
        () if is_true(conditions, "FailureTarget") => "FailureTarget",
        () if is_true(conditions, "SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

fn job_completions(row: &Row<'_>) -> String {
    let succeeded = row.number(&["status", "succeeded"]);
    if let Some(wanted) = row.obj.int_at(&["spec", "completions"]) {
        return format!("{succeeded}/{wanted}");
    }
    match row.number(&["spec", "parallelism"]) {
        parallelism @ 2.. => format!("{succeeded}/1 of {parallelism}"),
        _ => format!("{succeeded}/1"),
    }
}

fn job_duration(row: &Row<'_>) -> String {
    let Ok(start) = Timestamp::parse(row.str(&["status", "startTime"])) else {
        return String::new();
    };
    let end = Timestamp::parse(row.str(&["status", "completionTime"])).unwrap_or(row.now);
    human_seconds(end.since(start).seconds())
}

fn cron_job(row: &Row<'_>) -> Vec<Value> {
    let suspend = match row.flag(&["spec", "suspend"]) {
        Some(true) => "True",
        Some(false) => "False",
        None => UNSET,
    };
    let last = row.str(&["status", "lastScheduleTime"]);
    let mut cells = vec![
        row.name(),
        row.text(&["spec", "schedule"]),
        row.present_or(&["spec", "timeZone"], NONE),
        suspend.into(),
        row.count(&["status", "active"]),
        if last.is_empty() { NONE.into() } else { row.since(last).into() },
        row.age(),
    ];
    let job = ["spec", "jobTemplate", "spec"];
    cells.extend(row.containers(&[&job[..], &["template", "spec", "containers"]].concat()));
    cells.push(row.selector(&[&job[..], &["selector"]].concat()));
    cells
}

fn controller_revision(row: &Row<'_>) -> Vec<Value> {
    let owners = row.array(&["metadata", "ownerReferences"]);
    let is_controller = |owner: &&Value| owner.get("controller") == Some(&Value::Bool(true));
    let controller = owners
        .iter()
        .find(is_controller)
        .map(|owner| {
            let member = |name| owner.str_at(&[name]).unwrap_or_default();
            let gv = GroupVersion::parse(member("apiVersion")).unwrap_or_default();
            let dot = if gv.group.is_empty() { "" } else { "." };
            let kind = format!("{}{dot}{}", member("kind"), gv.group).to_lowercase();
            format!("{kind}/{}", member("name"))
        })
        .unwrap_or_else(|| NONE.to_owned());
    vec![row.name(), controller.into(), row.int(&["revision"]), row.age()]
}

fn pod_template(row: &Row<'_>) -> Vec<Value> {
    let mut cells = vec![row.name()];
    cells.extend(row.containers(&["template", "spec", "containers"]));
    cells.push(row.labels(&["template", "metadata", "labels"]));
    cells
}

fn disruption_budget(row: &Row<'_>) -> Vec<Value> {
    let bound = |name| match row.obj.at(&["spec", name]) {
        Some(Value::String(text)) => text.as_str().into(),
        Some(Value::Int(number)) => number.to_string().into(),
        _ => Value::from("N/A"),
    };
    vec![
        row.name(),
        bound("minAvailable"),
        bound("maxUnavailable"),
        row.int(&["status", "disruptionsAllowed"]),
        row.age(),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::tests::row;
    use keelson_meta::value;

    #[test]
    fn a_deployment_counts_its_pods() {
        let object = value!({
            "metadata": {"name": "d", "creationTimestamp": "2023-12-31T22:10:00Z"},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "d"}}, "template": {
                "spec": {"containers": [
                    {"name": "a", "image": "i:1"}, {"name": "b", "image": "i:2"}
                ]}
            }},
            "status": {"readyReplicas": 1}
        });
        assert_eq!(
            row("apps", "Deployment", object),
            "d | 1/3 | 0 | 0 | 120m | a,b | i:1,i:2 | app=d"
        );
    }

    #[test]
    fn job_shows_completions_and_duration() {
        let check = |spec, status, expected: &str| {
            let object = value!({"metadata": {"name": "j"}, "spec": (spec), "status": (status)});
            assert_eq!(
                row("batch", "Job", object),
                format!("j | {expected} | <unknown> |  |  | <none>")
            );
        };
        check(
            value!({"completions": 3, "parallelism": 1}),
            value!({"succeeded": 3, "startTime": "2024-01-01T00:00:00Z",
                "completionTime": "2024-01-01T00:01:30Z",
                "conditions": [{"type": "Complete", "status": "True"}]}),
            "Complete | 3/3 | 90s",
        );
        check(
            value!({"parallelism": 4}),
            value!({"startTime": "2024-01-01T00:00:00Z"}),
            "Running | 0/1 of 4 | 10m",
        );
        check(
            value!({"parallelism": 1}),
            value!({"conditions": [{"type": "Suspended", "status": "True"}]}),
            "Suspended | 0/1 | ",
        );
    }

    #[test]
    fn revision_shows_its_controller() {
        let object = value!({"revision": 7, "metadata": {"name": "r", "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "controller": true}
        ]}});
        assert_eq!(
            row("apps", "ControllerRevision", object),
            "r | daemonset.apps/d | 7 | <unknown>"
        );
    }

    #[test]
    fn disruption_budget_shows_its_bound() {
        let object = value!({"metadata": {"name": "b"}, "spec": {"maxUnavailable": "30%"}});
        assert_eq!(row("policy", "PodDisruptionBudget", object), "b | N/A | 30% | 0 | <unknown>");
    }
}
