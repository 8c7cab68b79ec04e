//! The embedded engine: the [`Store`] contract over records in one file, or in memory.
//!
//! Every change is a record under its revision. Keys and the places of their versions stand in
//! memory, values on disk (and the newest few megabytes of them in a ring). One thread commits:
//! it decides all transactions that wait as one group, writes and syncs them once, and only then
//! makes them visible, wakes the watches and answers. Reads and watches never wait for it.
//!
//! Reads of values that are neither in the ring nor in the page cache block the calling task for
//! the time of a disk read; the cache above the store serves what is hot.

mod checksum;
mod commit;
mod copy;
mod directory;
pub mod disk;
mod facts;
pub mod files;
mod group;
mod history;
mod index;
mod leases;
mod library;
mod offline;
mod panics;
mod redb_disk;
mod rows;
mod shared;
mod space;
mod takeover;
mod write_behind;

use std::io::Write;
use std::path::PathBuf;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

use crate::backup::{BackupError, BackupSummary};
use crate::{
    Batch, BoxFuture, HealthError, KeyValue, Page, Range, ReadError, Revision, Store, Timestamp,
    Txn, TxnOutcome, Watch, WatchError, WatchPlace, WriteError,
};

use commit::{Ask, Committer, TxnAsk};
use disk::{Disk, MemDisk};
use shared::{Loaded, Shared};

pub use directory::OpenError;
pub use offline::{Extent, Found, Offline, Removed, RestoreError, remove_damaged, restore};
pub use redb_disk::RedbDisk;

/// Most kilobytes of transactions that wait for the commit thread; each counts at least one.
/// Writers beyond wait their turn.
const QUEUE_KILOBYTES_MAX: usize = 64 << 10;

/// What an acknowledged write survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// `kill -9` and power loss: every answer comes after a sync.
    #[default]
    Sync,
    /// Nothing: all is in memory, and the data directory is not touched. For tests.
    Memory,
}

/// How to open an [`Embedded`] store.
#[derive(Clone, Debug)]
pub struct EmbeddedOptions {
    /// The data directory; made when it is not there.
    pub dir: PathBuf,
    /// What an acknowledged write survives.
    pub durability: Durability,
    /// Makes what loads, ranges and watches give in the place of a value that fails its checksum, of
    /// what is wrong, so that it costs nothing but itself. Without it, such a read is an error.
    pub stand_in: Option<StandIn>,
}

/// Makes a value that its reader takes for one that cannot be read.
pub type StandIn = fn(&str) -> Bytes;

impl EmbeddedOptions {
    /// Durable, in this directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), durability: Durability::Sync, stand_in: None }
    }
}

/// A store in this process. Dropping it closes it: what was asked for is finished, the thread is
/// joined, and the data directory is free again.
pub struct Embedded {
    shared: Arc<Shared>,
    asks: Sender<Ask>,
    queue: Arc<Semaphore>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct EmbeddedWatch {
    /// Weak, so that a forgotten watch does not hold the data directory.
    shared: Weak<Shared>,
    news: watch::Receiver<u64>,
    prefix: Bytes,
    after: Revision,
    _place: WatchPlace,
}

impl Embedded {
    /// Opens or makes a store. Reads the keys of all records, but no values.
    pub fn open(options: EmbeddedOptions) -> Result<Arc<Self>, OpenError> {
        let EmbeddedOptions { dir, durability, stand_in } = options;
        let disk: Arc<dyn Disk> = match durability {
            Durability::Memory => Arc::new(MemDisk::new()),
            Durability::Sync => {
                let lock = directory::claim(&dir)?;
                let known = || directory::write_format(&dir);
                let disk = RedbDisk::open(&dir.join(directory::RECORDS_FILE), lock, &known);
                let failed = |source| OpenError::Records { dir: dir.clone(), source };
                Arc::new(disk.map_err(failed)?)
            }
        };
        Self::start(disk, dir, stand_in)
    }

    /// An empty store that lives and dies with this value.
    ///
    /// # Panics
    ///
    /// When the system refuses a thread.
    #[must_use]
    pub fn in_memory() -> Arc<Self> {
        match Self::on(Arc::new(MemDisk::new())) {
            Ok(store) => store,
            Err(error) => panic!("{error}"),
        }
    }

    /// A store on any disk; for simulations.
    pub fn on(disk: Arc<dyn Disk>) -> Result<Arc<Self>, OpenError> {
        Self::start(disk, PathBuf::new(), None)
    }

    fn start(
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        stand_in: Option<StandIn>,
    ) -> Result<Arc<Self>, OpenError> {
        let loaded = Shared::load(disk, stand_in);
        let loaded = loaded.map_err(|source| OpenError::Records { dir, source })?;
        let Loaded { shared, bytes, leases } = loaded;
        let shared = Arc::new(shared);
        let (asks, receiver) = mpsc::channel();
        let committer = Committer::new(Arc::clone(&shared), receiver, bytes, leases);
        let thread = std::thread::Builder::new().name("store-commit".to_owned());
        let thread = thread.spawn(move || committer.run_guarded());
        let thread = thread.map_err(|source| OpenError::Thread { source })?;
        let queue = Arc::new(Semaphore::new(QUEUE_KILOBYTES_MAX));
        Ok(Arc::new(Self { shared, asks, queue, thread: Mutex::new(Some(thread)) }))
    }

    /// Writes a backup of every live key at the newest revision. Writers go on meanwhile. Blocks;
    /// `out` should have a deadline of its own, as the disk holds old pages until the end.
    pub fn backup(&self, out: &mut dyn Write) -> Result<BackupSummary, BackupError> {
        offline::backup(&self.shared, out)
    }

    /// Gives this lease to the keys under a prefix that have none, until they are written again or the
    /// store is closed: nothing is written. For keys from before there were leases, and from a backup,
    /// which has none.
    pub async fn lease_others(&self, prefix: Bytes, expires: Timestamp) -> Result<(), WriteError> {
        self.ask(|answer, place| Ask::LeaseOthers { prefix, expires, answer, place }).await
    }

    /// Asks the commit thread for something small.
    async fn ask<T>(
        &self,
        ask: impl FnOnce(oneshot::Sender<Result<T, WriteError>>, OwnedSemaphorePermit) -> Ask,
    ) -> Result<T, WriteError> {
        let place = Arc::clone(&self.queue).acquire_owned().await;
        let place = place.map_err(|_| WriteError::Closed)?;
        let (answer, answered) = oneshot::channel();
        self.asks.send(ask(answer, place)).map_err(|_| self.gone())?;
        answered.await.map_err(|_| self.gone())?
    }

    /// Finishes what was asked for, flushes, and joins the commit thread; blocks meanwhile. Later
    /// writes fail, watches end, reads go on. The data directory is free when the store is dropped.
    pub fn close(&self) {
        self.queue.close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return };
        // Both fail only when the thread is gone already; `health` tells of a panic there.
        let _ = self.asks.send(Ask::Close);
        let _ = thread.join();
        self.shared.close();
    }

    /// The answer of a commit thread that is gone.
    fn gone(&self) -> WriteError {
        if let Some(source) = self.shared.stopped() {
            return WriteError::Stopped { source };
        }
        WriteError::Closed
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.close();
    }
}

impl Store for Embedded {
    fn get<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<KeyValue>, ReadError>> {
        Box::pin(async move { self.shared.get(key) })
    }

    fn range(&self, ask: Range) -> BoxFuture<'_, Result<Page, ReadError>> {
        Box::pin(async move { self.shared.range(&ask) })
    }

    fn load<'a>(
        &'a self,
        prefix: &'a [u8],
        at: Option<Revision>,
        sink: &'a mut (dyn FnMut(KeyValue) + Send),
    ) -> BoxFuture<'a, Result<Revision, ReadError>> {
        Box::pin(async move { self.shared.load_prefix(prefix, at, sink) })
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnOutcome, WriteError>> {
        Box::pin(async move {
            txn.check()?;
            let bytes: usize = txn.ops.iter().map(crate::Op::bytes).sum();
            let kilobytes = 1 + (bytes >> 10) as u32;
            let queue = Arc::clone(&self.queue);
            let place = queue.acquire_many_owned(kilobytes).await;
            let place = place.map_err(|_| WriteError::Closed)?;
            let (answer, answered) = oneshot::channel();
            let ask = Ask::Txn(TxnAsk { txn, answer, place });
            self.asks.send(ask).map_err(|_| self.gone())?;
            answered.await.map_err(|_| self.gone())?
        })
    }

    fn watch(&self, prefix: Bytes, after: Revision) -> Result<Box<dyn Watch>, WatchError> {
        if self.shared.is_closed() {
            return Err(WatchError::Closed);
        }
        let floor = self.floor();
        if after < floor {
            return Err(WatchError::Compacted { asked: after, floor });
        }
        let place = self.shared.watches.take()?;
        let (shared, news) = (Arc::downgrade(&self.shared), self.shared.news());
        Ok(Box::new(EmbeddedWatch { shared, news, prefix, after, _place: place }))
    }

    fn revision(&self) -> Revision {
        self.shared.newest()
    }

    fn floor(&self) -> Revision {
        self.shared.floor()
    }

    fn compact(&self, through: Revision) -> BoxFuture<'_, Result<(), WriteError>> {
        Box::pin(self.ask(move |answer, place| Ask::Compact { through, answer, place }))
    }

    fn expire(&self, now: Timestamp) -> BoxFuture<'_, Result<usize, WriteError>> {
        Box::pin(self.ask(move |answer, place| Ask::Expire { now, answer, place }))
    }

    fn health(&self) -> Result<(), HealthError> {
        self.shared.health()
    }
}

impl Watch for EmbeddedWatch {
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, WatchError>> {
        Box::pin(async move {
            loop {
                self.news.borrow_and_update();
                let shared = self.shared.upgrade().ok_or(WatchError::Closed)?;
                if let Some(batch) = shared.batch(&self.prefix, self.after)? {
                    self.after = batch.through;
                    return Ok(batch);
                }
                if shared.is_closed() {
                    return Err(WatchError::Closed);
                }
                drop(shared);
                self.news.changed().await.map_err(|_| WatchError::Closed)?;
            }
        })
    }
}
