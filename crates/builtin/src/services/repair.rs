//! Repairs cluster IPs and node ports (registry `core/service/ipallocator/controller/repairip.go`):
//! every cluster IP of a service has an `IPAddress` object, and every such object a service.
//! Differences are left by a process that ended during a write, or by a write with an unknown
//! outcome.

use super::{PortLeaks, Services, addresses};
use crate::events::{Event, record};
use keelson_meta::time::Timestamp;
use keelson_meta::{Failure, Object, ip};
use keelson_registry::{Registry, Snapshot};
use keelson_resources::Kind;
use std::sync::Arc;
use std::time::Duration;

const CONTROLLER: &str = "ipallocator-repair-controller";
/// The value of the managed-by label of addresses that this controller may delete.
const MANAGED_BY: &str = "ipallocator.k8s.io";
/// Age from which an address without a service has leaked: a request's timeout, because the address
/// of a service is stored before the service.
const GRACE_SECONDS: i64 = 60;
/// Interval of repairs. A node port that no service uses is released by the fourth repair, an
/// address once it is older than [`GRACE_SECONDS`].
const INTERVAL: Duration = Duration::from_secs(180);

/// Runs the repair loop until it is aborted. Leaked addresses are released at once, for writes that
/// a previous process did not finish.
pub async fn run(registry: Arc<Registry>, services: Arc<Services>) {
    let mut leaks = PortLeaks::default();
    loop {
        if let Err(error) = services.free_leaked_addresses(&registry).await {
            tracing::warn!(%error, "service addresses not repaired; trying again in three minutes");
        }
        tokio::time::sleep(INTERVAL).await;
        if let Err(error) = services.repair(&registry).await {
            tracing::warn!(%error, "service addresses not repaired; trying again in three minutes");
        }
        if let Err(error) = services.free_leaked_ports(&registry, &mut leaks).await {
            tracing::warn!(%error, "node ports not repaired; trying again in three minutes");
        }
    }
}

impl Services {
    /// Allocates the node ports of stored services, and creates their missing `IPAddress` objects.
    /// Unreadable services are skipped.
    pub async fn repair(&self, registry: &Registry) -> Result<(), Failure> {
        let target = registry.target("", "services", "", "");
        self.allocate_stored_ports(registry).await?;
        for entry in registry.cached_all(&target.kind).range("", "") {
            let service = target.kind.decode(entry)?;
            for address in addresses::of(&service).iter().filter_map(|text| ip::parse_ip(text)) {
                match addresses::create(registry, &service, address).await {
                    Err(status) if status.code == 409 => {}
                    Err(status) => return Err(status),
                    Ok(()) => {
                        let family = addresses::family_of(address);
                        let note =
                            format!("Cluster IP [{family}]: {address} is not allocated; repairing");
                        let event = Event {
                            controller: CONTROLLER,
                            event_type: "Warning",
                            reason: "ClusterIPNotAllocated",
                            action: "ClusterIPAllocation",
                            note: &note,
                        };
                        record(registry, &target, &service, event).await;
                    }
                }
            }
        }
        Ok(())
    }

    /// Deletes `IPAddress` objects whose service does not have the address, once they are older
    /// than [`GRACE_SECONDS`].
    pub async fn free_leaked_addresses(&self, registry: &Registry) -> Result<(), Failure> {
        let services = registry.target("", "services", "", "").kind;
        registry.wait_for_latest_of(&services).await?;
        // An unreadable service is an error: its address would count as leaked.
        let all = registry.all(&services)?;
        let target = registry.target("networking.k8s.io", "ipaddresses", "", "");
        let now = registry.clock.now();
        for entry in registry.cached_all(&target.kind).range("", "") {
            let address = target.kind.decode(entry)?;
            if !may_be_leaked(&address, now) {
                continue;
            }
            let Some((reason, note)) = leak(&address, &services, &all)? else { continue };
            let action = "IPAddressAllocation";
            let event =
                Event { controller: CONTROLLER, event_type: "Normal", reason, action, note: &note };
            tracing::warn!(address = address.name(), reason, "freeing a leaked service address");
            record(registry, &target, &address, event).await;
            addresses::release(registry, &[address.name().to_owned()]).await;
        }
        Ok(())
    }
}

/// Returns whether an address was created by an API server and is older than the grace period.
fn may_be_leaked(address: &Object, now: Timestamp) -> bool {
    let mut managed =
        address.meta_map("labels").filter(|(key, _)| *key == "ipaddress.kubernetes.io/managed-by");
    let created = Timestamp::parse(address.creation_timestamp());
    managed.any(|(_, by)| by == MANAGED_BY)
        && created.is_ok_and(|created| now.since(created).seconds() > GRACE_SECONDS)
}

/// Returns reason and note of the event about a leaked address; `None` if its service has it.
fn leak(
    address: &Object,
    services: &Kind,
    all: &Snapshot,
) -> Result<Option<(&'static str, String)>, Failure> {
    let name = address.name();
    let text = |field: &str| address.str_at(&["spec", "parentRef", field]);
    let namespace = text("namespace");
    let service = text("name");
    if !text("group").is_empty() || text("resource") != "services" {
        let what = format!("{}/{} {namespace}/{service}", text("group"), text("resource"));
        let note = format!(
            "IPAddress {name} appears to have been modified, not referencing a Service {what}: \
             cleaning up"
        );
        return Ok(Some(("IPAddressNotAllocated", note)));
    }
    let Some(entry) = all.get(&services.key(namespace, service)) else {
        let note = format!(
            "IPAddress: {name} for Service {namespace}/{service} appears to have leaked: cleaning up"
        );
        return Ok(Some(("IPAddressNotAllocated", note)));
    };
    if addresses::of(&services.decode(entry)?).iter().any(|own| own == name) {
        return Ok(None);
    }
    let note = format!(
        "IPAddress: {name} for Service {namespace}/{service} has a wrong reference; cleaning up"
    );
    Ok(Some(("IPAddressWrongReference", note)))
}
