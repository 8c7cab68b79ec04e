//! [`User`]: the identity of whoever sent a request.

use crate::Str;
use std::sync::Arc;

/// The identity of whoever sent a request (upstream's `user.Info`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// User name.
    pub name: Str,
    /// Unique id, or empty.
    pub uid: Str,
    /// Groups, `system:authenticated` included.
    pub groups: Arc<[Str]>,
    /// Further facts: name and values.
    pub extra: Vec<(Str, Vec<Str>)>,
}

impl User {
    /// Whether the user is in `group`.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }

    /// The same user, in `group` too.
    #[must_use]
    pub fn with_group(mut self, group: &'static str) -> User {
        if !self.is_in(group) {
            let groups = self.groups.iter().cloned();
            self.groups = groups.chain([Str::new_static(group)]).collect();
        }
        self
    }
}
