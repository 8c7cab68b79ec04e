//! [`LegacyUses`]: the use of legacy tokens, which is recorded in a label of their Secret once a
//! day.

use keelson_meta::{Object, Str, Timestamp};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use tokio::sync::Notify;

/// The label with the day of the last use of a legacy token.
pub const LAST_USED_LABEL: &str = "kubernetes.io/legacy-token-last-used";
/// The label with the day since which a legacy token is invalid.
pub const INVALID_SINCE_LABEL: &str = "kubernetes.io/legacy-token-invalid-since";
/// Maximum Secrets to be labelled; others are labelled on their next use.
const PENDING_MAX: usize = 1024;
const DAY_SECONDS: i64 = 86_400;

/// Formats the day of a time for labels: `2026-01-31`.
pub fn day(now: Timestamp) -> String {
    now.text().chars().take_while(|c| *c != 'T').collect()
}

/// Secrets whose tokens were used today and whose labels are not updated yet.
#[derive(Default)]
pub(super) struct LegacyUses {
    pending: Mutex<BTreeSet<(Str, Str)>>,
    added: Notify,
}

impl LegacyUses {
    /// Records the use of a Secret's token.
    pub fn add(&self, secret: &Object, now: Timestamp) {
        let used = secret.label(LAST_USED_LABEL).unwrap_or_default();
        // Clocks of several servers may differ around midnight.
        let tomorrow = Timestamp::new(now.seconds + DAY_SECONDS, 0);
        if used == day(now) || used == day(tomorrow) {
            return;
        }
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if pending.len() < PENDING_MAX {
            pending.insert((secret.namespace().into(), secret.name().into()));
            self.added.notify_one();
        }
    }

    /// Returns the next Secret (namespace, name).
    pub async fn next(&self) -> (Str, Str) {
        loop {
            let next = self.pending.lock().unwrap_or_else(PoisonError::into_inner).pop_first();
            match next {
                Some(next) => return next,
                None => self.added.notified().await,
            }
        }
    }
}
