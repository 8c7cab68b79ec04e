//! [`Cluster`]: nodes and pods as the scheduler knows them, kept up to date change by change.

use super::devices::Devices;
use super::label_index::{Having, LabelIndex};
use super::node::Node;
use super::pod::{Pod, PodKey};
use super::selectors::Workloads;
use super::shares::share;
use super::volumes::Volumes;
use keelson_meta::Str;
use keelson_meta::selector::Selector;
use std::collections::{HashMap, HashSet};
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
    /// Where the pods are, by their labels.
    labels: LabelIndex,
    /// Nodes with pods that have terms of affinity.
    with_affinity: HashSet<Str>,
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
            self.note_affinity(place);
            return self.forget_images(&old);
        }
        for key in self.homeless.remove(&node.name).unwrap_or_default() {
            if let Some(pod) = self.pods.get(&key) {
                node.add(pod.clone());
            }
        }
        self.index.insert(node.name.clone(), self.nodes.len());
        self.nodes.push(node);
        self.note_affinity(self.nodes.len() - 1);
    }

    /// Notes whether pods of a node have terms of affinity.
    fn note_affinity(&mut self, place: usize) {
        let node = &self.nodes[place];
        if node.with_affinity == 0 {
            self.with_affinity.remove(&node.name);
        } else if !self.with_affinity.contains(&node.name) {
            self.with_affinity.insert(node.name.clone());
        }
    }

    pub fn remove_node(&mut self, name: &str) {
        let Some(place) = self.index.remove(name) else { return };
        let node = self.nodes.swap_remove(place);
        if let Some(moved) = self.nodes.get(place) {
            self.index.insert(moved.name.clone(), place);
        }
        self.forget_images(&node);
        self.with_affinity.remove(&node.name);
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
        self.labels.add(&pod);
        match self.place_of(&pod.node) {
            Some(place) => {
                self.nodes[place].add(pod);
                self.note_affinity(place);
            }
            None => self.homeless.entry(pod.node.clone()).or_default().push(pod.key.clone()),
        }
    }

    /// Removes a pod. Returns what was known of it.
    pub fn remove_pod(&mut self, key: &PodKey) -> Option<Arc<Pod>> {
        let pod = self.pods.remove(key)?;
        self.labels.remove(&pod);
        if let Some(place) = self.place_of(&pod.node) {
            self.nodes[place].remove(key);
            self.note_affinity(place);
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
        (0..self.cluster.nodes.len()).map(move |place| self.at(place))
    }

    fn at(self, place: usize) -> &'a Node {
        match self.replaced {
            Some((replaced, other)) if replaced == place => other,
            _ => &self.cluster.nodes[place],
        }
    }

    /// Returns the known nodes of these, and the replaced one, each once.
    fn named(self, names: impl Iterator<Item = &'a Str>) -> Vec<&'a Node> {
        let replaced = self.replaced.map(|(place, _)| place);
        let places = names.filter_map(|name| self.cluster.place_of(name));
        let others = places.filter(|place| Some(*place) != replaced);
        others.chain(replaced).map(|place| self.at(place)).collect()
    }

    /// Returns the nodes whose pods have terms of affinity, and maybe others.
    pub fn nodes_with_affinity(self) -> Vec<&'a Node> {
        self.named(self.cluster.with_affinity.iter())
    }

    /// Returns the nodes with pods of a namespace that a selector selects, and maybe others.
    pub fn nodes_having(self, namespace: &Str, selector: &Selector) -> Vec<&'a Node> {
        match self.cluster.labels.having(namespace, selector) {
            Having::Any => self.nodes().collect(),
            Having::Only(names) => self.named(names.into_iter().flat_map(HashMap::keys)),
        }
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

    #[test]
    fn nodes_by_label_and_affinity_are_those_of_a_look_at_all() {
        let mut cluster = Cluster::default();
        let mut search = super::super::search::Search::new(7);
        let selectors = [
            Selector::from_labels([("app", "0")]),
            Selector::from_labels([("app", "1"), ("tier", "0")]),
            Selector::EVERYTHING,
            Selector::NOTHING,
        ];
        for _ in 0..2_000 {
            let mut pick = |end: usize| search.below(end).to_string();
            let [name, node, app, tier] = [pick(30), pick(8), pick(3), pick(2)];
            match search.below(8) {
                0 => cluster.put_node(Node { name: node.into(), ..Node::default() }),
                1 => cluster.remove_node(&node),
                2 => drop(cluster.remove_pod(&("n".into(), name.into()))),
                kind => {
                    let mut pod = pod(&name, &node);
                    pod.labels = vec![("app".into(), app.into()), ("tier".into(), tier.into())];
                    pod.affinity = (kind == 3).then(Box::default);
                    cluster.put_pod(pod);
                }
            }
            let place = search.below(cluster.nodes().len());
            let hypothetical = Node { name: "other".into(), ..Node::default() };
            let replaced = (search.below(2) == 0 && !cluster.nodes().is_empty())
                .then_some((place, &hypothetical));
            let view = View { cluster: &cluster, replaced };
            let names = |nodes: Vec<&Node>, has: &dyn Fn(&Pod) -> bool| {
                let having = nodes.iter().filter(|node| node.pods.iter().any(|pod| has(pod)));
                let mut names: Vec<Str> = having.map(|node| node.name.clone()).collect();
                names.sort();
                names
            };
            for selector in &selectors {
                let has = |pod: &Pod| selector.matches(|key| pod.label(key));
                let all = names(view.nodes().collect(), &has);
                assert_eq!(names(view.nodes_having(&"n".into(), selector), &has), all);
            }
            let has = |pod: &Pod| pod.affinity.is_some();
            let all = names(view.nodes().collect(), &has);
            assert_eq!(names(view.nodes_with_affinity(), &has), all);
        }
    }
}
