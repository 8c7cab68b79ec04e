//! The resource quota controller: counts what quotas limit: when a quota is new or says something else, and when
//! something that it counts went away or changed.

use crate::client::Client;
use crate::control_loop::{self, ControlLoop};
use crate::queue::Queue;
use keelson_meta::{Failure, Str, Value};
use keelson_registry::{Entry, InformerEvent, Kind, Registry, Target, Wanted};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long changes are gathered before they are counted.
const GATHER: Duration = Duration::from_millis(100);
/// How long until everything is counted again, though nothing seems to have changed.
const RECOUNT: Duration = Duration::from_secs(300);

/// Runs until it is dropped.
pub(crate) async fn run(registry: Arc<Registry>) {
    let client = Client::new(&registry, "resourcequota-controller");
    control_loop::run(&registry, Quotas { client, known: Mutex::default() }).await;
}

struct Quotas {
    client: Client,
    known: Mutex<Known>,
}

/// The quotas that there are: by namespace and name, what they limit.
type Known = HashMap<Str, BTreeMap<Str, Value>>;

impl ControlLoop for Quotas {
    /// A namespace.
    type Key = Str;
    const NAME: &'static str = "resourcequota-controller";
    const WANTED: Wanted = Wanted::All;
    const WORKERS_MAX: usize = 4;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Str>) -> bool {
        let mut known = self.known();
        for event in events {
            match &event {
                InformerEvent::Listed(kind, all) if is_quotas(kind) => {
                    known.clear();
                    all.range("", "").for_each(|entry| note(&mut known, kind, entry, queue));
                }
                InformerEvent::Put { kind, entry, .. } if is_quotas(kind) => {
                    note(&mut known, kind, entry, queue);
                }
                InformerEvent::Deleted { kind, entry } if is_quotas(kind) => {
                    if let Some(names) = known.get_mut(entry.namespace()) {
                        names.remove(entry.name());
                        if names.is_empty() {
                            known.remove(entry.namespace());
                        }
                    }
                }
                // Of most servers this is the end of it.
                _ if known.is_empty() => {}
                InformerEvent::Put { kind, entry, previous: Some(_) } if frees(kind, entry) => {
                    count_soon(&known, entry.namespace(), queue);
                }
                InformerEvent::Deleted { entry, .. } => {
                    count_soon(&known, entry.namespace(), queue);
                }
                _ => {}
            }
        }
        false
    }

    /// Counts the quotas of a namespace.
    async fn sync(&self, namespace: Str) -> Result<Option<Duration>, Failure> {
        let Some(kind) = self.client.kind("", "resourcequotas") else { return Ok(None) };
        let names: Vec<Str> =
            self.known().get(&namespace).into_iter().flat_map(BTreeMap::keys).cloned().collect();
        for name in &names {
            match self.client.recount_quota(&Target::of(&kind, &namespace, name)).await {
                // It went away meanwhile, or its namespace is going.
                Err(status) if matches!(status.code, 403 | 404) => {}
                counted => counted?,
            }
        }
        Ok((!names.is_empty()).then_some(RECOUNT))
    }
}

impl Quotas {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_quotas(kind: &Kind) -> bool {
    kind.gvr.group.is_empty() && kind.gvr.resource == "resourcequotas"
}

/// Takes in a quota, which is counted when it limits something else than before: its status is written by
/// admission and by this loop alone, as upstream takes for granted.
fn note(known: &mut Known, kind: &Kind, entry: &Entry, queue: &mut Queue<Str>) {
    let spec = kind.decode(entry).ok().and_then(|quota| quota.get("spec").cloned());
    let spec = spec.unwrap_or_default();
    let names = known.entry(entry.namespace().into()).or_default();
    if names.get(entry.name()) != Some(&spec) {
        names.insert(entry.name().into(), spec);
        queue.add(entry.namespace().into());
    }
}

fn count_soon(known: &Known, namespace: &str, queue: &mut Queue<Str>) {
    if let Some((namespace, _)) = known.get_key_value(namespace) {
        queue.add_at(namespace.clone(), Instant::now() + GATHER);
    }
}

/// Whether a change may leave less to be counted than admission has charged. What is new is charged, and of
/// pods only those that end take up less.
fn frees(kind: &Kind, entry: &Entry) -> bool {
    let phase = entry.field("status.phase");
    let changes =
        matches!(kind.gvr.resource.as_str(), "pods" | "services" | "persistentvolumeclaims");
    changes && !matches!(phase, Some("Pending" | "Running" | "Unknown"))
}
