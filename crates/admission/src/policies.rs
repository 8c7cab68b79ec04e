//! Admission policies in CEL: the policies and bindings that are stored ([`PolicySet`]), and the plug-ins
//! that evaluate them ([`ValidatingPolicies`], [`MutatingPolicies`]).

mod hooks;
mod matching;
mod mutating;
mod params;
mod patch;
mod policy;
mod round;
mod validating;

pub use mutating::{MutatingPolicies, Rounds};
pub use validating::ValidatingPolicies;

use crate::attributes::Attributes;
use hooks::Kinds;
use keelson_auth::Change;

/// The group of policies and bindings.
const GROUP: &str = "admissionregistration.k8s.io";

/// Resources exempt from policies: else a policy that refuses everything could not be removed.
const POLICY_RESOURCES: [&str; 4] = [
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
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

/// The policies and bindings that are stored.
#[derive(Clone, Debug, Default)]
pub struct PolicySet {
    validating: Kinds,
    mutating: Kinds,
}

impl PolicySet {
    /// Whether no policy has a binding.
    pub fn is_empty(&self) -> bool {
        self.validating.hooks().is_empty() && self.mutating.hooks().is_empty()
    }

    /// Takes in a change of a policy or binding of `resource`.
    pub(crate) fn apply(&mut self, resource: &str, change: Change) {
        let is_binding = resource.ends_with("bindings");
        let kinds = match resource.starts_with("mutating") {
            true => &mut self.mutating,
            false => &mut self.validating,
        };
        kinds.apply(is_binding, change);
    }
}

/// Whether policies are asked about requests to this resource at all.
fn is_exempt(attributes: &Attributes<'_>) -> bool {
    let (group, resource) = (&*attributes.resource.group, &*attributes.resource.resource);
    (group == GROUP && POLICY_RESOURCES.contains(&resource)) || REVIEWS.contains(&(group, resource))
}
