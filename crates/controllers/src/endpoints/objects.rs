//! The endpoints controller: maintains the Endpoints of every service with a selector.

use super::trigger::{TRIGGER_TIME_ANNOTATION, Triggers};
use super::{
    HEADLESS_LABEL, ServiceKey, Services, addresses, has_cluster_ip, hostname, is_reachable,
    key_of, pod_reference, publishes_not_ready, target_port,
};
use keelson_loops::client::{Client, ignore_terminating};
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::pods::is_ready;
use keelson_loops::queue::Queue;
use keelson_meta::{Failure, Map, Object, Str, Value, value};
use keelson_registry::options::DeleteOptions;
use keelson_registry::{InformerEvent, InformerScope, Registry, Subresource, Target};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const MANAGED_BY_LABEL: &str = "endpoints.kubernetes.io/managed-by";
const MANAGED_BY: &str = "endpoint-controller";
const OVER_CAPACITY_ANNOTATION: &str = "endpoints.kubernetes.io/over-capacity";
/// Endpoints with this annotation are a lock of leader election and are left alone.
const LEADER_ANNOTATION: &str = "control-plane.alpha.kubernetes.io/leader";
/// Maximum number of addresses in one object.
const ADDRESSES_MAX: usize = 1000;

/// Runs until it is dropped.
pub(crate) async fn run(registry: Arc<Registry>) {
    let client = Client::new(&registry, "endpoint-controller");
    let (services, triggers) = Default::default();
    control_loop::run(&registry, EndpointsLoop { client, services, triggers }).await;
}

struct EndpointsLoop {
    client: Client,
    services: Services,
    triggers: Triggers,
}

impl ControlLoop for EndpointsLoop {
    type Key = ServiceKey;
    const NAME: &'static str = "endpoints-controller";
    const SCOPE: InformerScope =
        InformerScope::Only(&[("", "services"), ("", "pods"), ("", "endpoints")]);
    const WORKERS_MAX: usize = 5;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<ServiceKey>) -> bool {
        for event in events {
            match &event {
                // Finds Endpoints of services that were deleted while no loop ran.
                InformerEvent::Listed(kind, all) if kind.gvr.resource == "endpoints" => {
                    all.range("", "").for_each(|entry| queue.add(key_of(entry)));
                }
                InformerEvent::Deleted { kind, entry } if kind.gvr.resource == "endpoints" => {
                    queue.add(key_of(entry));
                }
                event => self.services.observe(event, queue),
            }
        }
        false
    }

    async fn sync(&self, key: ServiceKey) -> Result<Option<Duration>, Failure> {
        let (Some(services), Some(kind)) =
            (self.client.kind("", "services"), self.client.kind("", "endpoints"))
        else {
            return Ok(None);
        };
        let registry = &self.client.registry;
        let target = Target::of(&kind, &key.0, &key.1);
        let known =
            registry.cached(&kind, &key.0, &key.1).map(|entry| kind.decode(&entry)).transpose()?;
        let Some(service) = registry.cached(&services, &key.0, &key.1) else {
            self.triggers.remove(&key);
            let is_lock = |known: &Object| known.annotation(LEADER_ANNOTATION).is_some();
            if known.is_some_and(|known| !is_lock(&known)) {
                ignore_terminating(self.client.delete(&target, &DeleteOptions::default()).await)?;
            }
            return Ok(None);
        };
        let service = services.decode(&service)?;
        if service.str_at(&["spec", "type"]) == "ExternalName"
            || service.at(&["spec", "selector"]).is_none()
        {
            return Ok(None);
        }
        let (trigger, desired) = self.services.with_pods_of(registry, &service, |pods| {
            let trigger = self.triggers.next(&key, &service, pods);
            let (subsets, is_over_capacity) = subsets(&service, pods);
            (trigger, desired(&service, subsets, is_over_capacity))
        });
        match known {
            None => {
                let mut desired = desired;
                set_trigger_time(&mut desired, trigger);
                ignore_terminating(self.client.create(&target, desired).await)?;
            }
            Some(mut known) if !is_same(&known, &desired) => {
                let annotations = known.metadata_mut().object_at("annotations");
                annotations.remove(OVER_CAPACITY_ANNOTATION);
                for (name, text) in desired.meta_map("annotations") {
                    annotations.insert(name, text);
                }
                let labels = desired.at(&["metadata", "labels"]).cloned().unwrap_or_default();
                known.metadata_mut().insert("labels", labels);
                known.root.insert("subsets", desired.get("subsets").cloned().unwrap_or_default());
                set_trigger_time(&mut known, trigger);
                ignore_terminating(self.client.update(&target, Subresource::None, known).await)?;
            }
            Some(_) => {}
        }
        Ok(None)
    }
}

fn set_trigger_time(endpoints: &mut Object, trigger: Option<Str>) {
    let annotations = endpoints.metadata_mut().object_at("annotations");
    match trigger {
        Some(time) => drop(annotations.insert(TRIGGER_TIME_ANNOTATION, time)),
        None => drop(annotations.remove(TRIGGER_TIME_ANNOTATION)),
    }
}

/// Returns the desired Endpoints of a service, without the trigger time.
fn desired(service: &Object, subsets: Vec<Value>, is_over_capacity: bool) -> Object {
    let mut desired = Object::new();
    desired.set_meta("name", service.name());
    desired.set_meta("namespace", service.namespace());
    let mut labels = Map::new();
    for (name, text) in service.meta_map("labels").filter(|(name, _)| *name != HEADLESS_LABEL) {
        labels.insert(name, text);
    }
    if !has_cluster_ip(service) {
        labels.insert(HEADLESS_LABEL, "");
    }
    labels.insert(MANAGED_BY_LABEL, MANAGED_BY);
    desired.metadata_mut().insert("labels", labels);
    if is_over_capacity {
        let annotations = desired.metadata_mut().object_at("annotations");
        annotations.insert(OVER_CAPACITY_ANNOTATION, "truncated");
    }
    // An empty list must not appear in managedFields.
    if !subsets.is_empty() {
        desired.root.insert("subsets", subsets);
    }
    desired
}

fn is_same(known: &Object, desired: &Object) -> bool {
    let capacity = |object: &Object| object.annotation(OVER_CAPACITY_ANNOTATION).map(Str::new);
    known.array_at(&["subsets"]) == desired.array_at(&["subsets"])
        && known.at(&["metadata", "labels"]) == desired.at(&["metadata", "labels"])
        && capacity(known) == capacity(desired)
}

/// Name, number and protocol of a port.
type PortKey = (Str, i64, Str);
/// Ready addresses and addresses that are not ready.
type Addresses = [Vec<Value>; 2];

/// Returns the subsets of a service, and whether addresses were left out. Ports with the same
/// addresses share a subset.
fn subsets(service: &Object, pods: &[Arc<Object>]) -> (Vec<Value>, bool) {
    let publishes_not_ready = publishes_not_ready(service);
    let family = service.array_at(&["spec", "ipFamilies"]).first().and_then(Value::as_str);
    let ports = service.array_at(&["spec", "ports"]);
    let mut by_port: BTreeMap<PortKey, (Value, Addresses)> = BTreeMap::new();
    let mut count = 0;
    let mut all = 0;
    for pod in pods.iter().filter(|pod| is_reachable(pod)) {
        if pod.deletion_timestamp().is_some() && !publishes_not_ready {
            continue;
        }
        let Some(ip) = addresses(pod, family.unwrap_or("IPv4")).first().copied() else { continue };
        all += 1;
        if count == ADDRESSES_MAX {
            continue;
        }
        count += 1;
        let mut address = Map::new();
        address.insert("ip", ip);
        if let Some(hostname) = hostname(pod, service) {
            address.insert("hostname", hostname);
        }
        let node = pod.str_at(&["spec", "nodeName"]);
        if !node.is_empty() {
            address.insert("nodeName", node);
        }
        address.insert("targetRef", pod_reference(pod));
        let is_ready = publishes_not_ready || is_ready(pod);
        let mut add = |key: PortKey, port: Value| {
            let (_, addresses) = by_port.entry(key).or_insert((port, [vec![], vec![]]));
            addresses[usize::from(!is_ready)].push(Value::Object(address.clone()));
        };
        if ports.is_empty() && !has_cluster_ip(service) {
            add(Default::default(), Value::Null);
        }
        for port in ports {
            let Some(number) = target_port(pod, port) else { continue };
            let text = |name: &str| Str::new(port.str_at(&[name]).unwrap_or_default());
            let key = (text("name"), number, text("protocol"));
            add(key, endpoint_port(port, number));
        }
    }
    let mut subsets: Vec<(Addresses, Vec<Value>)> = vec![];
    for (port, mut addresses) in by_port.into_values() {
        addresses.iter_mut().for_each(|addresses| addresses.sort_by_key(ip_key));
        match subsets.iter_mut().find(|(known, _)| *known == addresses) {
            Some((_, ports)) => ports.push(port),
            None => subsets.push((addresses, vec![port])),
        }
    }
    (subsets.into_iter().map(subset).collect(), all > ADDRESSES_MAX)
}

fn ip_key(address: &Value) -> Str {
    Str::new(address.str_at(&["ip"]).unwrap_or_default())
}

fn endpoint_port(port: &Value, number: i64) -> Value {
    let mut out = Map::new();
    if let Some(name) = port.str_at(&["name"]).filter(|name| !name.is_empty()) {
        out.insert("name", name);
    }
    out.insert("port", number);
    out.insert("protocol", port.str_at(&["protocol"]).unwrap_or("TCP"));
    if let Some(protocol) = port.str_at(&["appProtocol"]) {
        out.insert("appProtocol", protocol);
    }
    Value::Object(out)
}

fn subset(of: (Addresses, Vec<Value>)) -> Value {
    let ([ready, not_ready], ports) = of;
    let ports: Vec<Value> = ports.into_iter().filter(|port| !port.is_null()).collect();
    let mut subset = value!({});
    if let Some(subset) = subset.as_object_mut() {
        for (name, items) in
            [("addresses", ready), ("notReadyAddresses", not_ready), ("ports", ports)]
        {
            if !items.is_empty() {
                subset.insert(name, items);
            }
        }
    }
    subset
}
