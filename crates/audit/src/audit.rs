//! [`Audit`]: the policy and the backends of a server.

use crate::backend::{Backend, Entry};
use crate::encoded::Encoded;
use crate::event::Event;
use crate::level::{Level, Stage};
use crate::metrics::Metrics;
use crate::policy::{Policy, RequestConfig};
use arc_swap::ArcSwap;
use keelson_auth::{Attributes, User};
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Maximum events that are stored at once without a request that waits for it.
const LATE_EVENTS_MAX: usize = 1024;
/// Time that the backends have at a shutdown to store what they buffer.
const SHUTDOWN_TIME_MAX: Duration = Duration::from_secs(5);

/// The policy and the backends of a server.
pub struct Audit {
    policy: ArcSwap<Policy>,
    backends: Vec<Backend>,
    metrics: Arc<Metrics>,
    late: Arc<Semaphore>,
}

/// What the backends store of an event.
pub struct Prepared {
    stage: Stage,
    /// One of each backend, in their order; `None`: too large for it.
    entries: SmallVec<[Option<Entry>; 2]>,
}

/// A backend in the mode blocking-strict has not stored an event.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("failed to store audit event")]
pub struct NotStored;

impl Audit {
    /// Makes the audit of a server. `metrics` are those of the backends.
    pub fn new(policy: Policy, backends: Vec<Backend>, metrics: Arc<Metrics>) -> Audit {
        let late = Arc::new(Semaphore::new(LATE_EVENTS_MAX));
        Audit { policy: ArcSwap::from_pointee(policy), backends, metrics, late }
    }

    /// Returns the metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Replaces the policy; requests that have arrived keep theirs.
    pub fn set_policy(&self, policy: Policy) {
        self.policy.store(Arc::new(policy));
    }

    /// Returns how a request is audited; `None`: not at all.
    pub fn evaluate(&self, attributes: &Attributes, user: Option<&User>) -> Option<RequestConfig> {
        let config = self.policy.load().evaluate(attributes, user);
        self.metrics.count_level(config.level);
        (config.level > Level::None).then_some(config)
    }

    /// Makes what the backends store of an event; `None` if the policy leaves its stage out.
    pub fn prepare(&self, config: RequestConfig, event: &Event) -> Option<Prepared> {
        if config.omit_stages.contains(event.stage) {
            return None;
        }
        self.metrics.events.increment();
        let encoded = Encoded::new(event);
        let entries = self.backends.iter().map(|backend| backend.prepare(&encoded)).collect();
        Some(Prepared { stage: event.stage, entries })
    }

    /// Stores an event, if no backend blocks; else it is returned, for [`Audit::store`].
    pub fn store_at_once(&self, prepared: Prepared) -> Option<Prepared> {
        if self.backends.iter().any(Backend::blocks) {
            return Some(prepared);
        }
        for (backend, entry) in self.backends.iter().zip(prepared.entries) {
            entry.into_iter().for_each(|entry| backend.buffer(entry));
        }
        None
    }

    /// Stores an event. Returns when the backends that block have stored it. Only of the first
    /// stage does a failure end the request.
    pub async fn store(&self, prepared: Prepared) -> Result<(), NotStored> {
        let mut is_stored = true;
        for (backend, entry) in self.backends.iter().zip(prepared.entries) {
            if let Some(entry) = entry {
                is_stored &= backend.store(entry).await;
            }
        }
        if is_stored {
            return Ok(());
        }
        if prepared.stage == Stage::RequestReceived {
            self.metrics.rejected.increment();
        }
        Err(NotStored)
    }

    /// Stores the events of a request that does not wait for it any more, in their order.
    pub fn store_later(self: &Arc<Audit>, events: Vec<Prepared>) {
        let permit = self.late.clone().try_acquire_owned();
        let (Ok(permit), Ok(runtime)) = (permit, tokio::runtime::Handle::try_current()) else {
            for Prepared { entries, .. } in events {
                let lost = self.backends.iter().zip(entries);
                lost.for_each(|(backend, entry)| backend.count_lost(entry));
            }
            return;
        };
        let audit = self.clone();
        runtime.spawn(async move {
            for event in events {
                // The backend has logged a failure.
                let _ = audit.store(event).await;
            }
            drop(permit);
        });
    }

    /// Stores what is buffered. What cannot be stored in time is counted and logged.
    pub async fn shutdown(&self) {
        let late = u32::try_from(LATE_EVENTS_MAX).unwrap_or(u32::MAX);
        if timeout(SHUTDOWN_TIME_MAX, self.late.acquire_many(late)).await.is_err() {
            let events = LATE_EVENTS_MAX - self.late.available_permits();
            tracing::error!(events, "audit events of the last requests were not stored in time");
        }
        for backend in &self.backends {
            backend.shutdown(SHUTDOWN_TIME_MAX).await;
        }
    }
}

#[cfg(test)]
mod tests;
