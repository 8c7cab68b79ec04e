//! [`WebhookTokens`]: bearer tokens that a webhook authenticates
//! (`--authentication-token-webhook-*`).

use super::cache::ResponseCache;
use super::{ReviewVersion, Reviewer};
use crate::User;
use crate::in_authenticated_group;
use keelson_egress::Egress;
use keelson_egress::kubeconfig::Server;
use keelson_meta::Str;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// Timeout of one attempt.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Authenticates tokens by TokenReviews.
pub struct WebhookTokens {
    reviewer: Reviewer,
    version: ReviewVersion,
    /// `--authentication-token-webhook-cache-ttl`.
    cache_ttl: Duration,
    /// Cached users and audiences by token; failures are not cached.
    cache: ResponseCache<(User, Vec<Str>)>,
}

impl std::fmt::Debug for WebhookTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("WebhookTokens").field(&self.reviewer.url).finish()
    }
}

impl WebhookTokens {
    /// Returns an authenticator for the server of a kubeconfig.
    pub fn new(
        server: &Server,
        version: ReviewVersion,
        cache_ttl: Duration,
        egress: &Egress,
    ) -> Result<WebhookTokens, String> {
        let reviewer = Reviewer::new(server, TIMEOUT, egress)?;
        Ok(WebhookTokens { reviewer, version, cache_ttl, cache: ResponseCache::new() })
    }

    /// Returns the user of a token and for which of the requested audiences it is valid; `None` if
    /// the token is unknown. A response without audiences is valid for those of the API server.
    pub(crate) async fn authenticate(
        &self,
        token: &str,
        requested: &[Str],
        own: &[Str],
    ) -> Result<Option<(User, Vec<Str>)>, String> {
        let audiences: Vec<&str> =
            if requested.is_empty() { own } else { requested }.iter().map(Str::as_str).collect();
        let version = self.version.name();
        let mut spec = json!({"token": token});
        if !audiences.is_empty() {
            spec["audiences"] = json!(audiences);
        }
        let review = json!({
            "kind": "TokenReview", "apiVersion": format!("authentication.k8s.io/{version}"),
            "metadata": {}, "spec": spec, "status": {"user": {}}
        });
        let digest = ResponseCache::<()>::digest(review.to_string().as_bytes());
        if let Some(cached) = self.cache.get(&digest, Instant::now()) {
            return Ok(Some(cached));
        }
        let response = self.reviewer.post(&review).await.inspect_err(|error| {
            tracing::warn!(error, "token webhook failed; the token is not accepted");
        })?;
        let user = parse_status(&response, requested, own)?;
        if let Some(user) = &user {
            self.cache.put(digest, user.clone(), Instant::now(), self.cache_ttl);
        }
        Ok(user)
    }
}

/// Parses the status of a TokenReview; `None` if the token is not authenticated.
fn parse_status(
    response: &Value,
    requested: &[Str],
    own: &[Str],
) -> Result<Option<(User, Vec<Str>)>, String> {
    let empty = Value::Null;
    let status = response.get("status").unwrap_or(&empty);
    let text = |value: &Value| Str::new(value.as_str().unwrap_or_default());
    let texts = |value: Option<&Value>| -> Vec<Str> {
        value.and_then(Value::as_array).into_iter().flatten().map(text).collect()
    };
    if status.get("authenticated").and_then(Value::as_bool) != Some(true) {
        let error = status.get("error").and_then(Value::as_str).unwrap_or_default();
        return if error.is_empty() { Ok(None) } else { Err(error.to_owned()) };
    }
    let returned = texts(status.get("audiences"));
    // A response without audiences is valid for those of the API server only.
    let audiences: Vec<Str> = match (returned.is_empty(), requested.is_empty()) {
        (true, true) => own.to_vec(),
        (true, false) => own.iter().filter(|one| requested.contains(one)).cloned().collect(),
        (false, true) => returned.into_iter().filter(|one| own.contains(one)).collect(),
        (false, false) => returned.into_iter().filter(|one| requested.contains(one)).collect(),
    };
    let is_for_any = requested.is_empty() && own.is_empty();
    if audiences.is_empty() && !is_for_any {
        return Ok(None);
    }
    let user = status.get("user").unwrap_or(&empty);
    let field = |name: &str| user.get(name).map(text).unwrap_or_default();
    let extra = user.get("extra").and_then(Value::as_object).into_iter().flatten();
    let user = User {
        name: field("username"),
        uid: field("uid"),
        groups: texts(user.get("groups")).into(),
        extra: extra.map(|(key, values)| (Str::from(key), texts(Some(values)))).collect(),
    };
    Ok(Some((in_authenticated_group(user), audiences)))
}
