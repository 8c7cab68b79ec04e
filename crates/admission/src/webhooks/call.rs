//! Calls an admission webhook.

use super::post::{Target, Timer, answered, post};
use super::response::{AdmissionResponse, evaluated, read};
use super::review::{Versioned, body};
use crate::attributes::{Attributes, Recorder};
use crate::configurations::review_version::Version;
use crate::configurations::webhook::Caller;
use crate::configurations::webhook::Webhook;
use crate::metrics::WebhookEnd;
use keelson_meta::status::quote;
use keelson_meta::{Failure, GroupVersionResource, Map, Status, Str};
use keelson_traces::Span;

/// Why a request was not admitted.
pub(super) enum CallError {
    /// No usable response: `failurePolicy` applies. With the reason and the status code, or
    /// [`UNREACHED`] without a response.
    Calling(String, u16),
    /// The webhook denied the request, whatever `failurePolicy` is.
    Denied(Failure),
    /// The server rejects the request, whatever `failurePolicy` is.
    Refused(Failure),
}

/// The status code in metrics for a webhook without a usable response.
pub(super) const UNREACHED: u16 = 503;

impl CallError {
    /// Returns an error without a status code.
    pub fn calling(why: impl Into<String>) -> CallError {
        CallError::Calling(why.into(), UNREACHED)
    }

    /// Returns the outcome for metrics.
    pub fn end(&self, webhook: &Webhook) -> WebhookEnd {
        match self {
            CallError::Calling(_, code) => {
                WebhookEnd::Failed { code: *code, is_ignored: webhook.ignores_failures }
            }
            CallError::Denied(failure) => WebhookEnd::Denied(failure.code),
            CallError::Refused(_) => WebhookEnd::Unusable,
        }
    }

    /// Returns the error for the client under `failurePolicy: Fail`.
    pub fn into_failure(self, webhook: &Webhook) -> Failure {
        match self {
            CallError::Denied(failure) | CallError::Refused(failure) => failure,
            CallError::Calling(why, _) => {
                let name = quote(&webhook.name);
                Status::internal(format!("failed calling webhook {name}: {why}"))
            }
        }
    }
}

/// The arguments of a call.
pub(super) struct WebhookCall<'a> {
    pub webhook: &'a Webhook,
    pub attributes: &'a Attributes<'a>,
    pub uid: &'a str,
    /// The `AdmissionRequest` without objects.
    pub request: &'a Map,
    pub objects: &'a Versioned,
    /// Whether the response may contain a patch.
    pub is_mutating: bool,
}

impl WebhookCall<'_> {
    /// Starts the span of the call.
    pub fn span(&self) -> Span {
        let span = keelson_traces::start(match self.is_mutating {
            true => "Call mutating webhook",
            false => "Call validating webhook",
        });
        if span.is_recorded() {
            let GroupVersionResource { group, version, resource } = self.attributes.resource;
            span.set("configuration", self.webhook.configuration.as_str());
            span.set("webhook", self.webhook.name.as_str());
            span.set("resource", format!("{group}/{version}, Resource={resource}"));
            span.set("subresource", self.attributes.subresource);
            span.set("operation", self.attributes.operation.name());
            span.set("UID", self.uid);
        }
        span
    }
}

/// Calls a webhook and returns its response if that allows the request. Warnings and audit
/// annotations go to `recorder`.
pub(super) async fn call(
    caller: &Caller,
    arguments: WebhookCall<'_>,
    recorder: &mut Recorder,
) -> Result<AdmissionResponse, CallError> {
    let webhook = arguments.webhook;
    if arguments.attributes.dry_run && !webhook.supports_dry_run {
        let name = quote(&webhook.name);
        let why = format!("admission webhook {name} does not support dry run");
        return Err(CallError::Refused(Status::bad_request(why)));
    }
    let Some(version) = webhook.version else {
        let why = "webhook does not accept known AdmissionReview versions (v1, v1beta1)";
        return Err(CallError::calling(format!("could not create admission objects: {why}")));
    };
    let (endpoint, client) = webhook
        .endpoint(caller)
        .map_err(|why| CallError::calling(format!("could not get REST client: {why}")))?;
    let body = body(version, arguments.uid, arguments.request, arguments.objects);
    let path = &endpoint.path;
    let url = &endpoint.url;
    let timer = Timer::Call;
    let target = Target { client, path, url, timer };
    let response = post(target, body, webhook.timeout).await;
    let failed = |why| CallError::calling(format!("failed to call webhook: {why}"));
    let response = response.map_err(failed)?;
    let review = evaluated(response.body.len(), || {
        let bytes = answered(&response).map_err(|why| {
            let code = response.status.as_u16();
            let code = if response.status.is_success() { UNREACHED } else { code };
            CallError::Calling(format!("failed to call webhook: {why}"), code)
        })?;
        read(bytes, version).map_err(failed)
    })?;
    keelson_traces::current().event("Request completed");
    let response = review
        .verified(version, arguments.uid, arguments.is_mutating)
        .map_err(|why| CallError::calling(format!("received invalid webhook response: {why}")))?;
    let key = |key: &Str| Str::from(format!("{}/{key}", webhook.name));
    recorder
        .annotations
        .extend(response.annotations.iter().map(|(k, value)| (key(k), value.clone())));
    recorder.warnings.extend(response.warnings.iter().cloned());
    if !response.is_allowed {
        return Err(CallError::Denied(response.refusal(&webhook.name)));
    }
    Ok(response)
}

/// Logs a failed call. The request is identified by its audit annotations.
pub(super) fn log_failure(webhook: &Webhook, version: Option<Version>, error: &CallError) {
    let CallError::Calling(error, _) = error else { return };
    let consequence = if webhook.ignores_failures { "failing open" } else { "failing closed" };
    tracing::warn!(
        webhook = %webhook.name, configuration = %webhook.configuration,
        review = version.map_or("none", Version::name), %error,
        "admission webhook call failed; {consequence}"
    );
}
