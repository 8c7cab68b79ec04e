//! [`LabelIndex`]: on which nodes pods with a label are, so that counts of pods that a selector
//! selects need not look at all nodes.

use super::pod::Pod;
use keelson_meta::Str;
use keelson_meta::selector::Selector;
use std::collections::HashMap;

/// How many pods with a label are on a node, by the name of the node.
type Nodes = HashMap<Str, usize>;

/// Nodes by the labels of their pods: namespace, key and value.
#[derive(Debug, Default)]
pub struct LabelIndex(HashMap<(Str, Str, Str), Nodes>);

/// The nodes that may have pods which a selector selects.
pub enum Having<'a> {
    /// The selector requires no label that decides it.
    Any,
    /// The names of these.
    Only(Option<&'a Nodes>),
}

impl LabelIndex {
    /// Adds a pod on its node.
    pub fn add(&mut self, pod: &Pod) {
        for (key, value) in &pod.labels {
            let label = (pod.key.0.clone(), key.clone(), value.clone());
            *self.0.entry(label).or_default().entry(pod.node.clone()).or_default() += 1;
        }
    }

    /// Removes a pod that was added.
    pub fn remove(&mut self, pod: &Pod) {
        for (key, value) in &pod.labels {
            let label = (pod.key.0.clone(), key.clone(), value.clone());
            let Some(nodes) = self.0.get_mut(&label) else { continue };
            if let Some(count) = nodes.get_mut(&pod.node) {
                *count -= 1;
                if *count == 0 {
                    nodes.remove(&pod.node);
                }
            }
            if nodes.is_empty() {
                self.0.remove(&label);
            }
        }
    }

    /// Returns the nodes that may have pods of a namespace which a selector selects: those of the
    /// rarest label that it requires.
    pub fn having(&self, namespace: &Str, selector: &Selector) -> Having<'_> {
        if selector.is_nothing() {
            return Having::Only(None);
        }
        let mut having = Having::Any;
        for requirement in selector.requirements() {
            let Some(value) = requirement.required_value() else { continue };
            let label = (namespace.clone(), requirement.key().into(), value.into());
            let Some(nodes) = self.0.get(&label) else { return Having::Only(None) };
            let is_rarer = match having {
                Having::Any | Having::Only(None) => true,
                Having::Only(Some(known)) => nodes.len() < known.len(),
            };
            if is_rarer {
                having = Having::Only(Some(nodes));
            }
        }
        having
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(index: &LabelIndex, namespace: &str, selector: &[(&str, &str)]) -> String {
        let selector = Selector::from_labels(selector.iter().copied());
        match index.having(&namespace.into(), &selector) {
            Having::Any => "any".to_owned(),
            Having::Only(nodes) => {
                let mut names: Vec<&str> =
                    nodes.into_iter().flat_map(HashMap::keys).map(Str::as_str).collect();
                names.sort_unstable();
                names.join(" ")
            }
        }
    }

    fn pod(node: &str, labels: &[(&str, &str)]) -> Pod {
        let labels = labels.iter().map(|(key, value)| (Str::new(key), Str::new(value)));
        let key = ("n".into(), "p".into());
        Pod { key, node: node.into(), labels: labels.collect(), ..Pod::default() }
    }

    #[test]
    fn the_rarest_label_of_a_selector_names_the_nodes() {
        let mut index = LabelIndex::default();
        let first = pod("a", &[("app", "x"), ("hash", "1")]);
        index.add(&first);
        index.add(&first);
        index.add(&pod("b", &[("app", "x"), ("hash", "2")]));
        assert_eq!(names(&index, "n", &[("app", "x")]), "a b");
        assert_eq!(names(&index, "n", &[("app", "x"), ("hash", "2")]), "b");
        assert_eq!(names(&index, "n", &[("app", "y")]), "");
        assert_eq!(names(&index, "other", &[("app", "x")]), "");
        assert_eq!(names(&index, "n", &[]), "any");
        assert!(matches!(index.having(&"n".into(), &Selector::NOTHING), Having::Only(None)));
        index.remove(&first);
        assert_eq!(names(&index, "n", &[("hash", "1")]), "a");
        index.remove(&first);
        assert_eq!(names(&index, "n", &[("app", "x")]), "b");
        assert_eq!(names(&index, "n", &[("hash", "1")]), "");
    }
}
