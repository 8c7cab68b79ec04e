//! The common part of the loops for Endpoints and EndpointSlices: which pods a service selects, and
//! the addresses and ports of those pods.

pub(crate) mod mirroring;
pub(crate) mod objects;
mod reconcile;
pub(crate) mod slices;
mod trigger;

use keelson_auth::off_worker;
use keelson_loops::queue::Queue;
use keelson_loops::{Known, pods};
use keelson_meta::{Object, Str, Value, ip};
use keelson_records::Entry;
use keelson_registry::{InformerEvent, Registry};
use keelson_resources::Kind;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The label of headless services and of their Endpoints and EndpointSlices.
const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";

/// Namespace and name of a service.
pub(crate) type ServiceKey = (Str, Str);

/// The selectors of all services, by namespace and name.
#[derive(Default)]
struct Selectors(HashMap<Str, HashMap<Str, PodSelector>>);

/// The labels that a service selects; none selects nothing.
struct PodSelector(Vec<(Str, Str)>);

/// The services that a loop knows, and what of their pods their endpoints are made of.
#[derive(Default)]
struct Services {
    selectors: Mutex<Selectors>,
    /// The pods of services, [`trimmed`].
    pods: Known<Arc<Object>>,
}

impl Services {
    /// Processes a change of a service or a pod and queues the affected services.
    fn observe(&self, event: &InformerEvent, queue: &mut Queue<ServiceKey>) {
        let mut selectors = self.selectors.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            InformerEvent::Listed(kind, all) if kind.gvr.resource == "services" => {
                selectors.0.clear();
                for entry in all.range("", "") {
                    selectors.insert(kind, entry);
                    queue.add(key_of(entry));
                }
            }
            InformerEvent::Put { kind, entry, .. } if kind.gvr.resource == "services" => {
                selectors.insert(kind, entry);
                queue.add(key_of(entry));
            }
            InformerEvent::Deleted { kind, entry } if kind.gvr.resource == "services" => {
                selectors.remove(entry);
                queue.add(key_of(entry));
            }
            InformerEvent::Listed(kind, _) if kind.gvr.resource == "pods" => {
                self.pods.observe(event);
                for (namespace, services) in &selectors.0 {
                    services.keys().for_each(|name| queue.add((namespace.clone(), name.clone())));
                }
            }
            InformerEvent::Put { kind, entry, previous } if kind.gvr.resource == "pods" => {
                let mut selecting = selectors.selecting(entry);
                if let Some(previous) = previous {
                    selecting.extend(selectors.selecting(previous));
                    if selecting.is_empty() || pods::is_unchanged(kind, previous, entry) {
                        return;
                    }
                }
                selecting.into_iter().for_each(|key| queue.add(key));
            }
            InformerEvent::Deleted { kind, entry } if kind.gvr.resource == "pods" => {
                self.pods.observe(event);
                selectors.selecting(entry).into_iter().for_each(|key| queue.add(key));
            }
            _ => {}
        }
    }

    /// Does work on the pods of a service, which may take long: other tasks of the thread run
    /// meanwhile.
    fn with_pods_of<T>(
        &self,
        registry: &Registry,
        service: &Object,
        work: impl FnOnce(&[Arc<Object>]) -> T,
    ) -> T {
        let kind = registry.kind("", "pods");
        let count = kind.map_or(0, |kind| registry.cached_all(&kind).len());
        off_worker::compute(count * POD_BYTES, || work(&self.pods_of(registry, service)))
    }

    /// Returns the pods that a service selects, in the order of their names, without other fields
    /// than those of [`trimmed`].
    fn pods_of(&self, registry: &Registry, service: &Object) -> Vec<Arc<Object>> {
        let selector = PodSelector::of(service);
        let Some(kind) = registry.kind("", "pods").filter(|_| !selector.0.is_empty()) else {
            return vec![];
        };
        let prefix = format!("{}/", service.namespace());
        let all = registry.cached_all(&kind);
        let selected = all.range(&prefix, "").filter(|pod| selector.selects(pod));
        let decode = |entry: &Entry| kind.decode(entry).map(|pod| Arc::new(trimmed(pod)));
        let pods =
            selected.filter_map(|entry| self.pods.get(entry, || decode(entry)).ok()).collect();
        self.pods.prune(&all);
        pods
    }
}

impl PodSelector {
    fn of(service: &Object) -> PodSelector {
        let labels = service.at(&["spec", "selector"]).and_then(Value::as_object);
        let pairs = labels.into_iter().flat_map(|labels| labels.iter());
        let text = |value: &Value| Str::new(value.as_str().unwrap_or_default());
        PodSelector(pairs.map(|(key, value)| (key.clone(), text(value))).collect())
    }

    fn selects(&self, pod: &Entry) -> bool {
        !self.0.is_empty() && self.0.iter().all(|(key, value)| pod.label(key) == Some(value))
    }
}

impl Selectors {
    fn insert(&mut self, kind: &Kind, entry: &Entry) {
        let service = kind.decode(entry).unwrap_or_default();
        let selector = PodSelector::of(&service);
        if selector.0.is_empty() {
            return self.remove(entry);
        }
        let services = self.0.entry(entry.namespace().into()).or_default();
        services.insert(entry.name().into(), selector);
    }

    fn remove(&mut self, entry: &Entry) {
        if let Some(services) = self.0.get_mut(entry.namespace()) {
            services.remove(entry.name());
        }
    }

    /// Returns the services that select a pod.
    fn selecting(&self, pod: &Entry) -> Vec<ServiceKey> {
        let Some((namespace, services)) = self.0.get_key_value(pod.namespace()) else {
            return vec![];
        };
        let selecting = services.iter().filter(|(_, selector)| selector.selects(pod));
        selecting.map(|(name, _)| (namespace.clone(), name.clone())).collect()
    }
}

fn key_of(entry: &Entry) -> ServiceKey {
    (entry.namespace().into(), entry.name().into())
}

/// The fields of a pod that its endpoints are made of.
const POD_METADATA: [&str; 4] = ["name", "namespace", "uid", "deletionTimestamp"];
const POD_SPEC: [&str; 5] = ["nodeName", "hostname", "subdomain", "containers", "initContainers"];
const CONTAINER: [&str; 2] = ["ports", "restartPolicy"];
const POD_STATUS: [&str; 4] = ["phase", "podIP", "podIPs", "conditions"];
/// About the bytes of a stored pod.
const POD_BYTES: usize = 2048;

/// Leaves out what no endpoint is made of: a service may select thousands of pods.
fn trimmed(mut pod: Object) -> Object {
    pod.metadata_mut().retain(|name, _| POD_METADATA.contains(&name.as_str()));
    let spec = pod.object_mut("spec");
    spec.retain(|name, _| POD_SPEC.contains(&name.as_str()));
    for name in ["containers", "initContainers"] {
        let containers = spec.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten();
        for container in containers.filter_map(Value::as_object_mut) {
            container.retain(|name, _| CONTAINER.contains(&name.as_str()));
        }
    }
    pod.object_mut("status").retain(|name, _| POD_STATUS.contains(&name.as_str()));
    pod
}

/// Whether a pod has an address and has not ended.
fn is_reachable(pod: &Object) -> bool {
    !matches!(pod.str_at(&["status", "phase"]), "Failed" | "Succeeded")
        && (!pod.str_at(&["status", "podIP"]).is_empty()
            || !pod.array_at(&["status", "podIPs"]).is_empty())
}

/// Returns the addresses of a pod in a family, `IPv4` or `IPv6`.
fn addresses<'p>(pod: &'p Object, family: &str) -> Vec<&'p str> {
    let all =
        pod.array_at(&["status", "podIPs"]).iter().filter_map(|address| address.str_at(&["ip"]));
    all.filter(|address| family_of(address) == Some(family)).collect()
}

fn family_of(address: &str) -> Option<&'static str> {
    let parsed = ip::parse_ip(address)?;
    Some(if parsed.is_ipv4() { "IPv4" } else { "IPv6" })
}

/// Returns the hostname of a pod in the DNS records of a service.
fn hostname<'p>(pod: &'p Object, service: &Object) -> Option<&'p str> {
    let hostname = pod.str_at(&["spec", "hostname"]);
    let is_of_service = pod.str_at(&["spec", "subdomain"]) == service.name();
    (!hostname.is_empty() && is_of_service).then_some(hostname)
}

/// Returns the port of a pod for a port of a service. `targetPort` is a number or the name of a
/// container port.
fn target_port(pod: &Object, port: &Value) -> Option<i64> {
    let wanted = match port.get("targetPort")? {
        Value::Int(number) => return Some(*number),
        name => name.as_str()?,
    };
    let protocol = port.str_at(&["protocol"]).unwrap_or("TCP");
    // Sidecars (restartable init containers) have ports, other init containers do not.
    let sidecars = pod
        .array_at(&["spec", "initContainers"])
        .iter()
        .filter(|one| one.str_at(&["restartPolicy"]) == Some("Always"));
    let containers = pod.array_at(&["spec", "containers"]).iter().chain(sidecars);
    let mut ports = containers.flat_map(|container| container.array_at(&["ports"]));
    let found = ports.find(|port| {
        port.str_at(&["name"]) == Some(wanted)
            && port.str_at(&["protocol"]).unwrap_or("TCP") == protocol
    });
    found?.int_at(&["containerPort"])
}

/// Returns the targetRef of a pod.
fn pod_reference(pod: &Object) -> Value {
    keelson_meta::value!({
        "kind": "Pod", "namespace": (pod.namespace()), "name": (pod.name()), "uid": (pod.uid())
    })
}

/// Whether a service has a cluster IP.
fn has_cluster_ip(service: &Object) -> bool {
    !matches!(service.str_at(&["spec", "clusterIP"]), "" | "None")
}

fn publishes_not_ready(service: &Object) -> bool {
    service.at(&["spec", "publishNotReadyAddresses"]).and_then(Value::as_bool).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    #[test]
    fn a_port_is_a_number_or_the_name_of_a_port_of_a_container() {
        let pod = value!({"spec": {"containers": [
            {"ports": [{"name": "web", "containerPort": 80, "protocol": "UDP"}]},
            {"ports": [{"name": "web", "containerPort": 81}]}],
            "initContainers": [{"ports": [{"name": "once", "containerPort": 82}]},
                {"restartPolicy": "Always", "ports": [{"name": "beside", "containerPort": 83}]}]}});
        let pod = Object::from_value(pod).expect("a map");
        let check = |port: Value, want: Option<i64>| {
            assert_eq!(target_port(&pod, &port), want, "{port:?}");
        };
        check(value!({"targetPort": 7}), Some(7));
        check(value!({"targetPort": "web"}), Some(81));
        check(value!({"targetPort": "web", "protocol": "UDP"}), Some(80));
        check(value!({"targetPort": "beside"}), Some(83));
        check(value!({"targetPort": "once"}), None);
    }

    #[test]
    fn a_trimmed_pod_has_what_its_endpoints_are_made_of() {
        let pod = value!({
            "metadata": {"name": "a", "uid": "u", "labels": {"l": "1"}, "managedFields": []},
            "spec": {"nodeName": "n", "volumes": [{"name": "v"}], "containers": [
                {"name": "c", "image": "i", "ports": [{"name": "web", "containerPort": 81}]}]},
            "status": {"podIP": "10.0.0.1", "phase": "Running", "hostIP": "1.2.3.4"}});
        let trimmed = trimmed(Object::from_value(pod).expect("a map")).into_value();
        let want = value!({
            "metadata": {"name": "a", "uid": "u"},
            "spec": {"nodeName": "n", "containers": [
                {"ports": [{"name": "web", "containerPort": 81}]}]},
            "status": {"podIP": "10.0.0.1", "phase": "Running"}});
        assert_eq!(trimmed, want);
    }
}
