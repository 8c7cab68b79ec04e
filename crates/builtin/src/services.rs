//! What services are given: addresses out of the service ranges, and ports of nodes (registry
//! `core/service/storage/alloc.go`). An address is taken by making its `IPAddress` object, whose name
//! nobody else can have then; a port by changing the one value in the store that says which are in use.

mod addresses;
mod pool;
mod ports;
mod repair;

pub(crate) use pool::{PORTS_KEY, check_ports};
pub use ports::PortLeaks;
pub use repair::run;

use keelson_kinds::service::{families, validate_addresses};
use keelson_meta::{Failure, Object, Status};
use keelson_registry::hooks::{Claim, Claims, Ending};
use keelson_registry::{PortRange, Registry};
use keelson_store::{BoxFuture, Store};
use pool::PortPool;
use std::sync::Arc;
use tokio::runtime::Handle;

/// What services have of the addresses and ports that all share.
#[derive(Debug)]
pub struct Services {
    ports: Arc<PortPool>,
}

/// What a write of a service takes before, and gives back after it is stored. Ports of a write that goes
/// away before the store is asked are free again; later [`Services::free_leaked_ports`] finds those that
/// nobody has.
#[derive(Debug)]
struct Taken {
    /// Where the ports come from.
    pool: Arc<PortPool>,
    /// Addresses that this write took.
    taken: Vec<String>,
    /// Addresses that the service no longer needs.
    freed: Vec<String>,
    /// What this write does to the ports.
    ports: ports::Change,
    /// Ports that it took, once the store is asked: better a lost port than one that two services have.
    begun: Vec<u16>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        let taken = std::mem::take(&mut self.ports.taken);
        if let (Ok(runtime), false) = (Handle::try_current(), taken.is_empty()) {
            let pool = self.pool.clone();
            runtime.spawn(async move { pool.give_back(&taken).await });
        }
    }
}

impl Claim for Taken {
    fn begin(&mut self) {
        self.begun = std::mem::take(&mut self.ports.taken);
    }

    fn end<'a>(self: Box<Self>, registry: &'a Registry, ending: Ending) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let (ports, addresses) = match ending {
                Ending::Stored => (&self.ports.freed, &self.freed),
                Ending::NotStored => (&self.begun, &self.taken),
                Ending::Unknown => return,
            };
            self.pool.give_back(ports).await;
            addresses::free(registry, addresses).await;
        })
    }
}

/// How addresses and ports are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Taking {
    /// For a service that is about to be stored.
    #[default]
    ForGood,
    /// For the answer to a dry run, in which upstream shows the first address of a range and node ports
    /// behind the range.
    DryRun,
    /// To learn why they cannot be taken; nothing is.
    Trial,
}

impl Claims for Services {
    fn claim<'a>(
        &'a self,
        registry: &'a Registry,
        obj: &'a mut Object,
        old: Option<&'a Object>,
        dry_run: bool,
    ) -> BoxFuture<'a, Result<Option<Box<dyn Claim>>, Failure>> {
        let taking = if dry_run { Taking::DryRun } else { Taking::ForGood };
        Box::pin(async move {
            let taken = self.take(registry, obj, old, taking).await?;
            Ok(taken.map(|taken| Box::new(taken) as Box<dyn Claim>))
        })
    }

    fn refused<'a>(
        &'a self,
        registry: &'a Registry,
        obj: &'a Object,
        old: Option<&'a Object>,
        dry_run: bool,
    ) -> BoxFuture<'a, Option<Failure>> {
        Box::pin(self.refuse(registry, obj, old, dry_run))
    }

    fn release<'a>(&'a self, registry: &'a Registry, gone: &'a Object) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.ports.give_back(&ports::of(gone)).await;
            addresses::free(registry, &addresses::of(gone)).await;
        })
    }
}

impl Services {
    /// Of the services in a store, with these ports of nodes.
    pub(crate) fn new(store: Arc<dyn Store>, node_ports: PortRange) -> Services {
        Services { ports: Arc::new(PortPool::new(store, node_ports)) }
    }

    /// Gives a service that is to be stored what it lacks. `None`: nothing is taken.
    async fn take(
        &self,
        registry: &Registry,
        service: &mut Object,
        old: Option<&Object>,
        taking: Taking,
    ) -> Result<Option<Taken>, Failure> {
        let mut taken = Taken {
            pool: self.ports.clone(),
            taken: vec![],
            freed: vec![],
            ports: ports::Change::default(),
            begun: vec![],
        };
        let given = self.take_all(registry, service, old, taking, &mut taken).await;
        if taking != Taking::ForGood {
            taken.ports.taken.clear();
            return given.map(|()| None);
        }
        match given {
            Ok(()) => Ok(Some(taken)),
            Err(failure) => {
                addresses::free(registry, &taken.taken).await;
                Err(failure)
            }
        }
    }

    /// What is said of an invalid service, when it does not get its addresses or ports. A headless one is not
    /// given any.
    async fn refuse(
        &self,
        registry: &Registry,
        service: &Object,
        old: Option<&Object>,
        dry_run: bool,
    ) -> Option<Failure> {
        if service.str_at(&["spec", "clusterIP"]) == "None" {
            let errors = validate_addresses(service, old);
            let is_sound = errors.is_empty();
            return (!is_sound).then(|| Status::invalid("", "Service", service.name(), errors));
        }
        let mut service = service.clone();
        let taking = if dry_run { Taking::DryRun } else { Taking::Trial };
        self.take(registry, &mut service, old, taking).await.err()
    }

    async fn take_all(
        &self,
        registry: &Registry,
        service: &mut Object,
        old: Option<&Object>,
        taking: Taking,
        taken: &mut Taken,
    ) -> Result<(), Failure> {
        families::complete(service, old, &addresses::families(registry))?;
        addresses::claim(registry, service, old, taking, taken).await?;
        taken.ports = ports::claim(&self.ports, service, old, taking).await?;
        Ok(())
    }
}
