//! All resources, fed by one watch of the store.

use crate::follower::{Follower, Followers};
use crate::resource::Loaded;
use crate::wake::publish;
use crate::{Entry, PrefixMap, Resource, Snapshot, by_prefix, custom_prefix};
use bytes::Bytes;
use keelson_store::{Batch, KeyValue, ReadError, Revision, Store, Watch, WatchError};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::{Arc, RwLock};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, sleep_until};

/// The prefix of every key that the API writes.
pub(crate) const ROOT: &[u8] = b"/registry/";
/// How long a read waits for what is durable already.
const WAIT_TIME_MAX: Duration = Duration::from_secs(60);
/// Attempts to load a store that is compacted at the same time.
const FILL_TRIES_MAX: usize = 5;
/// Between attempts to load the store anew.
const RELOAD_DELAY: Duration = Duration::from_secs(1);
/// The cursors of a resource are woken at most so often. Under many writes the events in between go out together,
/// which costs each watcher a fraction of what they cost one by one.
const TELL_APART: Duration = Duration::from_millis(1);
/// With many watchers less often: a connection that is written to costs a processor about so long, and the processors
/// have other things to do.
const TELL_APART_EACH: Duration = Duration::from_micros(10);
/// But at least so often.
const TELL_APART_MAX: Duration = Duration::from_millis(5);

/// Why the cache could not be filled.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store could not be read.
    #[error("load the store")]
    Load {
        /// Why.
        source: ReadError,
    },
    /// The store could not be watched.
    #[error("watch the store")]
    Watch {
        /// Why.
        source: WatchError,
    },
}

/// Why a read cannot be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CacheError {
    /// The revision lies ahead and did not come in time.
    #[error("revision {asked} is not there yet, newest is {current}")]
    Future {
        /// The revision that was asked for.
        asked: Revision,
        /// The newest one known.
        current: Revision,
    },
    /// The store does not say how new it is.
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
    /// Everything up to this revision has been applied.
    applied: watch::Sender<Revision>,
    /// Why nothing is applied any more.
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
    /// Loads the resources with the given key prefixes, and every custom resource that has objects, and
    /// follows the store from then on. The history
    /// that the store still has is taken in too, so that watches resume across a restart. When the
    /// store cannot say what has changed since the last event, everything is loaded anew, and watches
    /// end.
    pub async fn start(
        store: Arc<dyn Store>,
        prefixes: impl IntoIterator<Item = Bytes>,
    ) -> Result<Cache, StartError> {
        let prefixes: Vec<Bytes> = prefixes.into_iter().collect();
        let mut tries = 1;
        let (resources, watch, floor) = loop {
            match fill(&*store, &prefixes).await {
                // Another process compacted a shared store meanwhile: its floor is known now.
                Err(error) if error.is_compacted() && tries < FILL_TRIES_MAX => tries += 1,
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
        tokio::spawn(note_end(shared.clone(), following));
        let cache = Cache { shared, store, feed };
        // The feed cannot fail so early but for a broken store, which the first read reports.
        let _ = cache.wait(cache.store.revision(), WAIT_TIME_MAX).await;
        Ok(cache)
    }

    /// The resource whose keys begin with `prefix`.
    pub fn resource(&self, prefix: &[u8]) -> Option<Arc<Resource>> {
        let resources = self.shared.resources.read().expect("the cache state is not poisoned");
        resources.get(prefix).cloned()
    }

    /// The same, which is made when it is not there: one of which the store has no key.
    ///
    /// # Panics
    ///
    /// When the prefix is none of a custom resource: of other keys that no resource was started for, the
    /// cache knows nothing.
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

    /// Ends the watches of a resource, and forgets it when it has no objects.
    pub fn remove(&self, prefix: &[u8]) {
        let mut resources = self.shared.resources.write().expect("the cache state is not poisoned");
        let Some(resource) = resources.get(prefix) else { return };
        resource.end_cursors();
        self.shared.followers.note(resource);
        if resource.has_nothing() {
            resources.remove(prefix);
        }
    }

    /// Follows all resources, also those that come later; or those with these prefixes. All that have objects
    /// count as changed at first.
    pub fn follow(&self, wanted: Option<BTreeSet<Bytes>>) -> Follower {
        let follower = self.shared.followers.add(wanted);
        let resources = self.shared.resources.read().expect("the cache state is not poisoned");
        for resource in resources.values().filter(|resource| !resource.has_nothing()) {
            follower.note(resource);
        }
        follower
    }

    /// Everything up to this revision can be read now.
    pub fn revision(&self) -> Revision {
        *self.shared.applied.borrow()
    }

    /// Whether it follows the store; if it no longer does, why.
    pub fn health(&self) -> Result<(), Arc<str>> {
        self.shared.stopped.borrow().clone().map_or(Ok(()), Err)
    }

    /// Waits until everything up to `revision` can be read.
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

    /// Waits for everything that is durable in the store at the time of the call: the next read is
    /// as new as a read of the store itself. Asks the store how new that is: a remote one costs a
    /// round trip.
    pub async fn wait_latest(&self) -> Result<(), CacheError> {
        let latest = self.store.latest().await.map_err(|error| {
            tracing::warn!(%error, source = error.source(), "the store does not say how new it is");
            CacheError::Unreachable
        })?;
        self.wait(latest, WAIT_TIME_MAX).await
    }

    /// Waits for everything that this process knows to be durable, which in a store that others write too
    /// may not be all there is. Asks nobody.
    pub async fn wait_known(&self) -> Result<(), CacheError> {
        self.wait(self.store.revision(), WAIT_TIME_MAX).await
    }

    /// The objects of a resource now.
    pub fn snapshot(&self, resource: &Resource) -> Snapshot {
        resource.snapshot(self.revision())
    }

    /// A receiver of the revision that was applied last.
    pub fn progress(&self) -> watch::Receiver<Revision> {
        self.shared.applied.subscribe()
    }

    /// Forgets the history at and before `revision`.
    pub fn compact(&self, revision: Revision) {
        let resources = self.shared.resources.read().expect("the cache state is not poisoned");
        for resource in resources.values() {
            resource.compact(revision);
        }
    }
}

impl Cache {
    /// Ends the feed, and waits until it has let go of the store.
    pub async fn close(&self) {
        self.feed.abort();
        let mut stopped = self.shared.stopped.subscribe();
        // The sender is there as long as the cache is.
        let _ = stopped.wait_for(Option::is_some).await;
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.feed.abort();
    }
}

/// The objects as they were at the store's floor, and the watch that goes on from there.
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
        tracing::error!(%first, count, "stored objects cannot be read");
    }
    let watch = store
        .watch(Bytes::from_static(ROOT), floor)
        .map_err(|source| StartError::Watch { source })?;
    Ok((resources, watch, floor))
}

/// The resource of a key. That of a custom resource is made when its first key comes, so that a producer of
/// the API table finds everything there, however late it comes.
fn find<'r>(
    resources: &'r mut Resources,
    key: &[u8],
    floor: Revision,
) -> Option<&'r Arc<Resource>> {
    if by_prefix(resources, key).is_none() {
        let prefix = Bytes::copy_from_slice(custom_prefix(ROOT, key)?);
        add(resources, &prefix, floor);
    }
    by_prefix(resources, key)
}

fn add<'r>(resources: &'r mut Resources, prefix: &Bytes, floor: Revision) -> &'r Arc<Resource> {
    let resource = resources.entry(prefix.clone());
    resource.or_insert_with(|| Arc::new(Resource::new(prefix.clone(), floor)))
}

/// Notes when and why the feed has ended.
async fn note_end(shared: Arc<Shared>, feed: JoinHandle<()>) {
    let why = match feed.await {
        Ok(()) => "the store was closed".to_owned(),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                let line = text.and_then(|text| text.lines().next()).unwrap_or_default();
                tracing::error!(why = line, "cache feed panicked; nothing new is served any more");
                format!("it panicked: {line}")
            }
            Err(_) => "the cache was closed".to_owned(),
        },
    };
    shared.stopped.send_replace(Some(why.into()));
}

/// Applies batch after batch until the store is closed.
async fn follow(shared: Arc<Shared>, store: Arc<dyn Store>, mut watch: Box<dyn Watch>) {
    let (mut untold, mut lost) = match catch_up(&shared, &*store, &mut *watch).await {
        Ok(untold) => (untold, Ok(())),
        Err(error) => (Untold::default(), Err(error)),
    };
    loop {
        if let Err(error) = lost {
            if matches!(error, WatchError::Closed) {
                tracing::error!(%error, "the cache lost the store");
                return;
            }
            tracing::warn!(%error, "the cache loads the store anew, and watches end");
            watch = reload(&shared, &*store).await;
        }
        let next = tokio::select! {
            next = watch.next() => next,
            () = untold.due() => {
                untold.tell(&shared.followers);
                lost = Ok(());
                continue;
            }
        };
        lost = next.map(|batch| {
            apply(&shared, &batch, &mut untold);
            untold.tell(&shared.followers);
        });
    }
}

/// Applies what the store has at the start, and reads the next of it meanwhile: on another core, where there is
/// one.
async fn catch_up(
    shared: &Arc<Shared>,
    store: &dyn Store,
    watch: &mut dyn Watch,
) -> Result<Untold, WatchError> {
    let (newest, mut through) = (store.revision(), *shared.applied.borrow());
    let (mut untold, mut ahead) = (Untold::default(), None);
    while through < newest {
        let batch = match ahead {
            Some(batch) => batch,
            None => watch.next().await?,
        };
        through = batch.through;
        let shared = shared.clone();
        // A task that is spawned waits for its own thread, which the store keeps busy.
        let applying = tokio::task::spawn_blocking(move || {
            apply(&shared, &batch, &mut untold);
            untold.tell(&shared.followers);
            untold
        });
        let next = if through < newest { Some(watch.next().await) } else { None };
        untold = applying.await.map_err(|_| WatchError::Closed)?;
        ahead = next.transpose()?;
    }
    Ok(untold)
}

/// Resources whose cursors were not woken yet for what has been applied.
#[derive(Default)]
struct Untold {
    /// With the time at which each is due.
    resources: Vec<(Instant, Arc<Resource>)>,
    /// When cursors were woken last, by prefix.
    told: BTreeMap<Bytes, Instant>,
}

impl Untold {
    fn note(&mut self, resource: &Arc<Resource>) {
        if self.resources.iter().any(|(_, noted)| Arc::ptr_eq(noted, resource)) {
            return;
        }
        let due = match self.told.get(resource.prefix()) {
            Some(told) => *told + tell_apart(resource.cursors()),
            None => Instant::now(),
        };
        self.resources.push((due, resource.clone()));
    }

    /// Waits until something is due; for ever when there is nothing.
    async fn due(&self) {
        match self.resources.iter().map(|(due, _)| *due).min() {
            Some(due) => sleep_until(due).await,
            None => std::future::pending().await,
        }
    }

    /// Wakes the cursors of what is due.
    fn tell(&mut self, followers: &Followers) {
        let now = Instant::now();
        for (_, resource) in self.resources.extract_if(.., |(due, _)| *due <= now) {
            resource.tell();
            followers.note(&resource);
            resource.pack();
            self.told.insert(resource.prefix().clone(), now);
        }
    }
}

/// How long the next change waits after one that so many watchers were told of.
fn tell_apart(watchers: usize) -> Duration {
    let all = TELL_APART_EACH.saturating_mul(u32::try_from(watchers).unwrap_or(u32::MAX));
    all.clamp(TELL_APART, TELL_APART_MAX)
}

/// Loads the newest state in the place of all that is there, as soon as the store lets it.
async fn reload(shared: &Shared, store: &dyn Store) -> Box<dyn Watch> {
    loop {
        match replace(shared, store).await {
            Ok(watch) => return watch,
            Err(error) => {
                tracing::warn!(%error, source = error.source(), "the cache cannot be filled");
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
        shared.followers.note(resource);
    }
    Ok(watch)
}

fn apply(shared: &Shared, batch: &Batch, untold: &mut Untold) {
    let mut resources = shared.resources.read().expect("the cache state is not poisoned");
    for event in &batch.events {
        let mut resource = by_prefix(&resources, &event.key);
        if resource.is_none() && custom_prefix(ROOT, &event.key).is_some() {
            drop(resources);
            let floor = *shared.applied.borrow();
            let mut all = shared.resources.write().expect("the cache state is not poisoned");
            find(&mut all, &event.key, floor);
            drop(all);
            resources = shared.resources.read().expect("the cache state is not poisoned");
            resource = by_prefix(&resources, &event.key);
        }
        let Some(resource) = resource else { continue };
        if let Err(error) = resource.apply(event) {
            tracing::error!(%error, "a stored object cannot be read");
        }
        untold.note(resource);
    }
    drop(resources);
    publish(&shared.applied, batch.through);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CursorError;
    use crate::entry::tests::{PREFIX, stored};
    use keelson_store::{Model, Op, Txn, TxnOutcome};

    /// Writes an object; the revision of the write.
    async fn put(store: &Model, key: &str) -> Revision {
        let KeyValue { key, value, .. } = stored(key, &[], 0);
        let txn = Txn { compare: vec![], ops: vec![Op::Put { key, value, lease: None }] };
        match store.txn(txn).await {
            Ok(TxnOutcome::Committed(at)) => at,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_cache_that_missed_changes_loads_anew_and_ends_its_watches() {
        let store = Arc::new(Model::new());
        put(&store, "ns/a").await;
        let prefix = Bytes::from_static(PREFIX.as_bytes());
        let cache = Cache::start(store.clone(), [prefix.clone()]).await.expect("start");
        let resource = cache.resource(&prefix).expect("the resource");
        let mut cursor = resource.cursor(cache.revision()).expect("a cursor");
        // The model answers at once, so that the feed does not run before all of this is done.
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
    async fn a_follower_is_given_what_has_changed_and_resources_that_come_later() {
        let store = Arc::new(Model::new());
        put(&store, "ns/a").await;
        let prefix = Bytes::from_static(PREFIX.as_bytes());
        let cache = Cache::start(store.clone(), [prefix.clone()]).await.expect("start");
        let names = |resources: Vec<Arc<Resource>>| -> Vec<String> {
            let prefixes = resources.iter().map(|resource| resource.prefix());
            prefixes.map(|prefix| String::from_utf8_lossy(prefix).into_owned()).collect()
        };
        let text = String::from_utf8_lossy(&prefix).into_owned();
        let (only, none): ([String; 1], [String; 0]) = ([text], []);
        let (mut all, mut other) =
            (cache.follow(None), cache.follow(Some(BTreeSet::from([Bytes::from_static(b"/r/")]))));
        assert_eq!(names(all.take()), only, "what is there counts as changed");
        assert_eq!(names(all.take()), none);
        put(&store, "ns/b").await;
        put(&store, "ns/b").await;
        all.changed().await;
        assert_eq!(names(all.take()), only);
        let KeyValue { value, .. } = stored("ns/a", &[], 0);
        let key = Bytes::from_static(b"/registry/example.com/widgets/ns/a");
        let ops = vec![Op::Put { key, value, lease: None }];
        store.txn(Txn { compare: vec![], ops }).await.expect("a write");
        all.changed().await;
        assert_eq!(names(all.take()), ["/registry/example.com/widgets/"]);
        // Whose watches end is read anew.
        cache.remove(&prefix);
        assert_eq!(names(all.take()), only);
        assert_eq!(names(other.take()), none, "what is not wanted");
    }

    #[tokio::test(start_paused = true)]
    async fn changes_right_after_one_another_are_told_together() {
        let store = Arc::new(Model::new());
        let prefix = Bytes::from_static(PREFIX.as_bytes());
        let cache = Cache::start(store.clone(), [prefix.clone()]).await.expect("start");
        let resource = cache.resource(&prefix).expect("the resource");
        let mut cursor = resource.cursor(cache.revision()).expect("a cursor");
        put(&store, "ns/a").await;
        let began = Instant::now();
        cursor.changed().await.expect("a change");
        assert_eq!(began.elapsed(), Duration::ZERO, "the first one is told at once");
        let mut changes = vec![];
        cursor.take(&mut changes).expect("changes");
        assert_eq!(changes.len(), 1);
        put(&store, "ns/b").await;
        cache.wait_latest().await.expect("wait");
        put(&store, "ns/c").await;
        cursor.changed().await.expect("a change");
        assert!(began.elapsed() >= TELL_APART, "told {:?} later", began.elapsed());
        cursor.take(&mut changes).expect("changes");
        assert_eq!(changes.len(), 3);
        // Of many watchers, each gives the processors time.
        let watchers: Vec<_> = (1..300).map(|_| resource.cursor(Revision(0))).collect();
        let told = Instant::now();
        put(&store, "ns/d").await;
        cursor.changed().await.expect("a change");
        assert!(told.elapsed() >= TELL_APART_EACH * 300, "told {:?} later", told.elapsed());
        assert!(told.elapsed() < TELL_APART_MAX && watchers.len() == 299);
    }
}
