//! Objects that authorizers and authenticators read; implemented by the registry.

use keelson_meta::{Failure, Object, Str};
use std::pin::Pin;

/// Group and resource.
pub type GroupResource = (&'static str, &'static str);

/// A future in a box, for what is done seldom.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The stored objects, as the watch cache has them.
pub trait Objects: Send + Sync {
    /// Grows with every write that can be read.
    fn revision(&self) -> u64;

    /// Waits until every write that this process has acknowledged can be read; `None`: it already can.
    fn lag(&self) -> Option<BoxFuture<Result<(), Failure>>>;

    /// Waits for everything that is stored, by whomever.
    fn latest(&self) -> BoxFuture<Result<(), Failure>>;

    /// Follows the objects of some resources. The first [`Feed::take`] gives all of them.
    fn follow(&self, resources: &'static [GroupResource]) -> Box<dyn Feed>;

    /// The revision at which an object was written last; `None` when it is not there or cannot be read.
    fn modified(&self, resource: GroupResource, namespace: &str, name: &str) -> Option<u64>;

    /// One object, in its storage version.
    fn get(
        &self,
        resource: GroupResource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Object>, Failure>;

    /// The objects of a namespace that have a label, in their storage version.
    fn labelled(
        &self,
        resource: GroupResource,
        namespace: &str,
        label: (&str, &str),
    ) -> Result<Vec<Object>, Failure>;
}

/// The changes of some resources, in order within each.
pub trait Feed: Send {
    /// Appends the changes since the last call, each with the index of its resource. An error means that
    /// changes may be missing.
    fn take(&mut self, out: &mut Vec<(usize, Change)>) -> Result<(), Failure>;
}

/// A change of a resource that is followed.
#[derive(Clone, Debug)]
pub enum Change {
    /// All objects of the resource are to be forgotten; those that there are follow.
    Reset,
    /// An object is new or has changed.
    Put(Object),
    /// An object is gone, or cannot be read any more.
    Gone {
        /// Its namespace, or empty.
        namespace: Str,
        /// Its name.
        name: Str,
    },
}
