//! Allocates cluster IPs and node ports of services (registry `core/service/storage/alloc.go`). An
//! address is allocated by creating its `IPAddress` object, whose name is unique; a node port by an
//! update of the bitmap in the store.

mod addresses;
mod pool;
mod ports;
mod repair;

pub use pool::OTHER_RECORDS;
pub use ports::PortLeaks;
pub use repair::run;

use keelson_kinds::service::{families, validate_addresses};
use keelson_kinds::with_features;
use keelson_meta::{Failure, Object, Status};
use keelson_registry::hooks::{Claim, Claims, Ending};
use keelson_registry::metrics::AllocationWay;
use keelson_registry::{PortRange, Registry};
use keelson_store::{BoxFuture, Store};
use pool::PortPool;
use std::sync::Arc;
use tokio::runtime::Handle;

/// Allocates cluster IPs and node ports.
#[derive(Debug)]
pub struct Services {
    ports: Arc<PortPool>,
}

/// The allocations of a write, to be committed or reverted when its outcome is known. If it is
/// dropped before the write is sent to the store, its ports are released; afterwards they may leak,
/// and [`Services::free_leaked_ports`] releases them.
#[derive(Debug)]
struct Allocations {
    pool: Arc<PortPool>,
    /// Addresses that were allocated for the write.
    allocated: Vec<String>,
    /// Addresses to release once the service is stored.
    released: Vec<String>,
    /// Ports to release or to keep.
    ports: ports::Change,
    /// Allocated ports of a write that was sent to the store. A leaked port is better than one that
    /// two services have.
    sent: Vec<u16>,
}

impl Drop for Allocations {
    fn drop(&mut self) {
        let allocated = std::mem::take(&mut self.ports.allocated);
        if let (Ok(runtime), false) = (Handle::try_current(), allocated.is_empty()) {
            let pool = self.pool.clone();
            runtime.spawn(async move { pool.release(&allocated).await });
        }
    }
}

impl Claim for Allocations {
    fn begin(&mut self) {
        self.sent = std::mem::take(&mut self.ports.allocated);
    }

    fn end<'a>(self: Box<Self>, registry: &'a Registry, ending: Ending) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let (ports, addresses) = match ending {
                Ending::Stored => (&self.ports.released, &self.released),
                Ending::NotStored => (&self.sent, &self.allocated),
                Ending::Unknown => return,
            };
            self.pool.release(ports).await;
            self.pool.count(registry);
            addresses::release(registry, addresses).await;
        })
    }
}

/// How addresses and ports are allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    /// For a service that is about to be stored.
    #[default]
    Allocate,
    /// For the response to a dry run. Upstream returns the first address of a range, and node ports
    /// beyond the range. Nothing is allocated.
    DryRun,
    /// To get the error. Nothing is allocated.
    Check,
}

impl Claims for Services {
    fn claim<'a>(
        &'a self,
        registry: &'a Registry,
        obj: &'a mut Object,
        old: Option<&'a Object>,
        dry_run: bool,
    ) -> BoxFuture<'a, Result<Option<Box<dyn Claim>>, Failure>> {
        let mode = if dry_run { Mode::DryRun } else { Mode::Allocate };
        Box::pin(async move {
            let allocations = self.allocate(registry, obj, old, mode).await?;
            Ok(allocations.map(|allocations| Box::new(allocations) as Box<dyn Claim>))
        })
    }

    fn refused<'a>(
        &'a self,
        registry: &'a Registry,
        obj: &'a Object,
        old: Option<&'a Object>,
        dry_run: bool,
    ) -> BoxFuture<'a, Option<Failure>> {
        Box::pin(self.allocation_error(registry, obj, old, dry_run))
    }

    fn release<'a>(&'a self, registry: &'a Registry, deleted: &'a Object) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.ports.release(&ports::of(deleted)).await;
            self.ports.count(registry);
            addresses::release(registry, &addresses::of(deleted)).await;
            addresses::delete_endpoints(registry, deleted).await;
        })
    }
}

impl Services {
    /// Returns the allocator for a store and a range of node ports.
    pub(crate) fn new(store: Arc<dyn Store>, node_ports: PortRange) -> Services {
        Services { ports: Arc::new(PortPool::new(store, node_ports)) }
    }

    /// Allocates the addresses and ports that a service lacks, and sets them. Returns `None` if the
    /// mode allocates nothing.
    async fn allocate(
        &self,
        registry: &Registry,
        service: &mut Object,
        old: Option<&Object>,
        mode: Mode,
    ) -> Result<Option<Allocations>, Failure> {
        let mut allocations = Allocations {
            pool: self.ports.clone(),
            allocated: vec![],
            released: vec![],
            ports: ports::Change::default(),
            sent: vec![],
        };
        let result = self.allocate_all(registry, service, old, mode, &mut allocations).await;
        if mode != Mode::Allocate {
            allocations.ports.allocated.clear();
            return result.map(|()| None);
        }
        match result {
            Ok(()) => Ok(Some(allocations)),
            Err(failure) => {
                addresses::release(registry, &allocations.allocated).await;
                Err(failure)
            }
        }
    }

    /// Returns the allocation error of an invalid service, which upstream reports before validation
    /// errors. Nothing is allocated for a headless service; its addresses are validated.
    async fn allocation_error(
        &self,
        registry: &Registry,
        service: &Object,
        old: Option<&Object>,
        dry_run: bool,
    ) -> Option<Failure> {
        if service.str_at(&["spec", "clusterIP"]) == "None" {
            let features = registry.options.features;
            let errors = with_features(features, || validate_addresses(service, old));
            let is_valid = errors.is_empty();
            return (!is_valid).then(|| Status::invalid("", "Service", service.name(), errors));
        }
        let mut service = service.clone();
        let mode = if dry_run { Mode::DryRun } else { Mode::Check };
        self.allocate(registry, &mut service, old, mode).await.err()
    }

    async fn allocate_all(
        &self,
        registry: &Registry,
        service: &mut Object,
        old: Option<&Object>,
        mode: Mode,
        allocations: &mut Allocations,
    ) -> Result<(), Failure> {
        with_features(registry.options.features, || {
            families::complete(service, old, &addresses::families(registry))
        })?;
        addresses::allocate(registry, service, old, mode, allocations).await?;
        let random = u128::from_le_bytes(registry.clock.random());
        let wanted = ports::of(service);
        let allocated = ports::allocate(&self.ports, service, old, mode, random).await;
        if mode == Mode::Allocate {
            count_ports(registry, &wanted, allocated.as_ref());
            self.ports.count(registry);
        }
        allocations.ports = allocated?;
        Ok(())
    }
}

/// Counts the node ports that were allocated for a service, or that they were not. `wanted` are
/// those that the client asked for.
fn count_ports(registry: &Registry, wanted: &[u16], allocated: Result<&ports::Change, &Failure>) {
    let metrics = &registry.metrics.services;
    let how = |is_wanted| if is_wanted { AllocationWay::Static } else { AllocationWay::Dynamic };
    match allocated {
        Ok(change) => {
            change.allocated.iter().for_each(|port| metrics.port(how(wanted.contains(port)), true));
        }
        Err(_) => metrics.port(how(!wanted.is_empty()), false),
    }
}
