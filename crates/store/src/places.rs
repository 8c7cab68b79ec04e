//! Places for the watches of a store, of which there are only so many.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{WATCHES_MAX, WatchError};

/// How many watches of a store are open.
#[derive(Clone, Debug, Default)]
pub struct WatchPlaces(Arc<AtomicUsize>);

/// A watch counts for as long as it holds this.
#[derive(Debug)]
pub struct WatchPlace(Arc<AtomicUsize>);

impl WatchPlaces {
    /// A place, as long as there is one.
    pub fn take(&self) -> Result<WatchPlace, WatchError> {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        // Counts until it is dropped, here or there.
        let place = WatchPlace(Arc::clone(&self.0));
        if before < WATCHES_MAX { Ok(place) } else { Err(WatchError::TooMany) }
    }
}

impl Drop for WatchPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_is_given_back_is_the_next_ones() {
        let places = WatchPlaces::default();
        let mut taken: Vec<_> = (0..WATCHES_MAX).map(|_| places.take().expect("a place")).collect();
        for _ in 0..2 {
            assert!(matches!(places.take(), Err(WatchError::TooMany)));
        }
        taken.pop();
        taken.push(places.take().expect("there is one"));
        assert!(matches!(places.take(), Err(WatchError::TooMany)));
    }
}
