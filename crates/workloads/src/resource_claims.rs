//! The resource claim controller: creates the claims of pods from templates, reserves claims for
//! pods that were bound without a scheduler, and removes reservations and claims of pods that have
//! ended.

use crate::dependents::Dependents;
use crate::pod_control::is_controlled_by;
use keelson_loops::client::{Client, ignore_terminating};
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::events::Recorder;
use keelson_loops::queue::Queue;
use keelson_meta::{Failure, Object, Reason, Status, Str, Value, value};
use keelson_records::Entry;
use keelson_registry::options::{DeleteOptions, PatchForm};
use keelson_registry::{InformerEvent, InformerScope, Subresource, Target};
use keelson_resources::Kind;
use std::time::Duration;

const GROUP: &str = "resource.k8s.io";
/// Annotation of a claim: its name in the pod.
const POD_CLAIM: &str = "resource.kubernetes.io/pod-claim-name";
/// The finalizer of allocated claims.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// The manager of the names of claims in the status of pods.
const FIELD_MANAGER: &str = "ResourceClaimController";
/// Maximum length of the prefix of a claim's name.
const NAME_PREFIX_BYTES_MAX: usize = 57;
const CLAIMS: &str = "resourceclaims";

/// Runs until it is dropped.
pub(crate) async fn run(context: crate::Context) {
    let client = Client::new(&context.registry, "resource-claim-controller");
    let events = Recorder::new(&client, "resource_claim");
    let claims = ResourceClaims { client, events, owned: Dependents::of("Pod") };
    control_loop::run(&context.registry, claims).await;
}

struct ResourceClaims {
    client: Client,
    events: Recorder,
    /// Claims by the uid of their pod.
    owned: Dependents,
}

/// What is synced. The parts are namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Key {
    Pod(Str, Str),
    Claim(Str, Str),
}

impl ControlLoop for ResourceClaims {
    type Key = Key;
    const NAME: &'static str = "resourceclaim-controller";
    const SCOPE: InformerScope =
        InformerScope::Only(&[("", "pods"), (GROUP, CLAIMS), (GROUP, "resourceclaimtemplates")]);
    const WORKERS_MAX: usize = 8;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Key>) -> bool {
        for event in &events {
            let (kind, entries): (_, Vec<_>) = match event {
                InformerEvent::Listed(kind, all) => (kind, all.range("", "").collect()),
                InformerEvent::Put { kind, entry, .. } | InformerEvent::Deleted { kind, entry } => {
                    (kind, vec![entry])
                }
                InformerEvent::Withdrawn(_) => continue,
            };
            let is_gone = matches!(event, InformerEvent::Deleted { .. });
            match kind.gvr.resource.as_str() {
                CLAIMS => {
                    match event {
                        InformerEvent::Listed(_, all) => self.owned.list(all.range("", "")),
                        event => drop(self.owned.observe(event)),
                    }
                    for entry in entries {
                        queue.add(Key::Claim(entry.namespace().into(), entry.name().into()));
                        self.queue_waiting(entry, queue);
                    }
                }
                "pods" => {
                    let concerned = entries.into_iter().filter(|entry| may_have_claims(entry));
                    concerned.for_each(|entry| observe_pod(kind, entry, is_gone, queue));
                }
                // Pods may wait for a template.
                _ if is_gone => {}
                _ => entries.iter().for_each(|entry| self.queue_waiting(entry, queue)),
            }
        }
        false
    }

    async fn sync(&self, key: Key) -> Result<Option<Duration>, Failure> {
        match key {
            Key::Pod(namespace, name) => self.sync_pod(&namespace, &name).await?,
            Key::Claim(namespace, name) => self.sync_claim(&namespace, &name).await?,
        }
        Ok(None)
    }
}

fn may_have_claims(pod: &Entry) -> bool {
    memchr::memmem::find(&pod.json_slice(), b"\"resourceClaims\":").is_some()
}

/// Whether a pod uses nothing any more.
fn is_done(pod: &Object) -> bool {
    matches!(pod.str_at(&["status", "phase"]), "Succeeded" | "Failed")
        || pod.deletion_timestamp().is_some() && pod.str_at(&["spec", "nodeName"]).is_empty()
}

fn observe_pod(kind: &Kind, entry: &Entry, is_gone: bool, queue: &mut Queue<Key>) {
    let pod = kind.decode(entry).unwrap_or_default();
    if is_gone || is_done(&pod) {
        let claims = pod.array_at(&["spec", "resourceClaims"]).iter();
        let names = claims.filter_map(|claim| claim_of(&pod, claim).name());
        queue.extend(names.map(|name| Key::Claim(entry.namespace().into(), name)));
    } else {
        queue.add(Key::Pod(entry.namespace().into(), entry.name().into()));
    }
}

/// The claim of an entry of a pod's `resourceClaims`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    /// One that somebody else has created.
    Named(Str),
    /// One that was created for the pod.
    Generated(Str),
    /// None is needed.
    Unneeded,
    /// None was created yet.
    Missing,
}

impl Found {
    fn name(self) -> Option<Str> {
        match self {
            Found::Named(name) | Found::Generated(name) => Some(name),
            Found::Unneeded | Found::Missing => None,
        }
    }
}

fn claim_of(pod: &Object, claim: &Value) -> Found {
    if let Some(name) = claim.str_at(&["resourceClaimName"]) {
        return Found::Named(name.into());
    }
    let name = claim.str_at(&["name"]);
    let known = pod.array_at(&["status", "resourceClaimStatuses"]).iter();
    let Some(status) = known.into_iter().find(|one| one.str_at(&["name"]) == name) else {
        return Found::Missing;
    };
    match status.str_at(&["resourceClaimName"]) {
        Some(name) => Found::Generated(name.into()),
        None => Found::Unneeded,
    }
}

/// Returns the claim of a template for a pod.
fn new_claim(pod: &Object, name: &str, template: &Object) -> Object {
    let mut claim = Object::new();
    let metadata = claim.metadata_mut();
    metadata.insert("generateName", name_prefix(pod.name(), name));
    metadata.insert(
        "ownerReferences",
        value!([{"apiVersion": "v1", "kind": "Pod", "name": (pod.name()), "uid": (pod.uid()),
            "controller": true}]),
    );
    let part =
        |name: &str| template.at(&["spec", "metadata", name]).filter(|part| !part.is_empty());
    let annotations = part("annotations").cloned().unwrap_or_else(|| value!({}));
    metadata.insert("annotations", annotations);
    metadata.object_at("annotations").insert(POD_CLAIM, name);
    part("labels").map(|labels| metadata.insert("labels", labels.clone()));
    let spec = template.at(&["spec", "spec"]).cloned().unwrap_or_else(|| value!({}));
    claim.root.insert("spec", spec);
    claim
}

/// Returns the prefix of a claim's name. In a long one, both parts are shortened alike.
fn name_prefix(pod: &str, claim: &str) -> String {
    let prefix = format!("{pod}-{claim}-");
    if prefix.len() <= NAME_PREFIX_BYTES_MAX {
        return prefix;
    }
    let part = |text: &str| {
        let length = text.len() * NAME_PREFIX_BYTES_MAX / prefix.len();
        text.get(..length).unwrap_or(text).to_owned()
    };
    format!("{}-{}", part(pod), part(claim))
}

impl ResourceClaims {
    /// Queues the pods of a namespace that a new claim or template may concern.
    fn queue_waiting(&self, entry: &Entry, queue: &mut Queue<Key>) {
        let Some(kind) = self.client.kind("", "pods") else { return };
        let all = self.client.registry.cached_all(&kind);
        let prefix = format!("{}/", entry.namespace());
        let names = |pod: &&Entry| {
            memchr::memmem::find(&pod.json_slice(), entry.name().as_bytes()).is_some()
        };
        let waiting = all.range(&prefix, "").filter(|pod| may_have_claims(pod)).filter(names);
        queue.extend(waiting.map(|pod| Key::Pod(pod.namespace().into(), pod.name().into())));
    }

    fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Option<Object>, Failure> {
        let entry = self.client.registry.cached(kind, namespace, name);
        entry.map(|entry| kind.decode(&entry)).transpose()
    }

    async fn sync_pod(&self, namespace: &str, name: &str) -> Result<(), Failure> {
        let (Some(pods), Some(claims)) =
            (self.client.kind("", "pods"), self.client.kind(GROUP, CLAIMS))
        else {
            return Ok(());
        };
        let Some(pod) = self.get(&pods, namespace, name)? else { return Ok(()) };
        if pod.deletion_timestamp().is_some() {
            return Ok(());
        }
        let mut statuses = vec![];
        for claim in pod.array_at(&["spec", "resourceClaims"]) {
            let name = claim.str_at(&["name"]).unwrap_or_default();
            match self.ensure_claim(&pod, claim, &Target::of(&claims, namespace, "")).await {
                Ok(Some(created)) => {
                    statuses.push(value!({"name": name, "resourceClaimName": (created)}));
                }
                Ok(None) => {}
                Err(error) => {
                    let message = format!("PodResourceClaim {name}: {}", error.message);
                    let text = ("FailedResourceClaimCreation", message.as_str());
                    self.events.about(&self.client, &pod, "Warning", text);
                    return Err(error);
                }
            }
        }
        if !statuses.is_empty() {
            self.apply_statuses(&Target::of(&pods, namespace, name), statuses).await?;
        }
        if pod.str_at(&["spec", "nodeName"]).is_empty() {
            return Ok(());
        }
        for claim in pod.array_at(&["spec", "resourceClaims"]) {
            let Some(name) = claim_of(&pod, claim).name() else { continue };
            let Some(claim) = self.get(&claims, namespace, &name)? else { return Ok(()) };
            self.reserve(&Target::of(&claims, namespace, &name), &pod, claim).await?;
        }
        Ok(())
    }

    async fn apply_statuses(&self, target: &Target, statuses: Vec<Value>) -> Result<(), Failure> {
        let patch = value!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": (target.name.clone()), "namespace": (target.namespace.clone())},
            "status": {"resourceClaimStatuses": (statuses)}});
        let client = self.client.clone().with_field_manager(FIELD_MANAGER);
        let form = PatchForm::ApplyYaml;
        client.patch(target, Subresource::Status, form, &patch).await.map(drop)
    }

    /// Returns the name of the claim of a pod's entry, if it is not in the status of the pod yet.
    async fn ensure_claim(
        &self,
        pod: &Object,
        claim: &Value,
        target: &Target,
    ) -> Result<Option<Str>, Failure> {
        let Some(template) = claim.str_at(&["resourceClaimTemplateName"]) else { return Ok(None) };
        match claim_of(pod, claim) {
            Found::Unneeded | Found::Named(_) => return Ok(None),
            Found::Generated(name) => {
                let known = self.get(&target.kind, pod.namespace(), &name)?;
                if known.is_some_and(|known| is_controlled_by(&known, pod)) {
                    return Ok(None);
                }
            }
            Found::Missing => {}
        }
        let name = claim.str_at(&["name"]).unwrap_or_default();
        let owned = self.owned.owned(&self.client.registry, &target.kind, pod)?;
        let is_mine = |one: &&Object| one.annotation(POD_CLAIM) == Some(name);
        if let Some(known) = owned.iter().find(is_mine) {
            return Ok(Some(known.name().into()));
        }
        let templates = self.client.kind(GROUP, "resourceclaimtemplates");
        let found = templates.map(|kind| self.get(&kind, pod.namespace(), template)).transpose()?;
        let Some(found) = found.flatten() else {
            let why = format!(
                "resource claim template {template:?}: resourceclaimtemplate.resource.k8s.io \
                 {template:?} not found"
            );
            return Err(Status::new(Reason::NotFound, why));
        };
        let created =
            self.client.create(target, new_claim(pod, name, &found)).await.map_err(|error| {
                Status::new(error.reason, format!("create ResourceClaim : {}", error.message))
            })?;
        self.owned.put(&created);
        Ok(Some(created.name().into()))
    }

    /// Reserves an allocated claim for a pod that is bound already.
    async fn reserve(
        &self,
        target: &Target,
        pod: &Object,
        mut claim: Object,
    ) -> Result<(), Failure> {
        const CONSUMERS_MAX: usize = 256;
        let reserved = claim.array_at(&["status", "reservedFor"]);
        let is_reserved = reserved.iter().any(|one| one.str_at(&["uid"]) == Some(pod.uid()));
        let is_allocated = claim.at(&["status", "allocation"]).is_some_and(Value::is_map);
        if !is_allocated || is_reserved || reserved.len() >= CONSUMERS_MAX {
            return Ok(());
        }
        let consumer = value!({"resource": "pods", "name": (pod.name()), "uid": (pod.uid())});
        let all = claim.object_mut("status").entry_or("reservedFor", || Value::Array(vec![]));
        all.as_array_mut().into_iter().for_each(|all| all.push(consumer.clone()));
        self.client.update(target, Subresource::Status, claim).await.map(drop)
    }

    async fn sync_claim(&self, namespace: &str, name: &str) -> Result<(), Failure> {
        let (Some(pods), Some(claims)) =
            (self.client.kind("", "pods"), self.client.kind(GROUP, CLAIMS))
        else {
            return Ok(());
        };
        let Some(claim) = self.get(&claims, namespace, name)? else { return Ok(()) };
        let target = Target::of(&claims, namespace, name);
        let reserved = claim.array_at(&["status", "reservedFor"]);
        let mut remaining: Vec<Value> = vec![];
        for one in reserved {
            let text = |name: &str| one.str_at(&[name]).unwrap_or_default();
            let is_pod = text("apiGroup").is_empty() && text("resource") == "pods";
            let pod = self.get(&pods, namespace, text("name"))?;
            if !is_pod || pod.is_some_and(|pod| pod.uid() == text("uid") && !is_done(&pod)) {
                remaining.push(one.clone());
            }
        }
        let is_unused = remaining.is_empty();
        let has_finalizer = claim.finalizers().any(|one| one == FINALIZER);
        if remaining.len() < reserved.len() {
            self.set_reserved(&target, claim.clone(), remaining).await?;
        } else if has_finalizer && claim.deletion_timestamp().is_some() && is_unused {
            self.set_reserved(&target, claim.clone(), vec![]).await?;
        }
        let owner = claim.controller().filter(|owner| owner.str_at(&["kind"]) == Some("Pod"));
        let Some(owner) = owner.filter(|_| is_unused) else { return Ok(()) };
        let text = |name: &str| owner.str_at(&[name]).unwrap_or_default();
        let pod = self.get(&pods, namespace, text("name"))?;
        // The claim of a pod that is gone is deleted by the garbage collector.
        if pod.is_some_and(|pod| pod.uid() != text("uid") || is_done(&pod)) {
            ignore_terminating(self.client.delete(&target, &DeleteOptions::default()).await)?;
        }
        Ok(())
    }

    /// Stores for whom a claim is reserved. One that nobody uses loses its allocation.
    async fn set_reserved(
        &self,
        target: &Target,
        mut claim: Object,
        reserved: Vec<Value>,
    ) -> Result<(), Failure> {
        let has_finalizer = claim.finalizers().any(|one| one == FINALIZER);
        let status = claim.object_mut("status");
        if !reserved.is_empty() {
            status.insert("reservedFor", reserved);
        } else {
            status.remove("reservedFor");
            if has_finalizer {
                status.remove("allocation");
            }
        }
        let mut stored = self.client.update(target, Subresource::Status, claim).await?;
        if has_finalizer && stored.at(&["status", "allocation"]).is_none() {
            let all = stored.metadata_mut().get_mut("finalizers").and_then(Value::as_array_mut);
            all.into_iter().for_each(|all| all.retain(|one| one.as_str() != Some(FINALIZER)));
            ignore_terminating(self.client.update(target, Subresource::None, stored).await)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_found_in_the_spec_or_the_status_of_its_pod() {
        let pod = value!({"status": {"resourceClaimStatuses": [
            {"name": "made", "resourceClaimName": "p-made-1"}, {"name": "none"}]}});
        let pod = Object::from_value(pod).expect("a map");
        let check = |claim: Value, want: Found| assert_eq!(claim_of(&pod, &claim), want);
        let template = |name: &str| value!({"name": name, "resourceClaimTemplateName": "t"});
        check(value!({"name": "a", "resourceClaimName": "c"}), Found::Named("c".into()));
        check(template("made"), Found::Generated("p-made-1".into()));
        check(template("none"), Found::Unneeded);
        check(template("new"), Found::Missing);
    }

    #[test]
    fn a_claim_is_named_after_pod_and_entry() {
        assert_eq!(name_prefix("pod", "gpu"), "pod-gpu-");
        let long = name_prefix(&"p".repeat(60), &"c".repeat(30));
        assert_eq!(long, format!("{}-{}", "p".repeat(37), "c".repeat(18)));
    }

    #[test]
    fn pods_are_done_when_they_ended_or_will_never_start() {
        let check = |phase: &str, node: &str, is_deleted: bool, want: bool| {
            let mut pod = Object::from_value(value!({"spec": {"nodeName": node},
                "status": {"phase": phase}}))
            .expect("a map");
            if is_deleted {
                pod.set_meta("deletionTimestamp", "2026-01-01T00:00:00Z");
            }
            assert_eq!(is_done(&pod), want);
        };
        check("Running", "n", false, false);
        check("Running", "n", true, false);
        check("Pending", "", true, true);
        check("Failed", "n", false, true);
    }
}
