//! Whether a policy or a binding is for a request
//! (apiserver `admission/plugin/policy/matching`).

use super::round::Round;
use super::seen::Seen;
use crate::attributes::{Attributes, Call};
use crate::configurations::match_resources::{MatchResources, NamedRule};
use crate::request::Operation;
use crate::rules::Requested;
use keelson_meta::{Failure, Object, Status};

impl MatchResources {
    /// How the policy sees the request, when it is for it. A failure counts only where the rules match.
    pub(super) async fn matches(
        &self,
        round: &mut Round<'_>,
        object: Option<&Object>,
    ) -> Result<Option<Seen>, Failure> {
        let call = round.call;
        let Some(seen) = self.by_rules(round) else { return Ok(None) };
        if find(&self.excluded, round, self.equivalent).is_some() {
            return Ok(None);
        }
        let by_object = self.matches_object(call, object);
        if matches!(by_object, Ok(false)) {
            return Ok(None);
        }
        if !self.matches_namespace(round, object).await? {
            return Ok(None);
        }
        by_object?;
        Ok(Some(seen))
    }

    fn by_rules(&self, round: &mut Round<'_>) -> Option<Seen> {
        match self.rules.is_empty() {
            true => Some(Seen::as_requested(round.call)),
            false => find(&self.rules, round, self.equivalent),
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
        round: &mut Round<'_>,
        object: Option<&Object>,
    ) -> Result<bool, Failure> {
        let attributes = round.call.attributes;
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
        let labels = round.namespace_labels().await?;
        Ok(selector.matches(|key| {
            labels.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
        }))
    }
}

/// The attributes that rules are compared with.
pub(super) fn requested<'a>(attributes: &Attributes<'a>) -> Requested<'a> {
    Requested {
        operation: attributes.operation,
        resource: attributes.resource,
        subresource: attributes.subresource,
        namespace: attributes.namespace,
    }
}

/// What the first rule that matches is for.
fn find(rules: &[NamedRule], round: &mut Round<'_>, equivalent: bool) -> Option<Seen> {
    let call = round.call;
    let Call { attributes, .. } = call;
    let requested = requested(attributes);
    let name = attributes.name;
    if rules.iter().any(|rule| rule.matches(&requested, name)) {
        return Some(Seen::as_requested(call));
    }
    let may_be = |named: &NamedRule| named.rule.matches_in_other_version(&requested);
    if !equivalent || !rules.iter().any(may_be) {
        return None;
    }
    let others = round.equivalents();
    rules.iter().find_map(|rule| {
        let found = others
            .iter()
            .find(|(resource, _)| rule.matches(&Requested { resource, ..requested }, name));
        found.map(|(resource, kind)| Seen { resource: resource.clone(), kind: kind.clone() })
    })
}
