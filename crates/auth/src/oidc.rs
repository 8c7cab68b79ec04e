//! OpenID Connect: tokens of other issuers (`--oidc-*`, `--authentication-config`).
//!
//! [`JwtConfig`] configures an issuer and the mapping of claims to users; [`JwtAuthenticators`]
//! verifies tokens with the published keys. Only asymmetric signatures are accepted, never `none`
//! or HMAC.

mod claim_types;
mod claims;
mod config;
mod expressions;
mod keys;
mod provider;
mod validate;
mod verify;

pub use config::{
    AnonymousConfig, AuthenticationConfiguration, ClaimMappings, ClaimRule, ExtraMapping,
    IssuerConfig, JwtConfig, Mapping, UserRule,
};
pub use keys::{JoseAlgorithm, KeySet};
pub use validate::validate;

use crate::User;
use crate::long_work;
use crate::token_digest::{Token, TokenDigest};
use expressions::Rules;
use keelson_egress::Egress;
use keelson_meta::Timestamp;
use provider::Provider;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// How long a verified token is cached, in seconds (as in kube-apiserver).
const VERIFIED_SECONDS: i64 = 10;
/// Maximum cached tokens.
const VERIFIED_TOKENS_MAX: usize = 4096;

/// Authenticates the tokens of several issuers.
pub struct JwtAuthenticators {
    issuers: Vec<JwtAuthenticator>,
    verified: Mutex<HashMap<TokenDigest, (User, i64)>>,
}

/// An issuer.
struct JwtAuthenticator {
    config: Arc<JwtConfig>,
    algorithms: Vec<JoseAlgorithm>,
    rules: Arc<Rules>,
    provider: Provider,
}

impl std::fmt::Debug for JwtAuthenticators {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.issuers.iter().map(|one| &one.config.issuer.url)).finish()
    }
}

impl JwtAuthenticators {
    /// Creates the authenticators of a validated configuration and starts to fetch the issuers'
    /// keys.
    pub fn new(
        configs: Vec<JwtConfig>,
        algorithms: &[JoseAlgorithm],
        disallowed_issuers: &[String],
        egress: &Arc<Egress>,
    ) -> Result<JwtAuthenticators, String> {
        let rules = validate(&configs, None, disallowed_issuers).map_err(|e| e.to_string())?;
        let issuers = configs.into_iter().zip(rules).map(|(config, rules)| {
            let provider = Provider::start(&config.issuer, egress.clone());
            let config = Arc::new(config);
            let rules = Arc::new(rules);
            JwtAuthenticator { algorithms: algorithms.to_vec(), rules, provider, config }
        });
        Ok(JwtAuthenticators { issuers: issuers.collect(), verified: Mutex::default() })
    }

    /// Returns the user of a token; `None` if no configured issuer issued it.
    pub(crate) async fn authenticate(
        &self,
        token: &Token<'_>,
        now: Timestamp,
    ) -> Result<Option<User>, String> {
        let Some(claims) = crate::service_account::unverified_claims(token.text) else {
            return Ok(None);
        };
        let issuer = verify::issuer(&claims);
        let Some(found) = self.issuers.iter().find(|one| one.config.issuer.url == issuer) else {
            return Ok(None);
        };
        if let Some(user) = self.remembered(token.digest(), now.seconds) {
            return Ok(Some(user));
        }
        let user = found.authenticate(token.text, &claims, now).await?;
        let expires = verify::expiry(&claims).unwrap_or_default();
        self.remember(
            *token.digest(),
            &user,
            now.seconds,
            expires.min(now.seconds + VERIFIED_SECONDS),
        );
        Ok(Some(user))
    }

    /// Waits until the keys of all issuers have been fetched once.
    pub async fn ready(&self) {
        for issuer in &self.issuers {
            issuer.provider.ready().await;
        }
    }

    fn remembered(&self, digest: &TokenDigest, now: i64) -> Option<User> {
        let verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        verified.get(digest).filter(|(_, until)| now < *until).map(|(user, _)| user.clone())
    }

    fn remember(&self, digest: TokenDigest, user: &User, now: i64, until: i64) {
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if verified.len() >= VERIFIED_TOKENS_MAX {
            verified.retain(|_, (_, until)| now < *until);
        }
        if verified.len() < VERIFIED_TOKENS_MAX {
            verified.insert(digest, (user.clone(), until));
        }
    }
}

impl JwtAuthenticator {
    async fn authenticate(
        &self,
        token: &str,
        claims: &serde_json::Value,
        now: Timestamp,
    ) -> Result<User, String> {
        let failed = |why: String| format!("oidc: verify token: {why}");
        if !self.provider.is_ready() {
            return Err("oidc: authenticator not initialized".to_owned());
        }
        verify::check_claims(claims, &self.config.issuer.audiences, now).map_err(failed)?;
        let signed = verify::Signed::read(token, &self.algorithms).map_err(failed)?;
        let mut keys = self.provider.keys();
        if !signed.is_signed(&keys) {
            let unsigned = |why: String| failed(format!("failed to verify signature: {why}"));
            // The issuer may have rotated its keys.
            keys = self.provider.newer_keys(&keys).await.map_err(unsigned)?;
            if !signed.is_signed(&keys) {
                return Err(unsigned("failed to verify id token signature".to_owned()));
            }
        }
        let subject = claims.get("sub").and_then(serde_json::Value::as_str).unwrap_or_default();
        let brief = || claims::user(&self.config, &self.rules, claims);
        let whole = || {
            let config = self.config.clone();
            let rules = self.rules.clone();
            let claims = claims.clone();
            move || claims::user(&config, &rules, &claims)
        };
        let user = long_work::run(&subject.into(), brief, whole)
            .await
            .map_err(|failure| failure.message.clone())??;
        Ok(crate::in_authenticated_group(user))
    }
}
