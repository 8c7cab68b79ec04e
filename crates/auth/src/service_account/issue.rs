//! Issues tokens of [`ServiceAccountTokens`] with an own key or an external signer, and publishes
//! the keys.

use super::external::{
    self, CALL_TIME_MAX, ExternalKeys, ExternalSigner, FETCH_RETRY_DELAY, REQUEST_FETCH_TIME_MAX,
    SignerError,
};
use super::{
    Claims, ServiceAccountOptions, ServiceAccountTokens, TokenError, TokenKeys, VerifyingKey,
};
use super::{claims, jwt};
use keelson_meta::{Object, Value, value};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Cache time of the published keys when they are this server's own.
const OWN_KEYS_AGE_SECONDS_MAX: u64 = 3600;

/// The external signer and its refresh time.
pub(super) struct External {
    signer: ExternalSigner,
    /// When to fetch its keys again.
    refresh_at: Mutex<Instant>,
}

impl TokenKeys {
    /// Returns the published keys.
    fn published(&self) -> impl Iterator<Item = &VerifyingKey> {
        self.verifying.iter().filter(|key| !key.is_unpublished)
    }

    fn has(&self, id: &str) -> bool {
        self.verifying.iter().any(|key| key.id == id)
    }
}

impl ServiceAccountTokens {
    /// Returns an authenticator for an external signer with these keys.
    pub fn external(
        options: ServiceAccountOptions,
        signer: ExternalSigner,
        keys: ExternalKeys,
    ) -> ServiceAccountTokens {
        let refresh_at = Mutex::new(keys.refresh_at);
        let verifying = TokenKeys { signing: None, verifying: keys.keys };
        let external = Some(External { signer, refresh_at });
        ServiceAccountTokens { external, ..ServiceAccountTokens::new(options, verifying) }
    }

    /// Returns a signed token.
    pub async fn issue(&self, claims: &Claims) -> Result<String, TokenError> {
        let issuer = self.options.issuers.first().ok_or("no issuer is configured")?;
        let claims = claims.to_value(issuer);
        if let Some(external) = &self.external {
            return self.sign_externally(external, &claims).await;
        }
        let keys = self.keys();
        let signed = keys.signing.as_ref().and_then(|key| jwt::sign(key, &claims));
        signed.ok_or_else(|| "no key signs service account tokens".to_owned())
    }

    /// Returns a legacy token for a Secret of this name; `None` without an own key.
    pub fn issue_legacy(&self, account: &Object, secret: &str) -> Option<String> {
        let claims = claims::legacy(account.namespace(), account.name(), account.uid(), secret);
        jwt::sign(self.keys().signing.as_ref()?, &claims)
    }

    async fn sign_externally(
        &self,
        external: &External,
        claims: &serde_json::Value,
    ) -> Result<String, TokenError> {
        let claims = jwt::part(claims);
        let (header, signature) = external.signer.sign(&claims).await?;
        let checked = self.check_external_header(external, &header).await;
        checked.map_err(|why| format!("while validating header: {why}"))?;
        if signature.is_empty() {
            return Err("empty signature returned".to_owned());
        }
        Ok(format!("{header}.{claims}.{signature}"))
    }

    async fn check_external_header(
        &self,
        external: &External,
        header: &str,
    ) -> Result<(), SignerError> {
        let id = external::check_header(header)?;
        // A key that is still unknown is accepted: other servers may fetch it before they see the
        // token.
        let _ = self.fetch_missing_key(external, &id).await;
        if self.keys().verifying.iter().any(|key| key.id == id && key.is_unpublished) {
            return Err(format!(
                "key used for signing JWT (kid: {id}) is excluded from OIDC discovery docs"
            ));
        }
        Ok(())
    }

    /// Fetches the keys of the signer when none has this id. Without an id, all keys are used.
    pub(super) async fn fetch_missing_key(
        &self,
        external: &External,
        id: &str,
    ) -> Result<(), TokenError> {
        const NOT_FOUND: &str = "invalid signature, no keys found";
        if id.is_empty() || self.keys().has(id) {
            return Ok(());
        }
        if let Err(error) = self.fetch_external_keys(external, REQUEST_FETCH_TIME_MAX).await {
            tracing::error!(error, "external signer: keys not fetched; token refused");
            return Err(NOT_FOUND.to_owned());
        }
        if !self.keys().has(id) {
            tracing::warn!(id, "external signer: no such key; token refused");
            return Err(NOT_FOUND.to_owned());
        }
        Ok(())
    }

    async fn fetch_external_keys(
        &self,
        external: &External,
        time_max: Duration,
    ) -> Result<(), SignerError> {
        let set = |fetched: ExternalKeys| {
            let mut refresh_at = external.refresh_at.lock().unwrap_or_else(PoisonError::into_inner);
            *refresh_at = fetched.refresh_at;
            // Replacing the keys drops all cached tokens.
            if self.keys().verifying != fetched.keys {
                self.set_keys(TokenKeys { signing: None, verifying: fetched.keys });
                tracing::info!("external signer: service account keys changed");
            }
        };
        external.signer.sync(time_max, set).await
    }

    /// Returns whether the keys are those of an external signer.
    pub fn is_external(&self) -> bool {
        self.external.is_some()
    }

    /// Fetches the keys of an external signer at its refresh interval, until it is dropped. If that
    /// fails, the previous keys stay valid.
    pub async fn follow_external_keys(&self) {
        let Some(external) = &self.external else { return };
        let next = || *external.refresh_at.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            // A request may have fetched them in the meantime.
            while next() > Instant::now() {
                tokio::time::sleep_until(next()).await;
            }
            if let Err(error) = self.fetch_external_keys(external, CALL_TIME_MAX).await {
                tracing::error!(error, "external signer: keys not fetched; keeping those before");
                tokio::time::sleep(FETCH_RETRY_DELAY).await;
            }
        }
    }

    /// Returns the cache time of the published keys.
    pub fn keys_age_seconds_max(&self) -> u64 {
        let Some(external) = &self.external else { return OWN_KEYS_AGE_SECONDS_MAX };
        let refresh_at = *external.refresh_at.lock().unwrap_or_else(PoisonError::into_inner);
        refresh_at.saturating_duration_since(Instant::now()).as_secs()
    }

    /// Returns `/.well-known/openid-configuration`; `None` when the issuer is not a URL.
    pub fn openid_configuration(&self, address: &str) -> Option<Value> {
        let issuer =
            self.options.issuers.first().filter(|issuer| issuer.starts_with("https://"))?;
        let keys = self.keys();
        let mut algorithms: Vec<&str> = keys.published().map(|key| key.algorithm.name()).collect();
        algorithms.sort_unstable();
        algorithms.dedup();
        let own = format!("https://{address}/openid/v1/jwks");
        let jwks_uri = self.options.jwks_uri.as_ref().unwrap_or(&own);
        let algorithms: Vec<Value> = algorithms.into_iter().map(Value::from).collect();
        Some(value!({
            "issuer": (issuer.as_str()), "jwks_uri": (jwks_uri.as_str()),
            "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": (algorithms)
        }))
    }

    /// Returns `/openid/v1/jwks`.
    pub fn key_set(&self) -> Value {
        let keys: Vec<Value> = self.keys().published().map(VerifyingKey::to_jwk).collect();
        value!({"keys": (keys)})
    }
}
