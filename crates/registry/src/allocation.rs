//! What services are given: addresses out of the service ranges, and ports of nodes (registry
//! `core/service/storage/alloc.go`). An address is taken by making its `IPAddress` object, whose name
//! nobody else can have then; a port by changing the one value in the store that says which are in use.

mod addresses;
mod families;
mod pool;
mod ports;
mod range;
mod repair;

pub(crate) use pool::{PORTS_KEY, PortPool, check_ports};
pub use ports::PortLeaks;
pub use range::PortRange;

use crate::kind::Target;
use crate::registry::{Put, Registry};
use bytes::Bytes;
use keelson_kinds::validate_service_addresses;
use keelson_meta::{Failure, Object, Reason, Status};
use keelson_store::{Compare, Revision};
use std::sync::Arc;
use tokio::runtime::Handle;

/// What a write of a service takes before, and gives back after it is stored. Ports of a write that goes
/// away before the store is asked are free again; later [`Registry::free_leaked_ports`] finds those that
/// nobody has.
#[derive(Debug, Default)]
pub(crate) struct Claim {
    /// Where the ports come from.
    pool: Option<Arc<PortPool>>,
    /// Addresses that this write took.
    taken: Vec<String>,
    /// Addresses that the service no longer needs.
    freed: Vec<String>,
    /// What this write does to the ports.
    ports: ports::Change,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let taken = std::mem::take(&mut self.ports.taken);
        if let (Some(pool), Ok(runtime), false) =
            (self.pool.take(), Handle::try_current(), taken.is_empty())
        {
            runtime.spawn(async move { pool.give_back(&taken).await });
        }
    }
}

/// How addresses and ports are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Taking {
    /// For a service that is about to be stored.
    #[default]
    ForGood,
    /// For the answer to a dry run, in which upstream shows the first address of a range and node ports
    /// behind the range.
    DryRun,
    /// To learn why they cannot be taken; nothing is.
    Trial,
}

impl Taking {
    /// For a write that may be a dry run.
    pub(crate) fn of(dry_run: bool) -> Taking {
        if dry_run { Taking::DryRun } else { Taking::ForGood }
    }
}

/// Whether objects of the target are given addresses and ports.
pub(crate) fn is_service(target: &Target) -> bool {
    let gvr = target.gvr();
    gvr.group.is_empty() && gvr.resource == "services"
}

impl Registry {
    /// Gives a service that is to be stored what it lacks. A dry run takes nothing.
    pub(crate) async fn claim(
        &self,
        target: &Target,
        service: &mut Object,
        old: Option<&Object>,
        taking: Taking,
    ) -> Result<Claim, Failure> {
        if !is_service(target) {
            return Ok(Claim::default());
        }
        let mut claim = Claim::default();
        claim.pool = Some(self.ports.clone());
        let given = self.claim_all(service, old, taking, &mut claim).await;
        if taking != Taking::ForGood {
            claim.ports.taken.clear();
            return given.map(|()| Claim::default());
        }
        match given {
            Ok(()) => Ok(claim),
            Err(failure) => {
                self.free_addresses(&claim.taken).await;
                Err(failure)
            }
        }
    }

    /// Why an invalid object is refused. A service is given its addresses and ports before it is
    /// validated: when it does not get them, that alone is said. A headless one is not given any.
    pub(crate) async fn refused(
        &self,
        target: &Target,
        object: &Object,
        (old, dry_run): (Option<&Object>, bool),
        invalid: Failure,
    ) -> Failure {
        if !is_service(target) {
            return invalid;
        }
        if object.str_at(&["spec", "clusterIP"]) == "None" {
            let errors = validate_service_addresses(object, old);
            return if errors.is_empty() {
                invalid
            } else {
                Status::invalid("", "Service", object.name(), errors)
            };
        }
        let mut service = object.clone();
        let taking = if dry_run { Taking::DryRun } else { Taking::Trial };
        match Box::pin(self.claim(target, &mut service, old, taking)).await {
            Err(failure) => failure,
            Ok(_) => invalid,
        }
    }

    async fn claim_all(
        &self,
        service: &mut Object,
        old: Option<&Object>,
        taking: Taking,
        claim: &mut Claim,
    ) -> Result<(), Failure> {
        families::complete(service, old, &self.service_families())?;
        self.claim_addresses(service, old, taking, claim).await?;
        claim.ports = ports::claim(&self.ports, service, old, taking).await?;
        Ok(())
    }

    /// [`Registry::put`] of an object that took something before. Once it is stored, what it no longer
    /// needs is free; when it certainly is not, what it took is free again.
    pub(crate) async fn put_claimed(
        &self,
        target: &Target,
        record: Bytes,
        expected: Revision,
        guard: Option<Compare>,
        mut claim: Claim,
    ) -> Result<Put, Failure> {
        // The store may do a write whose request is cut off: better a lost port than one that two
        // services have.
        let ports_taken = std::mem::take(&mut claim.ports.taken);
        let put = self.put(target, record, expected, guard).await;
        match &put {
            Ok(Put::Done(_)) => {
                self.ports.give_back(&claim.ports.freed).await;
                self.free_addresses(&claim.freed).await;
            }
            // It may be stored, or be found stored when the store opens again.
            Err(failure)
                if matches!(failure.reason, Reason::ServerTimeout | Reason::InternalError) => {}
            Ok(Put::Lost(_) | Put::Overtaken) | Err(_) => {
                self.ports.give_back(&ports_taken).await;
                self.free_addresses(&claim.taken).await;
            }
        }
        put
    }

    /// The object is gone, and what it was given is free.
    pub(crate) async fn release(&self, target: &Target, gone: &Object) {
        if is_service(target) {
            self.ports.give_back(&ports::of(gone)).await;
            self.free_addresses(&addresses::of(gone)).await;
        }
    }
}
