//! Reads of a transaction, with a budget: they hold the commit thread.

use keelson_store::{Draft, Revision};

use crate::error::EtcdError;
use crate::limits::TXN_READ_BYTES_MAX;
use crate::proto::KeyValue;
use crate::record;

/// What one transaction has read so far.
#[derive(Default)]
pub(crate) struct Reading {
    bytes: usize,
}

impl Reading {
    /// Reads a key at a revision.
    pub(crate) fn get(
        &mut self,
        draft: &Draft<'_, '_>,
        key: &[u8],
        at: Revision,
    ) -> Result<Option<KeyValue>, EtcdError> {
        let Some(kv) = draft.get(key, at)? else { return Ok(None) };
        self.bytes += kv.key.len() + kv.value.len();
        if self.bytes > TXN_READ_BYTES_MAX {
            return Err(EtcdError::ResponseTooLarge(TXN_READ_BYTES_MAX));
        }
        record::decode_kv(kv).map(Some)
    }
}
