//! Admission policies in CEL: the plug-ins [`ValidatingPolicies`] and [`MutatingPolicies`].

mod dispatch_context;
mod matched_resource;
mod matching;
mod mutating;
mod params;
mod patch;
mod validating;

pub use mutating::MutatingPolicies;
pub use validating::ValidatingPolicies;
