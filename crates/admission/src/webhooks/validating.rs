//! [`ValidatingWebhooks`]: the plug-in that calls validating webhooks in parallel (apiserver
//! `admission/plugin/webhook/validating`).

use super::call::{CallError, WebhookCall, call, log_failure};
use super::invocation::Invocation;
use super::matching::Matcher;
use super::review::request_of;
use crate::attributes::{BoxFuture, Call, DynamicPlugIn, Recorder};
use crate::config::Credentials;
use crate::configurations::Configurations;
use crate::configurations::webhook::Caller;
use crate::exempt;
use crate::metrics::{Phase, WebhookEnd};
use futures_util::future::join_all;
use keelson_egress::Egress;
use keelson_meta::{Failure, Object, Status};
use std::sync::Arc;
use std::time::Instant;

const FAILED_OPEN: &str = "failed-open.validating.webhook.admission.k8s.io";

/// Calls the webhooks of ValidatingWebhookConfigurations.
pub struct ValidatingWebhooks {
    caller: Caller,
}

impl ValidatingWebhooks {
    /// Returns a plug-in whose calls go through `egress` with these credentials.
    pub fn new(egress: Arc<Egress>, credentials: Arc<Credentials>) -> ValidatingWebhooks {
        ValidatingWebhooks { caller: Caller { egress, credentials } }
    }

    async fn dispatch(
        &self,
        call: &Call<'_>,
        object: Option<&Object>,
        recorder: &mut Recorder,
    ) -> Result<(), Failure> {
        if exempt::from_webhooks(call.attributes.kind) {
            return Ok(());
        }
        let mut matcher = Matcher::new(call);
        let mut invocations = vec![];
        for webhook in call.configured.webhooks.validating() {
            if let Some(invocation) = matcher.invocation(webhook, object).await? {
                matcher.versioned(&invocation.kind, object).await?;
                invocations.push(invocation);
            }
        }
        if invocations.is_empty() {
            return Ok(());
        }
        let arguments = invocations
            .iter()
            .enumerate()
            .map(|(index, invocation)| self.invoke(index, call, invocation, &matcher));
        let begun = Instant::now();
        let mut first = Ok(());
        for (verdict, recorded) in join_all(arguments).await {
            recorder.warnings.extend(recorded.warnings);
            recorder.annotations.extend(recorded.annotations);
            first = first.and(verdict);
        }
        recorder.webhooks_took += begun.elapsed();
        first
    }

    /// Calls a webhook. Returns the result and its warnings and audit annotations.
    async fn invoke(
        &self,
        index: usize,
        the_call: &Call<'_>,
        invocation: &Invocation<'_>,
        matcher: &Matcher<'_>,
    ) -> (Result<(), Failure>, Recorder) {
        let mut recorder = Recorder::default();
        let Call { attributes, api, .. } = the_call;
        let webhook = invocation.webhook;
        let Some(objects) = matcher.known(&invocation.kind) else {
            let why = format!("unable to convert to {}", invocation.kind);
            return (Err(Status::internal(why)), recorder);
        };
        let uid = api.new_uid();
        let arguments = WebhookCall {
            webhook,
            attributes,
            uid: &uid,
            request: &request_of(attributes, invocation),
            objects,
            is_mutating: false,
        };
        let begun = Instant::now();
        let span = arguments.span();
        let answered = span.scope(call(&self.caller, arguments, &mut recorder)).await;
        let end =
            answered.as_ref().map_or_else(|error| error.end(webhook), |_| WebhookEnd::Allowed);
        let operation = attributes.operation;
        the_call.metrics.webhook(&webhook.name, Phase::Validate, operation, end, begun);
        let Err(error) = answered else { return (Ok(()), recorder) };
        log_failure(webhook, webhook.version, &error);
        if webhook.ignores_failures && matches!(error, CallError::Calling(..)) {
            let key = format!("{FAILED_OPEN}/round_0_index_{index}");
            recorder.annotations.push((key.into(), webhook.name.clone()));
            return (Ok(()), recorder);
        }
        (Err(error.into_failure(webhook)), recorder)
    }
}

impl DynamicPlugIn for ValidatingWebhooks {
    fn name(&self) -> &'static str {
        "ValidatingAdmissionWebhook"
    }

    fn is_idle(&self, configured: &Configurations) -> bool {
        !configured.webhooks.has_validating()
    }

    fn validate<'a>(
        &'a self,
        call: &'a Call<'a>,
        object: Option<&'a Object>,
        recorder: &'a mut Recorder,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(self.dispatch(call, object, recorder))
    }
}
