//! The steps of one sync of a Deployment.

use super::parts::{Rollout, Split};
use super::replica_set::{
    by_age, by_revision, by_size_newer, by_size_older, counted, desired_replicas, replicas,
    sum_counted, sum_replicas,
};
use super::strategy::{is_rolling, max_unavailable, missing, new_size, proportional_sizes};
use super::{annotations, status};
use crate::stored;
use keelson_meta::{Failure, Object, Reason, Status, Value};
use keelson_registry::Target;
use keelson_registry::options::DeleteOptions;
use std::time::Duration;

impl Rollout<'_> {
    /// Runs the steps and returns when the Deployment is looked at again.
    pub async fn sync(&mut self) -> Result<Option<Duration>, Failure> {
        if self.deployment.deletion_timestamp().is_some() {
            let split = self.split(false).await?;
            return self.write_numbers(&split).await;
        }
        self.note_pause().await?;
        let is_paused =
            self.deployment.at(&["spec", "paused"]).and_then(Value::as_bool).unwrap_or(false);
        if is_paused {
            return self.resize(is_paused).await;
        }
        if annotations::rollback_to(&self.deployment).is_some() {
            return self.roll_back().await;
        }
        if self.is_resized().await? {
            return self.resize(is_paused).await;
        }
        match self.deployment.str_at(&["spec", "strategy", "type"]) {
            "Recreate" => self.recreate().await,
            "RollingUpdate" => self.roll().await,
            other => {
                let why = format!("unexpected deployment strategy type: {other}");
                Err(Status::new(Reason::Unknown, why))
            }
        }
    }

    /// Writes the numbers without judging the progress.
    async fn write_numbers(&mut self, split: &Split) -> Result<Option<Duration>, Failure> {
        let now = self.control.client.now();
        let status = status::numbers(&self.deployment, split.new.as_ref(), &split.old, now);
        self.write_status(status).await?;
        Ok(None)
    }

    /// Writes the status of a rollout.
    async fn write_progress(&mut self, split: &Split) -> Result<Option<Duration>, Failure> {
        let now = self.control.client.now();
        let status = status::rollout(&self.deployment, split.new.as_ref(), &split.old, now);
        let again = status::next_check(&self.deployment, now);
        if self.deployment.get("status").and_then(Value::as_object) == Some(&status) {
            return Ok(again);
        }
        self.write_status(status).await?;
        Ok(None)
    }

    /// Reports that a Deployment is paused or resumed, so that the pause does not count as a lack
    /// of progress.
    async fn note_pause(&mut self) -> Result<(), Failure> {
        if status::deadline(&self.deployment).is_none() {
            return Ok(());
        }
        let mut new = stored::status(&self.deployment);
        let known = stored::condition(&new, status::PROGRESSING);
        let reason = known.and_then(|known| known.str_at(&["reason"])).unwrap_or_default();
        let is_paused = self.deployment.at(&["spec", "paused"]) == Some(&Value::Bool(true));
        let facts = match (is_paused, reason) {
            (_, status::TIMED_OUT) | (true, "DeploymentPaused") => return Ok(()),
            (true, _) => ("Unknown", "DeploymentPaused", "Deployment is paused"),
            (false, "DeploymentPaused") => {
                ("Unknown", "DeploymentResumed", "Deployment is resumed")
            }
            (false, _) => return Ok(()),
        };
        status::set_condition(&mut new, status::PROGRESSING, facts, self.control.client.now());
        self.write_status(new).await
    }

    /// Whether the size was changed since the ReplicaSets were sized.
    async fn is_resized(&mut self) -> Result<bool, Failure> {
        let split = self.split(false).await?;
        let desired = replicas(&self.deployment);
        let mut active = split.old.iter().chain(&split.new).filter(|set| replicas(set) > 0);
        Ok(active.any(|set| desired_replicas(set).is_some_and(|known| known != desired)))
    }

    /// Brings the ReplicaSets to the size of the Deployment without going on with the rollout.
    async fn resize(&mut self, is_paused: bool) -> Result<Option<Duration>, Failure> {
        let mut split = self.split(false).await?;
        self.scale(&mut split).await?;
        if is_paused && annotations::rollback_to(&self.deployment).is_none() {
            self.clean_up(&split.old).await?;
        }
        self.write_numbers(&split).await
    }

    async fn scale(&mut self, split: &mut Split) -> Result<(), Failure> {
        split.old.sort_by(|one, other| by_age(other, one));
        let desired = replicas(&self.deployment);
        let is_active = |set: &&Object| replicas(set) > 0;
        let all = split.old.iter().chain(&split.new);
        let mut active: Vec<Object> = all.filter(is_active).cloned().collect();
        let single = match active.len() {
            0 => split.new.clone().or_else(|| split.old.first().cloned()),
            1 => active.pop(),
            _ => None,
        };
        if let Some(single) = single {
            return self.set_size(&single, desired, false).await.map(drop);
        }
        if split.new.as_ref().is_some_and(|new| self.is_saturated(new)) {
            for set in split.old.iter().filter(is_active) {
                self.set_size(set, 0, false).await?;
            }
            return Ok(());
        }
        if !is_rolling(&self.deployment) {
            return Ok(());
        }
        let to_add = missing(&self.deployment, &active);
        match to_add {
            0 => {}
            1.. => active.sort_by(by_size_newer),
            _ => active.sort_by(by_size_older),
        }
        let sizes = proportional_sizes(&self.deployment, &active, to_add);
        for (set, size) in active.iter().zip(sizes) {
            self.set_size(set, size, true).await?;
        }
        Ok(())
    }

    /// Whether all desired pods are of the new ReplicaSet, as both objects say.
    fn is_saturated(&self, new: &Object) -> bool {
        let desired = replicas(&self.deployment);
        replicas(new) == desired
            && desired_replicas(new) == Some(desired)
            && counted(new, "availableReplicas") == desired
    }

    /// Goes on with a rolling update.
    async fn roll(&mut self) -> Result<Option<Duration>, Failure> {
        let mut split = self.split(true).await?;
        let Some(new) = split.new.clone() else { return Ok(None) };
        let desired = replicas(&self.deployment);
        let size = replicas(&new);
        let wanted = if size > desired {
            desired
        } else if size < desired {
            new_size(&self.deployment, split.old.iter().chain([&new]), size)
        } else {
            size
        };
        let is_scaled = self.set_size(&new, wanted, false).await?.0;
        if !is_scaled && !self.shrink_old(&mut split, &new).await? {
            let status = stored::status(&self.deployment);
            if status::is_complete(&self.deployment, &status) {
                self.clean_up(&split.old).await?;
            }
        }
        self.write_progress(&split).await
    }

    /// Removes as many old pods as may be unavailable, first those that are unavailable already.
    async fn shrink_old(&mut self, split: &mut Split, new: &Object) -> Result<bool, Failure> {
        let mut old: Vec<Object> =
            split.old.iter().filter(|set| replicas(set) > 0).cloned().collect();
        if old.is_empty() {
            return Ok(false);
        }
        let all = sum_replicas(split.old.iter().chain([new]));
        let least = replicas(&self.deployment) - max_unavailable(&self.deployment);
        let new_unavailable = replicas(new) - counted(new, "availableReplicas");
        let most = all - least - new_unavailable;
        if most <= 0 {
            return Ok(false);
        }
        old.sort_by(by_age);
        // A write that fails leaves the rest to the next sync, which the change of an object
        // causes.
        let Ok(removed) = self.shrink_unavailable(&mut old, most).await else { return Ok(false) };
        let available = sum_counted(old.iter().chain([new]), "availableReplicas");
        let Ok(more) = self.shrink_available(&old, available - least).await else {
            return Ok(false);
        };
        Ok(removed + more > 0)
    }

    async fn shrink_unavailable(&self, old: &mut [Object], most: i64) -> Result<i64, Failure> {
        let mut removed = 0;
        for set in old {
            let unavailable = replicas(set) - counted(set, "availableReplicas");
            let count = unavailable.min(most - removed);
            if count > 0 {
                *set = self.set_size(set, replicas(set) - count, false).await?.1;
                removed += count;
            }
        }
        Ok(removed)
    }

    async fn shrink_available(&self, old: &[Object], most: i64) -> Result<i64, Failure> {
        let mut removed = 0;
        for set in old {
            let count = replicas(set).min(most - removed);
            if count > 0 {
                self.set_size(set, replicas(set) - count, false).await?;
                removed += count;
            }
        }
        Ok(removed)
    }

    /// Goes on with a recreation: new pods are created when the old ones are gone.
    async fn recreate(&mut self) -> Result<Option<Duration>, Failure> {
        let mut split = self.split(false).await?;
        let mut is_scaled = false;
        for set in split.old.iter_mut().filter(|set| replicas(set) > 0) {
            let (scaled, written) = self.set_size(set, 0, false).await?;
            if scaled {
                // The status counts with the sizes before.
                drop(written);
                is_scaled = true;
            }
        }
        let has_old_pods = || {
            Ok::<bool, Failure>(
                sum_counted(&split.old, "replicas") > 0
                    || self.of.has_old_pods(&self.sets, split.new.as_ref())?,
            )
        };
        if is_scaled || has_old_pods()? {
            return self.write_progress(&split).await;
        }
        if split.new.is_none() {
            split = self.split(true).await?;
        }
        if let Some(new) = &split.new {
            self.set_size(new, replicas(&self.deployment), false).await?;
        }
        let status = stored::status(&self.deployment);
        if status::is_complete(&self.deployment, &status) {
            self.clean_up(&split.old).await?;
        }
        self.write_progress(&split).await
    }

    /// Deletes the oldest of the ReplicaSets that are kept for rollbacks.
    async fn clean_up(&self, old: &[Object]) -> Result<(), Failure> {
        let limit = self.deployment.int_at(&["spec", "revisionHistoryLimit"]);
        let Some(limit) = limit.filter(|limit| *limit != i64::from(i32::MAX)) else {
            return Ok(());
        };
        let alive = |set: &&Object| set.deletion_timestamp().is_none();
        let mut kept: Vec<&Object> = old.iter().filter(alive).collect();
        let surplus = kept.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        kept.sort_by(|one, other| by_revision(one, other));
        for set in &kept[..surplus] {
            let is_used = counted(set, "replicas") != 0
                || replicas(set) != 0
                || set.generation() > counted(set, "observedGeneration");
            if is_used {
                continue;
            }
            let target = Target::of(&self.kinds.sets, set.namespace(), set.name());
            match self.control.client.delete(&target, &DeleteOptions::default()).await {
                Err(error) if error.code != 404 => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}
