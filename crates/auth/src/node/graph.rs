//! [`Graph`]: the nodes whose pods refer to an object, directly or through a claim and its volume.

use crate::watched_index::Indexer;
use crate::{Change, GroupResource};
use keelson_meta::{Object, Str, Value};
use std::collections::{HashMap, HashSet};

/// Kinds of objects in the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the API's own words")]
pub enum Vertex {
    Pod,
    Secret,
    ConfigMap,
    ServiceAccount,
    Claim,
    Volume,
    ResourceClaim,
    Attachment,
    Slice,
}

/// An object: its kind, namespace and name.
pub type VertexKey = (Vertex, Str, Str);

/// The nodes whose pods refer to an object.
#[derive(Default)]
pub struct Graph {
    /// Pods, attachments and slices, with their references.
    sources: HashMap<VertexKey, Source>,
    /// The number of sources on each node that refer to an object. Invariant: counts `sources`.
    nodes: HashMap<VertexKey, HashMap<Str, usize>>,
    volumes: HashMap<Str, Volume>,
    /// The volumes that refer to a secret. Invariant: matches `volumes`.
    volumes_of_secrets: HashMap<(Str, Str), HashSet<Str>>,
}

struct Source {
    node: Str,
    /// Including itself.
    refers_to: HashSet<VertexKey>,
}

struct Volume {
    claim: (Str, Str),
    secrets: Vec<(Str, Str)>,
}

const KINDS: [Vertex; 4] = [Vertex::Pod, Vertex::Volume, Vertex::Attachment, Vertex::Slice];

impl Indexer for Graph {
    const RESOURCES: &'static [GroupResource] = &[
        ("", "pods"),
        ("", "persistentvolumes"),
        ("storage.k8s.io", "volumeattachments"),
        ("resource.k8s.io", "resourceslices"),
    ];

    fn apply(&mut self, resource: usize, change: Change) {
        let kind = KINDS[resource];
        match change {
            Change::Reset => self.remove_kind(kind),
            Change::Gone { namespace, name } => self.remove((kind, namespace, name)),
            Change::Put(object) => {
                let key = (kind, object.namespace().into(), object.name().into());
                match kind {
                    Vertex::Volume => self.put_volume(&object),
                    Vertex::Pod => self
                        .put(key, object.str_at(&["spec", "nodeName"]), || pod_references(&object)),
                    _ => self.put(key, object.str_at(&["spec", "nodeName"]), Vec::new),
                }
            }
        }
    }
}

impl Graph {
    /// Returns whether an object has a path to a pod on a node, or is that pod.
    pub fn has_path_to_node(&self, kind: Vertex, namespace: &str, name: &str, node: &str) -> bool {
        let is_referred_to =
            |key: &VertexKey| self.nodes.get(key).is_some_and(|nodes| nodes.contains_key(node));
        let has_volume = |name: &str| {
            self.volumes.get(name).is_some_and(|volume| {
                let (namespace, name) = volume.claim.clone();
                is_referred_to(&(Vertex::Claim, namespace, name))
            })
        };
        match kind {
            Vertex::Volume => has_volume(name),
            Vertex::Secret => {
                let volumes = self.volumes_of_secrets.get(&(namespace.into(), name.into()));
                is_referred_to(&(kind, namespace.into(), name.into()))
                    || volumes.is_some_and(|names| names.iter().any(|name| has_volume(name)))
            }
            _ => is_referred_to(&(kind, namespace.into(), name.into())),
        }
    }

    fn put(&mut self, key: VertexKey, node: &str, references: impl FnOnce() -> Vec<VertexKey>) {
        self.remove(key.clone());
        if node.is_empty() {
            return;
        }
        let node = Str::new(node);
        let refers_to: HashSet<VertexKey> = references().into_iter().chain([key.clone()]).collect();
        for referred in &refers_to {
            let nodes = self.nodes.entry(referred.clone()).or_default();
            *nodes.entry(node.clone()).or_default() += 1;
        }
        self.sources.insert(key, Source { node, refers_to });
    }

    fn remove(&mut self, key: VertexKey) {
        if key.0 == Vertex::Volume {
            return self.remove_volume(&key.2);
        }
        let Some(Source { node, refers_to }) = self.sources.remove(&key) else { return };
        for referred in refers_to {
            let Some(nodes) = self.nodes.get_mut(&referred) else { continue };
            if let Some(count) = nodes.get_mut(&node) {
                *count -= 1;
                if *count == 0 {
                    nodes.remove(&node);
                }
            }
            if nodes.is_empty() {
                self.nodes.remove(&referred);
            }
        }
    }

    fn remove_kind(&mut self, kind: Vertex) {
        if kind == Vertex::Volume {
            self.volumes.clear();
            self.volumes_of_secrets.clear();
            return;
        }
        let keys: Vec<VertexKey> =
            self.sources.keys().filter(|key| key.0 == kind).cloned().collect();
        for key in keys {
            self.remove(key);
        }
    }

    fn put_volume(&mut self, volume: &Object) {
        let name = Str::new(volume.name());
        self.remove_volume(&name);
        let text = |field: &str| Str::new(volume.str_at(&["spec", "claimRef", field]));
        let claim = (text("namespace"), text("name"));
        if claim.1.is_empty() {
            return;
        }
        let secrets = volume_secrets(volume, &claim.0);
        for secret in &secrets {
            self.volumes_of_secrets.entry(secret.clone()).or_default().insert(name.clone());
        }
        self.volumes.insert(name, Volume { claim, secrets });
    }

    fn remove_volume(&mut self, name: &str) {
        let Some(volume) = self.volumes.remove(name) else { return };
        for secret in volume.secrets {
            if let Some(names) = self.volumes_of_secrets.get_mut(&secret) {
                names.remove(name);
                if names.is_empty() {
                    self.volumes_of_secrets.remove(&secret);
                }
            }
        }
    }
}

/// Fields of pod volumes that name a secret.
const POD_VOLUME_SECRETS: [&[&str]; 10] = [
    &["azureFile", "secretName"],
    &["cephfs", "secretRef", "name"],
    &["cinder", "secretRef", "name"],
    &["flexVolume", "secretRef", "name"],
    &["rbd", "secretRef", "name"],
    &["secret", "secretName"],
    &["scaleIO", "secretRef", "name"],
    &["iscsi", "secretRef", "name"],
    &["storageos", "secretRef", "name"],
    &["csi", "nodePublishSecretRef", "name"],
];

/// Returns the references of a pod. A mirror pod has none: nodes create them and must not gain
/// access by that.
fn pod_references(pod: &Object) -> Vec<VertexKey> {
    match pod.annotation("kubernetes.io/config.mirror") {
        Some(_) => vec![],
        None => references(pod),
    }
}

/// Returns the objects that a pod refers to: kind, namespace and name.
pub fn references(pod: &Object) -> Vec<VertexKey> {
    let namespace = Str::new(pod.namespace());
    let mut keys: Vec<VertexKey> = vec![];
    let mut add = |kind: Vertex, name: Option<&str>| {
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            keys.push((kind, namespace.clone(), name.into()));
        }
    };
    add(Vertex::ServiceAccount, Some(pod.str_at(&["spec", "serviceAccountName"])));
    for secret in pod.array_at(&["spec", "imagePullSecrets"]) {
        add(Vertex::Secret, secret.str_at(&["name"]));
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in pod.array_at(&["spec", list]) {
            for from in container.array_at(&["envFrom"]) {
                add(Vertex::Secret, from.str_at(&["secretRef", "name"]));
                add(Vertex::ConfigMap, from.str_at(&["configMapRef", "name"]));
            }
            for env in container.array_at(&["env"]) {
                add(Vertex::Secret, env.str_at(&["valueFrom", "secretKeyRef", "name"]));
                add(Vertex::ConfigMap, env.str_at(&["valueFrom", "configMapKeyRef", "name"]));
            }
        }
    }
    for volume in pod.array_at(&["spec", "volumes"]) {
        for path in POD_VOLUME_SECRETS {
            add(Vertex::Secret, volume.str_at(path));
        }
        add(Vertex::ConfigMap, volume.str_at(&["configMap", "name"]));
        for source in volume.array_at(&["projected", "sources"]) {
            add(Vertex::Secret, source.str_at(&["secret", "name"]));
            add(Vertex::ConfigMap, source.str_at(&["configMap", "name"]));
        }
        add(Vertex::Claim, volume.str_at(&["persistentVolumeClaim", "claimName"]));
        if volume.get("ephemeral").is_some_and(|ephemeral| !ephemeral.is_null()) {
            let name = volume.str_at(&["name"]).unwrap_or_default();
            add(Vertex::Claim, Some(&format!("{}-{name}", pod.name())));
        }
    }
    for claim in pod.array_at(&["spec", "resourceClaims"]) {
        add(Vertex::ResourceClaim, claim.str_at(&["resourceClaimName"]));
    }
    for claim in pod.array_at(&["status", "resourceClaimStatuses"]) {
        add(Vertex::ResourceClaim, claim.str_at(&["resourceClaimName"]));
    }
    let extended = ["status", "extendedResourceClaimStatus", "resourceClaimName"];
    add(Vertex::ResourceClaim, pod.at(&extended).and_then(Value::as_str));
    keys
}

/// Fields of persistent volumes with a secret for kubelets, and the field of its namespace if that
/// is not the claim's.
const VOLUME_SECRETS: [(&str, &str); 10] = [
    ("cephfs", "secretRef"),
    ("cinder", "secretRef"),
    ("flexVolume", "secretRef"),
    ("rbd", "secretRef"),
    ("scaleIO", "secretRef"),
    ("iscsi", "secretRef"),
    ("storageos", "secretRef"),
    ("csi", "nodePublishSecretRef"),
    ("csi", "nodeStageSecretRef"),
    ("csi", "nodeExpandSecretRef"),
];

fn volume_secrets(volume: &Object, claim_namespace: &str) -> Vec<(Str, Str)> {
    let mut secrets = vec![];
    let mut add = |namespace: &str, name: &str| {
        let namespace = if namespace.is_empty() { claim_namespace } else { namespace };
        if !name.is_empty() {
            secrets.push((namespace.into(), name.into()));
        }
    };
    let file = |field: &str| volume.str_at(&["spec", "azureFile", field]);
    add(file("secretNamespace"), file("secretName"));
    for (source, field) in VOLUME_SECRETS {
        let part = |name: &str| volume.str_at(&["spec", source, field, name]);
        add(part("namespace"), part("name"));
    }
    secrets
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    fn object(value: Value) -> Change {
        Change::Put(Object::from_value(value).expect("a map"))
    }

    fn pod(name: &str, node: &str, annotation: &str) -> Change {
        let mut pod = value!({
            "metadata": {"name": name, "namespace": "ns"},
            "spec": {
                "nodeName": node, "serviceAccountName": "account",
                "imagePullSecrets": [{"name": "pull"}],
                "containers": [{
                    "envFrom": [{"secretRef": {"name": "from"}}, {"configMapRef": {"name": "map"}}],
                    "env": [{"valueFrom": {"secretKeyRef": {"name": "key"}}}]
                }],
                "ephemeralContainers": [{"envFrom": [{"secretRef": {"name": "debug"}}]}],
                "volumes": [
                    {"name": "a", "secret": {"secretName": "volume"}},
                    {"name": "b", "projected": {"sources": [{"configMap": {"name": "projected"}}]}},
                    {"name": "c", "persistentVolumeClaim": {"claimName": "claim"}},
                    {"name": "d", "ephemeral": {}}
                ]
            }
        });
        if let (Some(pod), false) = (pod.as_object_mut(), annotation.is_empty()) {
            pod.object_at("metadata").object_at("annotations").insert(annotation, "x");
        }
        object(pod)
    }

    const REFERRED: [(Vertex, &str); 11] = [
        (Vertex::Pod, "p"),
        (Vertex::ServiceAccount, "account"),
        (Vertex::Secret, "pull"),
        (Vertex::Secret, "from"),
        (Vertex::Secret, "key"),
        (Vertex::Secret, "debug"),
        (Vertex::Secret, "volume"),
        (Vertex::ConfigMap, "map"),
        (Vertex::ConfigMap, "projected"),
        (Vertex::Claim, "claim"),
        (Vertex::Claim, "p-d"),
    ];

    /// Returns how many of the objects that the pod refers to have a path to the node.
    fn leading(graph: &Graph, node: &str) -> usize {
        let leads =
            |(kind, name): &&(Vertex, &str)| graph.has_path_to_node(*kind, "ns", name, node);
        REFERRED.iter().filter(leads).count()
    }

    #[test]
    fn references_of_a_pod_have_a_path_to_its_node_while_it_exists() {
        let mut graph = Graph::default();
        graph.apply(0, pod("p", "", ""));
        assert_eq!((leading(&graph, "n"), graph.nodes.len()), (0, 0));
        graph.apply(0, pod("p", "n", ""));
        assert_eq!((leading(&graph, "n"), leading(&graph, "m")), (REFERRED.len(), 0));
        assert!(!graph.has_path_to_node(Vertex::Secret, "other", "pull", "n"));
        assert!(!graph.has_path_to_node(Vertex::ConfigMap, "ns", "pull", "n"));
        graph.apply(0, pod("q", "n", ""));
        let gone = |name: &str| Change::Gone { namespace: "ns".into(), name: name.into() };
        graph.apply(0, gone("p"));
        assert!(graph.has_path_to_node(Vertex::Secret, "ns", "pull", "n"));
        assert!(!graph.has_path_to_node(Vertex::Pod, "ns", "p", "n"));
        graph.apply(0, gone("q"));
        assert!(graph.nodes.is_empty() && graph.sources.is_empty());
    }

    #[test]
    fn a_mirror_pod_has_no_references() {
        let mut graph = Graph::default();
        graph.apply(0, pod("p", "n", "kubernetes.io/config.mirror"));
        assert_eq!(leading(&graph, "n"), 1);
    }

    #[test]
    fn a_volume_and_its_secrets_have_a_path_to_the_node_of_the_claim() {
        let mut graph = Graph::default();
        let secret = |name: &str, namespace: &str| value!({"name": name, "namespace": namespace});
        let volume = value!({"metadata": {"name": "v"}, "spec": {
            "claimRef": {"namespace": "ns", "name": "claim"},
            "csi": {
                "nodeStageSecretRef": (secret("stage", "kube-system")),
                "controllerPublishSecretRef": (secret("controller", "kube-system"))
            }
        }});
        graph.apply(1, object(volume));
        let leads = |graph: &Graph| {
            let secret = |name| graph.has_path_to_node(Vertex::Secret, "kube-system", name, "n");
            let volume = graph.has_path_to_node(Vertex::Volume, "", "v", "n");
            [volume, secret("stage"), secret("controller")]
        };
        assert_eq!(leads(&graph), [false; 3]);
        graph.apply(0, pod("p", "n", ""));
        // Secrets for controllers only are not for kubelets.
        assert_eq!(leads(&graph), [true, true, false]);
        graph.apply(1, Change::Reset);
        assert_eq!(leads(&graph), [false; 3]);
        graph.apply(0, Change::Reset);
        assert!(graph.nodes.is_empty() && graph.sources.is_empty());
    }
}
