//! [`Triggers`]: the values of the annotation `endpoints.kubernetes.io/last-change-trigger-time`:
//! when the change of a pod or service happened that is written now. Clients measure the delay with
//! it.

use super::ServiceKey;
use keelson_loops::pods::ready_condition;
use keelson_meta::{Object, Str};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

pub(super) const TRIGGER_TIME_ANNOTATION: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// The times of a service at the last sync.
#[derive(Default)]
struct TriggerTimes {
    created: Str,
    /// When the condition Ready of each pod changed last.
    pods: HashMap<Str, Str>,
}

/// The times of all services.
#[derive(Default)]
pub(super) struct Triggers(Mutex<HashMap<ServiceKey, TriggerTimes>>);

impl Triggers {
    /// Returns the earliest time of the changes since the last call; `None` if there are none.
    /// Times of one format are compared as text.
    pub fn next(&self, key: &ServiceKey, service: &Object, pods: &[Arc<Object>]) -> Option<Str> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.entry(key.clone()).or_default();
        let mut new: Vec<Str> = vec![];
        let created = Str::new(service.creation_timestamp());
        let mut now = TriggerTimes { created: created.clone(), pods: HashMap::new() };
        for pod in pods {
            let Some((_, since)) = ready_condition(pod).filter(|(_, since)| !since.is_empty())
            else {
                continue;
            };
            now.pods.insert(pod.name().into(), since.into());
            if known.pods.get(pod.name()).is_none_or(|before| before.as_str() < since) {
                new.push(since.into());
            }
        }
        if known.created < created {
            new.push(created);
        }
        *known = now;
        new.into_iter().min()
    }

    /// Removes a service that was deleted.
    pub fn remove(&self, key: &ServiceKey) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}
