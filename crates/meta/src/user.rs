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
    /// Extra attributes: name and values.
    pub extra: Vec<(Str, Vec<Str>)>,
}

impl User {
    /// Returns whether the user is in `group`.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }

    /// Returns the user with `group` added.
    #[must_use]
    pub fn with_group(mut self, group: &'static str) -> User {
        if !self.is_in(group) {
            let groups = self.groups.iter().cloned();
            self.groups = groups.chain([Str::new_static(group)]).collect();
        }
        self
    }
}
