//! The endpoint slice controller: maintains the EndpointSlices of every service with a selector.

use super::reconcile::{Group, Owner, SERVICE_NAME_LABEL, reconcile};
use super::trigger::Triggers;
use super::{
    HEADLESS_LABEL, ServiceKey, Services, addresses, has_cluster_ip, hostname, is_reachable,
    pod_reference, publishes_not_ready, target_port,
};
use keelson_loops::client::Client;
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::pods::is_ready;
use keelson_loops::queue::Queue;
use keelson_meta::{Failure, Map, Object, Str, Value, value};
use keelson_registry::{InformerEvent, InformerScope, Registry};
use std::sync::Arc;
use std::time::Duration;

const MANAGED_BY: &str = "endpointslice-controller.k8s.io";
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
/// Delay before a service is synced again that selects a pod whose node does not exist.
const NODE_DELAY: Duration = Duration::from_secs(5);

/// Runs until it is dropped.
pub(crate) async fn run(registry: Arc<Registry>) {
    let client = Client::new(&registry, "endpointslice-controller");
    let (services, triggers) = Default::default();
    control_loop::run(&registry, Slices { client, services, triggers }).await;
}

struct Slices {
    client: Client,
    services: Services,
    triggers: Triggers,
}

impl ControlLoop for Slices {
    type Key = ServiceKey;
    const NAME: &'static str = "endpointslice-controller";
    const SCOPE: InformerScope = InformerScope::Only(&[
        ("", "services"),
        ("", "pods"),
        ("discovery.k8s.io", "endpointslices"),
    ]);
    const WORKERS_MAX: usize = 5;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<ServiceKey>) -> bool {
        for event in events {
            match &event {
                InformerEvent::Put { kind, entry, .. } | InformerEvent::Deleted { kind, entry }
                    if kind.gvr.resource == "endpointslices" =>
                {
                    queue.extend(super::reconcile::service_of(entry, MANAGED_BY));
                }
                event => self.services.observe(event, queue),
            }
        }
        false
    }

    async fn sync(&self, key: ServiceKey) -> Result<Option<Duration>, Failure> {
        let registry = &self.client.registry;
        let Some(services) = registry.kind("", "services") else { return Ok(None) };
        let Some(service) = registry.cached(&services, &key.0, &key.1) else {
            // The garbage collector deletes its slices.
            self.triggers.remove(&key);
            return Ok(None);
        };
        let service = services.decode(&service)?;
        if service.str_at(&["spec", "type"]) == "ExternalName"
            || service.at(&["spec", "selector"]).is_none()
            || service.deletion_timestamp().is_some()
        {
            return Ok(None);
        }
        let (trigger, (groups, lacks_node)) =
            self.services.with_pods_of(registry, &service, |pods| {
                let trigger = self.triggers.next(&key, &service, pods);
                (trigger, self.groups(&service, pods))
            });
        let owner = Owner {
            managed_by: MANAGED_BY,
            object: &service,
            kind: "Service",
            labels: labels(&service),
            annotations: Map::new(),
            trigger,
            has_placeholder: true,
        };
        reconcile(&self.client, &owner, groups).await?;
        Ok(lacks_node.then_some(NODE_DELAY))
    }
}

/// Returns the labels of a service's slices.
fn labels(service: &Object) -> Map {
    let mut labels = Map::new();
    let is_free = |name: &str| name != HEADLESS_LABEL && name != SERVICE_NAME_LABEL;
    for (name, text) in service.meta_map("labels").filter(|(name, _)| is_free(name)) {
        labels.insert(name, text);
    }
    if !has_cluster_ip(service) {
        labels.insert(HEADLESS_LABEL, "");
    }
    labels
}

impl Slices {
    /// Returns the endpoints of a service by family and ports, and whether a pod was left out
    /// because its node does not exist.
    fn groups(&self, service: &Object, pods: &[Arc<Object>]) -> (Vec<Group>, bool) {
        let families: Vec<&str> =
            service.array_at(&["spec", "ipFamilies"]).iter().filter_map(Value::as_str).collect();
        let publishes_not_ready = publishes_not_ready(service);
        let mut groups: Vec<Group> = vec![];
        let mut lacks_node = false;
        for pod in pods.iter().filter(|pod| is_reachable(pod)) {
            let zone = self.zone(pod.str_at(&["spec", "nodeName"]));
            if zone.is_none() && !publishes_not_ready {
                lacks_node = true;
                continue;
            }
            let zone = zone.flatten();
            let ports = ports(service, pod);
            for family in &families {
                let addresses = addresses(pod, family);
                if addresses.is_empty() {
                    continue;
                }
                let endpoint = endpoint(service, pod, &addresses, zone.as_deref());
                let is_of = |group: &&mut Group| group.family == *family && group.ports == ports;
                match groups.iter_mut().find(is_of) {
                    Some(group) => group.endpoints.push(endpoint),
                    None => groups.push(Group {
                        family: Str::new(family),
                        ports: ports.clone(),
                        endpoints: vec![endpoint],
                    }),
                }
            }
        }
        // A family without endpoints has an empty group.
        for family in families {
            if !groups.iter().any(|group| group.family == family) {
                groups.push(Group { family: family.into(), ports: vec![], endpoints: vec![] });
            }
        }
        (groups, lacks_node)
    }

    /// Returns the zone of a node, which may be absent; `None` if the node does not exist.
    fn zone(&self, node: &str) -> Option<Option<Str>> {
        let kind = self.client.kind("", "nodes")?;
        let entry = self.client.registry.cached(&kind, "", node)?;
        Some(entry.label(ZONE_LABEL).map(Str::new))
    }
}

/// Returns the ports of a service on a pod.
fn ports(service: &Object, pod: &Object) -> Vec<Value> {
    let mut out = vec![];
    for port in service.array_at(&["spec", "ports"]) {
        let Some(number) = target_port(pod, port) else { continue };
        let mut own = Map::new();
        own.insert("name", port.str_at(&["name"]).unwrap_or_default());
        own.insert("protocol", port.str_at(&["protocol"]).unwrap_or("TCP"));
        own.insert("port", number);
        if let Some(protocol) = port.str_at(&["appProtocol"]) {
            own.insert("appProtocol", protocol);
        }
        out.push(Value::Object(own));
    }
    out
}

fn endpoint(service: &Object, pod: &Object, addresses: &[&str], zone: Option<&str>) -> Value {
    let addresses: Vec<Value> = addresses.iter().map(|address| Value::from(*address)).collect();
    let serving = is_ready(pod);
    let terminating = pod.deletion_timestamp().is_some();
    let ready = publishes_not_ready(service) || (serving && !terminating);
    let mut endpoint = value!({
        "addresses": addresses,
        "conditions": {
            "ready": (Value::Bool(ready)), "serving": (Value::Bool(serving)),
            "terminating": (Value::Bool(terminating))
        }
    });
    let Some(map) = endpoint.as_object_mut() else { return endpoint };
    if let Some(hostname) = hostname(pod, service) {
        map.insert("hostname", hostname);
    }
    map.insert("targetRef", pod_reference(pod));
    let node = pod.str_at(&["spec", "nodeName"]);
    if !node.is_empty() {
        map.insert("nodeName", node);
    }
    if let Some(zone) = zone {
        map.insert("zone", zone);
    }
    endpoint
}
