//! [`Node`]: a node and what is placed on it.

use super::pod::{Pod, PodKey, Port};
use super::resources::Resources;
use crate::sorted_pairs::{find, labels_of};
use crate::taints::Taint;
use keelson_meta::{Object, Quantity, Str, Value};
use std::sync::Arc;

/// A node and the pods on it.
#[derive(Clone, Debug, Default)]
pub struct Node {
    pub name: Str,
    /// Sorted by key.
    pub labels: Vec<(Str, Str)>,
    pub taints: Vec<Taint>,
    pub is_unschedulable: bool,
    pub allocatable: Resources,
    pub pods_max: i64,
    /// Names of images and their sizes.
    pub images: Vec<(Str, i64)>,
    pub requested: Resources,
    /// Like `requested`, with defaults for containers without requests.
    pub scored: Resources,
    pub pods: Vec<Arc<Pod>>,
    /// Those that are not being deleted, by namespace and labels: most are many of one workload.
    pub alike: Vec<AlikePods>,
    pub ports: Vec<Port>,
    /// How many pods have terms of affinity, and how many of these terms keep others away.
    pub with_affinity: usize,
    pub with_required_anti: usize,
}

/// Pods of a node with the same namespace and labels.
#[derive(Clone, Debug)]
pub struct AlikePods {
    pub namespace: Str,
    /// Sorted by key.
    pub labels: Vec<(Str, Str)>,
    pub count: i64,
}

impl AlikePods {
    pub fn label(&self, key: &str) -> Option<&str> {
        find(&self.labels, key)
    }
}

/// Returns the most pods that a node takes.
pub fn pods_max(node: &Object) -> i64 {
    let pods = node.at(&["status", "allocatable"]).and_then(|list| list.str_at(&["pods"]));
    pods.and_then(|text| text.parse::<Quantity>().ok()).map_or(0, |pods| pods.value())
}

impl Node {
    /// Reads a node, without pods.
    pub fn of(object: &Object) -> Node {
        let images = object.array_at(&["status", "images"]).iter().flat_map(|image| {
            let size = image.int_at(&["sizeBytes"]).unwrap_or(0);
            let names = image.array_at(&["names"]).iter().filter_map(Value::as_str);
            names.map(move |name| (Str::new(name), size))
        });
        Node {
            name: object.name().into(),
            labels: labels_of(object),
            taints: Taint::all(object),
            is_unschedulable: object.at(&["spec", "unschedulable"]).and_then(Value::as_bool)
                == Some(true),
            allocatable: Resources::of(object.at(&["status", "allocatable"])),
            pods_max: pods_max(object),
            images: images.collect(),
            ..Node::default()
        }
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        find(&self.labels, key)
    }

    /// Places a pod on the node.
    pub fn add(&mut self, pod: Arc<Pod>) {
        self.requested.add(&pod.requests.exact);
        self.scored.add(&pod.requests.scored);
        self.ports.extend(pod.ports.iter().cloned());
        if let Some(affinity) = &pod.affinity {
            self.with_affinity += 1;
            self.with_required_anti += usize::from(!affinity.required_anti.is_empty());
        }
        if !pod.is_terminating {
            match self.place_of_alike(&pod) {
                Some(place) => self.alike[place].count += 1,
                None => self.alike.push(AlikePods {
                    namespace: pod.key.0.clone(),
                    labels: pod.labels.clone(),
                    count: 1,
                }),
            }
        }
        self.pods.push(pod);
    }

    fn place_of_alike(&self, pod: &Pod) -> Option<usize> {
        let is_alike =
            |alike: &AlikePods| alike.namespace == pod.key.0 && alike.labels == pod.labels;
        self.alike.iter().position(is_alike)
    }

    /// Removes a pod from the node.
    pub fn remove(&mut self, key: &PodKey) {
        let Some(place) = self.pods.iter().position(|pod| pod.key == *key) else { return };
        let pod = self.pods.swap_remove(place);
        if let Some(place) = self.place_of_alike(&pod).filter(|_| !pod.is_terminating) {
            self.alike[place].count -= 1;
            if self.alike[place].count == 0 {
                self.alike.swap_remove(place);
            }
        }
        self.requested.sub(&pod.requests.exact);
        self.scored.sub(&pod.requests.scored);
        for port in &pod.ports {
            if let Some(place) = self.ports.iter().position(|taken| taken == port) {
                self.ports.swap_remove(place);
            }
        }
        if let Some(affinity) = &pod.affinity {
            self.with_affinity -= 1;
            self.with_required_anti -= usize::from(!affinity.required_anti.is_empty());
        }
    }

    /// Takes the pods of an older state of the node.
    pub fn take_pods(&mut self, old: &mut Node) {
        std::mem::take(&mut old.pods).into_iter().for_each(|pod| self.add(pod));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alike_pods_are_counted_together() {
        let pod = |name: &str, namespace: &str, app: &str, is_terminating| {
            let key = (namespace.into(), name.into());
            let labels = vec![("app".into(), app.into())];
            Arc::new(Pod { key, labels, is_terminating, ..Pod::default() })
        };
        let pods = [
            pod("1", "a", "x", false),
            pod("2", "a", "x", false),
            pod("3", "a", "x", true),
            pod("4", "a", "y", false),
            pod("5", "b", "x", false),
        ];
        let counts = |node: &Node| {
            let all = node.alike.iter();
            let count = |pods: &AlikePods| {
                (pods.namespace.to_string(), pods.label("app").map(str::to_owned), pods.count)
            };
            let mut counts: Vec<_> = all.map(count).collect();
            counts.sort();
            counts
        };
        let app = |name: &str| Some(name.to_owned());
        let mut node = Node::default();
        pods.iter().for_each(|pod| node.add(pod.clone()));
        let all = [("a".into(), app("x"), 2), ("a".into(), app("y"), 1), ("b".into(), app("x"), 1)];
        assert_eq!(counts(&node), all);
        let mut later = Node::default();
        later.take_pods(&mut node);
        assert_eq!(counts(&later), all);
        for pod in [&pods[2], &pods[1], &pods[3]] {
            later.remove(&pod.key);
        }
        assert_eq!(counts(&later), [("a".into(), app("x"), 1), ("b".into(), app("x"), 1)]);
    }
}
