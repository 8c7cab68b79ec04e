//! [`PatchError`]: why a patch failed, and the Status that kube-apiserver returns for it.

use keelson_meta::status::{Details, Failure};
use keelson_meta::{Reason, Status};
use std::fmt;

/// Operations in one JSON Patch.
pub const OPERATIONS_MAX: usize = 10_000;

/// Why a patch failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchError {
    /// The body is not a patch of the requested type: 400 with the text.
    Malformed(String),
    /// A JSON Patch has this many operations, more than [`OPERATIONS_MAX`]: 413.
    TooManyOperations(usize),
    /// The patch cannot be applied to the object: 422. Like upstream, the Status does not show the
    /// text.
    Unprocessable(String),
    /// A `test` operation of a JSON Patch failed: 422.
    TestFailed(String),
    /// An error that upstream returns without a Status of its own: 500 with the text.
    Internal(String),
}

impl fmt::Display for PatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PatchError::Malformed(text)
            | PatchError::Unprocessable(text)
            | PatchError::TestFailed(text)
            | PatchError::Internal(text) => f.write_str(text),
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
                let message = "the server rejected our request due to an error in our request";
                let mut status = Status::new(Reason::Invalid, message);
                status.details = Some(Details::default());
                status
            }
            PatchError::Internal(text) => Status::new(Reason::Unknown, text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_operations_return_413() {
        let status = Failure::from(PatchError::TooManyOperations(10_001));
        let want = "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got \
                    10001";
        assert_eq!((status.code, status.message.as_str()), (413, want));
    }
}
