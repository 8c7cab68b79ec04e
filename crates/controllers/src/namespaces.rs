//! The namespace controller: deletes the content of a terminating namespace, pods first
//! (CVE-2024-7598), reports what remains in its conditions, and then removes its finalizer. What
//! the servers behind this one have of it is deleted, too; while one does not say what it has, the
//! namespace stays.

use keelson_loops::client::Client;
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::far_objects::FarObjects;
use keelson_loops::metadata::Metadata;
use keelson_loops::queue::Queue;
use keelson_meta::{Failure, GroupVersionResource, Object, Str, Value, value};
use keelson_records::Entry;
use keelson_registry::{InformerEvent, InformerScope, Registry, Subresource, Target};
use keelson_resources::{Kind, RemoteGroup};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Delay from the deletion of an object to the next sync of its namespace: deletions come in
/// bursts.
const DELETION_DELAY: Duration = Duration::from_millis(50);
/// Time until a namespace is synced again when a server behind this one does not say what it has.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(5);
/// Time between syncs of a namespace whose content remains.
const RESYNC_INTERVAL: Duration = Duration::from_secs(15);

/// Runs until it is dropped.
pub(crate) async fn run(registry: Arc<Registry>) {
    let client = Client::new(&registry, "namespace-controller");
    control_loop::run(&registry, Namespaces { client, terminating: Mutex::default() }).await;
}

struct Namespaces {
    client: Client,
    /// Namespaces that are terminating.
    terminating: Mutex<HashSet<Str>>,
}

/// The remaining content of a namespace.
#[derive(Debug, Default)]
struct Content {
    /// Number of objects, by resource.
    objects: BTreeMap<String, usize>,
    /// Number of objects, by finalizer.
    finalizers: BTreeMap<Str, usize>,
    /// Errors of deletions.
    errors: Vec<Failure>,
    /// Group versions whose servers do not say what they have.
    stale: BTreeSet<String>,
}

impl ControlLoop for Namespaces {
    /// A namespace.
    type Key = Str;
    const NAME: &'static str = "namespace-controller";
    const SCOPE: InformerScope = InformerScope::All;
    const WORKERS_MAX: usize = 10;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Str>) -> bool {
        let mut terminating = self.terminating.lock().unwrap_or_else(PoisonError::into_inner);
        let soon = Instant::now() + DELETION_DELAY;
        for event in events {
            match &event {
                InformerEvent::Listed(kind, all) if is_namespaces(kind) => {
                    terminating.clear();
                    for entry in all.range("", "").filter(|entry| is_terminating(entry)) {
                        terminating.insert(entry.name().into());
                        queue.add(entry.name().into());
                    }
                }
                InformerEvent::Put { kind, entry, .. }
                    if is_namespaces(kind) && is_terminating(entry) =>
                {
                    terminating.insert(entry.name().into());
                    queue.add(entry.name().into());
                }
                InformerEvent::Deleted { kind, entry } if is_namespaces(kind) => {
                    terminating.remove(entry.name());
                }
                InformerEvent::Deleted { entry, .. } if !terminating.is_empty() => {
                    if let Some(namespace) = terminating.get(entry.namespace()) {
                        queue.add_at(namespace.clone(), soon);
                    }
                }
                _ => {}
            }
        }
        false
    }

    async fn sync(&self, namespace: Str) -> Result<Option<Duration>, Failure> {
        let Some(kind) = self.client.kind("", "namespaces") else { return Ok(None) };
        let target = Target::of(&kind, "", &namespace);
        let Some(object) = self.client.get(&target).await? else { return Ok(None) };
        let finalizers = object.array_at(&["spec", "finalizers"]);
        if object.deletion_timestamp().is_none()
            || !finalizers.iter().any(|name| name.as_str() == Some("kubernetes"))
        {
            return Ok(None);
        }
        let content = self.delete_content(&namespace).await;
        if !self.update_conditions(&target, object, &content).await? {
            return Ok(None);
        }
        if let Some(error) = content.errors.into_iter().next() {
            return Err(error);
        }
        if !content.stale.is_empty() {
            return Ok(Some(DISCOVERY_INTERVAL));
        }
        if !content.objects.is_empty() {
            return Ok(Some(RESYNC_INTERVAL));
        }
        match self.client.finalize_namespace(&target).await {
            Err(status) if status.code == 404 => Ok(None),
            result => result.map(|()| None),
        }
    }
}

impl Namespaces {
    /// Deletes everything in a namespace and returns what remains.
    async fn delete_content(&self, namespace: &str) -> Content {
        let mut content = Content::default();
        let mut kinds = self.client.registry.kinds();
        kinds.retain(|kind| kind.namespaced);
        kinds.sort_by_key(|kind| (!is_pods(kind), kind.gvr.qualified()));
        for kind in kinds {
            self.delete_kind(&kind, namespace, &mut content).await;
            if is_pods(&kind) && !(content.objects.is_empty() && content.errors.is_empty()) {
                return content;
            }
        }
        let groups = self.client.registry.remote_groups();
        for (objects, verbs) in far_objects(&groups, namespace, &mut content.stale) {
            if let Err(error) = self.delete_far(&objects, &verbs, &mut content).await {
                content.errors.push(error);
            }
        }
        content
    }

    /// Deletes objects of another server.
    async fn delete_far(
        &self,
        objects: &FarObjects,
        verbs: &[Str],
        content: &mut Content,
    ) -> Result<(), Failure> {
        let has = |verb: &str| verbs.iter().any(|known| known == verb);
        if has("deletecollection") {
            self.client.delete_all_far(objects).await?;
        }
        if !has("list") {
            return Ok(());
        }
        let mut left = self.client.list_far(objects).await?;
        if !has("deletecollection") {
            for object in left.array_at(&["items"]) {
                let name = object.str_at(&["metadata", "name"]).unwrap_or_default();
                self.client.delete_far(objects, name).await?;
            }
            left = self.client.list_far(objects).await?;
        }
        let left = left.array_at(&["items"]);
        if left.is_empty() {
            return Ok(());
        }
        let name = format!("{}.{}", objects.gvr.resource, objects.gvr.group);
        *content.objects.entry(name).or_default() += left.len();
        for object in left {
            let finalizers = object.array_at(&["metadata", "finalizers"]);
            for finalizer in finalizers.iter().filter_map(Value::as_str) {
                *content.finalizers.entry(finalizer.into()).or_default() += 1;
            }
        }
        Ok(())
    }

    async fn delete_kind(&self, kind: &Arc<Kind>, namespace: &str, content: &mut Content) {
        let prefix = format!("{namespace}/");
        let registry = &self.client.registry;
        if registry.cached_all(kind).range(&prefix, "").next().is_none() {
            return;
        }
        let target = Target::of(kind, namespace, "");
        if let Err(error) = self.client.delete_all(&target).await {
            content.errors.push(error);
        }
        let left = match self.client.list(&target).await {
            Ok(left) => left.items,
            Err(error) => return content.errors.push(error),
        };
        if left.is_empty() {
            return;
        }
        let name = format!("{}.{}", kind.gvr.resource, kind.gvr.group);
        *content.objects.entry(name).or_default() += left.len();
        for entry in &left {
            let finalizers = Metadata::of(entry).finalizers();
            for finalizer in finalizers.iter().filter_map(Value::as_str) {
                *content.finalizers.entry(finalizer.into()).or_default() += 1;
            }
        }
    }

    /// Updates the conditions if they have changed. Returns false if the namespace does not exist
    /// any more.
    async fn update_conditions(
        &self,
        target: &Target,
        mut namespace: Object,
        content: &Content,
    ) -> Result<bool, Failure> {
        if !set_conditions(&mut namespace, content, &self.client.now().text()) {
            return Ok(true);
        }
        match self.client.update(target, Subresource::Status, namespace).await {
            Err(status) if status.code == 404 => Ok(false),
            result => result.map(|_| true),
        }
    }
}

/// Returns the objects that servers behind this one can delete in a namespace, with their verbs: of
/// each resource those of the preferred version. Adds the group versions whose servers do not say
/// what they have.
fn far_objects(
    groups: &[RemoteGroup],
    namespace: &str,
    stale: &mut BTreeSet<String>,
) -> Vec<(FarObjects, Vec<Str>)> {
    let mut found = vec![];
    for group in groups {
        let mut seen: HashSet<&str> = HashSet::new();
        for version in &group.versions {
            let Some(resources) = version.resources.as_ref().filter(|_| version.is_available)
            else {
                stale.insert(format!("{}/{}", group.name, version.name));
                continue;
            };
            for resource in resources.as_array().unwrap_or_default() {
                let name = resource.str_at(&["resource"]).unwrap_or_default();
                let verbs = resource.array_at(&["verbs"]).iter().filter_map(Value::as_str);
                let verbs: Vec<Str> = verbs.map(Str::new).collect();
                let is_namespaced = resource.str_at(&["scope"]) == Some("Namespaced");
                let is_deleted = verbs.iter().any(|verb| verb == "delete");
                if is_namespaced && is_deleted && seen.insert(name) {
                    let gvr = GroupVersionResource::new(
                        group.name.clone(),
                        version.name.clone(),
                        Str::new(name),
                    );
                    let namespace = Str::new(namespace);
                    let server = version.server.clone();
                    found.push((FarObjects { server, gvr, namespace }, verbs));
                }
            }
        }
    }
    found
}

fn is_namespaces(kind: &Kind) -> bool {
    kind.gvr.group.is_empty() && kind.gvr.resource == "namespaces"
}

fn is_pods(kind: &Kind) -> bool {
    kind.gvr.group.is_empty() && kind.gvr.resource == "pods"
}

fn is_terminating(entry: &Entry) -> bool {
    entry.field("status.phase") == Some("Terminating")
}

/// Type, status, reason and message of a condition.
type Condition = (&'static str, bool, &'static str, String);

/// Returns the conditions for this content, in the order of kube-controller-manager.
fn conditions(content: &Content) -> [Condition; 5] {
    let discovery = discovery_condition(&content.stale);
    let parsing = "All legacy kube types successfully parsed".to_owned();
    let deletion = if content.errors.is_empty() {
        let message = "All content successfully deleted, may be waiting on finalization".to_owned();
        (false, "ContentDeleted", message)
    } else {
        let mut errors: Vec<String> =
            content.errors.iter().map(|error| error.message.clone()).collect();
        errors.sort();
        errors.dedup();
        let all = match &errors[..] {
            [one] => one.clone(),
            _ => format!("[{}]", errors.join(", ")),
        };
        let count = content.errors.len();
        let message = format!("Failed to delete all resource types, {count} remaining: {all}");
        (true, "ContentDeletionFailed", message)
    };
    let left = content.objects.iter();
    let left: Vec<String> =
        left.map(|(name, count)| format!("{name} has {count} resource instances")).collect();
    let remaining = if left.is_empty() {
        (false, "ContentRemoved", "All content successfully removed".to_owned())
    } else {
        let message = format!("Some resources are remaining: {}", left.join(", "));
        (true, "SomeResourcesRemain", message)
    };
    let counts = content.finalizers.iter();
    let counts: Vec<String> =
        counts.map(|(name, count)| format!("{name} in {count} resource instances")).collect();
    let finalizers = if counts.is_empty() {
        let message = "All content-preserving finalizers finished".to_owned();
        (false, "ContentHasNoFinalizers", message)
    } else {
        let counts = counts.join(", ");
        let message = format!("Some content in the namespace has finalizers remaining: {counts}");
        (true, "SomeFinalizersRemain", message)
    };
    [
        ("NamespaceDeletionDiscoveryFailure", discovery.0, discovery.1, discovery.2),
        ("NamespaceDeletionGroupVersionParsingFailure", false, "ParsedGroupVersions", parsing),
        ("NamespaceDeletionContentFailure", deletion.0, deletion.1, deletion.2),
        ("NamespaceContentRemaining", remaining.0, remaining.1, remaining.2),
        ("NamespaceFinalizersRemaining", finalizers.0, finalizers.1, finalizers.2),
    ]
}

/// Says whose servers do not say what they have, in the words of client-go.
fn discovery_condition(stale: &BTreeSet<String>) -> (bool, &'static str, String) {
    if stale.is_empty() {
        let message = "All resources successfully discovered".to_owned();
        return (false, "ResourcesDiscovered", message);
    }
    let one = |version: &String| format!("{version}: stale GroupVersion discovery: {version}");
    let all: Vec<String> = stale.iter().map(one).collect();
    let message = format!(
        "Discovery failed for some groups, {} failing: unable to retrieve the complete list of server \
         APIs: {}",
        stale.len(),
        all.join(", ")
    );
    (true, "DiscoveryFailed", message)
}

/// Sets the conditions of a namespace. Returns whether one has changed.
fn set_conditions(namespace: &mut Object, content: &Content, now: &str) -> bool {
    let mut changed = false;
    let status = namespace.object_mut("status");
    let Value::Array(all) = status.entry_or("conditions", || Value::Array(vec![])) else {
        return false;
    };
    for (name, is_true, reason, message) in conditions(content) {
        let state = if is_true { "True" } else { "False" };
        let known = all.iter_mut().find(|known| known.str_at(&["type"]) == Some(name));
        let Some(known) = known.and_then(Value::as_object_mut) else {
            all.push(value!({
                "type": name, "status": state, "lastTransitionTime": now,
                "reason": reason, "message": message
            }));
            changed = true;
            continue;
        };
        let facts = [("status", state), ("reason", reason), ("message", message.as_str())];
        let is_same =
            |(name, fact): &(&str, &str)| known.get(name).and_then(Value::as_str) == Some(*fact);
        if facts.iter().all(is_same) {
            continue;
        }
        if !is_same(&facts[0]) {
            known.insert("lastTransitionTime", now);
        }
        for (name, fact) in facts {
            known.insert(name, fact);
        }
        changed = true;
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: R-COND-07.
    #[test]
    fn a_condition_has_the_time_at_which_its_status_changed() {
        let mut namespace = Object::new();
        let mut content = Content::default();
        content.objects.insert("secrets.".to_owned(), 1);
        content.objects.insert("deployments.apps".to_owned(), 2);
        assert!(set_conditions(&mut namespace, &content, "t1"));
        assert!(!set_conditions(&mut namespace, &content, "t2"), "nothing has changed");
        content.objects.remove("secrets.");
        assert!(set_conditions(&mut namespace, &content, "t3"));
        let remaining = |namespace: &Object| {
            let condition = &namespace.array_at(&["status", "conditions"])[3];
            ["type", "status", "lastTransitionTime", "message"]
                .map(|name| condition.str_at(&[name]).unwrap_or_default().to_owned())
        };
        let message = "Some resources are remaining: deployments.apps has 2 resource instances";
        let want = ["NamespaceContentRemaining", "True", "t1", message];
        assert_eq!(remaining(&namespace), want);
        content.objects.clear();
        assert!(set_conditions(&mut namespace, &content, "t4"));
        let want = ["NamespaceContentRemaining", "False", "t4", "All content successfully removed"];
        assert_eq!(remaining(&namespace), want);
        assert_eq!(namespace.array_at(&["status", "conditions"]).len(), 5);
    }
}
