//! Webhooks that authenticate tokens and authorize requests: [`WebhookTokens`],
//! [`WebhookAuthorizer`].
//!
//! Reviews are posted to the server of a kubeconfig. Responses are cached by the whole request;
//! failures are not.

mod access;
mod access_config;
mod cache;
mod conditions;
mod token;

pub use access::{FailurePolicy, WebhookAuthorizer, WebhookOptions};
pub use access_config::{AuthorizationConfiguration, AuthorizerConfig, WebhookConfig};
pub use token::WebhookTokens;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use keelson_egress::kubeconfig::Server;
use keelson_egress::{Client, Egress, Phase, Request, Response};
use keelson_meta::status::{quote, server_error_text};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Maximum length of a response.
const RESPONSE_BYTES_MAX: usize = 1 << 20;
/// Maximum length of a response in an error.
const ERROR_BODY_BYTES_MAX: usize = 2048;
/// Attempts to post a review when the webhook answers 429 or 5xx.
const TRIES_MAX: u32 = 5;
/// The first retry delay; each further one is 1.5 times as long.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// Maximum `Retry-After` that is honoured.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(5);

/// The version of reviews.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewVersion {
    /// `v1`.
    V1,
    /// `v1beta1`.
    V1Beta1,
}

impl ReviewVersion {
    /// Parses a version.
    pub fn parse(text: &str) -> Option<ReviewVersion> {
        match text {
            "v1" => Some(ReviewVersion::V1),
            "v1beta1" => Some(ReviewVersion::V1Beta1),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            ReviewVersion::V1 => "v1",
            ReviewVersion::V1Beta1 => "v1beta1",
        }
    }
}

/// Posts reviews to one webhook.
struct Reviewer {
    client: Arc<Client>,
    url: String,
    path: String,
    timeout: Duration,
}

impl Reviewer {
    fn new(server: &Server, timeout: Duration, egress: &Egress) -> Result<Reviewer, String> {
        let client = egress.client(&server.peer).map_err(|error| error.to_string())?;
        let query = format!("?timeout={}s", timeout.as_secs_f64());
        let path = if server.path.is_empty() { "/" } else { server.path.as_str() };
        let path = format!("{path}{query}");
        let url = format!("{}{query}", server.url);
        Ok(Reviewer { client, url, path, timeout })
    }

    /// Posts a review and returns the response, which has the same kind and version.
    async fn post(&self, review: &Value) -> Result<Value, String> {
        let mut headers = HeaderMap::with_capacity(2);
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, */*"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let body = Bytes::from(review.to_string());
        let request = Request { method: Method::POST, path: self.path.clone(), headers, body };
        let mut delay = RETRY_DELAY;
        for attempt in 1.. {
            let sent =
                self.client.send(&request, RESPONSE_BYTES_MAX, Instant::now() + self.timeout);
            let response = sent.await.map_err(|error| match error.phase {
                Phase::Connect | Phase::Head => format!("Post {}: {error}", quote(&self.url)),
                Phase::Body => error.to_string(),
            })?;
            // Redirects are not followed.
            if response.status.is_success() {
                return parse_review(&response.body, review);
            }
            if attempt >= TRIES_MAX || !is_transient(response.status) {
                return Err(error_text(&response));
            }
            sleep(retry_after(&response).unwrap_or(delay)).await;
            delay += delay / 2;
        }
        Err("the webhook was not asked".to_owned())
    }
}

fn is_transient(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 500 | 504)
}

fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = response.headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds).min(RETRY_DELAY_MAX))
}

fn error_text(response: &Response) -> String {
    if let Ok(status) = serde_json::from_slice::<Value>(&response.body)
        && status.get("kind").and_then(Value::as_str) == Some("Status")
        && let Some(message) = status.get("message").and_then(Value::as_str)
    {
        return message.chars().take(ERROR_BODY_BYTES_MAX).collect();
    }
    let body = &response.body[..response.body.len().min(ERROR_BODY_BYTES_MAX)];
    server_error_text(response.status.as_u16(), String::from_utf8_lossy(body).trim())
}

/// Parses a response; it must have the kind and version that were sent.
fn parse_review(body: &[u8], sent: &Value) -> Result<Value, String> {
    let response: Value = serde_json::from_slice(body)
        .map_err(|error| format!("couldn't get version/kind; json parse error: {error}"))?;
    let text = |value: &Value, name: &str| -> String {
        value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    for name in ["kind", "apiVersion"] {
        if text(&response, name) != text(sent, name) {
            let kind = quote(&text(&response, "kind"));
            let version = text(&response, "apiVersion");
            let version = quote(&version);
            return Err(format!("no kind {kind} is registered for version {version}"));
        }
    }
    Ok(response)
}
