//! Fields behind feature gates. While its gate is off, a field is dropped from writes unless the stored object
//! already uses it.

use crate::gates;
use keelson_meta::Feature::{self, *};
use keelson_meta::{Map, Object, Value};

/// A path in an object; `*` stands for every item of a list or entry of a map.
type FieldPath = &'static [&'static str];

/// The fields of one feature gate.
#[derive(Clone, Copy, Debug)]
pub struct GatedField {
    feature: Feature,
    /// From the root of [`GatedFields`].
    paths: &'static [FieldPath],
    /// Whether to remove a parent that becomes empty too.
    with_empty_parent: bool,
}

/// The gated fields below one path of an object.
#[derive(Clone, Copy, Debug)]
pub struct GatedFields {
    root: FieldPath,
    fields: &'static [GatedField],
}

const fn gate(feature: Feature, paths: &'static [FieldPath]) -> GatedField {
    GatedField { feature, paths, with_empty_parent: false }
}

/// Returns the gated fields of a resource, or of its status.
pub(crate) fn of(group: &str, resource: &str, is_status: bool) -> &'static [GatedFields] {
    match (group, resource, is_status) {
        ("", "pods", false) => &[GatedFields { root: &["spec"], fields: POD_SPEC }],
        ("", "pods", true) => &[GatedFields { root: &["status"], fields: POD_STATUS }],
        ("", "podtemplates", false) => {
            &[GatedFields { root: &["template", "spec"], fields: POD_SPEC }]
        }
        ("apps", "statefulsets", false) => &[
            GatedFields { root: &["spec", "template", "spec"], fields: POD_SPEC },
            GatedFields { root: &["spec"], fields: STATEFUL_SET },
        ],
        ("batch", "cronjobs", false) => &[GatedFields {
            root: &["spec", "jobTemplate", "spec", "template", "spec"],
            fields: POD_SPEC,
        }],
        ("apps", "deployments" | "replicasets" | "daemonsets", false)
        | ("", "replicationcontrollers", false)
        | ("batch", "jobs", false) => {
            &[GatedFields { root: &["spec", "template", "spec"], fields: POD_SPEC }]
        }
        ("apps", "deployments" | "replicasets", true) => {
            &[GatedFields { root: &["status"], fields: REPLICAS }]
        }
        ("autoscaling", _, false) => &[GatedFields { root: &["spec"], fields: AUTOSCALER }],
        ("storage.k8s.io", "csidrivers", false) => {
            &[GatedFields { root: &["spec"], fields: CSI_DRIVER }]
        }
        ("coordination.k8s.io", "leases", false) => {
            &[GatedFields { root: &["spec"], fields: LEASE }]
        }
        ("", "nodes", true) => &[GatedFields { root: &["status"], fields: NODE }],
        ("resource.k8s.io", "deviceclasses", false) => {
            &[GatedFields { root: &["spec"], fields: DEVICE_CLASS }]
        }
        ("resource.k8s.io", "resourceclaims", false) => {
            &[GatedFields { root: &["spec", "devices"], fields: DEVICE_REQUESTS }]
        }
        ("resource.k8s.io", "resourceclaims", true) => {
            &[GatedFields { root: &["status"], fields: CLAIM_STATUS }]
        }
        ("resource.k8s.io", "resourceclaimtemplates", false) => {
            &[GatedFields { root: &["spec", "spec", "devices"], fields: DEVICE_REQUESTS }]
        }
        ("resource.k8s.io", "resourceslices", false) => {
            &[GatedFields { root: &["spec"], fields: RESOURCE_SLICE }]
        }
        ("scheduling.k8s.io", "podgroups", false) => {
            &[GatedFields { root: &["spec"], fields: POD_GROUP }]
        }
        ("scheduling.k8s.io", "workloads", false) => {
            &[GatedFields { root: &["spec"], fields: WORKLOAD }]
        }
        _ => &[],
    }
}

/// Drops the fields whose gate is off, unless the stored object uses one of the gate's fields.
pub(crate) fn drop_disabled(fields: &[GatedFields], new: &mut Object, old: Option<&Object>) {
    for GatedFields { root, fields } in fields {
        for field in *fields {
            if gates::is_on(field.feature) {
                continue;
            }
            let before = old.and_then(|old| old.at(root));
            if before.is_some_and(|old| field.paths.iter().any(|path| has(old, path))) {
                continue;
            }
            if let Some(at) = find(&mut new.root, root) {
                for path in field.paths {
                    remove(at, path, field.with_empty_parent);
                }
            }
        }
    }
}

fn find<'m>(map: &'m mut Map, path: &[&str]) -> Option<&'m mut Map> {
    let Some((name, rest)) = path.split_first() else { return Some(map) };
    find(map.get_mut(name)?.as_object_mut()?, rest)
}

/// Returns whether there is a value at a path.
fn has(value: &Value, path: &[&str]) -> bool {
    match path.split_first() {
        None => !value.is_null(),
        Some((&"*", rest)) => match value {
            Value::Array(items) => items.iter().any(|item| has(item, rest)),
            Value::Object(map) => map.iter().any(|(_, value)| has(value, rest)),
            _ => false,
        },
        Some((name, rest)) => value.get(name).is_some_and(|value| has(value, rest)),
    }
}

/// Removes the value at a path. Returns whether there was one.
fn remove(map: &mut Map, path: &[&str], with_empty_parent: bool) -> bool {
    let [name, rest @ ..] = path else { return false };
    if rest.is_empty() {
        return map.remove(name).is_some();
    }
    let Some(value) = map.get_mut(name) else { return false };
    let removed = match (value, rest) {
        (Value::Array(items), ["*", rest @ ..]) => {
            let maps = items.iter_mut().filter_map(Value::as_object_mut);
            maps.fold(false, |any, map| remove(map, rest, with_empty_parent) | any)
        }
        (Value::Object(map), ["*", rest @ ..]) => {
            let maps = map.iter_mut().filter_map(|(_, value)| value.as_object_mut());
            maps.fold(false, |any, map| remove(map, rest, with_empty_parent) | any)
        }
        (Value::Object(map), rest) => remove(map, rest, with_empty_parent),
        _ => false,
    };
    if removed && with_empty_parent && rest.len() == 1 && map.get(name).is_some_and(Value::is_empty)
    {
        map.remove(name);
    }
    removed
}

const POD_SPEC: &[GatedField] = &[
    gate(GenericWorkload, &[&["schedulingGroup"]]),
    GatedField {
        feature: ContainerStopSignals,
        paths: &[
            &["initContainers", "*", "lifecycle", "stopSignal"],
            &["containers", "*", "lifecycle", "stopSignal"],
            &["ephemeralContainers", "*", "lifecycle", "stopSignal"],
        ],
        with_empty_parent: true,
    },
    gate(
        ClusterTrustBundleProjection,
        &[&["volumes", "*", "projected", "sources", "*", "clusterTrustBundle"]],
    ),
    gate(
        PodCertificateRequest,
        &[&["volumes", "*", "projected", "sources", "*", "podCertificate"]],
    ),
    gate(HostnameOverride, &[&["hostnameOverride"]]),
    gate(PodLevelResources, &[&["resources"]]),
    gate(
        MatchLabelKeysInPodTopologySpread,
        &[&["topologySpreadConstraints", "*", "matchLabelKeys"]],
    ),
    gate(
        EnvFiles,
        &[
            &["initContainers", "*", "env", "*", "valueFrom", "fileKeyRef"],
            &["containers", "*", "env", "*", "valueFrom", "fileKeyRef"],
            &["ephemeralContainers", "*", "env", "*", "valueFrom", "fileKeyRef"],
        ],
    ),
    gate(
        ContainerRestartRules,
        &[
            &["initContainers", "*", "restartPolicyRules"],
            &["containers", "*", "restartPolicyRules"],
            &["containers", "*", "restartPolicy"],
        ],
    ),
];

const POD_STATUS: &[GatedField] = &[
    gate(DRANodeAllocatableResources, &[&["nodeAllocatableResourceClaimStatuses"]]),
    gate(DRAExtendedResource, &[&["extendedResourceClaimStatus"]]),
    gate(
        ResourceHealthStatus,
        &[
            &["initContainerStatuses", "*", "allocatedResourcesStatus"],
            &["containerStatuses", "*", "allocatedResourcesStatus"],
            &["ephemeralContainerStatuses", "*", "allocatedResourcesStatus"],
        ],
    ),
    gate(
        ImageVolumeWithDigest,
        &[
            &["initContainerStatuses", "*", "volumeMounts", "*", "volumeStatus"],
            &["containerStatuses", "*", "volumeMounts", "*", "volumeStatus"],
            &["ephemeralContainerStatuses", "*", "volumeMounts", "*", "volumeStatus"],
        ],
    ),
];

const STATEFUL_SET: &[GatedField] =
    &[gate(MaxUnavailableStatefulSet, &[&["updateStrategy", "rollingUpdate", "maxUnavailable"]])];

const REPLICAS: &[GatedField] =
    &[gate(DeploymentReplicaSetTerminatingReplicas, &[&["terminatingReplicas"]])];

const AUTOSCALER: &[GatedField] = &[gate(
    HPAConfigurableTolerance,
    &[&["behavior", "scaleUp", "tolerance"], &["behavior", "scaleDown", "tolerance"]],
)];

const CSI_DRIVER: &[GatedField] =
    &[gate(VolumeLimitScaling, &[&["preventPodSchedulingIfMissing"]])];

const LEASE: &[GatedField] =
    &[gate(CoordinatedLeaderElection, &[&["strategy"], &["preferredHolder"]])];

const NODE: &[GatedField] = &[gate(NodeDeclaredFeatures, &[&["declaredFeatures"]])];

const DEVICE_CLASS: &[GatedField] = &[gate(DRAExtendedResource, &[&["extendedResourceName"]])];

const DEVICE_REQUESTS: &[GatedField] = &[
    gate(DRAPrioritizedList, &[&["requests", "*", "firstAvailable"]]),
    gate(
        DRADeviceTaints,
        &[
            &["requests", "*", "exactly", "tolerations"],
            &["requests", "*", "firstAvailable", "*", "tolerations"],
        ],
    ),
    gate(
        DRAConsumableCapacity,
        &[
            &["constraints", "*", "distinctAttribute"],
            &["requests", "*", "exactly", "capacity"],
            &["requests", "*", "firstAvailable", "*", "capacity"],
        ],
    ),
];

const CLAIM_STATUS: &[GatedField] = &[
    gate(DRAResourceClaimDeviceStatus, &[&["devices"]]),
    gate(
        DRADeviceBindingConditions,
        &[
            &["allocation", "devices", "results", "*", "bindingConditions"],
            &["allocation", "devices", "results", "*", "bindingFailureConditions"],
        ],
    ),
    gate(
        DRAConsumableCapacity,
        &[
            &["allocation", "devices", "results", "*", "shareID"],
            &["allocation", "devices", "results", "*", "consumedCapacity"],
            &["devices", "*", "shareID"],
        ],
    ),
];

const RESOURCE_SLICE: &[GatedField] = &[
    gate(DRADeviceTaints, &[&["devices", "*", "taints"]]),
    gate(
        DRAPartitionableDevices,
        &[
            &["perDeviceNodeSelection"],
            &["sharedCounters"],
            &["devices", "*", "consumesCounters"],
            &["devices", "*", "nodeName"],
            &["devices", "*", "nodeSelector"],
            &["devices", "*", "allNodes"],
        ],
    ),
    gate(
        DRADeviceBindingConditions,
        &[
            &["devices", "*", "bindsToNode"],
            &["devices", "*", "bindingConditions"],
            &["devices", "*", "bindingFailureConditions"],
        ],
    ),
    gate(
        DRAConsumableCapacity,
        &[
            &["devices", "*", "allowMultipleAllocations"],
            &["devices", "*", "capacity", "*", "requestPolicy"],
        ],
    ),
    gate(DRANodeAllocatableResources, &[&["devices", "*", "nodeAllocatableResourceMappings"]]),
    gate(
        DRAListTypeAttributes,
        &[
            &["devices", "*", "attributes", "*", "bools"],
            &["devices", "*", "attributes", "*", "ints"],
            &["devices", "*", "attributes", "*", "strings"],
            &["devices", "*", "attributes", "*", "versions"],
        ],
    ),
];

const POD_GROUP: &[GatedField] = &[
    gate(TopologyAwareWorkloadScheduling, &[&["schedulingConstraints"]]),
    gate(WorkloadAwarePreemption, &[&["disruptionMode"], &["priority"], &["priorityClassName"]]),
    gate(DRAWorkloadResourceClaims, &[&["resourceClaims"]]),
];

const WORKLOAD: &[GatedField] = &[
    gate(TopologyAwareWorkloadScheduling, &[&["podGroupTemplates", "*", "schedulingConstraints"]]),
    gate(
        WorkloadAwarePreemption,
        &[
            &["podGroupTemplates", "*", "disruptionMode"],
            &["podGroupTemplates", "*", "priority"],
            &["podGroupTemplates", "*", "priorityClassName"],
        ],
    ),
    gate(DRAWorkloadResourceClaims, &[&["podGroupTemplates", "*", "resourceClaims"]]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::{Features, value};

    #[track_caller]
    fn check(of: (&str, &str), features: Features, new: Value, old: Option<Value>, want: Value) {
        let object = |value| Object::from_value(value).expect("a map");
        let (mut new, old) = (object(new), old.map(object));
        let gates = gates::Gates { features, allows_privileged: true };
        gates::within(gates, || {
            drop_disabled(super::of(of.0, of.1, false), &mut new, old.as_ref());
        });
        assert_eq!(Value::Object(new.root), want);
    }

    #[test]
    fn fields_without_their_gate_are_dropped_unless_the_stored_object_uses_them() {
        let pod =
            |stop: Value| value!({"spec": {"containers": [{"name": "a", "lifecycle": (stop)}]}});
        let (signal, both) =
            (value!({"stopSignal": "SIGTERM"}), value!({"stopSignal": "SIGTERM", "preStop": {}}));
        let without = value!({"spec": {"containers": [{"name": "a"}]}});
        let (off, pods) = (Features::default(), ("", "pods"));
        let on = off.with(ContainerStopSignals, true);
        check(pods, off, pod(signal.clone()), None, without.clone());
        check(pods, off, pod(both.clone()), None, pod(value!({"preStop": {}})));
        check(pods, off, pod(signal.clone()), Some(without.clone()), without.clone());
        check(pods, off, pod(signal.clone()), Some(pod(both)), pod(signal.clone()));
        check(pods, on, pod(signal.clone()), None, pod(signal));
        let class = value!({"spec": {"extendedResourceName": "example.com/a"}});
        let classes = ("resource.k8s.io", "deviceclasses");
        check(classes, off, class.clone(), None, class.clone());
        let off = off.with(DRAExtendedResource, false);
        check(classes, off, class.clone(), None, value!({"spec": {}}));
        check(classes, off, class.clone(), Some(class.clone()), class);
    }
}
