//! The steps of one sync of a DaemonSet.

use super::manage::{Changes, View};
use super::placement::Placement;
use super::pods::{REVISION_LABEL, by_node, for_node, template};
use super::update::Update;
use super::{manage, rolling, status};
use crate::claims::Claims;
use crate::pod_control::pod_from_template;
use crate::pod_facts::{next_available, phase};
use crate::stored;
use futures_util::future::join_all;
use keelson_loops::client::is_namespace_terminating;
use keelson_meta::{Failure, Object, Str, Value};
use std::sync::PoisonError;
use std::time::Duration;

/// Maximum number of pods that one sync creates or deletes.
const BURST_PODS_MAX: usize = 250;

impl Update<'_> {
    /// Runs the steps and returns when the set is looked at again.
    pub async fn run(&self) -> Result<Option<Duration>, Failure> {
        let pods = self.pods().await?;
        let (current, old) = self.revisions(&pods).await?;
        let hash = current.label(REVISION_LABEL).unwrap_or_default();
        let placement = Placement::of(&self.set);
        let view = View { set: &self.set, placement: &placement, hash, now: self.now };
        let updated = self.update_pods(&view, &pods, old).await;
        let nodes = self.nodes.iter().map(|node| &**node);
        let new_status = status::status_of(&view, nodes, &by_node(&pods));
        let counted = |name: &str| new_status.get(name).and_then(Value::as_int).unwrap_or(0);
        let is_waiting = counted("numberReady") != counted("numberAvailable");
        let client = &self.of.control.client;
        let written =
            stored::write_status(client, &self.kinds.sets, &self.set, new_status.clone()).await;
        let backoff = updated?;
        written?;
        let seconds = view.seconds();
        // A new pod beside an old one is waited for, too, though the status counts the old one.
        let fallback = Duration::from_secs(seconds.unsigned_abs());
        let available = next_available(&pods, seconds, self.now)
            .or_else(|| (seconds > 0 && is_waiting).then_some(fallback));
        Ok([backoff, available].into_iter().flatten().min())
    }

    /// Returns the pods of the set; orphans are adopted.
    async fn pods(&self) -> Result<Vec<Object>, Failure> {
        let client = &self.of.control.client;
        let kind = &self.kinds.pods;
        let all = self.of.pods.candidates(&client.registry, kind, &self.set, &self.selector)?;
        let target = self.target();
        let claims = Claims { client, owner: &self.set, owner_target: &target, finalizers: &[] };
        let is_match = |pod: &Object| self.selector.matches_object(pod);
        let pods = claims.claim(kind, all, is_match).await?;
        for pod in &pods {
            self.of.pods.put(pod);
        }
        Ok(pods)
    }

    /// Creates and deletes pods, and deletes revisions. Returns when a failed pod may be replaced.
    async fn update_pods(
        &self,
        view: &View<'_>,
        pods: &[Object],
        old: Vec<Object>,
    ) -> Result<Option<Duration>, Failure> {
        let nodes = || self.nodes.iter().map(|node| &**node);
        let pods_by_node = by_node(pods);
        let mut changes = manage::changes(view, nodes(), &pods_by_node);
        let backoff = self.judge_ended(&mut changes);
        let is_done = changes.create.is_empty() && changes.delete.is_empty();
        self.apply(view, changes).await?;
        let strategy = self.set.str_at(&["spec", "updateStrategy", "type"]);
        // Pods that were created or deleted just now are not among `pods` yet: the update goes on
        // when they are observed.
        if is_done && strategy == "RollingUpdate" {
            let changes = rolling::changes(view, nodes(), &pods_by_node);
            self.apply(view, changes).await?;
        }
        self.clean_up(old, pods).await?;
        Ok(backoff)
    }

    /// Deletes pods that have ended, failed ones not too often. Returns the shortest delay.
    fn judge_ended(&self, changes: &mut Changes) -> Option<Duration> {
        let mut soonest: Option<Duration> = None;
        for (node, pod) in std::mem::take(&mut changes.ended) {
            let namespace = pod.namespace();
            let name = pod.name();
            let (kind, reason, message) = if phase(&pod) == "Failed" {
                let generation = self.set.int_at(&["status", "observedGeneration"]).unwrap_or(0);
                let key = (Str::new(self.set.uid()), generation, node.clone());
                let mut failed = self.of.failed.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(delay) = failed.try_now(key, self.now) {
                    soonest = Some(soonest.map_or(delay, |soonest| soonest.min(delay)));
                    continue;
                }
                let message = format!(
                    "Found failed daemon pod {namespace}/{name} on node {node}, will try to kill it"
                );
                ("Warning", "FailedDaemonPod", message)
            } else {
                let message = format!(
                    "Found succeeded daemon pod {namespace}/{name} on node {node}, will try to \
                     delete it"
                );
                ("Normal", "SucceededDaemonPod", message)
            };
            self.of.control.event(&self.set, kind, reason, &message);
            changes.delete.push(name.into());
        }
        soonest
    }

    async fn apply(&self, view: &View<'_>, changes: Changes) -> Result<(), Failure> {
        let mut failed = self.create(view, &changes.create).await.err();
        let deletions = changes
            .delete
            .iter()
            .take(BURST_PODS_MAX)
            .map(|name| self.of.control.delete(&self.set, name));
        for result in join_all(deletions).await {
            if let Err(error) = result
                && error.code != 404
            {
                failed = failed.or(Some(error));
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Creates pods for nodes, in batches that double, so that a quota is not met by many requests.
    async fn create(&self, view: &View<'_>, nodes: &[Str]) -> Result<(), Failure> {
        let template = template(&self.set, view.hash);
        let mut left = &nodes[..nodes.len().min(BURST_PODS_MAX)];
        let mut batch = 1;
        while !left.is_empty() {
            let (now, later) = left.split_at(batch.min(left.len()));
            let creations = now.iter().map(|node| {
                let pod = pod_from_template(&for_node(template.clone(), node), &self.set);
                self.of.control.create(&self.set, pod)
            });
            let mut failed = None;
            for result in join_all(creations).await {
                match result {
                    Ok(pod) => self.of.pods.put(&pod),
                    // All creations fail in such a namespace: there is nothing to do.
                    Err(error) if is_namespace_terminating(&error) => {}
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            if let Some(error) = failed {
                return Err(error);
            }
            (left, batch) = (later, 2 * batch);
        }
        Ok(())
    }
}
