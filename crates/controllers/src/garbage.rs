//! The garbage collector: deletes objects whose owners do not exist, deletes dependents before
//! their owners in foreground deletion, and removes owner references when dependents are orphaned.
//!
//! An owner reference names an object in the dependent's namespace or a cluster-scoped object. An
//! owner exists if the object of that kind and name has that uid. While one owner exists that does
//! not wait for its dependents, the dependent stays and its references to other owners are removed.
//! If the kind of an owner is not served, its dependents stay until it is.

mod graph;

use graph::{Effects, Graph, ObjectRef, Work};
use keelson_loops::client::{Client, EventText, InvolvedObject};
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::metadata::{FOREGROUND, Metadata, ORPHAN, OwnerReference};
use keelson_loops::queue::Queue;
use keelson_meta::{Failure, GroupVersion, Map, Value, value};
use keelson_records::Entry;
use keelson_registry::options::{DeleteOptions, PatchForm, Propagation};
use keelson_registry::{InformerEvent, InformerScope, Registry, Subresource, Target};
use keelson_resources::Kind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;

/// The name of the loop.
pub const NAME: &str = "garbage-collector-controller";
/// Dependents of one owner that are orphaned concurrently.
const ORPHANED_MAX: usize = 256;

/// Runs until it is dropped.
pub(crate) async fn run(registry: Arc<Registry>) {
    let client = Client::new(&registry, "generic-garbage-collector");
    control_loop::run(&registry, Garbage { client, graph: Mutex::default() }).await;
}

struct Garbage {
    client: Client,
    graph: Mutex<Graph>,
}

/// The owners of an object, with upstream's terms.
#[derive(Default)]
struct Owners {
    /// Whether an owner exists that does not wait for its dependents.
    solid: bool,
    /// Owners that do not exist.
    dangling: Vec<OwnerReference>,
    /// Owners that wait for the deletion of their dependents.
    waiting: Vec<OwnerReference>,
}

impl ControlLoop for Garbage {
    type Key = Work;
    const NAME: &'static str = NAME;
    const SCOPE: InformerScope = InformerScope::All;
    const WORKERS_MAX: usize = 64;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Work>) -> bool {
        let mut effects = Effects::default();
        let mut graph = self.graph();
        for event in events {
            graph.apply(event, &mut effects);
        }
        effects.work.into_iter().for_each(|work| queue.add(work));
        effects.has_waiting_owner
    }

    async fn sync(&self, work: Work) -> Result<Option<Duration>, Failure> {
        match &work {
            Work::Collect(object) => self.collect(object).await?,
            Work::Orphan(object) => self.orphan_dependents(object).await?,
        }
        Ok(None)
    }
}

impl Garbage {
    fn graph(&self) -> MutexGuard<'_, Graph> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn target(&self, object: &ObjectRef) -> Target {
        let kind = self.graph().kind(object);
        let (namespace, name) = object.key.split_once('/').unwrap_or(("", &object.key));
        Target::of(&kind, namespace, name)
    }

    /// Deletes one object if it has no owner, or lets its deletion go on.
    async fn collect(&self, object: &ObjectRef) -> Result<(), Failure> {
        let target = self.target(object);
        if is_ignored(&target.kind) {
            return Ok(());
        }
        if self.has_all_owners(&target) {
            self.graph().take_unchecked(object);
            return Ok(());
        }
        let Some(entry) = self.client.entry(&target).await? else { return Ok(()) };
        let metadata = Metadata::of(&entry);
        if metadata.is_deleting_dependents() {
            if self.graph().is_blocked(&metadata.uid) {
                if self.graph().is_in_cycle(&metadata.uid, object) {
                    return self.unblock_owners(&target, &entry).await;
                }
                return Ok(());
            }
            return self.remove_finalizer(&target, &entry, FOREGROUND).await;
        }
        if metadata.is_deleting || !metadata.has_owners() {
            return Ok(());
        }
        if self.graph().take_unchecked(object) {
            self.report_other_namespaces(&target, &metadata).await;
        }
        let Some(owners) = self.owners(object, &target, &metadata).await? else { return Ok(()) };
        if owners.solid {
            let removed: Vec<_> = owners.dangling.iter().chain(&owners.waiting).collect();
            return remove_owners(&self.client, &target, &entry, &removed).await;
        }
        if !owners.waiting.is_empty() && self.graph().has_dependents(&metadata.uid) {
            if self.graph().has_waiting_dependent(&metadata.uid) {
                // Otherwise owner and dependent could wait for each other.
                return self.unblock_owners(&target, &entry).await;
            }
            return self.delete(&target, &entry, Propagation::Foreground).await;
        }
        let propagation = if metadata.has_finalizer(ORPHAN) {
            Propagation::Orphan
        } else if metadata.has_finalizer(FOREGROUND) {
            Propagation::Foreground
        } else {
            Propagation::Background
        };
        self.delete(&target, &entry, propagation).await
    }

    /// Whether an object exists with all its owners, according to the cache. For most objects
    /// nothing else needs to be checked.
    fn has_all_owners(&self, target: &Target) -> bool {
        let registry = &self.client.registry;
        let known = registry.cached(&target.kind, &target.namespace, &target.name);
        let Some(entry) = known else { return false };
        let metadata = Metadata::of(&entry);
        !metadata.is_deleting
            && metadata.owners().iter().all(|owner| {
                let Some(kind) = self.kind_of(owner) else { return false };
                let namespace = if kind.namespaced { target.namespace.as_str() } else { "" };
                let stored = registry.cached(&kind, namespace, &owner.name);
                stored.is_some_and(|stored| {
                    let stored = Metadata::of(&stored);
                    *stored.uid == *owner.uid && !stored.is_deleting_dependents()
                })
            })
    }

    /// Looks up the owners of an object; `None` if one of them cannot be looked up.
    async fn owners(
        &self,
        object: &ObjectRef,
        target: &Target,
        metadata: &Metadata<'_>,
    ) -> Result<Option<Owners>, Failure> {
        let mut owners = Owners::default();
        for owner in metadata.owners() {
            let Some(kind) = self.kind_of(&owner) else {
                self.graph().mark_owner_unserved(object);
                tracing::debug!(
                    controller = NAME,
                    ?object,
                    ?owner,
                    "owner's kind is not served; waiting"
                );
                return Ok(None);
            };
            if kind.namespaced && !target.kind.namespaced {
                // A cluster-scoped object cannot have a namespaced owner.
                return Ok(None);
            }
            let namespace = if kind.namespaced { target.namespace.as_str() } else { "" };
            let stored = self.client.entry(&Target::of(&kind, namespace, &owner.name)).await?;
            match stored.as_ref().map(Metadata::of) {
                Some(stored) if *stored.uid == *owner.uid => {
                    if stored.is_deleting_dependents() {
                        owners.waiting.push(owner);
                    } else {
                        owners.solid = true;
                    }
                }
                _ => owners.dangling.push(owner),
            }
        }
        Ok(Some(owners))
    }

    fn kind_of(&self, owner: &OwnerReference) -> Option<Arc<Kind>> {
        let version = GroupVersion::parse(&owner.api_version)?;
        self.client.registry.api().of_kind(&version.kind(owner.kind.clone())).cloned()
    }

    /// Deletes this version of an object.
    async fn delete(
        &self,
        target: &Target,
        entry: &Entry,
        propagation: Propagation,
    ) -> Result<(), Failure> {
        let options = DeleteOptions {
            propagation: Some(propagation),
            uid: Some((*Metadata::of(entry).uid).into()),
            resource_version: Some(entry.modified().to_string().into()),
            ..DeleteOptions::default()
        };
        let resource = target.gvr().qualified();
        let namespace = &target.namespace;
        let name = &target.name;
        tracing::debug!(%resource, %namespace, %name, ?propagation, "deleting object without owner");
        ignore_not_found(self.client.delete(target, &options).await)
    }

    /// Sets `blockOwnerDeletion` to false, so that the owners can be deleted before the object.
    async fn unblock_owners(&self, target: &Target, entry: &Entry) -> Result<(), Failure> {
        let mut owners = Metadata::of(entry).owner_values();
        for owner in owners.iter_mut().filter_map(Value::as_object_mut) {
            if owner.get("blockOwnerDeletion").and_then(Value::as_bool) == Some(true) {
                owner.insert("blockOwnerDeletion", false);
            }
        }
        patch_metadata(&self.client, target, entry, "ownerReferences", owners).await
    }

    async fn remove_finalizer(
        &self,
        target: &Target,
        entry: &Entry,
        finalizer: &str,
    ) -> Result<(), Failure> {
        let mut remaining = Metadata::of(entry).finalizers();
        remaining.retain(|name| name.as_str() != Some(finalizer));
        patch_metadata(&self.client, target, entry, "finalizers", remaining).await
    }

    /// Removes the references to an owner that is being deleted from its dependents, and then its
    /// finalizer.
    async fn orphan_dependents(&self, object: &ObjectRef) -> Result<(), Failure> {
        let target = self.target(object);
        let Some(entry) = self.client.entry(&target).await? else { return Ok(()) };
        let metadata = Metadata::of(&entry);
        if !metadata.is_orphaning_dependents() {
            return Ok(());
        }
        let dependents = self.graph().dependents(&metadata.uid);
        let mut tasks = JoinSet::new();
        for dependent in dependents {
            if tasks.len() == ORPHANED_MAX {
                control_loop::join_result(tasks.join_next().await)?;
            }
            let target = self.target(&dependent);
            let client = self.client.clone();
            let owner: Arc<str> = (*metadata.uid).into();
            tasks.spawn(async move { orphan(&client, &target, &owner).await });
        }
        while let Some(done) = tasks.join_next().await {
            control_loop::join_result(Some(done))?;
        }
        self.remove_finalizer(&target, &entry, ORPHAN).await
    }

    /// Creates events about owners that exist only in another namespace.
    async fn report_other_namespaces(&self, target: &Target, metadata: &Metadata<'_>) {
        for owner in metadata.owners() {
            let Some(kind) = self.kind_of(&owner).filter(|kind| kind.namespaced) else { continue };
            let namespace = target.namespace.as_str();
            let is_owner = |entry: &Entry| {
                entry.name() == owner.name && *Metadata::of(entry).uid == *owner.uid
            };
            let in_namespace = self.client.registry.cached(&kind, namespace, &owner.name);
            if in_namespace.is_some_and(|entry| is_owner(&entry)) {
                continue;
            }
            let all = self.client.registry.cached_all(&kind);
            if !all.range("", "").any(is_owner) {
                continue;
            }
            let OwnerReference { api_version, kind, name, uid, .. } = &owner;
            let message = format!(
                "ownerRef [{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {uid}] \
                 does not exist in namespace \"{namespace}\""
            );
            let involved = InvolvedObject {
                kind: target.kind.name(),
                api_version: &target.schema().gvk.api_version(),
                namespace,
                name: &target.name,
                uid: &metadata.uid,
                resource_version: "",
            };
            let reason = "OwnerRefInvalidNamespace";
            let event = EventText { kind: "Warning", reason, message: &message };
            self.client.record_event(NAME, &involved, event).await;
        }
    }
}

/// Removes owner references from an object.
async fn remove_owners(
    client: &Client,
    target: &Target,
    entry: &Entry,
    removed: &[&OwnerReference],
) -> Result<(), Failure> {
    if removed.is_empty() {
        return Ok(());
    }
    let is_removed =
        |value: &Value| removed.iter().any(|removed| value.str_at(&["uid"]) == Some(&removed.uid));
    let mut remaining = Metadata::of(entry).owner_values();
    remaining.retain(|owner| !is_removed(owner));
    patch_metadata(client, target, entry, "ownerReferences", remaining).await
}

/// Removes the references to one owner from a dependent.
async fn orphan(client: &Client, target: &Target, owner: &str) -> Result<(), Failure> {
    let Some(entry) = client.entry(target).await? else { return Ok(()) };
    let owners = Metadata::of(&entry).owners();
    let removed: Vec<_> = owners.iter().filter(|reference| reference.uid == owner).collect();
    remove_owners(client, target, &entry, &removed).await
}

/// Replaces a list in the metadata of this version of an object.
async fn patch_metadata(
    client: &Client,
    target: &Target,
    entry: &Entry,
    name: &'static str,
    items: Vec<Value>,
) -> Result<(), Failure> {
    let mut metadata = Map::new();
    metadata.insert("uid", &*Metadata::of(entry).uid);
    metadata.insert("resourceVersion", entry.modified().to_string());
    metadata.insert(name, if items.is_empty() { Value::Null } else { Value::Array(items) });
    let patch = value!({"metadata": (metadata)});
    ignore_not_found(client.patch(target, Subresource::None, PatchForm::Merge, &patch).await)
}

// Events are ignored, as upstream does: they are many, and they expire.
fn is_ignored(kind: &Kind) -> bool {
    kind.gvr.resource == "events" && matches!(kind.gvr.group.as_str(), "" | "events.k8s.io")
}

/// Ignores 404.
fn ignore_not_found<T>(done: Result<T, Failure>) -> Result<(), Failure> {
    match done {
        Err(status) if status.code == 404 => Ok(()),
        done => done.map(drop),
    }
}
