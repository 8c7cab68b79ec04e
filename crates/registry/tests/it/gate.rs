//! A store that holds back or fails writes under one prefix, so that a test decides what happens
//! before them.

use bytes::Bytes;
use keelson_store::{
    BoxFuture, Embedded, HealthError, KeyValue, Op, Page, Range, ReadError, Revision, Store, Txn,
    TxnOutcome, Watch, WatchError, WriteError,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

/// Holds back transactions that write below a prefix, until it is opened.
pub struct Gate {
    inner: Arc<Embedded>,
    prefix: &'static str,
    open: watch::Sender<bool>,
    /// Number of transactions that reached the gate.
    arrived: watch::Sender<usize>,
    /// Number of transactions that still pass the closed gate.
    passing: AtomicUsize,
    /// The error of the next transaction.
    failure: Mutex<Option<WriteError>>,
}

impl Gate {
    /// An open gate before an empty store in memory.
    pub fn new(prefix: &'static str) -> Arc<Gate> {
        let open = watch::Sender::new(true);
        let arrived = watch::Sender::new(0);
        let passing = AtomicUsize::new(0);
        let failure = Mutex::default();
        Arc::new(Gate { inner: Embedded::in_memory(), prefix, open, arrived, passing, failure })
    }

    /// Closes the gate.
    pub fn close(&self) {
        self.arrived.send_replace(0);
        self.open.send_replace(false);
    }

    /// Closes the gate behind the next transactions.
    pub fn close_after(&self, transactions: usize) {
        self.passing.store(transactions, Ordering::SeqCst);
        self.close();
    }

    /// Deletes a key past the gate, as another server would.
    pub async fn remove(&self, key: &'static str) {
        let ops = vec![Op::Delete { key: Bytes::from_static(key.as_bytes()) }];
        self.inner.txn(Txn { compare: vec![], ops }).await.expect("it is removed");
    }

    /// Fails the next transaction, which does not reach the store.
    pub fn fail_next(&self, error: WriteError) {
        *self.failure.lock().expect("no test panics here") = Some(error);
    }

    /// Opens the gate.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    /// Waits until a transaction is held back.
    pub async fn arrival(&self) {
        let mut arrived = self.arrived.subscribe();
        arrived.wait_for(|count| *count > 0).await.expect("the gate is there");
    }
}

impl Store for Gate {
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
        let is_held = txn.ops.iter().any(|op| op.key().starts_with(self.prefix.as_bytes()));
        Box::pin(async move {
            let failure = self.failure.lock().expect("no test panics here").take_if(|_| is_held);
            if let Some(error) = failure {
                return Err(error);
            }
            let count = |left: usize| left.checked_sub(1);
            let passes =
                || self.passing.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count).is_ok();
            if is_held && !passes() {
                self.arrived.send_modify(|count| *count += 1);
                let mut open = self.open.subscribe();
                open.wait_for(|is_open| *is_open).await.expect("the gate is there");
            }
            self.inner.txn(txn).await
        })
    }

    fn watch(&self, prefix: Bytes, after: Revision) -> Result<Box<dyn Watch>, WatchError> {
        self.inner.watch(prefix, after)
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
