//! One sync of a Job: what was decided is done to its pods, then its status is stored.

use super::Jobs;
use super::facts::JobPod;
use super::state::State;
use super::status::{Condition, Status};
use super::template;
use crate::pod_control::pod_from_template;
use futures_util::future::join_all;
use keelson_loops::client::is_namespace_terminating;
use keelson_meta::{Failure, Object, Str};
use keelson_registry::{Subresource, Target};
use keelson_resources::Kind;
use std::collections::HashSet;
use std::sync::Arc;

/// One sync of a Job.
pub(super) struct JobSync<'a> {
    pub jobs: &'a Jobs,
    pub target: Target,
    /// The kind of pods.
    pub kind: Arc<Kind>,
    /// The Job as it is stored.
    pub job: Object,
    pub state: State,
}

impl JobSync<'_> {
    /// Brings the pods and the status of the Job up to date.
    pub async fn run(&mut self, key: &(Str, Str)) -> Result<(), Failure> {
        let result = self.change_pods().await;
        let (release, is_all) = self.state.track();
        if self.store_status().await? {
            self.jobs.known_failures().insert(key.clone(), self.state.failures);
        }
        let released = self.release_counted(&release).await;
        if released.is_ok() && is_all && self.state.finish() {
            self.store_status().await?;
            self.record_end();
        } else {
            self.store_status().await?;
        }
        released.and(result)
    }

    /// Creates and deletes pods, and enters the numbers into the status. The status is stored even
    /// if a pod could not be created.
    async fn change_pods(&mut self) -> Result<(), Failure> {
        let pods = &self.state.pods;
        let count = |is: fn(&JobPod) -> bool| {
            i64::try_from(pods.iter().filter(|pod| is(pod)).count()).unwrap_or(i64::MAX)
        };
        let mut active = count(JobPod::is_active);
        let mut terminating = count(JobPod::is_terminating);
        let mut ready = count(|pod| pod.is_active() && pod.is_ready);
        let is_ending = self.state.end.is_some();
        let changes = self.state.decide_pods();
        let mut result = Ok(());
        let deletions = changes.delete.iter().map(|at| self.delete(*at, changes.release_deleted));
        let mut deleted = 0;
        for (at, deletion) in changes.delete.iter().zip(join_all(deletions).await) {
            match deletion {
                Ok(()) => {
                    deleted += 1;
                    ready -= i64::from(self.state.pods[*at].is_ready);
                }
                Err(error) => result = Err(error),
            }
        }
        if is_ending && deleted != active {
            // Pods are left whose finalizers must stay.
            self.state.end = None;
        }
        active -= deleted;
        terminating += deleted;
        let (created, failed) = self.create_all(&changes.create).await;
        active += created;
        if let Some(error) = failed {
            result = Err(error);
        }
        if !is_ending && let Some(is_suspended) = self.state.decide_completion(active) {
            let (reason, message) = match is_suspended {
                true => ("Suspended", "Job suspended"),
                false => ("Resumed", "Job resumed"),
            };
            self.jobs.control.event(&self.job, "Normal", reason, message);
        }
        let status = &mut self.state.status;
        status.active = active;
        status.ready = Some(ready);
        status.terminating = Some(terminating);
        result
    }

    /// Creates pods, twice as many at a time as before, and returns how many were created. After a
    /// failure, the others would most likely fail too.
    async fn create_all(&self, indexes: &[Option<i64>]) -> (i64, Option<Failure>) {
        let mut created = 0;
        let mut left = indexes;
        let mut batch = 1;
        while !left.is_empty() {
            let (now, later) = left.split_at(batch.min(left.len()));
            let mut failed = None;
            for result in join_all(now.iter().map(|index| self.create(*index))).await {
                match result {
                    Ok(()) => created += 1,
                    Err(error) if is_namespace_terminating(&error) => {}
                    Err(error) => failed = Some(error),
                }
            }
            if failed.is_some() {
                return (created, failed);
            }
            (left, batch) = (later, batch * 2);
        }
        (created, None)
    }

    /// Deletes a pod. A pod that is gone already counts as deleted.
    async fn delete(&self, at: usize, is_released: bool) -> Result<(), Failure> {
        let pod = &self.state.pods[at];
        if is_released && pod.is_tracked {
            self.jobs.release(&self.kind, &pod.object).await?;
        }
        match self.jobs.control.delete(&self.job, pod.object.name()).await {
            Err(error) if error.code != 404 => Err(error),
            _ => Ok(()),
        }
    }

    async fn create(&self, index: Option<i64>) -> Result<(), Failure> {
        let template = self.job.at(&["spec", "template"]).cloned().unwrap_or_default();
        let pod = pod_from_template(&template, &self.job);
        let pod = template::complete(pod, &self.job, &self.state, index);
        let pod = self.jobs.control.create(&self.job, pod).await?;
        self.jobs.pods.put(&pod);
        Ok(())
    }

    /// Stores the status if it has changed. Returns whether it has.
    async fn store_status(&mut self) -> Result<bool, Failure> {
        if Status::of(&self.job) == self.state.status
            && self.job.at(&["status", "uncountedTerminatedPods"]).is_some()
        {
            return Ok(false);
        }
        let mut job = self.job.clone();
        job.root.insert("status", self.state.status.clone().into_value());
        let client = &self.jobs.control.client;
        self.job = client.update(&self.target, Subresource::Status, job).await?;
        Ok(true)
    }

    /// Removes the finalizers of pods and counts those pods.
    async fn release_counted(&mut self, places: &[usize]) -> Result<(), Failure> {
        let mut result = Ok(());
        let releases =
            places.iter().map(|at| self.jobs.release(&self.kind, &self.state.pods[*at].object));
        let releases = join_all(releases).await;
        for (at, released) in places.iter().zip(releases) {
            match released {
                Ok(()) => self.state.pods[*at].is_tracked = false,
                Err(error) => result = Err(error),
            }
        }
        let tracked: HashSet<&str> =
            self.state.pods.iter().filter(|pod| pod.is_tracked).map(JobPod::uid).collect();
        self.state.status.count_released(|uid| tracked.contains(uid));
        result
    }

    fn record_end(&self) {
        let Some(Condition { kind, reason, message }) = &self.state.end else { return };
        let event = |kind, reason: &str, message: &str| {
            self.jobs.control.event(&self.job, kind, reason, message);
        };
        if *kind == "Failed" {
            return event("Warning", reason, message);
        }
        let completions = self.state.spec.completions;
        if completions.is_some_and(|completions| self.state.status.succeeded > completions) {
            let message = "Too many succeeded pods running after completion count reached";
            event("Warning", "TooManySucceededPods", message);
        }
        event("Normal", "Completed", "Job completed");
    }
}
