//! Limits the number of open watches on a store to [`WATCHES_MAX`].

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{WATCHES_MAX, WatchError};

/// Counts the open watches of a store.
#[derive(Clone, Debug, Default)]
pub struct WatchSlots(Arc<AtomicUsize>);

/// Held by an open watch. Dropping it frees the slot.
#[derive(Debug)]
pub struct WatchSlot(Arc<AtomicUsize>);

impl WatchSlots {
    /// Takes a slot. Fails with [`WatchError::TooMany`] if [`WATCHES_MAX`] slots are taken.
    pub fn acquire(&self) -> Result<WatchSlot, WatchError> {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        // Its drop lowers the count again, also if the slot is refused below.
        let slot = WatchSlot(Arc::clone(&self.0));
        if before < WATCHES_MAX { Ok(slot) } else { Err(WatchError::TooMany) }
    }
}

impl Drop for WatchSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_slot_can_be_taken_again() {
        let slots = WatchSlots::default();
        let acquire = |_| slots.acquire().expect("a free slot");
        let mut taken: Vec<_> = (0..WATCHES_MAX).map(acquire).collect();
        for _ in 0..2 {
            assert!(matches!(slots.acquire(), Err(WatchError::TooMany)));
        }
        taken.pop();
        taken.push(slots.acquire().expect("a free slot"));
        assert!(matches!(slots.acquire(), Err(WatchError::TooMany)));
    }
}
