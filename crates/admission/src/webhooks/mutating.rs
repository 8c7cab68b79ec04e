//! [`MutatingWebhooks`]: the plug-in that calls mutating webhooks, one after the other (apiserver
//! `admission/plugin/webhook/mutating`).

use super::call::{CallError, WebhookCall, call, log_failure};
use super::invocation::Invocation;
use super::matching::Matcher;
use super::response::{AdmissionResponse, not_an_object};
use super::review::{encoded, request_of};
use crate::attributes::{BoxFuture, Call, DynamicPlugIn, Recorder};
use crate::config::Credentials;
use crate::configurations::Configurations;
use crate::configurations::webhook::Caller;
use crate::configurations::webhook::Webhook;
use crate::exempt;
use crate::metrics::{Phase, WebhookEnd};
use crate::reinvocation::Reinvocation;
use keelson_apply::json_patch;
use keelson_egress::Egress;
use keelson_meta::status::quote;
use keelson_meta::{Failure, GroupVersionKind, Object, Status, Str, Value};
use keelson_schema::json;
use std::sync::Arc;
use std::time::Instant;

const MUTATION: &str = "mutation.webhook.admission.k8s.io";
const PATCH: &str = "patch.webhook.admission.k8s.io";
/// The name of kube-apiserver's scheme of built-in kinds.
const SCHEME: &str = "pkg/api/legacyscheme/scheme.go:30";

/// Calls the webhooks of MutatingWebhookConfigurations.
pub struct MutatingWebhooks {
    caller: Caller,
}

/// One round over all webhooks.
struct Pass<'a, 'n> {
    caller: &'a Caller,
    call: &'a Call<'a>,
    matcher: Matcher<'a>,
    recorder: &'n mut Recorder,
    round: usize,
    /// Whether a patch was applied, even one without effect.
    was_patched: bool,
}

impl MutatingWebhooks {
    /// Returns a plug-in whose calls go through `egress` with these credentials.
    pub fn new(egress: Arc<Egress>, credentials: Arc<Credentials>) -> MutatingWebhooks {
        MutatingWebhooks { caller: Caller { egress, credentials } }
    }

    async fn dispatch(
        &self,
        call: &Call<'_>,
        mut object: Option<&mut Object>,
        recorder: &mut Recorder,
        round: &mut Reinvocation,
    ) -> Result<(), Failure> {
        if exempt::from_webhooks(call.attributes.kind) {
            return Ok(());
        }
        if round.is_reinvoked {
            round.webhooks.begin(object.as_deref());
        }
        let mut pass = Pass {
            caller: &self.caller,
            call,
            matcher: Matcher::new(call),
            recorder,
            round: usize::from(round.is_reinvoked),
            was_patched: round.is_reinvoked,
        };
        for (index, webhook) in call.configured.webhooks.mutating().enumerate() {
            let invocation = pass.matcher.invocation(webhook, object.as_deref()).await?;
            let Some(invocation) = invocation else { continue };
            if round.is_reinvoked && !round.webhooks.should_call(webhook) {
                continue;
            }
            if pass.invoke(index, &invocation, object.as_deref_mut()).await? {
                round.webhooks.schedule_previous();
                round.is_requested = true;
            }
            if webhook.is_reinvoked {
                let (configuration, name) = webhook.key();
                round.webhooks.previous.push((configuration.clone(), name.clone()));
            }
        }
        round.webhooks.end(object.as_deref());
        Ok(())
    }
}

impl<'a> Pass<'a, '_> {
    /// Calls a webhook. Returns whether the object has changed.
    async fn invoke(
        &mut self,
        index: usize,
        invocation: &Invocation<'a>,
        object: Option<&mut Object>,
    ) -> Result<bool, Failure> {
        let webhook = invocation.webhook;
        let begun = Instant::now();
        let arguments = self.call_webhook(index, invocation, object).await;
        let end =
            arguments.as_ref().map_or_else(|error| error.end(webhook), |_| WebhookEnd::Allowed);
        let Call { metrics, attributes, .. } = self.call;
        metrics.webhook(&webhook.name, Phase::Admit, attributes.operation, end, begun);
        self.recorder.webhooks_took += begun.elapsed();
        let changed = matches!(arguments, Ok(true));
        let place = format!("round_{}_index_{index}", self.round);
        let mutation = describe(webhook, |out| {
            out.extend_from_slice(b",\"mutated\":");
            out.extend_from_slice(changed.to_string().as_bytes());
        });
        self.annotate(format!("{MUTATION}/{place}"), mutation);
        match arguments {
            Ok(changed) => Ok(changed),
            Err(error) => {
                log_failure(webhook, webhook.version, &error);
                if !webhook.ignores_failures || !matches!(error, CallError::Calling(..)) {
                    return Err(error.into_failure(webhook));
                }
                self.annotate(format!("failed-open.{MUTATION}/{place}"), webhook.name.clone());
                Ok(false)
            }
        }
    }

    async fn call_webhook(
        &mut self,
        index: usize,
        invocation: &Invocation<'a>,
        object: Option<&mut Object>,
    ) -> Result<bool, CallError> {
        let attributes = self.call.attributes;
        let api = self.call.api;
        let uid = api.new_uid();
        let objects = self.matcher.versioned(&invocation.kind, object.as_deref()).await;
        let arguments = WebhookCall {
            webhook: invocation.webhook,
            attributes,
            uid: &uid,
            request: &request_of(attributes, invocation),
            objects: objects.map_err(CallError::Refused)?,
            is_mutating: true,
        };
        let span = arguments.span();
        let response = span.scope(call(self.caller, arguments, self.recorder)).await?;
        let Some(patch) = patch_of(&response)? else { return Ok(false) };
        let changed = self.change(index, invocation, &response, &patch, object).await?;
        span.event("Patch applied");
        Ok(changed)
    }

    /// Applies a patch to the object.
    async fn change(
        &mut self,
        index: usize,
        invocation: &Invocation<'a>,
        response: &AdmissionResponse,
        patch: &Value,
        object: Option<&mut Object>,
    ) -> Result<bool, CallError> {
        let webhook = invocation.webhook;
        let Call { attributes, api, .. } = self.call;
        let refused = CallError::Refused;
        let objects = self.matcher.known(&invocation.kind);
        let (Some(object), Some(objects)) = (object, objects) else {
            let name = quote(&webhook.name);
            return Err(refused(Status::internal(format!(
                "admission webhook {name} attempted to modify the object, which is not supported \
                 for this operation"
            ))));
        };
        let patch_type = response.patch_type.as_deref().unwrap_or_default();
        if patch_type != "JSONPatch" {
            let shown = quote(patch_type);
            return Err(CallError::calling(format!("unsupported patch type {shown}")));
        }
        let internal = |why: String| refused(Status::internal(why));
        // Operations may refer to empty fields that the webhook was sent and that are not stored.
        let seen = json::parse(objects.object_json()).map_err(|e| internal(e.to_string()))?.value;
        let operations = patch.as_array().unwrap_or_default();
        let patched = json_patch::apply_operations(seen, operations)
            .map_err(|error| internal(error.to_string()))?;
        check_type(&patched, &invocation.kind).map_err(internal)?;
        let new = api.canonicalize(&invocation.kind, patched).map_err(internal)?;
        let differs = encoded(&objects.schema, Some(&new)) != objects.object_json();
        let was_patched = std::mem::replace(&mut self.was_patched, true);
        let changed = differs || (!was_patched && is_owned_anew(object, attributes.old));
        let described = describe(webhook, |out| {
            out.extend_from_slice(b",\"patch\":");
            json::write_value(patch, out);
            out.extend_from_slice(b",\"patchType\":\"JSONPatch\"");
        });
        self.annotate(format!("{PATCH}/round_{}_index_{index}", self.round), described);
        if differs {
            let converted = api.convert(new, &invocation.kind, attributes.object_kind).await;
            *object = converted.map_err(refused)?;
            self.matcher.drop_versions();
        }
        Ok(changed)
    }

    fn annotate(&mut self, key: String, value: Str) {
        self.recorder.annotations.push((key.into(), value));
    }
}

/// Returns whether this request set managedFields times. Upstream keeps them with nanoseconds,
/// which an object loses in its first JSON round trip: its first patch counts as a change whatever
/// it does.
fn is_owned_anew(object: &Object, old: Option<&Object>) -> bool {
    let owners = |object: &Object| object.at(&["metadata", "managedFields"]).cloned();
    owners(object).is_some() && owners(object) != old.and_then(owners)
}

/// Returns a webhook and more fields as JSON, for an audit annotation.
fn describe(webhook: &Webhook, more: impl FnOnce(&mut Vec<u8>)) -> Str {
    let mut out = b"{\"configuration\":".to_vec();
    json::write_string(&webhook.configuration, &mut out);
    out.extend_from_slice(b",\"webhook\":");
    json::write_string(&webhook.name, &mut out);
    more(&mut out);
    out.push(b'}');
    String::from_utf8_lossy(&out).into()
}

/// Parses the patch of a response, if there is one.
fn patch_of(response: &AdmissionResponse) -> Result<Option<Value>, CallError> {
    if response.patch.is_empty() {
        return Ok(None);
    }
    let undecodable =
        |why| CallError::calling(format!("received undecodable patch in webhook response: {why}"));
    let parsed = json::parse(&response.patch).map_err(|error| undecodable(error.to_string()))?;
    if let Some(number) = &parsed.overflow {
        return Err(CallError::Refused(Status::internal(json::overflow_error(number))));
    }
    let patch = parsed.value;
    let type_error = |value: &Value, of: &str| {
        let found = value.type_name();
        undecodable(format!("json: cannot unmarshal {found} into Go value of type jsonpatch.{of}"))
    };
    let operations = match &patch {
        Value::Array(operations) => operations,
        Value::Null => return Ok(None),
        other => return Err(type_error(other, "Patch")),
    };
    let odd = operations.iter().find(|one| !matches!(one, Value::Object(_) | Value::Null));
    match odd {
        Some(odd) => Err(type_error(odd, "Operation")),
        None => Ok((!operations.is_empty()).then_some(patch)),
    }
}

/// Checks that a patch did not change the kind; it may remove kind and apiVersion.
fn check_type(patched: &Value, gvk: &GroupVersionKind) -> Result<(), String> {
    if patched.as_object().is_none() {
        return Err(not_an_object(patched));
    }
    let text = |name: &str| patched.str_at(&[name]).unwrap_or_default();
    let version = text("apiVersion");
    let kind = text("kind");
    let is_version = version.is_empty() || version == gvk.api_version();
    if is_version && (kind.is_empty() || kind == gvk.kind) {
        return Ok(());
    }
    let kind = quote(kind);
    let version = quote(version);
    Err(format!("no kind {kind} is registered for version {version} in scheme \"{SCHEME}\""))
}

impl DynamicPlugIn for MutatingWebhooks {
    fn name(&self) -> &'static str {
        "MutatingAdmissionWebhook"
    }

    fn is_idle(&self, configured: &Configurations) -> bool {
        !configured.webhooks.has_mutating()
    }

    fn admit<'a>(
        &'a self,
        call: &'a Call<'a>,
        object: Option<&'a mut Object>,
        recorder: &'a mut Recorder,
        round: &'a mut Reinvocation,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(self.dispatch(call, object, recorder, round))
    }
}
