//! Changes of objects, applied to what the scheduler knows.

use super::devices::{self, DeviceClaim, Slice};
use super::node::Node;
use super::pod::{Pod, PodKey};
use super::queue::Change;
use super::volumes::{Claim, Class, Volume};
use super::{NAME, Scheduler};
use crate::sorted_pairs::labels_of;
use keelson_meta::{Object, Str};
use keelson_records::Entry;
use keelson_registry::{InformerEvent, InformerScope};
use keelson_resources::Kind;
use std::sync::Arc;

/// The objects that the scheduler reads.
pub const SCOPE: InformerScope = InformerScope::Only(&[
    ("", "namespaces"),
    ("", "nodes"),
    ("", "persistentvolumeclaims"),
    ("", "persistentvolumes"),
    ("", "pods"),
    ("", "replicationcontrollers"),
    ("", "services"),
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("resource.k8s.io", "deviceclasses"),
    ("resource.k8s.io", "resourceclaims"),
    ("resource.k8s.io", "resourceslices"),
    ("storage.k8s.io", "csinodes"),
    ("storage.k8s.io", "storageclasses"),
]);

impl Scheduler {
    /// Applies changes. Nodes come first in a list, and pods last, so that nothing is decided by
    /// half.
    pub(super) fn observe(&mut self, events: &[InformerEvent]) {
        for event in events {
            match event {
                InformerEvent::Listed(kind, all) => {
                    self.forget_absent(kind, &|key| all.get(key).is_some());
                    all.range("", "").for_each(|entry| self.put(kind, entry, None));
                }
                InformerEvent::Put { kind, entry, previous } => {
                    self.put(kind, entry, previous.as_ref());
                }
                InformerEvent::Deleted { kind, entry } => self.delete(kind, entry),
                InformerEvent::Withdrawn(_) => {}
            }
        }
    }

    fn forget_absent(&mut self, kind: &Kind, is_known: &dyn Fn(&str) -> bool) {
        match kind.gvr.resource.as_str() {
            "nodes" => {
                let names = self.cluster.node_names().filter(|name| !is_known(name));
                for name in names.cloned().collect::<Vec<Str>>() {
                    self.cluster.remove_node(&name);
                }
            }
            "pods" => {
                let keys = self.cluster.pod_keys().chain(self.queue.keys());
                let gone = keys.filter(|key| !is_known(&format!("{}/{}", key.0, key.1)));
                for key in gone.cloned().collect::<Vec<PodKey>>() {
                    self.forget_pod(&key);
                }
            }
            "persistentvolumes" => self.cluster.volumes.volumes.retain(|name, _| is_known(name)),
            "persistentvolumeclaims" => {
                let claims = &mut self.cluster.volumes.claims;
                claims.retain(|key, _| is_known(&format!("{}/{}", key.0, key.1)));
            }
            "deviceclasses" => self.cluster.devices.classes.retain(|name, _| is_known(name)),
            "resourceslices" => self.cluster.devices.slices.retain(|name, _| is_known(name)),
            "resourceclaims" => {
                let claims = &mut self.cluster.devices.claims;
                claims.retain(|key, _| is_known(&format!("{}/{}", key.0, key.1)));
            }
            "storageclasses" => self.cluster.volumes.classes.retain(|name, _| is_known(name)),
            "csinodes" => self.cluster.volumes.limits.retain(|name, _| is_known(name)),
            "namespaces" => self.cluster.namespaces.retain(|name, _| is_known(name)),
            _ => {}
        }
    }

    fn put(&mut self, kind: &Kind, entry: &Entry, previous: Option<&Entry>) {
        if kind.gvr.resource == "pods" {
            return self.put_pod(kind, entry);
        }
        let Ok(object) = kind.decode(entry) else { return };
        if kind.gvr.group == "resource.k8s.io" {
            return self.put_devices(kind, entry, &object);
        }
        let name = Str::new(entry.name());
        let volumes = &mut self.cluster.volumes;
        match kind.gvr.resource.as_str() {
            "nodes" => self.put_node(Node::of(&object)),
            "namespaces" => {
                let labels = labels_of(&object);
                let old = self.cluster.namespaces.insert(name, labels.clone());
                if old != Some(labels) {
                    self.queue.wake(Change::Namespaces);
                }
            }
            "services" => self.cluster.workloads.put_service(&object),
            "replicationcontrollers" | "replicasets" | "statefulsets" if previous.is_none() => {
                self.cluster.workloads.put_owner(owner_kind(kind), &object);
            }
            "persistentvolumes" => {
                volumes.chosen.remove(&name);
                volumes.volumes.insert(name, Volume::of(&object));
                self.queue.wake(Change::Volumes);
            }
            "persistentvolumeclaims" => {
                let key = (Str::new(entry.namespace()), name);
                volumes.claims.insert(key, Claim::of(&object));
                self.queue.wake(Change::Volumes);
                self.bind_waiting();
            }
            "storageclasses" => {
                volumes.classes.insert(name, Class::of(&object));
                self.queue.wake(Change::Volumes);
            }
            "csinodes" => {
                volumes.put_limits(&object);
                self.queue.wake(Change::Volumes);
            }
            _ => {}
        }
    }

    fn put_devices(&mut self, kind: &Kind, entry: &Entry, object: &Object) {
        let name = Str::new(entry.name());
        let devices = &mut self.cluster.devices;
        match kind.gvr.resource.as_str() {
            "deviceclasses" => {
                let selectors = devices::selectors(object.array_at(&["spec", "selectors"]));
                devices.classes.insert(name, selectors);
            }
            "resourceslices" => {
                devices.slices.insert(name, Slice::of(object));
            }
            _ => {
                let key = (Str::new(entry.namespace()), name);
                let claim = DeviceClaim::of(object);
                if claim.is_allocated() {
                    devices.chosen.remove(&key);
                }
                devices.claims.insert(key, claim);
            }
        }
        self.queue.wake(Change::Devices);
    }

    fn put_node(&mut self, node: Node) {
        let is_same = self.cluster.node(&node.name).is_some_and(|known| {
            known.labels == node.labels
                && known.taints == node.taints
                && known.is_unschedulable == node.is_unschedulable
                && known.allocatable == node.allocatable
                && known.pods_max == node.pods_max
                && known.images == node.images
        });
        if !is_same {
            self.cluster.put_node(node);
            self.queue.wake(Change::Node);
        }
    }

    fn put_pod(&mut self, kind: &Kind, entry: &Entry) {
        let key = (Str::new(entry.namespace()), Str::new(entry.name()));
        let is_placed = entry.field("spec.nodeName").is_some_and(|node| !node.is_empty());
        if matches!(entry.field("status.phase"), Some("Succeeded" | "Failed")) {
            return self.forget_pod(&key);
        }
        let is_mine = entry.field("spec.schedulerName") == Some(NAME);
        if !is_placed && !is_mine {
            return;
        }
        let Ok(object) = kind.decode(entry) else { return };
        let pod = Pod::of(&object);
        let assumed = self.assumed.get(&key);
        if !is_placed {
            if assumed.is_some_and(|assumed| assumed.uid == pod.uid) {
                return;
            }
            if assumed.is_some() {
                self.forget_pod(&key);
            }
            return self.put_waiting(pod);
        }
        self.assumed.remove(&key);
        self.queue.remove(&key);
        self.cluster.withdraw_nomination(&key);
        let known = self.cluster.pod(&key);
        let is_new = known.is_none_or(|known| known.labels != pod.labels);
        let shrank = known.is_some_and(|known| known.requests != pod.requests);
        self.cluster.put_pod(pod);
        if is_new {
            self.queue.wake(Change::PodAdded);
        }
        if shrank {
            self.queue.wake(Change::PodRemoved);
        }
    }

    fn put_waiting(&mut self, pod: Pod) {
        if pod.is_terminating {
            return self.forget_pod(&pod.key);
        }
        let nominated = pod.wishes.as_ref().map(|wishes| wishes.nominated.clone());
        let pod = Arc::new(pod);
        if let Some(nominated) = nominated.filter(|name| !name.is_empty()) {
            self.cluster.nominate(&pod, &nominated);
        }
        self.queue.put(pod);
    }

    fn forget_pod(&mut self, key: &PodKey) {
        self.queue.remove(key);
        self.assumed.remove(key);
        self.waiting.remove(key);
        self.cluster.withdraw_nomination(key);
        self.cluster.volumes.chosen.retain(|_, pod| pod != key);
        self.cluster.devices.chosen.retain(|_, (pod, _)| pod != key);
        if self.cluster.remove_pod(key).is_some() {
            self.queue.wake(Change::PodRemoved);
        }
    }

    fn delete(&mut self, kind: &Kind, entry: &Entry) {
        let namespace = Str::new(entry.namespace());
        let name = Str::new(entry.name());
        match kind.gvr.resource.as_str() {
            "nodes" => {
                self.cluster.remove_node(&name);
                // Its pods do not count for the topology of others any more.
                self.queue.wake(Change::PodAdded);
            }
            "pods" => self.forget_pod(&(namespace, name)),
            "namespaces" => drop(self.cluster.namespaces.remove(&name)),
            "services" => self.cluster.workloads.remove_service(&namespace, &name),
            "replicationcontrollers" | "replicasets" | "statefulsets" => {
                self.cluster.workloads.remove_owner(owner_kind(kind), &namespace, &name);
            }
            "persistentvolumes" => drop(self.cluster.volumes.volumes.remove(&name)),
            "persistentvolumeclaims" => {
                drop(self.cluster.volumes.claims.remove(&(namespace, name)));
            }
            "deviceclasses" => drop(self.cluster.devices.classes.remove(&name)),
            "resourceslices" => drop(self.cluster.devices.slices.remove(&name)),
            "resourceclaims" => {
                self.cluster.devices.claims.remove(&(namespace, name));
                self.queue.wake(Change::Devices);
            }
            "storageclasses" => drop(self.cluster.volumes.classes.remove(&name)),
            "csinodes" => drop(self.cluster.volumes.limits.remove(&name)),
            _ => {}
        }
    }
}

fn owner_kind(kind: &Kind) -> &'static str {
    match kind.gvr.resource.as_str() {
        "replicasets" => "ReplicaSet",
        "statefulsets" => "StatefulSet",
        _ => "ReplicationController",
    }
}
