//! [`WebhookTokens`]: bearer tokens that a webhook knows (`--authentication-token-webhook-*`).

use super::cache::Answers;
use super::{ReviewVersion, Reviewer};
use crate::User;
use crate::in_authenticated_group;
use keelson_egress::Egress;
use keelson_egress::kubeconfig::Server;
use keelson_meta::Str;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// Timeout of one try.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Asks a webhook whose a token is.
pub struct WebhookTokens {
    reviewer: Reviewer,
    version: ReviewVersion,
    /// `--authentication-token-webhook-cache-ttl`.
    cache_ttl: Duration,
    /// Known tokens, and for whom they are; what is not known is not remembered.
    known: Answers<(User, Vec<Str>)>,
}

impl std::fmt::Debug for WebhookTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("WebhookTokens").field(&self.reviewer.url).finish()
    }
}

impl WebhookTokens {
    /// Asks the server of a kubeconfig.
    pub fn new(
        server: &Server,
        version: ReviewVersion,
        cache_ttl: Duration,
        egress: &Egress,
    ) -> Result<WebhookTokens, String> {
        let reviewer = Reviewer::new(server, TIMEOUT, egress)?;
        Ok(WebhookTokens { reviewer, version, cache_ttl, known: Answers::new() })
    }

    /// The user of a token, and for which of the asked audiences it is; `None`: nobody's. A webhook that says
    /// nothing of audiences speaks for those of the API server.
    pub(crate) async fn authenticate(
        &self,
        token: &str,
        asked: &[Str],
        own: &[Str],
    ) -> Result<Option<(User, Vec<Str>)>, String> {
        let audiences: Vec<&str> =
            if asked.is_empty() { own } else { asked }.iter().map(Str::as_str).collect();
        let version = self.version.name();
        let mut spec = json!({"token": token});
        if !audiences.is_empty() {
            spec["audiences"] = json!(audiences);
        }
        let review = json!({
            "kind": "TokenReview", "apiVersion": format!("authentication.k8s.io/{version}"),
            "metadata": {}, "spec": spec, "status": {"user": {}}
        });
        let digest = Answers::<()>::digest(review.to_string().as_bytes());
        if let Some(known) = self.known.get(&digest, Instant::now()) {
            return Ok(Some(known));
        }
        let answer = self.reviewer.post(&review).await.inspect_err(|error| {
            tracing::warn!(error, "token webhook failed; the token is not accepted");
        })?;
        let found = known(&answer, asked, own)?;
        if let Some(found) = &found {
            self.known.put(digest, found.clone(), Instant::now(), self.cache_ttl);
        }
        Ok(found)
    }
}

/// The status of a TokenReview.
fn known(answer: &Value, asked: &[Str], own: &[Str]) -> Result<Option<(User, Vec<Str>)>, String> {
    let empty = Value::Null;
    let status = answer.get("status").unwrap_or(&empty);
    let text = |value: &Value| Str::new(value.as_str().unwrap_or_default());
    let texts = |value: Option<&Value>| -> Vec<Str> {
        value.and_then(Value::as_array).into_iter().flatten().map(text).collect()
    };
    if status.get("authenticated").and_then(Value::as_bool) != Some(true) {
        let error = status.get("error").and_then(Value::as_str).unwrap_or_default();
        return if error.is_empty() { Ok(None) } else { Err(error.to_owned()) };
    }
    let answered = texts(status.get("audiences"));
    // One that says nothing of audiences knows of none but the API server's.
    let audiences: Vec<Str> = match (answered.is_empty(), asked.is_empty()) {
        (true, true) => own.to_vec(),
        (true, false) => own.iter().filter(|one| asked.contains(one)).cloned().collect(),
        (false, true) => answered.into_iter().filter(|one| own.contains(one)).collect(),
        (false, false) => answered.into_iter().filter(|one| asked.contains(one)).collect(),
    };
    let is_for_any = asked.is_empty() && own.is_empty();
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
