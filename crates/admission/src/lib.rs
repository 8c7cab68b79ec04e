//! Admission: the plug-ins that change an object before it is stored, or refuse it.
//!
//! Built-in plug-ins ([`Chain`]) do no IO, read no clock and are not async: they see the [`Request`], and
//! read stored objects through [`Stored`]. Webhooks and policies ([`DynamicPlugIn`]) may wait: they see
//! [`Attributes`], and the API through [`Api`]. No plug-in writes.

mod admission_request;
mod always_pull_images;
mod attributes;
mod certificates;
mod chain;
mod config;
mod configurations;
mod decisions;
mod declared_features;
mod event_rate_limit;
mod extended_resource_toleration;
mod image_policy;
mod ingress_class;
mod jobs;
mod limit_ranger;
mod match_conditions;
mod metrics;
pub mod namespace_lifecycle;
mod node_restriction;
mod nodes;
mod owner_references;
mod pod;
mod pod_groups;
mod pod_node_selector;
mod pod_resize;
mod pod_security;
mod pod_toleration_restriction;
pub mod policies;
mod priority;
pub mod quota;
mod request;
mod rules;
mod runtime_class;
mod service_account;
mod small;
mod storage;
mod tolerations;
mod trust_bundle_attest;
pub mod webhooks;

pub use attributes::{Api, Attributes, Call, DynamicPlugIn, Notes, Pending, Reinvocation};
pub use chain::{Awaited, Chain, NAMESPACE_AUTO_PROVISION, NameError};
pub use config::{ConfigError, PlugInConfig};
pub use configurations::Configurations;
pub use decisions::Decisions;
pub use image_policy::{ImagePolicyConfig, ImagePolicyWebhook};
pub use match_conditions::{MatchConditions, Matched};
pub use metrics::{Metrics, Phase, Step};
pub use owner_references::OwnerReferencesPermissionEnforcement;
pub use pod::{Amounts, amounts};
pub use request::{Operation, Request, Stored};
pub use trust_bundle_attest::ClusterTrustBundleAttest;
