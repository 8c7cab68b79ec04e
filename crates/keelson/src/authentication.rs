//! [`JwtOptions`]: the issuers whose JWTs are accepted, and the loop that reloads
//! `--authentication-config` when it changes. [`TokenWebhookOptions`]: the token webhook.

use crate::authorization;
use crate::files::{check_kind, go_words, text_changed};
use crate::start_error::StartError;
use keelson_auth::JwtSlot;
use keelson_auth::oidc::{
    self, AnonymousConfig, AuthenticationConfiguration, JoseAlgorithm, JwtAuthenticators, JwtConfig,
};
use keelson_auth::webhook::{ReviewVersion, WebhookTokens};
use keelson_egress::Egress;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The issuers whose JWTs are accepted.
#[derive(Clone, Debug)]
pub struct JwtOptions {
    /// The issuers.
    pub issuers: Vec<JwtConfig>,
    /// The signing algorithms that are accepted.
    pub algorithms: Vec<JoseAlgorithm>,
    /// `--authentication-config`: the file that the issuers come from. It is reloaded when it
    /// changes.
    pub file: Option<AuthenticationFile>,
}

/// A file of `--authentication-config`.
#[derive(Clone, Debug)]
pub struct AuthenticationFile {
    path: PathBuf,
    /// The content that was read last.
    text: String,
}

/// A webhook that authenticates bearer tokens (`--authentication-token-webhook-*`).
#[derive(Clone, Debug)]
pub struct TokenWebhookOptions {
    /// The kubeconfig with its address and credentials.
    pub kubeconfig: PathBuf,
    /// The version of the TokenReviews sent to it.
    pub version: ReviewVersion,
    /// Cache time of its answers.
    pub cache_ttl: Duration,
}

impl TokenWebhookOptions {
    pub(crate) fn webhook(&self, egress: &Egress) -> Result<WebhookTokens, StartError> {
        let failed =
            |why| StartError::new(format!("--authentication-token-webhook-config-file: {why}"));
        let kubeconfig = authorization::kubeconfig(&self.kubeconfig).map_err(failed)?;
        WebhookTokens::new(&kubeconfig, self.version, self.cache_ttl, egress).map_err(failed)
    }
}

impl JwtOptions {
    /// Reads a file of `--authentication-config`. Also returns its settings for anonymous requests,
    /// if it has any.
    pub fn read(path: &Path) -> Result<(JwtOptions, Option<AnonymousConfig>), String> {
        let failed = |why: String| {
            let path = path.display().to_string();
            format!("failed to load authentication configuration from file {path:?}: {why}")
        };
        let text = std::fs::read_to_string(path).map_err(|error| failed(go_words(path, &error)))?;
        let config = parse(&text).map_err(failed)?;
        let file = AuthenticationFile { path: path.to_owned(), text };
        let options = JwtOptions {
            issuers: config.jwt,
            algorithms: JoseAlgorithm::ALL.to_vec(),
            file: Some(file),
        };
        Ok((options, config.anonymous))
    }

    /// Validates the issuers and sets their authenticators in `slot`.
    pub(crate) fn start(
        &self,
        slot: &JwtSlot,
        anonymous: Option<&AnonymousConfig>,
        disallowed_issuers: &[String],
        egress: &Arc<Egress>,
    ) -> Result<(), StartError> {
        let checked = oidc::validate(&self.issuers, anonymous, disallowed_issuers);
        checked.map_err(|error| {
            let text = error.to_string();
            // Flags have one issuer, which upstream does not number.
            let of_flags = text.strip_prefix("invalid authentication configuration: jwt[0].");
            let of_flags = of_flags
                .filter(|why| self.file.is_none() && why.contains("must not overlap"))
                .map(str::to_owned);
            StartError::new(of_flags.unwrap_or(text))
        })?;
        let issuers = self.issuers.clone();
        let algorithms = &self.algorithms;
        let authenticators =
            JwtAuthenticators::new(issuers, algorithms, disallowed_issuers, egress);
        slot.set(authenticators.map_err(StartError::new)?);
        Ok(())
    }
}

fn parse(text: &str) -> Result<AuthenticationConfiguration, String> {
    let parsed = keelson_schema::yaml::parse(text).map_err(|error| error.to_string())?;
    if let Some((line, key)) = parsed.duplicates.first() {
        return Err(format!(
            "strict decoding error: yaml: line {line}: key {key} already set in map"
        ));
    }
    check_kind(&parsed.value, "AuthenticationConfiguration")?;
    AuthenticationConfiguration::read(&parsed.value)
}

/// Reloads `--authentication-config` when it changes.
#[derive(Clone)]
pub(crate) struct Reload {
    pub file: AuthenticationFile,
    pub slot: Arc<JwtSlot>,
    pub disallowed_issuers: Vec<String>,
    pub egress: Arc<Egress>,
    pub interval: Duration,
}

/// How long to wait for new issuers to fetch their keys before they replace the old ones.
const READY_TIME_MAX: Duration = Duration::from_secs(60);

impl Reload {
    /// Checks the file for changes until the future is dropped. An invalid file is logged, and the
    /// configuration before it stays. The settings for anonymous requests are read only at the
    /// start, as in kube-apiserver.
    pub async fn run(mut self) {
        loop {
            let file = &mut self.file;
            let what = "authentication configuration";
            text_changed(&file.path, &mut file.text, self.interval, what).await;
            let path = file.path.display().to_string();
            match self.issuers() {
                Ok(issuers) => {
                    // Meanwhile the old authenticators verify the tokens of known issuers.
                    let _ = tokio::time::timeout(READY_TIME_MAX, issuers.ready()).await;
                    self.slot.set(issuers);
                    tracing::info!(path, "authentication configuration reloaded");
                }
                Err(error) => {
                    tracing::error!(
                        error,
                        path,
                        "authentication configuration not reloaded; keeping the one before"
                    );
                }
            }
        }
    }

    fn issuers(&self) -> Result<JwtAuthenticators, String> {
        let config = parse(&self.file.text)?;
        let disallowed = &self.disallowed_issuers;
        oidc::validate(&config.jwt, config.anonymous.as_ref(), disallowed)
            .map_err(|error| error.to_string())?;
        JwtAuthenticators::new(config.jwt, &JoseAlgorithm::ALL, disallowed, &self.egress)
    }
}
