//! [`Wide`]: a label selector of many requirements or values, prepared so that matching an object
//! takes time for each label of the object, not for each requirement.

use super::{Operator, Requirement};
use crate::Str;

/// Up to this number, requirements and their values are compared one by one.
const LINEAR_MAX: usize = 8;

/// The requirements on each label, by label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Wide {
    /// Invariant: sorted by key, without duplicates.
    rules: Vec<Rule>,
    /// Rules that only an object with the label meets.
    needed: usize,
}

/// All requirements on one label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Rule {
    key: Str,
    needs_label: bool,
    forbids_label: bool,
    /// The values that all requirements allow, sorted; `None`: any.
    allowed: Option<Vec<Str>>,
    /// Sorted.
    excluded: Vec<Str>,
    above: Option<i64>,
    below: Option<i64>,
}

impl Wide {
    /// Prepares requirements that are sorted by key; `None` if they are few.
    pub fn of(requirements: &[Requirement]) -> Option<Wide> {
        let has_many_values = || requirements.iter().any(|it| it.values.len() > LINEAR_MAX);
        if requirements.len() <= LINEAR_MAX && !has_many_values() {
            return None;
        }
        let same_key = |one: &Requirement, other: &Requirement| one.key == other.key;
        let rules: Vec<Rule> = requirements.chunk_by(same_key).map(Rule::of).collect();
        let needed = rules.iter().filter(|rule| rule.needs_label).count();
        Some(Wide { rules, needed })
    }

    /// Returns whether labels match. Each label must stand once.
    #[inline(never)]
    pub fn matches_labels<'a>(&self, labels: impl Iterator<Item = (&'a str, &'a str)>) -> bool {
        let mut met = 0;
        for (key, value) in labels {
            let Ok(at) = self.rules.binary_search_by(|rule| rule.key.as_str().cmp(key)) else {
                continue;
            };
            if !self.rules[at].allows(value) {
                return false;
            }
            met += usize::from(self.rules[at].needs_label);
        }
        met == self.needed
    }

    /// Returns whether labels match; `find` looks up a label.
    #[cold]
    #[inline(never)]
    pub fn matches<'a>(&self, find: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.rules.iter().all(|rule| match find(&rule.key) {
            Some(value) => rule.allows(value),
            None => !rule.needs_label,
        })
    }
}

impl Rule {
    /// Combines the requirements on one label.
    fn of(requirements: &[Requirement]) -> Rule {
        let mut rule = Rule {
            key: requirements.first().map(|first| first.key.clone()).unwrap_or_default(),
            needs_label: false,
            forbids_label: false,
            allowed: None,
            excluded: vec![],
            above: None,
            below: None,
        };
        for requirement in requirements {
            rule.add(requirement);
        }
        rule.excluded.sort_unstable();
        rule.excluded.dedup();
        rule
    }

    fn add(&mut self, requirement: &Requirement) {
        let values = &requirement.values;
        let number = || values.first().and_then(|value| value.parse::<i64>().ok());
        self.needs_label |= !matches!(
            requirement.operator,
            Operator::NotIn | Operator::NotEquals | Operator::DoesNotExist
        );
        match requirement.operator {
            Operator::Exists => {}
            Operator::DoesNotExist => self.forbids_label = true,
            Operator::In | Operator::Equals | Operator::DoubleEquals => {
                let mut sorted = values.clone();
                sorted.sort_unstable();
                sorted.dedup();
                match &mut self.allowed {
                    None => self.allowed = Some(sorted),
                    Some(allowed) => allowed.retain(|value| has(&sorted, value)),
                }
            }
            Operator::NotIn | Operator::NotEquals => self.excluded.extend(values.iter().cloned()),
            Operator::GreaterThan => self.above = self.above.max(number()),
            Operator::LessThan => {
                self.below = [self.below, number()].into_iter().flatten().min();
            }
        }
    }

    fn allows(&self, value: &str) -> bool {
        let number = || value.parse::<i64>().ok();
        !self.forbids_label
            && self.allowed.as_ref().is_none_or(|allowed| has(allowed, value))
            && !has(&self.excluded, value)
            && self.above.is_none_or(|above| number().is_some_and(|number| number > above))
            && self.below.is_none_or(|below| number().is_some_and(|number| number < below))
    }
}

fn has(sorted: &[Str], value: &str) -> bool {
    sorted.binary_search_by(|known| known.as_str().cmp(value)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::super::{Selector, parse};
    use super::*;

    fn selector(text: &str) -> Selector {
        parse(text).expect("the test's selector is valid")
    }

    /// Every combination of two requirements on labels, together with requirements that all objects
    /// meet.
    #[test]
    fn a_wide_selector_matches_as_its_requirements_do() {
        let terms = [
            "a",
            "!a",
            "a=1",
            "a!=1",
            "a in (1,2)",
            "a notin (2,3)",
            "a>1",
            "a<3",
            "b",
            "!b",
            "b=x",
            "a=",
        ];
        let objects: [&[(&str, &str)]; 8] = [
            &[],
            &[("a", "1")],
            &[("a", "2"), ("b", "x")],
            &[("a", "3")],
            &[("a", "")],
            &[("a", "x"), ("b", "y")],
            &[("b", "x"), ("z3", "v")],
            &[("z", "v")],
        ];
        let absent: String = (0..=LINEAR_MAX).map(|at| format!(",!z{at}")).collect();
        for (one, two) in terms.iter().flat_map(|one| terms.iter().map(move |two| (one, two))) {
            let few = selector(&format!("{one},{two}"));
            let wide = selector(&format!("{one},{two}{absent}"));
            assert!(few.wide.is_none() && wide.wide.is_some());
            for labels in objects {
                let is_absent = !labels.iter().any(|(key, _)| *key == "z3");
                let want = few.matches_labels(labels.iter().copied()) && is_absent;
                let find = |key: &str| labels.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
                assert_eq!(wide.matches_labels(labels.iter().copied()), want, "{wide} {labels:?}");
                assert_eq!(wide.matches(find), want, "{wide} {labels:?}");
            }
        }
    }

    #[test]
    fn many_values_are_found_in_any_order() {
        let values: Vec<String> = (0..50).rev().map(|at| at.to_string()).collect();
        let list = values.join(",");
        for (operator, inside, outside) in [("in", true, false), ("notin", false, true)] {
            let selector = selector(&format!("n {operator} ({list})"));
            assert!(selector.wide.is_some());
            assert_eq!(selector.matches_labels([("n", "7")]), inside);
            assert_eq!(selector.matches_labels([("n", "50")]), outside);
            assert_eq!(selector.matches_labels([]), outside);
        }
    }
}
