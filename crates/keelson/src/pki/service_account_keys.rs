//! Keys, issuers and audiences of service account tokens. The keys come from kube-apiserver's
//! flags, from an external signer, or from a key that is generated at the first start and kept
//! beside the certificates.

use crate::files::{changed, fingerprint};
use crate::private_files;
use crate::start_error::StartError;
use keelson_auth::service_account::{
    CALL_TIME_MAX, EXTENDED_SECONDS_DEFAULT, ExternalSigner, ServiceAccountOptions,
    ServiceAccountTokens, SigningKey, TokenKeys, VerifyingKey,
};
use keelson_meta::Str;
use keelson_meta::time::GoDuration;
use rcgen::KeyPair;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// File name of the generated key, in the folder of certificates.
const GENERATED_KEY: &str = "sa.key";
/// Default issuer.
const ISSUER_DEFAULT: &str = "https://kubernetes.default.svc";
/// The smallest maximum lifetime that an external signer may announce: the shortest lifetime that
/// clients may request.
const EXPIRATION_SECONDS_MIN: i64 = 600;

/// Options for issuing and verifying service account tokens.
#[derive(Clone, Debug)]
pub struct ServiceAccountTokenOptions {
    /// `--service-account-issuer`: new tokens have the first; all are accepted.
    pub issuers: Vec<String>,
    /// `--api-audiences`; empty: the issuers.
    pub audiences: Vec<String>,
    /// `--service-account-signing-key-file`; `None`: a generated key.
    pub signing_key_file: Option<PathBuf>,
    /// `--service-account-signing-endpoint`: the socket of an external signer.
    pub signing_endpoint: Option<String>,
    /// `--service-account-key-file`: keys that verify tokens, beside the signing key.
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
            signing_endpoint: None,
            key_files: vec![],
            expiration_seconds_max: None,
            extends_expiration: true,
            lookup: true,
            jwks_uri: None,
        }
    }
}

impl ServiceAccountTokenOptions {
    /// Reads the keys, generates one, or fetches them from the external signer. `dir` is the folder
    /// of certificates; `None` keeps a generated key in memory.
    pub(crate) async fn tokens(
        &self,
        dir: Option<&Path>,
    ) -> Result<ServiceAccountTokens, StartError> {
        if let Some(endpoint) = &self.signing_endpoint {
            return self.external(endpoint).await;
        }
        let signing = match &self.signing_key_file {
            Some(path) => read_signing(path)?,
            None => generated_key(dir)?,
        };
        Ok(ServiceAccountTokens::new(self.options(), self.keys(Arc::new(signing))?))
    }

    /// Returns tokens with an external signer. It is an error when the signer does not answer.
    async fn external(&self, endpoint: &str) -> Result<ServiceAccountTokens, StartError> {
        check_endpoint(endpoint)?;
        let failed = |why| StartError::new(format!("while setting up external-jwt-signer: {why}"));
        let signer = ExternalSigner::new(endpoint).map_err(failed)?;
        let step = "while initially filling key cache: while performing initial cache fill";
        let fill_failed = |why| failed(format!("{step}: {why}"));
        let keys = signer.fetch_keys(CALL_TIME_MAX).await.map_err(fill_failed)?;
        let max = signer.expiration_seconds_max().await.map_err(failed)?;
        if max < EXPIRATION_SECONDS_MIN {
            return Err(StartError::new(format!(
                "max token life supported by external-jwt-signer ({max}s) is less than acceptable \
                 (min {EXPIRATION_SECONDS_MIN}s)"
            )));
        }
        let mut options = self.options();
        if let Some(given) = self.expiration_seconds_max.filter(|given| *given > max) {
            let [given, max] = [given, max].map(|s| GoDuration(s.saturating_mul(1_000_000_000)));
            return Err(StartError::new(format!(
                "service-account-max-token-expiration cannot be set longer than the token expiration \
                 supported by service-account-signing-endpoint: {given} > {max}"
            )));
        }
        options.expiration_seconds_max.get_or_insert(max);
        options.extended_seconds = options.extended_seconds.min(max);
        Ok(ServiceAccountTokens::external(options, signer, keys))
    }

    fn options(&self) -> ServiceAccountOptions {
        let audiences = if self.audiences.is_empty() { &self.issuers } else { &self.audiences };
        ServiceAccountOptions {
            issuers: self.issuers.clone(),
            audiences: audiences.iter().map(Str::from).collect(),
            expiration_seconds_max: self.expiration_seconds_max,
            extends_expiration: self.extends_expiration,
            extended_seconds: EXTENDED_SECONDS_DEFAULT,
            lookup: self.lookup,
            jwks_uri: self.jwks_uri.clone(),
        }
    }

    fn keys(&self, signing: Arc<SigningKey>) -> Result<TokenKeys, StartError> {
        let mut verifying = vec![signing.verifying.clone()];
        for path in &self.key_files {
            let flag = "--service-account-key-file";
            let read = VerifyingKey::read_all(&read(flag, path)?);
            for key in read.map_err(|error| file_error(flag, path, &error))? {
                if verifying.iter().all(|known| known.id != key.id) {
                    verifying.push(key);
                }
            }
        }
        Ok(TokenKeys { signing: Some(signing), verifying })
    }

    /// Reads the key files again. A generated key stays as it is.
    fn reloaded(&self, tokens: &ServiceAccountTokens) -> Result<TokenKeys, StartError> {
        let signing = match &self.signing_key_file {
            Some(path) => Arc::new(read_signing(path)?),
            None => match &tokens.keys().signing {
                Some(key) => key.clone(),
                None => return Err(StartError::new("there is no own key".to_owned())),
            },
        };
        self.keys(signing)
    }

    /// Whether flags name key files, which may change.
    pub(crate) fn has_files(&self) -> bool {
        self.signing_key_file.is_some() || !self.key_files.is_empty()
    }

    /// Checks the key files for changes until the future is dropped. A file that cannot be read is
    /// logged, and the keys before it stay.
    pub(crate) async fn reload_when_changed(
        self,
        tokens: Arc<ServiceAccountTokens>,
        interval: Duration,
    ) {
        let current = || fingerprint(self.signing_key_file.iter().chain(&self.key_files));
        let mut last = current();
        loop {
            changed(&mut last, interval, current).await;
            match self.reloaded(&tokens) {
                Ok(keys) => {
                    let count = keys.verifying.len();
                    tokens.set_keys(keys);
                    tracing::info!(count, "service account keys reloaded");
                }
                Err(error) => {
                    tracing::error!(%error, "service account keys not reloaded; keeping those before");
                }
            }
        }
    }
}

/// Checks that an endpoint is an absolute path, or `@` and a name in the abstract namespace.
fn check_endpoint(endpoint: &str) -> Result<(), StartError> {
    let is_valid = match endpoint.strip_prefix('@') {
        None => endpoint.starts_with('/'),
        Some(name) => {
            !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        }
    };
    if is_valid {
        return Ok(());
    }
    Err(StartError::new(format!(
        "invalid value {} passed for `--service-account-signing-endpoint`, should be a valid location \
         on the filesystem or must be prefixed with @ to name UDS in abstract namespace",
        keelson_meta::status::quote(endpoint)
    )))
}

fn read_signing(path: &Path) -> Result<SigningKey, StartError> {
    let flag = "--service-account-signing-key-file";
    SigningKey::read(&read(flag, path)?).map_err(|error| file_error(flag, path, &error))
}

/// Reads the generated key of a folder, or generates it.
fn generated_key(dir: Option<&Path>) -> Result<SigningKey, StartError> {
    let fail = |error: &dyn std::fmt::Display| StartError::new(format!("--cert-dir: {error}"));
    let path = dir.map(|dir| dir.join(GENERATED_KEY));
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
    let path = path.as_deref().unwrap_or(Path::new(GENERATED_KEY));
    SigningKey::read(&text).map_err(|error| file_error("--cert-dir", path, &error))
}

fn read(flag: &str, path: &Path) -> Result<String, StartError> {
    std::fs::read_to_string(path).map_err(|error| file_error(flag, path, &error))
}

fn file_error(flag: &str, path: &Path, error: &dyn std::fmt::Display) -> StartError {
    StartError::new(format!("{flag}: {}: {error}", path.display()))
}
