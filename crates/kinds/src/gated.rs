//! Fields that need a feature gate. While the gate is off, a write loses them, unless the stored
//! object uses one of them already: what was written while the gate was on stays.

use crate::gates;
use keelson_meta::Feature::{self, *};
use keelson_meta::{Map, Object, Value};

/// A place in an object; `*` is each item of a list or entry of a map.
type Place = &'static [&'static str];

/// The fields of a gate.
#[derive(Clone, Copy, Debug)]
pub struct Gated {
    feature: Feature,
    /// From the root of [`Fields`].
    places: &'static [Place],
    /// A struct that is left without members goes too.
    with_empty_parent: bool,
}

/// The gated fields below a place of an object.
#[derive(Clone, Copy, Debug)]
pub struct Fields {
    root: Place,
    rows: &'static [Gated],
}

const fn row(feature: Feature, places: &'static [Place]) -> Gated {
    Gated { feature, places, with_empty_parent: false }
}

/// The gated fields that writes to a resource set; `is_status` for those to its status.
pub(crate) fn of(group: &str, resource: &str, is_status: bool) -> &'static [Fields] {
    match (group, resource, is_status) {
        ("", "pods", false) => &[Fields { root: &["spec"], rows: POD_SPEC }],
        ("", "pods", true) => &[Fields { root: &["status"], rows: POD_STATUS }],
        ("", "podtemplates", false) => &[Fields { root: &["template", "spec"], rows: POD_SPEC }],
        ("apps", "statefulsets", false) => &[
            Fields { root: &["spec", "template", "spec"], rows: POD_SPEC },
            Fields { root: &["spec"], rows: STATEFUL_SET },
        ],
        ("batch", "cronjobs", false) => {
            &[Fields { root: &["spec", "jobTemplate", "spec", "template", "spec"], rows: POD_SPEC }]
        }
        ("apps", "deployments" | "replicasets" | "daemonsets", false)
        | ("", "replicationcontrollers", false)
        | ("batch", "jobs", false) => {
            &[Fields { root: &["spec", "template", "spec"], rows: POD_SPEC }]
        }
        ("apps", "deployments" | "replicasets", true) => {
            &[Fields { root: &["status"], rows: REPLICAS }]
        }
        ("autoscaling", _, false) => &[Fields { root: &["spec"], rows: AUTOSCALER }],
        ("storage.k8s.io", "csidrivers", false) => &[Fields { root: &["spec"], rows: CSI_DRIVER }],
        ("coordination.k8s.io", "leases", false) => &[Fields { root: &["spec"], rows: LEASE }],
        ("", "nodes", true) => &[Fields { root: &["status"], rows: NODE }],
        ("resource.k8s.io", "deviceclasses", false) => {
            &[Fields { root: &["spec"], rows: DEVICE_CLASS }]
        }
        ("resource.k8s.io", "resourceclaims", false) => {
            &[Fields { root: &["spec", "devices"], rows: DEVICE_REQUESTS }]
        }
        ("resource.k8s.io", "resourceclaims", true) => {
            &[Fields { root: &["status"], rows: CLAIM_STATUS }]
        }
        ("resource.k8s.io", "resourceclaimtemplates", false) => {
            &[Fields { root: &["spec", "spec", "devices"], rows: DEVICE_REQUESTS }]
        }
        ("resource.k8s.io", "resourceslices", false) => {
            &[Fields { root: &["spec"], rows: RESOURCE_SLICE }]
        }
        ("scheduling.k8s.io", "podgroups", false) => &[Fields { root: &["spec"], rows: POD_GROUP }],
        ("scheduling.k8s.io", "workloads", false) => &[Fields { root: &["spec"], rows: WORKLOAD }],
        _ => &[],
    }
}

/// Drops what a write may not set.
pub(crate) fn drop_disabled(fields: &[Fields], new: &mut Object, old: Option<&Object>) {
    for Fields { root, rows } in fields {
        for row in *rows {
            if gates::is_on(row.feature) {
                continue;
            }
            let before = old.and_then(|old| old.at(root));
            if before.is_some_and(|old| row.places.iter().any(|place| has(old, place))) {
                continue;
            }
            if let Some(at) = find(&mut new.root, root) {
                for place in row.places {
                    remove(at, place, row.with_empty_parent);
                }
            }
        }
    }
}

fn find<'m>(map: &'m mut Map, place: &[&str]) -> Option<&'m mut Map> {
    let Some((name, rest)) = place.split_first() else { return Some(map) };
    find(map.get_mut(name)?.as_object_mut()?, rest)
}

/// Whether something stands at a place.
fn has(value: &Value, place: &[&str]) -> bool {
    match place.split_first() {
        None => !value.is_null(),
        Some((&"*", rest)) => match value {
            Value::Array(items) => items.iter().any(|item| has(item, rest)),
            Value::Object(map) => map.iter().any(|(_, value)| has(value, rest)),
            _ => false,
        },
        Some((name, rest)) => value.get(name).is_some_and(|value| has(value, rest)),
    }
}

/// Removes what stands at a place; says whether there was something.
fn remove(map: &mut Map, place: &[&str], with_empty_parent: bool) -> bool {
    let [name, rest @ ..] = place else { return false };
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

const POD_SPEC: &[Gated] = &[
    row(GenericWorkload, &[&["schedulingGroup"]]),
    Gated {
        feature: ContainerStopSignals,
        places: &[
            &["initContainers", "*", "lifecycle", "stopSignal"],
            &["containers", "*", "lifecycle", "stopSignal"],
            &["ephemeralContainers", "*", "lifecycle", "stopSignal"],
        ],
        with_empty_parent: true,
    },
    row(
        ClusterTrustBundleProjection,
        &[&["volumes", "*", "projected", "sources", "*", "clusterTrustBundle"]],
    ),
    row(PodCertificateRequest, &[&["volumes", "*", "projected", "sources", "*", "podCertificate"]]),
    row(HostnameOverride, &[&["hostnameOverride"]]),
    row(PodLevelResources, &[&["resources"]]),
    row(
        MatchLabelKeysInPodTopologySpread,
        &[&["topologySpreadConstraints", "*", "matchLabelKeys"]],
    ),
    row(
        EnvFiles,
        &[
            &["initContainers", "*", "env", "*", "valueFrom", "fileKeyRef"],
            &["containers", "*", "env", "*", "valueFrom", "fileKeyRef"],
            &["ephemeralContainers", "*", "env", "*", "valueFrom", "fileKeyRef"],
        ],
    ),
    row(
        ContainerRestartRules,
        &[
            &["initContainers", "*", "restartPolicyRules"],
            &["containers", "*", "restartPolicyRules"],
            &["containers", "*", "restartPolicy"],
        ],
    ),
];

const POD_STATUS: &[Gated] = &[
    row(DRANodeAllocatableResources, &[&["nodeAllocatableResourceClaimStatuses"]]),
    row(DRAExtendedResource, &[&["extendedResourceClaimStatus"]]),
    row(
        ResourceHealthStatus,
        &[
            &["initContainerStatuses", "*", "allocatedResourcesStatus"],
            &["containerStatuses", "*", "allocatedResourcesStatus"],
            &["ephemeralContainerStatuses", "*", "allocatedResourcesStatus"],
        ],
    ),
    row(
        ImageVolumeWithDigest,
        &[
            &["initContainerStatuses", "*", "volumeMounts", "*", "volumeStatus"],
            &["containerStatuses", "*", "volumeMounts", "*", "volumeStatus"],
            &["ephemeralContainerStatuses", "*", "volumeMounts", "*", "volumeStatus"],
        ],
    ),
];

const STATEFUL_SET: &[Gated] =
    &[row(MaxUnavailableStatefulSet, &[&["updateStrategy", "rollingUpdate", "maxUnavailable"]])];

const REPLICAS: &[Gated] =
    &[row(DeploymentReplicaSetTerminatingReplicas, &[&["terminatingReplicas"]])];

const AUTOSCALER: &[Gated] = &[row(
    HPAConfigurableTolerance,
    &[&["behavior", "scaleUp", "tolerance"], &["behavior", "scaleDown", "tolerance"]],
)];

const CSI_DRIVER: &[Gated] = &[row(VolumeLimitScaling, &[&["preventPodSchedulingIfMissing"]])];

const LEASE: &[Gated] = &[row(CoordinatedLeaderElection, &[&["strategy"], &["preferredHolder"]])];

const NODE: &[Gated] = &[row(NodeDeclaredFeatures, &[&["declaredFeatures"]])];

const DEVICE_CLASS: &[Gated] = &[row(DRAExtendedResource, &[&["extendedResourceName"]])];

const DEVICE_REQUESTS: &[Gated] = &[
    row(DRAPrioritizedList, &[&["requests", "*", "firstAvailable"]]),
    row(
        DRADeviceTaints,
        &[
            &["requests", "*", "exactly", "tolerations"],
            &["requests", "*", "firstAvailable", "*", "tolerations"],
        ],
    ),
    row(
        DRAConsumableCapacity,
        &[
            &["constraints", "*", "distinctAttribute"],
            &["requests", "*", "exactly", "capacity"],
            &["requests", "*", "firstAvailable", "*", "capacity"],
        ],
    ),
];

const CLAIM_STATUS: &[Gated] = &[
    row(DRAResourceClaimDeviceStatus, &[&["devices"]]),
    row(
        DRADeviceBindingConditions,
        &[
            &["allocation", "devices", "results", "*", "bindingConditions"],
            &["allocation", "devices", "results", "*", "bindingFailureConditions"],
        ],
    ),
    row(
        DRAConsumableCapacity,
        &[
            &["allocation", "devices", "results", "*", "shareID"],
            &["allocation", "devices", "results", "*", "consumedCapacity"],
            &["devices", "*", "shareID"],
        ],
    ),
];

const RESOURCE_SLICE: &[Gated] = &[
    row(DRADeviceTaints, &[&["devices", "*", "taints"]]),
    row(
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
    row(
        DRADeviceBindingConditions,
        &[
            &["devices", "*", "bindsToNode"],
            &["devices", "*", "bindingConditions"],
            &["devices", "*", "bindingFailureConditions"],
        ],
    ),
    row(
        DRAConsumableCapacity,
        &[
            &["devices", "*", "allowMultipleAllocations"],
            &["devices", "*", "capacity", "*", "requestPolicy"],
        ],
    ),
    row(DRANodeAllocatableResources, &[&["devices", "*", "nodeAllocatableResourceMappings"]]),
    row(
        DRAListTypeAttributes,
        &[
            &["devices", "*", "attributes", "*", "bools"],
            &["devices", "*", "attributes", "*", "ints"],
            &["devices", "*", "attributes", "*", "strings"],
            &["devices", "*", "attributes", "*", "versions"],
        ],
    ),
];

const POD_GROUP: &[Gated] = &[
    row(TopologyAwareWorkloadScheduling, &[&["schedulingConstraints"]]),
    row(WorkloadAwarePreemption, &[&["disruptionMode"], &["priority"], &["priorityClassName"]]),
    row(DRAWorkloadResourceClaims, &[&["resourceClaims"]]),
];

const WORKLOAD: &[Gated] = &[
    row(TopologyAwareWorkloadScheduling, &[&["podGroupTemplates", "*", "schedulingConstraints"]]),
    row(
        WorkloadAwarePreemption,
        &[
            &["podGroupTemplates", "*", "disruptionMode"],
            &["podGroupTemplates", "*", "priority"],
            &["podGroupTemplates", "*", "priorityClassName"],
        ],
    ),
    row(DRAWorkloadResourceClaims, &[&["podGroupTemplates", "*", "resourceClaims"]]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::{Features, value};

    #[track_caller]
    fn check(of: (&str, &str), features: Features, new: Value, old: Option<Value>, want: Value) {
        let object = |value| Object::from_value(value).expect("a map");
        let (mut new, old) = (object(new), old.map(object));
        gates::within(features, || {
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
