//! [`Node`]: a node and what is placed on it.

use super::pod::{Pod, PodKey, Port};
use super::resources::Resources;
use crate::sorted_pairs::{find, labels_of};
use crate::taints::Taint;
use keelson_meta::{Object, Str, Value};
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
    pub ports: Vec<Port>,
    /// How many pods have terms of affinity, and how many of these terms keep others away.
    pub with_affinity: usize,
    pub with_required_anti: usize,
}

impl Node {
    /// Reads a node, without pods.
    pub fn of(object: &Object) -> Node {
        let allocatable = object.at(&["status", "allocatable"]);
        let pods = allocatable
            .and_then(|list| list.str_at(&["pods"]))
            .and_then(|text| text.parse::<keelson_meta::Quantity>().ok());
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
            allocatable: Resources::of(allocatable),
            pods_max: pods.map_or(0, |pods| pods.value()),
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
        self.pods.push(pod);
    }

    /// Removes a pod from the node.
    pub fn remove(&mut self, key: &PodKey) {
        let Some(place) = self.pods.iter().position(|pod| pod.key == *key) else { return };
        let pod = self.pods.swap_remove(place);
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
