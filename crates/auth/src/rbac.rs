//! Role-based access control: [`Rbac`] decides by an index of roles and bindings that is kept from their
//! watches.

mod describe;
mod escalation;
mod index;
mod rule;

pub use crate::grant::{Binding, Grant, RoleKind, RoleRef, Subject, SubjectKind};
pub use escalation::{CLUSTER_ADMIN_NEEDED, covers, escalation_message, full_authority, uncovered};
pub use index::{Index, RoleError};
pub use rule::{Rule, rules_of};

use crate::mirror::{Mirror, Mirrored};
use crate::{Attributes, Change, Decision, GroupResource, Objects, User};
use keelson_meta::{Failure, SmallSet};
use std::sync::{Arc, RwLockReadGuard};

/// The API group of roles and bindings.
pub const GROUP: &str = "rbac.authorization.k8s.io";

/// The RBAC authorizer. A decision takes in what was written before it was asked, so that a binding counts
/// as soon as its write was acknowledged.
#[derive(Default)]
pub struct Rbac {
    mirror: Mirror<Index>,
}

impl Rbac {
    /// Lets it read roles and bindings.
    pub fn attach(&self, objects: Arc<dyn Objects>) {
        self.mirror.attach(objects);
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
        self.mirror.current().await
    }

    /// The index as it is, for reads after [`Rbac::current`].
    pub fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.mirror.index()
    }
}

impl Mirrored for Index {
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
            (Change::Reset, true) => self.forget_roles(is_cluster),
            (Change::Reset, false) => self.forget_bindings(is_cluster),
            (Change::Put(role), true) => self.put_role(&role),
            (Change::Put(binding), false) => self.put_binding(&binding),
            (Change::Gone { namespace, name }, true) => self.remove_role(&namespace, &name),
            (Change::Gone { namespace, name }, false) => self.remove_binding(&namespace, &name),
        }
    }
}

/// Several errors in one, each once: `[a, b]`; none is empty.
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
