//! Admission policies in CEL: the plug-ins that evaluate the policies that are stored ([`ValidatingPolicies`], [`MutatingPolicies`]).

mod matching;
mod mutating;
mod params;
mod patch;
mod round;
mod seen;
mod validating;

pub use mutating::MutatingPolicies;
pub use validating::ValidatingPolicies;
