//! Cluster-scoped kinds: nodes, namespaces, classes, flow control, storage versions, API services.

use super::Printer;
use super::column::{AGE, NAME, boolean, field, integer, literal, string};
use super::row::{NONE, Row, UNKNOWN, UNSET, condition, first_items, join};
use keelson_meta::Value;
use std::collections::BTreeSet;

const NODE_STATUS: &str = "io.k8s.api.core.v1.NodeStatus";
const NODE_INFO: &str = "io.k8s.api.core.v1.NodeSystemInfo";
const PRIORITY_CLASS: &str = "io.k8s.api.scheduling.v1.PriorityClass";
const FLOW_SCHEMA: &str = "io.k8s.api.flowcontrol.v1.FlowSchemaSpec";
const LIMITED: &str = "io.k8s.api.flowcontrol.v1.LimitedPriorityLevelConfiguration";
const QUEUING: &str = "io.k8s.api.flowcontrol.v1.QueuingConfiguration";
const LEVEL: &str = "io.k8s.api.flowcontrol.v1.PriorityLevelConfigurationSpec";
const LEVEL_REFERENCE: &str = "io.k8s.api.flowcontrol.v1.PriorityLevelConfigurationReference";
const STORAGE_VERSION: &str = "io.k8s.api.apiserverinternal.v1alpha1.StorageVersionStatus";
const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";

pub(super) static PRINTERS: &[Printer] = &[
    Printer {
        group: "",
        kind: "Node",
        columns: &[
            NAME,
            string("Status", literal("Whether the node is ready and schedulable.")),
            string("Roles", literal("The roles of the node.")),
            AGE,
            string("Version", field(NODE_INFO, "kubeletVersion")),
            string("Internal-IP", field(NODE_STATUS, "addresses")).wide(),
            string("External-IP", field(NODE_STATUS, "addresses")).wide(),
            string("OS-Image", field(NODE_INFO, "osImage")).wide(),
            string("Kernel-Version", field(NODE_INFO, "kernelVersion")).wide(),
            string("Container-Runtime", field(NODE_INFO, "containerRuntimeVersion")).wide(),
        ],
        cells: node,
    },
    Printer {
        group: "",
        kind: "Namespace",
        columns: &[
            NAME,
            string("Status", literal("Whether the namespace is active or terminating.")),
            AGE,
        ],
        cells: |row| vec![row.name(), row.text(&["status", "phase"]), row.age()],
    },
    Printer {
        group: "",
        kind: "ComponentStatus",
        columns: &[
            NAME,
            string("Status", literal("Whether the component is healthy.")),
            string("Message", literal("The message of the component.")),
            string("Error", literal("The error of the last health check.")),
        ],
        cells: component_status,
    },
    Printer {
        group: "scheduling.k8s.io",
        kind: "PriorityClass",
        columns: &[
            NAME,
            integer("Value", field(PRIORITY_CLASS, "value")),
            boolean("Global-Default", field(PRIORITY_CLASS, "globalDefault")),
            AGE,
            string("PreemptionPolicy", field(PRIORITY_CLASS, "preemptionPolicy")),
        ],
        cells: priority_class,
    },
    Printer {
        group: "node.k8s.io",
        kind: "RuntimeClass",
        columns: &[
            NAME,
            string("Handler", field("io.k8s.api.node.v1.RuntimeClass", "handler")),
            AGE,
        ],
        cells: |row| vec![row.name(), row.text(&["handler"]), row.age()],
    },
    Printer {
        group: "flowcontrol.apiserver.k8s.io",
        kind: "FlowSchema",
        columns: &[
            NAME,
            string("PriorityLevel", field(LEVEL_REFERENCE, "name")),
            string("MatchingPrecedence", field(FLOW_SCHEMA, "matchingPrecedence")),
            string("DistinguisherMethod", field(FLOW_SCHEMA, "distinguisherMethod")),
            AGE,
            string("MissingPL", literal("Whether the priority level is missing.")),
        ],
        cells: flow_schema,
    },
    Printer {
        group: "flowcontrol.apiserver.k8s.io",
        kind: "PriorityLevelConfiguration",
        columns: &[
            NAME,
            string("Type", field(LEVEL, "type")),
            string("NominalConcurrencyShares", field(LIMITED, "nominalConcurrencyShares")),
            string("Queues", field(QUEUING, "queues")),
            string("HandSize", field(QUEUING, "handSize")),
            string("QueueLengthLimit", field(QUEUING, "queueLengthLimit")),
            AGE,
        ],
        cells: priority_level,
    },
    Printer {
        group: "internal.apiserver.k8s.io",
        kind: "StorageVersion",
        columns: &[
            NAME,
            string("CommonEncodingVersion", field(STORAGE_VERSION, "commonEncodingVersion")),
            string("StorageVersions", field(STORAGE_VERSION, "storageVersions")),
            AGE,
        ],
        cells: storage_version,
    },
    Printer {
        group: "apiregistration.k8s.io",
        kind: "APIService",
        columns: &[
            NAME,
            string("Service", literal("The service that serves the group version.")),
            string("Available", literal("Whether the API service is available.")),
            AGE,
        ],
        cells: api_service,
    },
    Printer {
        group: "",
        kind: "Status",
        columns: &[
            string("Status", field(STATUS, "status")),
            string("Reason", field(STATUS, "reason")),
            string("Message", field(STATUS, "message")),
        ],
        cells: |row| ["status", "reason", "message"].map(|name| row.text(&[name])).to_vec(),
    },
];

fn node(row: &Row<'_>) -> Vec<Value> {
    let info = |name| row.str(&["status", "nodeInfo", name]);
    let or_unknown = |text: &str| if text.is_empty() { UNKNOWN.into() } else { text.into() };
    let kernel: Value = match (info("kernelVersion"), info("architecture")) {
        (kernel, arch) if kernel.is_empty() || arch.is_empty() => or_unknown(kernel),
        (kernel, arch) => format!("{kernel} ({arch})").into(),
    };
    vec![
        row.name(),
        node_status(row).into(),
        node_roles(row).into(),
        row.age(),
        info("kubeletVersion").into(),
        node_address(row, "InternalIP").into(),
        node_address(row, "ExternalIP").into(),
        or_unknown(info("osImage")),
        kernel,
        or_unknown(info("containerRuntimeVersion")),
    ]
}

fn node_status(row: &Row<'_>) -> String {
    let conditions = row.array(&["status", "conditions"]);
    // The last condition of a type wins.
    let ready = conditions.iter().rev().find(|c| c.str_at(&["type"]) == Some("Ready"));
    let ready = match ready.map(|condition| condition.str_at(&["status"])) {
        Some(Some("True")) => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let closed = row.flag(&["spec", "unschedulable"]) == Some(true);
    format!("{ready}{}", if closed { ",SchedulingDisabled" } else { "" })
}

fn node_roles(row: &Row<'_>) -> String {
    let role = |(key, value)| match str::strip_prefix(key, "node-role.kubernetes.io/") {
        Some(role) => Some(role),
        None if key == "kubernetes.io/role" => Some(value),
        None => None,
    };
    let roles: BTreeSet<&str> =
        row.obj.meta_map("labels").filter_map(role).filter(|role| !role.is_empty()).collect();
    if roles.is_empty() { NONE.to_owned() } else { join(roles.into_iter()) }
}

fn node_address<'a>(row: &Row<'a>, kind: &str) -> &'a str {
    let address = condition(row.array(&["status", "addresses"]), kind);
    address.map_or(NONE, |address| address.str_at(&["address"]).unwrap_or_default())
}

fn component_status(row: &Row<'_>) -> Vec<Value> {
    let Some(healthy) = condition(row.array(&["conditions"]), "Healthy") else {
        return vec![row.name(), "Unknown".into(), "".into(), "".into()];
    };
    let member = |name| healthy.str_at(&[name]).unwrap_or_default();
    let status = if member("status") == "True" { "Healthy" } else { "Unhealthy" };
    vec![row.name(), status.into(), member("message").into(), member("error").into()]
}

fn priority_class(row: &Row<'_>) -> Vec<Value> {
    vec![
        row.name(),
        row.int(&["value"]),
        row.flag(&["globalDefault"]).unwrap_or(false).into(),
        row.age(),
        row.text(&["preemptionPolicy"]),
    ]
}

fn flow_schema(row: &Row<'_>) -> Vec<Value> {
    let dangling = condition(row.array(&["status", "conditions"]), "Dangling");
    vec![
        row.name(),
        row.text(&["spec", "priorityLevelConfiguration", "name"]),
        row.int(&["spec", "matchingPrecedence"]),
        row.present_or(&["spec", "distinguisherMethod", "type"], NONE),
        row.age(),
        dangling.map_or("?", |c| c.str_at(&["status"]).unwrap_or_default()).into(),
    ]
}

fn priority_level(row: &Row<'_>) -> Vec<Value> {
    let present = |value: Option<&Value>| value.is_some_and(|value| !value.is_null());
    let limited = row.obj.at(&["spec", "limited"]);
    let queuing = limited.and_then(|limited| limited.at(&["limitResponse", "queuing"]));
    let number = |part: Option<&Value>, name| match part {
        Some(part) if present(Some(part)) => part.int_at(&[name]).unwrap_or(0).into(),
        _ => Value::from(NONE),
    };
    vec![
        row.name(),
        row.text(&["spec", "type"]),
        number(limited, "nominalConcurrencyShares"),
        number(queuing, "queues"),
        number(queuing, "handSize"),
        number(queuing, "queueLengthLimit"),
        row.age(),
    ]
}

fn storage_version(row: &Row<'_>) -> Vec<Value> {
    let version = |server: &Value| {
        let member = |name| server.str_at(&[name]).unwrap_or_default();
        format!("{}={}", member("apiServerID"), member("encodingVersion"))
    };
    let versions = row.array(&["status", "storageVersions"]).iter().map(version);
    vec![
        row.name(),
        row.present_or(&["status", "commonEncodingVersion"], UNSET),
        first_items(&versions.collect::<Vec<_>>()).into(),
        row.age(),
    ]
}

fn api_service(row: &Row<'_>) -> Vec<Value> {
    let service = match row.obj.at(&["spec", "service"]).filter(|service| !service.is_null()) {
        None => "Local".to_owned(),
        Some(service) => {
            let member = |name| service.str_at(&[name]).unwrap_or_default();
            format!("{}/{}", member("namespace"), member("name"))
        }
    };
    let available = match condition(row.array(&["status", "conditions"]), "Available") {
        None => "Unknown".to_owned(),
        Some(condition) => {
            let member = |name| condition.str_at(&[name]).unwrap_or_default();
            match (member("status"), member("reason")) {
                (status, reason) if status == "True" || reason.is_empty() => status.to_owned(),
                (status, reason) => format!("{status} ({reason})"),
            }
        }
    };
    vec![row.name(), service.into(), available.into(), row.age()]
}

#[cfg(test)]
mod tests {
    use super::super::tests::row;
    use keelson_meta::value;

    #[test]
    fn node_shows_status_roles_and_node_info() {
        let object = value!({
            "metadata": {"name": "n", "labels": {
                "node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/control-plane": "",
                "kubernetes.io/role": "", "x": "y"
            }},
            "spec": {"unschedulable": true},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": "InternalIP", "address": "10.0.5.1"}],
                "nodeInfo": {"kubeletVersion": "v1.36.2", "osImage": "o", "kernelVersion": "k",
                    "architecture": "amd64", "containerRuntimeVersion": "c://1"}
            }
        });
        assert_eq!(
            row("", "Node", object),
            "n | Ready,SchedulingDisabled | control-plane,worker | <unknown> | v1.36.2 | 10.0.5.1 \
             | <none> | o | k (amd64) | c://1"
        );
        assert_eq!(
            row("", "Node", value!({"metadata": {"name": "n"}})),
            "n | Unknown | <none> | <unknown> |  | <none> | <none> | <unknown> | <unknown> | \
             <unknown>"
        );
    }

    #[test]
    fn api_service_shows_why_it_is_unavailable() {
        let object = value!({"metadata": {"name": "v1.x"}, "spec": {"service": {
            "namespace": "ns", "name": "svc"
        }}, "status": {"conditions": [
            {"type": "Available", "status": "False", "reason": "ServiceNotFound"}
        ]}});
        assert_eq!(
            row("apiregistration.k8s.io", "APIService", object),
            "v1.x | ns/svc | False (ServiceNotFound) | <unknown>"
        );
    }

    #[test]
    fn exempt_priority_level_has_no_queues() {
        let object = value!({"metadata": {"name": "exempt"}, "spec": {"type": "Exempt"}});
        assert_eq!(
            row("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration", object),
            "exempt | Exempt | <none> | <none> | <none> | <none> | <unknown>"
        );
    }
}
