//! [`Workloads`]: the selectors of Services and workloads, by which pods without spread constraints
//! are spread.

use super::pod::{Pod, Wishes};
use keelson_meta::selector::Selector;
use keelson_meta::{Map, Object, Str, Value};
use std::collections::{BTreeMap, HashMap};

/// Selectors of Services, and of ReplicaSets, StatefulSets and ReplicationControllers.
#[derive(Debug, Default)]
pub struct Workloads {
    /// By namespace and name.
    services: HashMap<Str, BTreeMap<Str, Vec<(Str, Str)>>>,
    /// By kind, namespace and name.
    owners: HashMap<(Str, Str, Str), Selector>,
}

fn pairs(map: Option<&Value>) -> Vec<(Str, Str)> {
    let pairs = map.and_then(Value::as_object).into_iter().flat_map(Map::iter);
    pairs.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().into())).collect()
}

impl Workloads {
    pub fn put_service(&mut self, service: &Object) {
        let selector = pairs(service.at(&["spec", "selector"]));
        self.remove_service(service.namespace(), service.name());
        if !selector.is_empty() {
            let services = self.services.entry(service.namespace().into()).or_default();
            services.insert(service.name().into(), selector);
        }
    }

    pub fn remove_service(&mut self, namespace: &str, name: &str) {
        if let Some(services) = self.services.get_mut(namespace) {
            services.remove(name);
            if services.is_empty() {
                self.services.remove(namespace);
            }
        }
    }

    pub fn put_owner(&mut self, kind: &str, owner: &Object) {
        let selector = owner.at(&["spec", "selector"]);
        let selector = if kind == "ReplicationController" {
            let pairs = pairs(selector);
            Selector::from_labels(pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())))
        } else {
            Selector::from_object(selector).unwrap_or_default()
        };
        let key = (kind.into(), owner.namespace().into(), owner.name().into());
        self.owners.insert(key, selector);
    }

    pub fn remove_owner(&mut self, kind: &str, namespace: &str, name: &str) {
        self.owners.remove(&(kind.into(), namespace.into(), name.into()));
    }

    /// Returns the selector of the pods among which a pod is spread; `None` if it belongs to
    /// nothing.
    pub fn selector(&self, pod: &Pod, wishes: &Wishes) -> Option<Selector> {
        let mut labels: BTreeMap<&str, &str> = BTreeMap::new();
        for selector in self.services.get(&pod.key.0).into_iter().flat_map(BTreeMap::values) {
            if selector.iter().all(|(key, value)| pod.label(key) == Some(value.as_str())) {
                labels.extend(selector.iter().map(|(key, value)| (key.as_str(), value.as_str())));
            }
        }
        let mut requirements = Selector::from_labels(labels).requirements().to_vec();
        if let Some((kind, name)) = &wishes.owner {
            let key = (kind.clone(), pod.key.0.clone(), name.clone());
            let owner = self.owners.get(&key);
            requirements.extend(owner.into_iter().flat_map(Selector::requirements).cloned());
        }
        (!requirements.is_empty()).then(|| Selector::new(requirements))
    }
}
