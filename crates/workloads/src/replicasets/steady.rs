//! [`Steady`]: syncs in which nothing is done about pods. Most changes of pods only change numbers
//! in the status of their owner; for these the pods are counted by what is known of them, and only
//! those that have changed are decoded.

use super::decide::{Counts, Plan, min_ready_seconds, plan, template_labels};
use crate::dependents::Dependents;
use crate::stored::{self, Name, name_of};
use keelson_loops::metadata::Metadata;
use keelson_loops::pods::is_ready;
use keelson_meta::selector::Selector;
use keelson_meta::{Failure, Object};
use keelson_records::Entry;
use keelson_registry::{InformerEvent, Registry};
use keelson_resources::Kind;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Which pods are ready, by version.
#[derive(Debug, Default)]
pub(super) struct Steady {
    ready: Mutex<HashMap<Name, (u64, bool)>>,
}

/// The numbers of pods when nothing is to be done about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    pub counts: Counts,
    pub terminating: i64,
}

impl Steady {
    /// Forgets pods that are gone.
    pub fn observe(&self, event: &InformerEvent) {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            InformerEvent::Deleted { entry, .. } => drop(ready.remove(&name_of(entry))),
            InformerEvent::Listed(..) => ready.clear(),
            InformerEvent::Put { .. } | InformerEvent::Withdrawn(_) => {}
        }
    }

    /// Counts the pods of an owner; `None` if pods are to be created, deleted, adopted or released,
    /// or become available as time passes.
    pub fn counted(
        &self,
        registry: &Registry,
        kind: &Arc<Kind>,
        dependents: &Dependents,
        owner: &Object,
        selector: &Selector,
    ) -> Result<Option<Counted>, Failure> {
        let is_plain = owner.deletion_timestamp().is_none() && min_ready_seconds(owner) == 0;
        if !is_plain || !dependents.orphans(registry, kind, owner.namespace(), selector).is_empty()
        {
            return Ok(None);
        }
        let template = template_labels(owner);
        let mut counts = Counts::default();
        let mut terminating = 0;
        for entry in dependents.owned_entries(registry, kind, owner) {
            let metadata = Metadata::of(&entry);
            if metadata.controller().is_none_or(|controller| controller.uid != owner.uid()) {
                return Ok(None);
            }
            if matches!(entry.field("status.phase"), Some("Succeeded" | "Failed")) {
                continue;
            }
            let is_match = selector.matches(|key| entry.label(key));
            if metadata.is_deleting {
                terminating += usize::from(is_match);
                continue;
            }
            if !is_match {
                return Ok(None);
            }
            let ready = usize::from(self.is_ready(kind, &entry)?);
            let has_label = |(name, value): &(&str, &str)| entry.label(name) == Some(*value);
            counts.active += 1;
            counts.fully_labelled += usize::from(template.iter().all(has_label));
            counts.ready += ready;
            counts.available += ready;
        }
        let is_done = plan(owner, counts.active) == Plan::Nothing;
        Ok(is_done.then_some(Counted { counts, terminating: stored::count(terminating) }))
    }

    fn is_ready(&self, kind: &Kind, entry: &Entry) -> Result<bool, Failure> {
        let version = entry.modified().0;
        let name = name_of(entry);
        let known = self.ready.lock().unwrap_or_else(PoisonError::into_inner).get(&name).copied();
        if let Some((_, is_ready)) = known.filter(|(known, _)| *known == version) {
            return Ok(is_ready);
        }
        let is_ready = is_ready(&kind.decode(entry)?);
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        ready.insert(name, (version, is_ready));
        Ok(is_ready)
    }
}
