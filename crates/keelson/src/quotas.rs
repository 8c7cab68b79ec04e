//! The control loop that counts what quotas limit: when a quota is new or says something else, and when
//! something that it counts went away or changed.

use keelson_auth::Permit;
use keelson_meta::{Failure, Value};
use keelson_registry::options::WatchOptions;
use keelson_registry::{EventKind, Registry, WatchEvent, WatchRefusal, WatchSession};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long until it is tried again after a failure.
const AGAIN: Duration = Duration::from_millis(500);
/// How long changes are gathered before they are counted.
const GATHER: Duration = Duration::from_millis(100);

/// How long until a quota that could not be counted is tried again.
const FAILED_AGAIN: Duration = Duration::from_secs(5);
/// How long until everything is counted again, though nothing seems to have changed.
const RECOUNT: Duration = Duration::from_secs(300);

/// Runs until it is aborted.
pub(crate) async fn run(registry: Arc<Registry>) {
    loop {
        let mut state = match State::start(&registry).await {
            Ok(state) => state,
            Err(error) => {
                tracing::warn!(%error, "resource quota controller");
                tokio::time::sleep(AGAIN).await;
                continue;
            }
        };
        if let Err(error) = state.follow().await {
            tracing::warn!(%error, "resource quota controller");
        }
        tokio::time::sleep(AGAIN).await;
    }
}

struct State<'r> {
    registry: &'r Arc<Registry>,
    permit: Permit,
    quotas: WatchSession,
    /// The quotas that there are: by namespace and name, what they limit.
    known: BTreeMap<String, BTreeMap<String, Value>>,
    /// Everything that quotas may count. Followed only while there are quotas.
    counted: Vec<Followed>,
    /// Namespaces whose quotas are to be counted again.
    due: BTreeSet<String>,
    /// Namespaces with a quota that could not be counted.
    failed: BTreeSet<String>,
}

impl<'r> State<'r> {
    async fn start(registry: &'r Arc<Registry>) -> Result<State<'r>, Failure> {
        let permit = Permit::internal("system:serviceaccount:kube-system:resourcequota-controller");
        let quotas = watch(registry, &permit, "", "resourcequotas").await?;
        let (known, counted, due, failed) = Default::default();
        Ok(State { registry, permit, quotas, known, counted, due, failed })
    }

    async fn follow(&mut self) -> Result<(), Failure> {
        let mut events: Vec<WatchEvent> = vec![];
        let mut progress = self.registry.cache.progress();
        let mut all_due = Instant::now() + RECOUNT;
        let mut failed_due = None;
        loop {
            events.clear();
            if self.quotas.take(&mut events).is_err() {
                return Ok(());
            }
            for event in events.drain(..) {
                self.note_quota(&event);
            }
            if self.known.is_empty() {
                self.counted.clear();
            } else if self.counted.is_empty() {
                self.follow_counted().await?;
            }
            for followed in &mut self.counted {
                if followed.session.take(&mut events).is_err() {
                    return Ok(());
                }
                for event in events.drain(..) {
                    let namespace = event.entry.namespace();
                    if followed.frees(&event) && self.known.contains_key(namespace) {
                        self.due.insert(namespace.to_owned());
                    }
                }
            }
            if self.due.is_empty() {
                if self.counted.is_empty() {
                    if self.quotas.changed().await.is_err() {
                        return Ok(());
                    }
                    continue;
                }
                let until = failed_due.map_or(all_due, |due: Instant| due.min(all_due));
                match tokio::time::timeout_at(until, progress.changed()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return Ok(()),
                    Err(_) if until == all_due => {
                        self.due.extend(self.known.keys().cloned());
                        all_due = Instant::now() + RECOUNT;
                    }
                    Err(_) => self.due.append(&mut self.failed),
                }
                continue;
            }
            self.count().await;
            failed_due = (!self.failed.is_empty()).then(|| Instant::now() + FAILED_AGAIN);
            tokio::time::sleep(GATHER).await;
        }
    }

    fn note_quota(&mut self, event: &WatchEvent) {
        let (namespace, name) = (event.entry.namespace(), event.entry.name());
        if event.kind == EventKind::Deleted {
            if let Some(names) = self.known.get_mut(namespace) {
                names.remove(name);
                if names.is_empty() {
                    self.known.remove(namespace);
                }
            }
            return;
        }
        // Their status is written by admission and by this loop alone, as upstream takes for granted.
        let kind = self.registry.target("", "resourcequotas", "", "").kind;
        let spec = kind.decode(&event.entry).ok().and_then(|obj| obj.get("spec").cloned());
        let spec = spec.unwrap_or_default();
        let names = self.known.entry(namespace.to_owned()).or_default();
        if names.get(name) != Some(&spec) {
            names.insert(name.to_owned(), spec);
            self.due.insert(namespace.to_owned());
        }
    }

    async fn follow_counted(&mut self) -> Result<(), Failure> {
        for kind in self.registry.kinds().into_iter().filter(|kind| kind.namespaced) {
            let (group, resource) = (kind.gvr.group.as_str(), kind.gvr.resource.as_str());
            // Quotas have their own session, and nobody counts events and leases, which never rest.
            if !matches!(resource, "resourcequotas" | "events" | "leases") {
                let session = watch(self.registry, &self.permit, group, resource).await?;
                let changes = matches!(resource, "pods" | "services" | "persistentvolumeclaims");
                self.counted.push(Followed { session, changes });
            }
        }
        Ok(())
    }

    /// Counts what is due. A quota that cannot be counted is tried again later and does not keep the
    /// others waiting.
    async fn count(&mut self) {
        for namespace in std::mem::take(&mut self.due) {
            for name in self.known.get(&namespace).into_iter().flat_map(BTreeMap::keys) {
                match self.registry.recount_quota(&self.permit, &namespace, name).await {
                    Ok(()) => {}
                    // It went away meanwhile, or its namespace is going.
                    Err(status) if matches!(status.code, 403 | 404) => {}
                    Err(error) => {
                        tracing::warn!(%error, namespace, quota = %name, "quota not counted; trying again");
                        self.failed.insert(namespace.clone());
                    }
                }
            }
        }
    }
}

/// The objects of one resource.
struct Followed {
    session: WatchSession,
    /// What counts of an object may change, not only whether it is there.
    changes: bool,
}

impl Followed {
    /// Whether an event may leave less to be counted than admission has charged. What is new is
    /// charged, and of pods only those that end take up less.
    fn frees(&self, event: &WatchEvent) -> bool {
        let phase = event.entry.field("status.phase");
        match event.kind {
            EventKind::Added => false,
            EventKind::Deleted => true,
            EventKind::Modified => {
                self.changes && !matches!(phase, Some("Pending" | "Running" | "Unknown"))
            }
        }
    }
}

async fn watch(
    registry: &Arc<Registry>,
    permit: &Permit,
    group: &str,
    resource: &str,
) -> Result<WatchSession, Failure> {
    let all = registry.target(group, resource, "", "");
    let session = registry.watch(permit, &all, &WatchOptions::default()).await;
    session.map_err(WatchRefusal::into_failure)
}
