//! [`StartError`].

use keelson_builtin::OpenError;

/// The reason why a server did not start, in one line. It begins with the flag that is wrong, if
/// any.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct StartError(pub(crate) String);

impl StartError {
    pub(crate) fn new(line: String) -> Self {
        StartError(line)
    }
}

impl From<OpenError> for StartError {
    fn from(error: OpenError) -> Self {
        StartError(with_causes(&error))
    }
}

/// Formats an error with its causes in one line.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |line, cause| format!("{line}: {cause}"))
}
