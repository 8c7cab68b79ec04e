//! One call of a webhook, and what it means when it fails.

use super::Caller;
use super::response::{Answer, read, status_message};
use super::review::{Version, Versioned, body};
use super::webhook::{Endpoint, Webhook};
use crate::attributes::{Attributes, Notes};
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use keelson_egress::{Client, Error, Phase, Request, Response};
use keelson_meta::status::quote;
use keelson_meta::{Failure, Map, Status, Str};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Bytes of an answer.
const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;
/// How often a call is made anew when the webhook asks for that with `Retry-After`.
const RETRIES_MAX: usize = 10;

/// Why a request does not pass a webhook.
pub(super) enum CallError {
    /// The webhook gave no usable answer: `failurePolicy` decides. The text says why.
    Calling(String),
    /// The request is refused.
    Refused(Failure),
}

impl CallError {
    /// The answer to the client when `failurePolicy` is `Fail`.
    pub fn into_failure(self, webhook: &Webhook) -> Failure {
        match self {
            CallError::Refused(failure) => failure,
            CallError::Calling(why) => {
                let name = quote(&webhook.name);
                Status::internal(format!("failed calling webhook {name}: {why}"))
            }
        }
    }
}

/// Who is called and about what.
pub(super) struct Asked<'a> {
    pub webhook: &'a Webhook,
    pub attributes: &'a Attributes<'a>,
    pub uid: &'a str,
    /// The request without its objects.
    pub request: &'a Map,
    pub objects: &'a Versioned,
    /// Whether the webhook may answer with a patch.
    pub is_mutating: bool,
}

/// Calls a webhook. The answer allows the request; its warnings and audit annotations go to `notes`.
pub(super) async fn call(
    caller: &Caller,
    asked: Asked<'_>,
    notes: &mut Notes,
) -> Result<Answer, CallError> {
    let webhook = asked.webhook;
    if asked.attributes.dry_run && !webhook.supports_dry_run {
        let name = quote(&webhook.name);
        let why = format!("admission webhook {name} does not support dry run");
        return Err(CallError::Refused(Status::bad_request(why)));
    }
    let Some(version) = webhook.version else {
        let why = "webhook does not accept known AdmissionReview versions (v1, v1beta1)";
        return Err(CallError::Calling(format!("could not create admission objects: {why}")));
    };
    let (endpoint, client) = webhook
        .endpoint(caller)
        .map_err(|why| CallError::Calling(format!("could not get REST client: {why}")))?;
    let body = body(version, asked.uid, asked.request, asked.objects);
    let response = send(endpoint, client, body, webhook.timeout).await;
    let failed = |why| CallError::Calling(format!("failed to call webhook: {why}"));
    let response = response.map_err(failed)?;
    let bytes = answered(&response).map_err(failed)?;
    let review = read(bytes, version).map_err(failed)?;
    let answer = review
        .verified(version, asked.uid, asked.is_mutating)
        .map_err(|why| CallError::Calling(format!("received invalid webhook response: {why}")))?;
    let key = |key: &Str| Str::from(format!("{}/{key}", webhook.name));
    notes.annotations.extend(answer.annotations.iter().map(|(k, value)| (key(k), value.clone())));
    notes.warnings.extend(answer.warnings.iter().cloned());
    if !answer.is_allowed {
        return Err(CallError::Refused(answer.refusal(&webhook.name)));
    }
    Ok(answer)
}

/// Sends a body, anew when the webhook asks to come back, until the time is over.
pub(super) async fn send(
    endpoint: &Endpoint,
    client: &Arc<Client>,
    body: Vec<u8>,
    timeout: Duration,
) -> Result<Response, String> {
    let deadline = Instant::now() + timeout;
    let request = Request {
        method: Method::POST,
        path: endpoint.path.clone(),
        headers: headers(),
        body: body.into(),
    };
    let mut retries = 0;
    loop {
        let response = client.send(&request, ANSWER_BYTES_MAX, deadline).await;
        let response = response.map_err(|error| failure_text(endpoint, &error))?;
        let Some(wait) = retry_after(&response).filter(|_| retries < RETRIES_MAX) else {
            return Ok(response);
        };
        retries += 1;
        let until = Instant::now() + wait;
        if until >= deadline {
            tokio::time::sleep_until(deadline).await;
            return Err(format!("Post {}: context deadline exceeded", quote(&endpoint.url)));
        }
        tokio::time::sleep_until(until).await;
    }
}

fn headers() -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(4);
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, */*"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(USER_AGENT, HeaderValue::from_static("kube-apiserver-admission"));
    headers
}

fn failure_text(endpoint: &Endpoint, error: &Error) -> String {
    match error.phase {
        Phase::Head => format!("Post {}: {error}", quote(&endpoint.url)),
        Phase::Body => format!(
            "unexpected error when reading response body. Please retry. Original error: {error}"
        ),
    }
}

/// How long a webhook that is overloaded or broken asks to wait.
fn retry_after(response: &Response) -> Option<Duration> {
    let may = response.status == StatusCode::TOO_MANY_REQUESTS || response.status.is_server_error();
    let seconds = response.headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    may.then_some(Duration::from_secs(seconds))
}

/// The body of an answer that says `AdmissionReview`.
pub(super) fn answered(response: &Response) -> Result<&[u8], String> {
    let content_type = response.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let code = response.status.as_u16();
    // Redirects are not followed.
    if !(200..=206).contains(&code) {
        return Err(status_message(code, content_type, &response.body));
    }
    if response.body.is_empty() {
        let content_type = content_type.unwrap_or("application/json");
        return Err(format!(
            "0-length response with status code: {code} and content type: {content_type}"
        ));
    }
    Ok(&response.body)
}

/// Logs a call that failed. What it was about is in the audit annotations.
pub(super) fn log_failure(webhook: &Webhook, version: Option<Version>, error: &CallError) {
    let CallError::Calling(error) = error else { return };
    let consequence = if webhook.ignores_failures { "failing open" } else { "failing closed" };
    tracing::warn!(
        webhook = %webhook.name, configuration = %webhook.configuration,
        review = version.map_or("none", Version::name), %error,
        "admission webhook call failed; {consequence}"
    );
}
