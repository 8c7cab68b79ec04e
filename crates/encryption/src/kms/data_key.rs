//! [`DataKey`]: the key, or the seed of keys, that a plug-in has decrypted.

use crate::ciphers::{AesGcm, CipherError, GCM_MORE_BYTES, public_random};
use crate::hash::hash;
use crate::metrics::KnownUses;
use bytes::{Buf, Bytes, BytesMut};
use ring::hkdf::{HKDF_SHA256, Prk};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use zeroize::Zeroizing;

/// The length of a seed that this server makes, and the least length of any.
pub(super) const SEED_BYTES: usize = 32;
/// The length of the random bytes in front of a value, from which its key is derived.
const INFO_BYTES: usize = 32;

/// A key, or a seed from which a key for each value is derived.
pub(super) struct DataKey {
    secret: Secret,
    /// The hash of the id of the plug-in's key that encrypts this one. Each use counts in a metric
    /// under it.
    pub key_id_hash: String,
    pub uses: KnownUses,
}

enum Secret {
    Key(AesGcm),
    /// A seed as HMAC takes it: to prepare it again for each value would double the work.
    Seed(Prk),
}

impl DataKey {
    /// `key_id` is the id of the plug-in's key.
    pub fn seed(bytes: &[u8], key_id: &str) -> Result<DataKey, String> {
        if bytes.len() < SEED_BYTES {
            return Err(format!("invalid seed length {} used for key generation", bytes.len()));
        }
        Ok(DataKey::new(Secret::Seed(Prk::new_less_safe(HKDF_SHA256, bytes)), key_id))
    }

    /// `key_id` is the id of the plug-in's key.
    pub fn key(bytes: &[u8], key_id: &str) -> Result<DataKey, String> {
        if !matches!(bytes.len(), 16 | 24 | 32) {
            return Err(CipherError::KeySize(bytes.len()).to_string());
        }
        let cipher = AesGcm::new(bytes).map_err(|error| error.to_string())?;
        Ok(DataKey::new(Secret::Key(cipher), key_id))
    }

    fn new(secret: Secret, key_id: &str) -> DataKey {
        DataKey { secret, key_id_hash: hash(key_id), uses: KnownUses::default() }
    }

    /// Returns how long a value is when it is encrypted.
    pub fn sealed_bytes(&self, plain_bytes: usize) -> usize {
        let info = match &self.secret {
            Secret::Key(_) => 0,
            Secret::Seed(_) => INFO_BYTES,
        };
        info + plain_bytes + GCM_MORE_BYTES
    }

    /// Encrypts a value and appends it to `out`. `path` is its key in etcd.
    pub fn seal(&self, plain: &[u8], path: &[u8], out: &mut Vec<u8>) -> Result<(), CipherError> {
        match &self.secret {
            Secret::Key(cipher) => cipher.seal(plain, path, out),
            Secret::Seed(seed) => {
                let info: [u8; INFO_BYTES] = public_random()?;
                out.extend_from_slice(&info);
                derive(seed, &info)?.seal(plain, path, out)
            }
        }
    }

    pub fn open(&self, mut stored: BytesMut, path: &[u8]) -> Result<Bytes, CipherError> {
        match &self.secret {
            Secret::Key(cipher) => cipher.open(stored, path),
            Secret::Seed(seed) => {
                let info: [u8; INFO_BYTES] = *stored.first_chunk().ok_or(CipherError::Short)?;
                stored.advance(INFO_BYTES);
                derive(seed, &info)?.open(stored, path)
            }
        }
    }
}

/// Derives the key of a value: HKDF-Expand with SHA-256, as RFC 5869.
fn derive(seed: &Prk, info: &[u8; INFO_BYTES]) -> Result<AesGcm, CipherError> {
    let mut key = Zeroizing::new([0; 32]);
    let failed = |_| CipherError::Authentication;
    let info: &[&[u8]] = &[info];
    seed.expand(info, HKDF_SHA256).and_then(|okm| okm.fill(&mut *key)).map_err(failed)?;
    AesGcm::new(&*key)
}

/// The data keys in use. The oldest is dropped when there are too many.
pub(super) struct DataKeys<K> {
    max: usize,
    keys: HashMap<Arc<[u8]>, Arc<K>>,
    order: VecDeque<Arc<[u8]>>,
}

impl<K> DataKeys<K> {
    /// Keeps at most so many keys.
    pub fn new(max: usize) -> DataKeys<K> {
        DataKeys { max, keys: HashMap::new(), order: VecDeque::new() }
    }

    pub fn get(&self, id: &[u8]) -> Option<Arc<K>> {
        self.keys.get(id).cloned()
    }

    /// Adds a key. Returns how many there are then.
    pub fn insert(&mut self, id: Vec<u8>, key: Arc<K>) -> usize {
        let id: Arc<[u8]> = id.into();
        if self.keys.insert(id.clone(), key).is_none() {
            self.order.push_back(id);
        }
        if self.order.len() > self.max
            && let Some(oldest) = self.order.pop_front()
        {
            self.keys.remove(&oldest);
        }
        self.keys.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_keys_is_bounded() {
        let mut keys = DataKeys::new(20);
        for n in 0..30_usize {
            keys.insert(n.to_be_bytes().into(), Arc::new(n));
        }
        assert_eq!((keys.keys.len(), keys.order.len()), (20, 20));
        assert_eq!(keys.get(&9_usize.to_be_bytes()), None);
        assert_eq!(keys.get(&10_usize.to_be_bytes()), Some(Arc::new(10)));
    }

    #[test]
    fn keys_of_wrong_lengths_are_refused() {
        let seed = |bytes: usize| DataKey::seed(&vec![0; bytes], "1").err();
        assert_eq!(seed(31).as_deref(), Some("invalid seed length 31 used for key generation"));
        assert_eq!((seed(32), seed(64)), (None, None));
        let key = |bytes: usize| DataKey::key(&vec![0; bytes], "1").err();
        assert_eq!(key(33).as_deref(), Some("crypto/aes: invalid key size 33"));
        assert_eq!((key(16), key(24), key(32)), (None, None, None));
    }
}
