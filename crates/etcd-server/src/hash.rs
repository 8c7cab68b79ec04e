//! Records as etcd stores them in its bucket `key`, and their hash.
//!
//! A key of the bucket is a revision: 8 bytes of the revision, `_`, 8 bytes of the position in the
//! transaction, both big-endian; that of a delete ends with `t`. A value is the message `KeyValue`,
//! of a delete with the key only.

use bytes::Bytes;
use keelson_store::embedded::disk::Record;
use prost::Message;

use crate::error::EtcdError;
use crate::proto::KeyValue;
use crate::record::{decode, to_etcd};

/// The name of the bucket, with which the hash begins.
pub(crate) const KEY_BUCKET: &[u8] = b"key";

/// A row of etcd's bucket of keys.
pub(crate) struct Row {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

impl Row {
    pub(crate) fn of(record: Record) -> Result<Self, EtcdError> {
        let Record { head, value } = record;
        let mut key = Vec::with_capacity(18);
        key.extend_from_slice(&to_etcd(head.id.revision).to_be_bytes());
        key.push(b'_');
        key.extend_from_slice(&u64::from(head.id.index).to_be_bytes());
        let kv = if head.is_delete {
            key.push(b't');
            KeyValue { key: Bytes::clone(&head.key), ..KeyValue::default() }
        } else {
            decode(head.key, head.created, head.id.revision, value)?
        };
        Ok(Self { key, value: kv.encode_to_vec() })
    }
}

/// CRC-32C of the rows, as etcd's HashKV.
pub(crate) struct KeyValueHash {
    sum: u32,
    broken: Option<EtcdError>,
}

impl KeyValueHash {
    pub(crate) fn new() -> Self {
        Self { sum: crc32c::crc32c(KEY_BUCKET), broken: None }
    }

    pub(crate) fn add(&mut self, record: Record) {
        match Row::of(record) {
            Ok(Row { key, value }) => {
                self.sum = crc32c::crc32c_append(crc32c::crc32c_append(self.sum, &key), &value);
            }
            Err(error) => self.broken = Some(error),
        }
    }

    pub(crate) fn finish(self) -> Result<u32, EtcdError> {
        self.broken.map_or(Ok(self.sum), Err)
    }
}
