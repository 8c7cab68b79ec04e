//! The health of the parts of the server that nobody asks anything of: the feed of the cache, the commit
//! thread, control loops. `/livez` and `/readyz` fail while one of them does.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Which components fail at present, and why. Written by whoever owns a component's task.
#[derive(Debug, Default)]
pub struct Health {
    failing: Mutex<BTreeMap<&'static str, String>>,
}

impl Health {
    /// The component fails from now on. `why` is shown to everyone who may ask for the health.
    pub fn fail(&self, component: &'static str, why: impl Into<String>) {
        self.failing().insert(component, why.into());
    }

    /// The component works again.
    pub fn recover(&self, component: &'static str) {
        self.failing().remove(component);
    }

    /// The components that fail at present, with the reasons, ordered by name.
    pub fn failures(&self) -> Vec<(&'static str, String)> {
        self.failing().iter().map(|(name, why)| (*name, why.clone())).collect()
    }

    fn failing(&self) -> std::sync::MutexGuard<'_, BTreeMap<&'static str, String>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
