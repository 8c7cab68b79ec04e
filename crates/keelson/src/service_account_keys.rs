//! Keys, issuers and audiences of service account tokens: kube-apiserver's flags, or an own key that is
//! made at the first start and kept beside the certificates. An external signer may stand in the place of keys.

use crate::files::fingerprint;
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

/// The own key, in the folder of certificates.
const OWN_KEY: &str = "sa.key";
/// Issuer of a server that is told none.
const ISSUER_DEFAULT: &str = "https://kubernetes.default.svc";
/// The least that an external signer must allow: the shortest life of a token that clients may ask for.
const EXPIRATION_SECONDS_MIN: i64 = 600;

/// Options for issuing and verifying service account tokens.
#[derive(Clone, Debug)]
pub struct ServiceAccountTokenOptions {
    /// `--service-account-issuer`: the first signs, all are accepted.
    pub issuers: Vec<String>,
    /// `--api-audiences`; none is the issuers.
    pub audiences: Vec<String>,
    /// `--service-account-signing-key-file`; `None` is an own key.
    pub signing_key_file: Option<PathBuf>,
    /// `--service-account-signing-endpoint`: the socket of an external signer, which signs and names the keys.
    pub signing_endpoint: Option<String>,
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
    /// Reads the keys, or makes the own one, or asks the external signer. `dir` is the folder of certificates;
    /// `None` keeps the own key in memory.
    pub(crate) async fn tokens(
        &self,
        dir: Option<&Path>,
    ) -> Result<ServiceAccountTokens, StartError> {
        if let Some(endpoint) = &self.signing_endpoint {
            return self.external(endpoint).await;
        }
        let signing = match &self.signing_key_file {
            Some(path) => read_signing(path)?,
            None => own_key(dir)?,
        };
        Ok(ServiceAccountTokens::new(self.options(), self.keys(Arc::new(signing))?))
    }

    /// The tokens of an external signer, which must answer.
    async fn external(&self, endpoint: &str) -> Result<ServiceAccountTokens, StartError> {
        check_endpoint(endpoint)?;
        let failed = |why| StartError::new(format!("while setting up external-jwt-signer: {why}"));
        let signer = ExternalSigner::new(endpoint).map_err(failed)?;
        let steps = "while initially filling key cache: while performing initial cache fill";
        let filled = |why| failed(format!("{steps}: {why}"));
        let keys = signer.fetch_keys(CALL_TIME_MAX).await.map_err(filled)?;
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
            for key in read.map_err(|error| named(flag, path, &error))? {
                if verifying.iter().all(|known| known.id != key.id) {
                    verifying.push(key);
                }
            }
        }
        Ok(TokenKeys { signing: Some(signing), verifying })
    }

    /// Reads the key files again. The own key stays as it is.
    fn reloaded(&self, tokens: &ServiceAccountTokens) -> Result<TokenKeys, StartError> {
        let signing = match &self.signing_key_file {
            Some(path) => Arc::new(read_signing(path)?),
            None => match &tokens.keys().signing {
                Some(own) => own.clone(),
                None => return Err(StartError::new("there is no own key".to_owned())),
            },
        };
        self.keys(signing)
    }

    /// Whether keys are read from files that are not the server's own.
    pub(crate) fn has_files(&self) -> bool {
        self.signing_key_file.is_some() || !self.key_files.is_empty()
    }

    /// Follows the key files until it is dropped. What cannot be read is logged, and what was before goes on.
    pub(crate) async fn follow(self, tokens: Arc<ServiceAccountTokens>, look: Duration) {
        let files = || fingerprint(self.signing_key_file.iter().chain(&self.key_files));
        let mut seen = files();
        loop {
            tokio::time::sleep(look).await;
            let now = files();
            if now == seen {
                continue;
            }
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
            // Not as it is by now: what changed meanwhile is met at the next look.
            seen = now;
        }
    }
}

/// An absolute path, or `@` and a name of the abstract namespace.
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
    SigningKey::read(&read(flag, path)?).map_err(|error| named(flag, path, &error))
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
