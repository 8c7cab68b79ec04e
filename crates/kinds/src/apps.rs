//! The kinds of `apps`.

mod workloads;

pub(crate) use workloads::{at_most_100_percent, count_or_percent};

use crate::core::pod::POD_SPEC;
use crate::gated_fields::{GatedField, GatedFields, gate};
use crate::row::Row;
use crate::strategy::{Check, Generation, StatusMetadata, Strategy};
use keelson_meta::{Feature, Object, Value};
use workloads::{controller_revision, daemon_set, deployment, replica_set, stateful_set};

const GATED_STATEFUL_SET: &[GatedField] = &[gate(
    Feature::MaxUnavailableStatefulSet,
    &[&["updateStrategy", "rollingUpdate", "maxUnavailable"]],
)];

const GATED_REPLICAS: &[GatedField] =
    &[gate(Feature::DeploymentReplicaSetTerminatingReplicas, &[&["terminatingReplicas"]])];

/// The object of a bookmark is an empty one of upstream's internal type, whose replicas are a
/// number.
fn no_replicas(obj: &mut Object) {
    obj.object_mut("spec").insert("replicas", 0);
}

/// Likewise, the generation of the template is a number, which is an annotation in this version.
fn no_template_generation(obj: &mut Object) {
    let metadata = obj.metadata_mut();
    let given = metadata.get("annotations").and_then(Value::as_object);
    let mut annotations = given.cloned().unwrap_or_default();
    annotations.insert("deprecated.daemonset.template.generation", "0");
    metadata.insert("annotations", annotations);
}

/// The resources of the group.
pub(crate) const ROWS: &[Row] = &[
    Row {
        resource: "controllerrevisions",
        strategy: controller_revision(Strategy {
            update_checks: &[Check::MetadataChange, Check::Metadata, Check::Rules, Check::Change],
            has_raw_extension: true,
            ..Strategy::GENERIC
        }),
        ..Row::PLAIN
    },
    Row {
        resource: "daemonsets",
        strategy: daemon_set(Strategy {
            fill_bookmark: Some(no_template_generation),
            generation: Generation::OnSpecChange,
            gated: &[GatedFields { root: &["spec", "template", "spec"], fields: POD_SPEC }],
            ..Strategy::GENERIC
        }),
        ..Row::PLAIN
    },
    Row {
        resource: "deployments",
        strategy: deployment(Strategy {
            fill_bookmark: Some(no_replicas),
            generation: Generation::OnSpecOrAnnotationChange,
            status_metadata: StatusMetadata::KeepLabels,
            gated: &[GatedFields { root: &["spec", "template", "spec"], fields: POD_SPEC }],
            gated_status: &[GatedFields { root: &["status"], fields: GATED_REPLICAS }],
            ..Strategy::GENERIC
        }),
        ..Row::PLAIN
    },
    Row {
        resource: "replicasets",
        strategy: replica_set(Strategy {
            fill_bookmark: Some(no_replicas),
            generation: Generation::OnSpecChange,
            gated: &[GatedFields { root: &["spec", "template", "spec"], fields: POD_SPEC }],
            gated_status: &[GatedFields { root: &["status"], fields: GATED_REPLICAS }],
            ..Strategy::GENERIC
        }),
        ..Row::PLAIN
    },
    Row {
        resource: "statefulsets",
        strategy: stateful_set(Strategy {
            fill_bookmark: Some(no_replicas),
            generation: Generation::OnSpecChange,
            gated: &[
                GatedFields { root: &["spec", "template", "spec"], fields: POD_SPEC },
                GatedFields { root: &["spec"], fields: GATED_STATEFUL_SET },
            ],
            ..Strategy::GENERIC
        }),
        ..Row::PLAIN
    },
];
