//! What etcd knows of a key and the store does not: the number of its writes and its lease. Both
//! stand before the value, as two numbers in the variable-length encoding of protobuf.
//!
//! Revisions of etcd begin at 1 in an empty store, those of the store at 0: etcd's is one more.

use bytes::{BufMut, Bytes, BytesMut};
use keelson_store::Revision;
use prost::encoding::{decode_varint, encode_varint, encoded_len_varint};

use crate::error::EtcdError;
use crate::proto::KeyValue;

/// Returns etcd's number of a revision of the store.
pub(crate) fn to_etcd(revision: Revision) -> i64 {
    i64::try_from(revision.0).map_or(i64::MAX, |revision| revision.saturating_add(1))
}

/// Returns the revision of the store for a revision of etcd, which is above 0.
pub(crate) fn from_etcd(revision: i64) -> Revision {
    Revision(u64::try_from(revision.saturating_sub(1)).unwrap_or(0))
}

/// Encodes a stored value.
pub(crate) fn encode(version: i64, lease: i64, value: &[u8]) -> Bytes {
    let version = version.cast_unsigned();
    let lease = lease.cast_unsigned();
    let head = encoded_len_varint(version) + encoded_len_varint(lease);
    let mut stored = BytesMut::with_capacity(head + value.len());
    encode_varint(version, &mut stored);
    encode_varint(lease, &mut stored);
    stored.put_slice(value);
    stored.freeze()
}

/// Decodes a stored value with what the store knows about its key.
pub(crate) fn decode(
    key: Bytes,
    created: Revision,
    modified: Revision,
    mut stored: Bytes,
) -> Result<KeyValue, EtcdError> {
    let mut number = || {
        let number = decode_varint(&mut stored);
        number.map_err(|_| {
            EtcdError::Storage(format!("the value of {} is none of etcd's", key.escape_ascii()))
        })
    };
    let version = number()?.cast_signed();
    let lease = number()?.cast_signed();
    Ok(KeyValue {
        key,
        create_revision: to_etcd(created),
        mod_revision: to_etcd(modified),
        version,
        value: stored,
        lease,
    })
}

/// Decodes a key of the store.
pub(crate) fn decode_kv(kv: keelson_store::KeyValue) -> Result<KeyValue, EtcdError> {
    decode(kv.key, kv.created, kv.modified, kv.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_keeps_its_number_of_writes_and_its_lease() {
        for (version, lease, value) in [(1, 0, ""), (300, i64::MAX, "value"), (1, -1, "\0")] {
            let stored = encode(version, lease, value.as_bytes());
            let kv = decode("key".into(), Revision(1), Revision(2), stored).expect("decoded");
            assert_eq!((kv.version, kv.lease, &kv.value[..]), (version, lease, value.as_bytes()));
            assert_eq!((kv.create_revision, kv.mod_revision), (2, 3));
        }
        assert!(decode("key".into(), Revision(1), Revision(1), Bytes::new()).is_err());
    }
}
