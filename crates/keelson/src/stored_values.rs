//! [`StoredValues`]: the form that records have in a backend: encoded for etcd, encrypted, or both.

use crate::encryption::EncryptionFile;
use bytes::Bytes;
use keelson_encryption::{Encryption, Opened};
use keelson_records::{is_unreadable, unreadable as unreadable_record};
use keelson_resources::{EtcdCodec, StoredResources};
use keelson_store::{BoxFuture, DiskError, Transform};
use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

/// The prefix of all keys of a store.
const ROOT: &[u8] = b"/registry/";

/// The prefix of all keys in the embedded store, which is that of kube-apiserver in etcd.
pub(crate) const PREFIX: &str = "/registry/";

/// The form of records in a backend.
#[derive(Debug, Default)]
pub(crate) struct StoredValues {
    /// Encodes objects as kube-apiserver stores them in etcd; `None`: records are stored.
    pub codec: Option<EtcdCodec>,
    /// `None`: nothing is encrypted.
    pub encrypted: Option<EncryptedValues>,
}

/// Encrypts the values of a backend.
#[derive(Debug)]
pub(crate) struct EncryptedValues {
    encryption: Arc<Encryption>,
    resources: Arc<StoredResources>,
    /// The prefix of all keys in etcd.
    prefix: Vec<u8>,
}

/// Why a value was not written.
#[derive(Debug, thiserror::Error)]
#[error("unable to transform key {key:?}: {why}")]
struct SealError {
    key: String,
    why: String,
}

impl EncryptedValues {
    /// Encrypts values whose keys begin with `prefix` in etcd. In the embedded store the prefix is
    /// that of kube-apiserver, so that values can be moved to etcd.
    pub fn new(encryption: Arc<Encryption>, prefix: &str) -> EncryptedValues {
        EncryptedValues { encryption, resources: Arc::default(), prefix: prefix.into() }
    }

    /// Returns the key in etcd, which is authenticated with the value.
    fn path<'k>(&self, key: &'k [u8]) -> Cow<'k, [u8]> {
        match key.strip_prefix(ROOT) {
            Some(_) if self.prefix == ROOT => key.into(),
            rest => [&self.prefix, rest.unwrap_or(key)].concat().into(),
        }
    }

    fn seal(&self, key: &[u8], value: &Bytes) -> Result<Bytes, String> {
        match self.resources.group_resource(key) {
            Some(resource) => self.encryption.seal(resource, &self.path(key), value),
            None => Ok(value.clone()),
        }
    }

    fn open(&self, key: &[u8], stored: Bytes) -> Result<Opened, String> {
        match self.resources.group_resource(key) {
            Some(resource) if !is_unreadable(&stored) => {
                self.encryption.open(resource, &self.path(key), stored)
            }
            _ => Ok(Opened::Plain { value: stored, is_stale: false }),
        }
    }

    async fn open_waiting(&self, key: &[u8], stored: Bytes) -> Result<Bytes, String> {
        match self.resources.group_resource(key) {
            Some(resource) => self.encryption.open_waiting(resource, &self.path(key), stored).await,
            None => Ok(stored),
        }
    }

    async fn decrypt(&self, key: &[u8], stored: Bytes) -> Result<Bytes, String> {
        match self.open(key, stored)? {
            Opened::Plain { value, .. } => Ok(value),
            Opened::Waits { stored, .. } => self.open_waiting(key, stored).await,
        }
    }
}

/// Decrypts the values of a data folder or a backup, for commands.
#[derive(Debug)]
pub struct Decrypter {
    values: EncryptedValues,
    runtime: tokio::runtime::Runtime,
}

impl Decrypter {
    /// Returns what decrypts with the keys of a file of `--encryption-provider-config`.
    pub fn open(path: &Path) -> Result<Decrypter, String> {
        let file = EncryptionFile::read_all(path)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        let encryption = runtime.block_on(file.start()).map_err(|error| error.to_string())?;
        Ok(Decrypter { values: EncryptedValues::new(encryption, PREFIX), runtime })
    }

    /// Decrypts a stored value. Blocks while a plug-in is asked.
    pub fn decrypt(&self, key: &[u8], stored: &Bytes) -> Result<Bytes, String> {
        self.runtime.block_on(self.values.decrypt(key, stored.clone()))
    }
}

impl StoredValues {
    /// Decodes a decrypted value.
    fn decode_plain(&self, key: &[u8], value: Bytes) -> Bytes {
        match &self.codec {
            Some(codec) => codec.decode(key, value),
            None => value,
        }
    }
}

impl Transform for StoredValues {
    fn encode<'a>(
        &'a self,
        key: &'a [u8],
        value: &'a Bytes,
    ) -> BoxFuture<'a, Result<Bytes, DiskError>> {
        let encode = || -> Result<Bytes, DiskError> {
            let encoded = match &self.codec {
                Some(codec) => {
                    codec.encode(key, value).map_err(|error| Arc::new(error) as DiskError)?
                }
                None => value.clone(),
            };
            let Some(encrypted) = &self.encrypted else { return Ok(encoded) };
            encrypted.seal(key, &encoded).map_err(|why| {
                let key = String::from_utf8_lossy(&encrypted.path(key)).into_owned();
                Arc::new(SealError { key, why }) as DiskError
            })
        };
        let encoded = encode();
        Box::pin(async { encoded })
    }

    fn decode_now(&self, key: &[u8], value: Bytes) -> Result<Bytes, Bytes> {
        let Some(encrypted) = &self.encrypted else { return Ok(self.decode_plain(key, value)) };
        match encrypted.open(key, value) {
            Ok(Opened::Plain { value, .. }) => Ok(self.decode_plain(key, value)),
            Ok(Opened::Waits { stored, .. }) => Err(stored),
            Err(why) => Ok(unreadable_record(&why)),
        }
    }

    fn decode<'a>(&'a self, key: &'a [u8], value: Bytes) -> BoxFuture<'a, Bytes> {
        Box::pin(async move {
            let Some(encrypted) = &self.encrypted else { return self.decode_plain(key, value) };
            match encrypted.open_waiting(key, value).await {
                Ok(value) => self.decode_plain(key, value),
                Err(why) => unreadable_record(&why),
            }
        })
    }

    fn may_wait(&self) -> bool {
        self.encrypted.as_ref().is_some_and(|encrypted| encrypted.encryption.may_wait())
    }

    fn may_be_stale(&self) -> bool {
        self.encrypted.is_some() || self.codec.is_some()
    }

    fn is_stale(&self, key: &[u8], value: &Bytes) -> bool {
        let in_other_form =
            |plain: &[u8]| self.codec.as_ref().is_some_and(|codec| codec.is_stale(key, plain));
        match self.encrypted.as_ref().map(|encrypted| encrypted.open(key, value.clone())) {
            None => in_other_form(value),
            Some(Ok(Opened::Plain { value, is_stale })) => is_stale || in_other_form(&value),
            Some(Ok(Opened::Waits { is_stale, .. })) => is_stale,
            Some(Err(_)) => false,
        }
    }
}
