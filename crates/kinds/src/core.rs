//! The kinds of the core group.

pub(crate) mod claim_template;
pub(crate) mod claims;
mod config;
pub(crate) mod endpoints;
mod limits;
mod nodes;
pub(crate) mod pod;
pub(crate) mod replication;
pub mod service;

use crate::core::pod::POD_SPEC;
use crate::events;
use crate::gated_fields::{GatedField, GatedFields, gate};
use crate::row::{Deprecation, Row};
use crate::strategy::{
    Check, GarbageCollection, Generation, ResetFields, SelectableField, StatusMetadata, Strategy,
};
use keelson_meta::Feature;

const POD_FIELDS: &[SelectableField] = &[
    SelectableField::new("spec.nodeName", &[&["spec", "nodeName"]]),
    SelectableField::new("spec.restartPolicy", &[&["spec", "restartPolicy"]]),
    SelectableField::new("spec.schedulerName", &[&["spec", "schedulerName"]]),
    SelectableField::new("spec.serviceAccountName", &[&["spec", "serviceAccountName"]]),
    SelectableField {
        name: "spec.hostNetwork",
        paths: &[&["spec", "hostNetwork"]],
        unset: "false",
    },
    SelectableField::new("status.phase", &[&["status", "phase"]]),
    SelectableField::new("status.podIP", &[&["status", "podIP"]]),
    SelectableField::new("status.podIPs", &[&["status", "podIP"]]),
    SelectableField::new("status.nominatedNodeName", &[&["status", "nominatedNodeName"]]),
];

const GATED_NODE: &[GatedField] = &[gate(Feature::NodeDeclaredFeatures, &[&["declaredFeatures"]])];

/// The resources of the group.
pub(crate) const ROWS: &[Row] = &[
    Row {
        resource: "componentstatuses",
        deprecations: &[Deprecation { version: "v1", since: 19, until: None, replacement: None }],
        ..Row::PLAIN
    },
    Row {
        resource: "configmaps",
        strategy: config::config_map(Strategy {
            update_checks: &[Check::MetadataChange, Check::Change, Check::Metadata, Check::Rules],
            ..Strategy::GENERIC
        }),
        ..Row::PLAIN
    },
    Row {
        resource: "endpoints",
        strategy: endpoints::endpoints(Strategy {
            create_on_update: true,
            update_checks: &[Check::MetadataChange, Check::Metadata, Check::Rules, Check::Change],
            ..Strategy::GENERIC
        }),
        storage_prefix: "services/endpoints",
        deprecations: &[Deprecation {
            version: "v1",
            since: 33,
            until: None,
            replacement: Some("discovery.k8s.io/v1 EndpointSlice"),
        }],
        ..Row::PLAIN
    },
    Row {
        resource: "events",
        strategy: events::core(Strategy {
            create_on_update: true,
            create_checks: &[Check::Rules],
            update_checks: &[Check::Rules, Check::Change],
            standard_finalizers: false,
            expires: true,
            garbage_collection: GarbageCollection::Unsupported,
            fields: events::FIELDS,
            not_selectable: events::NOT_OF_CORE,
            ..Strategy::GENERIC
        }),
        ..Row::PLAIN
    },
    Row {
        resource: "limitranges",
        strategy: limits::limit_range(Strategy {
            create_on_update: true,
            generates_missing_name: true,
            update_checks: &[Check::Metadata, Check::Rules, Check::Change],
            ..Strategy::GENERIC
        }),
        ..Row::PLAIN
    },
    Row {
        resource: "namespaces",
        strategy: config::namespace(Strategy {
            has_content: true,
            early_preconditions: true,
            reset_fields: ResetFields::StatusEverywhere,
            update_checks: &[Check::Metadata, Check::Rules, Check::MetadataChange, Check::Change],
            fields: &[SelectableField::new("status.phase", &[&["status", "phase"]])],
            not_selectable: &["metadata.namespace"],
            ..Strategy::GENERIC
        }),
        ..Row::PLAIN
    },
    Row {
        resource: "nodes",
        strategy: nodes::node(Strategy {
            status_on_create: true,
            update_checks: &[Check::Metadata, Check::Rules, Check::MetadataChange, Check::Change],
            fields: &[SelectableField {
                name: "spec.unschedulable",
                paths: &[&["spec", "unschedulable"]],
                unset: "false",
            }],
            not_selectable: &["metadata.namespace"],
            gated_status: &[GatedFields { root: &["status"], fields: GATED_NODE }],
            ..Strategy::GENERIC
        }),
        storage_prefix: "minions",
        ..Row::PLAIN
    },
    Row {
        resource: "persistentvolumeclaims",
        strategy: claims::claim(Strategy {
            returns_deleted: true,
            update_checks: &[Check::MetadataChange, Check::Metadata, Check::Rules, Check::Change],
            ..Strategy::GENERIC
        }),
        ..Row::PLAIN
    },
    Row {
        resource: "persistentvolumes",
        strategy: claims::volume(Strategy {
            returns_deleted: true,
            update_checks: &[
                Check::Metadata,
                Check::Rules,
                Check::Metadata,
                Check::Rules,
                Check::Change,
            ],
            ..Strategy::GENERIC
        }),
        ..Row::PLAIN
    },
    Row {
        resource: "pods",
        strategy: pod::pod(Strategy {
            generation: Generation::OnSpecChange,
            returns_deleted: true,
            status_metadata: StatusMetadata::KeepOwners,
            update_checks: &[Check::MetadataChange, Check::Metadata, Check::Rules, Check::Change],
            fields: POD_FIELDS,
            gated: &[GatedFields { root: &["spec"], fields: POD_SPEC }],
            gated_status: &[GatedFields { root: &["status"], fields: pod::GATED_STATUS }],
            ..Strategy::GENERIC
        }),
        ..Row::PLAIN
    },
    Row {
        resource: "podtemplates",
        strategy: pod::pod_template(Strategy {
            generation: Generation::OnSpecChange,
            returns_deleted: true,
            gated: &[GatedFields { root: &["template", "spec"], fields: POD_SPEC }],
            ..Strategy::GENERIC
        }),
        ..Row::PLAIN
    },
    Row {
        resource: "replicationcontrollers",
        strategy: replication::replication_controller(Strategy {
            generation: Generation::OnSpecChange,
            garbage_collection: GarbageCollection::OrphanDependents,
            fields: &[SelectableField {
                name: "status.replicas",
                paths: &[&["status", "replicas"]],
                unset: "0",
            }],
            gated: &[GatedFields { root: &["spec", "template", "spec"], fields: POD_SPEC }],
            ..Strategy::GENERIC
        }),
        storage_prefix: "controllers",
        ..Row::PLAIN
    },
    Row {
        resource: "resourcequotas",
        strategy: limits::resource_quota(Strategy { returns_deleted: true, ..Strategy::GENERIC }),
        ..Row::PLAIN
    },
    Row {
        resource: "secrets",
        strategy: config::secret(Strategy {
            update_checks: &[Check::MetadataChange, Check::Change, Check::Metadata, Check::Rules],
            fields: &[SelectableField::new("type", &[&["type"]])],
            ..Strategy::GENERIC
        }),
        ..Row::PLAIN
    },
    Row {
        resource: "serviceaccounts",
        strategy: config::service_account(Strategy {
            returns_deleted: true,
            update_checks: &[Check::MetadataChange, Check::Metadata, Check::Rules, Check::Change],
            ..Strategy::GENERIC
        }),
        ..Row::PLAIN
    },
    Row {
        resource: "services",
        strategy: service::service(Strategy {
            create_on_update: true,
            returns_deleted: true,
            fields: &[
                SelectableField::new("spec.clusterIP", &[&["spec", "clusterIP"]]),
                SelectableField::new("spec.type", &[&["spec", "type"]]),
            ],
            ..Strategy::GENERIC
        }),
        storage_prefix: "services/specs",
        ..Row::PLAIN
    },
];
