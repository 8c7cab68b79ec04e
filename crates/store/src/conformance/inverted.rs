//! A transformation for tests.

use bytes::Bytes;

use crate::{BoxFuture, DiskError, Transform};

/// Values are upside down in the backend.
#[derive(Debug)]
pub struct Inverted {
    /// Whether each value has to be waited for.
    pub waits: bool,
}

fn invert(value: &[u8]) -> Bytes {
    value.iter().map(|byte| !byte).collect()
}

impl Transform for Inverted {
    fn encode<'a>(
        &'a self,
        _key: &'a [u8],
        value: &'a Bytes,
    ) -> BoxFuture<'a, Result<Bytes, DiskError>> {
        Box::pin(async { Ok(invert(value)) })
    }

    fn decode_now(&self, _key: &[u8], value: Bytes) -> Result<Bytes, Bytes> {
        if self.waits { Err(value) } else { Ok(invert(&value)) }
    }

    fn decode<'a>(&'a self, _key: &'a [u8], value: Bytes) -> BoxFuture<'a, Bytes> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            invert(&value)
        })
    }

    fn may_wait(&self) -> bool {
        self.waits
    }

    fn may_be_stale(&self) -> bool {
        true
    }

    fn is_stale(&self, _key: &[u8], value: &Bytes) -> bool {
        value.starts_with(b"\xff")
    }
}
