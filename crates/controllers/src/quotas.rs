//! The resource quota controller: recalculates the usage of quotas when a quota is created or
//! changed, when an object that it counts is deleted or changed, and when objects are listed anew.

use keelson_loops::client::Client;
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::queue::Queue;
use keelson_meta::{Failure, Str, Value};
use keelson_records::Entry;
use keelson_registry::{InformerEvent, InformerScope, Registry, Target};
use keelson_resources::Kind;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Delay before changes are counted.
const RECALCULATE_DELAY: Duration = Duration::from_millis(100);
/// Time between recalculations without a change.
const RECALCULATE_INTERVAL: Duration = Duration::from_secs(300);

/// Runs until it is dropped.
pub(crate) async fn run(registry: Arc<Registry>) {
    let client = Client::new(&registry, "resourcequota-controller");
    control_loop::run(&registry, Quotas { client, quotas: Mutex::default() }).await;
}

struct Quotas {
    client: Client,
    quotas: Mutex<QuotaSpecs>,
}

/// The specs of all quotas, by namespace and name.
type QuotaSpecs = HashMap<Str, BTreeMap<Str, Value>>;

impl ControlLoop for Quotas {
    /// A namespace.
    type Key = Str;
    const NAME: &'static str = "resourcequota-controller";
    const SCOPE: InformerScope = InformerScope::All;
    const WORKERS_MAX: usize = 4;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Str>) -> bool {
        let mut quotas = self.quotas();
        for event in events {
            match &event {
                InformerEvent::Listed(kind, all) if is_quotas(kind) => {
                    quotas.clear();
                    all.range("", "")
                        .for_each(|entry| update_quota(&mut quotas, kind, entry, queue));
                }
                InformerEvent::Put { kind, entry, .. } if is_quotas(kind) => {
                    update_quota(&mut quotas, kind, entry, queue);
                }
                InformerEvent::Deleted { kind, entry } if is_quotas(kind) => {
                    if let Some(names) = quotas.get_mut(entry.namespace()) {
                        names.remove(entry.name());
                        if names.is_empty() {
                            quotas.remove(entry.namespace());
                        }
                    }
                }
                // Most servers have no quotas.
                _ if quotas.is_empty() => {}
                // What was deleted before the list is not known: of a resource that was just
                // defined, say, whose first object lived shortly.
                InformerEvent::Listed(..) => {
                    quotas.keys().for_each(|namespace| recalculate_soon(&quotas, namespace, queue));
                }
                InformerEvent::Put { kind, entry, previous: Some(previous) }
                    if quotas.contains_key(entry.namespace())
                        && may_lower_usage(kind, previous, entry) =>
                {
                    recalculate_soon(&quotas, entry.namespace(), queue);
                }
                InformerEvent::Deleted { entry, .. } => {
                    recalculate_soon(&quotas, entry.namespace(), queue);
                }
                _ => {}
            }
        }
        false
    }

    /// Recalculates the quotas of a namespace.
    async fn sync(&self, namespace: Str) -> Result<Option<Duration>, Failure> {
        let Some(kind) = self.client.kind("", "resourcequotas") else { return Ok(None) };
        let names: Vec<Str> =
            self.quotas().get(&namespace).into_iter().flat_map(BTreeMap::keys).cloned().collect();
        for name in &names {
            match self.client.recalculate_quota(&Target::of(&kind, &namespace, name)).await {
                // The quota was deleted, or its namespace is terminating.
                Err(status) if matches!(status.code, 403 | 404) => {}
                result => result?,
            }
        }
        Ok((!names.is_empty()).then_some(RECALCULATE_INTERVAL))
    }
}

impl Quotas {
    fn quotas(&self) -> MutexGuard<'_, QuotaSpecs> {
        self.quotas.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_quotas(kind: &Kind) -> bool {
    kind.gvr.group.is_empty() && kind.gvr.resource == "resourcequotas"
}

/// Stores the spec of a quota and queues its namespace if the spec has changed. Only admission and
/// this loop write the status, as upstream assumes too.
fn update_quota(quotas: &mut QuotaSpecs, kind: &Kind, entry: &Entry, queue: &mut Queue<Str>) {
    let spec =
        kind.decode(entry).ok().and_then(|quota| quota.get("spec").cloned()).unwrap_or_default();
    let names = quotas.entry(entry.namespace().into()).or_default();
    if names.get(entry.name()) != Some(&spec) {
        names.insert(entry.name().into(), spec);
        queue.add(entry.namespace().into());
    }
}

fn recalculate_soon(quotas: &QuotaSpecs, namespace: &str, queue: &mut Queue<Str>) {
    if let Some((namespace, _)) = quotas.get_key_value(namespace) {
        queue.add_at(namespace.clone(), Instant::now() + RECALCULATE_DELAY);
    }
}

/// Whether an update may lower the usage below what admission has charged. New objects are charged
/// by admission, and pods use less when they end, are resized, or leave the scope of a quota.
fn may_lower_usage(kind: &Kind, previous: &Entry, entry: &Entry) -> bool {
    let resource = kind.gvr.resource.as_str();
    if resource != "pods" {
        return matches!(resource, "services" | "persistentvolumeclaims");
    }
    let has_ended = !matches!(entry.field("status.phase"), Some("Pending" | "Running" | "Unknown"));
    has_ended || scope_and_resources(kind, previous) != scope_and_resources(kind, entry)
}

/// Returns whether a pod has a deadline, and the resources that its containers have by their
/// statuses.
fn scope_and_resources(kind: &Kind, pod: &Entry) -> Option<(bool, Vec<Value>)> {
    let pod = kind.decode(pod).ok()?;
    let has_deadline = pod.int_at(&["spec", "activeDeadlineSeconds"]).is_some();
    let of = |list: &str| {
        let statuses = pod.array_at(&["status", list]);
        statuses.iter().map(|status| status.get("resources").cloned().unwrap_or_default())
    };
    let resources = of("containerStatuses").chain(of("initContainerStatuses")).collect();
    Some((has_deadline, resources))
}
