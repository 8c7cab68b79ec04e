//! [`PatchError`]: why a patch was refused, and the Status that a kube-apiserver answers with.

use keelson_meta::status::{Details, Failure};
use keelson_meta::{Reason, Status};
use std::fmt;

/// Operations in one patch.
pub const OPERATIONS_MAX: usize = 10_000;

/// Why a patch was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchError {
    /// The body is not a patch of its kind: 400 with the text.
    Malformed(String),
    /// A JSON Patch of this many operations: 413.
    TooManyOperations(usize),
    /// The patch does not fit the object: 422. Upstream hides the text from the client.
    Unprocessable(String),
    /// A `test` operation found another value: 422 too.
    TestFailed(String),
    /// What upstream answers with a bare error: 500 with the text.
    Bare(String),
}

impl fmt::Display for PatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PatchError::Malformed(text)
            | PatchError::Unprocessable(text)
            | PatchError::TestFailed(text)
            | PatchError::Bare(text) => f.write_str(text),
            PatchError::TooManyOperations(count) => write!(
                f,
                "The allowed maximum operations in a JSON patch is {}, got {count}",
                OPERATIONS_MAX
            ),
        }
    }
}

impl std::error::Error for PatchError {}

impl From<PatchError> for Failure {
    fn from(error: PatchError) -> Failure {
        match &error {
            PatchError::Malformed(text) => Status::bad_request(text),
            PatchError::TooManyOperations(_) => {
                Status::too_large(format!("Request entity too large: {error}"))
            }
            PatchError::Unprocessable(_) | PatchError::TestFailed(_) => {
                let hidden = "the server rejected our request due to an error in our request";
                let mut status = Status::new(Reason::Invalid, hidden);
                status.details = Some(Details::default());
                status
            }
            PatchError::Bare(text) => Status::new(Reason::Unknown, text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_operations_are_an_entity_too_large() {
        let status = Failure::from(PatchError::TooManyOperations(10_001));
        let want = "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got \
                    10001";
        assert_eq!((status.code, status.message.as_str()), (413, want));
    }
}
