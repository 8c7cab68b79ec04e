//! APIServices: those of what this server serves itself are kept by it, as kube-apiserver's autoregistration does;
//! those of other servers are given their condition and are named in discovery. Requests for the latter are not
//! passed on yet.

use keelson_auth::Permit;
use keelson_kinds::api_services::{Available, is_local, local, set_available};
use keelson_meta::{Failure, Object, Str, Value, value};
use keelson_registry::api_table::by_priority;
use keelson_registry::options::{DeleteOptions, WriteOptions};
use keelson_registry::{
    Entry, InformerEvent, InformerScope, Kind, NewObject, Registry, RemoteGroup, Subresource,
    Target,
};
use keelson_schema::json;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

const GROUP: &str = "apiregistration.k8s.io";
const FOLLOWED: &[(&str, &str)] =
    &[("apiextensions.k8s.io", "customresourcedefinitions"), (GROUP, "apiservices")];
/// Says that an APIService is kept by the server: `onstart`, or `true` as long as a definition wants it.
const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// The services behind APIServices are looked at this often, while there are any.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Changes that come together are looked at together.
const GATHER: Duration = Duration::from_millis(20);
/// Priorities of group versions of custom resources.
const CUSTOM: (i64, i64) = (1000, 100);

/// Group, version, priority of the group and of the version.
const BUILT_IN: &[(&str, &str, i64, i64)] = &[
    ("", "v1", 18000, 1),
    ("admissionregistration.k8s.io", "v1", 16700, 15),
    ("admissionregistration.k8s.io", "v1beta1", 16700, 12),
    ("admissionregistration.k8s.io", "v1alpha1", 16700, 9),
    ("apiextensions.k8s.io", "v1", 16700, 15),
    ("apps", "v1", 17800, 15),
    ("authentication.k8s.io", "v1", 17700, 15),
    ("authorization.k8s.io", "v1", 17600, 15),
    ("autoscaling", "v1", 17500, 15),
    ("autoscaling", "v2", 17500, 30),
    ("batch", "v1", 17400, 15),
    ("certificates.k8s.io", "v1", 17300, 15),
    ("certificates.k8s.io", "v1beta1", 17300, 9),
    ("certificates.k8s.io", "v1alpha1", 17300, 1),
    ("coordination.k8s.io", "v1", 16500, 15),
    ("coordination.k8s.io", "v1beta1", 16500, 13),
    ("coordination.k8s.io", "v1alpha2", 16500, 12),
    ("discovery.k8s.io", "v1", 16200, 15),
    ("events.k8s.io", "v1", 17750, 15),
    ("flowcontrol.apiserver.k8s.io", "v1", 16100, 21),
    ("internal.apiserver.k8s.io", "v1alpha1", 16000, 9),
    ("networking.k8s.io", "v1", 17200, 15),
    ("networking.k8s.io", "v1beta1", 17200, 9),
    ("node.k8s.io", "v1", 16300, 15),
    ("policy", "v1", 17100, 15),
    ("rbac.authorization.k8s.io", "v1", 17000, 15),
    ("resource.k8s.io", "v1", 16200, 21),
    ("resource.k8s.io", "v1beta2", 16200, 15),
    ("resource.k8s.io", "v1beta1", 16200, 9),
    ("resource.k8s.io", "v1alpha3", 16200, 1),
    ("scheduling.k8s.io", "v1", 16600, 15),
    ("scheduling.k8s.io", "v1alpha2", 16600, 2),
    ("storage.k8s.io", "v1", 16800, 15),
    ("storage.k8s.io", "v1beta1", 16800, 9),
    ("storagemigration.k8s.io", "v1beta1", 15800, 9),
];

/// An APIService of what this server serves.
fn made(group: &str, version: &str, priorities: (i64, i64), automanaged: &str) -> Value {
    let mut spec = keelson_meta::Map::new();
    if !group.is_empty() {
        spec.insert("group", group);
    }
    spec.insert("version", version);
    spec.insert("groupPriorityMinimum", priorities.0);
    spec.insert("versionPriority", priorities.1);
    let name = format!("{version}.{group}");
    let mut labels = keelson_meta::Map::new();
    labels.insert(AUTOMANAGED, automanaged);
    value!({"metadata": {"name": (name), "labels": (labels)}, "spec": (spec)})
}

/// The APIServices of the built-in groups, where they are missing: written when a server starts.
pub(crate) fn at_start(registry: &Registry) -> Vec<(Target, Value)> {
    let Some(kind) = registry.kind(GROUP, "apiservices") else { return vec![] };
    let api = registry.api();
    let is_served = |group: &str, version: &str| {
        api.group(group).is_some_and(|group| group.version(version).is_some())
    };
    let served = BUILT_IN.iter().filter(|(group, version, ..)| is_served(group, version));
    served
        .map(|&(group, version, of_group, of_version)| {
            let target = Target::of(&kind, "", &format!("{version}.{group}"));
            (target, made(group, version, (of_group, of_version), "onstart"))
        })
        .collect()
}

/// Follows definitions and APIServices until it is dropped.
pub async fn run(registry: Arc<Registry>) {
    let mut informer = registry.informer(InformerScope::Only(FOLLOWED));
    let (mut state, mut events) = (State::default(), vec![]);
    loop {
        informer.take_all(&mut events);
        for event in events.drain(..) {
            state.observe(event);
        }
        registry.set_remote_groups(state.remote_groups());
        let is_done = match state.sync(&registry).await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%error, "APIServices not written; trying again");
                false
            }
        };
        if is_done && state.remote.is_empty() {
            informer.changed().await;
        } else {
            let _ = tokio::time::timeout(LOOK_AGAIN, informer.changed()).await;
        }
        tokio::time::sleep(GATHER).await;
    }
}

/// Versions with their priorities.
type Prioritized = Vec<(i64, Str)>;

/// What is known of definitions and APIServices, and which of these are to be looked at: a change costs the same
/// however many there are.
#[derive(Default)]
struct State {
    /// The group versions that a definition serves, by its name.
    definitions: HashMap<Str, Vec<(Str, Str)>>,
    /// Group, version and the number of definitions that serve it, by the name of its APIService.
    wanted: HashMap<Str, (Str, Str, usize)>,
    /// By name.
    services: HashMap<Str, Entry>,
    /// Those of them that lead to other servers.
    remote: BTreeMap<Str, Object>,
    /// Names of APIServices that may have to be written.
    unsynced: BTreeSet<Str>,
}

impl State {
    fn observe(&mut self, event: InformerEvent) {
        match event {
            InformerEvent::Listed(kind, snapshot) => {
                self.forget(&kind);
                snapshot.range("", "").for_each(|entry| self.put(&kind, entry.clone()));
            }
            InformerEvent::Put { kind, entry, .. } => self.put(&kind, entry),
            InformerEvent::Deleted { kind, entry } => {
                if is_service(&kind) {
                    self.services.remove(entry.name());
                    self.remote.remove(entry.name());
                    self.unsynced.insert(entry.name().into());
                } else {
                    self.define(entry.name(), vec![]);
                }
            }
            InformerEvent::Withdrawn(kind) => self.forget(&kind),
        }
    }

    fn forget(&mut self, kind: &Kind) {
        if is_service(kind) {
            self.unsynced.extend(self.services.drain().map(|(name, _)| name));
            self.remote.clear();
        } else {
            let names: Vec<Str> = self.definitions.keys().cloned().collect();
            names.iter().for_each(|name| self.define(name, vec![]));
        }
    }

    fn put(&mut self, kind: &Kind, entry: Entry) {
        if !is_service(kind) {
            return self.define(entry.name(), served_versions(&entry));
        }
        // What cannot be read is as good as absent; reads of it tell.
        let Ok(object) = kind.decode(&entry) else { return };
        let name = Str::new(entry.name());
        match is_local(&object) {
            true => drop(self.remote.remove(&name)),
            false => drop(self.remote.insert(name.clone(), object)),
        }
        self.unsynced.insert(name.clone());
        self.services.insert(name, entry);
    }

    /// Notes which group versions a definition serves now.
    fn define(&mut self, definition: &str, versions: Vec<(Str, Str)>) {
        let old = match versions.is_empty() {
            true => self.definitions.remove(definition),
            false => self.definitions.insert(definition.into(), versions.clone()),
        };
        let old = old.unwrap_or_default();
        if old == versions {
            return;
        }
        for (group, version) in versions {
            let name = service_name(&group, &version);
            self.unsynced.insert(name.clone());
            self.wanted.entry(name).or_insert((group, version, 0)).2 += 1;
        }
        for (group, version) in old {
            let name = service_name(&group, &version);
            if let Some(wanted) = self.wanted.get_mut(&name) {
                wanted.2 -= 1;
                if wanted.2 == 0 {
                    self.wanted.remove(&name);
                    self.unsynced.insert(name);
                }
            }
        }
    }

    /// The group versions that other servers serve, by their priority.
    fn remote_groups(&self) -> Vec<RemoteGroup> {
        let mut groups: BTreeMap<&str, (i64, Prioritized)> = BTreeMap::new();
        for object in self.remote.values() {
            let number = |name| object.int_at(&["spec", name]).unwrap_or(0);
            let (priority, versions) = groups.entry(object.str_at(&["spec", "group"])).or_default();
            *priority = (*priority).max(number("groupPriorityMinimum"));
            let version = Str::new(object.str_at(&["spec", "version"]));
            versions.push((number("versionPriority"), version));
        }
        let mut groups: Vec<RemoteGroup> = groups
            .into_iter()
            .map(|(name, (priority, mut versions))| {
                versions
                    .sort_by(|(a, one), (b, other)| b.cmp(a).then_with(|| by_priority(one, other)));
                let versions = versions.into_iter().map(|(_, version)| version).collect();
                RemoteGroup { name: Str::new(name), priority, versions }
            })
            .collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.priority));
        groups
    }

    /// Writes what is not as it should be. What could not be written is tried again by the next call.
    async fn sync(&mut self, registry: &Arc<Registry>) -> Result<(), Failure> {
        let Some(kind) = registry.kind(GROUP, "apiservices") else { return Ok(()) };
        let permit = Permit::internal("system:apiserver");
        let mut done = Ok(());
        let remote = self.remote.keys().cloned();
        for name in
            std::mem::take(&mut self.unsynced).into_iter().chain(remote).collect::<BTreeSet<_>>()
        {
            let target = Target::of(&kind, "", &name);
            if let Err(error) = self.sync_service(registry, &permit, &target).await {
                self.unsynced.insert(name);
                done = Err(error);
            }
        }
        done
    }

    async fn sync_service(
        &self,
        registry: &Registry,
        permit: &Permit,
        target: &Target,
    ) -> Result<(), Failure> {
        let wanted = self.wanted.get(&target.name);
        let wanted = wanted.map(|(group, version, _)| made(group, version, CUSTOM, "true"));
        let Some(entry) = self.services.get(&target.name) else {
            return match wanted {
                Some(wanted) => registry
                    .create_if_absent(permit, target, wanted, "kube-apiserver")
                    .await
                    .map(drop),
                None => Ok(()),
            };
        };
        let known = Known { object: target.kind.decode(entry)? };
        if known.automanaged() == "true" {
            let Some(wanted) = wanted else {
                let options = DeleteOptions::default();
                let deleted = registry.delete(permit, target, &options, &mut vec![]).await;
                return unless_gone(deleted.map(drop));
            };
            known.restore(registry, permit, target, wanted).await?;
        }
        let is_remote = self.remote.contains_key(&target.name);
        let available = if is_remote { available(registry, &known.object) } else { local() };
        known.note(registry, permit, target, &available).await
    }
}

/// A stored APIService.
struct Known {
    object: Object,
}

/// `v1.example.com`.
fn service_name(group: &str, version: &str) -> Str {
    Str::from(format!("{version}.{group}"))
}

fn is_service(kind: &Kind) -> bool {
    kind.gvr.resource == "apiservices"
}

/// The group versions that a definition serves. Nothing else of it is decoded, for most of it is schemas.
fn served_versions(definition: &Entry) -> Vec<(Str, Str)> {
    let text = definition.json_slice();
    let value_at = |from: usize, to: usize, path: &[&str]| {
        let place = json::value_range(&text[from..to], path)?;
        Some(json::parse(&text[from..to][place]).ok()?.value)
    };
    let Some(group) = value_at(0, text.len(), &["spec", "group"]) else { return vec![] };
    let group = Str::new(group.as_str().unwrap_or_default());
    let Some(versions) = json::value_range(text, &["spec", "versions"]) else { return vec![] };
    let versions = json::item_ranges(text, versions.start).into_iter();
    let served = versions.filter_map(|item| {
        let member = |name| value_at(item.start, item.end, &[name]);
        let is_served = member("served")?.as_bool() == Some(true);
        Some((group.clone(), Str::new(member("name")?.as_str()?))).filter(|_| is_served)
    });
    served.collect()
}

fn unless_gone(result: Result<(), Failure>) -> Result<(), Failure> {
    match result {
        Err(failure) if failure.code == 404 => Ok(()),
        other => other,
    }
}

impl Known {
    fn automanaged(&self) -> &str {
        self.object.str_at(&["metadata", "labels", AUTOMANAGED])
    }

    /// Writes what the server wants of it, where somebody has changed that.
    async fn restore(
        &self,
        registry: &Registry,
        permit: &Permit,
        target: &Target,
        wanted: Value,
    ) -> Result<(), Failure> {
        let spec = wanted.get("spec").cloned().unwrap_or_default();
        if self.object.get("spec") == Some(&spec) {
            return Ok(());
        }
        let change = |live: Option<&Object>| {
            let mut object = live.cloned().ok_or_else(|| target.not_found())?;
            object.root.insert("spec", spec.clone());
            Ok(NewObject { object, managed: false, warnings: vec![] })
        };
        let written =
            registry.modify(permit, target, Subresource::None, &change, &own_options()).await;
        unless_gone(written.map(drop))
    }

    /// Writes its condition, where that has changed.
    async fn note(
        &self,
        registry: &Registry,
        permit: &Permit,
        target: &Target,
        available: &Available,
    ) -> Result<(), Failure> {
        let now = registry.clock.now().text();
        if !set_available(&mut self.object.clone(), &now, available) {
            return Ok(());
        }
        tracing::debug!(
            name = %target.name,
            reason = available.reason,
            "APIService condition"
        );
        let change = |live: Option<&Object>| {
            let mut object = live.cloned().ok_or_else(|| target.not_found())?;
            set_available(&mut object, &now, available);
            Ok(NewObject { object, managed: false, warnings: vec![] })
        };
        let written =
            registry.modify(permit, target, Subresource::Status, &change, &own_options()).await;
        unless_gone(written.map(drop))
    }
}

fn own_options() -> WriteOptions {
    WriteOptions { field_manager: "kube-apiserver".into(), ..WriteOptions::default() }
}

/// Whether the service behind an APIService could be asked.
fn available(registry: &Registry, api_service: &Object) -> Available {
    let missing =
        |reason: &'static str, message: String| Available { is_available: false, reason, message };
    let at = |name: &str| api_service.str_at(&["spec", "service", name]);
    let (namespace, name) = (at("namespace"), at("name"));
    let place = format!("service/{name} in {namespace:?}");
    let read = |group: &str, resource: &str| registry.kind(group, resource);
    let service = read("", "services").and_then(|kind| {
        let entry = registry.cached(&kind, namespace, name)?;
        kind.decode(&entry).ok()
    });
    let Some(service) = service else {
        return missing("ServiceNotFound", format!("{place} is not present"));
    };
    if service.str_at(&["spec", "type"]) == "ClusterIP" {
        let number = api_service.int_at(&["spec", "service", "port"]).unwrap_or(443);
        let ports = service.array_at(&["spec", "ports"]);
        let port = ports.iter().find(|port| port.int_at(&["port"]) == Some(number));
        let Some(port) = port else {
            let why = format!("{place} is not listening on port {number}");
            return missing("ServicePortError", why);
        };
        let port = port.str_at(&["name"]).unwrap_or_default();
        let slices = slices_of(registry, namespace, name);
        if slices.is_empty() {
            let why = format!("cannot find endpointslices for {place}");
            return missing("EndpointsNotFound", why);
        }
        if !slices.iter().any(|slice| has_ready_port(slice, port)) {
            let why =
                format!("endpointslices for {place} have no addresses with port name {port:?}");
            return missing("MissingEndpoints", why);
        }
    }
    let why = "requests are not passed on to other servers".to_owned();
    missing("FailedDiscoveryCheck", why)
}

/// The endpoint slices of a service.
fn slices_of(registry: &Registry, namespace: &str, service: &str) -> Vec<Object> {
    const SERVICE: &str = "kubernetes.io/service-name";
    let Some(kind) = registry.kind("discovery.k8s.io", "endpointslices") else { return vec![] };
    let snapshot = registry.cached_all(&kind);
    let slices = snapshot.range(namespace, "").take_while(|e| e.namespace() == namespace);
    let read = slices.filter_map(|entry| kind.decode(entry).ok());
    read.filter(|slice| slice.str_at(&["metadata", "labels", SERVICE]) == service).collect()
}

fn has_ready_port(slice: &Object, port: &str) -> bool {
    let is_ready = |endpoint: &Value| {
        let ready = endpoint.at(&["conditions", "ready"]).and_then(Value::as_bool);
        ready != Some(false) && !endpoint.array_at(&["addresses"]).is_empty()
    };
    let mut ports = slice.array_at(&["ports"]).iter();
    slice.array_at(&["endpoints"]).iter().any(is_ready)
        && ports.any(|of| of.str_at(&["name"]).unwrap_or_default() == port)
}
