//! The endpoint slice mirroring controller: mirrors Endpoints that users write for services without
//! a selector to EndpointSlices.

use super::reconcile::{Group, Owner, reconcile, service_of};
use super::trigger::TRIGGER_TIME_ANNOTATION;
use super::{ServiceKey, family_of, key_of};
use keelson_loops::client::Client;
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::queue::Queue;
use keelson_meta::{Failure, Map, Object, Str, Value, value};
use keelson_registry::options::DeleteOptions;
use keelson_registry::{InformerEvent, InformerScope, Registry, Target};
use std::sync::Arc;
use std::time::Duration;

const MANAGED_BY: &str = "endpointslicemirroring-controller.k8s.io";
const SKIP_LABEL: &str = "endpointslice.kubernetes.io/skip-mirror";
const LEADER_ANNOTATION: &str = "control-plane.alpha.kubernetes.io/leader";
/// Maximum number of addresses of a subset that are mirrored.
const ADDRESSES_MAX: usize = 1000;
/// Annotations that are not mirrored.
const OWN_ANNOTATIONS: [&str; 2] =
    [TRIGGER_TIME_ANNOTATION, "kubectl.kubernetes.io/last-applied-configuration"];

/// Runs until it is dropped.
pub(crate) async fn run(registry: Arc<Registry>) {
    let client = Client::new(&registry, "endpointslicemirroring-controller");
    control_loop::run(&registry, Mirroring { client }).await;
}

struct Mirroring {
    client: Client,
}

impl ControlLoop for Mirroring {
    type Key = ServiceKey;
    const NAME: &'static str = "endpointslice-mirroring-controller";
    const SCOPE: InformerScope = InformerScope::Only(&[
        ("", "endpoints"),
        ("", "services"),
        ("discovery.k8s.io", "endpointslices"),
    ]);
    const WORKERS_MAX: usize = 5;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<ServiceKey>) -> bool {
        for event in events {
            match &event {
                InformerEvent::Listed(kind, all) if kind.gvr.resource == "endpoints" => {
                    all.range("", "").for_each(|entry| queue.add(key_of(entry)));
                }
                InformerEvent::Put { kind, entry, .. } | InformerEvent::Deleted { kind, entry }
                    if kind.gvr.resource == "endpointslices" =>
                {
                    queue.extend(service_of(entry, MANAGED_BY));
                }
                InformerEvent::Put { entry, .. } | InformerEvent::Deleted { entry, .. } => {
                    queue.add(key_of(entry));
                }
                _ => {}
            }
        }
        false
    }

    async fn sync(&self, key: ServiceKey) -> Result<Option<Duration>, Failure> {
        let registry = &self.client.registry;
        let read = |resource: &str| {
            let kind = registry.kind("", resource)?;
            let entry = registry.cached(&kind, &key.0, &key.1)?;
            kind.decode(&entry).ok()
        };
        let endpoints = read("endpoints");
        let service = read("services");
        let has_selector = |service: &Object| service.at(&["spec", "selector"]).is_some();
        let is_mirrored = service.is_some_and(|service| !has_selector(&service));
        match endpoints.filter(|endpoints| is_mirrored && allows_mirroring(endpoints)) {
            Some(endpoints) => {
                let owner = Owner {
                    managed_by: MANAGED_BY,
                    object: &endpoints,
                    kind: "Endpoints",
                    labels: map_of(endpoints.meta_map("labels")),
                    annotations: map_of(
                        endpoints
                            .meta_map("annotations")
                            .filter(|(name, _)| !OWN_ANNOTATIONS.contains(name)),
                    ),
                    trigger: endpoints.annotation(TRIGGER_TIME_ANNOTATION).map(Str::new),
                    has_placeholder: false,
                };
                reconcile(&self.client, &owner, groups(&endpoints)).await?;
            }
            None => self.delete_all(&key).await?,
        }
        Ok(None)
    }
}

impl Mirroring {
    /// Deletes the slices of Endpoints that are no longer mirrored.
    async fn delete_all(&self, key: &ServiceKey) -> Result<(), Failure> {
        let Some(kind) = self.client.kind("discovery.k8s.io", "endpointslices") else {
            return Ok(());
        };
        let prefix = format!("{}/", key.0);
        let all = self.client.registry.cached_all(&kind);
        let own = all
            .range(&prefix, "")
            .filter(|entry| service_of(entry, MANAGED_BY).is_some_and(|service| service == *key));
        for entry in own {
            let target = Target::of(&kind, &key.0, entry.name());
            let deleted = self.client.delete(&target, &DeleteOptions::default()).await;
            keelson_loops::client::ignore_terminating(deleted)?;
        }
        Ok(())
    }
}

fn allows_mirroring(endpoints: &Object) -> bool {
    endpoints.label(SKIP_LABEL) != Some("true") && endpoints.annotation(LEADER_ANNOTATION).is_none()
}

fn map_of<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Map {
    let mut map = Map::new();
    for (name, text) in pairs {
        map.insert(name, text);
    }
    map
}

fn groups(endpoints: &Object) -> Vec<Group> {
    let mut groups: Vec<Group> = vec![];
    for subset in endpoints.array_at(&["subsets"]) {
        let ports: Vec<Value> = subset
            .array_at(&["ports"])
            .iter()
            .map(|port| {
                let mut port = port.clone();
                if let Some(port) = port.as_object_mut()
                    && port.get("name").is_none()
                {
                    port.insert("name", "");
                }
                port
            })
            .collect();
        let ready = subset.array_at(&["addresses"]).iter().map(|address| (address, true));
        let not_ready =
            subset.array_at(&["notReadyAddresses"]).iter().map(|address| (address, false));
        for (address, is_ready) in ready.chain(not_ready).take(ADDRESSES_MAX) {
            let Some(family) = address.str_at(&["ip"]).and_then(family_of) else { continue };
            let endpoint = endpoint(address, is_ready);
            let is_of = |group: &&mut Group| group.family == family && group.ports == ports;
            match groups.iter_mut().find(is_of) {
                Some(group) => group.endpoints.push(endpoint),
                None => groups.push(Group {
                    family: Str::new_static(family),
                    ports: ports.clone(),
                    endpoints: vec![endpoint],
                }),
            }
        }
    }
    groups
}

fn endpoint(address: &Value, is_ready: bool) -> Value {
    let ip = address.str_at(&["ip"]).unwrap_or_default();
    let mut endpoint =
        value!({"addresses": [ip], "conditions": {"ready": (Value::Bool(is_ready))}});
    if let Some(map) = endpoint.as_object_mut() {
        for name in ["hostname", "nodeName", "targetRef"] {
            if let Some(fact) = address.get(name) {
                map.insert(name, fact.clone());
            }
        }
    }
    endpoint
}
