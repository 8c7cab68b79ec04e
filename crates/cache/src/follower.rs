//! [`Follower`]: waits for changes of many resources.
//!
//! A cursor waits for one resource. A control loop needs all of them, including custom resources
//! that are added later, at no cost while nothing is written. A follower returns the resources that
//! have changed since its last call; the caller reads each with a [`Cursor`](crate::Cursor).

use crate::Resource;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::Notify;

/// Waits for changes of all resources, or of a set of them.
pub struct Follower(Arc<Inbox>);

/// Resources that have changed since the follower's last call.
#[derive(Default)]
struct Inbox {
    /// Key prefixes of the followed resources; `None`: all.
    wanted: Option<BTreeSet<Bytes>>,
    /// No duplicates.
    changed: Mutex<Vec<Arc<Resource>>>,
    wake: Notify,
}

impl Inbox {
    fn changed(&self) -> MutexGuard<'_, Vec<Arc<Resource>>> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mark_changed(&self, resource: &Arc<Resource>) {
        if self.wanted.as_ref().is_some_and(|wanted| !wanted.contains(resource.prefix())) {
            return;
        }
        let mut changed = self.changed();
        if !changed.iter().any(|other| Arc::ptr_eq(other, resource)) {
            changed.push(resource.clone());
            self.wake.notify_one();
        }
    }
}

impl Follower {
    /// Returns the resources that have changed since the last call.
    pub fn take(&mut self) -> Vec<Arc<Resource>> {
        std::mem::take(&mut self.0.changed())
    }

    /// Marks a resource as changed.
    pub(crate) fn mark_changed(&self, resource: &Arc<Resource>) {
        self.0.mark_changed(resource);
    }

    /// Waits until a resource has changed.
    pub async fn changed(&mut self) {
        while self.0.changed().is_empty() {
            self.0.wake.notified().await;
        }
    }
}

/// All followers of a cache.
#[derive(Default)]
pub(crate) struct Followers(Mutex<Vec<Weak<Inbox>>>);

impl Followers {
    /// Adds a follower of the resources with these prefixes; `None`: of all.
    pub fn add(&self, wanted: Option<BTreeSet<Bytes>>) -> Follower {
        let inbox = Arc::new(Inbox { wanted, ..Inbox::default() });
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(&inbox));
        Follower(inbox)
    }

    /// Marks a resource as changed for all followers.
    pub fn mark_changed(&self, resource: &Arc<Resource>) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for inbox in all.iter().filter_map(Weak::upgrade) {
            inbox.mark_changed(resource);
        }
    }
}
