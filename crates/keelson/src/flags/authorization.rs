//! The flags of authorization and of the token webhook.

use super::duration;
use anyhow::{Context, Result, anyhow, bail};
use keelson::{Authorization, TokenWebhookOptions};
use keelson_auth::Abac;
use keelson_auth::webhook::{FailurePolicy, ReviewVersion, WebhookOptions};
use std::path::PathBuf;
use std::time::Duration;

/// Timeout of a call to the webhook of `--authorization-webhook-config-file`.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(30);
const WEBHOOK: &str = "Webhook";

/// `--authorization-*`, `--authentication-token-webhook-*`.
#[derive(clap::Args, Debug)]
pub struct AuthorizationFlags {
    /// Authorizers, in the order in which they are asked: Node, RBAC, ABAC, Webhook, AlwaysAllow, AlwaysDeny
    /// [default: Node,RBAC].
    #[arg(long, value_delimiter = ',', value_name = "MODE")]
    authorization_mode: Vec<String>,
    /// Policies of the ABAC mode: one JSON object per line.
    #[arg(long, value_name = "FILE")]
    authorization_policy_file: Option<PathBuf>,
    /// AuthorizationConfiguration file, instead of the modes: a list of authorizers that may contain
    /// several webhooks. It is reloaded when it changes.
    #[arg(long, value_name = "FILE")]
    authorization_config: Option<PathBuf>,
    /// Kubeconfig of the webhook of the Webhook mode.
    #[arg(long, value_name = "FILE")]
    authorization_webhook_config_file: Option<PathBuf>,
    /// Version of the SubjectAccessReviews that are sent: v1 or v1beta1 [default: v1beta1].
    #[arg(long, value_name = "VERSION")]
    authorization_webhook_version: Option<String>,
    /// How long to cache allowed requests [default: 5m0s].
    #[arg(long, value_name = "DURATION")]
    authorization_webhook_cache_authorized_ttl: Option<String>,
    /// How long to cache denied requests [default: 30s].
    #[arg(long, value_name = "DURATION")]
    authorization_webhook_cache_unauthorized_ttl: Option<String>,
    /// Kubeconfig of a webhook that authenticates bearer tokens.
    #[arg(long, value_name = "FILE")]
    authentication_token_webhook_config_file: Option<PathBuf>,
    /// Version of the TokenReviews that are sent: v1 or v1beta1.
    #[arg(long, value_name = "VERSION", default_value = "v1beta1")]
    authentication_token_webhook_version: String,
    /// How long to cache answers of the token webhook.
    #[arg(long, value_name = "DURATION", default_value = "2m0s")]
    authentication_token_webhook_cache_ttl: String,
}

impl AuthorizationFlags {
    /// Whether `--authorization-mode` allows every request. Anonymous requests are then not authenticated.
    pub fn allows_all(&self) -> bool {
        self.authorization_mode.iter().any(|mode| mode == "AlwaysAllow")
    }

    /// Returns the authorizers that the flags describe.
    pub fn authorization(&self) -> Result<Authorization> {
        let mut authorization = match &self.authorization_config {
            Some(_) if self.has_other_flags() => bail!(
                "--authorization-config can not be specified when --authorization-mode or \
                 --authorization-webhook-* flags are defined"
            ),
            Some(path) => Authorization::file(path).map_err(anyhow::Error::msg)?,
            None if self.authorization_mode.is_empty() => Authorization::default(),
            None => Authorization::modes(&self.authorization_mode).map_err(anyhow::Error::msg)?,
        };
        authorization = match (&self.authorization_policy_file, authorization.has("ABAC")) {
            (None, false) => authorization,
            (Some(path), true) => {
                let context = || format!("--authorization-policy-file: {}", path.display());
                let text = std::fs::read_to_string(path).with_context(context)?;
                authorization.with_abac(Abac::parse(&text).with_context(context)?)
            }
            (None, true) => {
                bail!("authorization-mode ABAC's authorization policy file not passed")
            }
            (Some(_), false) => {
                bail!("cannot specify --authorization-policy-file without mode ABAC")
            }
        };
        if self.authorization_config.is_some() {
            return Ok(authorization);
        }
        match (&self.authorization_webhook_config_file, authorization.has(WEBHOOK)) {
            (None, false) => Ok(authorization),
            (Some(path), true) => {
                let path = path.to_str().context("--authorization-webhook-config-file")?;
                Ok(authorization.with_webhook(path.to_owned(), &self.webhook()?))
            }
            (None, true) => {
                bail!("authorization-mode Webhook's authorization config file not passed")
            }
            (Some(_), false) => {
                bail!("cannot specify --authorization-webhook-config-file without mode Webhook")
            }
        }
    }

    fn has_other_flags(&self) -> bool {
        !self.authorization_mode.is_empty()
            || self.authorization_webhook_config_file.is_some()
            || self.authorization_webhook_version.is_some()
            || self.authorization_webhook_cache_authorized_ttl.is_some()
            || self.authorization_webhook_cache_unauthorized_ttl.is_some()
    }

    fn webhook(&self) -> Result<WebhookOptions> {
        let version = self.authorization_webhook_version.as_deref().unwrap_or("v1beta1");
        let version = ReviewVersion::parse(version).ok_or_else(|| {
            anyhow!(
                "invalid authorization config: unsupported webhook authorizer version {version:?}, \
                 supported versions are \"v1\", \"v1beta1\""
            )
        })?;
        let ttl = |flag: &str, given: &Option<String>, default: &str| {
            duration(flag, given.as_deref().unwrap_or(default), default)
        };
        let (authorized, unauthorized) = (
            &self.authorization_webhook_cache_authorized_ttl,
            &self.authorization_webhook_cache_unauthorized_ttl,
        );
        let flag = "--authorization-webhook-cache";
        Ok(WebhookOptions {
            version,
            timeout: WEBHOOK_TIMEOUT,
            authorized_ttl: ttl(&format!("{flag}-authorized-ttl"), authorized, "5m0s")?,
            unauthorized_ttl: ttl(&format!("{flag}-unauthorized-ttl"), unauthorized, "30s")?,
            failure_policy: FailurePolicy::NoOpinion,
            match_conditions: vec![],
        })
    }

    /// Returns the options of the token webhook, if there is one.
    pub fn token_webhook(&self) -> Result<Option<TokenWebhookOptions>> {
        let Some(path) = &self.authentication_token_webhook_config_file else { return Ok(None) };
        let version = &self.authentication_token_webhook_version;
        let version = ReviewVersion::parse(version).ok_or_else(|| {
            anyhow!(
                "unsupported authentication webhook version {version:?}, supported versions are \
                 \"v1\", \"v1beta1\""
            )
        })?;
        let flag = "--authentication-token-webhook-cache-ttl";
        let cache_ttl = duration(flag, &self.authentication_token_webhook_cache_ttl, "2m0s")?;
        Ok(Some(TokenWebhookOptions { kubeconfig: path.clone(), version, cache_ttl }))
    }
}
