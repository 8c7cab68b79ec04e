//! The pods of a Job.

use super::facts::{FINALIZER, INDEX, INDEX_FAILURES, INDEX_IGNORED};
use super::state::State;
use keelson_meta::{Map, Object, Value, value};

/// The environment variable with the completion index.
const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";
/// Maximum length of a generated name without its random part.
const NAME_PREFIX_BYTES_MAX: usize = 58;

/// Completes a pod of the template: it gets the finalizer, and its index if the Job has indexes.
pub(super) fn complete(mut pod: Object, job: &Object, state: &State, index: Option<i64>) -> Object {
    add_finalizer(&mut pod);
    let Some(index) = index else { return pod };
    let number = index.to_string();
    let metadata = pod.metadata_mut();
    metadata.insert("generateName", index_prefix(job.name(), index));
    metadata.object_at("labels").insert(INDEX, number.as_str());
    let annotations = metadata.object_at("annotations");
    annotations.insert(INDEX, number.as_str());
    if state.spec.backoff_limit_per_index.is_some() {
        let replaced = state.replaced(index);
        let (counted, ignored) = replaced.map_or((0, 0), |pod| pod.index_failures_with_it());
        annotations.insert(INDEX_FAILURES, counted.to_string());
        if ignored > 0 {
            annotations.insert(INDEX_IGNORED, ignored.to_string());
        }
    }
    let spec = pod.object_mut("spec");
    spec.insert("hostname", format!("{}-{index}", job.name()));
    for name in ["initContainers", "containers"] {
        let containers = spec.get_mut(name).and_then(Value::as_array_mut);
        containers.into_iter().flatten().filter_map(Value::as_object_mut).for_each(add_variable);
    }
    pod
}

fn add_finalizer(pod: &mut Object) {
    if pod.finalizers().any(|one| one == FINALIZER) {
        return;
    }
    let finalizers = pod.metadata_mut().entry_or("finalizers", || Value::Array(vec![]));
    finalizers.as_array_mut().into_iter().for_each(|all| all.push(FINALIZER.into()));
}

fn add_variable(container: &mut Map) {
    let variables = container.entry_or("env", || Value::Array(vec![]));
    let Some(variables) = variables.as_array_mut() else { return };
    if variables.iter().any(|one| one.str_at(&["name"]) == Some(INDEX_VARIABLE)) {
        return;
    }
    let path = format!("metadata.labels['{INDEX}']");
    variables.push(value!({"name": INDEX_VARIABLE,
        "valueFrom": {"fieldRef": {"fieldPath": (path)}}}));
}

/// Returns the prefix of the names of the pods of an index. A long name is cut before the index.
fn index_prefix(job: &str, index: i64) -> String {
    let suffix = format!("-{index}-");
    let length = job.len().min(NAME_PREFIX_BYTES_MAX - suffix.len());
    format!("{}{suffix}", job.get(..length).unwrap_or(job))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_before_the_index() {
        assert_eq!(index_prefix("a", 7), "a-7-");
        assert_eq!(index_prefix(&"a".repeat(63), 12), format!("{}-12-", "a".repeat(54)));
    }

    #[test]
    fn containers_get_the_index_once() {
        let mut container = value!({"name": "c"});
        let map = container.as_object_mut().expect("a map");
        add_variable(map);
        add_variable(map);
        let variable = value!([{"name": INDEX_VARIABLE, "valueFrom": {"fieldRef": {
            "fieldPath": "metadata.labels['batch.kubernetes.io/job-completion-index']"}}}]);
        assert_eq!(container.get("env"), Some(&variable));
    }
}
