//! The requests that webhooks or policies are not asked about. The kinds that configure them are the only ones
//! that this machinery knows by name.

use keelson_meta::{GroupVersionKind, GroupVersionResource};

/// The group of the kinds that configure webhooks and policies.
pub(crate) const GROUP: &str = "admissionregistration.k8s.io";
/// Names of resources in [`GROUP`].
pub(crate) const MUTATING_WEBHOOKS: &str = "mutatingwebhookconfigurations";
pub(crate) const VALIDATING_WEBHOOKS: &str = "validatingwebhookconfigurations";
/// Policies and bindings, in the order in which [`Configurations`](crate::Configurations) follows them.
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

/// Review resources, which write nothing.
const REVIEWS: [(&str, &str); 6] = [
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
];

/// Whether webhooks never see requests to a kind: else a failing webhook could not be removed.
pub(crate) fn from_webhooks(kind: &GroupVersionKind) -> bool {
    kind.group == GROUP && KINDS.contains(&kind.kind.as_str())
}

/// Whether policies are not asked about requests to a resource: else a policy that refuses everything could not be
/// removed.
pub(crate) fn from_policies(resource: &GroupVersionResource) -> bool {
    let (group, resource) = (resource.group.as_str(), resource.resource.as_str());
    (group == GROUP && POLICIES.contains(&resource)) || REVIEWS.contains(&(group, resource))
}
