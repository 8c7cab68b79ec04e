//! Role-based access control: [`Rbac`] decides by an index of roles and bindings that is kept from their
//! watches.

mod describe;
mod escalation;
mod index;
mod rule;

pub use escalation::{
    CLUSTER_ADMIN_NEEDED, aggregate, covers, escalation_message, full_authority, uncovered,
};
pub use index::{Binding, Grant, Index, RoleError, RoleKind, RoleRef, Subject, SubjectKind};
pub use rule::{Rule, rules_of};

use crate::{Attributes, Change, Decision, Feed, GroupResource, Objects, User};
use keelson_meta::{Failure, Status};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};

/// The API group of roles and bindings.
pub const GROUP: &str = "rbac.authorization.k8s.io";

const RESOURCES: [GroupResource; 4] = [
    (GROUP, "clusterroles"),
    (GROUP, "roles"),
    (GROUP, "clusterrolebindings"),
    (GROUP, "rolebindings"),
];

/// The RBAC authorizer. A decision takes in what was written before it was asked, so that a binding counts
/// as soon as its write was acknowledged.
#[derive(Default)]
pub struct Rbac {
    index: RwLock<Index>,
    /// The revision up to which `index` has taken changes in.
    seen: AtomicU64,
    feed: Mutex<Option<Box<dyn Feed>>>,
    objects: OnceLock<Arc<dyn Objects>>,
}

impl Rbac {
    /// Lets it read roles and bindings.
    pub fn attach(&self, objects: Arc<dyn Objects>) {
        *self.feed() = Some(objects.follow(&RESOURCES));
        let _ = self.objects.set(objects);
    }

    /// Whether a rule of a role that is bound to the user allows it.
    pub async fn decide(&self, user: &User, attributes: &Attributes) -> Decision {
        match self.current().await {
            Ok(()) => self.index().decide(user, attributes),
            Err(error) => Decision::failed(error),
        }
    }

    /// Takes in all that was written before the call. Until this succeeds nothing may be decided.
    pub async fn current(&self) -> Result<(), Failure> {
        let Some(objects) = self.objects.get() else {
            return Err(Status::unavailable("roles and bindings are not loaded yet"));
        };
        if let Some(lag) = objects.lag() {
            lag.await?;
        }
        self.take_in(objects.revision())
    }

    /// The index as it is, for reads after [`Rbac::current`].
    pub fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_in(&self, revision: u64) -> Result<(), Failure> {
        if self.seen.load(Ordering::Acquire) >= revision && revision != 0 {
            return Ok(());
        }
        let mut feed = self.feed();
        let Some(feed) = feed.as_mut() else {
            return Err(Status::unavailable("roles and bindings are not loaded yet"));
        };
        let mut changes = vec![];
        let taken = feed.take(&mut changes);
        if !changes.is_empty() {
            let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
            for (resource, change) in changes {
                index.apply(resource, change);
            }
        }
        taken?;
        self.seen.fetch_max(revision, Ordering::AcqRel);
        Ok(())
    }

    fn feed(&self) -> MutexGuard<'_, Option<Box<dyn Feed>>> {
        self.feed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Index {
    /// Takes in a change of one of [`RESOURCES`].
    fn apply(&mut self, resource: usize, change: Change) {
        let is_role = resource < 2;
        let is_cluster = resource % 2 == 0;
        match (change, is_role) {
            (Change::Reset, true) => self.forget_roles(is_cluster),
            (Change::Reset, false) => self.forget_bindings(is_cluster),
            (Change::Put(role), true) => self.put_role(&role),
            (Change::Put(binding), false) => self.put_binding(&binding),
            (Change::Gone { namespace, name }, true) => self.remove_role(&namespace, &name),
            (Change::Gone { namespace, name }, false) => self.remove_binding(&namespace, &name),
        }
    }
}
