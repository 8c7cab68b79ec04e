//! The terms of affinity between pods.

use keelson_meta::selector::Selector;
use keelson_meta::{Object, Str, Value};

/// The terms of a pod.
#[derive(Clone, Debug, Default)]
pub struct Affinity {
    pub required: Vec<Term>,
    pub required_anti: Vec<Term>,
    pub preferred: Vec<(i64, Term)>,
    pub preferred_anti: Vec<(i64, Term)>,
}

/// A term: other pods, and the topology in which they count.
#[derive(Clone, Debug)]
pub struct Term {
    pub namespaces: Vec<Str>,
    pub namespace_selector: Option<Selector>,
    pub selector: Selector,
    pub topology_key: Str,
}

impl Term {
    fn of(pod: &Object, term: &Value) -> Term {
        let named = term.array_at(&["namespaces"]).iter().filter_map(Value::as_str);
        let mut namespaces: Vec<Str> = named.map(Str::new).collect();
        let selector = term.at(&["namespaceSelector"]);
        if namespaces.is_empty() && selector.is_none() {
            namespaces.push(pod.namespace().into());
        }
        Term {
            namespaces,
            namespace_selector: selector.and_then(|one| Selector::from_object(Some(one)).ok()),
            selector: Selector::from_object(term.at(&["labelSelector"])).unwrap_or_default(),
            topology_key: term.str_at(&["topologyKey"]).unwrap_or_default().into(),
        }
    }
}

impl Affinity {
    /// Reads the terms of a pod; `None` if it has none.
    pub fn of(pod: &Object) -> Option<Affinity> {
        let terms = |list: &str, field: &str| {
            let terms = pod.at(&["spec", "affinity", list, field]).and_then(Value::as_array);
            terms.unwrap_or_default().iter()
        };
        let required = |list: &str| {
            let terms = terms(list, "requiredDuringSchedulingIgnoredDuringExecution");
            terms.map(|term| Term::of(pod, term)).collect::<Vec<Term>>()
        };
        let preferred = |list: &str| {
            let terms = terms(list, "preferredDuringSchedulingIgnoredDuringExecution");
            let weighted = terms.filter_map(|one| {
                let term = Term::of(pod, one.at(&["podAffinityTerm"])?);
                Some((one.int_at(&["weight"]).unwrap_or(0), term))
            });
            weighted.collect::<Vec<(i64, Term)>>()
        };
        let affinity = Affinity {
            required: required("podAffinity"),
            required_anti: required("podAntiAffinity"),
            preferred: preferred("podAffinity"),
            preferred_anti: preferred("podAntiAffinity"),
        };
        let is_empty = affinity.required.is_empty()
            && affinity.required_anti.is_empty()
            && affinity.preferred.is_empty()
            && affinity.preferred_anti.is_empty();
        (!is_empty).then_some(affinity)
    }
}
