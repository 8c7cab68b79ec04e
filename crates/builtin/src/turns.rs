//! [`Turns`]: writes that must follow one another, by name.

use keelson_meta::Str;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::OwnedMutexGuard;

/// Names after which those that nobody waits for are forgotten.
const NAMES_MAX: usize = 256;

/// One turn at a time for each name. Those who wait are served in order.
#[derive(Default)]
pub(crate) struct Turns {
    by_name: Mutex<HashMap<Str, Arc<tokio::sync::Mutex<()>>>>,
}

/// A turn, which ends when this is dropped.
pub(crate) type Turn = OwnedMutexGuard<()>;

impl Turns {
    /// Waits for the turn of a name.
    pub async fn take(&self, name: &Str) -> Turn {
        self.of(name).lock_owned().await
    }

    fn of(&self, name: &Str) -> Arc<tokio::sync::Mutex<()>> {
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        if by_name.len() >= NAMES_MAX {
            by_name.retain(|_, turn| Arc::strong_count(turn) > 1);
        }
        by_name.entry(name.clone()).or_default().clone()
    }
}
