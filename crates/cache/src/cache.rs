//! [`Cache`]: all resources, kept current by one watch of the store.

use crate::follower::{Follower, Followers};
use crate::publish::publish;
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

struct Shared {
    resources: RwLock<Resources>,
    /// All events up to this revision are applied.
    applied: watch::Sender<Revision>,
    /// Why the cache stopped following the store; `None` while it follows it.
    stopped: watch::Sender<Option<Arc<str>>>,
    followers: Followers,
}

/// All resources of one store.
pub struct Cache {
    shared: Arc<Shared>,
    store: Arc<dyn Store>,
    feed: AbortHandle,
}

impl Cache {
    /// Loads the resources with the given key prefixes and every custom resource that has objects,
    /// then follows the store. The history that the store still has is loaded too, so that watches
    /// resume across a restart. When the store cannot return the changes since the last event,
    /// everything is reloaded and all watches end.
    pub async fn start(
        store: Arc<dyn Store>,
        prefixes: impl IntoIterator<Item = Bytes>,
    ) -> Result<Cache, StartError> {
        let prefixes: Vec<Bytes> = prefixes.into_iter().collect();
        let mut tries = 1;
        let (resources, watch, floor) = loop {
            match fill(&*store, &prefixes).await {
                // Another process compacted a shared store meanwhile; retry from its new floor.
                Err(error) if error.is_compacted() && tries < LOAD_ATTEMPTS_MAX => tries += 1,
                filled => break filled?,
            }
        };
        let shared = Arc::new(Shared {
            resources: RwLock::new(resources),
            applied: watch::Sender::new(floor),
            stopped: watch::Sender::new(None),
            followers: Followers::default(),
        });
        let following = tokio::spawn(follow(shared.clone(), store.clone(), watch));
        let feed = following.abort_handle();
        tokio::spawn(record_end(shared.clone(), following));
        let cache = Cache { shared, store, feed };
        // The feed fails this early only when the store is broken, which the first read reports.
        let _ = cache.wait(cache.store.revision(), WAIT_TIME_MAX).await;
        Ok(cache)
    }

    /// Returns the keys in the store of objects that cannot be read, at most `max`, each with the length of the
    /// prefix of its resource.
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
        add(&mut resources, prefix, floor).clone()
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

    /// Returns the newest applied revision.
    pub fn revision(&self) -> Revision {
        *self.shared.applied.borrow()
    }

    /// Returns an error with the reason when the cache no longer follows the store.
    pub fn health(&self) -> Result<(), Arc<str>> {
        self.shared.stopped.borrow().clone().map_or(Ok(()), Err)
    }

    /// Waits until everything up to `revision` is applied.
    pub async fn wait(&self, revision: Revision, at_most: Duration) -> Result<(), CacheError> {
        if self.revision() >= revision {
            return Ok(());
        }
        let mut applied = self.shared.applied.subscribe();
        let mut stopped = self.shared.stopped.subscribe();
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

    /// Waits until everything is applied that is durable in the store at the time of the call, so
    /// that the next read is as new as a read of the store itself. Costs a round trip to a remote
    /// store.
    pub async fn wait_latest(&self) -> Result<(), CacheError> {
        let latest = self.store.latest().await.map_err(|error| {
            tracing::warn!(%error, source = error.source(), "newest revision of the store unknown; read failed");
            CacheError::Unreachable
        })?;
        self.wait(latest, WAIT_TIME_MAX).await
    }

    /// Waits until all writes of which this process knows are applied. A store that other
    /// processes write may have more. Makes no request.
    pub async fn wait_known(&self) -> Result<(), CacheError> {
        self.wait(self.store.revision(), WAIT_TIME_MAX).await
    }

    /// Returns the current objects of a resource.
    pub fn snapshot(&self, resource: &Resource) -> Snapshot {
        resource.snapshot(self.revision())
    }

    /// Returns a receiver of the newest applied revision.
    pub fn progress(&self) -> watch::Receiver<Revision> {
        self.shared.applied.subscribe()
    }

    /// Removes the history at and before `revision`.
    pub fn compact(&self, revision: Revision) {
        let resources = self.shared.resources.read().expect("the cache state is not poisoned");
        for resource in resources.values() {
            resource.compact(revision);
        }
    }
}

impl Cache {
    /// Stops the feed and waits until it has released the store.
    pub async fn close(&self) {
        self.feed.abort();
        let mut stopped = self.shared.stopped.subscribe();
        // The sender lives as long as the cache.
        let _ = stopped.wait_for(Option::is_some).await;
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.feed.abort();
    }
}

/// Loads the objects at the store's floor and returns a watch from there.
async fn fill(
    store: &dyn Store,
    prefixes: &[Bytes],
) -> Result<(Resources, Box<dyn Watch>, Revision), StartError> {
    let floor = store.floor();
    let mut resources: Resources = prefixes
        .iter()
        .map(|prefix| (prefix.clone(), Arc::new(Resource::new(prefix.clone(), floor))))
        .collect();
    let mut broken = (None, 0_usize);
    let mut sink = |kv: KeyValue| {
        if let Some(resource) = find(&mut resources, &kv.key, floor)
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
    Ok((resources, watch, floor))
}

/// Returns the resource of a key. A custom resource is added when its first key arrives, so that a
/// definition that is served later finds its objects.
fn find<'r>(
    resources: &'r mut Resources,
    key: &[u8],
    floor: Revision,
) -> Option<&'r Arc<Resource>> {
    if get_by_prefix(resources, key).is_none() {
        let prefix = Bytes::copy_from_slice(custom_prefix(ROOT, key)?);
        add(resources, &prefix, floor);
    }
    get_by_prefix(resources, key)
}

fn add<'r>(resources: &'r mut Resources, prefix: &Bytes, floor: Revision) -> &'r Arc<Resource> {
    let resource = resources.entry(prefix.clone());
    resource.or_insert_with(|| Arc::new(Resource::new(prefix.clone(), floor)))
}

/// Records why the feed has ended.
async fn record_end(shared: Arc<Shared>, feed: JoinHandle<()>) {
    let why = match feed.await {
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
    shared.stopped.send_replace(Some(why.into()));
}

/// Applies batches until the store is closed.
async fn follow(shared: Arc<Shared>, store: Arc<dyn Store>, mut watch: Box<dyn Watch>) {
    let (mut pending, mut lost) = match catch_up(&shared, &*store, &mut *watch).await {
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
            watch = reload(&shared, &*store).await;
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
            apply(&shared, &batch, &mut pending);
            pending.wake(&shared.followers);
        });
    }
}

/// Applies the backlog at the start. The next batch is read while one is applied, on another core
/// if there is one.
async fn catch_up(
    shared: &Arc<Shared>,
    store: &dyn Store,
    watch: &mut dyn Watch,
) -> Result<PendingWakes, WatchError> {
    let newest = store.revision();
    let mut through = *shared.applied.borrow();
    let mut pending = PendingWakes::default();
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
            apply(&shared, &batch, &mut pending);
            pending.wake(&shared.followers);
            pending
        });
        let next = if through < newest { Some(watch.next().await) } else { None };
        pending = applying.await.map_err(|_| WatchError::Closed)?;
        ahead = next.transpose()?;
    }
    Ok(pending)
}

/// Resources with applied changes whose cursors were not woken yet.
#[derive(Default)]
struct PendingWakes {
    /// With the time at which each is to be woken.
    resources: Vec<(Instant, Arc<Resource>)>,
    /// The time of the last wake, by prefix.
    last_wakes: BTreeMap<Bytes, Instant>,
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
            resource.pack();
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
async fn reload(shared: &Shared, store: &dyn Store) -> Box<dyn Watch> {
    loop {
        match replace(shared, store).await {
            Ok(watch) => return watch,
            Err(error) => {
                tracing::warn!(%error, source = error.source(), "cache not loaded; retrying");
                tokio::time::sleep(RELOAD_DELAY).await;
            }
        }
    }
}

async fn replace(shared: &Shared, store: &dyn Store) -> Result<Box<dyn Watch>, StartError> {
    let mut resources = shared.resources.read().expect("the cache state is not poisoned").clone();
    let mut loaded: BTreeMap<Bytes, Loaded> = BTreeMap::new();
    let floor = store.revision();
    let mut sink = |kv: KeyValue| {
        let Some(resource) = find(&mut resources, &kv.key, floor) else { return };
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
    for (prefix, resource) in &*known {
        resource.replace(loaded.remove(prefix).unwrap_or_default(), at);
    }
    shared.applied.send_replace(at);
    for resource in known.values() {
        shared.followers.mark_changed(resource);
    }
    Ok(watch)
}

fn apply(shared: &Shared, batch: &Batch, pending: &mut PendingWakes) {
    let mut resources = shared.resources.read().expect("the cache state is not poisoned");
    for event in &batch.events {
        let mut resource = get_by_prefix(&resources, &event.key);
        if resource.is_none() && custom_prefix(ROOT, &event.key).is_some() {
            drop(resources);
            let floor = *shared.applied.borrow();
            let mut all = shared.resources.write().expect("the cache state is not poisoned");
            find(&mut all, &event.key, floor);
            drop(all);
            resources = shared.resources.read().expect("the cache state is not poisoned");
            resource = get_by_prefix(&resources, &event.key);
        }
        let Some(resource) = resource else { continue };
        if let Err(error) = resource.apply(event) {
            tracing::error!(%error, "stored object unreadable; not served");
        }
        pending.add(resource);
    }
    drop(resources);
    publish(&shared.applied, batch.through);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CursorError;
    use keelson_records::testing::{PREFIX, stored};
    use keelson_store::{Model, Op, Txn, TxnOutcome};

    /// Writes an object and returns the revision.
    async fn put(store: &Model, key: &str) -> Revision {
        let KeyValue { key, value, .. } = stored(key, &[], 0);
        let txn = Txn { compare: vec![], ops: vec![Op::Put { key, value, lease: None }] };
        match store.txn(txn).await {
            Ok(TxnOutcome::Committed(at)) => at,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_cache_that_missed_changes_relists_and_closes_watches() {
        let store = Arc::new(Model::new());
        put(&store, "ns/a").await;
        let prefix = Bytes::from_static(PREFIX.as_bytes());
        let cache = Cache::start(store.clone(), [prefix.clone()]).await.expect("start");
        let resource = cache.resource(&prefix).expect("the resource");
        let mut cursor = resource.cursor(cache.revision()).expect("a cursor");
        // The model never blocks, so the feed does not run before this is done.
        let gone = Op::Delete { key: "/registry/ks/ns/a".into() };
        put(&store, "ns/b").await;
        store.txn(Txn { compare: vec![], ops: vec![gone] }).await.expect("delete");
        let last = put(&store, "ns/c").await;
        store.compact(last).await.expect("compact");
        cache.wait_latest().await.expect("wait");
        assert_eq!((cache.revision(), resource.floor()), (last, last));
        let names: Vec<_> =
            cache.snapshot(&resource).range("", "").map(|entry| entry.key().to_owned()).collect();
        assert_eq!(names, ["ns/b", "ns/c"]);
        cursor.changed().await.expect("woken");
        assert_eq!(cursor.take(&mut vec![]), Err(CursorError::Lagged));
        let mut cursor = resource.cursor(last).expect("a new cursor");
        let next = put(&store, "ns/d").await;
        cache.wait(next, WAIT_TIME_MAX).await.expect("the cache follows on");
        let mut changes = vec![];
        cursor.take(&mut changes).expect("changes");
        assert_eq!(changes[0].entry.key(), "ns/d");
    }

    #[tokio::test]
    async fn a_follower_gets_changes_and_later_resources() {
        let store = Arc::new(Model::new());
        let prefix = Bytes::from_static(PREFIX.as_bytes());
        let cache = Cache::start(store.clone(), [prefix.clone()]).await.expect("start");
        // Not before: another thread applies what is there at the start, and marks it a moment after it is visible.
        put(&store, "ns/a").await;
        cache.wait_latest().await.expect("wait");
        let names = |resources: Vec<Arc<Resource>>| -> Vec<String> {
            let prefixes = resources.iter().map(|resource| resource.prefix());
            prefixes.map(|prefix| String::from_utf8_lossy(prefix).into_owned()).collect()
        };
        let text = String::from_utf8_lossy(&prefix).into_owned();
        let only = [text];
        let none: [String; 0] = [];
        let mut all = cache.follow(None);
        let mut other = cache.follow(Some(BTreeSet::from([Bytes::from_static(b"/r/")])));
        assert_eq!(names(all.take()), only, "what is there counts as changed");
        assert_eq!(names(all.take()), none);
        put(&store, "ns/b").await;
        put(&store, "ns/b").await;
        // Otherwise the second change may come after the first was taken.
        cache.wait_latest().await.expect("wait");
        all.changed().await;
        assert_eq!(names(all.take()), only);
        let KeyValue { value, .. } = stored("ns/a", &[], 0);
        let key = Bytes::from_static(b"/registry/example.com/widgets/ns/a");
        let ops = vec![Op::Put { key, value, lease: None }];
        store.txn(Txn { compare: vec![], ops }).await.expect("a write");
        all.changed().await;
        assert_eq!(names(all.take()), ["/registry/example.com/widgets/"]);
        // Resources whose watches were ended are reported as changed.
        cache.remove(&prefix);
        assert_eq!(names(all.take()), only);
        assert_eq!(names(other.take()), none, "what is not wanted");
    }

    #[tokio::test(start_paused = true)]
    async fn changes_in_quick_succession_wake_cursors_together() {
        let store = Arc::new(Model::new());
        let prefix = Bytes::from_static(PREFIX.as_bytes());
        let cache = Cache::start(store.clone(), [prefix.clone()]).await.expect("start");
        let resource = cache.resource(&prefix).expect("the resource");
        let mut cursor = resource.cursor(cache.revision()).expect("a cursor");
        put(&store, "ns/a").await;
        let began = Instant::now();
        cursor.changed().await.expect("a change");
        assert_eq!(began.elapsed(), Duration::ZERO, "the first one is sent at once");
        let mut changes = vec![];
        cursor.take(&mut changes).expect("changes");
        assert_eq!(changes.len(), 1);
        put(&store, "ns/b").await;
        cache.wait_latest().await.expect("wait");
        put(&store, "ns/c").await;
        cursor.changed().await.expect("a change");
        assert!(began.elapsed() >= WAKE_INTERVAL_MIN, "sent {:?} later", began.elapsed());
        cursor.take(&mut changes).expect("changes");
        assert_eq!(changes.len(), 3);
        // The interval grows with the number of watchers.
        let watchers: Vec<_> = (1..300).map(|_| resource.cursor(Revision(0))).collect();
        let woken = Instant::now();
        put(&store, "ns/d").await;
        cursor.changed().await.expect("a change");
        assert!(
            woken.elapsed() >= WAKE_INTERVAL_PER_CURSOR * 300,
            "sent {:?} later",
            woken.elapsed()
        );
        assert!(woken.elapsed() < WAKE_INTERVAL_MAX && watchers.len() == 299);
    }
}
