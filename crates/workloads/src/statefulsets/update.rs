//! [`Update`]: one sync of one StatefulSet.

use super::{Kinds, StatefulSets};
use keelson_meta::{Object, Timestamp};

/// One sync of one set.
pub(super) struct Update<'a> {
    pub of: &'a StatefulSets,
    pub kinds: Kinds,
    pub set: Object,
    /// Its pods.
    pub pods: Vec<Object>,
    pub now: Timestamp,
}
