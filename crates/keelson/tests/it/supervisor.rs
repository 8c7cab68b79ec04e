//! If a background task dies, health checks fail and name it, and the embedding program gets the
//! error.

use crate::http::{POLL_TIMEOUT, Server};
use bytes::Bytes;
use keelson::Keelson;
use keelson_store::embedded::disk::{Disk, Head, MemDisk, Record, RecordId, Sink, StoredRecord};
use keelson_store::{
    Batch, BoxFuture, DiskError, Embedded, HealthError, KeyValue, Page, Range, ReadError, Revision,
    Store, Txn, TxnOutcome, Watch, WatchError, WriteError,
};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A disk whose next commit panics when the flag is set.
#[derive(Default)]
struct PanicDisk {
    records: MemDisk,
    panics: Arc<AtomicBool>,
}

impl Disk for PanicDisk {
    fn floor(&self) -> Result<Revision, DiskError> {
        self.records.floor()
    }

    fn heads(&self, from: RecordId, sink: Sink<'_, Head>) -> Result<(), DiskError> {
        self.records.heads(from, sink)
    }

    fn records(&self, from: RecordId, sink: Sink<'_, StoredRecord>) -> Result<(), DiskError> {
        self.records.records(from, sink)
    }

    fn value(&self, id: RecordId) -> Result<Option<Bytes>, DiskError> {
        self.records.value(id)
    }

    fn commit(&self, records: &[Record], floor: Option<Revision>) -> Result<(), DiskError> {
        assert!(!self.panics.load(Ordering::SeqCst), "a promise is broken, for a test");
        self.records.commit(records, floor)
    }

    fn forget(&self, ids: &[RecordId]) -> Result<u64, DiskError> {
        self.records.forget(ids)
    }

    fn settle(&self) -> Result<(), DiskError> {
        Ok(())
    }

    fn recover(&self, undo: &[RecordId], floor: Revision) -> Result<(), DiskError> {
        self.records.recover(undo, floor)
    }
}

/// A store whose watches panic when the flag is set.
struct PanicStore {
    inner: Arc<Embedded>,
    panics: Arc<AtomicBool>,
}

struct PanicWatch {
    inner: Box<dyn Watch>,
    panics: Arc<AtomicBool>,
}

impl Watch for PanicWatch {
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, WatchError>> {
        Box::pin(async move {
            let batch = self.inner.next().await;
            assert!(!self.panics.load(Ordering::SeqCst), "a watch went back, for a test");
            batch
        })
    }
}

impl Store for PanicStore {
    fn get<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<KeyValue>, ReadError>> {
        self.inner.get(key)
    }

    fn range(&self, ask: Range) -> BoxFuture<'_, Result<Page, ReadError>> {
        self.inner.range(ask)
    }

    fn load<'a>(
        &'a self,
        prefix: &'a [u8],
        at: Option<Revision>,
        sink: &'a mut (dyn FnMut(KeyValue) + Send),
    ) -> BoxFuture<'a, Result<Revision, ReadError>> {
        self.inner.load(prefix, at, sink)
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnOutcome, WriteError>> {
        self.inner.txn(txn)
    }

    fn watch(&self, prefix: Bytes, after: Revision) -> Result<Box<dyn Watch>, WatchError> {
        let inner = self.inner.watch(prefix, after)?;
        Ok(Box::new(PanicWatch { inner, panics: self.panics.clone() }))
    }

    fn revision(&self) -> Revision {
        self.inner.revision()
    }

    fn floor(&self) -> Revision {
        self.inner.floor()
    }

    fn compact(&self, through: Revision) -> BoxFuture<'_, Result<(), WriteError>> {
        self.inner.compact(through)
    }

    fn health(&self) -> Result<(), HealthError> {
        self.inner.health()
    }
}

/// Triggers a panic by a write. Expects that health checks name the component and that the
/// embedding program gets the same error.
fn check(server: &Server, panics: &AtomicBool, component: &str, why: &str) {
    let client = server.client();
    for path in ["/livez", "/readyz"] {
        assert_eq!(client.get(path).status, 200, "{path}");
    }
    panics.store(true, Ordering::SeqCst);
    client.post(MAPS, &json!({"metadata": {"name": "a"}}));
    let broken = server.block_on(async {
        tokio::time::timeout(POLL_TIMEOUT, server.keelson.fatal_error()).await.expect("it is told")
    });
    assert_eq!(broken, format!("{component} failed: {why}"));
    for path in ["/livez", "/readyz"] {
        let answer = client.get(path);
        assert_eq!(answer.status, 500, "{path}");
        let text = answer.body.as_str().expect("text");
        let line = format!("\n[-]{component} failed: {why}\n{} check failed\n", &path[1..]);
        assert!(text.starts_with("[+]ping ok\n") && text.ends_with(&line), "{text}");
    }
}

#[test]
fn a_commit_thread_that_panics_fails_health_and_says_why() {
    let panics: Arc<AtomicBool> = Arc::default();
    let disk = PanicDisk { panics: panics.clone(), ..PanicDisk::default() };
    let store = Embedded::with_disk(Arc::new(disk)).expect("a store");
    let server = Server::start_plain(Keelson::builder().no_controllers().store(store));
    let why = "the commit thread stopped: it panicked: a promise is broken, for a test";
    check(&server, &panics, "store-commit", why);
    server.stop();
}

#[test]
fn a_cache_feed_that_panics_fails_health_and_says_why() {
    let panics: Arc<AtomicBool> = Arc::default();
    let store = PanicStore { inner: Embedded::in_memory(), panics: panics.clone() };
    let server = Server::start_plain(Keelson::builder().no_controllers().store(Arc::new(store)));
    check(&server, &panics, "cache-feed", "it panicked: a watch went back, for a test");
    // Reads do not wait forever.
    assert_eq!(server.client().get("/api/v1/namespaces/default").status, 503);
    server.stop();
}
