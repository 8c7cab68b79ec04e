//! [`MatchResources`]: which requests a policy or a binding is for
//! (apiserver `admission/plugin/policy/matching`).

use super::round::Round;
use super::seen::Seen;
use crate::attributes::{Attributes, Call};
use crate::request::Operation;
use crate::rules::{Requested, Rule};
use keelson_meta::selector::Selector;
use keelson_meta::{Failure, Object, Status, Str, Value};

/// `matchConstraints` of a policy, `matchResources` of a binding.
#[derive(Debug)]
pub(super) struct MatchResources {
    rules: Vec<NamedRule>,
    excluded: Vec<NamedRule>,
    namespaces: Result<Selector, String>,
    objects: Result<Selector, String>,
    /// `matchPolicy: Equivalent`: other versions of the requested resource count too.
    equivalent: bool,
}

/// A rule, for objects of some names only, or of all when there are none.
#[derive(Debug)]
struct NamedRule {
    rule: Rule,
    names: Vec<Str>,
}

impl MatchResources {
    pub fn new(spec: &Value) -> MatchResources {
        let rules = |name: &str| -> Vec<NamedRule> {
            spec.array_at(&[name]).iter().map(NamedRule::new).collect()
        };
        MatchResources {
            rules: rules("resourceRules"),
            excluded: rules("excludeResourceRules"),
            namespaces: Selector::from_object(spec.get("namespaceSelector")),
            objects: Selector::from_object(spec.get("objectSelector")),
            equivalent: spec.str_at(&["matchPolicy"]) != Some("Exact"),
        }
    }

    /// The names of the resources that the rules are for; `*` is any.
    pub fn resources(&self) -> Vec<&Str> {
        self.rules.iter().flat_map(|named| named.rule.resources()).collect()
    }

    /// Whether a rule may be for a request, in whatever version. Costs little: most policies are not.
    pub fn may_match(&self, requested: &Requested<'_>) -> bool {
        self.rules.is_empty()
            || self.rules.iter().any(|named| named.rule.matches_in_other_version(requested))
    }

    /// How the policy sees the request, when it is for it. A failure counts only where the rules match.
    pub async fn matches(
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

impl NamedRule {
    fn new(rule: &Value) -> NamedRule {
        let names = rule.array_at(&["resourceNames"]).iter().filter_map(Value::as_str);
        NamedRule { names: names.map(Str::new).collect(), rule: Rule::new(rule) }
    }

    fn matches(&self, requested: &Requested<'_>, name: &str) -> bool {
        (self.names.is_empty() || self.names.iter().any(|known| known == name))
            && self.rule.matches(requested)
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
