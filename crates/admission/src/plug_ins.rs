//! The built-in plug-ins. Each handles a few kinds and may name them.

mod always_pull_images;
mod certificates;
mod declared_features;
pub(crate) mod event_rate_limit;
mod extended_resource_toleration;
pub(crate) mod image_policy;
mod ingress_class;
mod jobs;
mod limit_ranger;
pub mod namespace_lifecycle;
mod node_restriction;
mod nodes;
mod owner_references;
mod pod;
mod pod_groups;
mod pod_node_selector;
mod pod_resize;
pub(crate) mod pod_security;
mod pod_toleration_restriction;
mod priority;
mod priority_classes;
pub mod quota;
mod runtime_class;
mod service_account;
mod small;
mod storage;
mod tolerations;
mod trust_bundle_attest;

pub use image_policy::ImagePolicyWebhook;
pub use owner_references::OwnerReferencesPermissionEnforcement;
pub use pod::{Amounts, amounts};
pub use trust_bundle_attest::ClusterTrustBundleAttest;

use crate::plug_in::{
    ALL, CONNECT, CREATE, DELETE, PlugIn, UPDATE, WRITE, both, dynamic, mutates, nothing, validates,
};
use crate::request::Request;
use keelson_auth::User;
use keelson_meta::{GroupVersionResource, Object};

/// The plug-in that creates missing namespaces; the registry implements it, because plug-ins do not
/// write.
pub const NAMESPACE_AUTO_PROVISION: &str = "NamespaceAutoProvision";

/// The plug-ins that evaluate policies.
pub(crate) const MUTATING_POLICIES: &str = "MutatingAdmissionPolicy";
pub(crate) const VALIDATING_POLICIES: &str = "ValidatingAdmissionPolicy";

/// All plug-ins of kube-apiserver in its order (`pkg/kubeapiserver/options/plugins.go`).
pub(crate) static PLUG_INS: [PlugIn; 41] = [
    nothing("AlwaysAdmit", false, ALL, ALL),
    nothing(NAMESPACE_AUTO_PROVISION, false, CREATE, 0),
    both(
        namespace_lifecycle::NAME,
        namespace_lifecycle::admit,
        namespace_lifecycle::validate,
        WRITE | DELETE,
    )
    .counted_as_mutating(),
    validates("NamespaceExists", small::namespace_exists, WRITE | DELETE).off_by_default(),
    validates("LimitPodHardAntiAffinityTopology", small::limit_anti_affinity, WRITE)
        .off_by_default(),
    both("LimitRanger", limit_ranger::admit, limit_ranger::validate, WRITE),
    both(service_account::NAME, service_account::admit, service_account::validate, WRITE),
    both(
        node_restriction::NAME,
        node_restriction::admit,
        node_restriction::validate,
        WRITE | DELETE,
    )
    .counted_as_mutating(),
    mutates("TaintNodesByCondition", nodes::taint_new, CREATE),
    both("AlwaysPullImages", always_pull_images::admit, always_pull_images::validate, WRITE)
        .off_by_default(),
    dynamic(image_policy::NAME, false, 0, WRITE),
    validates("PodSecurity", pod_security::validate, WRITE),
    both("PodNodeSelector", pod_node_selector::admit, pod_node_selector::validate, CREATE)
        .off_by_default(),
    both("Priority", priority::admit, priority::validate, WRITE | DELETE),
    mutates("DefaultTolerationSeconds", tolerations::add_defaults, WRITE),
    both(
        "PodTolerationRestriction",
        pod_toleration_restriction::admit,
        pod_toleration_restriction::validate,
        WRITE,
    )
    .off_by_default(),
    validates("EventRateLimit", event_rate_limit::validate, WRITE).off_by_default(),
    mutates("ExtendedResourceToleration", extended_resource_toleration::admit, WRITE)
        .off_by_default(),
    mutates("DefaultStorageClass", storage::set_default_class, CREATE),
    mutates("StorageObjectInUseProtection", storage::protect, CREATE),
    mutates("PodGroupProtection", pod_groups::protect, CREATE),
    dynamic(owner_references::NAME, false, 0, WRITE),
    validates("PersistentVolumeClaimResize", storage::validate_resize, UPDATE),
    both("RuntimeClass", runtime_class::admit, runtime_class::validate, CREATE),
    nothing("CertificateApproval", true, 0, UPDATE),
    nothing("CertificateSigning", true, 0, UPDATE),
    dynamic(trust_bundle_attest::NAME, true, 0, WRITE),
    validates("CertificateSubjectRestriction", certificates::validate_subject, CREATE),
    mutates("DefaultIngressClass", ingress_class::set_default, CREATE),
    validates("DenyServiceExternalIPs", small::deny_external_ips, WRITE).off_by_default(),
    mutates("PodTopologyLabels", nodes::copy_topology, CREATE),
    validates("PodGroupWorkloadExists", pod_groups::check_workload, CREATE),
    validates("NodeDeclaredFeatureValidator", declared_features::validate, UPDATE),
    validates("JobValidation", jobs::validate, UPDATE),
    validates("PodResizeValidator", pod_resize::validate, UPDATE),
    dynamic(MUTATING_POLICIES, true, WRITE | CONNECT, 0),
    dynamic("MutatingAdmissionWebhook", true, ALL, 0),
    dynamic(VALIDATING_POLICIES, true, 0, ALL),
    dynamic("ValidatingAdmissionWebhook", true, 0, ALL),
    nothing(quota::NAME, true, 0, WRITE),
    both("AlwaysDeny", small::deny_mutation, small::deny, ALL).off_by_default(),
];

/// Returns whether kube-apiserver has a plug-in with this name.
pub(crate) fn is_plug_in(name: &str) -> bool {
    PLUG_INS.iter().any(|plug_in| plug_in.name == name)
}

/// Returns whether plug-ins read objects other than the namespace for a resource.
pub(crate) fn reads_other_objects(gvr: &GroupVersionResource) -> bool {
    matches!(
        (gvr.group.as_str(), gvr.resource.as_str()),
        ("", "pods" | "persistentvolumeclaims")
            | ("networking.k8s.io", "ingresses")
            | ("scheduling.k8s.io", "priorityclasses")
    )
}

/// Returns the plug-in that rejects reviews of a user, with the reason.
pub(crate) fn review_rejection(user: &User) -> Option<(&'static str, String)> {
    node_restriction::node_rejection(user).map(|why| (node_restriction::NAME, why))
}

/// Returns an object that the request requires and a control loop is about to create.
pub(crate) fn awaited_dependency(req: &Request<'_>, obj: &Object) -> Option<AwaitedDependency> {
    service_account::awaited_dependency(req, obj)
}

/// An object in the request's namespace that a control loop is about to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AwaitedDependency {
    /// The plug-in that requires it.
    pub plug_in: &'static str,
    /// Its group.
    pub group: &'static str,
    /// Its resource.
    pub resource: &'static str,
    /// Its name.
    pub name: &'static str,
}
