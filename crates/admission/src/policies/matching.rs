//! Matching of requests with policies and bindings (apiserver `admission/plugin/policy/matching`).

use super::dispatch_context::DispatchContext;
use super::matched_resource::MatchedResource;
use crate::attributes::{Attributes, Call};
use crate::configurations::match_resources::{MatchResources, NamedRule};
use crate::request::Operation;
use crate::rules::Requested;
use keelson_meta::{Failure, Object, Status};

impl MatchResources {
    /// Returns the matched resource and kind. Errors count only when the rules match.
    pub(super) async fn matches(
        &self,
        context: &mut DispatchContext<'_>,
        object: Option<&Object>,
    ) -> Result<Option<MatchedResource>, Failure> {
        let call = context.call;
        let Some(matched) = self.by_rules(context) else { return Ok(None) };
        if find(&self.excluded, context, self.equivalent).is_some() {
            return Ok(None);
        }
        let by_object = self.matches_object(call, object);
        if matches!(by_object, Ok(false)) {
            return Ok(None);
        }
        if !self.matches_namespace(context, object).await? {
            return Ok(None);
        }
        by_object?;
        Ok(Some(matched))
    }

    fn by_rules(&self, context: &mut DispatchContext<'_>) -> Option<MatchedResource> {
        match self.rules.is_empty() {
            true => Some(MatchedResource::from_request(context.call)),
            false => find(&self.rules, context, self.equivalent),
        }
    }

    fn matches_object(&self, call: &Call<'_>, object: Option<&Object>) -> Result<bool, Failure> {
        let selector = self.objects.as_ref().map_err(Status::internal)?;
        let matches = |object: Option<&Object>| {
            object.is_some_and(|object| {
                object.metadata().is_some() && selector.matches_object(object)
            })
        };
        Ok(selector.is_everything() || matches(object) || matches(call.attributes.old))
    }

    async fn matches_namespace(
        &self,
        context: &mut DispatchContext<'_>,
        object: Option<&Object>,
    ) -> Result<bool, Failure> {
        let attributes = context.call.attributes;
        let is_namespace = attributes.resource.resource == "namespaces";
        if attributes.namespace.is_empty() && !is_namespace {
            return Ok(true);
        }
        let selector = self.namespaces.as_ref().map_err(Status::internal)?;
        if selector.is_everything() {
            return Ok(true);
        }
        let is_write = matches!(attributes.operation, Operation::Create | Operation::Update);
        if is_namespace && attributes.subresource.is_empty() && is_write {
            return Ok(object.is_some_and(|object| selector.matches_object(object)));
        }
        let labels = context.namespace_labels().await?;
        Ok(selector.matches(|key| {
            labels.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
        }))
    }
}

/// Returns the attributes that rules are compared with.
pub(super) fn requested<'a>(attributes: &Attributes<'a>) -> Requested<'a> {
    Requested {
        operation: attributes.operation,
        resource: attributes.resource,
        subresource: attributes.subresource,
        namespace: attributes.namespace,
    }
}

/// Returns the resource and kind of the first matching rule.
fn find(
    rules: &[NamedRule],
    context: &mut DispatchContext<'_>,
    equivalent: bool,
) -> Option<MatchedResource> {
    let call = context.call;
    let Call { attributes, .. } = call;
    let requested = requested(attributes);
    let name = attributes.name;
    if rules.iter().any(|rule| rule.matches(&requested, name)) {
        return Some(MatchedResource::from_request(call));
    }
    let may_be = |named: &NamedRule| named.rule.matches_in_other_version(&requested);
    if !equivalent || !rules.iter().any(may_be) {
        return None;
    }
    let others = context.equivalents();
    rules.iter().find_map(|rule| {
        let found = others
            .iter()
            .find(|(resource, _)| rule.matches(&Requested { resource, ..requested }, name));
        found.map(|(resource, kind)| MatchedResource {
            resource: resource.clone(),
            kind: kind.clone(),
        })
    })
}
