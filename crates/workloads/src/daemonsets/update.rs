//! [`Update`]: one sync of one DaemonSet.

use super::placement::Node;
use super::{DaemonSets, Kinds};
use keelson_meta::selector::Selector;
use keelson_meta::{Object, Timestamp};
use keelson_registry::Target;
use std::sync::Arc;

/// One sync of one set.
pub(super) struct Update<'a> {
    pub of: &'a DaemonSets,
    pub kinds: Kinds,
    pub set: Object,
    pub selector: Selector,
    pub nodes: Vec<Arc<Node>>,
    pub now: Timestamp,
}

impl Update<'_> {
    /// Returns where the set is stored.
    pub(super) fn target(&self) -> Target {
        Target::of(&self.kinds.sets, self.set.namespace(), self.set.name())
    }
}
