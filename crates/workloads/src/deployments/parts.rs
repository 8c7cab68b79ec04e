//! [`Rollout`]: one sync of one Deployment, with the writes that all its steps make.

use super::annotations::set_sizes;
use super::replica_set::replicas;
use super::{Deployments, Kinds};
use crate::pod_control::PodControl;
use crate::stored;
use keelson_meta::{Failure, Map, Object};
use keelson_registry::{Subresource, Target};

/// One sync of one Deployment.
pub(super) struct Rollout<'a> {
    pub control: &'a PodControl,
    pub of: &'a Deployments,
    pub kinds: Kinds,
    /// As it is stored, also after the writes of this sync.
    pub deployment: Object,
    /// Its ReplicaSets.
    pub sets: Vec<Object>,
}

/// The new ReplicaSet, if there is one, and the others.
#[derive(Clone)]
pub(super) struct Split {
    pub new: Option<Object>,
    pub old: Vec<Object>,
}

impl Rollout<'_> {
    /// Writes a status and takes over what is stored.
    pub(super) async fn write_status(&mut self, status: Map) -> Result<(), Failure> {
        let client = &self.control.client;
        let kind = &self.kinds.deployments;
        let written = stored::write_status(client, kind, &self.deployment, status).await?;
        self.deployment = written.ok_or_else(|| self.target().not_found())?;
        Ok(())
    }

    fn target(&self) -> Target {
        let namespace = self.deployment.namespace();
        let name = self.deployment.name();
        Target::of(&self.kinds.deployments, namespace, name)
    }

    /// Sets the size of a ReplicaSet; with `is_forced`, its record of the size of the Deployment
    /// too. Returns whether it was scaled, and the ReplicaSet as it is stored.
    pub(super) async fn set_size(
        &self,
        set: &Object,
        size: i64,
        is_forced: bool,
    ) -> Result<(bool, Object), Failure> {
        let before = replicas(set);
        let mut changed = set.clone();
        if before == size && !is_forced {
            return Ok((false, changed));
        }
        let is_other = set_sizes(&mut changed, &self.deployment);
        if before == size && !is_other {
            return Ok((false, changed));
        }
        changed.object_mut("spec").insert("replicas", size);
        let target = Target::of(&self.kinds.sets, set.namespace(), set.name());
        let written = self.control.client.update(&target, Subresource::None, changed).await?;
        if before != size {
            let way = if before < size { "up" } else { "down" };
            let name = set.name();
            let message = format!("Scaled {way} replica set {name} from {before} to {size}");
            self.control.event(&self.deployment, "Normal", "ScalingReplicaSet", &message);
        }
        Ok((before != size, written))
    }
}
