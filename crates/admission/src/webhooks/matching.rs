//! Matching of requests with webhooks, and versioned objects (apiserver
//! `admission/plugin/webhook/generic`).

use super::invocation::Invocation;
use super::review::{Versioned, request_of};
use crate::attributes::{Attributes, Call};
use crate::configurations::webhook::Webhook;
use crate::decisions::Decisions;
use crate::match_conditions::Matched;
use crate::request::Operation;
use crate::rules::{Requested, Rule};
use keelson_cel::admission::Inputs;
use keelson_meta::selector::Selector;
use keelson_meta::{Failure, GroupVersionKind, GroupVersionResource, Object, Status, Str};

/// Matches one request with webhooks.
pub(super) struct Matcher<'a> {
    call: &'a Call<'a>,
    /// Cached authorizer decisions for match conditions.
    decisions: Option<Decisions>,
    /// The labels of the request's namespace, once loaded.
    namespace: Option<Vec<(Str, Str)>>,
    /// Converted objects.
    versions: Vec<Versioned>,
}

impl<'a> Matcher<'a> {
    pub fn new(call: &'a Call<'a>) -> Matcher<'a> {
        Matcher { call, decisions: None, namespace: None, versions: vec![] }
    }

    /// Returns the invocation of a webhook if the request matches.
    pub async fn invocation(
        &mut self,
        webhook: &'a Webhook,
        object: Option<&Object>,
    ) -> Result<Option<Invocation<'a>>, Failure> {
        // Errors of selectors count only when the rules match.
        let in_namespace = self.matches_namespace(webhook, object).await;
        if matches!(in_namespace, Ok(false)) {
            return Ok(None);
        }
        let of_object = matches_object(webhook, self.call.attributes, object);
        if matches!(of_object, Ok(false)) {
            return Ok(None);
        }
        let Some(invocation) = self.by_rules(webhook) else { return Ok(None) };
        in_namespace?;
        of_object?;
        if !self.matches_conditions(&invocation, object).await? {
            return Ok(None);
        }
        Ok(Some(invocation))
    }

    /// Returns the objects in the version of a webhook, converted if needed.
    pub async fn versioned(
        &mut self,
        kind: &GroupVersionKind,
        object: Option<&Object>,
    ) -> Result<&Versioned, Failure> {
        let at = match self.versions.iter().position(|known| known.kind == *kind) {
            Some(at) => at,
            None => {
                let Call { attributes, api, .. } = self.call;
                self.versions.push(Versioned::new(attributes, *api, object, kind).await?);
                self.versions.len() - 1
            }
        };
        Ok(&self.versions[at])
    }

    /// Returns the objects in a version that was converted before.
    pub fn known(&self, kind: &GroupVersionKind) -> Option<&Versioned> {
        self.versions.iter().find(|known| known.kind == *kind)
    }

    /// Drops converted objects after the object has changed.
    pub fn drop_versions(&mut self) {
        self.versions.clear();
    }

    fn by_rules(&self, webhook: &'a Webhook) -> Option<Invocation<'a>> {
        let Call { attributes, api, .. } = self.call;
        let requested = Requested {
            operation: attributes.operation,
            resource: attributes.resource,
            subresource: attributes.subresource,
            namespace: attributes.namespace,
        };
        if webhook.rules.iter().any(|rule| rule.matches(&requested)) {
            let resource = attributes.resource.clone();
            let kind = attributes.kind.clone();
            return Some(Invocation { webhook, resource, kind });
        }
        let could = |rule: &Rule| rule.matches_in_other_version(&requested);
        if !webhook.matches_equivalents || !webhook.rules.iter().any(could) {
            return None;
        }
        let equivalents = api.equivalents(attributes.resource, attributes.subresource);
        webhook.rules.iter().find_map(|rule| {
            let found = equivalents
                .iter()
                .find(|(resource, _)| rule.matches(&Requested { resource, ..requested }));
            let (resource, kind) = found.cloned()?;
            Some(Invocation { webhook, resource, kind })
        })
    }

    async fn matches_namespace(
        &mut self,
        webhook: &Webhook,
        object: Option<&Object>,
    ) -> Result<bool, Failure> {
        let Attributes { namespace, resource, subresource, operation, .. } = *self.call.attributes;
        if namespace.is_empty() && resource.resource != "namespaces" {
            return Ok(true);
        }
        let selector = selector(&webhook.namespace_selector)?;
        if selector.is_everything() {
            return Ok(true);
        }
        let writes = matches!(operation, Operation::Create | Operation::Update);
        if resource.resource == "namespaces" && subresource.is_empty() && writes {
            return Ok(object.is_some_and(|object| selector.matches_object(object)));
        }
        if self.namespace.is_none() {
            self.namespace = Some(self.namespace_labels(namespace).await?);
        }
        let labels = self.namespace.as_deref().unwrap_or_default();
        Ok(selector.matches(|key| {
            labels.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
        }))
    }

    async fn namespace_labels(&self, namespace: &str) -> Result<Vec<(Str, Str)>, Failure> {
        let api = self.call.api;
        if api.is_terminating(namespace).is_none() {
            api.wait_for_latest().await?;
            if api.is_terminating(namespace).is_none() {
                let namespaces = GroupVersionResource::new("", "v1", "namespaces");
                return Err(Status::not_found(&namespaces, namespace));
            }
        }
        Ok(api.labels_of(namespace))
    }

    async fn matches_conditions(
        &mut self,
        invocation: &Invocation<'a>,
        object: Option<&Object>,
    ) -> Result<bool, Failure> {
        let webhook = invocation.webhook;
        if webhook.conditions.is_empty() {
            return Ok(true);
        }
        self.versioned(&invocation.kind, object).await?;
        let Call { attributes, api, .. } = self.call;
        let decisions =
            self.decisions.take().unwrap_or_else(|| Decisions::new(attributes.user.clone()));
        let Some(objects) = self.known(&invocation.kind) else { return Ok(true) };
        let request = request_of(attributes, invocation);
        let inputs = Inputs {
            object: objects.object.as_ref().map(|object| &object.root),
            old_object: objects.old.as_ref().map(|object| &object.root),
            request: Some(&request),
            ..Inputs::default()
        };
        let resource = attributes.cel_resource();
        let conditions = &webhook.conditions;
        let matched = conditions.matches(&inputs, &resource, &decisions, api.authorizer()).await;
        self.decisions = Some(decisions);
        match matched? {
            Matched::Yes => Ok(true),
            Matched::No { .. } => Ok(false),
            Matched::Failed(error) if webhook.ignores_failures => {
                tracing::warn!(
                    webhook = %webhook.name, %error,
                    "match conditions of webhook failed; not calling it"
                );
                Ok(false)
            }
            Matched::Failed(error) => {
                Err(Status::forbidden(attributes.resource, attributes.name, &error))
            }
        }
    }
}

fn selector(parsed: &Result<Selector, String>) -> Result<&Selector, Failure> {
    parsed.as_ref().map_err(Status::internal)
}

/// Returns whether the labels of the old or the new object match.
fn matches_object(
    webhook: &Webhook,
    attributes: &Attributes<'_>,
    object: Option<&Object>,
) -> Result<bool, Failure> {
    let selector = selector(&webhook.object_selector)?;
    if selector.is_everything() {
        return Ok(true);
    }
    let matches = |object: Option<&Object>| {
        object.is_some_and(|object| object.metadata().is_some() && selector.matches_object(object))
    };
    Ok(matches(object) || matches(attributes.old))
}
