//! Encryption at rest, as `--encryption-provider-config` of kube-apiserver configures it: the same
//! stored bytes, the same configuration, the same messages.
//!
//! - A value is encrypted with the first provider of its resource, and decrypted with the first one
//!   that can. One that another provider or key has encrypted is *stale*: a write of the same value
//!   stores it anew.
//! - The key path of a value in etcd is authenticated by AES-GCM and by KMS plug-ins, so that a
//!   value that was moved to another key is not read. secretbox and AES-CBC do not have that, as
//!   upstream.
//! - A value that cannot be decrypted is an error that says why, never another value. AES-CBC alone
//!   does not notice changed bytes.
//! - The keys of ciphers are overwritten when they are dropped, except those of AES-GCM, which are
//!   in ring as those of TLS. No key is ever formatted.
//!
//! The crate knows keys and bytes. What is stored where is the business of its caller.

mod authenticator;
mod ciphers;
mod config;
mod encryption;
mod hash;
mod keystream;
mod kms;
mod metrics;
mod providers;

pub use config::{
    Config, ConfigError, GroupResource, KeyConfig, KmsConfig, KmsVersion, ProviderConfig,
    ResourceConfig,
};
pub use encryption::{Encryption, is_encrypted, key_of};
pub use metrics::Metrics;
pub use providers::Opened;
