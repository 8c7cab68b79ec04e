//! [`MatchResources`]: the match constraints of a policy or a binding.

use crate::rules::{Requested, Rule};
use keelson_meta::selector::Selector;
use keelson_meta::{Str, Value};

/// `matchConstraints` of a policy, `matchResources` of a binding.
#[derive(Debug)]
pub(crate) struct MatchResources {
    pub rules: Vec<NamedRule>,
    pub excluded: Vec<NamedRule>,
    pub namespaces: Result<Selector, String>,
    pub objects: Result<Selector, String>,
    /// `matchPolicy: Equivalent`: rules match other versions of the requested resource too.
    pub equivalent: bool,
}

/// A rule with `resourceNames`; an empty list matches all names.
#[derive(Debug)]
pub(crate) struct NamedRule {
    pub rule: Rule,
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

    /// Returns the resource names of the rules; `*` matches any.
    pub fn resources(&self) -> Vec<&Str> {
        self.rules.iter().flat_map(|named| named.rule.resources()).collect()
    }

    /// Returns whether a rule may match a request in some version. A cheap filter: most policies do
    /// not match.
    pub fn may_match(&self, requested: &Requested<'_>) -> bool {
        self.rules.is_empty()
            || self.rules.iter().any(|named| named.rule.matches_in_other_version(requested))
    }
}

impl NamedRule {
    fn new(rule: &Value) -> NamedRule {
        let names = rule.array_at(&["resourceNames"]).iter().filter_map(Value::as_str);
        NamedRule { names: names.map(Str::new).collect(), rule: Rule::new(rule) }
    }

    /// Returns whether the rule matches a request to an object of this name.
    pub fn matches(&self, requested: &Requested<'_>, name: &str) -> bool {
        (self.names.is_empty() || self.names.iter().any(|known| known == name))
            && self.rule.matches(requested)
    }
}
