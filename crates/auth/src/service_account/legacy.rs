//! [`LegacyUses`]: the use of tokens that stand in Secrets, which is written to a label of the Secret once a
//! day.

use keelson_meta::{Object, Str, Timestamp};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use tokio::sync::Notify;

/// The day on which a legacy token was used last.
pub const LAST_USED_LABEL: &str = "kubernetes.io/legacy-token-last-used";
/// The day from which on a legacy token does not count any more.
pub const INVALID_SINCE_LABEL: &str = "kubernetes.io/legacy-token-invalid-since";
/// Secrets whose use is to be written; of more the use is written when they are used again.
const PENDING_MAX: usize = 1024;
const DAY_SECONDS: i64 = 86_400;

/// The day of a time as labels have it: `2026-01-31`.
pub fn day(now: Timestamp) -> String {
    now.text().chars().take_while(|c| *c != 'T').collect()
}

/// Secrets whose tokens were used today, and whose labels do not say so.
#[derive(Default)]
pub(super) struct LegacyUses {
    pending: Mutex<BTreeSet<(Str, Str)>>,
    added: Notify,
}

impl LegacyUses {
    /// Takes in that the token of a Secret was used.
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

    /// The next Secret, by namespace and name.
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
