//! The revisions of a StatefulSet: the present one, the one to which it is updated, earlier ones.

use super::identity;
use super::update::Update;
use crate::history::{create, data_of, new_revision, number, renumber, template_of};
use keelson_meta::{Failure, Object};
use keelson_registry::Target;
use keelson_registry::options::DeleteOptions;

/// The revisions that are used.
pub(super) struct Used {
    pub current: Object,
    pub update: Object,
    pub collisions: i64,
}

impl Update<'_> {
    /// Finds the revisions; one for the present template is created, or renumbered in a rollback.
    pub(super) async fn find_revisions(&self, all: &[Object]) -> Result<Used, Failure> {
        let client = &self.of.control.client;
        let kind = &self.kinds.revisions;
        let mut collisions = self.set.int_at(&["status", "collisionCount"]).unwrap_or(0);
        let next = all.last().map_or(0, number) + 1;
        let new = new_revision(&self.set, next, collisions);
        let data = data_of(&new);
        let latest = all.last();
        let equal = all.iter().rfind(|revision| data_of(revision) == data);
        let update = match (equal, latest) {
            (Some(_), Some(latest)) if data_of(latest) == data => latest.clone(),
            (Some(equal), _) => renumber(client, kind, equal.clone(), next).await?,
            (None, Some(latest))
                if template_of(latest).as_ref() == self.set.at(&["spec", "template"]) =>
            {
                latest.clone()
            }
            (None, _) => create(client, kind, &self.set, new, &mut collisions).await?,
        };
        self.of.revisions.put(&update);
        let name = self.set.str_at(&["status", "currentRevision"]);
        let current =
            all.iter().find(|revision| revision.name() == name).unwrap_or(&update).clone();
        Ok(Used { current, update, collisions })
    }

    /// Deletes the oldest of the revisions that no pod has.
    pub(super) async fn clean_up(&self, all: &[Object], used: &Used) -> Result<(), Failure> {
        let Some(limit) = self.set.int_at(&["spec", "revisionHistoryLimit"]) else {
            return Ok(());
        };
        let Ok(limit) = usize::try_from(limit) else { return Ok(()) };
        let is_used = |revision: &&Object| {
            let name = revision.name();
            name == used.current.name()
                || name == used.update.name()
                || self.pods.iter().any(|pod| identity::revision(pod) == name)
        };
        let unused: Vec<&Object> = all.iter().filter(|revision| !is_used(revision)).collect();
        let surplus = unused.len().saturating_sub(limit);
        for revision in &unused[..surplus] {
            let namespace = revision.namespace();
            let name = revision.name();
            let target = Target::of(&self.kinds.revisions, namespace, name);
            self.of.control.client.delete(&target, &DeleteOptions::default()).await?;
        }
        Ok(())
    }
}
