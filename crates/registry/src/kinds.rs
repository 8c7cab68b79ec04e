//! The strategies of the built-in kinds: a row a kind, and modules for what no row can say.

mod admission;
mod autoscaling;
mod batch;
mod certificates;
mod check;
mod claims;
mod config;
mod endpoints;
mod events;
mod flow;
mod networking;
mod nodes;
mod pod;
mod policies;
mod service;
mod storage;
mod workloads;

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
        revalidates: revalidates(group, resource),
        ..base
    };
    match (group, resource) {
        ("", "pods") => Strategy { fields: POD, returns_deleted: true, ..pod::pod(base) },
        ("", "podtemplates") => Strategy { returns_deleted: true, ..pod::pod_template(base) },
        ("", "events") => Strategy { fields: EVENT, ..events::core(base) },
        ("events.k8s.io", "events") => Strategy { fields: EVENT, ..events::events(base) },
        ("", "namespaces") => config::namespace(base),
        ("", "configmaps") => config::config_map(base),
        ("", "limitranges") => config::limit_range(base),
        ("", "serviceaccounts") => {
            Strategy { returns_deleted: true, ..config::service_account(base) }
        }
        ("", "persistentvolumes") => claims::volume(base),
        ("", "persistentvolumeclaims") => claims::claim(base),
        ("autoscaling", "horizontalpodautoscalers") => autoscaling::autoscaler(base),
        ("policy", "poddisruptionbudgets") => autoscaling::disruption_budget(base),
        ("", "nodes") => nodes::node(base),
        ("", "secrets") => {
            Strategy { fields: const { &[field("type", &[&["type"]])] }, ..config::secret(base) }
        }
        ("", "services") => Strategy {
            fields: const {
                &[
                    field("spec.clusterIP", &[&["spec", "clusterIP"]]),
                    field("spec.type", &[&["spec", "type"]]),
                ]
            },
            ..service::service(base)
        },
        ("", "replicationcontrollers") => {
            Strategy { fields: REPLICAS, ..workloads::replication_controller(base) }
        }
        ("apps", "replicasets") => Strategy { fields: REPLICAS, ..workloads::replica_set(base) },
        ("", "endpoints") => endpoints::endpoints(base),
        ("discovery.k8s.io", "endpointslices") => endpoints::slice(base),
        ("apps", "deployments") => workloads::deployment(base),
        ("apps", "daemonsets") => workloads::daemon_set(base),
        ("apps", "statefulsets") => workloads::stateful_set(base),
        ("apps", "controllerrevisions") => workloads::controller_revision(base),
        ("batch", "jobs") => Strategy {
            fields: const {
                &[SelectableField {
                    name: "status.successful",
                    places: &[&["status", "succeeded"]],
                    unset: "0",
                }]
            },
            ..batch::job(base)
        },
        ("batch", "cronjobs") => batch::cron_job(base),
        ("certificates.k8s.io", "certificatesigningrequests") => Strategy {
            fields: const { &[field("spec.signerName", &[&["spec", "signerName"]])] },
            ..certificates::signing_request(base)
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
        ("", "resourcequotas") => {
            Strategy { returns_deleted: true, ..config::resource_quota(base) }
        }
        ("networking.k8s.io", "ingresses") => networking::ingress(base),
        ("networking.k8s.io", "ingressclasses") => networking::class(base),
        ("networking.k8s.io", "networkpolicies") => networking::policy(base),
        ("networking.k8s.io", "ipaddresses") => networking::address(base),
        ("networking.k8s.io", "servicecidrs") => networking::service_range(base),
        ("storage.k8s.io", "storageclasses") => storage::class(base),
        ("storage.k8s.io", "csidrivers") => storage::csi_driver(base),
        ("storage.k8s.io", "volumeattachments") => storage::attachment(base),
        ("storage.k8s.io", "csistoragecapacities") => storage::capacity(base),
        ("storage.k8s.io", "volumeattributesclasses") => storage::attributes_class(base),
        ("scheduling.k8s.io", "priorityclasses") => policies::priority_class(base),
        ("node.k8s.io", "runtimeclasses") => policies::runtime_class(base),
        ("coordination.k8s.io", "leases") => policies::lease(base),
        ("flowcontrol.apiserver.k8s.io", "flowschemas") => flow::flow_schema(base),
        ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations") => {
            policies::priority_level(base)
        }
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations") => {
            admission::validating_webhooks(base)
        }
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations") => {
            admission::mutating_webhooks(base)
        }
        (
            "admissionregistration.k8s.io",
            "validatingadmissionpolicies" | "mutatingadmissionpolicies",
        ) => admission::policy(base),
        ("admissionregistration.k8s.io", _) => admission::binding(base),
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
            | ("resource.k8s.io", "resourceslices" | "deviceclasses")
    );
    match (group, resource) {
        ("apps", "deployments") => return Generation::OnSpecOrAnnotationChange,
        ("scheduling.k8s.io", "priorityclasses") => return Generation::First,
        _ => {}
    }
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

fn revalidates(group: &str, resource: &str) -> bool {
    matches!(
        (group, resource),
        ("", "pods" | "services" | "replicationcontrollers" | "configmaps" | "secrets")
            | ("", "namespaces" | "nodes" | "persistentvolumes" | "persistentvolumeclaims")
            | ("", "serviceaccounts" | "limitranges")
    )
}

fn status_metadata(group: &str, resource: &str) -> StatusMetadata {
    match (group, resource) {
        ("apps", "deployments") => StatusMetadata::KeepLabels,
        ("apiextensions.k8s.io" | "flowcontrol.apiserver.k8s.io" | "resource.k8s.io", _)
        | ("certificates.k8s.io" | "apiregistration.k8s.io" | "networking.k8s.io", _) => {
            StatusMetadata::Keep
        }
        _ => StatusMetadata::Free,
    }
}
