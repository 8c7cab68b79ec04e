//! Why a node is not allowed for the volumes of a pod.

use super::cluster::View;
use super::node::Node;
use super::pod::Pod;
use super::volumes::{Claim, VolumeCheck};
use keelson_meta::Str;

/// Why a node is not allowed, in the order in which it is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeConflict {
    Exclusive,
    TooMany,
    Binding(Vec<&'static str>),
    Zone,
}

impl VolumeCheck<'_> {
    /// Returns why a node is not allowed.
    pub fn conflict(&self, view: View<'_>, pod: &Pod, node: &Node) -> Option<VolumeConflict> {
        let volumes = &view.cluster.volumes;
        let uses = |other: &Pod, name: &Str| {
            other.key.0 == pod.key.0 && other.volumes.claims.iter().any(|(one, _)| one == name)
        };
        let is_taken =
            |name: &Str| view.nodes().any(|node| node.pods.iter().any(|other| uses(other, name)));
        if self.exclusive.iter().any(is_taken) {
            return Some(VolumeConflict::Exclusive);
        }
        if self.exceeds_limits(volumes, pod, node) {
            return Some(VolumeConflict::TooMany);
        }
        if let Err(reasons) = self.bindings(volumes, node) {
            return Some(VolumeConflict::Binding(reasons));
        }
        let is_elsewhere = |claim: &&Claim| {
            volumes.volumes.get(&claim.volume).is_some_and(|volume| !volume.is_in_zone(node))
        };
        self.bound.iter().any(is_elsewhere).then_some(VolumeConflict::Zone)
    }
}
