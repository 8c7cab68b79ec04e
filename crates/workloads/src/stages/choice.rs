//! Which Stage is played for an object, and when: pure functions.

use super::rule::{StageRule, StageSelector};
use keelson_meta::time::GoDuration;
use keelson_meta::{Object, Timestamp, Value};
use std::sync::Arc;

/// Returns one of the Stages that match an object, chosen by their weights; `None`: none matches.
/// `random` is any number.
pub fn choose(rules: &[Arc<StageRule>], object: &Object, random: u64) -> Option<Arc<StageRule>> {
    let value = object.clone().into_value();
    let matching: Vec<&Arc<StageRule>> =
        rules.iter().filter(|rule| rule.selector.matches(object, &value)).collect();
    if let [only] = matching.as_slice() {
        return Some(Arc::clone(only));
    }
    let weights: Vec<Option<i64>> = matching.iter().map(|rule| rule.weight.of(&value)).collect();
    let positive = |weight: &Option<i64>| u64::try_from(weight.unwrap_or(0)).unwrap_or(0);
    let total = weights.iter().map(positive).fold(0, u64::saturating_add);
    if total == 0 {
        // Those whose weight is a number are preferred to those whose weight is none.
        let numbered = matching.iter().zip(&weights).filter(|(_, weight)| weight.is_some());
        let mut left: Vec<&Arc<StageRule>> = numbered.map(|(rule, _)| *rule).collect();
        if left.is_empty() {
            left = matching;
        }
        let place = random.checked_rem(left.len() as u64)?;
        return left.get(usize::try_from(place).ok()?).map(|rule| Arc::clone(rule));
    }
    let mut place = random % total;
    for (rule, weight) in matching.iter().zip(&weights) {
        match place.checked_sub(positive(weight)) {
            Some(rest) => place = rest,
            None => return Some(Arc::clone(rule)),
        }
    }
    None
}

/// Returns how long after now a Stage is played.
pub fn delay(rule: &StageRule, object: &Object, now: Timestamp, random: u64) -> GoDuration {
    let value = object.clone().into_value();
    let shortest =
        rule.delay.as_ref().and_then(|delay| delay.of(&value, now)).unwrap_or(GoDuration(0));
    let longest = rule.jitter.as_ref().and_then(|jitter| jitter.of(&value, now));
    let delay = match longest {
        None => shortest.0,
        Some(longest) if longest.0 <= shortest.0 => longest.0,
        Some(longest) => {
            let span = longest.0.abs_diff(shortest.0);
            shortest.0.saturating_add_unsigned(random % span.max(1))
        }
    };
    GoDuration(delay.max(0))
}

impl StageSelector {
    fn matches(&self, object: &Object, value: &Value) -> bool {
        self.labels.iter().all(|(key, wanted)| object.label(key) == Some(wanted))
            && self.annotations.iter().all(|(key, wanted)| object.annotation(key) == Some(wanted))
            && self.conditions.iter().all(|condition| condition.matches(value))
    }
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;
    use keelson_meta::value;

    fn rule(name: &str, spec: Value) -> Arc<StageRule> {
        let mut spec = spec;
        if let Some(spec) = spec.as_object_mut() {
            spec.insert("resourceRef", value!({"kind": "Pod"}));
            spec.entry_or("selector", || value!({}));
        }
        let stage = value!({"metadata": {"name": name}, "spec": (spec)});
        Arc::new(read::rule(&stage).expect("a Stage").expect("it has a selector"))
    }

    fn pod() -> Object {
        let pod = value!({"metadata": {"labels": {"a": "1"}, "annotations": {"weight": "3",
            "delay": "2s", "none": "", "until": "2026-01-01T00:01:00Z"}},
            "status": {"phase": "Pending", "ready": true, "restarts": 3,
                "conditions": [{"type": "Ready", "status": "False"}]}});
        Object::from_value(pod).expect("a pod")
    }

    #[test]
    fn a_selector_needs_all_of_its_parts() {
        let check = |selector: Value, want: bool| {
            let text = format!("{selector:?}");
            let rules = [rule("a", value!({"selector": (selector)}))];
            assert_eq!(choose(&rules, &pod(), 0).is_some(), want, "{text}");
        };
        let key = |key: &str, operator: &str, values: Value| value!({"matchExpressions": [{"key": key, "operator": operator, "values": (values)}]});
        check(value!({}), true);
        check(value!({"matchLabels": {"a": "1"}, "matchAnnotations": {"weight": "3"}}), true);
        check(value!({"matchLabels": {"a": "2"}}), false);
        check(value!({"matchAnnotations": {"no": "3"}}), false);
        check(key(".status.phase", "In", value!(["Running", "Pending"])), true);
        check(key(".status.phase", "NotIn", value!(["Pending"])), false);
        check(key(".status.ready", "In", value!(["true"])), true);
        check(key(".status.restarts", "In", value!(["3"])), true);
        check(key(".metadata.deletionTimestamp", "DoesNotExist", value!([])), true);
        check(key(".status.none.[].x", "NotIn", value!(["a"])), true);
        let ready = ".status.conditions.[] | select( .type == \"Ready\" ) | .status";
        check(key(ready, "NotIn", value!(["True"])), true);
        check(value!({"matchExpressions": [{"jq": {"key": ready, "operator": "Exists"}}]}), true);
        let cel = |text: &str| value!({"matchExpressions": [{"cel": {"expression": text}}]});
        check(cel("self.status.phase == 'Pending' && !has(self.metadata.deletionTimestamp)"), true);
        check(cel("self.status.none.x == 1"), false);
    }

    #[test]
    fn weights_decide_among_those_that_match() {
        let weighted = |name: &str, weight: i64| rule(name, value!({"weight": weight}));
        let names = |rules: &[Arc<StageRule>]| {
            let chosen = (0..8).map(|random| choose(rules, &pod(), random).expect("a Stage"));
            chosen.map(|rule| rule.name.clone()).collect::<String>()
        };
        assert_eq!(names(&[weighted("a", 1), weighted("b", 3)]), "abbbabbb");
        assert_eq!(names(&[weighted("a", 0), weighted("b", 0)]), "abababab");
        assert_eq!(names(&[weighted("a", 0), weighted("b", 1)]), "bbbbbbbb");
        let from = |name: &str, annotation: &str| {
            let query = format!(".metadata.annotations[\"{annotation}\"]");
            rule(name, value!({"weight": 1, "weightFrom": {"expressionFrom": query}}))
        };
        assert_eq!(names(&[from("a", "weight"), from("b", "absent")]), "aaabaaab");
        assert_eq!(names(&[from("a", "none"), weighted("b", 0)]), "bbbbbbbb");
        assert!(choose(&[], &pod(), 0).is_none());
    }

    #[test]
    fn a_delay_lies_between_its_bounds() {
        let now = Timestamp::parse("2026-01-01T00:00:00Z").expect("a time");
        let check = |spec: Value, random: u64, want_ms: i64| {
            let text = format!("{spec:?}");
            let rule = rule("a", value!({"delay": (spec)}));
            let delay = delay(&rule, &pod(), now, random);
            assert_eq!(delay.0 / 1_000_000, want_ms, "{text}");
        };
        let from = |annotation: &str| value!({"expressionFrom": (format!(".metadata.annotations[\"{annotation}\"]"))});
        check(value!({}), 5, 0);
        check(value!({"durationMilliseconds": 1000}), 5, 1_000);
        let both = value!({"durationMilliseconds": 1000, "jitterDurationMilliseconds": 5000});
        check(both.clone(), 0, 1_000);
        check(both, 3_999_999_999, 4_999);
        check(value!({"durationMilliseconds": 1000, "jitterDurationMilliseconds": 500}), 9, 500);
        let given = value!({"durationMilliseconds": 1000, "durationFrom": (from("delay"))});
        check(given, 0, 2_000);
        check(value!({"durationMilliseconds": 1000, "durationFrom": (from("no"))}), 0, 1_000);
        check(value!({"durationMilliseconds": 1000, "durationFrom": (from("none"))}), 0, 0);
        check(value!({"jitterDurationFrom": (from("until"))}), 59_000_000_000, 59_000);
        let past = value!({"durationFrom": {"cel": {"expression": "'2025-01-01T00:00:00Z'"}}});
        check(past, 0, 0);
    }
}
