//! Conversion between store values and etcd values. The opener of the store supplies the codec, because
//! this crate does not interpret values.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use keelson_store::DiskError;

/// Converts between store values and etcd values. Keys are store keys.
pub trait ValueCodec: fmt::Debug + Send + Sync {
    /// Encodes a store value for etcd. After an error nothing is written.
    fn encode(&self, key: &[u8], value: &Bytes) -> Result<Bytes, DiskError>;

    /// Decodes an etcd value, which any program may have written. Returns a placeholder that the reader
    /// recognizes if the value cannot be decoded.
    fn decode(&self, key: &[u8], value: Bytes) -> Bytes;
}

/// Leaves values unchanged.
#[derive(Clone, Copy, Debug)]
pub struct IdentityCodec;

impl ValueCodec for IdentityCodec {
    fn encode(&self, _key: &[u8], value: &Bytes) -> Result<Bytes, DiskError> {
        Ok(value.clone())
    }

    fn decode(&self, _key: &[u8], value: Bytes) -> Bytes {
        value
    }
}

/// Most own writes to cache until their event arrives, by count and by bytes.
const OWN_WRITES_MAX: usize = 4096;
const OWN_BYTES_MAX: usize = 4 << 20;

/// A codec that caches the writes of this process, so that their events need not be decoded.
#[derive(Debug)]
pub(crate) struct CachingCodec {
    values: Arc<dyn ValueCodec>,
    own: Mutex<OwnWrites>,
}

#[derive(Debug, Default)]
struct OwnWrites {
    /// Maps a store key to the etcd value and the store value.
    writes: HashMap<Bytes, (Bytes, Bytes)>,
    /// Upper bound of the bytes of `writes`, at most [`OWN_BYTES_MAX`]: a replaced write of the same key
    /// is still counted.
    bytes: usize,
}

impl CachingCodec {
    pub fn new(values: Arc<dyn ValueCodec>) -> Self {
        Self { values, own: Mutex::default() }
    }

    /// Encodes a value that is about to be written.
    pub fn encode(&self, key: &Bytes, value: &Bytes) -> Result<Bytes, DiskError> {
        let encoded = self.values.encode(key, value)?;
        let is_same = encoded.as_ptr() == value.as_ptr();
        let bytes = encoded.len() + value.len();
        if !is_same && bytes <= OWN_BYTES_MAX {
            let mut own = self.lock();
            // Failed writes are never taken out, so the cache is cleared when it is full.
            if own.bytes + bytes > OWN_BYTES_MAX || own.writes.len() >= OWN_WRITES_MAX {
                *own = OwnWrites::default();
            }
            own.bytes += bytes;
            own.writes.insert(key.clone(), (encoded.clone(), value.clone()));
        }
        Ok(encoded)
    }

    /// Decodes a value that was read.
    pub fn decode(&self, key: &Bytes, value: Bytes) -> Bytes {
        self.values.decode(key, value)
    }

    /// Decodes the value of a watch event.
    pub fn decode_event(&self, key: &Bytes, value: Bytes) -> Bytes {
        let own = self.lock().take(key, &value);
        own.unwrap_or_else(|| self.decode(key, value))
    }

    fn lock(&self) -> MutexGuard<'_, OwnWrites> {
        // Every critical section leaves the cache consistent.
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OwnWrites {
    /// Removes and returns the store value of an etcd value, if it was the last own write of the key.
    fn take(&mut self, key: &Bytes, value: &Bytes) -> Option<Bytes> {
        let (encoded, _) = self.writes.get(key)?;
        if encoded != value {
            return None;
        }
        let (encoded, own) = self.writes.remove(key)?;
        self.bytes = self.bytes.saturating_sub(encoded.len() + own.len());
        Some(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts decoded values.
    #[derive(Debug, Default)]
    struct CountingCodec(Mutex<usize>);

    impl ValueCodec for CountingCodec {
        fn encode(&self, _key: &[u8], value: &Bytes) -> Result<Bytes, DiskError> {
            Ok([b"x", &value[..]].concat().into())
        }

        fn decode(&self, _key: &[u8], value: Bytes) -> Bytes {
            *self.0.lock().expect("a lock") += 1;
            value.slice(1..)
        }
    }

    #[test]
    fn the_event_of_an_own_write_is_not_decoded() {
        let counting = Arc::new(CountingCodec::default());
        let values = CachingCodec::new(counting.clone());
        let decoded = || *counting.0.lock().expect("a lock");
        let (key, other) = (Bytes::from_static(b"k"), Bytes::from_static(b"o"));
        let written = values.encode(&key, &"v".into()).expect("a value");
        assert_eq!((values.decode_event(&key, written.clone()), decoded()), ("v".into(), 0));
        // Only once, only this key, and only this value.
        assert_eq!((values.decode_event(&key, written.clone()), decoded()), ("v".into(), 1));
        values.encode(&key, &"v".into()).expect("a value");
        assert_eq!((values.decode_event(&other, written), decoded()), ("v".into(), 2));
        assert_eq!((values.decode_event(&key, "xw".into()), decoded()), ("w".into(), 3));
    }

    #[test]
    fn writes_without_an_event_are_dropped() {
        let values = CachingCodec::new(Arc::new(CountingCodec::default()));
        let value = Bytes::from(vec![b'v'; 1 << 20]);
        for n in 0..40_u8 {
            values.encode(&Bytes::from(vec![n]), &value).expect("a value");
            let own = values.lock();
            let held: usize = own.writes.values().map(|(a, b)| a.len() + b.len()).sum();
            assert!(held <= own.bytes && own.bytes <= OWN_BYTES_MAX);
        }
    }
}
