//! [`Registry`]: all kinds over one store.

pub mod hooks;
pub(crate) mod kind_state;
mod objects_reader;

use crate::clock::{Clock, store_time};
use crate::metrics::Metrics;
use crate::remote_calls::{RemoteAnswer, RemoteCall, RemoteCaller, RemoteCalls};
use crate::target::Target;
use crate::write_failure::WriteFailure;
use arc_swap::{ArcSwap, Guard};
use bytes::Bytes;
use hooks::{Claim, Ending, Hooks, KindHooks, SimulatedNodes};
use keelson_admission::webhooks::ConversionWebhooks;
use keelson_admission::{
    Configurations, DynamicPlugIn, NAMESPACE_AUTO_PROVISION, namespace_lifecycle,
};
use keelson_auth::{Authorizer, WatchedIndex};
use keelson_cache::{Cache, Resource, Snapshot, StartError, StoreSource};
use keelson_kinds::PortRange;
use keelson_meta::{Failure, Features, Overgrown, Reason, Status, Str};
use keelson_metrics::Exposition;
use keelson_records::Entry;
use keelson_resources::{
    ApiChanges, ApiTable, Kind, OpenApiIndex, OpenApiIndexCache, RemoteGroup, RemoteVersion,
    Served, built_in,
};
use keelson_schema::catalogue::Catalogue;
use keelson_store::{
    Compare, KeyValue, Lease, Op, Revision, Store, Timestamp, Txn, TxnOutcome, WriteError,
};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

/// How long a read waits for a revision that is newer than the cache. kube-apiserver waits as long.
pub(crate) const FUTURE_WAIT: Duration = Duration::from_secs(3);

/// Maximum size of a stored object; the limit of etcd.
const OBJECT_BYTES_MAX: usize = 1_572_864;

/// `Retry-After` of an answer to a write whose outcome is unknown.
const UNKNOWN_RETRY_SECONDS: u32 = 2;

/// Configuration of the registry.
#[derive(Clone)]
pub struct RegistryOptions {
    /// `--service-cluster-ip-range`.
    pub service_ranges: Vec<String>,
    /// `--service-node-port-range`.
    pub node_ports: PortRange,
    /// `--kubernetes-service-node-port`: the node port of the service `kubernetes`; `None`: it has
    /// none.
    pub kubernetes_node_port: Option<u16>,
    /// `--kubelet-preferred-address-types`.
    pub node_address_types: Vec<String>,
    /// The address at which the API is reached from inside the cluster.
    pub advertise_address: IpAddr,
    /// The port of `advertise_address`.
    pub advertise_port: u16,
    /// Whether the service `kubernetes` gets endpoints (`--endpoint-reconciler-type=none`: it gets
    /// none).
    pub publishes_endpoint: bool,
    /// `--runtime-config`: group versions (or `api/all`, ...) and whether they are served. The last
    /// one wins.
    pub runtime_config: Vec<(String, bool)>,
    /// `--feature-gates`. `AllowUnsafeMalformedObjectDeletion` has one difference from upstream: a
    /// deletion with `ignoreStoreReadErrorWithClusterBreakingPotential` works for unreadable
    /// objects whether the gate is on or off.
    pub features: Features,
    /// `--allow-privileged`: whether pods may have privileged containers.
    pub allows_privileged: bool,
    /// `--enable-garbage-collector`: whether a propagation policy sets the finalizers for which a
    /// garbage collector acts. Namespaces get them in any case.
    pub garbage_collection: bool,
    /// `--enable-priority-and-fairness`: whether FlowSchemas have conditions.
    pub fairness: bool,
    /// The built-in admission plug-ins that are enabled.
    pub admission: keelson_admission::Chain,
    /// Webhooks, policies and the plug-ins of the embedding program, in the order of their calls.
    pub dynamic_admission: Vec<Arc<dyn DynamicPlugIn>>,
    /// Calls the conversion webhooks of CustomResourceDefinitions. `None`: all convert by strategy
    /// `None`.
    pub conversion_webhooks: Option<Arc<ConversionWebhooks>>,
    /// The authorizer; it reads roles and bindings from the registry once that is open.
    pub authorizer: Arc<Authorizer>,
    /// `--event-ttl`: how long an event lives after its last write; zero means forever.
    pub event_ttl: Duration,
    /// `--etcd-servers-overrides`: stores of single resources.
    pub other_stores: Vec<StoreSource>,
    /// The nodes of `--simulate`.
    pub simulated_nodes: Option<Arc<dyn SimulatedNodes>>,
}

/// Why a registry could not be opened.
#[derive(Debug)]
pub enum OpenError {
    /// The cache could not be filled.
    Cache {
        /// The cause.
        source: StartError,
    },
}

impl Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            OpenError::Cache { .. } => "fill the cache",
        })
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(match self {
            OpenError::Cache { source } => source,
        })
    }
}

/// All kinds over one store.
pub struct Registry {
    /// The built-in groups, versions and resources.
    pub catalogue: Arc<Catalogue>,
    /// The store of all resources that are in no other ([`RegistryOptions::other_stores`]), for
    /// health checks and revisions. Objects are read and written through the verbs.
    pub store: Arc<dyn Store>,
    /// The cache.
    pub cache: Cache,
    /// StoreSource of time and randomness.
    pub clock: Box<dyn Clock>,
    /// The configuration.
    pub options: RegistryOptions,
    /// What is counted.
    pub metrics: Metrics,
    /// Index of the stored webhook and policy configurations.
    pub(crate) configurations: WatchedIndex<Configurations>,
    hooks: Hooks,
    no_hooks: KindHooks,
    /// Whether NamespaceAutoProvision is enabled.
    pub(crate) provisions_namespaces: bool,
    /// Writes that continue after their request was cancelled.
    writes: TaskTracker,
    pub(crate) this: Weak<Registry>,
    api: ArcSwap<ApiTable>,
    /// Locked by whoever replaces the API table.
    api_changes: Mutex<ApiChanges>,
    open_api_index: OpenApiIndexCache,
    remote_groups: ArcSwap<Vec<RemoteGroup>>,
    remote_caller: RemoteCaller,
    /// The number of the last change of the API table.
    api_number: watch::Sender<u64>,
}

impl Registry {
    /// Fills the cache and returns the registry.
    pub async fn open(
        store: Arc<dyn Store>,
        clock: Box<dyn Clock>,
        options: RegistryOptions,
        hooks: Hooks,
    ) -> Result<Arc<Registry>, OpenError> {
        let catalogue = Catalogue::shared();
        let RegistryOptions { features, allows_privileged, .. } = options;
        let served =
            Served { runtime_config: &options.runtime_config, features, allows_privileged };
        let kinds = built_in(catalogue, served, |group, resource| {
            kind_state::with_hooks(hooks.of(group, resource))
        });
        let api = ApiTable::built_in(catalogue, &kinds, |group, version, resource| {
            served.has(&group.name, version, resource)
        });
        let mut prefixes: Vec<Bytes> = kinds.values().map(|kind| kind.prefix.clone()).collect();
        prefixes.sort();
        prefixes.dedup();
        let is_elsewhere = |prefix: &Bytes| {
            options.other_stores.iter().any(|other| other.prefixes.contains(prefix))
        };
        prefixes.retain(|prefix| !is_elsewhere(prefix));
        let mut sources = vec![StoreSource { store: store.clone(), prefixes }];
        sources.extend(options.other_stores.iter().cloned());
        let cache =
            Cache::start_over(sources).await.map_err(|source| OpenError::Cache { source })?;
        let registry = Arc::new_cyclic(|this| Registry {
            catalogue: catalogue.clone(),
            store,
            cache,
            clock,
            provisions_namespaces: options.admission.has(NAMESPACE_AUTO_PROVISION),
            options,
            metrics: Metrics::default(),
            configurations: WatchedIndex::default(),
            hooks,
            no_hooks: KindHooks::default(),
            writes: TaskTracker::new(),
            this: this.clone(),
            api: ArcSwap::from_pointee(api),
            api_changes: Mutex::default(),
            open_api_index: OpenApiIndexCache::default(),
            remote_groups: ArcSwap::default(),
            remote_caller: RemoteCaller::default(),
            api_number: watch::Sender::new(0),
        });
        registry.find_foreign_records();
        registry.options.authorizer.attach(&registry.objects_reader());
        registry.configurations.attach(registry.objects_reader());
        Ok(registry)
    }

    /// Finds the records that an older release wrote in another version than the storage version.
    fn find_foreign_records(&self) {
        for kind in self.kinds() {
            let heads = self.objects(&kind).heads();
            let foreign = heads.iter().filter(|(head, _)| !kind.is_in_storage_version(head));
            let through = foreign.map(|(_, through)| through.0).max().unwrap_or(0);
            kind.foreign_through.store(through, Ordering::Relaxed);
        }
    }

    /// Returns the registry, or 503 while the server shuts down.
    pub(crate) fn shared(&self) -> Result<Arc<Registry>, Failure> {
        let shared = self.this.upgrade();
        shared.ok_or_else(|| Status::unavailable("the server is shutting down"))
    }

    /// Runs a write of several keys in its own task, so that it completes even when the request is
    /// cancelled (a timeout, a reset, a client that disconnects).
    pub(crate) async fn run_to_completion<T, E, F>(
        &self,
        write: impl FnOnce(Arc<Registry>) -> F,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<Failure> + Send + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        let registry = self.shared()?;
        let write = Box::pin(write(registry));
        let write = keelson_traces::in_current(write);
        match self.writes.spawn(write).await {
            Ok(done) => done,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(Status::unavailable("the server is shutting down").into()),
        }
    }

    /// Waits until the writes that outlive their requests have ended.
    pub async fn wait_for_writes(&self) {
        self.writes.close();
        self.writes.wait().await;
        self.writes.reopen();
    }

    /// Returns the current API table. A request uses one table from its beginning to its end.
    pub fn api(&self) -> Guard<Arc<ApiTable>> {
        self.api.load()
    }

    /// Replaces the API table. `change` runs under a lock and receives the number of the change.
    pub(crate) fn change_api<T, E>(
        &self,
        group: &str,
        resource: &str,
        change: impl FnOnce(&ApiTable, u64) -> Result<(ApiTable, T), E>,
    ) -> Result<T, E> {
        let mut changes = self.api_changes.lock().unwrap_or_else(PoisonError::into_inner);
        let (table, done) = change(&self.api.load(), changes.number() + 1)?;
        self.api.store(Arc::new(table));
        self.api_number.send_replace(changes.note(group, resource));
        Ok(done)
    }

    /// Returns a receiver of the number of the last change of the API table.
    pub(crate) fn api_number(&self) -> watch::Receiver<u64> {
        self.api_number.subscribe()
    }

    /// Returns the number of the last change of the API table.
    pub fn api_change(&self) -> u64 {
        *self.api_number.borrow()
    }

    /// Returns the index of the OpenAPI v3 documents. It is cached; after a change of the API table
    /// only the documents of the changed groups are hashed again.
    pub fn open_api_index(&self) -> OpenApiIndex {
        // The table may be newer than the number. Its newer changes are processed again next time.
        let number = self.api_change();
        let changed_since = |change| self.api_groups_since(change);
        self.open_api_index.index(&self.api(), &self.catalogue, number, changed_since)
    }

    /// Returns the groups that changed after change `number`; `None`: too many changes, compare
    /// all.
    pub fn api_groups_since(&self, number: u64) -> Option<BTreeSet<Str>> {
        let changes = self.api_changes_since(number)?;
        Some(changes.into_iter().map(|(group, _)| group).collect())
    }

    /// Returns group and resource of the changes after change `number`; `None`: too many changes,
    /// compare all.
    pub(crate) fn api_changes_since(&self, number: u64) -> Option<BTreeSet<(Str, Str)>> {
        self.api_changes.lock().unwrap_or_else(PoisonError::into_inner).since(number)
    }

    /// Returns the groups that APIServices delegate to other servers, highest priority first.
    pub fn remote_groups(&self) -> Arc<Vec<RemoteGroup>> {
        self.remote_groups.load_full()
    }

    /// Returns the version of a group that another server serves; `None` if this server does, or
    /// nobody.
    pub fn remote_version(&self, group: &str, version: &str) -> Option<RemoteVersion> {
        let remote = self.remote_groups.load();
        let of_group = remote.iter().find(|remote| remote.name == group)?;
        let found = of_group.versions.iter().find(|known| known.name == version)?;
        let api = self.api();
        let is_own = api.group(group).is_some_and(|group| group.version(version).is_some());
        (!is_own).then(|| found.clone())
    }

    /// Sets the groups that APIServices delegate to other servers.
    pub fn set_remote_groups(&self, groups: Vec<RemoteGroup>) {
        if **self.remote_groups.load() != groups {
            self.remote_groups.store(Arc::new(groups));
        }
    }

    /// Sets how control loops reach the servers behind this one.
    pub fn set_remote_calls(&self, calls: RemoteCalls) {
        self.remote_caller.set(calls);
    }

    /// Sends the request of a control loop to a server behind this one.
    pub async fn call_remote(&self, call: RemoteCall) -> RemoteAnswer {
        self.remote_caller.call(call).await
    }

    /// Whether the catalogue has the group, served or not.
    pub fn has_group(&self, name: &str) -> bool {
        self.catalogue.group(name).is_some()
    }

    /// Returns the kind of a group and resource, if it is served.
    pub fn kind(&self, group: &str, resource: &str) -> Option<Arc<Kind>> {
        self.api.load().kind(group, resource).cloned()
    }

    /// Returns a new random uid.
    pub fn new_uid(&self) -> Str {
        crate::clock::uid(self.clock.as_ref())
    }

    /// Returns all served kinds that store objects.
    pub fn kinds(&self) -> Vec<Arc<Kind>> {
        self.api.load().kinds().cloned().collect()
    }

    /// Returns a target in the storage version. Panics when the resource is not built in.
    pub fn target(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Target {
        let kind = self.kind(group, resource).expect("a built-in resource");
        Target::of(&kind, namespace, name)
    }

    /// Returns the kind of namespaces.
    pub(crate) fn namespaces(&self) -> Arc<Kind> {
        self.kind("", "namespaces").expect("a built-in resource")
    }

    /// Returns the hooks of a kind.
    pub(crate) fn hooks_of<'k>(&'k self, kind: &'k Kind) -> &'k KindHooks {
        kind_state::hooks_of(kind).unwrap_or(&self.no_hooks)
    }

    /// Writes all metrics; `now` is what running work is measured by.
    pub fn write_metrics(&self, now: Instant, out: &mut Exposition) {
        self.metrics.write(now, out);
        if let Some(write) = self.hooks.metrics {
            write(self, out);
        }
    }

    /// Returns the cache of a kind.
    pub fn objects(&self, kind: &Kind) -> Arc<Resource> {
        self.cache.add(&kind.prefix)
    }

    /// Returns a snapshot of all objects of a kind, or 500 when one of them cannot be read.
    pub fn all(&self, kind: &Kind) -> Result<Snapshot, Failure> {
        self.all_under(kind, "")
    }

    /// Like [`Registry::all`], for the objects whose keys begin with `prefix`.
    pub(crate) fn all_under(&self, kind: &Kind, prefix: &str) -> Result<Snapshot, Failure> {
        let objects = self.objects(kind);
        let snapshot = self.cache.snapshot(&objects);
        match objects.unreadable_under(prefix) {
            None => Ok(snapshot),
            Some(error) => Err(unreadable(&error)),
        }
    }

    /// Returns the store of a kind.
    pub fn store_of(&self, kind: &Kind) -> Arc<dyn Store> {
        self.cache.store_of(&self.objects(kind)).clone()
    }

    /// Waits until reads are as new as the newest revision of the store; not those of kinds in
    /// another store.
    pub async fn wait_for_latest(&self) -> Result<(), Failure> {
        self.cache.wait_latest().await.map_err(|error| Status::unavailable(error.to_string()))
    }

    /// Waits until reads of a kind are as new as the newest revision of its store.
    pub async fn wait_for_latest_of(&self, kind: &Kind) -> Result<(), Failure> {
        let waited = self.cache.wait_latest_of(&self.objects(kind)).await;
        waited.map_err(|error| Status::unavailable(error.to_string()))
    }

    /// Whether a write of the same object would store it in another way, for example with another
    /// key.
    pub(crate) async fn is_stale(&self, target: &Target) -> Result<bool, Failure> {
        let key = target.kind.store_key(&target.namespace, &target.name);
        let stale = self.store_of(&target.kind).is_stale(&key).await;
        stale.map_err(|error| Status::unavailable(error.to_string()))
    }

    /// Waits until reads are as new as any revision of the store that this process has seen; not
    /// those of kinds in another store. Makes no request to the store.
    pub async fn wait_for_known(&self) -> Result<(), Failure> {
        self.cache.wait_known().await.map_err(|error| Status::unavailable(error.to_string()))
    }

    /// Like [`Registry::wait_for_known`], for the store of a kind.
    pub async fn wait_for_known_of(&self, kind: &Kind) -> Result<(), Failure> {
        let waited = self.cache.wait_known_of(&self.objects(kind)).await;
        waited.map_err(|error| Status::unavailable(error.to_string()))
    }

    /// Waits for a revision of the store of a kind that a client named; 504 after [`FUTURE_WAIT`].
    pub(crate) async fn wait_for_revision(
        &self,
        kind: &Kind,
        revision: Revision,
    ) -> Result<(), Failure> {
        let objects = self.objects(kind);
        let waited = self.cache.wait_of(&objects, revision, FUTURE_WAIT).await;
        waited.map_err(|_| {
            let newest = self.cache.revision_of(&objects);
            Status::too_large_resource_version(revision.0, newest.0)
        })
    }

    /// Returns the comparison that makes a write fail when its namespace has changed since this
    /// call.
    pub(crate) async fn namespace_guard(
        &self,
        target: &Target,
    ) -> Result<Option<Compare>, Failure> {
        // Namespaces that cannot be deleted need no guard.
        let lifecycle = &self.options.admission;
        let is_immortal = lifecycle.has(namespace_lifecycle::NAME)
            && namespace_lifecycle::IMMORTAL.contains(&target.namespace.as_str());
        if !target.kind.namespaced || is_immortal {
            return Ok(None);
        }
        let namespaces = self.namespaces();
        let objects = self.objects(&namespaces);
        let namespace_revision = || match objects.unreadable(&target.namespace) {
            Some(error) => Some(error.modified),
            None => objects.get(&target.namespace).map(|entry| entry.modified()),
        };
        let modified = match namespace_revision() {
            Some(modified) => modified,
            // A new namespace may not have reached the cache yet.
            None => {
                self.wait_for_latest_of(&namespaces).await?;
                namespace_revision().unwrap_or_default()
            }
        };
        Ok(Some(Compare { key: namespaces.store_key("", &target.namespace), modified }))
    }

    /// Writes a record if the stored object has revision `expected` (0: none exists) and `guard`
    /// holds.
    pub(crate) async fn put(
        &self,
        target: &Target,
        value: Bytes,
        expected: Revision,
        guard: Option<Compare>,
    ) -> Result<Put, WriteFailure> {
        if value.len() > OBJECT_BYTES_MAX {
            return Err(Overgrown.into());
        }
        target.kind.check_record(&value)?;
        let guard = match guard {
            Some(guard) if self.is_apart_from_namespaces(target) => {
                // Boxed because every write would hold it.
                let now = Box::pin(self.namespace_guard(target)).await?;
                if now.is_some_and(|now| now != guard) {
                    return Ok(Put::NamespaceChanged);
                }
                None
            }
            guard => guard,
        };
        let key = target.kind.store_key(&target.namespace, &target.name);
        let unchanged = Compare { key: key.clone(), modified: expected };
        let txn = Txn {
            compare: match guard {
                None => vec![unchanged],
                Some(guard) => vec![unchanged, guard],
            },
            ops: vec![Op::Put {
                key: key.clone(),
                value: value.clone(),
                lease: self.lease(target),
            }],
        };
        let action = if expected == Revision(0) { "create" } else { "update" };
        match self.commit(target, action, txn).await? {
            TxnOutcome::Committed(modified) => {
                // Entries do not keep the revision of the creation.
                let kv = KeyValue { key: key.clone(), value, created: modified, modified };
                let entry = self.objects(&target.kind).written(&kv);
                let stored = entry.map(Put::Stored);
                stored.map_err(|error| WriteFailure::Unknown(Status::internal(error)))
            }
            TxnOutcome::Conflict { key: changed, .. } if changed != key => {
                Ok(Put::NamespaceChanged)
            }
            // A name is taken even when the object that has it cannot be read.
            TxnOutcome::Conflict { current, .. } if expected == Revision(0) => {
                Ok(Put::Conflict(self.latest(target, current).unwrap_or_default()))
            }
            TxnOutcome::Conflict { current, .. } => {
                Ok(Put::Conflict(self.latest(target, current)?))
            }
        }
    }

    /// Whether a kind is not in the store of namespaces. No transaction spans both: its writes look
    /// at the namespace just before, as all writes of kube-apiserver do.
    fn is_apart_from_namespaces(&self, target: &Target) -> bool {
        if self.options.other_stores.is_empty() {
            return false;
        }
        let source = |kind: &Kind| self.objects(kind).source();
        source(&target.kind) != source(&self.namespaces())
    }

    /// Like [`Registry::put`], for an object with a claim. The claim ends with the outcome of the
    /// write: what the object no longer needs is released, or the whole claim if nothing was
    /// stored.
    pub(crate) async fn put_claimed(
        &self,
        target: &Target,
        record: Bytes,
        expected: Revision,
        guard: Option<Compare>,
        claim: Option<Box<dyn Claim>>,
    ) -> Result<Put, WriteFailure> {
        let Some(mut claim) = claim else {
            return self.put(target, record, expected, guard).await;
        };
        claim.begin();
        let put = self.put(target, record, expected, guard).await;
        let ending = match &put {
            Ok(Put::Stored(_)) => Ending::Stored,
            Err(failure) if !failure.is_certain() => Ending::Unknown,
            Ok(Put::Conflict(_) | Put::NamespaceChanged) | Err(_) => Ending::NotStored,
        };
        claim.end(self, ending).await;
        put
    }

    /// Deletes an object if the stored object still has revision `expected`.
    pub(crate) async fn remove(
        &self,
        target: &Target,
        expected: Revision,
    ) -> Result<Deletion, WriteFailure> {
        let key = target.kind.store_key(&target.namespace, &target.name);
        let txn = Txn {
            compare: vec![Compare { key: key.clone(), modified: expected }],
            ops: vec![Op::Delete { key }],
        };
        match self.commit(target, "delete", txn).await? {
            TxnOutcome::Committed(revision) => Ok(Deletion::Done(revision)),
            TxnOutcome::Conflict { current, .. } => {
                Ok(Deletion::Conflict(self.latest(target, current)?))
            }
        }
    }

    /// Returns the lease of an object that expires after `--event-ttl`.
    fn lease(&self, target: &Target) -> Option<Lease> {
        let ttl = self.options.event_ttl;
        let expires = target.kind.strategy.expires && !ttl.is_zero();
        expires.then(|| Lease::new(self.store_time(), ttl))
    }

    /// Returns the current time in the unit of the store, milliseconds.
    pub fn store_time(&self) -> Timestamp {
        store_time(self.clock.as_ref())
    }

    async fn commit(
        &self,
        target: &Target,
        action: &str,
        txn: Txn,
    ) -> Result<TxnOutcome, WriteFailure> {
        let span = target.span("store.commit");
        span.set("group", target.gvr().group.as_str());
        span.set("resource", target.gvr().resource.as_str());
        let begun = Instant::now();
        let committed = span.scope(self.store_of(&target.kind).txn(txn)).await;
        self.metrics.transactions.observe(target.gvr(), action, begun.elapsed());
        committed.inspect_err(|_| span.fail()).map_err(|error| match error {
            // The outcome is unknown: the client has to read the object.
            WriteError::Unknown { .. } => WriteFailure::Unknown(Status::server_timeout(
                target.gvr(),
                action,
                UNKNOWN_RETRY_SECONDS,
            )),
            WriteError::Failed { ref source } => {
                WriteFailure::Failed(Status::internal(format!("{error}: {source}")))
            }
            WriteError::Stopped { .. } => WriteFailure::Failed(Status::internal(error)),
            WriteError::TooLarge { .. } => Overgrown.into(),
            // Nothing was written, so the client may retry.
            WriteError::Refused { ref source } => {
                Status::unavailable(format!("{error}: {source}")).into()
            }
            WriteError::Unreadable { ref source } => {
                unreadable(&format!("{error}: {source}")).into()
            }
            error => Status::internal(error).into(),
        })
    }

    /// Deletes a stored object that cannot be read. Returns `None` when it is readable or does not
    /// exist.
    pub(crate) async fn remove_unreadable(&self, target: &Target) -> Result<Option<()>, Failure> {
        let key = target.kind.store_key(&target.namespace, &target.name);
        loop {
            let Some(error) = self.objects(&target.kind).unreadable(&target.key()) else {
                return Ok(None);
            };
            let txn = Txn {
                compare: vec![Compare { key: key.clone(), modified: error.modified }],
                ops: vec![Op::Delete { key: key.clone() }],
            };
            match self.commit(target, "delete", txn).await? {
                TxnOutcome::Committed(revision) => {
                    tracing::warn!(%error, %revision, "deleted an object that cannot be read");
                    return Ok(Some(()));
                }
                // It was written again and may be readable now.
                TxnOutcome::Conflict { .. } => self.wait_for_latest_of(&target.kind).await?,
            }
        }
    }

    /// Returns the stored object of a target, or 500 when it cannot be read.
    pub fn entry(&self, target: &Target) -> Result<Option<Entry>, Failure> {
        self.entry_at(&target.kind, &target.key())
    }

    /// Like [`Registry::entry`], by the key without the prefix.
    pub(crate) fn entry_at(&self, kind: &Kind, key: &str) -> Result<Option<Entry>, Failure> {
        let objects = self.objects(kind);
        match objects.unreadable(key) {
            None => Ok(objects.get(key)),
            Some(error) => Err(unreadable(&error)),
        }
    }

    /// Returns the stored object that a failed transaction reports.
    fn latest(&self, target: &Target, current: Option<KeyValue>) -> Result<Option<Entry>, Failure> {
        current
            .map(|kv| Entry::from_store(target.kind.prefix.len(), &kv))
            .transpose()
            .map_err(|error| unreadable(&error))
    }
}

/// Returns the 500 of kube-apiserver for a stored object that cannot be read.
pub(crate) fn unreadable(error: &dyn Display) -> Failure {
    Status::new(Reason::Unknown, error.to_string())
}

/// The outcome of a conditional write.
pub(crate) enum Put {
    /// Stored: the new entry.
    Stored(Entry),
    /// Another write came first: the stored object, if there is one.
    Conflict(Option<Entry>),
    /// The key of the guard, the namespace, has changed.
    NamespaceChanged,
}

/// The outcome of a conditional deletion.
pub(crate) enum Deletion {
    /// Deleted, at this revision.
    Done(Revision),
    /// Another write came first: the stored object, if there is one.
    Conflict(Option<Entry>),
}
