//! Node selectors and node affinity.

use crate::sorted_pairs::find;
use keelson_meta::{Map, Object, Str, Value};

/// What a pod asks of the labels and the name of its node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeAffinity {
    selector: Vec<(Str, Str)>,
    /// One of them must match; `None`: no requirement.
    required: Option<Vec<Term>>,
    preferred: Vec<(i64, Term)>,
}

/// A term of a node selector. A term without requirements matches nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Term {
    labels: Vec<Requirement>,
    fields: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq)]
struct Requirement {
    key: Str,
    operator: Str,
    values: Vec<Str>,
}

impl Requirement {
    fn all(term: &Value, field: &str) -> Vec<Requirement> {
        let read = |one: &Value| {
            let text = |field: &str| Str::new(one.str_at(&[field]).unwrap_or_default());
            let values = one.array_at(&["values"]).iter().filter_map(Value::as_str);
            Requirement {
                key: text("key"),
                operator: text("operator"),
                values: values.map(Str::new).collect(),
            }
        };
        term.array_at(&[field]).iter().map(read).collect()
    }

    fn matches(&self, value: Option<&str>) -> bool {
        let has = |value: &str| self.values.iter().any(|one| one == value);
        let compares = |compare: fn(i64, i64) -> bool| {
            let wanted = self.values.first().and_then(|text| text.parse::<i64>().ok());
            let has = value.and_then(|text| text.parse::<i64>().ok());
            matches!((has, wanted), (Some(has), Some(wanted)) if compare(has, wanted))
        };
        match self.operator.as_str() {
            "In" => value.is_some_and(has),
            "NotIn" => !value.is_some_and(has),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            "Gt" => compares(|has, wanted| has > wanted),
            "Lt" => compares(|has, wanted| has < wanted),
            _ => false,
        }
    }
}

impl Term {
    /// Reads a term.
    pub fn of(term: &Value) -> Term {
        Term {
            labels: Requirement::all(term, "matchExpressions"),
            fields: Requirement::all(term, "matchFields"),
        }
    }

    /// Reads the terms of a NodeSelector.
    pub fn all(selector: &Value) -> Vec<Term> {
        selector.array_at(&["nodeSelectorTerms"]).iter().map(Term::of).collect()
    }

    /// Whether a node matches.
    pub fn matches(&self, name: &str, labels: &[(Str, Str)]) -> bool {
        let field = |key: &str| (key == "metadata.name").then_some(name);
        (!self.labels.is_empty() || !self.fields.is_empty())
            && self.labels.iter().all(|one| one.matches(find(labels, &one.key)))
            && self.fields.iter().all(|one| one.matches(field(&one.key)))
    }

    /// Returns the only node names that can match, if the term says so.
    fn names(&self) -> Option<Vec<Str>> {
        let by_name = |one: &&Requirement| one.key == "metadata.name" && one.operator == "In";
        let mut named = self.fields.iter().filter(by_name);
        let first = named.next()?;
        let in_all = |name: &&Str| named.clone().all(|one| one.values.contains(name));
        Some(first.values.iter().filter(in_all).cloned().collect())
    }
}

impl NodeAffinity {
    /// Reads what a pod asks.
    pub fn of(pod: &Object) -> NodeAffinity {
        pod.get("spec").map(NodeAffinity::of_spec).unwrap_or_default()
    }

    /// Whether it asks for what a node may not have.
    pub fn is_required(&self) -> bool {
        !self.selector.is_empty() || self.required.is_some()
    }

    /// Reads what pods with a spec ask.
    pub fn of_spec(spec: &Value) -> NodeAffinity {
        let affinity = |field: &str| spec.at(&["affinity", "nodeAffinity", field]);
        let selector =
            spec.get("nodeSelector").and_then(Value::as_object).into_iter().flat_map(Map::iter);
        let preferred = affinity("preferredDuringSchedulingIgnoredDuringExecution")
            .and_then(Value::as_array)
            .unwrap_or_default()
            .iter();
        NodeAffinity {
            selector: selector
                .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().into()))
                .collect(),
            required: affinity("requiredDuringSchedulingIgnoredDuringExecution").map(Term::all),
            preferred: preferred
                .map(|one| {
                    let term = one.at(&["preference"]).map(Term::of).unwrap_or_default();
                    (one.int_at(&["weight"]).unwrap_or(0), term)
                })
                .filter(|(weight, _)| *weight != 0)
                .collect(),
        }
    }

    /// Whether a node satisfies the requirements.
    pub fn matches(&self, name: &str, labels: &[(Str, Str)]) -> bool {
        let required = self.required.as_ref();
        self.selector.iter().all(|(key, value)| find(labels, key) == Some(value.as_str()))
            && required.is_none_or(|terms| terms.iter().any(|term| term.matches(name, labels)))
    }

    /// Returns the sum of the weights of preferred terms that a node matches.
    pub fn score(&self, name: &str, labels: &[(Str, Str)]) -> i64 {
        let matching = self.preferred.iter().filter(|(_, term)| term.matches(name, labels));
        matching.map(|(weight, _)| weight).sum()
    }

    pub fn has_preferences(&self) -> bool {
        !self.preferred.is_empty()
    }

    /// Returns the only nodes that can match, if every term names some.
    pub fn names(&self) -> Option<Vec<Str>> {
        let terms = self.required.as_ref().filter(|terms| !terms.is_empty())?;
        let mut names = vec![];
        for term in terms {
            names.extend(term.names()?);
        }
        names.sort_unstable();
        names.dedup();
        Some(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    #[test]
    fn terms_match_labels_and_names() {
        let labels = [("a".into(), "5".into()), ("b".into(), "x".into())];
        let check = |term: Value, want: bool| {
            assert_eq!(Term::of(&term).matches("n", &labels), want, "{term:?}");
        };
        let label = |key: &str, operator: &str, values: Value| value!({"matchExpressions": [{"key": key, "operator": operator, "values": (values)}]});
        check(value!({}), false);
        check(label("a", "In", value!(["4", "5"])), true);
        check(label("a", "NotIn", value!(["5"])), false);
        check(label("c", "NotIn", value!(["5"])), true);
        check(label("b", "Exists", value!([])), true);
        check(label("b", "DoesNotExist", value!([])), false);
        check(label("a", "Gt", value!(["4"])), true);
        check(label("b", "Gt", value!(["4"])), false);
        let field = |operator: &str, name: &str| {
            value!({"matchFields": [{"key": "metadata.name", "operator": operator,
                "values": [name]}]})
        };
        check(field("In", "n"), true);
        check(field("NotIn", "n"), false);
        assert_eq!(Term::of(&field("In", "m")).names(), Some(vec!["m".into()]));
    }
}
