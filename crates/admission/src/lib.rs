//! Admission: plug-ins that mutate an object before it is stored, or reject it.
//!
//! Built-in plug-ins ([`Chain`]) do no IO, read no clock and are not async: they get a [`Request`],
//! and read stored objects through [`Stored`]. Webhooks and policies ([`DynamicPlugIn`]) are async:
//! they get [`Attributes`], and access the API through [`Api`]. No plug-in writes.

mod admission_request;
mod attributes;
mod chain;
mod config;
mod configurations;
mod decisions;
mod dynamic;
mod exempt;
mod match_conditions;
mod metrics;
mod plug_in;
mod plug_ins;
pub mod policies;
mod reinvocation;
mod request;
mod rules;
pub mod webhooks;

pub use attributes::{Api, Attributes, BoxFuture, Call, DynamicPlugIn, Recorder};
pub use chain::{Chain, NameError};
pub use config::{ConfigError, ImagePolicyConfig, PlugInConfig};
pub use configurations::Configurations;
pub use decisions::Decisions;
pub use dynamic::dynamic_plug_ins;
pub use match_conditions::{MatchConditions, Matched};
pub use metrics::{AdmissionStep, Metrics, Phase};
pub use plug_ins::{
    Amounts, AwaitedDependency, ClusterTrustBundleAttest, ImagePolicyWebhook,
    NAMESPACE_AUTO_PROVISION, OwnerReferencesPermissionEnforcement, amounts, namespace_lifecycle,
    quota,
};
pub use reinvocation::{PolicyRounds, Reinvocation, WebhookRounds};
pub use request::{Operation, Request, Stored};
