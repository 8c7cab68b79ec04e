//! The errors that clients compare: texts and codes of etcd (`rpctypes`), and those of limits that
//! etcd does not have.

use keelson_store::{ReadError, WriteError};
use tonic::{Code, Status};

/// Why a request was not done.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum EtcdError {
    #[error("etcdserver: key is not provided")]
    EmptyKey,
    #[error("etcdserver: key not found")]
    KeyNotFound,
    #[error("etcdserver: value is provided")]
    ValueProvided,
    #[error("etcdserver: lease is provided")]
    LeaseProvided,
    #[error("etcdserver: too many operations in txn request")]
    TooManyOps,
    #[error("etcdserver: duplicate key given in txn request")]
    DuplicateKey,
    #[error("etcdserver: invalid sort option")]
    InvalidSortOption,
    #[error("etcdserver: request is too large")]
    RequestTooLarge,
    #[error("etcdserver: mvcc: required revision has been compacted")]
    Compacted,
    #[error("etcdserver: mvcc: required revision is a future revision")]
    FutureRevision,
    #[error("etcdserver: mvcc: database space exceeded")]
    NoSpace,
    #[error("etcdserver: requested lease not found")]
    LeaseNotFound,
    #[error("etcdserver: lease already exists")]
    LeaseExists,
    #[error("etcdserver: too large lease TTL")]
    LeaseTtlTooLarge,
    #[error("etcdserver: too many requests")]
    TooManyRequests,
    #[error("etcdserver: re-configuration failed due to not enough started members")]
    NotEnoughMembers,
    #[error("etcdserver: member not found")]
    MemberNotFound,
    #[error("etcdserver: can only promote a learner member")]
    NotALearner,
    #[error("etcdserver: bad leader transferee")]
    BadTransferee,
    #[error("etcdserver: authentication is not enabled")]
    AuthNotEnabled,
    #[error("etcdserver: root user does not exist")]
    NoRootUser,
    #[error("etcdserver: server stopped")]
    Stopped,
    /// Not an error of etcd.
    #[error("etcdserver: the response is longer than {0} bytes: set a limit")]
    ResponseTooLarge(usize),
    /// Not an error of etcd: the disk failed, or a record is damaged.
    #[error("etcdserver: {0}")]
    Storage(String),
    /// Not an error of etcd: the disk failed while it wrote, and the write was or will be undone.
    #[error("etcdserver: the write failed: {0}")]
    WriteFailed(String),
}

impl EtcdError {
    fn code(&self) -> Code {
        match self {
            Self::EmptyKey
            | Self::KeyNotFound
            | Self::ValueProvided
            | Self::LeaseProvided
            | Self::TooManyOps
            | Self::DuplicateKey
            | Self::InvalidSortOption
            | Self::RequestTooLarge => Code::InvalidArgument,
            Self::Compacted | Self::FutureRevision | Self::LeaseTtlTooLarge => Code::OutOfRange,
            Self::NoSpace | Self::TooManyRequests | Self::ResponseTooLarge(_) => {
                Code::ResourceExhausted
            }
            Self::LeaseNotFound | Self::MemberNotFound => Code::NotFound,
            Self::LeaseExists
            | Self::NotEnoughMembers
            | Self::NotALearner
            | Self::BadTransferee
            | Self::AuthNotEnabled
            | Self::NoRootUser => Code::FailedPrecondition,
            Self::Stopped => Code::Unavailable,
            Self::Storage(_) | Self::WriteFailed(_) => Code::Internal,
        }
    }

    /// Returns the text that Go's client library gives an error that it got outside of gRPC's
    /// status, as in the reason why a watch was cancelled.
    pub(crate) fn in_go(&self) -> String {
        format!("rpc error: code = {:?} desc = {self}", self.code())
    }
}

impl From<EtcdError> for Status {
    fn from(error: EtcdError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

impl From<ReadError> for EtcdError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Compacted { .. } => Self::Compacted,
            ReadError::Future { .. } => Self::FutureRevision,
            ReadError::Backend { source } => Self::Storage(source.to_string()),
            ReadError::Damaged { key, source } => Self::Storage(format!(
                "the value of {} cannot be read: {source}",
                key.escape_ascii()
            )),
        }
    }
}

impl From<WriteError> for EtcdError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::KeyLength { .. } | WriteError::TooLarge { .. } => Self::RequestTooLarge,
            WriteError::TooManyOps { .. } => Self::TooManyOps,
            WriteError::DuplicateKey { .. } => Self::DuplicateKey,
            WriteError::Future { .. } => Self::FutureRevision,
            WriteError::Unreadable { source } | WriteError::Value { source } => {
                Self::Storage(source.to_string())
            }
            WriteError::Closed => Self::Stopped,
            WriteError::Failed { source }
            | WriteError::Refused { source }
            | WriteError::Stopped { source }
            | WriteError::Unknown { source } => Self::WriteFailed(source.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_texts_and_codes_of_etcd() {
        for (error, code, text) in [
            (
                EtcdError::Compacted,
                Code::OutOfRange,
                "etcdserver: mvcc: required revision has been compacted",
            ),
            (EtcdError::LeaseNotFound, Code::NotFound, "etcdserver: requested lease not found"),
            (
                EtcdError::TooManyOps,
                Code::InvalidArgument,
                "etcdserver: too many operations in txn request",
            ),
        ] {
            let status = Status::from(error);
            assert_eq!((status.code(), status.message()), (code, text));
        }
    }
}
