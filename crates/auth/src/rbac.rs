//! Role-based access control: [`Rbac`] decides by an index of roles and bindings.

mod describe;
mod escalation;
mod index;
mod roles;
mod rule;

pub use crate::grant::{Binding, Grant, RoleKind, RoleRef, Subject, SubjectKind};
pub use escalation::{CLUSTER_ADMIN_NEEDED, covers, escalation_message, full_authority, uncovered};
pub use index::{Index, RoleError};
pub use rule::{Rule, rules_of};

use crate::watched_index::{Indexer, WatchedIndex};
use crate::{Attributes, Change, Decision, GroupResource, Objects, User};
use keelson_meta::{Failure, SmallSet};
use std::sync::{Arc, RwLockReadGuard};

/// The API group of roles and bindings.
pub const GROUP: &str = "rbac.authorization.k8s.io";

/// The RBAC authorizer. A decision sees everything that was written before it, so a binding takes
/// effect as soon as its write is acknowledged.
#[derive(Default)]
pub struct Rbac {
    index: WatchedIndex<Index>,
}

impl Rbac {
    /// Starts following roles and bindings.
    pub fn attach(&self, objects: Arc<dyn Objects>) {
        self.index.attach(objects);
    }

    /// Returns `Allow` if a rule of a role that is bound to the user allows the request.
    pub async fn decide(&self, user: &User, attributes: &Attributes) -> Decision {
        match self.current().await {
            Ok(()) => self.index().decide(user, attributes),
            Err(error) => Decision::failed(error),
        }
    }

    /// Applies everything that was written before the call. If this fails, no decision must be
    /// made.
    pub async fn current(&self) -> Result<(), Failure> {
        self.index.current().await
    }

    /// Returns the index, for reads after [`Rbac::current`].
    pub fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.index()
    }
}

impl Indexer for Index {
    const RESOURCES: &'static [GroupResource] = &[
        (GROUP, "clusterroles"),
        (GROUP, "roles"),
        (GROUP, "clusterrolebindings"),
        (GROUP, "rolebindings"),
    ];

    fn apply(&mut self, resource: usize, change: Change) {
        let is_role = resource < 2;
        let is_cluster = resource.is_multiple_of(2);
        match (change, is_role) {
            (Change::Reset, true) => self.remove_all_roles(is_cluster),
            (Change::Reset, false) => self.remove_all_bindings(is_cluster),
            (Change::Put(role), true) => self.put_role(&role),
            (Change::Put(binding), false) => self.put_binding(&binding),
            (Change::Gone { namespace, name }, true) => self.remove_role(&namespace, &name),
            (Change::Gone { namespace, name }, false) => self.remove_binding(&namespace, &name),
        }
    }
}

/// Joins errors without duplicates: `[a, b]`; empty if there are none.
pub fn aggregate(errors: &[String]) -> String {
    let mut seen = SmallSet::new();
    let distinct: Vec<&str> =
        errors.iter().map(String::as_str).filter(|error| seen.insert(*error)).collect();
    match distinct.as_slice() {
        [] => String::new(),
        [one] => (*one).to_owned(),
        several => format!("[{}]", several.join(", ")),
    }
}
