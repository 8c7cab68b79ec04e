//! The service controller of a cloud provider: Services of type LoadBalancer get an address.
//!
//! Addresses are of 198.51.100.0/24 (RFC 5737), those of IPv6 Services of 2001:db8:100::/64 (RFC
//! 3849): ranges for documentation, which nobody can reach by accident. A Service with a class is
//! left to others.

use keelson_loops::client::Client;
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::events::Recorder;
use keelson_loops::queue::Queue;
use keelson_meta::{Failure, Object, Str, Value, value};
use keelson_records::Entry;
use keelson_registry::options::PatchForm;
use keelson_registry::{InformerEvent, InformerScope, Subresource, Target};
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// Number of addresses of each family.
const ADDRESSES: u8 = 254;

/// Runs until it is dropped.
pub(crate) async fn run(context: crate::Context) {
    let client = Client::new(&context.registry, "service-controller");
    let events = Recorder::new(&client, "service-controller");
    let addresses = ServiceAddresses { client, events, given: Mutex::default() };
    control_loop::run(&context.registry, addresses).await;
}

struct ServiceAddresses {
    client: Client,
    events: Recorder,
    /// The address of each Service.
    given: Mutex<HashMap<Key, IpAddr>>,
}

/// Namespace and name of a Service.
type Key = (Str, Str);

impl ControlLoop for ServiceAddresses {
    type Key = Key;
    const NAME: &'static str = "service-lb-controller";
    const SCOPE: InformerScope = InformerScope::Only(&[("", "services")]);
    const WORKERS_MAX: usize = 1;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Key>) -> bool {
        let key = |entry: &Entry| (Str::new(entry.namespace()), Str::new(entry.name()));
        let may_concern = |entry: &Entry| {
            let text = &*entry.json_slice();
            memchr::memmem::find(text, b"\"LoadBalancer\"").is_some()
                || memchr::memmem::find(text, FINALIZER.as_bytes()).is_some()
        };
        for event in &events {
            match event {
                InformerEvent::Listed(kind, all) => {
                    for entry in all.range("", "").filter(|entry| may_concern(entry)) {
                        let service = kind.decode(entry).unwrap_or_default();
                        let address = address_of(&service);
                        self.given().extend(address.map(|address| (key(entry), address)));
                        queue.add(key(entry));
                    }
                }
                InformerEvent::Put { entry, .. } if may_concern(entry) => queue.add(key(entry)),
                InformerEvent::Deleted { entry, .. } => {
                    self.given().remove(&key(entry));
                }
                _ => {}
            }
        }
        false
    }

    async fn sync(&self, key: Key) -> Result<Option<Duration>, Failure> {
        let Some(kind) = self.client.kind("", "services") else { return Ok(None) };
        let known = self.client.registry.cached(&kind, &key.0, &key.1);
        let Some(service) = known.map(|entry| kind.decode(&entry)).transpose()? else {
            return Ok(None);
        };
        let target = Target::of(&kind, &key.0, &key.1);
        if wants_address(&service) && service.deletion_timestamp().is_none() {
            self.ensure(&key, &target, &service).await?;
        } else if service.finalizers().any(|one| one == FINALIZER) {
            self.release(&key, &target, &service).await?;
        }
        Ok(None)
    }
}

fn wants_address(service: &Object) -> bool {
    service.str_at(&["spec", "type"]) == "LoadBalancer"
        && service.str_at(&["spec", "loadBalancerClass"]).is_empty()
}

fn address_of(service: &Object) -> Option<IpAddr> {
    let ingress = service.array_at(&["status", "loadBalancer", "ingress"]).first()?;
    ingress.str_at(&["ip"])?.parse().ok()
}

/// Returns the first free address, or the one that the Service asks for.
fn choose(service: &Object, given: &BTreeSet<IpAddr>) -> Option<IpAddr> {
    let family = service.array_at(&["spec", "ipFamilies"]).first().and_then(Value::as_str);
    let address = |number: u8| match family {
        Some("IPv6") => IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0x100, 0, 0, 0, 0, number.into())),
        _ => IpAddr::V4(Ipv4Addr::new(198, 51, 100, number)),
    };
    let mut free = (1..=ADDRESSES).map(address).filter(|address| !given.contains(address));
    let wanted = service.str_at(&["spec", "loadBalancerIP"]);
    match wanted.parse::<IpAddr>() {
        Ok(wanted) => free.find(|address| *address == wanted),
        Err(_) => free.next(),
    }
}

impl ServiceAddresses {
    fn given(&self) -> std::sync::MutexGuard<'_, HashMap<Key, IpAddr>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn event(&self, service: &Object, kind: &'static str, reason: &str, message: &str) {
        self.events.about(&self.client, service, kind, (reason, message));
    }

    async fn patch(&self, target: &Target, patch: &Value) -> Result<(), Failure> {
        let form = PatchForm::Strategic;
        match self.client.patch(target, Subresource::Status, form, patch).await {
            Err(error) if error.code != 404 => Err(error),
            _ => Ok(()),
        }
    }

    async fn ensure(&self, key: &Key, target: &Target, service: &Object) -> Result<(), Failure> {
        let has_finalizer = service.finalizers().any(|one| one == FINALIZER);
        if has_finalizer && address_of(service).is_some() {
            return Ok(());
        }
        self.event(service, "Normal", "EnsuringLoadBalancer", "Ensuring load balancer");
        let address = {
            let mut given = self.given();
            let known = given.get(key).copied();
            let chosen = known.or_else(|| choose(service, &given.values().copied().collect()));
            given.extend(chosen.map(|address| (key.clone(), address)));
            chosen
        };
        let Some(address) = address else {
            // It is tried again when this or another Service changes.
            let why = "no address is free";
            let message =
                format!("Error syncing load balancer: failed to ensure load balancer: {why}");
            self.event(service, "Warning", "SyncLoadBalancerFailed", &message);
            return Ok(());
        };
        let address = address.to_string();
        let ingress = value!([{"ip": (address), "ipMode": "VIP"}]);
        let patch = value!({"metadata": {"finalizers": [FINALIZER]},
            "status": {"loadBalancer": {"ingress": (ingress)}}});
        self.patch(target, &patch).await?;
        self.event(service, "Normal", "EnsuredLoadBalancer", "Ensured load balancer");
        Ok(())
    }

    async fn release(&self, key: &Key, target: &Target, service: &Object) -> Result<(), Failure> {
        self.event(service, "Normal", "DeletingLoadBalancer", "Deleting load balancer");
        self.given().remove(key);
        let patch = value!({
            "metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]},
            "status": {"loadBalancer": {"ingress": null}}
        });
        self.patch(target, &patch).await?;
        self.event(service, "Normal", "DeletedLoadBalancer", "Deleted load balancer");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_free_address_is_given() {
        let check = |spec: Value, given: &[&str], want: Option<&str>| {
            let service = Object::from_value(value!({"spec": (spec)})).expect("a map");
            let given = given.iter().map(|address| address.parse().expect("an address")).collect();
            let found = choose(&service, &given).map(|address| address.to_string());
            assert_eq!(found.as_deref(), want);
        };
        check(value!({}), &[], Some("198.51.100.1"));
        check(value!({}), &["198.51.100.1", "198.51.100.3"], Some("198.51.100.2"));
        check(value!({"ipFamilies": ["IPv6"]}), &[], Some("2001:db8:100::1"));
        check(value!({"loadBalancerIP": "198.51.100.9"}), &[], Some("198.51.100.9"));
        check(value!({"loadBalancerIP": "198.51.100.9"}), &["198.51.100.9"], None);
        check(value!({"loadBalancerIP": "10.0.0.1"}), &[], None);
    }
}
