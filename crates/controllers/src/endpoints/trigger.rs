//! [`Triggers`]: since when a change of pods or of a service waits to be told to its clients: the annotation
//! `endpoints.kubernetes.io/last-change-trigger-time`, by which the delay is measured.

use super::ServiceKey;
use crate::pods::ready_condition;
use keelson_meta::{Object, Str};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

pub(super) const ANNOTATION: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// The times that are known of a service.
#[derive(Default)]
struct Known {
    created: Str,
    /// When each pod became ready or stopped being so.
    pods: HashMap<Str, Str>,
}

/// The times of all services.
#[derive(Default)]
pub(super) struct Triggers(Mutex<HashMap<ServiceKey, Known>>);

impl Triggers {
    /// The earliest time of what is new since the last call; `None` when nothing is. Times of one format can be
    /// compared as texts.
    pub fn next(&self, key: &ServiceKey, service: &Object, pods: &[Object]) -> Option<Str> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.entry(key.clone()).or_default();
        let mut new: Vec<Str> = vec![];
        let created = Str::new(service.creation_timestamp());
        let mut now = Known { created: created.clone(), pods: HashMap::new() };
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

    /// Forgets a service that is gone.
    pub fn forget(&self, key: &ServiceKey) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}
