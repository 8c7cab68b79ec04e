//! A server whose store, clock and random numbers can be made to fail, for rare responses.

use crate::world::{Client, POLL_TIMEOUT};
use bytes::Bytes;
use keelson_admission::Chain;
use keelson_auth::{Authenticator, MASTERS, TokenFile, User};
use keelson_egress::Egress;
use keelson_meta::time::Timestamp;
use keelson_registry::{Clock, RegistryOptions, SystemClock};
use keelson_server::{App, Listening};
use keelson_store::{
    Batch, BoxFuture, Embedded, HealthError, KeyValue, Page, Range, ReadError, Revision, Store,
    Txn, TxnOutcome, Watch, WatchError, WriteError,
};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// The fault that is injected.
#[derive(Debug, Default)]
pub struct Faults {
    /// Writes fail without effect.
    pub writes_stop: AtomicBool,
    /// Reads from the store by a write fail.
    pub values_unreadable: AtomicBool,
    /// The outcome of a write is unknown.
    pub writes_get_lost: AtomicBool,
    /// All random numbers are equal.
    pub random_repeats: AtomicBool,
    /// Reading the clock panics.
    pub time_panics: AtomicBool,
    /// Writes do not reach the cache.
    pub feed_stalls: watch::Sender<bool>,
}

impl Faults {
    pub fn set(&self, fault: &AtomicBool, on: bool) {
        fault.store(on, Ordering::SeqCst);
    }
}

/// The server.
pub struct FaultyServer {
    pub faults: Arc<Faults>,
    runtime: Runtime,
    listening: Listening,
    shutdown: watch::Sender<bool>,
}

impl FaultyServer {
    pub fn start() -> FaultyServer {
        let runtime = Runtime::new().expect("a runtime");
        let faults: Arc<Faults> = Arc::default();
        let (shutdown, stopped) = watch::channel(false);
        let listening = runtime.block_on(listen(faults.clone(), stopped));
        FaultyServer { faults, runtime, listening, shutdown }
    }

    pub fn client(&self) -> Client {
        Client { address: self.listening.address }
    }

    pub fn stop(self) {
        let _ = self.shutdown.send(true);
        let ended = async { tokio::time::timeout(POLL_TIMEOUT, self.listening.stopped()).await };
        self.runtime.block_on(ended).expect("the server ends");
    }
}

async fn listen(faults: Arc<Faults>, shutdown: watch::Receiver<bool>) -> Listening {
    let store = FaultyStore { inner: Embedded::in_memory(), faults: faults.clone() };
    let options = RegistryOptions {
        service_ranges: vec!["10.0.0.0/24".to_owned()],
        node_ports: Default::default(),
        kubernetes_node_port: None,
        node_address_types: vec![],
        advertise_address: Ipv4Addr::LOCALHOST.into(),
        advertise_port: 6443,
        publishes_endpoint: true,
        runtime_config: vec![],
        features: keelson_meta::Features::default(),
        allows_privileged: true,
        garbage_collection: true,
        fairness: true,
        admission: Chain::default(),
        dynamic_admission: vec![],
        conversion_webhooks: None,
        authorizer: Arc::default(),
        event_ttl: std::time::Duration::ZERO,
        other_stores: vec![],
        simulated_nodes: None,
    };
    let clock = Box::new(FaultyClock { faults });
    let opened = keelson_builtin::open(Arc::new(store), clock, options).await;
    let registry = opened.expect("a registry").registry;
    let mut tokens = TokenFile::default();
    let admin = User { name: "admin".into(), ..User::default() }.with_group(MASTERS);
    tokens.insert("t", admin);
    let egress = Arc::new(Egress::without_services());
    let app = App::new(registry, Authenticator::new(tokens), egress, shutdown);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    keelson_server::serve(Arc::new(app), listener, None).expect("the server listens")
}

struct FaultyClock {
    faults: Arc<Faults>,
}

impl Clock for FaultyClock {
    fn now(&self) -> Timestamp {
        assert!(!self.faults.time_panics.load(Ordering::SeqCst), "this panic is part of a test");
        SystemClock.now()
    }

    fn random(&self) -> [u8; 16] {
        let repeats = self.faults.random_repeats.load(Ordering::SeqCst);
        if repeats { [7; 16] } else { SystemClock.random() }
    }
}

struct FaultyWatch {
    inner: Box<dyn Watch>,
    stalls: watch::Receiver<bool>,
    /// What `inner` gave while the feed stalls. A dropped future of `next` must not lose it.
    stalled: Option<Batch>,
}

impl Watch for FaultyWatch {
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, WatchError>> {
        Box::pin(async move {
            if self.stalled.is_none() {
                self.stalled = Some(self.inner.next().await?);
            }
            let _ = self.stalls.wait_for(|stalls| !stalls).await;
            Ok(self.stalled.take().expect("a batch"))
        })
    }
}

struct FaultyStore {
    inner: Arc<Embedded>,
    faults: Arc<Faults>,
}

impl Store for FaultyStore {
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
        let source = || Arc::new(std::io::Error::other("the disk is gone"));
        if self.faults.writes_stop.load(Ordering::SeqCst) {
            return Box::pin(async move { Err(WriteError::Failed { source: source() }) });
        }
        if self.faults.values_unreadable.load(Ordering::SeqCst) {
            return Box::pin(async move { Err(WriteError::Unreadable { source: source() }) });
        }
        if self.faults.writes_get_lost.load(Ordering::SeqCst) {
            return Box::pin(async move { Err(WriteError::Unknown { source: source() }) });
        }
        self.inner.txn(txn)
    }

    fn watch(&self, prefix: Bytes, after: Revision) -> Result<Box<dyn Watch>, WatchError> {
        let inner = self.inner.watch(prefix, after)?;
        let stalls = self.faults.feed_stalls.subscribe();
        Ok(Box::new(FaultyWatch { inner, stalls, stalled: None }))
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
