//! Access to stored objects for authorizers and authenticators; implemented by the registry.

use keelson_meta::{Failure, Object, Str};
use std::pin::Pin;

/// Group and resource.
pub type GroupResource = (&'static str, &'static str);

/// A boxed future, for rare calls.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The stored objects, as in the watch cache.
pub trait Objects: Send + Sync {
    /// Returns a revision that increases with every readable write.
    fn revision(&self) -> u64;

    /// Waits until every write that this process acknowledged is readable; `None`: it already is.
    fn lag(&self) -> Option<BoxFuture<Result<(), Failure>>>;

    /// Waits until everything in the store is readable, including writes of other processes.
    fn latest(&self) -> BoxFuture<Result<(), Failure>>;

    /// Follows some resources. The first [`Feed::take`] returns all their objects.
    fn follow(&self, resources: &'static [GroupResource]) -> Box<dyn Feed>;

    /// Returns the revision of an object's last write; `None` when it does not exist or cannot be
    /// read.
    fn modified(&self, resource: GroupResource, namespace: &str, name: &str) -> Option<u64>;

    /// Returns an object in its storage version.
    fn get(
        &self,
        resource: GroupResource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Object>, Failure>;

    /// Returns the objects of a namespace with a label, in their storage version.
    fn labelled(
        &self,
        resource: GroupResource,
        namespace: &str,
        label: (&str, &str),
    ) -> Result<Vec<Object>, Failure>;
}

/// The changes of some resources, in order within each.
pub trait Feed: Send {
    /// Appends the changes since the last call, each with the index of its resource. After an
    /// error, changes may be missing.
    fn take(&mut self, out: &mut Vec<(usize, Change)>) -> Result<(), Failure>;
}

/// A change of a followed resource.
#[derive(Clone, Debug)]
pub enum Change {
    /// Drop all objects of the resource; the existing ones follow.
    Reset,
    /// An object was created or updated.
    Put(Object),
    /// An object was deleted or became unreadable.
    Gone {
        /// Its namespace, or empty.
        namespace: Str,
        /// Its name.
        name: Str,
    },
}
