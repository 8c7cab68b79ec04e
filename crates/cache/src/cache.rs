//! [`Cache`]: all resources, kept current by one watch of each store.
//!
//! Nearly always there is one store. A resource may be in another one (`--etcd-servers-overrides`),
//! whose revisions have nothing to do with those of the first.

use crate::follower::{Follower, Followers};
use crate::publish::Applied;
use crate::resource::Loaded;
use crate::{Resource, Snapshot};
use bytes::Bytes;
use keelson_records::{Entry, PrefixMap, custom_prefix, get_by_prefix};
use keelson_store::{Batch, KeyValue, ReadError, Revision, Store, Watch, WatchError};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::{Arc, RwLock};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, sleep_until};

/// The prefix of every key of the API.
pub(crate) const ROOT: &[u8] = b"/registry/";
/// Maximum time that a read waits for a revision that is already durable.
const WAIT_TIME_MAX: Duration = Duration::from_secs(60);
/// Attempts to load a store that is compacted at the same time.
const LOAD_ATTEMPTS_MAX: usize = 5;
/// Delay between attempts to reload the store.
const RELOAD_DELAY: Duration = Duration::from_secs(1);
/// How long changes are kept as they are, for watches, if there are not too many.
const SETTLE_INTERVAL: Duration = Duration::from_secs(1);
/// After so many intervals without a change there is nothing left to settle.
const SETTLED_AFTER: usize = 2;
/// Pause between two pieces of what is folded after the start.
const FOLD_PAUSE: Duration = Duration::from_millis(1);
/// Minimum interval between two wakes of the cursors of a resource. Under many writes the events in
/// between are sent together, which costs each watcher a fraction of sending them one by one.
const WAKE_INTERVAL_MIN: Duration = Duration::from_millis(1);
/// The part of the interval for each watcher: writing to a connection takes about this much
/// processor time.
const WAKE_INTERVAL_PER_CURSOR: Duration = Duration::from_micros(10);
/// Maximum interval between two wakes.
const WAKE_INTERVAL_MAX: Duration = Duration::from_millis(5);

/// An error of loading the cache.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Reading the store failed.
    #[error("load the store")]
    Load {
        /// The error of the store.
        source: ReadError,
    },
    /// Watching the store failed.
    #[error("watch the store")]
    Watch {
        /// The error of the store.
        source: WatchError,
    },
}

/// Why a read failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CacheError {
    /// The revision is in the future and did not arrive in time.
    #[error("revision {asked} is not there yet, newest is {current}")]
    Future {
        /// The requested revision.
        asked: Revision,
        /// The newest applied revision.
        current: Revision,
    },
    /// The store does not return its newest revision.
    #[error("the store does not answer")]
    Unreachable,
    /// The cache no longer follows the store.
    #[error("the cache no longer follows the store")]
    Closed,
}

impl StartError {
    fn is_compacted(&self) -> bool {
        match self {
            StartError::Load { source } => matches!(source, ReadError::Compacted { .. }),
            StartError::Watch { source } => matches!(source, WatchError::Compacted { .. }),
        }
    }
}

type Resources = PrefixMap<Arc<Resource>>;

/// A store, and the resources in it.
#[derive(Clone)]
pub struct StoreSource {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The key prefixes of the resources. Keys below other prefixes are ignored, but for those of
    /// custom resources in the first source.
    pub prefixes: Vec<Bytes>,
}

/// The number of the first source, which has all resources that no other has.
pub(crate) const MAIN: usize = 0;

#[derive(Default)]
struct Shared {
    resources: RwLock<Resources>,
    /// One for each source.
    feeds: Vec<Feed>,
    followers: Followers,
}

/// What follows a store.
struct Feed {
    /// Its number among the sources.
    number: usize,
    store: Arc<dyn Store>,
    /// All events up to this revision are applied.
    applied: Applied,
    /// Why the cache stopped following the store; `None` while it follows it.
    stopped: watch::Sender<Option<Arc<str>>>,
}

impl Shared {
    /// Returns a number that grows whenever anything is applied.
    fn position(&self) -> u64 {
        self.feeds.iter().map(|feed| feed.revision().0).fold(0, u64::wrapping_add)
    }
}

/// How far a cache has followed its stores. It does not keep the cache running.
#[derive(Clone, Default)]
pub struct Position(Arc<Shared>);

impl Position {
    /// Returns a number that grows whenever anything is applied, of any store.
    pub fn get(&self) -> u64 {
        self.0.position()
    }

    /// Whether all writes to the first store of which this process knows are applied.
    pub fn is_current(&self) -> bool {
        self.0.feeds.first().is_none_or(|feed| feed.revision() >= feed.store.revision())
    }
}

/// All resources.
pub struct Cache {
    shared: Arc<Shared>,
    /// One for each source, and what settles resources.
    running: Vec<AbortHandle>,
}

impl Cache {
    /// Like [`Cache::start_over`], with one store.
    pub async fn start(
        store: Arc<dyn Store>,
        prefixes: impl IntoIterator<Item = Bytes>,
    ) -> Result<Cache, StartError> {
        let prefixes = prefixes.into_iter().collect();
        Cache::start_over(vec![StoreSource { store, prefixes }]).await
    }

    /// Loads the resources of the sources and every custom resource that has objects in the first
    /// one, then follows the stores. The history that a store still has is loaded too, so that
    /// watches resume across a restart. When a store cannot return the changes since the last
    /// event, its resources are reloaded and all their watches end.
    pub async fn start_over(sources: Vec<StoreSource>) -> Result<Cache, StartError> {
        let mut resources = Resources::default();
        let mut feeds = vec![];
        let mut watches = vec![];
        for (number, StoreSource { store, prefixes }) in sources.into_iter().enumerate() {
            let filled = fill_from(&*store, number, &prefixes).await?;
            // What the first store has of a resource that is elsewhere is not used.
            resources.extend(filled.resources);
            watches.push(filled.watch);
            let applied = Applied::new(filled.floor);
            feeds.push(Feed { number, store, applied, stopped: watch::Sender::new(None) });
        }
        let shared = Arc::new(Shared {
            resources: RwLock::new(resources),
            feeds,
            followers: Followers::default(),
        });
        let mut running = vec![];
        for (number, watch) in watches.into_iter().enumerate() {
            let following = tokio::spawn(follow(shared.clone(), number, watch));
            running.push(following.abort_handle());
            tokio::spawn(record_end(shared.clone(), number, following));
        }
        running.push(tokio::spawn(settle(shared.clone())).abort_handle());
        let cache = Cache { shared, running };
        for feed in &cache.shared.feeds {
            // A feed fails this early only when its store is broken, which the first read reports.
            let _ = feed.wait(feed.store.revision(), WAIT_TIME_MAX).await;
        }
        Ok(cache)
    }

    /// The feed of all resources that are not elsewhere.
    fn main(&self) -> &Feed {
        &self.shared.feeds[MAIN]
    }

    fn feed_of(&self, resource: &Resource) -> &Feed {
        &self.shared.feeds[resource.source()]
    }

    /// Returns the store of a resource.
    pub fn store_of(&self, resource: &Resource) -> &Arc<dyn Store> {
        &self.feed_of(resource).store
    }

    /// Returns the keys in the store of objects that cannot be read, at most `max`, each with the
    /// length of the prefix of its resource.
    pub fn unreadable_keys(&self, max: usize) -> Vec<(usize, Bytes)> {
        let resources = self.shared.resources.read().expect("the cache state is not poisoned");
        let keys = resources.iter().flat_map(|(prefix, resource)| {
            let keys = resource.unreadable_keys().into_iter();
            keys.map(|key| (prefix.len(), Bytes::from([prefix, key.as_bytes()].concat())))
        });
        keys.take(max).collect()
    }

    /// Returns the resource with this key prefix.
    pub fn resource(&self, prefix: &[u8]) -> Option<Arc<Resource>> {
        let resources = self.shared.resources.read().expect("the cache state is not poisoned");
        resources.get(prefix).cloned()
    }

    /// Returns the resource with this key prefix; adds an empty one if there is none.
    ///
    /// # Panics
    ///
    /// If the prefix is not that of a custom resource. The cache ignored the keys of other
    /// resources that it was not started with.
    pub fn add(&self, prefix: &Bytes) -> Arc<Resource> {
        if let Some(known) = self.resource(prefix) {
            return known;
        }
        assert_eq!(
            custom_prefix(ROOT, prefix),
            Some(&prefix[..]),
            "the prefix of a custom resource"
        );
        let floor = self.revision();
        let mut resources = self.shared.resources.write().expect("the cache state is not poisoned");
        add(&mut resources, prefix, MAIN, floor).clone()
    }

    /// Ends the watches of a resource, and removes it when it has no objects.
    pub fn remove(&self, prefix: &[u8]) {
        let mut resources = self.shared.resources.write().expect("the cache state is not poisoned");
        let Some(resource) = resources.get(prefix) else { return };
        resource.end_cursors();
        self.shared.followers.mark_changed(resource);
        if resource.holds_no_objects() {
            resources.remove(prefix);
        }
    }

    /// Returns a follower of the resources with these prefixes; `None`: of all, including later
    /// ones. At first, all resources with objects count as changed.
    pub fn follow(&self, wanted: Option<BTreeSet<Bytes>>) -> Follower {
        let follower = self.shared.followers.add(wanted);
        let resources = self.shared.resources.read().expect("the cache state is not poisoned");
        for resource in resources.values().filter(|resource| !resource.holds_no_objects()) {
            follower.mark_changed(resource);
        }
        follower
    }

    /// Returns the newest applied revision of the first store.
    pub fn revision(&self) -> Revision {
        self.main().revision()
    }

    /// Returns the newest applied revision of the store of a resource.
    pub fn revision_of(&self, resource: &Resource) -> Revision {
        self.feed_of(resource).revision()
    }

    /// Returns how far the stores are followed, now and later.
    pub fn position(&self) -> Position {
        Position(self.shared.clone())
    }

    /// Whether all writes of which this process knows are applied, in any store.
    pub fn is_caught_up(&self) -> bool {
        self.shared.feeds.iter().all(|feed| feed.revision() >= feed.store.revision())
    }

    /// Returns an error with the reason when the cache no longer follows a store.
    pub fn health(&self) -> Result<(), Arc<str>> {
        let stopped = |feed: &Feed| feed.stopped.borrow().clone();
        self.shared.feeds.iter().find_map(stopped).map_or(Ok(()), Err)
    }

    /// Waits until everything in the first store up to `revision` is applied.
    pub async fn wait(&self, revision: Revision, at_most: Duration) -> Result<(), CacheError> {
        self.main().wait(revision, at_most).await
    }

    /// Waits until everything in the store of a resource up to `revision` is applied.
    pub async fn wait_of(
        &self,
        resource: &Resource,
        revision: Revision,
        at_most: Duration,
    ) -> Result<(), CacheError> {
        self.feed_of(resource).wait(revision, at_most).await
    }

    /// Waits until everything is applied that is durable in the first store at the time of the
    /// call, so that the next read is as new as a read of the store itself. Costs a round trip to a
    /// remote store.
    pub async fn wait_latest(&self) -> Result<(), CacheError> {
        self.main().wait_latest().await
    }

    /// Like [`Cache::wait_latest`], for the store of a resource.
    pub async fn wait_latest_of(&self, resource: &Resource) -> Result<(), CacheError> {
        self.feed_of(resource).wait_latest().await
    }

    /// Waits until all writes to the first store of which this process knows are applied. A store
    /// that other processes write may have more. Makes no request.
    pub async fn wait_known(&self) -> Result<(), CacheError> {
        self.main().wait_known().await
    }

    /// Like [`Cache::wait_known`], for the store of a resource.
    pub async fn wait_known_of(&self, resource: &Resource) -> Result<(), CacheError> {
        self.feed_of(resource).wait_known().await
    }

    /// Like [`Cache::wait_known`], for all stores.
    pub async fn wait_known_everywhere(&self) -> Result<(), CacheError> {
        for feed in &self.shared.feeds {
            feed.wait_known().await?;
        }
        Ok(())
    }

    /// Returns the current objects of a resource.
    pub fn snapshot(&self, resource: &Resource) -> Snapshot {
        resource.snapshot(self.revision_of(resource))
    }

    /// Returns a receiver of the newest applied revision of the store of a resource.
    pub fn progress_of(&self, resource: &Resource) -> watch::Receiver<Revision> {
        self.feed_of(resource).applied.subscribe()
    }

    /// Removes the history at and before `revision` of the resources of a source, by its number.
    pub fn compact(&self, source: usize, revision: Revision) {
        let resources = self.shared.resources.read().expect("the cache state is not poisoned");
        for resource in resources.values().filter(|resource| resource.source() == source) {
            resource.compact(revision);
        }
    }

    /// Stops the feeds and waits until they have released the stores.
    pub async fn close(&self) {
        self.running.iter().for_each(AbortHandle::abort);
        for feed in &self.shared.feeds {
            // The sender lives as long as the cache.
            let _ = feed.stopped.subscribe().wait_for(Option::is_some).await;
        }
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.running.iter().for_each(AbortHandle::abort);
    }
}

impl Feed {
    fn revision(&self) -> Revision {
        self.applied.get()
    }

    async fn wait(&self, revision: Revision, at_most: Duration) -> Result<(), CacheError> {
        if self.revision() >= revision {
            return Ok(());
        }
        let mut applied = self.applied.subscribe();
        let mut stopped = self.stopped.subscribe();
        let reached = async {
            tokio::select! {
                biased;
                reached = applied.wait_for(|now| *now >= revision) => reached.is_ok(),
                _ = stopped.wait_for(Option::is_some) => false,
            }
        };
        match tokio::time::timeout(at_most, reached).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(CacheError::Closed),
            Err(_) => Err(CacheError::Future { asked: revision, current: self.revision() }),
        }
    }

    async fn wait_latest(&self) -> Result<(), CacheError> {
        let latest = self.store.latest().await.map_err(|error| {
            tracing::warn!(%error, source = error.source(), "newest revision of the store unknown; read failed");
            CacheError::Unreachable
        })?;
        self.wait(latest, WAIT_TIME_MAX).await
    }

    async fn wait_known(&self) -> Result<(), CacheError> {
        self.wait(self.store.revision(), WAIT_TIME_MAX).await
    }
}

/// The resources of a store at its floor, and a watch from there.
struct Filled {
    resources: Resources,
    watch: Box<dyn Watch>,
    floor: Revision,
}

/// Fills the resources of a source, from the store's floor on. Another process may compact a shared
/// store meanwhile; then from the newest revision on.
async fn fill_from(
    store: &dyn Store,
    source: usize,
    prefixes: &[Bytes],
) -> Result<Filled, StartError> {
    let mut floor = store.floor();
    for _ in 1..LOAD_ATTEMPTS_MAX {
        match fill(store, source, prefixes, floor).await {
            Err(error) if error.is_compacted() => {
                let newest = store.latest().await;
                floor = newest.map_err(|source| StartError::Load { source })?;
            }
            filled => return filled,
        }
    }
    fill(store, source, prefixes, floor).await
}

/// Loads the objects at a revision and returns a watch from there.
async fn fill(
    store: &dyn Store,
    source: usize,
    prefixes: &[Bytes],
    floor: Revision,
) -> Result<Filled, StartError> {
    let mut resources = Resources::default();
    for prefix in prefixes {
        add(&mut resources, prefix, source, floor);
    }
    let mut broken = (None, 0_usize);
    let mut sink = |kv: KeyValue| {
        if let Some(resource) = find(&mut resources, &kv.key, source, floor)
            && let Err(error) = resource.load(&kv)
        {
            broken.0.get_or_insert(error);
            broken.1 += 1;
        }
    };
    store.load(ROOT, Some(floor), &mut sink).await.map_err(|source| StartError::Load { source })?;
    if let (Some(first), count) = broken {
        tracing::error!(%first, count, "stored objects unreadable; not served");
    }
    let watch = store
        .watch(Bytes::from_static(ROOT), floor)
        .map_err(|source| StartError::Watch { source })?;
    Ok(Filled { resources, watch, floor })
}

/// Returns the resource of a key in a source; `None` if it is in another one. A custom resource is
/// added when its first key arrives in the first source, so that a definition that is served later
/// finds its objects.
fn find<'r>(
    resources: &'r mut Resources,
    key: &[u8],
    source: usize,
    floor: Revision,
) -> Option<&'r Arc<Resource>> {
    if source == MAIN && get_by_prefix(resources, key).is_none() {
        let prefix = Bytes::copy_from_slice(custom_prefix(ROOT, key)?);
        add(resources, &prefix, MAIN, floor);
    }
    get_by_prefix(resources, key).filter(|resource| resource.source() == source)
}

fn add<'r>(
    resources: &'r mut Resources,
    prefix: &Bytes,
    source: usize,
    floor: Revision,
) -> &'r Arc<Resource> {
    let resource = resources.entry(prefix.clone());
    resource.or_insert_with(|| Arc::new(Resource::new(prefix.clone(), source, floor)))
}

/// Records why the feed has ended.
async fn record_end(shared: Arc<Shared>, number: usize, following: JoinHandle<()>) {
    let why = match following.await {
        Ok(()) => "the store was closed".to_owned(),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => {
                let text = panic
                    .downcast_ref::<String>()
                    .map(String::as_str)
                    .or_else(|| panic.downcast_ref::<&str>().copied());
                let line = text.and_then(|text| text.lines().next()).unwrap_or_default();
                tracing::error!(why = line, "cache feed panicked; nothing new is served any more");
                format!("it panicked: {line}")
            }
            Err(_) => "the cache was closed".to_owned(),
        },
    };
    shared.feeds[number].stopped.send_replace(Some(why.into()));
}

/// Folds what was loaded, in small pieces, and from then on what has changed and is left alone.
async fn settle(shared: Arc<Shared>) {
    for feed in &shared.feeds {
        // It is given up like the start: the first read reports why.
        let _ = feed.wait(feed.store.revision(), WAIT_TIME_MAX).await;
    }
    tokio::time::sleep(SETTLE_INTERVAL).await;
    let all = || shared.resources.read().expect("the cache state is not poisoned").clone();
    for resource in all().values() {
        let mut next = Some(String::new());
        while let Some(start) = next {
            next = resource.fold_from(&start);
            tokio::time::sleep(FOLD_PAUSE).await;
        }
    }
    let mut seen = shared.position();
    let mut due = SETTLED_AFTER;
    loop {
        tokio::time::sleep(SETTLE_INTERVAL).await;
        if seen != shared.position() {
            seen = shared.position();
            due = SETTLED_AFTER;
        }
        if due > 0 {
            for resource in all().values() {
                resource.settle();
                tokio::task::yield_now().await;
            }
            due -= 1;
        }
    }
}

/// Applies batches until the store is closed.
async fn follow(shared: Arc<Shared>, number: usize, mut watch: Box<dyn Watch>) {
    let feed = &shared.feeds[number];
    let (mut pending, mut lost) = match catch_up(&shared, number, &mut *watch).await {
        Ok(pending) => (pending, Ok(())),
        Err(error) => (PendingWakes::default(), Err(error)),
    };
    loop {
        if let Err(error) = lost {
            if matches!(error, WatchError::Closed) {
                tracing::error!(%error, "store closed; cache stopped");
                return;
            }
            tracing::warn!(%error, "store watch lost; relisting, closing watches");
            watch = reload(&shared, feed).await;
        }
        let next = tokio::select! {
            next = watch.next() => next,
            () = pending.due() => {
                pending.wake(&shared.followers);
                lost = Ok(());
                continue;
            }
        };
        lost = next.map(|batch| {
            apply(&shared, feed, &batch, &mut pending);
            pending.wake(&shared.followers);
        });
    }
}

/// Applies the backlog at the start. The next batch is read while one is applied, on another core
/// if there is one.
async fn catch_up(
    shared: &Arc<Shared>,
    number: usize,
    watch: &mut dyn Watch,
) -> Result<PendingWakes, WatchError> {
    let feed = &shared.feeds[number];
    let newest = feed.store.revision();
    let mut through = feed.revision();
    let mut pending = PendingWakes { is_starting: true, ..PendingWakes::default() };
    let mut ahead = None;
    while through < newest {
        let batch = match ahead {
            Some(batch) => batch,
            None => watch.next().await?,
        };
        through = batch.through;
        let shared = shared.clone();
        // `spawn_blocking`, because a spawned task would wait for this thread, which the store
        // keeps busy.
        let applying = tokio::task::spawn_blocking(move || {
            apply(&shared, &shared.feeds[number], &batch, &mut pending);
            pending.wake(&shared.followers);
            pending
        });
        let next = if through < newest { Some(watch.next().await) } else { None };
        pending = applying.await.map_err(|_| WatchError::Closed)?;
        ahead = next.transpose()?;
    }
    pending.is_starting = false;
    Ok(pending)
}

/// Resources with applied changes whose cursors were not woken yet.
#[derive(Default)]
struct PendingWakes {
    /// With the time at which each is to be woken.
    resources: Vec<(Instant, Arc<Resource>)>,
    /// The time of the last wake, by prefix.
    last_wakes: BTreeMap<Bytes, Instant>,
    /// Whether the backlog is applied. What has no time then is done afterwards.
    is_starting: bool,
}

impl PendingWakes {
    fn add(&mut self, resource: &Arc<Resource>) {
        if self.resources.iter().any(|(_, other)| Arc::ptr_eq(other, resource)) {
            return;
        }
        let due = match self.last_wakes.get(resource.prefix()) {
            Some(last) => *last + wake_interval(resource.cursors()),
            None => Instant::now(),
        };
        self.resources.push((due, resource.clone()));
    }

    /// Waits until a wake is due; forever when none is pending.
    async fn due(&self) {
        match self.resources.iter().map(|(due, _)| *due).min() {
            Some(due) => sleep_until(due).await,
            None => std::future::pending().await,
        }
    }

    /// Wakes the cursors of the resources that are due.
    fn wake(&mut self, followers: &Followers) {
        let now = Instant::now();
        for (_, resource) in self.resources.extract_if(.., |(due, _)| *due <= now) {
            resource.wake_cursors();
            followers.mark_changed(&resource);
            match self.is_starting {
                true => resource.pack_only(),
                false => resource.pack(),
            }
            self.last_wakes.insert(resource.prefix().clone(), now);
        }
    }
}

/// Returns the minimum time between two wakes of this many watchers.
fn wake_interval(watchers: usize) -> Duration {
    let all = WAKE_INTERVAL_PER_CURSOR.saturating_mul(u32::try_from(watchers).unwrap_or(u32::MAX));
    all.clamp(WAKE_INTERVAL_MIN, WAKE_INTERVAL_MAX)
}

/// Retries until the store could be loaded, and returns its watch.
async fn reload(shared: &Shared, feed: &Feed) -> Box<dyn Watch> {
    loop {
        match replace(shared, feed).await {
            Ok(watch) => return watch,
            Err(error) => {
                tracing::warn!(%error, source = error.source(), "cache not loaded; retrying");
                tokio::time::sleep(RELOAD_DELAY).await;
            }
        }
    }
}

async fn replace(shared: &Shared, feed: &Feed) -> Result<Box<dyn Watch>, StartError> {
    let store = &*feed.store;
    let mut resources = shared.resources.read().expect("the cache state is not poisoned").clone();
    let mut loaded: BTreeMap<Bytes, Loaded> = BTreeMap::new();
    let floor = store.revision();
    let mut sink = |kv: KeyValue| {
        let Some(resource) = find(&mut resources, &kv.key, feed.number, floor) else { return };
        let prefix = resource.prefix();
        let loaded = loaded.entry(prefix.clone()).or_default();
        match Entry::from_store(prefix.len(), &kv) {
            Ok(entry) => loaded.objects.push(entry),
            Err(error) => loaded.unreadable.push(error),
        }
    };
    let at =
        store.load(ROOT, None, &mut sink).await.map_err(|source| StartError::Load { source })?;
    let watch =
        store.watch(Bytes::from_static(ROOT), at).map_err(|source| StartError::Watch { source })?;
    let mut known = shared.resources.write().expect("the cache state is not poisoned");
    for (prefix, resource) in resources {
        known.entry(prefix).or_insert(resource);
    }
    let own = || known.values().filter(|resource| resource.source() == feed.number);
    for resource in own() {
        resource.replace(loaded.remove(resource.prefix()).unwrap_or_default(), at);
    }
    feed.applied.set(at);
    for resource in own() {
        shared.followers.mark_changed(resource);
    }
    Ok(watch)
}

fn apply(shared: &Shared, feed: &Feed, batch: &Batch, pending: &mut PendingWakes) {
    let mut resources = shared.resources.read().expect("the cache state is not poisoned");
    for event in &batch.events {
        let mut resource = get_by_prefix(&resources, &event.key);
        if resource.is_none() && feed.number == MAIN && custom_prefix(ROOT, &event.key).is_some() {
            drop(resources);
            let floor = feed.revision();
            let mut all = shared.resources.write().expect("the cache state is not poisoned");
            find(&mut all, &event.key, MAIN, floor);
            drop(all);
            resources = shared.resources.read().expect("the cache state is not poisoned");
            resource = get_by_prefix(&resources, &event.key);
        }
        let own = resource.filter(|resource| resource.source() == feed.number);
        let Some(resource) = own else { continue };
        if let Err(error) = resource.apply(event) {
            tracing::error!(%error, "stored object unreadable; not served");
        }
        pending.add(resource);
    }
    drop(resources);
    feed.applied.set(batch.through);
}

#[cfg(test)]
mod tests;
