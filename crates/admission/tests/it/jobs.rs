//! JobValidation; the messages are those of a kube-apiserver 1.36 with GenericWorkload and
//! GangScheduling.

use crate::{World, admit, object};
use keelson_meta::{Feature, Value, value};

fn job(parallelism: i64, group: &str) -> Value {
    let group = if group.is_empty() { value!({}) } else { value!({"podGroupName": (group)}) };
    value!({"metadata": {"name": "j", "namespace": "n", "uid": "u"}, "spec": {
        "parallelism": (parallelism), "template": {"spec": {"schedulingGroup": (group)}}
    }})
}

fn pod_group(name: &str, policy: Value, controller: &str) -> Value {
    value!({"metadata": {"name": (name), "namespace": "n", "ownerReferences": [
        {"kind": "Job", "name": "j", "uid": (controller), "controller": true}
    ]}, "spec": {"schedulingPolicy": (policy)}})
}

fn gang() -> Value {
    value!({"gang": {"minCount": 2}})
}

fn with_group(group: Value) -> World {
    let world = World::new().feature(Feature::GenericWorkload);
    world.with("scheduling.k8s.io", "podgroups", group)
}

/// Returns the message about an update from parallelism 2 to another.
fn update(world: &World, path: &str, group: &str, parallelism: i64) -> String {
    let old = object(job(2, group));
    let result = admit(world, path, job(parallelism, group), Some(&old));
    result.err().unwrap_or_default()
}

const JOBS: &str = "batch/jobs";
const REJECTED: &str = "jobs.batch \"j\" is forbidden: cannot change parallelism for a Job referencing \
                       gang-scheduled PodGroup \"g\"";

#[test]
fn parallelism_is_fixed_when_the_pod_group_of_the_template_is_a_gang() {
    let world = with_group(pod_group("g", gang(), "other"));
    assert_eq!(update(&world, JOBS, "g", 3), REJECTED);
    assert_eq!(update(&world, JOBS, "g", 2), "", "it did not change");
    assert_eq!(update(&world, JOBS, "gone", 3), "", "there is no such PodGroup");
    assert_eq!(update(&world, "batch/jobs/status", "g", 3), "", "a subresource");
    let world = with_group(pod_group("g", value!({"basic": {}}), "other"));
    assert_eq!(update(&world, JOBS, "g", 3), "", "the PodGroup is no gang");
}

#[test]
fn parallelism_is_fixed_when_the_job_controls_a_gang() {
    let world = with_group(pod_group("g", gang(), "u"));
    assert_eq!(update(&world, JOBS, "", 3), REJECTED);
    assert_eq!(update(&world, JOBS, "gone", 3), "", "only the PodGroup of the template counts");
    let world = with_group(pod_group("g", gang(), "another job"));
    assert_eq!(update(&world, JOBS, "", 3), "");
}

#[test]
fn parallelism_may_change_without_generic_workload() {
    let world = World::new().with("scheduling.k8s.io", "podgroups", pod_group("g", gang(), "u"));
    assert_eq!(update(&world, JOBS, "g", 3), "");
    assert_eq!(update(&world, JOBS, "", 3), "");
}
