//! The service CIDR controller: sets the condition Ready of ServiceCIDRs and keeps a deleted one
//! until no address of a service needs it.

use keelson_loops::client::{Client, ignore_terminating};
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::queue::Queue;
use keelson_meta::{Failure, Object, Str, Timestamp, Value, ip, value};
use keelson_registry::options::PatchForm;
use keelson_registry::{InformerEvent, InformerScope, Registry, Subresource, Target};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

const GROUP: &str = "networking.k8s.io";
const RESOURCE: &str = "servicecidrs";
const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
const FIELD_MANAGER: &str = "service-cidr-controller";
/// How long a deleted ServiceCIDR stays at least, because other servers may still allocate
/// addresses from it.
const DELETION_GRACE: Duration = Duration::from_secs(10);
const READY: &str = "Kubernetes Service CIDR is ready";
const IN_USE: &str = "There are still IPAddresses referencing the ServiceCIDR, please remove them \
                      or create a new ServiceCIDR";

/// Runs until it is dropped.
pub(crate) async fn run(registry: Arc<Registry>) {
    let client = Client::new(&registry, "service-cidrs-controller");
    control_loop::run(&registry, ServiceCidrs { client }).await;
}

struct ServiceCidrs {
    client: Client,
}

impl ControlLoop for ServiceCidrs {
    /// The name of a ServiceCIDR.
    type Key = Str;
    const NAME: &'static str = "service-cidr-controller";
    const SCOPE: InformerScope = InformerScope::Only(&[(GROUP, RESOURCE), (GROUP, "ipaddresses")]);
    const WORKERS_MAX: usize = 1;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Str>) -> bool {
        for event in &events {
            match event {
                InformerEvent::Listed(kind, all) if kind.gvr.resource == RESOURCE => {
                    queue.extend(all.range("", "").map(|entry| entry.name().into()));
                }
                InformerEvent::Put { kind, entry, .. } if kind.gvr.resource == RESOURCE => {
                    queue.add(entry.name().into());
                    self.queue_terminating(queue);
                }
                // A deleted address may have kept a ServiceCIDR.
                InformerEvent::Deleted { .. } => self.queue_terminating(queue),
                _ => {}
            }
        }
        false
    }

    async fn sync(&self, name: Str) -> Result<Option<Duration>, Failure> {
        let Some(kind) = self.client.kind(GROUP, RESOURCE) else { return Ok(None) };
        let target = Target::of(&kind, "", &name);
        let Some(mut cidr) = self.client.get(&target).await? else { return Ok(None) };
        let has_finalizer = cidr.finalizers().any(|finalizer| finalizer == FINALIZER);
        let Some(deleted) = cidr.deletion_timestamp().map(Str::new) else {
            if !has_finalizer {
                let mut finalizers = cidr.array_at(&["metadata", "finalizers"]).to_vec();
                finalizers.push(FINALIZER.into());
                cidr.metadata_mut().insert("finalizers", finalizers);
                ignore_terminating(
                    self.client.update(&target, Subresource::None, cidr.clone()).await,
                )?;
            }
            self.set_ready(&target, &cidr, true, READY).await?;
            return Ok(None);
        };
        if !has_finalizer {
            return Ok(None);
        }
        if self.is_in_use(&cidr) {
            self.set_ready(&target, &cidr, false, IN_USE).await?;
            return Ok(None);
        }
        let since = Timestamp::parse(&deleted).unwrap_or_default();
        let passed = self.client.now().since(since).0.max(0).unsigned_abs();
        let remaining = DELETION_GRACE.saturating_sub(Duration::from_nanos(passed));
        if !remaining.is_zero() {
            return Ok(Some(remaining));
        }
        let mut finalizers = cidr.array_at(&["metadata", "finalizers"]).to_vec();
        finalizers.retain(|finalizer| finalizer.as_str() != Some(FINALIZER));
        let finalizers = if finalizers.is_empty() { Value::Null } else { finalizers.into() };
        let version = cidr.resource_version();
        let patch = value!({"metadata": {"resourceVersion": version, "finalizers": (finalizers)}});
        ignore_terminating(
            self.client.patch(&target, Subresource::None, PatchForm::Merge, &patch).await,
        )?;
        Ok(None)
    }
}

impl ServiceCidrs {
    fn all(&self) -> Vec<Object> {
        let Some(kind) = self.client.kind(GROUP, RESOURCE) else { return vec![] };
        let all = self.client.registry.cached_all(&kind);
        all.range("", "").filter_map(|entry| kind.decode(entry).ok()).collect()
    }

    fn queue_terminating(&self, queue: &mut Queue<Str>) {
        let terminating = self.all().into_iter().filter(|cidr| cidr.deletion_timestamp().is_some());
        queue.extend(terminating.map(|cidr| cidr.name().into()));
    }

    /// Whether an address is in this ServiceCIDR and in no other that is not being deleted.
    fn is_in_use(&self, cidr: &Object) -> bool {
        let others: Vec<Object> = self
            .all()
            .into_iter()
            .filter(|other| other.name() != cidr.name() && other.deletion_timestamp().is_none())
            .collect();
        let Some(kind) = self.client.kind(GROUP, "ipaddresses") else { return false };
        let all = self.client.registry.cached_all(&kind);
        all.range("", "").filter_map(|entry| ip::parse_ip(entry.name())).any(|address| {
            contains(cidr, address) && !others.iter().any(|other| contains(other, address))
        })
    }

    async fn set_ready(
        &self,
        target: &Target,
        cidr: &Object,
        is_ready: bool,
        message: &str,
    ) -> Result<(), Failure> {
        let status = if is_ready { "True" } else { "False" };
        let reason = if is_ready { "" } else { "Terminating" };
        let conditions = cidr.array_at(&["status", "conditions"]).iter();
        let is_set = conditions.filter(|one| one.str_at(&["type"]) == Some("Ready")).any(|one| {
            let text = |name: &str| one.str_at(&[name]).unwrap_or_default();
            text("status") == status && text("message") == message
        });
        if is_set {
            return Ok(());
        }
        let now = self.client.now().text();
        let patch = value!({
            "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
            "metadata": {"name": (cidr.name())},
            "status": {"conditions": [{"type": "Ready", "status": status, "reason": reason,
                "message": message, "lastTransitionTime": now}]}
        });
        let client = self.client.clone().with_field_manager(FIELD_MANAGER);
        ignore_terminating(
            client.patch(target, Subresource::Status, PatchForm::ApplyYaml, &patch).await,
        )
    }
}

/// Whether an address is in a ServiceCIDR.
fn contains(cidr: &Object, address: IpAddr) -> bool {
    let ranges = cidr.array_at(&["spec", "cidrs"]).iter().filter_map(Value::as_str);
    ranges.filter_map(|range| range.split_once('/')).any(|(base, bits)| {
        let (Some(base), Ok(bits)) = (ip::parse_ip(base), bits.parse::<u32>()) else {
            return false;
        };
        match (base, address) {
            (IpAddr::V4(base), IpAddr::V4(address)) => {
                let shift = 32_u32.saturating_sub(bits);
                (u64::from(u32::from(base)) >> shift) == (u64::from(u32::from(address)) >> shift)
            }
            (IpAddr::V6(base), IpAddr::V6(address)) => {
                let shift = 128_u32.saturating_sub(bits);
                let head = |address: u128| address.checked_shr(shift).unwrap_or(0);
                head(base.into()) == head(address.into())
            }
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_lies_in_a_range_that_has_its_first_bits() {
        let cidr = value!({"spec": {"cidrs": ["10.1.0.0/24", "fd00::/112"]}});
        let cidr = Object::from_value(cidr).expect("a map");
        let check = |address: &str, want: bool| {
            let address = ip::parse_ip(address).expect("an address");
            assert_eq!(contains(&cidr, address), want, "{address}");
        };
        check("10.1.0.255", true);
        check("10.1.1.0", false);
        check("fd00::ffff", true);
        check("fd00::1:0", false);
    }
}
