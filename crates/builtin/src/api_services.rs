//! APIServices. Those of the server's own group versions are created and restored, like
//! kube-aggregator's autoregistration does. Those of other servers get the condition Available and
//! appear in discovery; `aggregation` asks them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keelson_aggregation::Probes;
use keelson_auth::Permit;
use keelson_kinds::api_services::{
    Available, CUSTOM_PRIORITIES, PRIORITIES, is_local, local, set_available,
};
use keelson_meta::{Failure, Object, Str, Value, value};
use keelson_records::Entry;
use keelson_registry::options::{DeleteOptions, WriteOptions};
use keelson_registry::{InformerEvent, InformerScope, NewObject, Registry, Subresource, Target};
use keelson_resources::api_table::by_priority;
use keelson_resources::{Kind, RemoteDocuments, RemoteGroup, RemoteServer, RemoteVersion};
use keelson_schema::json;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

const GROUP: &str = "apiregistration.k8s.io";
const FOLLOWED: &[(&str, &str)] =
    &[("apiextensions.k8s.io", "customresourcedefinitions"), (GROUP, "apiservices")];
/// Label of APIServices that the server manages: `onstart` for built-in group versions, `true` for
/// those of definitions.
const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// Interval at which the services behind APIServices are checked, while there are any.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The port of a service that does not name one.
const HTTPS_PORT: i64 = 443;
/// Time to wait for further changes, so that they are synced together.
const BATCH_TIME: Duration = Duration::from_millis(20);
/// Returns the APIService of a group version that this server serves.
fn local_service(group: &str, version: &str, priorities: (i64, i64), automanaged: &str) -> Value {
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

/// Returns the APIServices of the built-in group versions that are served.
pub(crate) fn built_in(registry: &Registry) -> Vec<(Target, Value)> {
    let Some(kind) = registry.kind(GROUP, "apiservices") else { return vec![] };
    let api = registry.api();
    let is_served = |group: &str, version: &str| {
        api.group(group).is_some_and(|group| group.version(version).is_some())
    };
    let served = PRIORITIES.iter().filter(|(group, version, ..)| is_served(group, version));
    served
        .map(|&(group, version, group_priority, version_priority)| {
            let target = Target::of(&kind, "", &format!("{version}.{group}"));
            let priorities = (group_priority, version_priority);
            (target, local_service(group, version, priorities, "onstart"))
        })
        .collect()
}

/// Syncs APIServices with definitions and services until it is dropped.
pub async fn run(registry: Arc<Registry>, probes: Arc<Probes>) {
    let mut informer = registry.informer(InformerScope::Only(FOLLOWED));
    let mut state = State::default();
    let mut events = vec![];
    loop {
        informer.take_all(&mut events);
        for event in events.drain(..) {
            state.observe(event);
        }
        state.check_remote(&registry, &probes);
        registry.set_remote_groups(state.remote_groups());
        let is_synced = match state.sync(&registry).await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%error, "APIServices not written; trying again");
                false
            }
        };
        if is_synced && state.remote.is_empty() {
            informer.changed().await;
        } else {
            tokio::select! {
                _ = informer.changed() => {}
                () = probes.changed() => {}
                () = tokio::time::sleep(CHECK_INTERVAL) => {}
            }
        }
        tokio::time::sleep(BATCH_TIME).await;
    }
}

/// The definitions and APIServices, and a queue of APIServices to sync. The cost of a change does
/// not depend on their number.
#[derive(Default)]
struct State {
    /// The group versions that each definition serves, by its name.
    definitions: HashMap<Str, Vec<(Str, Str)>>,
    /// Group, version and number of the definitions that serve it, by the name of the APIService.
    defined: HashMap<Str, (Str, Str, usize)>,
    /// The stored APIServices, by name.
    services: HashMap<Str, Entry>,
    /// The APIServices of other servers.
    remote: BTreeMap<Str, Remote>,
    /// Names of APIServices to sync.
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
                    self.set_definition(entry.name(), vec![]);
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
            names.iter().for_each(|name| self.set_definition(name, vec![]));
        }
    }

    fn put(&mut self, kind: &Kind, entry: Entry) {
        if !is_service(kind) {
            return self.set_definition(entry.name(), served_versions(&entry));
        }
        // An unreadable APIService is ignored; reading it returns the error.
        let Ok(object) = kind.decode(&entry) else { return };
        let name = Str::new(entry.name());
        match is_local(&object) {
            true => drop(self.remote.remove(&name)),
            false => match self.remote.get_mut(&name) {
                Some(remote) => remote.set(object),
                None => drop(self.remote.insert(name.clone(), Remote::new(object))),
            },
        }
        self.unsynced.insert(name.clone());
        self.services.insert(name, entry);
    }

    /// Sets the group versions that a definition serves.
    fn set_definition(&mut self, definition: &str, versions: Vec<(Str, Str)>) {
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
            self.defined.entry(name).or_insert((group, version, 0)).2 += 1;
        }
        for (group, version) in old {
            let name = service_name(&group, &version);
            if let Some(defined) = self.defined.get_mut(&name) {
                defined.2 -= 1;
                if defined.2 == 0 {
                    self.defined.remove(&name);
                    self.unsynced.insert(name);
                }
            }
        }
    }

    /// Looks at the services of all remote APIServices, and asks their servers.
    fn check_remote(&mut self, registry: &Registry, probes: &Arc<Probes>) {
        let remote = &mut self.remote;
        probes.retain(|name| remote.contains_key(name));
        for remote in self.remote.values_mut() {
            remote.check(registry, probes);
        }
    }

    /// Returns the groups that other servers serve, in the order of their priority.
    fn remote_groups(&self) -> Vec<RemoteGroup> {
        let mut groups: BTreeMap<&str, (i64, Vec<RemoteVersion>)> = BTreeMap::new();
        for remote in self.remote.values() {
            let object = &remote.object;
            let number = |name| object.int_at(&["spec", name]).unwrap_or(0);
            let (priority, versions) = groups.entry(object.str_at(&["spec", "group"])).or_default();
            *priority = (*priority).max(number("groupPriorityMinimum"));
            versions.push(remote.version(number("versionPriority")));
        }
        let mut groups: Vec<RemoteGroup> = groups
            .into_iter()
            .map(|(name, (priority, mut versions))| {
                versions.sort_by(|one: &RemoteVersion, other| {
                    let by_name = || by_priority(&one.name, &other.name);
                    other.priority.cmp(&one.priority).then_with(by_name)
                });
                RemoteGroup { name: Str::new(name), priority, versions }
            })
            .collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.priority));
        groups
    }

    /// Syncs the APIServices in the queue and all remote ones. Failed ones stay in the queue.
    async fn sync(&mut self, registry: &Arc<Registry>) -> Result<(), Failure> {
        let Some(kind) = registry.kind(GROUP, "apiservices") else { return Ok(()) };
        let permit = Permit::internal("system:apiserver");
        let mut result = Ok(());
        let remote = self.remote.keys().cloned();
        for name in
            std::mem::take(&mut self.unsynced).into_iter().chain(remote).collect::<BTreeSet<_>>()
        {
            let target = Target::of(&kind, "", &name);
            if let Err(error) = self.sync_service(registry, &permit, &target).await {
                self.unsynced.insert(name);
                result = Err(error);
            }
        }
        result
    }

    async fn sync_service(
        &self,
        registry: &Registry,
        permit: &Permit,
        target: &Target,
    ) -> Result<(), Failure> {
        let expected = self.defined.get(&target.name);
        let expected = expected
            .map(|(group, version, _)| local_service(group, version, CUSTOM_PRIORITIES, "true"));
        let Some(entry) = self.services.get(&target.name) else {
            return match expected {
                Some(expected) => {
                    let manager = "kube-apiserver";
                    registry.create_if_absent(permit, target, expected, manager).await.map(drop)
                }
                None => Ok(()),
            };
        };
        let stored = StoredService { object: target.kind.decode(entry)? };
        if stored.automanaged() == "true" {
            let Some(expected) = expected else {
                let options = DeleteOptions::default();
                let deleted = registry.delete(permit, target, &options, &mut vec![]).await;
                return ignore_not_found(deleted.map(drop));
            };
            stored.restore_spec(registry, permit, target, expected).await?;
        }
        let available = match self.remote.get(&target.name) {
            // Before the first answer nothing is said.
            Some(Remote { available: None, .. }) => return Ok(()),
            Some(Remote { available: Some(available), .. }) => available.clone(),
            None => local(),
        };
        stored.update_condition(registry, permit, target, &available).await
    }
}

/// An APIService of another server.
struct Remote {
    object: Object,
    server: Arc<RemoteServer>,
    /// `None` before the server has answered or failed to.
    available: Option<Available>,
    resources: Option<Arc<Value>>,
    documents: Arc<RemoteDocuments>,
}

impl Remote {
    fn new(object: Object) -> Remote {
        Remote {
            server: Arc::new(server_of(&object)),
            object,
            available: None,
            resources: None,
            documents: Arc::default(),
        }
    }

    /// Replaces the object by a newer one.
    fn set(&mut self, object: Object) {
        self.server = Arc::new(server_of(&object));
        self.object = object;
    }

    fn version(&self, priority: i64) -> RemoteVersion {
        RemoteVersion {
            name: Str::new(self.object.str_at(&["spec", "version"])),
            priority,
            server: self.server.clone(),
            is_available: self.available.as_ref().is_some_and(|it| it.is_available),
            resources: self.resources.clone(),
            documents: self.documents.clone(),
        }
    }

    fn check(&mut self, registry: &Registry, probes: &Arc<Probes>) {
        if let Err(unavailable) = check_service(registry, &self.object) {
            self.available = Some(unavailable);
            return;
        }
        let part = |name: &str| Str::new(self.object.str_at(&["spec", name]));
        let outcome = probes.outcome(&part("group"), &part("version"), &self.server);
        let Some(outcome) = outcome else { return };
        self.documents = outcome.documents;
        self.resources = outcome.resources;
        self.available = Some(match outcome.failure {
            None => Available {
                is_available: true,
                reason: "Passed",
                message: "all checks passed".to_owned(),
            },
            Some(message) => {
                Available { is_available: false, reason: "FailedDiscoveryCheck", message }
            }
        });
    }
}

/// Returns the server that an APIService names.
fn server_of(service: &Object) -> RemoteServer {
    let text = |name: &str| Str::new(service.str_at(&["spec", "service", name]));
    let port = service.int_at(&["spec", "service", "port"]).unwrap_or(HTTPS_PORT);
    let bundle = STANDARD.decode(service.str_at(&["spec", "caBundle"])).unwrap_or_default();
    RemoteServer {
        namespace: text("namespace"),
        service: text("name"),
        port: u16::try_from(port).unwrap_or_default(),
        ca_bundle: (!bundle.is_empty()).then(|| bundle.into()),
        is_insecure: service.at(&["spec", "insecureSkipTLSVerify"]).and_then(Value::as_bool)
            == Some(true),
    }
}

/// A stored APIService.
struct StoredService {
    object: Object,
}

/// Returns the name of an APIService: `v1.example.com`.
fn service_name(group: &str, version: &str) -> Str {
    Str::from(format!("{version}.{group}"))
}

fn is_service(kind: &Kind) -> bool {
    kind.gvr.resource == "apiservices"
}

/// Returns the group versions that a definition serves. Only these fields are parsed, because most
/// of a definition is schemas.
fn served_versions(definition: &Entry) -> Vec<(Str, Str)> {
    let text = &*definition.json_slice();
    let value_at = |from: usize, to: usize, path: &[&str]| {
        let range = json::value_range(&text[from..to], path)?;
        Some(json::parse(&text[from..to][range]).ok()?.value)
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

fn ignore_not_found(result: Result<(), Failure>) -> Result<(), Failure> {
    match result {
        Err(failure) if failure.code == 404 => Ok(()),
        other => other,
    }
}

impl StoredService {
    fn automanaged(&self) -> &str {
        self.object.str_at(&["metadata", "labels", AUTOMANAGED])
    }

    /// Restores the spec if a client has changed it.
    async fn restore_spec(
        &self,
        registry: &Registry,
        permit: &Permit,
        target: &Target,
        expected: Value,
    ) -> Result<(), Failure> {
        let spec = expected.get("spec").cloned().unwrap_or_default();
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
        ignore_not_found(written.map(drop))
    }

    /// Writes the condition Available if it has changed.
    async fn update_condition(
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
        ignore_not_found(written.map(drop))
    }
}

fn own_options() -> WriteOptions {
    WriteOptions { field_manager: "kube-apiserver".into(), ..WriteOptions::default() }
}

/// Checks whether the service of an APIService leads anywhere. Returns the condition Available if
/// not.
fn check_service(registry: &Registry, api_service: &Object) -> Result<(), Available> {
    let unavailable = |reason: &'static str, message: String| {
        Err(Available { is_available: false, reason, message })
    };
    let text = |name: &str| api_service.str_at(&["spec", "service", name]);
    let namespace = text("namespace");
    let name = text("name");
    let reference = format!("service/{name} in {namespace:?}");
    let service = registry.kind("", "services").and_then(|kind| {
        let entry = registry.cached(&kind, namespace, name)?;
        kind.decode(&entry).ok()
    });
    let Some(service) = service else {
        return unavailable("ServiceNotFound", format!("{reference} is not present"));
    };
    if service.str_at(&["spec", "type"]) == "ClusterIP" {
        let number = api_service.int_at(&["spec", "service", "port"]).unwrap_or(HTTPS_PORT);
        let ports = service.array_at(&["spec", "ports"]);
        let port = ports.iter().find(|port| port.int_at(&["port"]) == Some(number));
        let Some(port) = port else {
            let why = format!("{reference} is not listening on port {number}");
            return unavailable("ServicePortError", why);
        };
        let port = port.str_at(&["name"]).unwrap_or_default();
        let slices = slices_of(registry, namespace, name);
        if slices.is_empty() {
            let why = format!("cannot find endpointslices for {reference}");
            return unavailable("EndpointsNotFound", why);
        }
        if !slices.iter().any(|slice| has_ready_port(slice, port)) {
            let why =
                format!("endpointslices for {reference} have no addresses with port name {port:?}");
            return unavailable("MissingEndpoints", why);
        }
    }
    Ok(())
}

/// Returns the endpoint slices of a service.
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
