//! [`Mirror`]: an index that is kept from the changes of some resources.

use crate::{Change, Feed, GroupResource, Objects};
use keelson_meta::{Failure, Status};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};

/// The state of a [`Mirror`].
pub trait Mirrored: Default {
    /// The resources that it is made of.
    const RESOURCES: &'static [GroupResource];

    /// Takes in a change of `RESOURCES[resource]`.
    fn apply(&mut self, resource: usize, change: Change);
}

/// An index that takes in all that was written before it is read. Changes are taken in by whoever asks.
#[derive(Default)]
pub struct Mirror<I> {
    index: RwLock<I>,
    /// The revision up to which `index` has taken changes in.
    seen: AtomicU64,
    feed: Mutex<Option<Box<dyn Feed>>>,
    objects: OnceLock<Arc<dyn Objects>>,
}

impl<I: Mirrored> Mirror<I> {
    /// Lets it follow its resources. Before this it cannot be read.
    pub fn attach(&self, objects: Arc<dyn Objects>) {
        *self.feed() = Some(objects.follow(I::RESOURCES));
        let _ = self.objects.set(objects);
    }

    /// Takes in all that was written before the call. Until this succeeds nothing may be decided by it.
    pub async fn current(&self) -> Result<(), Failure> {
        let Some(objects) = self.objects.get() else { return Err(not_loaded()) };
        if let Some(lag) = objects.lag() {
            lag.await?;
        }
        self.take_in(objects.revision())
    }

    /// The index as it is, for reads after [`Mirror::current`].
    pub fn index(&self) -> RwLockReadGuard<'_, I> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_in(&self, revision: u64) -> Result<(), Failure> {
        if self.seen.load(Ordering::Acquire) >= revision && revision != 0 {
            return Ok(());
        }
        let mut feed = self.feed();
        let Some(feed) = feed.as_mut() else { return Err(not_loaded()) };
        let mut changes = vec![];
        let taken = feed.take(&mut changes);
        if !changes.is_empty() {
            let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
            for (resource, change) in changes {
                index.apply(resource, change);
            }
        }
        taken?;
        self.seen.fetch_max(revision, Ordering::AcqRel);
        Ok(())
    }

    fn feed(&self) -> MutexGuard<'_, Option<Box<dyn Feed>>> {
        self.feed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn not_loaded() -> Failure {
    Status::unavailable("the objects that decide are not loaded yet")
}
