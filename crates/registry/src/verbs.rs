//! The verbs. Each file has one verb, and one function that contains its steps in order.

pub(crate) mod bodies;
pub mod create;
pub mod delete;
pub mod get;
pub mod list;
pub(crate) mod pace;
pub mod patch;
mod retry_budget;
pub mod update;
pub mod watch;

pub use retry_budget::RetryBudget;

use crate::options::{FieldValidation, strict_warnings};
use crate::target::Answer;
use keelson_meta::status::quote;
use keelson_meta::{Failure, Status, Str};
use keelson_schema::Schema;
use keelson_schema::decode::Decoded;

/// The response to a write.
#[derive(Clone, Debug)]
pub struct WriteResponse {
    /// The new state of the object.
    pub answer: Answer,
    /// Texts of Warning headers.
    pub warnings: Vec<Str>,
    /// Whether the object was created.
    pub created: bool,
}

/// Handles unknown and duplicate fields as the request asks: ignores them, returns warnings, or
/// refuses.
pub(crate) fn check_fields(
    decoded: &Decoded,
    validation: FieldValidation,
    refuse: impl FnOnce(String) -> Failure,
) -> Result<Vec<Str>, Failure> {
    if decoded.strict_errors.is_empty() {
        return Ok(vec![]);
    }
    match validation {
        FieldValidation::Ignore => Ok(vec![]),
        FieldValidation::Warn => Ok(strict_warnings(&decoded.strict_errors)),
        FieldValidation::Strict => {
            Err(refuse(format!("strict decoding error: {}", decoded.strict_errors.join(", "))))
        }
    }
}

/// Like [`check_fields`], for the body of a create or an update.
pub fn check_body_fields(
    schema: &Schema,
    body: &Decoded,
    validation: FieldValidation,
) -> Result<Vec<Str>, Failure> {
    let gvk = &schema.gvk;
    check_fields(body, validation, |why| {
        Status::bad_request(format!(
            "{} in version {} cannot be handled as a {}: {why}",
            gvk.kind,
            quote(&gvk.version),
            gvk.kind
        ))
    })
}
