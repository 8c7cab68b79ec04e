//! The strategies and selectable fields of the built-in resources.

use crate::strategy::{Check, Generation, SelectableField, StatusMetadata, Strategy};
use crate::{
    admission, api_services, autoscaling, batch, certificates, claims, config, coordination, csi,
    definitions, devices, endpoints, events, flow, gated_fields, limits, migration, networking,
    nodes, pod, policies, rbac, scheduling, service, storage, workloads,
};
use keelson_meta::Features;
use keelson_meta::status::quote;

const fn field(name: &'static str, paths: &'static [&'static [&'static str]]) -> SelectableField {
    SelectableField { name, paths, unset: "" }
}

const POD: &[SelectableField] = &[
    field("spec.nodeName", &[&["spec", "nodeName"]]),
    field("spec.restartPolicy", &[&["spec", "restartPolicy"]]),
    field("spec.schedulerName", &[&["spec", "schedulerName"]]),
    field("spec.serviceAccountName", &[&["spec", "serviceAccountName"]]),
    SelectableField {
        name: "spec.hostNetwork",
        paths: &[&["spec", "hostNetwork"]],
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
    field("regarding.kind", &[&["involvedObject", "kind"]]),
    field("regarding.namespace", &[&["involvedObject", "namespace"]]),
    field("regarding.name", &[&["involvedObject", "name"]]),
    field("regarding.uid", &[&["involvedObject", "uid"]]),
    field("regarding.apiVersion", &[&["involvedObject", "apiVersion"]]),
    field("regarding.resourceVersion", &[&["involvedObject", "resourceVersion"]]),
    field("regarding.fieldPath", &[&["involvedObject", "fieldPath"]]),
    field("reportingController", &[&["reportingComponent"]]),
    field("reason", &[&["reason"]]),
    field("reportingComponent", &[&["reportingComponent"], &["reportingController"]]),
    field("source", &[&["source", "component"], &["reportingComponent"]]),
    field("type", &[&["type"]]),
];

/// Events of both groups are the same stored objects, with all fields; selectors know those of a group.
const NOT_OF_CORE_EVENTS: &[&str] = &["regarding.", "reportingController"];
const NOT_OF_NEW_EVENTS: &[&str] = &["involvedObject.", "reportingComponent", "source"];

const REPLICAS: &[SelectableField] =
    &[SelectableField { name: "status.replicas", paths: &[&["status", "replicas"]], unset: "0" }];

const SERVICE: &[SelectableField] =
    &[field("spec.clusterIP", &[&["spec", "clusterIP"]]), field("spec.type", &[&["spec", "type"]])];

const SECRET: &[SelectableField] = &[field("type", &[&["type"]])];

const JOB: &[SelectableField] = &[SelectableField {
    name: "status.successful",
    paths: &[&["status", "succeeded"]],
    unset: "0",
}];

const SIGNING_REQUEST: &[SelectableField] = &[field("spec.signerName", &[&["spec", "signerName"]])];

const RESOURCE_SLICE: &[SelectableField] = &[
    field("spec.nodeName", &[&["spec", "nodeName"]]),
    field("spec.driver", &[&["spec", "driver"]]),
];

/// Returns the strategy of a built-in resource with these feature gates.
pub fn strategy(group: &str, resource: &str, features: Features) -> Strategy {
    let generation = generation(group, resource);
    let base = Strategy {
        generation,
        features,
        gated: gated_fields::of(group, resource, false),
        gated_status: gated_fields::of(group, resource, true),
        ..Strategy::GENERIC
    };
    let base = Strategy {
        create_on_update: creates_on_update(group, resource),
        returns_deleted: returns_deleted(group, resource),
        unconditional_update: updates_unconditionally(group, resource),
        status_metadata: status_metadata(group, resource),
        update_checks: update_checks(group, resource),
        status_checks: status_checks(group, resource),
        create_checks: create_checks(group, resource),
        standard_finalizers: has_standard_finalizers(group, resource),
        not_selectable: not_selectable(group, resource),
        selector_error: selector_error(group, resource),
        ..base
    };
    match group {
        "" => core_kind(resource, base),
        "apps" | "batch" | "autoscaling" | "policy" => workload_kind(resource, base),
        "networking.k8s.io" | "discovery.k8s.io" => network_kind(resource, base),
        "storage.k8s.io" => storage_kind(resource, base),
        "admissionregistration.k8s.io" => admission_kind(resource, base),
        "rbac.authorization.k8s.io" => role_kind(resource, base),
        "resource.k8s.io" => device_kind(resource, base),
        _ => other_kind(resource, base),
    }
}

/// Returns the fields, or beginnings of fields, that selectors of a resource do not know.
fn not_selectable(group: &str, resource: &str) -> &'static [&'static str] {
    match (group, resource) {
        ("", "events") => NOT_OF_CORE_EVENTS,
        ("events.k8s.io", "events") => NOT_OF_NEW_EVENTS,
        ("", "namespaces" | "nodes")
        | ("certificates.k8s.io", "certificatesigningrequests")
        | ("resource.k8s.io", "resourceslices") => &["metadata.namespace"],
        _ => &[],
    }
}

/// Returns what makes the error for an unknown field, where it is not one of the common ones.
fn selector_error(group: &str, resource: &str) -> Option<fn(&str) -> String> {
    match (group, resource) {
        ("batch", "jobs") => {
            Some(|field| format!("field label {} not supported for Job", quote(field)))
        }
        ("resource.k8s.io", "resourceslices") => Some(|field| {
            let kind = "resource.k8s.io/v1, Kind=ResourceSlice";
            format!("field label not supported for {kind}: {field}")
        }),
        _ => None,
    }
}

fn core_kind(resource: &str, base: Strategy) -> Strategy {
    match resource {
        "pods" => Strategy { fields: POD, ..pod::pod(base) },
        "podtemplates" => pod::pod_template(base),
        "services" => Strategy { fields: SERVICE, ..service::service(base) },
        "endpoints" => endpoints::endpoints(base),
        "replicationcontrollers" => {
            Strategy { fields: REPLICAS, ..workloads::replication_controller(base) }
        }
        "configmaps" => config::config_map(base),
        "secrets" => Strategy { fields: SECRET, ..config::secret(base) },
        "serviceaccounts" => config::service_account(base),
        "limitranges" => limits::limit_range(base),
        "resourcequotas" => limits::resource_quota(base),
        "namespaces" => config::namespace(base),
        "nodes" => nodes::node(base),
        "persistentvolumes" => claims::volume(base),
        "persistentvolumeclaims" => claims::claim(base),
        "events" => Strategy { fields: EVENT, ..events::core(base) },
        _ => base,
    }
}

fn workload_kind(resource: &str, base: Strategy) -> Strategy {
    match resource {
        "deployments" => workloads::deployment(base),
        "replicasets" => workloads::replica_set(base),
        "daemonsets" => workloads::daemon_set(base),
        "statefulsets" => workloads::stateful_set(base),
        "controllerrevisions" => workloads::controller_revision(base),
        "jobs" => Strategy { fields: JOB, ..batch::job(base) },
        "cronjobs" => batch::cron_job(base),
        "horizontalpodautoscalers" => autoscaling::autoscaler(base),
        "poddisruptionbudgets" => autoscaling::disruption_budget(base),
        _ => base,
    }
}

fn network_kind(resource: &str, base: Strategy) -> Strategy {
    match resource {
        "ingresses" => networking::ingress(base),
        "ingressclasses" => networking::class(base),
        "networkpolicies" => networking::policy(base),
        "ipaddresses" => networking::address(base),
        "servicecidrs" => networking::service_range(base),
        "endpointslices" => endpoints::slice(base),
        _ => base,
    }
}

fn storage_kind(resource: &str, base: Strategy) -> Strategy {
    match resource {
        "storageclasses" => storage::class(base),
        "csidrivers" => csi::driver(base),
        "volumeattachments" => storage::attachment(base),
        "csistoragecapacities" => storage::capacity(base),
        "volumeattributesclasses" => storage::attributes_class(base),
        "csinodes" => csi::node(base),
        _ => base,
    }
}

fn admission_kind(resource: &str, base: Strategy) -> Strategy {
    match resource {
        "validatingwebhookconfigurations" => admission::validating_webhooks(base),
        "mutatingwebhookconfigurations" => admission::mutating_webhooks(base),
        "validatingadmissionpolicies" => admission::validating_policy(base),
        "mutatingadmissionpolicies" => admission::mutating_policy(base),
        "validatingadmissionpolicybindings" => admission::binding(base, false),
        _ => admission::binding(base, true),
    }
}

fn role_kind(resource: &str, base: Strategy) -> Strategy {
    match resource {
        "roles" => rbac::role(base, true),
        "clusterroles" => rbac::role(base, false),
        "rolebindings" => rbac::binding(base, true),
        _ => rbac::binding(base, false),
    }
}

fn device_kind(resource: &str, base: Strategy) -> Strategy {
    match resource {
        "deviceclasses" => devices::class(base),
        "devicetaintrules" => devices::taint_rule(base),
        "resourcepoolstatusrequests" => devices::pool_status(base),
        "resourceclaims" => devices::claim(base),
        "resourceclaimtemplates" => devices::claim_template(base),
        "resourceslices" => Strategy { fields: RESOURCE_SLICE, ..devices::slice(base) },
        _ => base,
    }
}

fn other_kind(resource: &str, base: Strategy) -> Strategy {
    match resource {
        "events" => Strategy { fields: EVENT, ..events::events(base) },
        "certificatesigningrequests" => {
            Strategy { fields: SIGNING_REQUEST, ..certificates::signing_request(base) }
        }
        "priorityclasses" => policies::priority_class(base),
        "runtimeclasses" => policies::runtime_class(base),
        "leases" => coordination::lease(base),
        "leasecandidates" => coordination::candidate(base),
        "clustertrustbundles" => certificates::bundle(base),
        "podcertificaterequests" => certificates::pod_request(base),
        "podgroups" => scheduling::pod_group(base),
        "workloads" => scheduling::workload(base),
        "storageversionmigrations" => migration::migration(base),
        "customresourcedefinitions" => Strategy {
            validate_last: Some(crate::expressions::validate_definition),
            ..definitions::definition(base)
        },
        "apiservices" => api_services::api_service(base),
        "flowschemas" => flow::flow_schema(base),
        "prioritylevelconfigurations" => policies::priority_level(base),
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
            | ("networking.k8s.io", "ingresses" | "ingressclasses")
            | ("flowcontrol.apiserver.k8s.io", _)
            | ("admissionregistration.k8s.io", _)
            | ("apiextensions.k8s.io", _)
            | ("resource.k8s.io", "resourceslices" | "deviceclasses")
    );
    match (group, resource) {
        ("discovery.k8s.io", _) => return Generation::OnSpecOrLabelChange,
        ("apps", "deployments") => return Generation::OnSpecOrAnnotationChange,
        ("scheduling.k8s.io", "priorityclasses") => return Generation::First,
        ("networking.k8s.io", "networkpolicies")
        | (
            "admissionregistration.k8s.io",
            "validatingwebhookconfigurations" | "mutatingwebhookconfigurations",
        ) => return Generation::OnSpecChangeStrict,
        _ => {}
    }
    if counts { Generation::OnSpecChange } else { Generation::Unused }
}

fn creates_on_update(group: &str, resource: &str) -> bool {
    matches!(
        (group, resource),
        ("", "endpoints" | "events" | "limitranges" | "services")
            | ("events.k8s.io", "events")
            | ("coordination.k8s.io", "leases")
            | ("node.k8s.io", "runtimeclasses")
            | ("rbac.authorization.k8s.io", _)
    )
}

/// Returns whether DELETE returns the object, as upstream's OpenAPI documents.
fn returns_deleted(group: &str, resource: &str) -> bool {
    matches!(
        (group, resource),
        ("", "persistentvolumes" | "persistentvolumeclaims" | "pods" | "podtemplates")
            | ("", "resourcequotas" | "serviceaccounts" | "services")
            | ("resource.k8s.io", _)
            | ("storage.k8s.io", "csidrivers" | "csinodes" | "storageclasses")
            | ("storage.k8s.io", "volumeattachments" | "volumeattributesclasses")
    )
}

fn updates_unconditionally(group: &str, resource: &str) -> bool {
    !matches!(
        (group, resource),
        ("coordination.k8s.io", _)
            | ("internal.apiserver.k8s.io" | "storagemigration.k8s.io", _)
            | ("apiregistration.k8s.io", _)
            | ("apiextensions.k8s.io", _)
            | ("admissionregistration.k8s.io", _)
            | ("node.k8s.io", _)
            | ("storage.k8s.io", "csidrivers" | "csinodes" | "csistoragecapacities")
            | ("storage.k8s.io", "volumeattachments")
            | ("policy", "poddisruptionbudgets")
    )
}

/// Returns the validation steps of a create. Some kinds leave metadata to the generic validation of the server.
fn create_checks(group: &str, resource: &str) -> &'static [Check] {
    match (group, resource) {
        ("", "events") | ("policy", _) => &[Check::Rules],
        ("events.k8s.io", _) => &[Check::Rules, Check::Metadata, Check::Change],
        _ => Strategy::GENERIC.create_checks,
    }
}

fn update_checks(group: &str, resource: &str) -> &'static [Check] {
    use Check::{Change, Metadata, MetadataChange, Rules};
    match (group, resource) {
        ("resource.k8s.io", "resourceslices") => Strategy::GENERIC.update_checks,
        ("resource.k8s.io", "deviceclasses") => &[Metadata, MetadataChange, Rules, Change],
        ("", "configmaps" | "secrets")
        | ("networking.k8s.io", "ingressclasses")
        | ("storage.k8s.io", "volumeattributesclasses") => {
            &[MetadataChange, Change, Metadata, Rules]
        }
        ("", "endpoints" | "pods" | "persistentvolumeclaims")
        | ("", "serviceaccounts")
        | ("apps", "controllerrevisions")
        | ("networking.k8s.io", "ingresses") => &[MetadataChange, Metadata, Rules, Change],
        ("", "namespaces" | "nodes")
        | ("batch", "jobs")
        | ("certificates.k8s.io" | "rbac.authorization.k8s.io" | "resource.k8s.io", _)
        | ("node.k8s.io" | "storagemigration.k8s.io", _)
        | ("storage.k8s.io", "csistoragecapacities" | "storageclasses") => {
            &[Metadata, Rules, MetadataChange, Change]
        }
        ("", "persistentvolumes") => &[Metadata, Rules, Metadata, Rules, Change],
        ("apiregistration.k8s.io", _) => &[MetadataChange, Metadata, Rules],
        ("", "limitranges")
        | ("admissionregistration.k8s.io" | "discovery.k8s.io", _)
        | ("flowcontrol.apiserver.k8s.io", _)
        | ("storage.k8s.io", "csinodes" | "volumeattachments") => &[Metadata, Rules, Change],
        ("", "events") | ("policy", _) => &[Rules, Change],
        ("events.k8s.io", _) => &[Rules, MetadataChange, Change],
        _ => Strategy::GENERIC.update_checks,
    }
}

fn status_checks(group: &str, resource: &str) -> &'static [Check] {
    use Check::{Metadata, MetadataChange, Rules};
    match (group, resource) {
        ("batch", "cronjobs") | ("policy" | "admissionregistration.k8s.io", _) => &[Rules],
        ("certificates.k8s.io", _) => &[Metadata, Rules, MetadataChange],
        ("flowcontrol.apiserver.k8s.io", _) | ("storage.k8s.io", "volumeattachments") => {
            &[Metadata, Rules]
        }
        _ => Strategy::GENERIC.status_checks,
    }
}

fn has_standard_finalizers(group: &str, resource: &str) -> bool {
    !matches!(
        (group, resource),
        ("", "events")
            | ("admissionregistration.k8s.io" | "node.k8s.io", _)
            | ("coordination.k8s.io", "leases")
    )
}

fn status_metadata(group: &str, resource: &str) -> StatusMetadata {
    match (group, resource) {
        ("apps", "deployments") => StatusMetadata::KeepLabels,
        ("", "pods") => StatusMetadata::KeepOwners,
        ("apiregistration.k8s.io", _) => StatusMetadata::KeepUserFields,
        ("flowcontrol.apiserver.k8s.io", _) => StatusMetadata::KeepAll,
        ("certificates.k8s.io", "podcertificaterequests")
        | ("scheduling.k8s.io" | "storagemigration.k8s.io", _)
        | ("resource.k8s.io", _)
        | ("networking.k8s.io", "servicecidrs")
        | ("admissionregistration.k8s.io", _)
        | ("storage.k8s.io", "volumeattachments") => StatusMetadata::Keep,
        _ => StatusMetadata::Free,
    }
}
