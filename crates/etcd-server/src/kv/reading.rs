//! Reads of a transaction, with a budget: they hold the commit thread.

use bytes::Bytes;
use keelson_store::{Draft, Revision};

use super::interval::Interval;
use crate::error::EtcdError;
use crate::limits::{TXN_KEYS_MAX, TXN_READ_BYTES_MAX};
use crate::proto::KeyValue;
use crate::record;

/// What one transaction has read so far.
#[derive(Default)]
pub(crate) struct Reading {
    bytes: usize,
    keys: usize,
}

/// A range is compared with each change that its transaction has made before; so many cost as much
/// as one key.
const CHANGES_OF_A_KEY: usize = 16;

impl Reading {
    /// Returns the keys of a range at a revision. `changes` is the number of changes that the
    /// transaction has made.
    pub(crate) fn keys(
        &mut self,
        draft: &Draft<'_, '_>,
        interval: &Interval,
        at: Revision,
        changes: usize,
    ) -> Result<Vec<Bytes>, EtcdError> {
        let left = TXN_KEYS_MAX.saturating_sub(self.keys);
        let keys = draft.keys(&interval.start, &interval.end, at, left + 1);
        self.keys += keys.len() + changes / CHANGES_OF_A_KEY;
        if self.keys > TXN_KEYS_MAX { Err(EtcdError::TooManyOps) } else { Ok(keys) }
    }

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
