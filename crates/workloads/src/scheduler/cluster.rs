//! [`Cluster`]: nodes and pods as the scheduler knows them, kept up to date change by change.

use super::devices::Devices;
use super::node::Node;
use super::pod::{Pod, PodKey};
use super::selectors::Workloads;
use super::shares::share;
use super::volumes::Volumes;
use keelson_meta::Str;
use std::collections::HashMap;
use std::sync::Arc;

/// Nodes and the pods on them.
#[derive(Debug, Default)]
pub struct Cluster {
    nodes: Vec<Node>,
    index: HashMap<Str, usize>,
    /// Pods on nodes. A node that is not known (yet) may have pods.
    pods: HashMap<PodKey, Arc<Pod>>,
    /// Pods of nodes that are not known.
    homeless: HashMap<Str, Vec<PodKey>>,
    /// Pods that wait for the end of others on their node, by that node.
    nominated: HashMap<Str, Vec<Arc<Pod>>>,
    /// Labels of namespaces, sorted by key.
    pub namespaces: HashMap<Str, Vec<(Str, Str)>>,
    pub workloads: Workloads,
    pub volumes: Volumes,
    pub devices: Devices,
    /// How many nodes have an image.
    images: HashMap<Str, i64>,
}

impl Cluster {
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub fn node(&self, name: &str) -> Option<&Node> {
        self.index.get(name).map(|place| &self.nodes[*place])
    }

    pub fn place_of(&self, name: &str) -> Option<usize> {
        self.index.get(name).copied()
    }

    pub fn pod(&self, key: &PodKey) -> Option<&Arc<Pod>> {
        self.pods.get(key)
    }

    /// Returns the share of nodes that have an image.
    pub fn image_share(&self, name: &str) -> f64 {
        let having = self.images.get(name).copied().unwrap_or(0);
        share(having, i64::try_from(self.nodes.len()).unwrap_or(i64::MAX))
    }

    /// Adds a node, or replaces what is known of it.
    pub fn put_node(&mut self, mut node: Node) {
        for (image, _) in &node.images {
            *self.images.entry(image.clone()).or_default() += 1;
        }
        if let Some(place) = self.place_of(&node.name) {
            node.take_pods(&mut self.nodes[place]);
            let old = std::mem::replace(&mut self.nodes[place], node);
            return self.forget_images(&old);
        }
        for key in self.homeless.remove(&node.name).unwrap_or_default() {
            if let Some(pod) = self.pods.get(&key) {
                node.add(pod.clone());
            }
        }
        self.index.insert(node.name.clone(), self.nodes.len());
        self.nodes.push(node);
    }

    pub fn remove_node(&mut self, name: &str) {
        let Some(place) = self.index.remove(name) else { return };
        let node = self.nodes.swap_remove(place);
        if let Some(moved) = self.nodes.get(place) {
            self.index.insert(moved.name.clone(), place);
        }
        self.forget_images(&node);
        if !node.pods.is_empty() {
            let keys = node.pods.iter().map(|pod| pod.key.clone()).collect();
            self.homeless.insert(node.name, keys);
        }
    }

    fn forget_images(&mut self, node: &Node) {
        for (image, _) in &node.images {
            if let Some(count) = self.images.get_mut(image) {
                *count -= 1;
                if *count == 0 {
                    self.images.remove(image);
                }
            }
        }
    }

    pub fn node_names(&self) -> impl Iterator<Item = &Str> {
        self.index.keys()
    }

    pub fn pod_keys(&self) -> impl Iterator<Item = &PodKey> {
        self.pods.keys()
    }

    /// Places a pod on its node, or replaces what is known of it.
    pub fn put_pod(&mut self, pod: Pod) {
        self.remove_pod(&pod.key);
        let pod = Arc::new(pod);
        self.pods.insert(pod.key.clone(), pod.clone());
        match self.place_of(&pod.node) {
            Some(place) => self.nodes[place].add(pod),
            None => self.homeless.entry(pod.node.clone()).or_default().push(pod.key.clone()),
        }
    }

    /// Removes a pod. Returns what was known of it.
    pub fn remove_pod(&mut self, key: &PodKey) -> Option<Arc<Pod>> {
        let pod = self.pods.remove(key)?;
        if let Some(place) = self.place_of(&pod.node) {
            self.nodes[place].remove(key);
        } else if let Some(keys) = self.homeless.get_mut(&pod.node) {
            keys.retain(|known| known != key);
            if keys.is_empty() {
                self.homeless.remove(&pod.node);
            }
        }
        Some(pod)
    }

    /// Notes that a pod waits for room on a node; an empty name: on none.
    pub fn nominate(&mut self, pod: &Arc<Pod>, node: &str) {
        self.nominated.retain(|_, pods| {
            pods.retain(|known| known.key != pod.key);
            !pods.is_empty()
        });
        if !node.is_empty() {
            self.nominated.entry(node.into()).or_default().push(pod.clone());
        }
    }

    pub fn withdraw_nomination(&mut self, key: &PodKey) {
        self.nominated.retain(|_, pods| {
            pods.retain(|known| known.key != *key);
            !pods.is_empty()
        });
    }

    /// Returns the pods that wait for room on a node.
    pub fn nominated(&self, node: &str) -> &[Arc<Pod>] {
        self.nominated.get(node).map(Vec::as_slice).unwrap_or_default()
    }
}

/// The nodes of a cluster, one of which may be replaced by a hypothetical state.
#[derive(Clone, Copy)]
pub struct View<'a> {
    pub cluster: &'a Cluster,
    pub replaced: Option<(usize, &'a Node)>,
}

impl<'a> View<'a> {
    /// Returns the nodes as they are.
    pub fn of(cluster: &'a Cluster) -> View<'a> {
        View { cluster, replaced: None }
    }

    pub fn nodes(self) -> impl Iterator<Item = &'a Node> {
        let nodes = self.cluster.nodes().iter().enumerate();
        nodes.map(move |(place, node)| match self.replaced {
            Some((replaced, other)) if replaced == place => other,
            _ => node,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, node: &str) -> Pod {
        let mut pod = Pod { key: ("n".into(), name.into()), node: node.into(), ..Pod::default() };
        pod.requests.exact.cpu = 100;
        pod
    }

    #[test]
    fn what_pods_request_follows_them_and_their_nodes() {
        let mut cluster = Cluster::default();
        let requested =
            |cluster: &Cluster, name: &str| cluster.node(name).map(|node| node.requested.cpu);
        cluster.put_pod(pod("early", "a"));
        for name in ["a", "b", "c"] {
            cluster.put_node(Node { name: name.into(), ..Node::default() });
        }
        assert_eq!(requested(&cluster, "a"), Some(100));
        cluster.put_pod(pod("x", "a"));
        cluster.put_pod(pod("x", "c"));
        assert_eq!((requested(&cluster, "a"), requested(&cluster, "c")), (Some(100), Some(100)));
        cluster.put_node(Node { name: "c".into(), ..Node::default() });
        assert_eq!(requested(&cluster, "c"), Some(100));
        cluster.remove_node("a");
        assert_eq!((requested(&cluster, "c"), requested(&cluster, "b")), (Some(100), Some(0)));
        cluster.put_node(Node { name: "a".into(), ..Node::default() });
        cluster.remove_pod(&("n".into(), "x".into()));
        assert_eq!((requested(&cluster, "a"), requested(&cluster, "c")), (Some(100), Some(0)));
    }
}
