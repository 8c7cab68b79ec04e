//! Requests that webhooks or policies do not see. The kinds that configure them are the only ones
//! that the webhook and policy code names.

use keelson_meta::{GroupVersionKind, GroupVersionResource};

/// The group of the kinds that configure webhooks and policies.
pub(crate) const GROUP: &str = "admissionregistration.k8s.io";
/// Names of resources in [`GROUP`].
pub(crate) const MUTATING_WEBHOOKS: &str = "mutatingwebhookconfigurations";
pub(crate) const VALIDATING_WEBHOOKS: &str = "validatingwebhookconfigurations";
/// Policies and bindings, in the order of [`Configurations`](crate::Configurations).
pub(crate) const POLICIES: [&str; 4] = [
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
];

const KINDS: [&str; 6] = [
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
];

/// Review resources, which store nothing.
const REVIEWS: [(&str, &str); 6] = [
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
];

/// Returns whether webhooks do not see requests to a kind: otherwise a failing webhook could not be
/// removed.
pub(crate) fn from_webhooks(kind: &GroupVersionKind) -> bool {
    kind.group == GROUP && KINDS.contains(&kind.kind.as_str())
}

/// Returns whether policies do not see requests to a resource: otherwise a policy that rejects
/// everything could not be removed.
pub(crate) fn from_policies(resource: &GroupVersionResource) -> bool {
    let group = resource.group.as_str();
    let resource = resource.resource.as_str();
    (group == GROUP && POLICIES.contains(&resource)) || REVIEWS.contains(&(group, resource))
}
