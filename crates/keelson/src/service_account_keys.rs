//! Keys, issuers and audiences of service account tokens: kube-apiserver's flags, or an own key that is
//! made at the first start and kept beside the certificates.

use crate::private_files;
use crate::server::StartError;
use keelson_auth::service_account::{
    ServiceAccountOptions, ServiceAccountTokens, SigningKey, VerifyingKey,
};
use keelson_meta::Str;
use rcgen::KeyPair;
use std::path::{Path, PathBuf};

/// The own key, in the folder of certificates.
const OWN_KEY: &str = "sa.key";
/// Issuer of a server that is told none.
const ISSUER_DEFAULT: &str = "https://kubernetes.default.svc";

/// How service account tokens are made and checked.
#[derive(Clone, Debug)]
pub struct ServiceAccountTokenOptions {
    /// `--service-account-issuer`: the first signs, all are accepted.
    pub issuers: Vec<String>,
    /// `--api-audiences`; none is the issuers.
    pub audiences: Vec<String>,
    /// `--service-account-signing-key-file`; `None` is an own key.
    pub signing_key_file: Option<PathBuf>,
    /// `--service-account-key-file`: keys that verify, beside the one that signs.
    pub key_files: Vec<PathBuf>,
    /// `--service-account-max-token-expiration`, in seconds.
    pub expiration_seconds_max: Option<i64>,
    /// `--service-account-extend-token-expiration`.
    pub extends_expiration: bool,
    /// `--service-account-lookup`.
    pub lookup: bool,
    /// `--service-account-jwks-uri`.
    pub jwks_uri: Option<String>,
}

impl Default for ServiceAccountTokenOptions {
    fn default() -> Self {
        ServiceAccountTokenOptions {
            issuers: vec![ISSUER_DEFAULT.to_owned()],
            audiences: vec![],
            signing_key_file: None,
            key_files: vec![],
            expiration_seconds_max: None,
            extends_expiration: true,
            lookup: true,
            jwks_uri: None,
        }
    }
}

impl ServiceAccountTokenOptions {
    /// Reads the keys, or makes the own one. `dir` is the folder of certificates; `None` keeps the own key in
    /// memory.
    pub(crate) fn tokens(&self, dir: Option<&Path>) -> Result<ServiceAccountTokens, StartError> {
        let signing_key = match &self.signing_key_file {
            Some(path) => {
                let flag = "--service-account-signing-key-file";
                SigningKey::read(&read(flag, path)?).map_err(|error| named(flag, path, &error))?
            }
            None => own_key(dir)?,
        };
        let mut keys = vec![signing_key.verifying.clone()];
        for path in &self.key_files {
            let flag = "--service-account-key-file";
            let read = VerifyingKey::read_all(&read(flag, path)?);
            for key in read.map_err(|error| named(flag, path, &error))? {
                if keys.iter().all(|known| known.id != key.id) {
                    keys.push(key);
                }
            }
        }
        let audiences = if self.audiences.is_empty() { &self.issuers } else { &self.audiences };
        Ok(ServiceAccountTokens::new(ServiceAccountOptions {
            issuers: self.issuers.clone(),
            audiences: audiences.iter().map(Str::from).collect(),
            signing_key: Some(signing_key),
            keys,
            expiration_seconds_max: self.expiration_seconds_max,
            extends_expiration: self.extends_expiration,
            lookup: self.lookup,
            jwks_uri: self.jwks_uri.clone(),
        }))
    }
}

/// The own key of a folder, made when there is none.
fn own_key(dir: Option<&Path>) -> Result<SigningKey, StartError> {
    let fail = |error: &dyn std::fmt::Display| StartError::new(format!("--cert-dir: {error}"));
    let path = dir.map(|dir| dir.join(OWN_KEY));
    let stored = match &path {
        Some(path) => private_files::read(path).map_err(|error| fail(&error))?,
        None => None,
    };
    let text = match stored {
        Some(text) => text,
        None => {
            let text = KeyPair::generate().map_err(|error| fail(&error))?.serialize_pem();
            if let Some(path) = &path {
                private_files::write(path, &text).map_err(|error| fail(&error))?;
            }
            text
        }
    };
    let name = path.as_deref().unwrap_or(Path::new(OWN_KEY));
    SigningKey::read(&text).map_err(|error| named("--cert-dir", name, &error))
}

fn read(flag: &str, path: &Path) -> Result<String, StartError> {
    std::fs::read_to_string(path).map_err(|error| named(flag, path, &error))
}

fn named(flag: &str, path: &Path, error: &dyn std::fmt::Display) -> StartError {
    StartError::new(format!("{flag}: {}: {error}", path.display()))
}
