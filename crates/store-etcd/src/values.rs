//! How values of the contract and values of the cluster map. What is an object and in which form is
//! known to whoever opens the store.

use std::fmt;

use bytes::Bytes;
use keelson_store::DiskError;

/// Both forms of a value. Keys are the contract's.
pub trait Values: fmt::Debug + Send + Sync {
    /// The cluster's form of a value of the contract. An error means that nothing is written.
    fn encode(&self, key: &[u8], value: &Bytes) -> Result<Bytes, DiskError>;

    /// The contract's form of a value of the cluster, which anybody may have written. Of what cannot
    /// be read it says so in a form that the contract's reader takes for that.
    fn decode(&self, key: &[u8], value: Bytes) -> Bytes;
}

/// Values are the same on both sides.
#[derive(Clone, Copy, Debug)]
pub struct SameValues;

impl Values for SameValues {
    fn encode(&self, _key: &[u8], value: &Bytes) -> Result<Bytes, DiskError> {
        Ok(value.clone())
    }

    fn decode(&self, _key: &[u8], value: Bytes) -> Bytes {
        value
    }
}
