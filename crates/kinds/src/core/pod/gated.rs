//! The fields of pods and their templates behind feature gates.

use crate::gated_fields::{GatedField, gate};
use keelson_meta::Feature;

/// Below the spec of a pod.
pub(crate) const POD_SPEC: &[GatedField] = &[
    gate(Feature::GenericWorkload, &[&["schedulingGroup"]]),
    GatedField {
        feature: Feature::ContainerStopSignals,
        paths: &[
            &["initContainers", "*", "lifecycle", "stopSignal"],
            &["containers", "*", "lifecycle", "stopSignal"],
            &["ephemeralContainers", "*", "lifecycle", "stopSignal"],
        ],
        with_empty_parent: true,
    },
    gate(
        Feature::ClusterTrustBundleProjection,
        &[&["volumes", "*", "projected", "sources", "*", "clusterTrustBundle"]],
    ),
    gate(
        Feature::PodCertificateRequest,
        &[&["volumes", "*", "projected", "sources", "*", "podCertificate"]],
    ),
    gate(Feature::HostnameOverride, &[&["hostnameOverride"]]),
    gate(Feature::PodLevelResources, &[&["resources"]]),
    gate(
        Feature::MatchLabelKeysInPodTopologySpread,
        &[&["topologySpreadConstraints", "*", "matchLabelKeys"]],
    ),
    gate(
        Feature::EnvFiles,
        &[
            &["initContainers", "*", "env", "*", "valueFrom", "fileKeyRef"],
            &["containers", "*", "env", "*", "valueFrom", "fileKeyRef"],
            &["ephemeralContainers", "*", "env", "*", "valueFrom", "fileKeyRef"],
        ],
    ),
    gate(
        Feature::ContainerRestartRules,
        &[
            &["initContainers", "*", "restartPolicyRules"],
            &["containers", "*", "restartPolicyRules"],
            &["containers", "*", "restartPolicy"],
        ],
    ),
];

/// Below the status of a pod.
pub(crate) const GATED_STATUS: &[GatedField] = &[
    gate(Feature::DRANodeAllocatableResources, &[&["nodeAllocatableResourceClaimStatuses"]]),
    gate(Feature::DRAExtendedResource, &[&["extendedResourceClaimStatus"]]),
    gate(
        Feature::ResourceHealthStatus,
        &[
            &["initContainerStatuses", "*", "allocatedResourcesStatus"],
            &["containerStatuses", "*", "allocatedResourcesStatus"],
            &["ephemeralContainerStatuses", "*", "allocatedResourcesStatus"],
        ],
    ),
    gate(
        Feature::ResourceHealthStatusMessage,
        &[
            &[
                "initContainerStatuses",
                "*",
                "allocatedResourcesStatus",
                "*",
                "resources",
                "*",
                "message",
            ],
            &[
                "containerStatuses",
                "*",
                "allocatedResourcesStatus",
                "*",
                "resources",
                "*",
                "message",
            ],
            &[
                "ephemeralContainerStatuses",
                "*",
                "allocatedResourcesStatus",
                "*",
                "resources",
                "*",
                "message",
            ],
        ],
    ),
    gate(
        Feature::InPlacePodLevelResourcesVerticalScaling,
        &[&["resources"], &["allocatedResources"]],
    ),
    gate(
        Feature::ImageVolumeWithDigest,
        &[
            &["initContainerStatuses", "*", "volumeMounts", "*", "volumeStatus"],
            &["containerStatuses", "*", "volumeMounts", "*", "volumeStatus"],
            &["ephemeralContainerStatuses", "*", "volumeMounts", "*", "volumeStatus"],
        ],
    ),
];
