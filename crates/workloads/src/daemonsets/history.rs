//! The revisions of a DaemonSet.

use super::pods::REVISION_LABEL;
use super::update::Update;
use crate::claims::Claims;
use crate::history::{data_for, data_of, number, revision};
use crate::{stored, template_hash};
use keelson_meta::{Failure, Object, Reason, Status, Value, value};
use keelson_registry::options::{DeleteOptions, PatchForm};
use keelson_registry::{Subresource, Target};

impl Update<'_> {
    /// Returns the revision of the present template, which is created if there is none, and the
    /// others.
    pub(super) async fn revisions(
        &self,
        pods: &[Object],
    ) -> Result<(Object, Vec<Object>), Failure> {
        let client = &self.of.control.client;
        let kind = &self.kinds.revisions;
        let all =
            self.of.revisions.candidates(&client.registry, kind, &self.set, &self.selector)?;
        let target = self.target();
        let claims = Claims { client, owner: &self.set, owner_target: &target, finalizers: &[] };
        let is_match = |revision: &Object| self.selector.matches_object(revision);
        let data = data_for(self.set.at(&["spec", "template"]).unwrap_or(&Value::Null));
        let mut current = vec![];
        let mut old = vec![];
        for revision in claims.claim(kind, all, is_match).await? {
            self.of.revisions.put(&revision);
            let revision = self.labelled(revision).await?;
            if data_of(&revision) == data { &mut current } else { &mut old }.push(revision);
        }
        let next = old.iter().map(number).fold(0, i64::max) + 1;
        if current.is_empty() {
            return Ok((self.create_revision(data, next).await?, old));
        }
        let current = self.single(current, pods).await?;
        if number(&current) < next {
            let mut renumbered = current.clone();
            renumbered.root.insert("revision", next);
            self.write_revision(renumbered).await?;
        }
        Ok((current, old))
    }

    fn revision_target(&self, name: &str) -> Target {
        Target::of(&self.kinds.revisions, self.set.namespace(), name)
    }

    async fn write_revision(&self, revision: Object) -> Result<Object, Failure> {
        let target = self.revision_target(revision.name());
        self.of.control.client.update(&target, Subresource::None, revision).await
    }

    /// Returns a revision with the label that pods have, too.
    async fn labelled(&self, mut revision: Object) -> Result<Object, Failure> {
        if revision.label(REVISION_LABEL).is_some() {
            return Ok(revision);
        }
        let name = revision.name().to_owned();
        revision.metadata_mut().object_at("labels").insert(REVISION_LABEL, name);
        self.write_revision(revision).await
    }

    /// Keeps the latest of several revisions with the present template.
    async fn single(&self, all: Vec<Object>, pods: &[Object]) -> Result<Object, Failure> {
        let kept = all.iter().max_by_key(|revision| number(revision)).cloned().unwrap_or_default();
        if all.len() < 2 {
            return Ok(kept);
        }
        let client = &self.of.control.client;
        let label = kept.label(REVISION_LABEL).unwrap_or_default();
        for pod in pods.iter().filter(|pod| pod.label(REVISION_LABEL) != Some(label)) {
            let target = Target::of(&self.kinds.pods, pod.namespace(), pod.name());
            let patch = value!({"metadata": {"labels": {"controller-revision-hash": label}}});
            client.patch(&target, Subresource::None, PatchForm::Merge, &patch).await?;
        }
        for revision in all.iter().filter(|revision| revision.name() != kept.name()) {
            let target = self.revision_target(revision.name());
            client.delete(&target, &DeleteOptions::default()).await?;
        }
        Ok(kept)
    }

    async fn create_revision(&self, data: String, number: i64) -> Result<Object, Failure> {
        let client = &self.of.control.client;
        let template = self.set.at(&["spec", "template"]).unwrap_or(&Value::Null);
        let collisions = self.set.int_at(&["status", "collisionCount"]);
        let hash = template_hash::of_template(template, collisions);
        let name = format!("{}-{hash}", self.set.name());
        let mut labels = template
            .at(&["metadata", "labels"])
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        labels.insert(REVISION_LABEL, hash);
        let new = revision(&self.set, &name, labels, data.clone(), number);
        match client.create(&self.revision_target(&name), new).await {
            Err(error) if error.reason == Reason::AlreadyExists => {
                self.existing_revision(&name, &data, error).await
            }
            result => {
                if let Ok(created) = &result {
                    self.of.revisions.put(created);
                }
                result
            }
        }
    }

    /// Returns the revision that has the name already, if it has the data. Else the hashes of two
    /// templates are equal: the next one is computed with another number of collisions.
    async fn existing_revision(
        &self,
        name: &str,
        data: &str,
        error: Failure,
    ) -> Result<Object, Failure> {
        let client = &self.of.control.client;
        let existing =
            client.get(&self.revision_target(name)).await?.ok_or_else(|| error.clone())?;
        if data_of(&existing) == data {
            return Ok(existing);
        }
        let latest = client.get(&self.target()).await?.ok_or_else(|| error.clone())?;
        let count = |set: &Object| set.int_at(&["status", "collisionCount"]);
        if count(&latest) != count(&self.set) {
            let why = "the number of collisions has changed meanwhile";
            return Err(Status::new(Reason::Conflict, why));
        }
        let mut status = stored::status(&latest);
        status.insert("collisionCount", count(&latest).unwrap_or(0) + 1);
        stored::write_status(client, &self.kinds.sets, &latest, status).await?;
        Err(error)
    }

    /// Deletes the oldest of the revisions that no pod has.
    pub(super) async fn clean_up(
        &self,
        mut old: Vec<Object>,
        pods: &[Object],
    ) -> Result<(), Failure> {
        let limit = self.set.int_at(&["spec", "revisionHistoryLimit"]).unwrap_or(10);
        let surplus = old.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        old.sort_by_key(number);
        let is_used = |revision: &&Object| {
            let label = revision.label(REVISION_LABEL).filter(|label| !label.is_empty());
            label.is_some() && pods.iter().any(|pod| pod.label(REVISION_LABEL) == label)
        };
        for revision in old.iter().filter(|revision| !is_used(revision)).take(surplus) {
            let target = self.revision_target(revision.name());
            self.of.control.client.delete(&target, &DeleteOptions::default()).await?;
        }
        Ok(())
    }
}
