//! [`EncryptionAdmin`]: which keys stored values are encrypted with, and writing those again that
//! have an old one, while the server serves: the path `/keelson/encryption` of the server.

use crate::backend::Backend;
use bytes::Bytes;
use keelson_encryption::{Encryption, key_of};
use keelson_meta::{Failure, Map, Status, Value};
use keelson_records::is_unreadable;
use keelson_registry::Registry;
use keelson_resources::StoredResources;
use keelson_server::ExtraPath;
use keelson_store::{Compare, KeyValue, Lease, Op, Range, Store, Txn, key_after};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;

/// The path of the status.
pub const STATUS_PATH: &str = "/keelson/encryption";
/// The path of a rotation.
pub const ROTATE_PATH: &str = "/keelson/encryption/rotate";
/// The prefix of all keys.
const ROOT: &[u8] = b"/registry/";
/// Values that are read at once.
const PAGE_ITEMS: usize = 256;
/// Values that are written at the same time.
const WRITES_MAX: usize = 16;
/// Failures that are named; further ones are counted.
const FAILURES_MAX: usize = 20;

/// Counts values by their keys, and writes stale ones again.
pub(crate) struct EncryptionAdmin {
    /// The store of all that is in no other, then those of single resources.
    places: Vec<Place>,
    encryption: Option<Arc<Encryption>>,
    /// Made when it is first needed.
    resources: LazyLock<StoredResources>,
    registry: Arc<Registry>,
    event_ttl: Duration,
    rotation: Mutex<Rotation>,
}

/// A store.
struct Place {
    /// Values are records.
    store: Arc<dyn Store>,
    /// The same store with its values as they are stored.
    stored: Arc<dyn Store>,
    /// The prefixes of the keys in it; of the first store, all others.
    prefixes: Vec<Bytes>,
}

/// How far the last rotation is.
#[derive(Clone, Debug, Default)]
struct Rotation {
    is_running: bool,
    total: usize,
    rewritten: usize,
    failed: usize,
    failures: Vec<String>,
}

/// The number of values of each key, by resource.
pub type KeyCounts = BTreeMap<String, BTreeMap<String, u64>>;

/// Adds a stored value to the counts of its resource.
pub fn count_key(counts: &mut KeyCounts, resource: &str, stored: &[u8]) {
    let keys = counts.entry(resource.to_owned()).or_default();
    *keys.entry(key_of(stored)).or_default() += 1;
}

/// Returns the name of a resource: `secrets`, `deployments.apps`.
pub fn resource_name(of: (&str, &str)) -> String {
    let (group, resource) = of;
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

impl EncryptionAdmin {
    pub fn new(
        backend: &Backend,
        registry: Arc<Registry>,
        event_ttl: Duration,
    ) -> Arc<EncryptionAdmin> {
        let main = Place {
            store: backend.store.clone(),
            stored: backend.stored.clone(),
            prefixes: vec![],
        };
        let others = backend.others.iter().map(|other| Place {
            store: other.store.clone(),
            stored: other.stored.clone(),
            prefixes: other.prefixes.clone(),
        });
        Arc::new(EncryptionAdmin {
            places: [main].into_iter().chain(others).collect(),
            encryption: backend.encrypted.as_ref().map(|(encryption, _)| encryption.clone()),
            resources: LazyLock::new(StoredResources::default),
            registry,
            event_ttl,
            rotation: Mutex::default(),
        })
    }

    /// Returns the paths of the server.
    pub fn paths(self: &Arc<Self>) -> Vec<ExtraPath> {
        let status = self.clone();
        let rotate = self.clone();
        vec![
            ExtraPath::get(STATUS_PATH, move |_| {
                let admin = status.clone();
                Box::pin(async move { admin.status().await })
            }),
            ExtraPath::post(ROTATE_PATH, move |_| {
                let admin = rotate.clone();
                Box::pin(async move { admin.rotate().await })
            }),
        ]
    }

    async fn status(&self) -> Result<Value, Failure> {
        let mut counts = KeyCounts::new();
        let mut write_keys = BTreeMap::new();
        let counted = self.for_each_stored(|kv, resource| {
            let name = resource_name(resource);
            count_key(&mut counts, &name, &kv.value);
            write_keys.entry(name).or_insert_with(|| self.write_key(resource));
        });
        counted.await.map_err(Status::internal)?;
        let mut resources = vec![];
        for (name, keys) in &counts {
            let write_key = write_keys.get(name).map_or("", String::as_str);
            if keys.keys().all(|key| key == "identity") && write_key == "identity" {
                continue;
            }
            let mut shown = Map::default();
            shown.insert("resource", name.as_str());
            shown.insert("writeKey", write_key);
            let stale = keys.iter().filter(|(key, _)| *key != write_key);
            shown.insert("stale", number(stale.map(|(_, count)| *count).sum()));
            shown.insert("keys", key_list(keys));
            resources.push(Value::Object(shown));
        }
        let mut status = Map::default();
        status.insert("kind", "EncryptionStatus");
        status.insert("encrypts", self.encryption.is_some());
        status.insert("resources", resources);
        status.insert("rotation", self.rotation().shown());
        Ok(Value::Object(status))
    }

    /// Passes each stored object to `take`, page by page, so that requests are served between them.
    async fn for_each_stored(
        &self,
        mut take: impl FnMut(&KeyValue, (&str, &str)),
    ) -> Result<(), String> {
        for place in 0..self.places.len() {
            self.for_each_stored_in(place, &mut take).await?;
        }
        Ok(())
    }

    /// Returns the number of the store of a key.
    fn place_of(&self, key: &[u8]) -> usize {
        let has = |place: &Place| place.prefixes.iter().any(|prefix| key.starts_with(prefix));
        self.places.iter().position(has).unwrap_or(0)
    }

    async fn for_each_stored_in(
        &self,
        place: usize,
        take: &mut impl FnMut(&KeyValue, (&str, &str)),
    ) -> Result<(), String> {
        let mut query = Range { limit: PAGE_ITEMS, ..Range::prefix(ROOT) };
        loop {
            let page = self.places[place].stored.range(query.clone()).await;
            let page =
                page.map_err(|error| format!("the stored values cannot be read: {error}"))?;
            for kv in page.items.iter().filter(|kv| self.place_of(&kv.key) == place) {
                if let Some(resource) = self.resources.group_resource(&kv.key) {
                    take(kv, resource);
                }
            }
            let Some(last) = page.items.last().filter(|_| page.more) else { return Ok(()) };
            query = Range { start: key_after(&last.key), at: Some(page.at), ..query };
            tokio::task::yield_now().await;
        }
    }

    fn write_key(&self, of: (&str, &str)) -> String {
        let (group, resource) = of;
        let encryption = self.encryption.as_ref();
        encryption.map_or("identity".to_owned(), |of| of.write_key(group, resource))
    }

    /// Starts to write stale values again, unless that is going on.
    async fn rotate(self: &Arc<Self>) -> Result<Value, Failure> {
        let Some(encryption) = &self.encryption else {
            return Err(Status::bad_request("nothing is encrypted: there is no configuration"));
        };
        // A key of a plug-in that has just changed counts from now on.
        encryption.check_plugins().await;
        {
            let mut rotation = self.rotation.lock().unwrap_or_else(PoisonError::into_inner);
            if rotation.is_running {
                return Ok(rotation.shown());
            }
            *rotation = Rotation { is_running: true, ..Rotation::default() };
        }
        let admin = self.clone();
        tokio::spawn(async move {
            let rewritten = admin.rewrite_all().await;
            admin.update(|rotation| {
                rotation.is_running = false;
                if let Err(why) = &rewritten {
                    rotation.fail(why.clone());
                }
            });
            let Rotation { rewritten, failed, .. } = admin.rotation();
            tracing::info!(rewritten, failed, "encrypted values rotated");
        });
        Ok(self.rotation().shown())
    }

    /// Writes all stale values again.
    async fn rewrite_all(self: &Arc<Self>) -> Result<(), String> {
        let mut stale: Vec<Bytes> = vec![];
        let found = self.for_each_stored(|kv, resource| {
            if key_of(&kv.value) != self.write_key(resource) {
                stale.push(kv.key.clone());
            }
        });
        found.await?;
        self.update(|rotation| rotation.total = stale.len());
        let mut writes = JoinSet::new();
        for key in stale {
            if writes.len() == WRITES_MAX {
                self.finish(writes.join_next().await);
            }
            let admin = self.clone();
            writes.spawn(async move {
                let rewritten = admin.rewrite(&key).await;
                rewritten.map_err(|why| format!("{}: {why}", key.escape_ascii()))
            });
        }
        while let Some(done) = writes.join_next().await {
            self.finish(Some(done));
        }
        Ok(())
    }

    fn finish(&self, done: Option<Result<Result<(), String>, tokio::task::JoinError>>) {
        self.update(|rotation| match done {
            Some(Ok(Ok(()))) => rotation.rewritten += 1,
            Some(Ok(Err(why))) => rotation.fail(why),
            Some(Err(error)) => rotation.fail(error.to_string()),
            None => {}
        });
    }

    /// Writes a value again, unless it has changed meanwhile.
    async fn rewrite(&self, key: &Bytes) -> Result<(), String> {
        let store = &self.places[self.place_of(key)].store;
        let found = store.get(key).await.map_err(|error| error.to_string())?;
        let Some(found) = found else { return Ok(()) };
        if is_unreadable(&found.value) {
            return Err(String::from_utf8_lossy(&found.value[1..]).into_owned());
        }
        let put = Op::Put { key: key.clone(), value: found.value, lease: self.lease(key) };
        let compare = vec![Compare { key: key.clone(), modified: found.modified }];
        let written = store.txn(Txn { compare, ops: vec![put] }).await;
        // After a conflict it is somebody else's write, which has used the current key.
        written.map(drop).map_err(|error| crate::start_error::with_causes(&error))
    }

    /// Returns the lease of a value: events expire.
    fn lease(&self, key: &[u8]) -> Option<Lease> {
        let events = self.registry.kind("", "events")?;
        let expires = key.starts_with(&events.prefix) && !self.event_ttl.is_zero();
        expires.then(|| Lease::new(self.registry.store_time(), self.event_ttl))
    }

    fn rotation(&self) -> Rotation {
        self.rotation.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn update(&self, change: impl FnOnce(&mut Rotation)) {
        change(&mut self.rotation.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Rotation {
    fn fail(&mut self, why: String) {
        self.failed += 1;
        if self.failures.len() < FAILURES_MAX {
            self.failures.push(why);
        }
    }

    fn shown(&self) -> Value {
        let number = |count: usize| number(count as u64);
        let mut shown = Map::default();
        shown.insert("running", self.is_running);
        shown.insert("total", number(self.total));
        shown.insert("rewritten", number(self.rewritten));
        shown.insert("failed", number(self.failed));
        let failures = self.failures.iter().map(|why| Value::from(why.as_str()));
        shown.insert("failures", failures.collect::<Vec<_>>());
        Value::Object(shown)
    }
}

/// Returns the keys of a resource with their numbers of objects.
pub fn key_list(keys: &BTreeMap<String, u64>) -> Vec<Value> {
    let shown = keys.iter().map(|(key, count)| {
        let mut shown = Map::default();
        shown.insert("key", key.as_str());
        shown.insert("objects", number(*count));
        Value::Object(shown)
    });
    shown.collect()
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
