//! [`Steady`]: syncs in which nothing is done about pods. Most changes of pods only change numbers
//! in the status of their owner; for these the pods are counted by what is known of them, and only
//! those that have changed are decoded.

use super::decide::{Counts, Plan, min_ready_seconds, plan, template_labels};
use crate::dependents::Dependents;
use crate::stored;
use keelson_loops::Known;
use keelson_loops::metadata::Metadata;
use keelson_loops::pods::is_ready;
use keelson_meta::selector::Selector;
use keelson_meta::{Failure, Object, Str};
use keelson_records::Entry;
use keelson_registry::{InformerEvent, Registry};
use keelson_resources::Kind;
use std::sync::Arc;

/// What is known of pods.
#[derive(Debug, Default)]
pub(super) struct Steady(Known<PodState>);

/// What is known of a pod.
#[derive(Clone, Debug)]
struct PodState {
    /// The uid of its controller.
    controller: Option<Str>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ended,
    Deleting,
    Ready,
    Unready,
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
        self.0.observe(event);
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
            let pod = self.pod(kind, &entry)?;
            if pod.controller.as_deref() != Some(owner.uid()) {
                return Ok(None);
            }
            let is_match = selector.matches(|key| entry.label(key));
            match pod.state {
                State::Ended => continue,
                State::Deleting => {
                    terminating += usize::from(is_match);
                    continue;
                }
                State::Ready | State::Unready if !is_match => return Ok(None),
                State::Ready | State::Unready => {}
            }
            let ready = usize::from(pod.state == State::Ready);
            let has_label = |(name, value): &(&str, &str)| entry.label(name) == Some(*value);
            counts.active += 1;
            counts.fully_labelled += usize::from(template.iter().all(has_label));
            counts.ready += ready;
            counts.available += ready;
        }
        self.0.prune(&registry.cached_all(kind));
        let is_done = plan(owner, counts.active) == Plan::Nothing;
        Ok(is_done.then_some(Counted { counts, terminating: stored::count(terminating) }))
    }

    fn pod(&self, kind: &Kind, entry: &Entry) -> Result<PodState, Failure> {
        self.0.get(entry, || {
            let metadata = Metadata::of(entry);
            let state = match entry.field("status.phase") {
                Some("Succeeded" | "Failed") => State::Ended,
                _ if metadata.is_deleting => State::Deleting,
                _ if is_ready(&kind.decode(entry)?) => State::Ready,
                _ => State::Unready,
            };
            Ok(PodState { controller: metadata.controller().map(|one| one.uid), state })
        })
    }
}
