//! The steps of one sync of a StatefulSet. In order (`OrderedReady`) one pod after the other is
//! created, deleted or replaced; in parallel all are.

use super::claims_of_pods::{
    has_other_controller, is_stale, is_up_to_date, reuses_claims, set_owners,
};
use super::history::Used;
use super::identity::{
    claim_name, claim_templates, has_identity, has_storage, is_in_range, new_claim, new_pod,
    ordinal, replicas, revision, set_identity, set_storage, start,
};
use super::status::{
    Revisions, complete, is_changed, is_created, is_running_and_ready, is_unavailable, status_of,
};
use super::update::Update;
use crate::history::template_of;
use crate::pod_facts::{is_available, is_terminal, phase};
use crate::stored;
use futures_util::future::join_all;
use keelson_meta::{Failure, Map, Object, Reason, Status, Value};
use keelson_registry::options::DeleteOptions;
use keelson_registry::{Subresource, Target};

/// Maximum number of pods that are processed at once.
const BATCH_PODS_MAX: usize = 500;

/// Whether the following pods must wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    GoOn,
    Wait,
}

impl Update<'_> {
    /// Runs the steps and returns the status.
    pub async fn run(&mut self, revisions: Vec<Object>) -> Result<Map, Failure> {
        let used = self.find_revisions(&revisions).await?;
        let result = self.update_pods(&used).await;
        let cleaned = self.clean_up(&revisions, &used).await;
        let status = result?;
        cleaned?;
        Ok(status)
    }

    fn seconds(&self) -> i64 {
        self.set.int_at(&["spec", "minReadySeconds"]).unwrap_or(0)
    }

    fn is_ordered(&self) -> bool {
        self.set.str_at(&["spec", "podManagementPolicy"]) != "Parallel"
    }

    /// Brings the pods nearer to what the set wants, and writes the status.
    async fn update_pods(&self, used: &Used) -> Result<Map, Failure> {
        let names = Revisions {
            current: used.current.name().to_owned(),
            update: used.update.name().to_owned(),
            collisions: used.collisions,
        };
        let (wanted, condemned) = self.partition(used);
        let mut deleted_current = 0;
        let result = match self.set.deletion_timestamp() {
            Some(_) => Ok(()),
            None => self.step(used, &wanted, &condemned, &mut deleted_current).await,
        };
        let pods = wanted.iter().chain(&condemned);
        let mut status = if self.set.deletion_timestamp().is_some() {
            status_of(&self.set, &names, self.pods.iter(), self.now)
        } else {
            status_of(&self.set, &names, pods, self.now)
        };
        let current = status.get("currentReplicas").and_then(Value::as_int).unwrap_or(0);
        stored::set_count(&mut status, "currentReplicas", current - deleted_current);
        complete(&self.set, &mut status);
        if is_changed(&self.set, &status) {
            let client = &self.of.control.client;
            let written = status.clone();
            stored::write_status(client, &self.kinds.sets, &self.set, written).await?;
        }
        result.map(|()| status)
    }

    /// Returns the wanted pods by ordinal, some of which do not exist yet, and the others, highest
    /// ordinal first.
    fn partition(&self, used: &Used) -> (Vec<Object>, Vec<Object>) {
        let start = start(&self.set);
        let templates = [&used.current, &used.update].map(template_of);
        let template = |of: usize| templates[of].clone().unwrap_or_default();
        let wanted = (start..start + replicas(&self.set))
            .map(|place| {
                let known = self.pods.iter().find(|pod| ordinal(pod) == Some(place));
                known.cloned().unwrap_or_else(|| {
                    let is_current = self.has_current_revision(place);
                    let (of, revision) =
                        if is_current { (0, &used.current) } else { (1, &used.update) };
                    new_pod(&self.set, &template(of), revision.name(), place)
                })
            })
            .collect();
        let is_condemned = |pod: &&Object| ordinal(pod).is_some() && !is_in_range(pod, &self.set);
        let mut condemned: Vec<Object> = self.pods.iter().filter(is_condemned).cloned().collect();
        condemned.sort_by_key(|pod| std::cmp::Reverse(ordinal(pod)));
        (wanted, condemned)
    }

    /// Whether a new pod gets the present revision rather than the new one.
    fn has_current_revision(&self, place: i64) -> bool {
        let strategy = self.set.at(&["spec", "updateStrategy"]);
        let rolling = strategy.and_then(|strategy| strategy.get("rollingUpdate"));
        let count = match rolling {
            Some(rolling) => rolling.int_at(&["partition"]).unwrap_or(0),
            None if strategy.and_then(|one| one.str_at(&["type"])) == Some("RollingUpdate") => {
                self.set.int_at(&["status", "currentReplicas"]).unwrap_or(0)
            }
            None => return false,
        };
        place < start(&self.set) + count
    }

    async fn step(
        &self,
        used: &Used,
        wanted: &[Object],
        condemned: &[Object],
        deleted_current: &mut i64,
    ) -> Result<(), Failure> {
        let keep = |place: usize| self.keep(&wanted[place]);
        if self.for_all(wanted.len(), keep).await? == Step::Wait {
            return Ok(());
        }
        let fix = |place: usize| self.fix_claims(&condemned[place]);
        if self.for_all(condemned.len(), fix).await? == Step::Wait {
            return Ok(());
        }
        let lowest_first = condemned.iter().rev();
        let is_bad = |pod: &&Object| is_unavailable(pod, self.seconds(), self.now);
        let first_bad = wanted.iter().chain(lowest_first).find(is_bad).map(Object::name);
        let condemn = |place: usize| self.condemn(&condemned[place], first_bad);
        if self.for_all(condemned.len(), condemn).await? == Step::Wait {
            return Ok(());
        }
        if self.set.str_at(&["spec", "updateStrategy", "type"]) == "OnDelete" {
            return Ok(());
        }
        self.replace(used, wanted, deleted_current).await
    }

    /// Runs a step for all pods: one after the other until one must wait, or in batches that
    /// double.
    async fn for_all<F>(&self, count: usize, step: impl Fn(usize) -> F) -> Result<Step, Failure>
    where
        F: Future<Output = Result<Step, Failure>>,
    {
        if self.is_ordered() {
            for place in 0..count {
                if step(place).await? == Step::Wait {
                    return Ok(Step::Wait);
                }
            }
            return Ok(Step::GoOn);
        }
        let mut done = 0;
        let mut batch = 1;
        while done < count {
            let end = count.min(done + batch);
            for result in join_all((done..end).map(&step)).await {
                result?;
            }
            (done, batch) = (end, (2 * batch).min(BATCH_PODS_MAX));
        }
        Ok(Step::GoOn)
    }

    /// Creates a wanted pod, or one in the place of a pod that has ended.
    async fn keep(&self, pod: &Object) -> Result<Step, Failure> {
        let is_deleting = pod.deletion_timestamp().is_some();
        if is_terminal(pod) {
            // It is created again when it is gone.
            if !is_deleting {
                self.delete(pod).await?;
            }
            return Ok(Step::Wait);
        }
        let is_ordered = self.is_ordered();
        if !is_created(pod) {
            if self.has_stale_claim(pod) {
                return Ok(Step::Wait);
            }
            self.create(pod).await?;
            return Ok(if is_ordered { Step::Wait } else { Step::GoOn });
        }
        if phase(pod) == "Pending" {
            self.create_claims(pod).await?;
            self.fix_claims_or_warn(pod).await?;
        }
        let is_waited_for = is_deleting
            || !is_running_and_ready(pod)
            || !is_available(pod, self.seconds(), self.now);
        if is_ordered && is_waited_for {
            return Ok(Step::Wait);
        }
        self.mend(pod).await?;
        Ok(Step::GoOn)
    }

    async fn create(&self, pod: &Object) -> Result<(), Failure> {
        if let Err(error) = self.create_claims(pod).await {
            self.event("create", pod, Some(&error));
            return Err(error);
        }
        let target = Target::of(&self.kinds.pods, pod.namespace(), pod.name());
        let created = self.of.control.client.create(&target, pod.clone()).await;
        if let Err(error) = &created
            && error.reason == Reason::AlreadyExists
        {
            return created.map(drop);
        }
        self.fix_claims_or_warn(pod).await?;
        self.event("create", pod, created.as_ref().err());
        self.of.pods.put(&created?);
        Ok(())
    }

    /// Deletes a pod. One that is gone is deleted, too.
    async fn delete(&self, pod: &Object) -> Result<(), Failure> {
        let target = Target::of(&self.kinds.pods, pod.namespace(), pod.name());
        match self.of.control.client.delete(&target, &DeleteOptions::default()).await {
            Err(error) if error.code != 404 => {
                self.event("delete", pod, Some(&error));
                Err(error)
            }
            _ => {
                self.event("delete", pod, None);
                Ok(())
            }
        }
    }

    /// Gives a pod back the labels of its identity, and its claims their owners.
    async fn mend(&self, pod: &Object) -> Result<(), Failure> {
        let has_claims = self.claims(pod).all(|claim| is_up_to_date(&claim, &self.set, pod));
        if has_identity(pod, &self.set) && has_storage(pod, &self.set) && has_claims {
            return Ok(());
        }
        let mut mended = pod.clone();
        if let Some(ordinal) = ordinal(pod) {
            if !has_identity(pod, &self.set) {
                set_identity(&mut mended, ordinal);
            }
            if !has_storage(pod, &self.set) {
                set_storage(&mut mended, &self.set, ordinal);
                if let Err(error) = self.create_claims(pod).await {
                    self.event("update", pod, Some(&error));
                    return Err(error);
                }
            }
        }
        self.fix_claims_or_warn(pod).await?;
        let target = Target::of(&self.kinds.pods, pod.namespace(), pod.name());
        let written = self.of.control.client.update(&target, Subresource::None, mended).await;
        self.event("update", pod, written.as_ref().err());
        written.map(drop)
    }

    /// Deletes a pod that is not wanted any more.
    async fn condemn(&self, pod: &Object, first_bad: Option<&str>) -> Result<Step, Failure> {
        let is_ordered = self.is_ordered();
        if pod.deletion_timestamp().is_some() {
            return Ok(if is_ordered { Step::Wait } else { Step::GoOn });
        }
        let is_good = is_running_and_ready(pod) && is_available(pod, self.seconds(), self.now);
        if is_ordered && !is_good && first_bad != Some(pod.name()) {
            return Ok(Step::Wait);
        }
        self.delete(pod).await?;
        Ok(Step::Wait)
    }

    /// Deletes the pod with the highest ordinal that has another revision, unless one above it is
    /// not available yet.
    async fn replace(
        &self,
        used: &Used,
        wanted: &[Object],
        deleted_current: &mut i64,
    ) -> Result<(), Failure> {
        let path = ["spec", "updateStrategy", "rollingUpdate", "partition"];
        let partition = usize::try_from(self.set.int_at(&path).unwrap_or(0)).unwrap_or(0);
        for pod in wanted.iter().skip(partition).rev() {
            if revision(pod) != used.update.name() && pod.deletion_timestamp().is_none() {
                self.delete(pod).await?;
                *deleted_current += 1;
                return Ok(());
            }
            if is_unavailable(pod, self.seconds(), self.now) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Returns the claims of a pod that exist.
    fn claims(&self, pod: &Object) -> impl Iterator<Item = Object> {
        let ordinal = ordinal(pod).unwrap_or(-1);
        claim_templates(&self.set).iter().filter_map(move |template| {
            let name = claim_name(template, &self.set, ordinal);
            self.claim(&name)
        })
    }

    fn claim(&self, name: &str) -> Option<Object> {
        let registry = &self.of.control.client.registry;
        stored::read(registry, &self.kinds.claims, self.set.namespace(), name).ok().flatten()
    }

    /// Whether a claim still belongs to an earlier pod of this name, with which it will be deleted.
    fn has_stale_claim(&self, pod: &Object) -> bool {
        !reuses_claims(&self.set) && self.claims(pod).any(|claim| is_stale(&claim, pod))
    }

    async fn create_claims(&self, pod: &Object) -> Result<(), Failure> {
        let Some(ordinal) = ordinal(pod) else { return Ok(()) };
        let mut failed: Option<Failure> = None;
        for template in claim_templates(&self.set) {
            let claim = new_claim(template, &self.set, ordinal);
            let name = claim.name().to_owned();
            if let Some(known) = self.claim(&name) {
                if known.deletion_timestamp().is_some() {
                    let why = format!("pvc {name} is being deleted");
                    failed = failed.or(Some(Status::new(Reason::Unknown, why)));
                }
                continue;
            }
            let target = Target::of(&self.kinds.claims, claim.namespace(), &name);
            let created = self.of.control.client.create(&target, claim).await;
            let error = created.err();
            if error.as_ref().is_none_or(|error| error.reason != Reason::AlreadyExists) {
                self.claim_event(&name, pod, error.as_ref());
            }
            if let Some(mut error) = error {
                error.message = format!("failed to create PVC {name}: {}", error.message);
                failed = failed.or(Some(error));
            }
        }
        failed.map_or(Ok(()), Err)
    }

    async fn fix_claims_or_warn(&self, pod: &Object) -> Result<(), Failure> {
        let fixed = self.fix_claims(pod).await;
        if let Err(error) = &fixed {
            self.event("update", pod, Some(error));
        }
        fixed.map(drop)
    }

    /// Gives the claims of a pod the owners that the retention policy wants.
    async fn fix_claims(&self, pod: &Object) -> Result<Step, Failure> {
        if claim_templates(&self.set).is_empty() {
            return Ok(Step::GoOn);
        }
        // Claims may have been created a moment ago.
        let known = self.of.control.client.registry.cache.wait_known_everywhere().await;
        known.map_err(|error| Status::unavailable(error.to_string()))?;
        for mut claim in self.claims(pod) {
            let name = claim.name().to_owned();
            if has_other_controller(&claim, &self.set, pod) {
                let message = format!(
                    "PersistentVolumeClaim {name} has a conflicting OwnerReference that acts as a \
                     manging controller, the retention policy is ignored for this claim"
                );
                let control = &self.of.control;
                control.event(&self.set, "Warning", "ConflictingController", &message);
            }
            if is_up_to_date(&claim, &self.set, pod) {
                continue;
            }
            set_owners(&mut claim, &self.set, pod);
            let target = Target::of(&self.kinds.claims, claim.namespace(), &name);
            let client = &self.of.control.client;
            let written = client.update(&target, Subresource::None, claim).await;
            written.map_err(|mut error| {
                let why = &error.message;
                error.message =
                    format!("could not update claim {name} for delete policy ownerRefs: {why}");
                error
            })?;
        }
        Ok(Step::GoOn)
    }

    fn event(&self, verb: &str, pod: &Object, error: Option<&Failure>) {
        let pod = pod.name();
        let set = self.set.name();
        let title = title(verb);
        match error {
            None => {
                let message = format!("{title} Pod {pod} in StatefulSet {set} successful");
                self.record("Normal", &format!("Successful{title}"), &message);
            }
            Some(error) => {
                let why = &error.message;
                let message = format!("{title} Pod {pod} in StatefulSet {set} failed error: {why}");
                self.record("Warning", &format!("Failed{title}"), &message);
            }
        }
    }

    fn claim_event(&self, claim: &str, pod: &Object, error: Option<&Failure>) {
        let pod = pod.name();
        let set = self.set.name();
        match error {
            None => {
                let message =
                    format!("Create Claim {claim} Pod {pod} in StatefulSet {set} success");
                self.record("Normal", "SuccessfulCreate", &message);
            }
            Some(error) => {
                let why = &error.message;
                let message = format!(
                    "Create Claim {claim} for Pod {pod} in StatefulSet {set} failed error: {why}"
                );
                self.record("Warning", "FailedCreate", &message);
            }
        }
    }

    fn record(&self, kind: &'static str, reason: &str, message: &str) {
        self.of.control.event(&self.set, kind, reason, message);
    }
}

fn title(verb: &str) -> String {
    let mut letters = verb.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
