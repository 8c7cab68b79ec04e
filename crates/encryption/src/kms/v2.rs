//! [`PluginV2`]: a plug-in of version 2. It names its keys; what it encrypts is a seed, from which
//! a key for each value is derived.

use super::KmsOpened;
use super::data_key::{DataKey, DataKeys, SEED_BYTES};
use super::envelope::{self, SEED, aggregate};
use super::proto::{
    DATA_TAG, DecryptRequest, DecryptResponse, EncryptRequest, EncryptResponse, EncryptedObject,
    StatusRequest, StatusResponse,
};
use super::socket::Socket;
use super::write_seed::WriteSeed;
use crate::ciphers::random;
use crate::config::KmsConfig;
use crate::hash::hash;
use crate::metrics::{Direction, Metrics};
use bytes::{Bytes, BytesMut};
use keelson_egress::{grpc_code_name, grpc_error_text};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use zeroize::Zeroizing;

const STATUS: &str = "/v2.KeyManagementService/Status";
const ENCRYPT: &str = "/v2.KeyManagementService/Encrypt";
const DECRYPT: &str = "/v2.KeyManagementService/Decrypt";

/// The versions of the API.
const VERSIONS: [&str; 2] = ["v2", "v2beta1"];

/// A plug-in.
pub(crate) struct PluginV2 {
    pub name: String,
    /// What stands in front of each value.
    pub prefix: Vec<u8>,
    socket: Socket,
    metrics: Arc<Metrics>,
    state: Mutex<State>,
    /// Held while a key is decrypted, so that values with the same key wait for one call.
    decrypting: tokio::sync::Mutex<()>,
}

struct State {
    seed: Option<WriteSeed>,
    keys: DataKeys<DataKey>,
    /// The version of the first answer.
    version: Option<String>,
}

impl fmt::Debug for PluginV2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the KMS plug-in {} ({:?})", self.name, self.socket)
    }
}

impl PluginV2 {
    /// Returns a plug-in that was not asked yet.
    pub fn new(config: &KmsConfig, metrics: Arc<Metrics>) -> Result<PluginV2, String> {
        Ok(PluginV2 {
            prefix: format!("k8s:enc:kms:v2:{}:", config.name).into_bytes(),
            name: config.name.clone(),
            socket: Socket::new(config)?,
            metrics,
            state: Mutex::new(State {
                seed: None,
                keys: DataKeys::new(config.keys_max),
                version: None,
            }),
            decrypting: tokio::sync::Mutex::default(),
        })
    }

    /// Encrypts a value. `path` is its key in etcd.
    pub fn seal(&self, plain: &[u8], path: &[u8], now: Instant) -> Result<Bytes, String> {
        let seed = self.seed()?;
        seed.check_writable(now)?;
        let bytes = seed.key.sealed_bytes(plain.len());
        let more = 1 + encoded_len_varint(bytes as u64);
        let mut out = Vec::with_capacity(self.prefix.len() + more + bytes + seed.tail.len());
        out.extend_from_slice(&self.prefix);
        encode_key(DATA_TAG, WireType::LengthDelimited, &mut out);
        encode_varint(bytes as u64, &mut out);
        seed.key.seal(plain, path, &mut out).map_err(|error| error.to_string())?;
        out.extend_from_slice(&seed.tail);
        self.count_use(&seed.key, Direction::ToStorage);
        Ok(out.into())
    }

    /// Decrypts what follows the prefix, if its key is known.
    pub fn open(&self, stored: &[u8], path: &[u8]) -> Result<KmsOpened, String> {
        let envelope = EncryptedObject::read(stored)?;
        let current = self.seed()?.envelope;
        let is_stale = envelope.key_id != current.key_id
            || envelope.encrypted_dek_source_type != current.encrypted_dek_source_type;
        let key = self.state().keys.get(&envelope.data_key());
        let Some(key) = key else { return Ok(KmsOpened::Waits { is_stale }) };
        let sealed = BytesMut::from(Bytes::from(envelope.encrypted_data));
        let value = key.open(sealed, path).map_err(|error| error.to_string())?;
        self.count_use(&key, Direction::FromStorage);
        Ok(KmsOpened::Plain { value, is_stale })
    }

    /// Lets the plug-in decrypt the key of a value, unless it is known.
    pub async fn fetch_key(&self, stored: &[u8]) -> Result<(), String> {
        let envelope = EncryptedObject::read(stored)?;
        let id = envelope.data_key();
        let _decrypting = self.decrypting.lock().await;
        if self.state().keys.get(&id).is_some() {
            return Ok(());
        }
        let is_seed = envelope.encrypted_dek_source_type == SEED;
        let key_id = envelope.key_id.clone();
        let request = DecryptRequest {
            ciphertext: envelope.encrypted_dek_source,
            uid: uid()?,
            key_id: envelope.key_id,
            annotations: envelope.annotations,
        };
        let response: DecryptResponse = self
            .call(DECRYPT, request)
            .await
            .map_err(|why| format!("failed to decrypt DEK, error: {why}"))?;
        let plain = Zeroizing::new(response.plaintext);
        let key =
            if is_seed { DataKey::seed(&plain, &key_id)? } else { DataKey::key(&plain, &key_id)? };
        let keys = self.state().keys.insert(id, Arc::new(key));
        self.metrics.set_data_keys(&self.name, keys);
        Ok(())
    }

    /// Returns the id of the key of what follows the prefix.
    pub fn key_id(stored: &[u8]) -> Option<String> {
        EncryptedObject::read(stored).ok().map(|envelope| envelope.key_id)
    }

    /// Returns the id of the key that new values are encrypted with.
    pub fn write_key_id(&self) -> Option<String> {
        self.seed().ok().map(|seed| seed.envelope.key_id.clone())
    }

    /// Asks the plug-in how it is, and makes a new seed if it has another key.
    pub async fn check(&self) -> Result<(), String> {
        let name = &self.name;
        let response: StatusResponse =
            self.call(STATUS, StatusRequest {}).await.map_err(|why| {
                format!(
                    "failed to perform status section of the healthz check for KMS Provider \
                     {name}, error: {why}"
                )
            })?;
        let mut faults = vec![];
        if response.healthz != "ok" {
            faults.push(format!("got unexpected healthz status: {}", response.healthz));
        }
        faults.extend(self.check_version(&response.version));
        match envelope::check_key_id(&response.key_id) {
            Err(why) => {
                self.metrics.count_invalid_key(&self.name, &why);
                let hash = hash(&response.key_id);
                faults.push(format!("got invalid KMSv2 KeyID hash {hash:?}: {why}"));
            }
            Ok(()) => {
                self.metrics.note_key(&self.name, &hash(&response.key_id));
                faults.extend(self.confirm_seed(&response.key_id).await.err());
            }
        }
        if faults.is_empty() {
            return Ok(());
        }
        Err(format!("kmsv2 Provider {name} is not healthy, error: {}", aggregate(faults)))
    }

    fn check_version(&self, version: &str) -> Option<String> {
        if !VERSIONS.contains(&version) {
            return Some(format!("expected KMSv2 API version v2, got {version}"));
        }
        let mut state = self.state();
        let first = state.version.get_or_insert_with(|| version.to_owned());
        (first != version).then(|| {
            format!(
                "KMSv2 API version should not change after the initial status response version \
                 {first}, got {version}"
            )
        })
    }

    /// Goes on with the seed if the plug-in still has its key; else makes a new one.
    async fn confirm_seed(&self, key_id: &str) -> Result<(), String> {
        // Before the call, because its time counts.
        let now = Instant::now();
        if let Some(seed) = &mut self.state().seed
            && seed.envelope.key_id == key_id
        {
            seed.confirmed = now;
            return Ok(());
        }
        let (key, envelope) =
            self.make_seed().await.map_err(|why| self.rotation_error(key_id, "", &why))?;
        if envelope.key_id != key_id {
            return Err(self.rotation_error(key_id, &envelope.key_id, "<nil>"));
        }
        let key = Arc::new(key);
        let id = envelope.data_key();
        let tail = id.clone().into();
        let mut state = self.state();
        self.metrics.set_data_keys(&self.name, state.keys.insert(id, key.clone()));
        state.seed = Some(WriteSeed { key, envelope: Arc::new(envelope), tail, confirmed: now });
        tracing::info!(plugin = self.name, key = hash(key_id), "KMS plug-in has a key");
        Ok(())
    }

    fn rotation_error(&self, status_id: &str, encrypt_id: &str, why: &str) -> String {
        let status = hash(status_id);
        let encrypt = hash(encrypt_id);
        let current = hash(&self.write_key_id().unwrap_or_default());
        format!(
            "failed to rotate DEK, errGen={why}, statusKeyIDHash={status:?}, \
             encryptKeyIDHash={encrypt:?}, stateKeyIDHash={current:?}"
        )
    }

    /// Makes a seed and lets the plug-in encrypt it.
    async fn make_seed(&self) -> Result<(DataKey, EncryptedObject), String> {
        let began = Instant::now();
        let seed = random::<SEED_BYTES>().map(Zeroizing::new);
        self.metrics.count_generation(began, seed.is_ok());
        let seed = seed.map_err(|error| error.to_string())?;
        let request = EncryptRequest { plaintext: seed.to_vec(), uid: uid()? };
        let response: EncryptResponse = self
            .call(ENCRYPT, request)
            .await
            .map_err(|why| format!("failed to encrypt DEK, error: {why}"))?;
        let envelope = EncryptedObject {
            encrypted_data: vec![],
            key_id: response.key_id,
            encrypted_dek_source: response.ciphertext,
            annotations: response.annotations,
            encrypted_dek_source_type: SEED,
        };
        envelope.check()?;
        Ok((DataKey::seed(&*seed, &envelope.key_id)?, envelope))
    }

    async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A, String>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let began = Instant::now();
        let response = self.socket.call(path, request).await;
        let code = response
            .as_ref()
            .map_or_else(|status| grpc_code_name(status.code()), |_| "OK".to_owned());
        self.metrics.count_call(&self.name, path, &code, began);
        response.map_err(|status| grpc_error_text(&status))
    }

    fn count_use(&self, key: &DataKey, direction: Direction) {
        self.metrics.count_key(&key.uses, &self.name, &key.key_id_hash, direction);
    }

    fn seed(&self) -> Result<WriteSeed, String> {
        let seed = self.state().seed.clone();
        seed.ok_or_else(|| "got unexpected nil transformer".to_owned())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every critical section leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a random UUID, which identifies a call in the logs of both sides.
fn uid() -> Result<String, String> {
    let mut bytes: [u8; 16] = random().map_err(|error| error.to_string())?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let a = &hex[..8];
    let b = &hex[8..12];
    let c = &hex[12..16];
    let d = &hex[16..20];
    let e = &hex[20..];
    Ok(format!("{a}-{b}-{c}-{d}-{e}"))
}
