//! Admission webhooks: the configurations, and the plug-ins that call them
//! (apiserver `admission/plugin/webhook`).

mod call;
mod conversion;
mod invocation;
mod matching;
mod mutating;
pub(crate) mod post;
pub(crate) mod response;
mod review;
mod validating;

pub use conversion::{ConversionError, ConversionWebhook, ConversionWebhooks, ConvertedObjects};
pub use mutating::MutatingWebhooks;
pub use validating::ValidatingWebhooks;
