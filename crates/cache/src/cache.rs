//! All resources, fed by one watch of the store.

use crate::{RecordError, Resource, Snapshot};
use bytes::Bytes;
use keelson_store::{Batch, ReadError, Revision, Store, WatchError};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, RwLock};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The prefix of every key that the API writes.
const ROOT: &[u8] = b"/registry/";

/// Why the cache could not be filled.
#[derive(Debug)]
pub enum StartError {
    /// The store could not be read.
    Load {
        /// Why.
        source: ReadError,
    },
    /// The store could not be watched.
    Watch {
        /// Why.
        source: WatchError,
    },
    /// Stored bytes are not an object.
    Record {
        /// Why.
        source: RecordError,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StartError::Load { .. } => "load the store",
            StartError::Watch { .. } => "watch the store",
            StartError::Record { .. } => "read a stored object",
        })
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(match self {
            StartError::Load { source } => source,
            StartError::Watch { source } => source,
            StartError::Record { source } => source,
        })
    }
}

/// Why a read cannot be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheError {
    /// The revision lies ahead and did not come in time.
    Future {
        /// The revision that was asked for.
        asked: Revision,
        /// The newest one known.
        current: Revision,
    },
    /// The cache no longer follows the store.
    Closed,
}

impl fmt::Display for CacheError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CacheError::Future { asked, current } => {
                write!(f, "revision {asked} is not there yet, newest is {current}")
            }
            CacheError::Closed => f.write_str("the cache no longer follows the store"),
        }
    }
}

impl std::error::Error for CacheError {}

struct Shared {
    /// By prefix of their keys. Invariant: no prefix is a prefix of another.
    resources: RwLock<BTreeMap<Bytes, Arc<Resource>>>,
    /// Everything up to this revision has been applied.
    applied: watch::Sender<Revision>,
}

/// All resources of one store.
pub struct Cache {
    shared: Arc<Shared>,
    store: Arc<dyn Store>,
    feed: JoinHandle<()>,
}

impl Cache {
    /// Loads the resources with the given key prefixes and follows the store from then on. The history
    /// that the store still has is taken in too, so that watches resume across a restart.
    pub async fn start(
        store: Arc<dyn Store>,
        prefixes: impl IntoIterator<Item = Bytes>,
    ) -> Result<Cache, StartError> {
        let floor = store.floor();
        let resources: BTreeMap<Bytes, Arc<Resource>> = prefixes
            .into_iter()
            .map(|prefix| (prefix.clone(), Arc::new(Resource::new(prefix, floor))))
            .collect();
        let mut broken = None;
        let mut sink = |kv: keelson_store::KeyValue| {
            if let Some(resource) = find(&resources, &kv.key)
                && let Err(error) = resource.load(&kv)
            {
                broken.get_or_insert(error);
            }
        };
        store
            .load(ROOT, Some(floor), &mut sink)
            .await
            .map_err(|source| StartError::Load { source })?;
        if let Some(source) = broken {
            return Err(StartError::Record { source });
        }
        let watch = store
            .watch(Bytes::from_static(ROOT), floor)
            .map_err(|source| StartError::Watch { source })?;
        let shared = Arc::new(Shared {
            resources: RwLock::new(resources),
            applied: watch::Sender::new(floor),
        });
        let feed = tokio::spawn(follow(shared.clone(), watch));
        let cache = Cache { shared, store, feed };
        // The feed cannot fail so early but for a broken store, which the first read reports.
        let _ = cache.wait(cache.store.revision(), Duration::from_secs(60)).await;
        Ok(cache)
    }

    /// The resource whose keys begin with `prefix`.
    pub fn resource(&self, prefix: &[u8]) -> Option<Arc<Resource>> {
        let resources = self.shared.resources.read().expect("the cache state is not poisoned");
        resources.get(prefix).cloned()
    }

    /// Everything up to this revision can be read now.
    pub fn revision(&self) -> Revision {
        *self.shared.applied.borrow()
    }

    /// Waits until everything up to `revision` can be read.
    pub async fn wait(&self, revision: Revision, at_most: Duration) -> Result<(), CacheError> {
        if self.revision() >= revision {
            return Ok(());
        }
        let mut applied = self.shared.applied.subscribe();
        match tokio::time::timeout(at_most, applied.wait_for(|now| *now >= revision)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(CacheError::Closed),
            Err(_) => Err(CacheError::Future { asked: revision, current: self.revision() }),
        }
    }

    /// Waits for everything that is durable in the store at the time of the call: the next read is
    /// as new as a read of the store itself. Costs two atomic loads when nothing is under way.
    pub async fn wait_latest(&self) -> Result<(), CacheError> {
        self.wait(self.store.revision(), Duration::from_secs(60)).await
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

impl Drop for Cache {
    fn drop(&mut self) {
        self.feed.abort();
    }
}

/// The resource to which a key of the store belongs.
fn find<'r>(
    resources: &'r BTreeMap<Bytes, Arc<Resource>>,
    key: &[u8],
) -> Option<&'r Arc<Resource>> {
    let (prefix, resource) = resources
        .range::<[u8], _>((std::ops::Bound::Unbounded, std::ops::Bound::Included(key)))
        .next_back()?;
    key.starts_with(prefix).then_some(resource)
}

/// Applies batch after batch until the store ends the watch.
async fn follow(shared: Arc<Shared>, mut watch: Box<dyn keelson_store::Watch>) {
    loop {
        match watch.next().await {
            Ok(batch) => apply(&shared, &batch),
            Err(error) => {
                tracing::error!(%error, "the cache lost the store");
                return;
            }
        }
    }
}

fn apply(shared: &Shared, batch: &Batch) {
    let resources = shared.resources.read().expect("the cache state is not poisoned");
    for event in &batch.events {
        let Some(resource) = find(&resources, &event.key) else {
            continue;
        };
        if let Err(error) = resource.apply(event) {
            tracing::error!(%error, "a stored object cannot be read");
        }
    }
    drop(resources);
    shared.applied.send_replace(batch.through);
}
