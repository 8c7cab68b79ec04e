//! [`Plugin`]: a KMS plug-in, a process behind a Unix domain socket that encrypts the keys of
//! values.
//!
//! This server makes a key when it starts and when it must have another one; the plug-in encrypts
//! it, and the result is stored with each value. While the plug-in does not answer, known values
//! are read and values are written with the last key, for three minutes.

mod data_key;
mod envelope;
mod proto;
mod socket;
mod v1;
mod v2;
mod write_seed;

pub(crate) use envelope::aggregate;

use crate::config::{KmsConfig, KmsVersion};
use crate::metrics::Metrics;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Instant;

/// A plug-in.
#[derive(Debug)]
pub(crate) enum Plugin {
    V1(v1::PluginV1),
    V2(v2::PluginV2),
}

/// A value that was read, or what keeps it from being read now.
pub(crate) enum KmsOpened {
    Plain {
        value: Bytes,
        is_stale: bool,
    },
    /// The plug-in has to decrypt its key.
    Waits {
        is_stale: bool,
    },
}

impl Plugin {
    /// Returns a plug-in that was not asked yet.
    pub fn new(config: &KmsConfig, metrics: Arc<Metrics>) -> Result<Plugin, String> {
        Ok(match config.version {
            KmsVersion::V1 => Plugin::V1(v1::PluginV1::new(config, metrics)?),
            KmsVersion::V2 => Plugin::V2(v2::PluginV2::new(config, metrics)?),
        })
    }

    /// Returns what stands in front of each value.
    pub fn prefix(&self) -> &[u8] {
        match self {
            Plugin::V1(plugin) => &plugin.prefix,
            Plugin::V2(plugin) => &plugin.prefix,
        }
    }

    /// Encrypts a value. `path` is its key in etcd.
    pub fn seal(&self, plain: &[u8], path: &[u8], now: Instant) -> Result<Bytes, String> {
        match self {
            Plugin::V1(plugin) => plugin.seal(plain, path, now),
            Plugin::V2(plugin) => plugin.seal(plain, path, now),
        }
    }

    /// Decrypts what follows the prefix, if its key is known.
    pub fn open(&self, stored: &[u8], path: &[u8]) -> Result<KmsOpened, String> {
        match self {
            Plugin::V1(plugin) => plugin.open(stored, path),
            Plugin::V2(plugin) => plugin.open(stored, path),
        }
    }

    /// Lets the plug-in decrypt the key of a value, unless it is known.
    pub async fn fetch_key(&self, stored: &[u8]) -> Result<(), String> {
        match self {
            Plugin::V1(plugin) => plugin.fetch_key(stored).await,
            Plugin::V2(plugin) => plugin.fetch_key(stored).await,
        }
    }

    /// Returns the name of the key that new values are encrypted with: see [`key_name`].
    pub fn write_key_name(&self) -> String {
        match self {
            Plugin::V1(plugin) => v1_key_name(&plugin.name),
            Plugin::V2(plugin) => v2_key_name(&plugin.name, plugin.write_key_id().as_deref()),
        }
    }

    /// Asks the plug-in how it is, and makes a new key if it is time.
    pub async fn check(&self) -> Result<(), String> {
        match self {
            Plugin::V1(plugin) => plugin.check().await,
            Plugin::V2(plugin) => plugin.check().await,
        }
    }
}

/// Returns the name of the key of a value, as far as the value says: `kms:PLUG-IN:KEY`, or
/// `kms:PLUG-IN` for version 1, which does not name its keys. `sealed` is what follows the name.
pub(crate) fn key_name(version: &[u8], plugin: &[u8], sealed: &[u8]) -> String {
    let plugin = plugin.escape_ascii().to_string();
    match version {
        b"v1" => v1_key_name(&plugin),
        _ => v2_key_name(&plugin, v2::PluginV2::key_id(sealed).as_deref()),
    }
}

fn v2_key_name(plugin: &str, key_id: Option<&str>) -> String {
    format!("kms:{plugin}:{}", key_id.unwrap_or("unknown"))
}

/// The name of a plug-in of version 1 may have colons; a value does not say where it ends.
fn v1_key_name(plugin: &str) -> String {
    format!("kms:{}", plugin.split(':').next().unwrap_or_default())
}
