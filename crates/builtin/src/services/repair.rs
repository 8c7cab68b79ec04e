//! Repair of addresses: every cluster IP of a service has an `IPAddress` object, and every such object a
//! service (registry `core/service/ipallocator/controller/repairip.go`). What is out of step was left by
//! a process that ended half-way, or by a write whose outcome nobody knows.

use super::{PortLeaks, Services, addresses};
use crate::recorder::{Report, report};
use keelson_meta::time::Timestamp;
use keelson_meta::{Failure, Object, ip};
use keelson_registry::{Kind, Registry, Snapshot};
use std::sync::Arc;
use std::time::Duration;

const CONTROLLER: &str = "ipallocator-repair-controller";
/// The value of the label of addresses that are ours to free.
const MANAGED_BY: &str = "ipallocator.k8s.io";
/// How long a service may take from its address to itself: a request's timeout.
const GRACE_SECONDS: i64 = 60;
/// Between two looks. A port that no service has is freed at the fourth look, an address once it is
/// older than a minute.
const INTERVAL: Duration = Duration::from_secs(180);

/// Runs until it is aborted. The first look is right away: what the process before left half-way.
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
    /// Makes the `IPAddress` objects that services lack, and notes the ports that they have. A service
    /// that cannot be read does not keep the others waiting.
    pub async fn repair(&self, registry: &Registry) -> Result<(), Failure> {
        let target = registry.target("", "services", "", "");
        self.note_ports(registry).await?;
        for entry in registry.cached_all(&target.kind).range("", "") {
            let service = target.kind.decode(entry)?;
            for address in addresses::of(&service).iter().filter_map(|text| ip::parse_ip(text)) {
                match addresses::make(registry, &service, address).await {
                    Err(status) if status.code == 409 => {}
                    Err(status) => return Err(status),
                    Ok(()) => {
                        let family = addresses::family_of(address);
                        let note =
                            format!("Cluster IP [{family}]: {address} is not allocated; repairing");
                        let told = Report {
                            controller: CONTROLLER,
                            kind: "Warning",
                            reason: "ClusterIPNotAllocated",
                            action: "ClusterIPAllocation",
                            note: &note,
                        };
                        report(registry, &target, &service, told).await;
                    }
                }
            }
        }
        Ok(())
    }

    /// Deletes the `IPAddress` objects without a service that has the address, once they are older than a
    /// write may take.
    pub async fn free_leaked_addresses(&self, registry: &Registry) -> Result<(), Failure> {
        registry.wait_for_latest().await?;
        let services = registry.target("", "services", "", "").kind;
        // The address of a service that cannot be read would look as if nobody had it.
        let all = registry.all(&services)?;
        let target = registry.target("networking.k8s.io", "ipaddresses", "", "");
        let now = registry.clock.now();
        for entry in registry.cached_all(&target.kind).range("", "") {
            let address = target.kind.decode(entry)?;
            if !is_due(&address, now) {
                continue;
            }
            let Some((reason, note)) = fault(&address, &services, &all)? else { continue };
            let action = "IPAddressAllocation";
            let told =
                Report { controller: CONTROLLER, kind: "Normal", reason, action, note: &note };
            tracing::warn!(address = address.name(), reason, "freeing a leaked service address");
            report(registry, &target, &address, told).await;
            addresses::free(registry, &[address.name().to_owned()]).await;
        }
        Ok(())
    }
}

/// Whether an address was made by a server, and long enough ago.
fn is_due(address: &Object, now: Timestamp) -> bool {
    let managed = address.meta_map("labels");
    let mut managed = managed.filter(|(key, _)| *key == "ipaddress.kubernetes.io/managed-by");
    let created = Timestamp::parse(address.creation_timestamp());
    managed.any(|(_, by)| by == MANAGED_BY)
        && created.is_ok_and(|created| now.since(created).seconds() > GRACE_SECONDS)
}

/// Reason and note of what is wrong with an address, if anything is.
fn fault(
    address: &Object,
    services: &Kind,
    all: &Snapshot,
) -> Result<Option<(&'static str, String)>, Failure> {
    let name = address.name();
    let text = |field: &str| address.str_at(&["spec", "parentRef", field]);
    let (namespace, service) = (text("namespace"), text("name"));
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
