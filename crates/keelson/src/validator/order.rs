//! What is stored before manifests are checked, because others depend on it, and in which order.

use super::ValidatorInput;
use keelson_meta::{GroupVersion, Str, Value};
use std::collections::HashSet;

/// The step in which definitions are stored. They are served after it.
pub const DEFINITIONS: usize = 0;

/// Kinds that admission or validation of other objects reads, in the order in which they are
/// stored. Policies come last, so that they do not refuse what is stored here before its own
/// verdict.
const STEPS: &[&[(&str, &str)]] = &[
    &[("apiextensions.k8s.io", "CustomResourceDefinition")],
    &[
        ("", "LimitRange"),
        ("", "ServiceAccount"),
        ("networking.k8s.io", "IngressClass"),
        ("node.k8s.io", "RuntimeClass"),
        ("scheduling.k8s.io", "PriorityClass"),
        ("storage.k8s.io", "StorageClass"),
    ],
    &[
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
    ],
    &[
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
    ],
];
/// The step in which the parameters of policies are stored.
const PARAMETERS: usize = 1;

/// Group and kind.
pub type GroupKind = (Str, Str);

fn group_kind(value: &Value) -> GroupKind {
    let group =
        value.str_at(&["apiVersion"]).and_then(GroupVersion::parse).unwrap_or_default().group;
    (group, value.str_at(&["kind"]).unwrap_or_default().into())
}

/// Returns the step in which an object is stored; `None`: nothing depends on it.
pub fn step(value: &Value, parameters: &HashSet<GroupKind>) -> Option<usize> {
    let of = group_kind(value);
    let is_of = |(group, kind): &(&str, &str)| of.0 == *group && of.1 == *kind;
    let step = STEPS.iter().position(|kinds| kinds.iter().any(is_of));
    step.or_else(|| parameters.contains(&of).then_some(PARAMETERS))
}

/// Returns the kinds of the parameters of the policies among these objects.
pub fn parameter_kinds(given: &[ValidatorInput<'_>]) -> HashSet<GroupKind> {
    let kinds = given.iter().filter_map(|one| one.value.at(&["spec", "paramKind"]));
    kinds.map(group_kind).collect()
}

/// Whether an object is a namespace.
pub fn is_namespace(value: &Value) -> bool {
    group_kind(value) == (Str::default(), Str::new_static("Namespace"))
}
