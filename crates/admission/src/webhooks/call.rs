//! A call of a webhook, and its failure policy.

use super::Caller;
use super::post::{Target, Timer, answered, post};
use super::response::{Answer, read};
use super::review::{Version, Versioned, body};
use super::webhook::Webhook;
use crate::attributes::{Attributes, Notes};
use keelson_meta::status::quote;
use keelson_meta::{Failure, Map, Status, Str};

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

/// The webhook and the request of a call.
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
    let (path, url, timer) = (&endpoint.path, &endpoint.url, Timer::Call);
    let target = Target { client, path, url, timer };
    let response = post(target, body, webhook.timeout).await;
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
