//! [`WriteFailure`]: why an object was not stored, for the steps of the verbs that branch on it.

use keelson_meta::{Failure, Overgrown};

/// Why an object was not stored. Each variant has the `Status` that the client receives.
#[derive(Debug)]
pub(crate) enum WriteFailure {
    /// The object is certainly not stored: a step refused it, or the store did.
    NotStored(Failure),
    /// Shared resources (addresses, ports) could not be allocated. Upstream allocates before it
    /// returns any warning.
    NotAllocated(Failure),
    /// The store failed the write. It is not visible, but may be found stored when the store is
    /// opened again.
    Failed(Failure),
    /// The object may be stored: a second try could apply the change twice.
    Unknown(Failure),
}

impl WriteFailure {
    /// Whether the object is certainly not stored.
    pub fn is_certain(&self) -> bool {
        match self {
            WriteFailure::NotStored(_) | WriteFailure::NotAllocated(_) => true,
            WriteFailure::Failed(_) | WriteFailure::Unknown(_) => false,
        }
    }
}

impl From<Failure> for WriteFailure {
    fn from(failure: Failure) -> WriteFailure {
        WriteFailure::NotStored(failure)
    }
}

impl From<Overgrown> for WriteFailure {
    fn from(error: Overgrown) -> WriteFailure {
        WriteFailure::NotStored(error.into())
    }
}

impl From<WriteFailure> for Failure {
    fn from(failure: WriteFailure) -> Failure {
        match failure {
            WriteFailure::NotStored(failure)
            | WriteFailure::NotAllocated(failure)
            | WriteFailure::Failed(failure)
            | WriteFailure::Unknown(failure) => failure,
        }
    }
}
