//! [`KeyedMutex`]: an async mutex for each key.

use keelson_meta::Str;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::OwnedMutexGuard;

/// Number of keys from which unused ones are removed.
const KEYS_MAX: usize = 256;

/// A mutex for each key. Waiters are served in order.
#[derive(Default)]
pub(crate) struct KeyedMutex {
    by_key: Mutex<HashMap<Str, Arc<tokio::sync::Mutex<()>>>>,
}

/// Holds the mutex of a key until it is dropped.
pub(crate) type KeyGuard = OwnedMutexGuard<()>;

impl KeyedMutex {
    /// Locks the mutex of a key.
    pub async fn lock(&self, key: &Str) -> KeyGuard {
        self.mutex(key).lock_owned().await
    }

    fn mutex(&self, key: &Str) -> Arc<tokio::sync::Mutex<()>> {
        let mut by_key = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        if by_key.len() >= KEYS_MAX {
            by_key.retain(|_, mutex| Arc::strong_count(mutex) > 1);
        }
        by_key.entry(key.clone()).or_default().clone()
    }
}
