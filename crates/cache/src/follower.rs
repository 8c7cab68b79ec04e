//! [`Follower`]: one place to wait for changes of many resources.
//!
//! A cursor waits for one resource. A control loop is concerned with all of them, also with custom resources
//! that come later, and must cost nothing while nothing is written. A follower is given the resources that
//! have changed since it asked last, and reads each with a [`Cursor`](crate::Cursor) of its own.

use crate::Resource;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::Notify;

/// Waits for changes of all resources, or of some.
pub struct Follower(Arc<Inbox>);

/// Resources that have changed since their follower looked.
#[derive(Default)]
struct Inbox {
    /// Prefixes of the keys of the resources that are followed; none: all of them.
    wanted: Option<BTreeSet<Bytes>>,
    /// Each at most once.
    changed: Mutex<Vec<Arc<Resource>>>,
    wake: Notify,
}

impl Inbox {
    fn changed(&self) -> MutexGuard<'_, Vec<Arc<Resource>>> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, resource: &Arc<Resource>) {
        if self.wanted.as_ref().is_some_and(|wanted| !wanted.contains(resource.prefix())) {
            return;
        }
        let mut changed = self.changed();
        if !changed.iter().any(|noted| Arc::ptr_eq(noted, resource)) {
            changed.push(resource.clone());
            self.wake.notify_one();
        }
    }
}

impl Follower {
    /// The resources that have changed since the last call.
    pub fn take(&mut self) -> Vec<Arc<Resource>> {
        std::mem::take(&mut self.0.changed())
    }

    /// Counts a resource as changed.
    pub(crate) fn note(&self, resource: &Arc<Resource>) {
        self.0.note(resource);
    }

    /// Waits until a resource has changed.
    pub async fn changed(&mut self) {
        while self.0.changed().is_empty() {
            self.0.wake.notified().await;
        }
    }
}

/// The followers of a cache.
#[derive(Default)]
pub(crate) struct Followers(Mutex<Vec<Weak<Inbox>>>);

impl Followers {
    /// A further follower, of all resources or of those with these prefixes.
    pub fn add(&self, wanted: Option<BTreeSet<Bytes>>) -> Follower {
        let inbox = Arc::new(Inbox { wanted, ..Inbox::default() });
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(&inbox));
        Follower(inbox)
    }

    /// Tells all followers that a resource has changed.
    pub fn note(&self, resource: &Arc<Resource>) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for inbox in all.iter().filter_map(Weak::upgrade) {
            inbox.note(resource);
        }
    }
}
