//! [`Providers`]: how the values of a resource are encrypted. The first provider encrypts, all
//! decrypt.

use crate::ciphers::{AesCbc, AesGcm, CipherError, Secretbox};
use crate::config::{KeyConfig, KmsConfig, ProviderConfig};
use crate::kms::{self, KmsOpened, Plugin, aggregate};
use crate::metrics::{Counted, KnownSeries};
use bytes::{Buf, Bytes, BytesMut};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What all encrypted values begin with.
pub(crate) const ENCRYPTED: &[u8] = b"k8s:enc:";
/// The message for a value that is encrypted although it should not be.
pub(crate) const NOT_PLAIN: &str = "identity transformer tried to read encrypted data";

/// The prefix of a value that no provider knows, as metrics have it.
const UNKNOWN: &[u8] = b"unknown";
const NO_KEY_AES: &str = "no matching key was found for the provided AES transformer";
const NO_KEY_BOX: &str = "no matching key was found for the provided Secretbox transformer";

/// The providers of a resource.
#[derive(Debug, Default)]
pub(crate) struct Providers(Vec<Provider>);

#[derive(Debug)]
enum Provider {
    Keys(Keys),
    Kms(Arc<Plugin>, KnownSeries),
    Identity(KnownSeries),
}

/// Keys of one cipher. The first one encrypts, all decrypt.
#[derive(Debug)]
struct Keys {
    prefix: &'static [u8],
    keys: Vec<Key>,
    no_key: &'static str,
    series: KnownSeries,
}

struct Key {
    /// The name with a colon behind it.
    prefix: String,
    cipher: Cipher,
    series: KnownSeries,
}

enum Cipher {
    AesGcm(AesGcm),
    AesCbc(AesCbc),
    Secretbox(Secretbox),
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.prefix)
    }
}

/// A value that was read, or what keeps it from being read now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened {
    /// The value, and whether a write would encrypt it in another way.
    Plain {
        /// The value.
        value: Bytes,
        /// Whether it should be written again.
        is_stale: bool,
    },
    /// A plug-in has to be asked for its key: see `Encryption::open_waiting`.
    Waits {
        /// The value as it is stored.
        stored: Bytes,
        /// Whether it should be written again.
        is_stale: bool,
    },
}

/// The errors of plug-ins that were asked for the key of a value, by the place of the provider.
pub(crate) type Fetched = HashMap<usize, String>;

impl Providers {
    /// Adds the providers of an entry.
    pub fn extend(
        &mut self,
        configs: &[ProviderConfig],
        plugins: &HashMap<&KmsConfig, Arc<Plugin>>,
    ) -> Result<(), CipherError> {
        for config in configs {
            let gcm = |key: &[u8]| AesGcm::new(key).map(Cipher::AesGcm);
            let cbc = |key: &[u8]| AesCbc::new(key).map(Cipher::AesCbc);
            let secretbox = |key: &[u8]| Secretbox::new(key).map(Cipher::Secretbox);
            self.0.extend(match config {
                ProviderConfig::AesGcm(keys) => {
                    Some(Provider::keys(b"k8s:enc:aesgcm:v1:", keys, gcm, NO_KEY_AES)?)
                }
                ProviderConfig::AesCbc(keys) => {
                    Some(Provider::keys(b"k8s:enc:aescbc:v1:", keys, cbc, NO_KEY_AES)?)
                }
                ProviderConfig::Secretbox(keys) => {
                    Some(Provider::keys(b"k8s:enc:secretbox:v1:", keys, secretbox, NO_KEY_BOX)?)
                }
                ProviderConfig::Kms(kms) => plugins
                    .get(kms)
                    .map(|plugin| Provider::Kms(plugin.clone(), KnownSeries::default())),
                ProviderConfig::Identity => Some(Provider::Identity(KnownSeries::default())),
            });
        }
        Ok(())
    }

    /// Encrypts a value with the first provider. `path` is its key in etcd.
    pub fn seal(&self, value: &Bytes, path: &[u8], counted: &Counted<'_>) -> Result<Bytes, String> {
        let Some(provider) = self.0.first() else { return Ok(value.clone()) };
        let began = Instant::now();
        let (sealed, series) = match provider {
            Provider::Identity(series) => (Ok(value.clone()), series),
            Provider::Kms(plugin, series) => (plugin.seal(value, path, began), series),
            Provider::Keys(keys) => return keys.seal(value, path, began, counted),
        };
        counted.count_known(series, provider.prefix(), began.elapsed(), &sealed);
        sealed
    }

    /// Decrypts a value with the first provider that can; where it is, if nobody else holds it.
    pub fn open(
        &self,
        stored: Bytes,
        path: &[u8],
        fetched: &Fetched,
        counted: &Counted<'_>,
    ) -> Result<Opened, String> {
        let mut errors = vec![];
        let mut left = Some(stored);
        for (at, provider) in self.0.iter().enumerate() {
            let knows = |value: &&Bytes| provider.knows(value);
            let Some(stored) = left.as_ref().filter(knows) else { continue };
            let began = Instant::now();
            let opened = match provider {
                Provider::Identity(_) => {
                    Ok(Opened::Plain { value: stored.clone(), is_stale: false })
                }
                Provider::Keys(keys) => {
                    let is_last = !self.0[at + 1..].iter().any(|later| later.knows(stored));
                    keys.open(given(&mut left, is_last), path, began, counted)
                }
                Provider::Kms(plugin, _) => {
                    let sealed = &stored[plugin.prefix().len()..];
                    match (plugin.open(sealed, path), fetched.get(&at)) {
                        (Ok(KmsOpened::Waits { .. }), Some(error)) => Err(error.clone()),
                        (Ok(KmsOpened::Waits { is_stale }), None) => {
                            Ok(Opened::Waits { stored: stored.clone(), is_stale })
                        }
                        (Ok(KmsOpened::Plain { value, is_stale }), _) => {
                            Ok(Opened::Plain { value, is_stale })
                        }
                        (Err(error), _) => Err(error),
                    }
                }
            };
            // A value that waits is counted when it is opened again; keys count themselves.
            if let Provider::Kms(_, series) | Provider::Identity(series) = provider
                && !matches!(opened, Ok(Opened::Waits { .. }))
            {
                counted.count_known(series, provider.read_label(), began.elapsed(), &opened);
            }
            match opened {
                Ok(Opened::Plain { value, is_stale }) => {
                    return Ok(Opened::Plain { value, is_stale: is_stale || at > 0 });
                }
                Ok(Opened::Waits { stored, is_stale }) => {
                    return Ok(Opened::Waits { stored, is_stale: is_stale || at > 0 });
                }
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() {
            let unknown = Err("no matching prefix found".to_owned());
            counted.count(UNKNOWN, Duration::ZERO, &unknown);
            return unknown;
        }
        Err(aggregate(errors))
    }

    /// Asks the plug-ins for the key of a value. Their errors are for [`Providers::open`].
    pub async fn fetch_keys(&self, stored: &[u8]) -> Fetched {
        let mut errors = Fetched::new();
        for (at, provider) in self.0.iter().enumerate() {
            if let Provider::Kms(plugin, _) = provider
                && let Some(sealed) = stored.strip_prefix(plugin.prefix())
                && let Err(error) = plugin.fetch_key(sealed).await
            {
                errors.insert(at, error);
            }
        }
        errors
    }

    /// Whether a plug-in may have to be asked.
    pub fn may_wait(&self) -> bool {
        self.0.iter().any(|provider| matches!(provider, Provider::Kms(..)))
    }

    /// Returns the name of the key that new values are encrypted with.
    pub fn write_key(&self) -> String {
        match self.0.first() {
            None | Some(Provider::Identity(_)) => IDENTITY.to_owned(),
            Some(Provider::Kms(plugin, _)) => plugin.write_key_name(),
            Some(Provider::Keys(keys)) => {
                let key = keys
                    .keys
                    .first()
                    .and_then(|key| key.prefix.split(':').next())
                    .unwrap_or_default();
                format!("{}:{key}", cipher_name(keys.prefix))
            }
        }
    }
}

/// The name of the key of values that are not encrypted.
const IDENTITY: &str = "identity";

/// Returns the name of the key that a value was encrypted with, as far as the value says:
/// `aesgcm:NAME`, `kms:PLUG-IN:KEY`, `kms:PLUG-IN` or `identity`.
#[must_use]
pub(crate) fn key_name(stored: &[u8]) -> String {
    let Some(rest) = stored.strip_prefix(ENCRYPTED) else { return IDENTITY.to_owned() };
    let mut parts = rest.splitn(4, |byte| *byte == b':');
    let mut part = || parts.next().unwrap_or_default();
    let cipher = part();
    let version = part();
    let name = part();
    let sealed = part();
    if cipher == b"kms" {
        return kms::key_name(version, name, sealed);
    }
    format!("{}:{}", cipher.escape_ascii(), name.escape_ascii())
}

/// Returns `aesgcm` of `k8s:enc:aesgcm:v1:`.
fn cipher_name(prefix: &[u8]) -> &str {
    let text = std::str::from_utf8(prefix).unwrap_or_default();
    text.split(':').nth(2).unwrap_or_default()
}

impl Provider {
    fn keys(
        prefix: &'static [u8],
        configs: &[KeyConfig],
        cipher: impl Fn(&[u8]) -> Result<Cipher, CipherError>,
        no_key: &'static str,
    ) -> Result<Provider, CipherError> {
        let key = |config: &KeyConfig| {
            let prefix = format!("{}:", config.name);
            Ok(Key { prefix, cipher: cipher(&config.secret)?, series: KnownSeries::default() })
        };
        let keys = configs.iter().map(key).collect::<Result<_, _>>()?;
        Ok(Provider::Keys(Keys { prefix, keys, no_key, series: KnownSeries::default() }))
    }

    /// Returns whether the value looks as if it were of this provider. The identity leaves those
    /// that are encrypted to others.
    fn knows(&self, stored: &[u8]) -> bool {
        match self {
            Provider::Identity(_) => !stored.starts_with(ENCRYPTED),
            _ => stored.starts_with(self.prefix()),
        }
    }

    /// Returns the prefix as the metrics of reads have it.
    fn read_label(&self) -> &[u8] {
        match self {
            Provider::Identity(_) => IDENTITY.as_bytes(),
            _ => self.prefix(),
        }
    }

    fn prefix(&self) -> &[u8] {
        match self {
            Provider::Keys(keys) => keys.prefix,
            Provider::Kms(plugin, _) => plugin.prefix(),
            Provider::Identity(_) => b"",
        }
    }
}

/// Returns the value for one that tries to decrypt it, and may spoil it: the last one need not
/// leave it to others.
fn given(left: &mut Option<Bytes>, is_last: bool) -> Bytes {
    if is_last { left.take() } else { left.clone() }.unwrap_or_default()
}

impl Keys {
    fn seal(
        &self,
        value: &[u8],
        path: &[u8],
        began: Instant,
        counted: &Counted<'_>,
    ) -> Result<Bytes, String> {
        let key = self.keys.first().ok_or(self.no_key)?;
        let mut out = Vec::with_capacity(self.prefix.len() + key.prefix.len() + value.len() + 48);
        out.extend_from_slice(self.prefix);
        out.extend_from_slice(key.prefix.as_bytes());
        let sealed = match &key.cipher {
            Cipher::AesGcm(cipher) => cipher.seal(value, path, &mut out),
            Cipher::AesCbc(cipher) => cipher.seal(value, &mut out),
            Cipher::Secretbox(cipher) => cipher.seal(value, &mut out),
        };
        let sealed = sealed.map_err(|error| error.to_string());
        let took = began.elapsed();
        counted.count_known(&key.series, key.prefix.as_bytes(), took, &sealed);
        counted.count_known(&self.series, self.prefix, took, &sealed);
        sealed.map(|()| out.into())
    }

    /// Decrypts a value that begins with the prefix of these keys.
    fn open(
        &self,
        mut stored: Bytes,
        path: &[u8],
        began: Instant,
        counted: &Counted<'_>,
    ) -> Result<Opened, String> {
        stored.advance(self.prefix.len());
        let opened = self.open_with_any(stored, path, began, counted);
        counted.count_known(&self.series, self.prefix, began.elapsed(), &opened);
        opened
    }

    fn open_with_any(
        &self,
        stored: Bytes,
        path: &[u8],
        began: Instant,
        counted: &Counted<'_>,
    ) -> Result<Opened, String> {
        let mut errors = vec![];
        let mut left = Some(stored);
        for (at, key) in self.keys.iter().enumerate() {
            let knows = |key: &Key, value: &Bytes| value.starts_with(key.prefix.as_bytes());
            let Some(stored) = left.as_ref().filter(|value| knows(key, value)) else { continue };
            let is_last = !self.keys[at + 1..].iter().any(|later| knows(later, stored));
            let mut stored = given(&mut left, is_last);
            stored.advance(key.prefix.len());
            // Not copied, if nobody else holds it.
            let sealed = BytesMut::from(stored);
            let opened = match &key.cipher {
                Cipher::AesGcm(cipher) => cipher.open(sealed, path),
                Cipher::AesCbc(cipher) => cipher.open(sealed),
                Cipher::Secretbox(cipher) => cipher.open(sealed),
            }
            .map_err(|error| error.to_string());
            counted.count_known(&key.series, key.prefix.as_bytes(), began.elapsed(), &opened);
            match opened {
                Ok(value) => return Ok(Opened::Plain { value, is_stale: at > 0 }),
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() { Err(self.no_key.to_owned()) } else { Err(aggregate(errors)) }
    }
}
