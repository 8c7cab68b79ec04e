//! [`publish`]: sets a watch channel's value cheaply when nobody waits. [`Applied`]: a revision
//! that is read much more often than it is waited for.

use keelson_store::Revision;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::watch;

/// The revision up to which all events of a store are applied.
pub(crate) struct Applied {
    /// The same as in `sender`, whose lock all requests would take several times.
    newest: AtomicU64,
    sender: watch::Sender<Revision>,
}

impl Applied {
    pub fn new(at: Revision) -> Applied {
        Applied { newest: AtomicU64::new(at.0), sender: watch::Sender::new(at) }
    }

    pub fn get(&self) -> Revision {
        Revision(self.newest.load(Ordering::Acquire))
    }

    /// Sets the revision, when its events can be read.
    pub fn set(&self, at: Revision) {
        self.newest.store(at.0, Ordering::Release);
        publish(&self.sender, at);
    }

    pub fn subscribe(&self) -> watch::Receiver<Revision> {
        self.sender.subscribe()
    }
}

/// Sets the value and wakes the receivers. Waking without receivers would still cost about 400
/// instructions a change. A receiver that subscribes concurrently and reads the value before it
/// waits misses nothing: either it reads the new value, or it subscribed in time to be woken.
pub(crate) fn publish<T>(sender: &watch::Sender<T>, value: T) {
    sender.send_if_modified(|current| {
        *current = value;
        sender.receiver_count() > 0
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_applied_revision_is_read_and_waited_for() {
        let applied = Applied::new(Revision(3));
        let mut receiver = applied.subscribe();
        let waiting = receiver.wait_for(|at| *at == Revision(5));
        applied.set(Revision(5));
        assert_eq!(applied.get(), Revision(5));
        assert!(waiting.await.is_ok());
        // A store may be restored to an earlier revision.
        applied.set(Revision(2));
        assert_eq!((applied.get(), *applied.subscribe().borrow()), (Revision(2), Revision(2)));
    }

    #[tokio::test]
    async fn receivers_are_woken_and_later_receivers_get_the_value() {
        let sender = watch::Sender::new(0);
        publish(&sender, 1);
        let mut receiver = sender.subscribe();
        assert_eq!(*receiver.borrow(), 1);
        let woken =
            tokio::spawn(async move { receiver.wait_for(|value| *value == 2).await.is_ok() });
        tokio::task::yield_now().await;
        publish(&sender, 2);
        assert!(woken.await.expect("the task ends"));
    }
}
