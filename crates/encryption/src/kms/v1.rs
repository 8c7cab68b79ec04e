//! [`PluginV1`]: a plug-in of version 1 (`v1beta1`), behind the gate `KMSv1`. It encrypts data keys
//! and does not say with which of its own.
//!
//! kube-apiserver asks it for each value that is written. Here a data key is made at each check and
//! used until the next, so that no write waits for the plug-in; the stored bytes are the same.

use super::KmsOpened;
use super::data_key::DataKeys;
use super::envelope::aggregate;
use super::proto::v1::{
    DecryptRequest, DecryptResponse, EncryptRequest, EncryptResponse, VersionRequest,
    VersionResponse,
};
use super::socket::Socket;
use super::write_seed::WRITE_TIME_MAX;
use crate::ciphers::{AesCbc, AesGcm, CipherError, random};
use crate::config::KmsConfig;
use crate::metrics::Metrics;
use bytes::Bytes;
use keelson_egress::grpc_error_text;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use zeroize::Zeroizing;

const VERSION: &str = "/v1beta1.KeyManagementService/Version";
const ENCRYPT: &str = "/v1beta1.KeyManagementService/Encrypt";
const DECRYPT: &str = "/v1beta1.KeyManagementService/Decrypt";

/// The version of the API, in all requests.
const API_VERSION: &str = "v1beta1";
/// The length of a data key that this server makes.
const KEY_BYTES: usize = 32;

/// A plug-in.
pub(crate) struct PluginV1 {
    pub name: String,
    /// What stands in front of each value.
    pub prefix: Vec<u8>,
    socket: Socket,
    metrics: Arc<Metrics>,
    /// Whether the plug-in has said that it has our version.
    has_version: AtomicBool,
    state: Mutex<State>,
    /// Held while a key is decrypted, so that values with the same key wait for one call.
    decrypting: tokio::sync::Mutex<()>,
}

struct State {
    write: Option<WriteKey>,
    /// By what the plug-in made of them.
    keys: DataKeys<DataKey>,
    /// Why there is no new key.
    fault: String,
}

/// What new values are encrypted with.
#[derive(Clone)]
struct WriteKey {
    key: Arc<DataKey>,
    /// What stands in front of the encrypted value: the length of the encrypted key, in two bytes,
    /// and the encrypted key.
    head: Arc<[u8]>,
    made: Instant,
}

/// Encrypts with AES-GCM; also reads AES-CBC, in which Kubernetes wrote before 1.25.
struct DataKey {
    gcm: AesGcm,
    cbc: AesCbc,
}

impl DataKey {
    fn new(bytes: &[u8]) -> Result<DataKey, String> {
        let sizes = [16, 24, 32];
        if !sizes.contains(&bytes.len()) {
            return Err(CipherError::KeySize(bytes.len()).to_string());
        }
        let failed = |error: CipherError| error.to_string();
        Ok(DataKey {
            gcm: AesGcm::new(bytes).map_err(failed)?,
            cbc: AesCbc::new(bytes).map_err(failed)?,
        })
    }

    fn open(&self, sealed: &[u8], path: &[u8]) -> Result<KmsOpened, String> {
        let gcm = match self.gcm.open(sealed.into(), path) {
            Ok(value) => return Ok(KmsOpened::Plain { value, is_stale: false }),
            Err(error) => error,
        };
        match self.cbc.open(sealed.into()) {
            Ok(value) => Ok(KmsOpened::Plain { value, is_stale: true }),
            Err(cbc) => Err(aggregate(vec![gcm.to_string(), cbc.to_string()])),
        }
    }
}

impl fmt::Debug for PluginV1 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the KMS plug-in {} ({:?})", self.name, self.socket)
    }
}

impl PluginV1 {
    /// Returns a plug-in that was not asked yet.
    pub fn new(config: &KmsConfig, metrics: Arc<Metrics>) -> Result<PluginV1, String> {
        let fault = "the KMS plug-in was not asked yet".to_owned();
        Ok(PluginV1 {
            prefix: format!("k8s:enc:kms:v1:{}:", config.name).into_bytes(),
            name: config.name.clone(),
            socket: Socket::new(config)?,
            metrics,
            has_version: AtomicBool::new(false),
            state: Mutex::new(State { write: None, keys: DataKeys::new(config.keys_max), fault }),
            decrypting: tokio::sync::Mutex::default(),
        })
    }

    /// Encrypts a value. `path` is its key in etcd.
    pub fn seal(&self, plain: &[u8], path: &[u8], now: Instant) -> Result<Bytes, String> {
        let write = self.write_key(now)?;
        let mut out = Vec::with_capacity(self.prefix.len() + write.head.len() + plain.len() + 28);
        out.extend_from_slice(&self.prefix);
        out.extend_from_slice(&write.head);
        write.key.gcm.seal(plain, path, &mut out).map_err(|error| error.to_string())?;
        Ok(out.into())
    }

    fn write_key(&self, now: Instant) -> Result<WriteKey, String> {
        let state = self.state();
        let is_new =
            |write: &&WriteKey| now.saturating_duration_since(write.made) <= WRITE_TIME_MAX;
        state.write.as_ref().filter(is_new).cloned().ok_or_else(|| state.fault.clone())
    }

    /// Decrypts what follows the prefix, if its key is known.
    pub fn open(&self, stored: &[u8], path: &[u8]) -> Result<KmsOpened, String> {
        let parts = Parts::read(stored)?;
        // Outside of the `match`, whose arms would hold the lock.
        let key = self.state().keys.get(parts.encrypted_key);
        match key {
            Some(key) => key.open(parts.sealed, path),
            None => Ok(KmsOpened::Waits { is_stale: false }),
        }
    }

    /// Lets the plug-in decrypt the key of a value, unless it is known.
    pub async fn fetch_key(&self, stored: &[u8]) -> Result<(), String> {
        let encrypted = Parts::read(stored)?.encrypted_key;
        let _decrypting = self.decrypting.lock().await;
        if self.state().keys.get(encrypted).is_some() {
            return Ok(());
        }
        let key = DataKey::new(&self.decrypt(encrypted).await?)?;
        self.state().keys.insert(encrypted.to_vec(), Arc::new(key));
        Ok(())
    }

    /// Lets the plug-in encrypt a new key and decrypt it again; new values use it.
    pub async fn check(&self) -> Result<(), String> {
        let checked = self.renew_key().await;
        if let Err(why) = &checked {
            self.state().fault.clone_from(why);
        }
        checked
    }

    async fn renew_key(&self) -> Result<(), String> {
        // Before the calls, because their time counts.
        let made = Instant::now();
        let name = &self.name;
        let failed = |section: &str, why: &str| {
            format!(
                "failed to perform {section} section of the healthz check for KMS Provider {name}, \
                 error: {why}"
            )
        };
        let plain = random::<KEY_BYTES>().map(Zeroizing::new);
        self.metrics.count_generation(made, plain.is_ok());
        let plain = plain.map_err(|error| error.to_string())?;
        let encrypted = self.encrypt(&*plain).await.map_err(|why| failed("encrypt", &why))?;
        let again = self.decrypt(&encrypted).await.map_err(|why| failed("decrypt", &why))?;
        if *again != *plain {
            return Err(failed("decrypt", "the plug-in returns another text than it was given"));
        }
        let bytes = u16::try_from(encrypted.len())
            .map_err(|_| failed("encrypt", "the encrypted key is longer than 65535 bytes"))?;
        let head = [&bytes.to_be_bytes(), &*encrypted].concat();
        let key = Arc::new(DataKey::new(&*plain)?);
        let mut state = self.state();
        state.keys.insert(encrypted, key.clone());
        state.write = Some(WriteKey { key, head: head.into(), made });
        Ok(())
    }

    async fn encrypt(&self, plain: &[u8]) -> Result<Vec<u8>, String> {
        self.check_version().await?;
        let request = EncryptRequest { version: API_VERSION.to_owned(), plain: plain.to_vec() };
        let response: Result<EncryptResponse, _> = self.socket.call(ENCRYPT, request).await;
        response.map(|response| response.cipher).map_err(|status| grpc_error_text(&status))
    }

    async fn decrypt(&self, encrypted: &[u8]) -> Result<Zeroizing<Vec<u8>>, String> {
        self.check_version().await?;
        let request =
            DecryptRequest { version: API_VERSION.to_owned(), cipher: encrypted.to_vec() };
        let response: Result<DecryptResponse, _> = self.socket.call(DECRYPT, request).await;
        let plain = response.map(|response| Zeroizing::new(response.plain));
        plain.map_err(|status| grpc_error_text(&status))
    }

    /// Asks for the version before the first of the other calls.
    async fn check_version(&self) -> Result<(), String> {
        if self.has_version.load(Ordering::Relaxed) {
            return Ok(());
        }
        let request = VersionRequest { version: API_VERSION.to_owned() };
        let response: Result<VersionResponse, _> = self.socket.call(VERSION, request).await;
        let response = response.map_err(|status| {
            let why = grpc_error_text(&status);
            format!("failed get version from remote KMS provider: {why}")
        })?;
        if response.version != API_VERSION {
            let version = response.version;
            return Err(format!(
                "KMS provider api version {version} is not supported, only {API_VERSION} is \
                 supported now"
            ));
        }
        self.has_version.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every critical section leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What follows the prefix of a stored value.
struct Parts<'a> {
    encrypted_key: &'a [u8],
    sealed: &'a [u8],
}

impl Parts<'_> {
    fn read(stored: &[u8]) -> Result<Parts<'_>, String> {
        let parts = stored.split_first_chunk().and_then(|(length, rest)| {
            let (encrypted_key, sealed) =
                rest.split_at_checked(u16::from_be_bytes(*length).into())?;
            Some(Parts { encrypted_key, sealed })
        });
        parts.ok_or_else(|| {
            "invalid data encountered by envelope transformer: failed to read uint16 length \
             prefixed data"
                .to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_in_aes_cbc_are_read_and_stale() {
        let key = DataKey::new(&[7; KEY_BYTES]).expect("a key");
        let mut sealed = vec![];
        key.cbc.seal(b"value", &mut sealed).expect("a value");
        match key.open(&sealed, b"path") {
            Ok(KmsOpened::Plain { value, is_stale }) => {
                assert_eq!((&value[..], is_stale), (&b"value"[..], true));
            }
            Ok(KmsOpened::Waits { .. }) => panic!("the key is known"),
            Err(error) => panic!("{error}"),
        }
    }
}
