//! [`WatchedIndex`]: an index of some resources that is kept current by their changes.

use crate::{Change, Feed, GroupResource, Objects};
use keelson_meta::{Failure, Status};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};

/// An index that a [`WatchedIndex`] keeps current.
pub trait Indexer: Default {
    /// The resources of the index.
    const RESOURCES: &'static [GroupResource];

    /// Applies a change of `RESOURCES[resource]`.
    fn apply(&mut self, resource: usize, change: Change);
}

/// An index that is brought up to date before each read, by the reader.
#[derive(Default)]
pub struct WatchedIndex<I> {
    index: RwLock<I>,
    /// The revision up to which changes were applied to `index`.
    applied: AtomicU64,
    feed: Mutex<Option<Box<dyn Feed>>>,
    objects: OnceLock<Arc<dyn Objects>>,
}

impl<I: Indexer> WatchedIndex<I> {
    /// Starts following the resources. Before this, reads fail.
    pub fn attach(&self, objects: Arc<dyn Objects>) {
        *self.feed() = Some(objects.follow(I::RESOURCES));
        let _ = self.objects.set(objects);
    }

    /// Applies everything that was written before the call. If this fails, the index must not be
    /// used.
    pub async fn current(&self) -> Result<(), Failure> {
        let Some(objects) = self.objects.get() else { return Err(not_loaded_failure()) };
        if let Some(lag) = objects.lag() {
            lag.await?;
        }
        self.catch_up(objects.revision())
    }

    /// Returns the index, for reads after [`WatchedIndex::current`].
    pub fn index(&self) -> RwLockReadGuard<'_, I> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn catch_up(&self, revision: u64) -> Result<(), Failure> {
        if self.applied.load(Ordering::Acquire) >= revision && revision != 0 {
            return Ok(());
        }
        let mut feed = self.feed();
        let Some(feed) = feed.as_mut() else { return Err(not_loaded_failure()) };
        let mut changes = vec![];
        let taken = feed.take(&mut changes);
        if !changes.is_empty() {
            let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
            for (resource, change) in changes {
                index.apply(resource, change);
            }
        }
        taken?;
        self.applied.fetch_max(revision, Ordering::AcqRel);
        Ok(())
    }

    fn feed(&self) -> MutexGuard<'_, Option<Box<dyn Feed>>> {
        self.feed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn not_loaded_failure() -> Failure {
    Status::unavailable("the objects that decide are not loaded yet")
}
