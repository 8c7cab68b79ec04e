//! Escalation check: whoever grants permissions must hold them.

use super::describe::quoted;
use super::{Rule, aggregate};
use crate::User;
use keelson_meta::Str;
use keelson_meta::status::quote;
use std::collections::{BTreeSet, HashMap};

/// The error of an aggregationRule without full permissions.
pub const CLUSTER_ADMIN_NEEDED: &str =
    "must have cluster-admin privileges to use the aggregationRule";

/// Returns the rules that the author of an aggregationRule must hold, because it can aggregate any
/// role.
pub fn full_authority() -> Vec<Rule> {
    let all = || vec![Str::new_static("*")];
    vec![
        Rule { verbs: all(), groups: all(), resources: all(), ..Rule::default() },
        Rule { verbs: all(), urls: all(), ..Rule::default() },
    ]
}

/// Returns whether `held` covers `wanted`.
pub fn covers(held: &[Rule], wanted: &[Rule]) -> bool {
    uncovered(held, wanted).is_empty()
}

/// Returns the part of `wanted` that `held` does not cover, as single rules.
pub fn uncovered(held: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    let single = wanted.iter().flat_map(Rule::breakdown);
    single.filter(|rule| !held.iter().any(|own| own.covers(rule))).collect()
}

/// Returns why a user may not grant `wanted`; `None` if the user holds all of it.
pub fn escalation_message(
    user: &User,
    held: &[Rule],
    errors: &[String],
    wanted: &[Rule],
) -> Option<String> {
    let missing = uncovered(held, wanted);
    if missing.is_empty() {
        return None;
    }
    let missing: BTreeSet<String> = compact(missing).iter().map(Rule::to_string).collect();
    let missing: Vec<String> = missing.into_iter().collect();
    let mut message = format!(
        "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        quote(&user.name),
        quoted(&user.groups),
        missing.join("\n")
    );
    if !errors.is_empty() {
        message.push_str(&format!("; resolution errors: [{}]", aggregate(errors)));
    }
    Some(message)
}

/// Merges the verbs of rules with the same group, resource and name.
pub(crate) fn compact(rules: Vec<Rule>) -> Vec<Rule> {
    let mut places: HashMap<(Str, Str, Option<Str>), usize> = HashMap::new();
    let mut compact: Vec<Rule> = vec![];
    for rule in rules {
        let simple = match (&*rule.groups, &*rule.resources, &*rule.names, &*rule.urls) {
            ([group], [resource], [], []) => Some((group.clone(), resource.clone(), None)),
            ([group], [resource], [name], []) => {
                Some((group.clone(), resource.clone(), Some(name.clone())))
            }
            _ => None,
        };
        let known = simple.as_ref().and_then(|simple| places.get(simple)).copied();
        match known.and_then(|place| compact.get_mut(place)) {
            Some(known) => known.verbs.extend(rule.verbs),
            None => {
                if let Some(simple) = simple {
                    places.insert(simple, compact.len());
                }
                compact.push(rule);
            }
        }
    }
    compact
}
