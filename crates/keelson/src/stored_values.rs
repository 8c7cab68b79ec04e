//! [`StoredValues`]: the form that records have in a backend.

use bytes::Bytes;
use keelson_builtin::EtcdCodec;
use keelson_store::{BoxFuture, DiskError, Transform};
use std::sync::Arc;

/// Encodes objects as kube-apiserver stores them in etcd.
#[derive(Debug)]
pub(crate) struct StoredValues {
    codec: EtcdCodec,
}

impl StoredValues {
    pub(crate) fn new(codec: EtcdCodec) -> StoredValues {
        StoredValues { codec }
    }
}

impl Transform for StoredValues {
    fn encode<'a>(
        &'a self,
        key: &'a [u8],
        value: &'a Bytes,
    ) -> BoxFuture<'a, Result<Bytes, DiskError>> {
        let encoded = self.codec.encode(key, value);
        Box::pin(async { encoded.map_err(|error| Arc::new(error) as DiskError) })
    }

    fn decode_now(&self, key: &[u8], value: Bytes) -> Result<Bytes, Bytes> {
        Ok(self.codec.decode(key, value))
    }

    fn decode<'a>(&'a self, key: &'a [u8], value: Bytes) -> BoxFuture<'a, Bytes> {
        Box::pin(async { self.codec.decode(key, value) })
    }

    fn may_wait(&self) -> bool {
        false
    }

    fn is_stale(&self, _key: &[u8], _value: &Bytes) -> bool {
        false
    }
}
