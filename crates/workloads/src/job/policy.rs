//! `podFailurePolicy` and `successPolicy`.

use super::indexes::Indexes;
use keelson_meta::{Object, Value};

/// What a failure policy says about a failed pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Match {
    /// No rule matches: the failure counts.
    None,
    Ignore,
    Count,
    FailIndex,
    /// With the message of the condition.
    FailJob(String),
}

impl Match {
    /// Whether the failure counts against the limits.
    pub fn counts(&self) -> bool {
        *self != Match::Ignore
    }
}

/// Returns what the first matching rule says.
pub(super) fn match_failure(policy: Option<&Value>, pod: &Object) -> Match {
    let rules = policy.map_or(&[][..], |policy| policy.array_at(&["rules"]));
    for (at, rule) in rules.iter().enumerate() {
        let action = rule.str_at(&["action"]).unwrap_or_default();
        let codes = rule.get("onExitCodes").filter(|codes| codes.is_map());
        let message = if let Some(codes) = codes {
            container_message(codes, pod, action, at)
        } else {
            condition_message(rule.array_at(&["onPodConditions"]), pod, action, at)
        };
        match (message, action) {
            (Some(message), "FailJob") => return Match::FailJob(message),
            (Some(_), "Ignore") => return Match::Ignore,
            (Some(_), "Count") => return Match::Count,
            (Some(_), "FailIndex") => return Match::FailIndex,
            _ => {}
        }
    }
    Match::None
}

fn container_message(codes: &Value, pod: &Object, action: &str, rule: usize) -> Option<String> {
    let only = codes.str_at(&["containerName"]);
    let values = codes.array_at(&["values"]);
    let is_in = match codes.str_at(&["operator"])? {
        "In" => true,
        "NotIn" => false,
        _ => return None,
    };
    let main = pod.array_at(&["status", "containerStatuses"]).iter();
    let all = main.chain(pod.array_at(&["status", "initContainerStatuses"]));
    let named = all.filter(|status| only.is_none() || only == status.str_at(&["name"]));
    let mut exited = named.filter_map(|status| {
        status.at(&["state", "terminated"]).filter(|state| state.is_map())?;
        Some((status, status.int_at(&["state", "terminated", "exitCode"]).unwrap_or(0)))
    });
    let (status, code) =
        exited.find(|(_, code)| *code != 0 && values.contains(&Value::Int(*code)) == is_in)?;
    let namespace = pod.namespace();
    let name = pod.name();
    let container = status.str_at(&["name"]).unwrap_or_default();
    Some(format!(
        "Container {container} for pod {namespace}/{name} failed with exit code {code} matching \
         {action} rule at index {rule}"
    ))
}

fn condition_message(
    patterns: &[Value],
    pod: &Object,
    action: &str,
    rule: usize,
) -> Option<String> {
    let facts = |one: &Value| {
        let text = |name: &str| one.str_at(&[name]).unwrap_or_default().to_owned();
        (text("type"), text("status"))
    };
    let conditions = pod.array_at(&["status", "conditions"]).iter();
    let found = conditions
        .map(facts)
        .find(|condition| patterns.iter().any(|pattern| facts(pattern) == *condition));
    let namespace = pod.namespace();
    let name = pod.name();
    let kind = found?.0;
    Some(format!(
        "Pod {namespace}/{name} has condition {kind} matching {action} rule at index {rule}"
    ))
}

/// Returns the message of the condition if a rule of a success policy is met.
pub(super) fn match_success(
    policy: Option<&Value>,
    completions: i64,
    succeeded: &Indexes,
) -> Option<String> {
    let rules = policy?.array_at(&["rules"]);
    if succeeded.is_empty() {
        return None;
    }
    let is_met = |rule: &Value| {
        let count = rule.int_at(&["succeededCount"]);
        let Some(text) = rule.str_at(&["succeededIndexes"]) else {
            return count.is_some_and(|count| succeeded.count() >= count);
        };
        let required = Indexes::parse(text, completions);
        let common = required.count_common(succeeded);
        !required.is_empty()
            && (common == required.count() || count.is_some_and(|count| common >= count))
    };
    let at = rules.iter().position(is_met)?;
    Some(format!("Matched rules at index {at}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    fn pod(code: i32) -> Object {
        Object::from_value(value!({"metadata": {"namespace": "a", "name": "p"}, "status": {
            "conditions": [{"type": "DisruptionTarget", "status": "True"}],
            "initContainerStatuses": [{"name": "init", "state": {"terminated": {"exitCode": 9}}}],
            "containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": code}}}]}}))
        .expect("a map")
    }

    #[test]
    fn the_first_matching_rule_decides() {
        let check = |rule: Value, code: i32, want: Match| {
            let policy = value!({"rules": [
                {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [77]}}, (rule)]});
            assert_eq!(match_failure(Some(&policy), &pod(code)), want, "{policy:?}");
        };
        let codes = |action: &str, operator: &str, name: Option<&str>| {
            let mut codes = value!({"operator": operator, "values": [3, 4]});
            if let (Some(name), Some(map)) = (name, codes.as_object_mut()) {
                map.insert("containerName", name);
            }
            value!({"action": action, "onExitCodes": (codes)})
        };
        check(codes("Count", "In", None), 77, Match::Ignore);
        check(codes("Count", "In", None), 3, Match::Count);
        check(codes("Count", "In", None), 5, Match::None);
        check(codes("FailIndex", "NotIn", Some("main")), 5, Match::FailIndex);
        check(codes("FailIndex", "NotIn", Some("main")), 0, Match::None);
        let message = "Container init for pod a/p failed with exit code 9 matching FailJob rule \
                       at index 1";
        check(codes("FailJob", "NotIn", None), 4, Match::FailJob(message.into()));
        let pattern = value!([{"type": "DisruptionTarget", "status": "True"}]);
        let message = "Pod a/p has condition DisruptionTarget matching FailJob rule at index 1";
        check(
            value!({"action": "FailJob", "onPodConditions": (pattern)}),
            1,
            Match::FailJob(message.into()),
        );
        assert_eq!(match_failure(None, &pod(1)), Match::None);
    }

    #[test]
    fn success_rules_ask_for_indexes_or_a_count() {
        let check = |rule: Value, succeeded: &str, is_met: bool| {
            let policy = value!({"rules": [(rule)]});
            let succeeded = Indexes::parse(succeeded, 10);
            let found = match_success(Some(&policy), 10, &succeeded);
            let want = is_met.then(|| "Matched rules at index 0".to_owned());
            assert_eq!(found, want, "{policy:?} {succeeded}");
        };
        check(value!({"succeededCount": 2}), "3", false);
        check(value!({"succeededCount": 2}), "3,5", true);
        check(value!({"succeededIndexes": "0-2"}), "0,1", false);
        check(value!({"succeededIndexes": "0-2"}), "0-5", true);
        check(value!({"succeededIndexes": "0-2", "succeededCount": 1}), "2", true);
        check(value!({"succeededIndexes": "0-2", "succeededCount": 1}), "4", false);
        check(value!({"succeededIndexes": "50"}), "4", false);
    }
}
