//! [`Reports`]: when simulated nodes renew their leases next.

use keelson_meta::{Str, Timestamp};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// When each node that has power renews its lease next. Whoever judges nodes after a step of the
/// clock waits until those that must report have done so.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    next: Mutex<HashMap<Str, Timestamp>>,
}

impl Reports {
    fn next(&self) -> MutexGuard<'_, HashMap<Str, Timestamp>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A node has reported, and does so again at a time.
    pub fn set(&self, node: &str, next: Timestamp) {
        self.next().insert(node.into(), next);
    }

    /// A node reports no more.
    pub fn remove(&self, node: &str) {
        self.next().remove(node);
    }

    /// Whether a node had to report before a time and has not yet.
    pub fn any_due(&self, by: Timestamp) -> bool {
        self.next().values().any(|next| *next < by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_due_until_it_has_reported_or_has_no_power() {
        let time = |text: &str| Timestamp::parse(text).expect("a time");
        let early = time("2026-01-01T00:00:00Z");
        let late = time("2026-01-02T00:00:00Z");
        let reports = Reports::default();
        reports.set("a", early);
        reports.set("b", early);
        assert!(reports.any_due(late));
        reports.set("a", late);
        assert!(reports.any_due(late));
        reports.remove("b");
        assert!(!reports.any_due(late));
    }
}
