//! How values of the contract and values of the cluster map. What is an object and in which form is
//! known to whoever opens the store.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

/// Writes of this process whose event is still to come that are remembered, by number and by bytes.
const OWN_WRITES_MAX: usize = 4096;
const OWN_BYTES_MAX: usize = 4 << 20;

/// Both forms of values, with those in mind that this process has written itself: when they come back
/// in a watch, there is nothing to decode.
#[derive(Debug)]
pub(crate) struct OwnValues {
    values: Arc<dyn Values>,
    own: Mutex<Own>,
}

#[derive(Debug, Default)]
struct Own {
    /// By key: the cluster's form and the contract's.
    writes: HashMap<Bytes, (Bytes, Bytes)>,
    /// At least the bytes of `writes`, at most [`OWN_BYTES_MAX`]: a write of the same key is counted
    /// on top of the one that it takes the place of.
    bytes: usize,
}

impl OwnValues {
    pub fn new(values: Arc<dyn Values>) -> Self {
        Self { values, own: Mutex::default() }
    }

    /// The cluster's form of a value that is about to be written.
    pub fn encode(&self, key: &Bytes, value: &Bytes) -> Result<Bytes, DiskError> {
        let encoded = self.values.encode(key, value)?;
        let is_same = encoded.as_ptr() == value.as_ptr();
        let bytes = encoded.len() + value.len();
        if !is_same && bytes <= OWN_BYTES_MAX {
            let mut own = self.lock();
            // What failed is never taken out: now and then all is forgotten.
            if own.bytes + bytes > OWN_BYTES_MAX || own.writes.len() >= OWN_WRITES_MAX {
                *own = Own::default();
            }
            own.bytes += bytes;
            own.writes.insert(key.clone(), (encoded.clone(), value.clone()));
        }
        Ok(encoded)
    }

    /// The contract's form of a value that was read.
    pub fn decode(&self, key: &Bytes, value: Bytes) -> Bytes {
        self.values.decode(key, value)
    }

    /// The contract's form of a value that an event brings.
    pub fn decode_event(&self, key: &Bytes, value: Bytes) -> Bytes {
        let own = self.lock().take(key, &value);
        own.unwrap_or_else(|| self.decode(key, value))
    }

    fn lock(&self) -> MutexGuard<'_, Own> {
        // What is remembered is right after every step.
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Own {
    /// What was written as this value, if that was the last write of the key here.
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

    /// Counts what it decodes.
    #[derive(Debug, Default)]
    struct Counting(Mutex<usize>);

    impl Values for Counting {
        fn encode(&self, _key: &[u8], value: &Bytes) -> Result<Bytes, DiskError> {
            Ok([b"x", &value[..]].concat().into())
        }

        fn decode(&self, _key: &[u8], value: Bytes) -> Bytes {
            *self.0.lock().expect("whole") += 1;
            value.slice(1..)
        }
    }

    #[test]
    fn an_own_write_is_not_decoded_when_it_comes_back() {
        let counting = Arc::new(Counting::default());
        let values = OwnValues::new(counting.clone());
        let decoded = || *counting.0.lock().expect("whole");
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
    fn writes_whose_event_never_comes_are_forgotten() {
        let values = OwnValues::new(Arc::new(Counting::default()));
        let value = Bytes::from(vec![b'v'; 1 << 20]);
        for n in 0..40_u8 {
            values.encode(&Bytes::from(vec![n]), &value).expect("a value");
            let own = values.lock();
            let held: usize = own.writes.values().map(|(a, b)| a.len() + b.len()).sum();
            assert!(held <= own.bytes && own.bytes <= OWN_BYTES_MAX);
        }
    }
}
