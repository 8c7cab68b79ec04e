//! The health of background components: the feed of the cache, the commit thread, control loops.
//! `/livez` and `/readyz` fail while one of them does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

/// The components that currently fail, with reasons. Updated by the owner of a component's task.
#[derive(Debug, Default)]
pub struct Health {
    /// The optional checks of this server.
    optional: Mutex<BTreeSet<&'static str>>,
    failing: Mutex<BTreeMap<&'static str, String>>,
}

impl Health {
    /// Lists a check of upstream that only some configurations have. It passes unless its component
    /// fails.
    pub fn list(&self, check: &'static str) {
        self.optional.lock().unwrap_or_else(PoisonError::into_inner).insert(check);
    }

    /// Whether this server has an optional check.
    pub fn is_listed(&self, check: &str) -> bool {
        self.optional.lock().unwrap_or_else(PoisonError::into_inner).contains(check)
    }

    /// Marks a component as failing. `why` is visible to every client that may read the health
    /// checks.
    pub fn fail(&self, component: &'static str, why: impl Into<String>) {
        self.failing().insert(component, why.into());
    }

    /// Marks a component as working again.
    pub fn recover(&self, component: &'static str) {
        self.failing().remove(component);
    }

    /// Returns the failing components with their reasons, ordered by name.
    pub fn failures(&self) -> Vec<(&'static str, String)> {
        self.failing().iter().map(|(name, why)| (*name, why.clone())).collect()
    }

    fn failing(&self) -> std::sync::MutexGuard<'_, BTreeMap<&'static str, String>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
