//! The strategies of the built-in kinds: a row a kind, and modules for what no row can say.

mod core;

use crate::strategy::{Generation, SelectableField, StatusMetadata, Strategy};
use keelson_meta::names;

const fn field(name: &'static str, places: &'static [&'static [&'static str]]) -> SelectableField {
    SelectableField { name, places, unset: "" }
}

const POD: &[SelectableField] = &[
    field("spec.nodeName", &[&["spec", "nodeName"]]),
    field("spec.restartPolicy", &[&["spec", "restartPolicy"]]),
    field("spec.schedulerName", &[&["spec", "schedulerName"]]),
    field("spec.serviceAccountName", &[&["spec", "serviceAccountName"]]),
    SelectableField {
        name: "spec.hostNetwork",
        places: &[&["spec", "hostNetwork"]],
        unset: "false",
    },
    field("status.phase", &[&["status", "phase"]]),
    field("status.podIP", &[&["status", "podIP"]]),
    field("status.podIPs", &[&["status", "podIP"]]),
    field("status.nominatedNodeName", &[&["status", "nominatedNodeName"]]),
];

const EVENT: &[SelectableField] = &[
    field("involvedObject.kind", &[&["involvedObject", "kind"], &["regarding", "kind"]]),
    field(
        "involvedObject.namespace",
        &[&["involvedObject", "namespace"], &["regarding", "namespace"]],
    ),
    field("involvedObject.name", &[&["involvedObject", "name"], &["regarding", "name"]]),
    field("involvedObject.uid", &[&["involvedObject", "uid"], &["regarding", "uid"]]),
    field(
        "involvedObject.apiVersion",
        &[&["involvedObject", "apiVersion"], &["regarding", "apiVersion"]],
    ),
    field(
        "involvedObject.resourceVersion",
        &[&["involvedObject", "resourceVersion"], &["regarding", "resourceVersion"]],
    ),
    field(
        "involvedObject.fieldPath",
        &[&["involvedObject", "fieldPath"], &["regarding", "fieldPath"]],
    ),
    field("reason", &[&["reason"]]),
    field("reportingComponent", &[&["reportingComponent"], &["reportingController"]]),
    field("source", &[&["source", "component"], &["reportingComponent"]]),
    field("type", &[&["type"]]),
];

const REPLICAS: &[SelectableField] =
    &[SelectableField { name: "status.replicas", places: &[&["status", "replicas"]], unset: "0" }];

/// The rules of a built-in resource.
pub(crate) fn strategy(group: &str, resource: &str) -> Strategy {
    let base = Strategy { generation: generation(group, resource), ..Strategy::GENERIC };
    let base = Strategy {
        create_on_update: creates_on_update(group, resource),
        unconditional_update: updates_unconditionally(group, resource),
        status_metadata: status_metadata(group, resource),
        ..base
    };
    match (group, resource) {
        ("", "pods") => Strategy { fields: POD, returns_deleted: true, ..core::pod(base) },
        ("", "events") | ("events.k8s.io", "events") => Strategy { fields: EVENT, ..base },
        ("", "namespaces") => core::namespace(base),
        ("", "nodes") => Strategy {
            status_on_create: true,
            fields: const {
                &[SelectableField {
                    name: "spec.unschedulable",
                    places: &[&["spec", "unschedulable"]],
                    unset: "false",
                }]
            },
            ..base
        },
        ("", "secrets") => {
            Strategy { fields: const { &[field("type", &[&["type"]])] }, ..core::secret(base) }
        }
        ("", "services") => Strategy {
            name_rule: names::name_is_dns1035_label,
            fields: const {
                &[
                    field("spec.clusterIP", &[&["spec", "clusterIP"]]),
                    field("spec.type", &[&["spec", "type"]]),
                ]
            },
            ..base
        },
        ("", "replicationcontrollers") => Strategy { fields: REPLICAS, ..base },
        ("apps", "replicasets") => Strategy { fields: REPLICAS, ..base },
        ("batch", "jobs") => Strategy {
            fields: const {
                &[SelectableField {
                    name: "status.successful",
                    places: &[&["status", "succeeded"]],
                    unset: "0",
                }]
            },
            ..base
        },
        ("certificates.k8s.io", "certificatesigningrequests") => Strategy {
            name_rule: names::name_is_path_segment,
            fields: const { &[field("spec.signerName", &[&["spec", "signerName"]])] },
            ..base
        },
        ("resource.k8s.io", "resourceslices") => Strategy {
            fields: const {
                &[
                    field("spec.nodeName", &[&["spec", "nodeName"]]),
                    field("spec.driver", &[&["spec", "driver"]]),
                ]
            },
            ..base
        },
        (
            "",
            "persistentvolumes" | "persistentvolumeclaims" | "podtemplates" | "serviceaccounts",
        )
        | ("", "resourcequotas") => Strategy { returns_deleted: true, ..base },
        ("rbac.authorization.k8s.io", _) => {
            Strategy { name_rule: names::name_is_path_segment, ..base }
        }
        _ => base,
    }
}

fn generation(group: &str, resource: &str) -> Generation {
    let counts = matches!(
        (group, resource),
        ("", "pods" | "replicationcontrollers")
            | ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets")
            | ("batch", _)
            | ("policy", _)
            | ("networking.k8s.io", "ingresses" | "networkpolicies" | "ingressclasses")
            | ("flowcontrol.apiserver.k8s.io", _)
            | ("admissionregistration.k8s.io", _)
            | ("apiextensions.k8s.io", _)
            | ("discovery.k8s.io", _)
            | ("scheduling.k8s.io", "priorityclasses")
            | ("resource.k8s.io", "resourceslices")
    );
    if counts { Generation::OnSpecChange } else { Generation::Unused }
}

fn creates_on_update(group: &str, resource: &str) -> bool {
    matches!(
        (group, resource),
        ("", "endpoints" | "events" | "limitranges" | "services" | "podtemplates")
            | ("events.k8s.io", "events")
            | ("coordination.k8s.io", "leases")
            | ("rbac.authorization.k8s.io", _)
    )
}

fn updates_unconditionally(group: &str, resource: &str) -> bool {
    !matches!(
        (group, resource),
        ("coordination.k8s.io", "leases")
            | ("apiregistration.k8s.io", _)
            | ("apiextensions.k8s.io", _)
            | ("admissionregistration.k8s.io", _)
            | ("node.k8s.io", _)
            | ("discovery.k8s.io", _)
            | ("storage.k8s.io", "csistoragecapacities")
    )
}

fn status_metadata(group: &str, resource: &str) -> StatusMetadata {
    match (group, resource) {
        ("apps", "deployments") | ("", "persistentvolumes") => StatusMetadata::KeepLabels,
        ("apiextensions.k8s.io" | "flowcontrol.apiserver.k8s.io" | "resource.k8s.io", _)
        | ("certificates.k8s.io" | "apiregistration.k8s.io" | "networking.k8s.io", _) => {
            StatusMetadata::Keep
        }
        _ => StatusMetadata::Free,
    }
}
