//! The embedded engine: the [`Store`] contract over records in one file, or in memory.
//!
//! Every change is a record, identified by its revision. Keys and the record ids of their versions
//! are kept in memory, values on disk (the newest few megabytes also in a ring). One commit thread
//! decides all waiting transactions as one group, writes and syncs them once, and only then makes
//! them visible, wakes the watches and responds. Reads and watches never wait for it.
//!
//! A read of a value that is neither in the ring nor in the page cache blocks the calling task for
//! a disk read. Frequent reads are served by the cache crate instead.

mod checksum;
mod commit;
mod copy;
mod directory;
pub mod disk;
mod draft;
pub mod files;
mod group;
mod index;
mod leases;
mod meta_table;
mod offline;
mod redb_disk;
mod redb_panics;
mod redb_setup;
mod rewrite;
mod ring;
mod rows;
mod shared;
mod upgrade;
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
    Txn, TxnOutcome, Watch, WatchError, WatchSlot, WriteError,
};

use commit::{Command, Committer, Decide, Finish, TxnCommand, Work};
use disk::{Disk, MemDisk, Record, Sink};
use files::DirFiles;
use shared::{Loaded, Shared};

pub use directory::{OpenError, prepare_directory};
pub use draft::{ChangedTwice, Draft};
pub use offline::{
    CheckItem, CheckSummary, Offline, Removed, RestoreError, remove_damaged, restore,
};
pub use redb_disk::RedbDisk;

/// Most kilobytes of transactions queued for the commit thread; each counts at least one. Further
/// writers wait until the queue has space.
const QUEUE_KILOBYTES_MAX: usize = 64 << 10;

/// What an acknowledged write survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// `kill -9` and power loss: every reply comes after a sync.
    #[default]
    Sync,
    /// `kill -9`, but not power loss: the files are written and never synced.
    Unsynced,
    /// Nothing: all data is in memory, and the data directory is not used. For tests.
    Memory,
}

/// How to open an [`Embedded`] store.
#[derive(Clone, Debug)]
pub struct EmbeddedOptions {
    /// The data directory; created if it does not exist.
    pub dir: PathBuf,
    /// What an acknowledged write survives.
    pub durability: Durability,
    /// Makes the value that reads and watches return in place of a damaged one, so that the damage
    /// affects only its own key. Without it, such a read is an error.
    pub make_placeholder: Option<MakePlaceholder>,
}

/// Makes a placeholder for a damaged value from a description of the damage. The reader must be
/// able to tell it from a real value.
pub type MakePlaceholder = fn(&str) -> Bytes;

impl EmbeddedOptions {
    /// Creates options for a durable store in this directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), durability: Durability::Sync, make_placeholder: None }
    }
}

/// A store in this process. Dropping it closes it: queued writes are finished, the commit thread is
/// joined, and the lock of the data directory is released.
pub struct Embedded {
    shared: Arc<Shared>,
    commands: Sender<Command>,
    queue: Arc<Semaphore>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct EmbeddedWatch {
    /// Weak, so that a leaked watch does not keep the data directory locked.
    shared: Weak<Shared>,
    newest_changed: watch::Receiver<u64>,
    prefix: Bytes,
    after: Revision,
    _slot: WatchSlot,
}

impl Embedded {
    /// Opens a store, or creates it. Reads the keys of all records, but no values.
    pub fn open(options: EmbeddedOptions) -> Result<Arc<Self>, OpenError> {
        let EmbeddedOptions { dir, durability, make_placeholder } = options;
        let disk: Arc<dyn Disk> = match durability {
            Durability::Memory => Arc::new(MemDisk::new()),
            Durability::Sync | Durability::Unsynced => {
                let lock = directory::claim(&dir)?;
                let before_replace = || directory::write_format(&dir);
                let files = DirFiles::new(dir.join(directory::RECORDS_FILE), durability);
                let disk = RedbDisk::open(files, lock, &before_replace);
                let failed = |source| OpenError::Records { dir: dir.clone(), source };
                Arc::new(disk.map_err(failed)?)
            }
        };
        Self::start(disk, dir, make_placeholder)
    }

    /// Creates an empty store in memory.
    ///
    /// # Panics
    ///
    /// Panics if the commit thread cannot be started.
    #[must_use]
    pub fn in_memory() -> Arc<Self> {
        match Self::with_disk(Arc::new(MemDisk::new())) {
            Ok(store) => store,
            Err(error) => panic!("{error}"),
        }
    }

    /// Opens a store on any disk; for simulations.
    pub fn with_disk(disk: Arc<dyn Disk>) -> Result<Arc<Self>, OpenError> {
        Self::start(disk, PathBuf::new(), None)
    }

    fn start(
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        make_placeholder: Option<MakePlaceholder>,
    ) -> Result<Arc<Self>, OpenError> {
        let loaded = Shared::load(disk, make_placeholder)
            .map_err(|source| OpenError::Records { dir, source })?;
        let Loaded { shared, bytes, leases } = loaded;
        let shared = Arc::new(shared);
        let (commands, receiver) = mpsc::channel();
        let committer = Committer::new(Arc::clone(&shared), receiver, bytes, leases);
        let thread = std::thread::Builder::new()
            .name("store-commit".to_owned())
            .spawn(move || committer.run_guarded())
            .map_err(|source| OpenError::Thread { source })?;
        let queue = Arc::new(Semaphore::new(QUEUE_KILOBYTES_MAX));
        Ok(Arc::new(Self { shared, commands, queue, thread: Mutex::new(Some(thread)) }))
    }

    /// Writes a backup of every live key at the newest revision, while writes continue. Blocks.
    /// `out` should have a deadline of its own, because old pages cannot be freed until the end.
    pub fn backup(&self, out: &mut dyn Write) -> Result<BackupSummary, BackupError> {
        offline::backup(&self.shared, out)
    }

    /// Gives a lease to the keys under a prefix that have none, in memory only: it lasts until the
    /// key is written again or the store is closed. For keys written before leases existed or
    /// restored from a backup, which has no leases.
    pub async fn lease_others(&self, prefix: Bytes, expires: Timestamp) -> Result<(), WriteError> {
        self.send(|reply, permit| Command::LeaseOthers { prefix, expires, reply, permit }).await
    }

    /// Runs a transaction that a function decides: it reads and writes a [`Draft`], on the commit
    /// thread, at the newest revision. What it writes is one revision, durable and visible when the
    /// future resolves; after an error of the function (the inner result) nothing is written. It
    /// must not block, and not panic, which would stop the store. `bytes` is about the size of what
    /// it writes, at most [`TXN_BYTES_MAX`](crate::TXN_BYTES_MAX).
    ///
    /// `finish` gets its result once that is durable, on the commit thread and in the order of
    /// revisions, so that it can keep something beside the store in step with it. Dropping the
    /// future does not cancel the transaction.
    pub async fn decide<T, U, E>(
        &self,
        bytes: usize,
        decide: impl FnOnce(&mut Draft<'_, '_>) -> Result<T, E> + Send + 'static,
        finish: impl FnOnce(T) -> U + Send + 'static,
    ) -> Result<Result<U, E>, WriteError>
    where
        T: Send + 'static,
        U: Send + 'static,
        E: Send + 'static,
    {
        if bytes > crate::TXN_BYTES_MAX {
            return Err(WriteError::TooLarge { bytes });
        }
        let (reply, replied) = oneshot::channel();
        let decide: Decide = Box::new(move |group| {
            let decided = Draft::run(group, decide);
            let end: Finish = Box::new(move |written| {
                let result = written.map(|()| decided.map(finish));
                // The caller may have dropped its future.
                let _ = reply.send(result);
            });
            end
        });
        self.send_txn(Work::Draft { decide, bytes }, bytes).await?;
        replied.await.map_err(|_| self.commit_thread_error())?
    }

    /// Returns the number of keys of a range, whatever its limit, and the revision they were
    /// counted at.
    pub async fn count(&self, range: Range) -> Result<(u64, Revision), ReadError> {
        self.shared.count(&range).await
    }

    /// Returns the revision of the newest write of a key at a revision, which is not compacted;
    /// `None` if the key did not exist then.
    #[must_use]
    pub fn modified_at(&self, key: &[u8], at: Revision) -> Option<Revision> {
        self.shared.version_at(key, at).map(|version| version.modified())
    }

    /// Passes the records to `sink` that a read at `oldest` or later, up to `through`, can need, in
    /// the order of revisions, until it breaks: puts and deletes, but no delete at or before
    /// `oldest`. Blocks.
    pub fn records(
        &self,
        oldest: Revision,
        through: Revision,
        sink: Sink<'_, Record>,
    ) -> Result<(), ReadError> {
        self.shared.records(oldest, through, sink)
    }

    /// Queues a transaction when the queue has space for it.
    async fn send_txn(&self, work: Work, bytes: usize) -> Result<(), WriteError> {
        let kilobytes = 1 + (bytes >> 10) as u32;
        let queue = Arc::clone(&self.queue);
        let permit = queue.acquire_many_owned(kilobytes).await.map_err(|_| WriteError::Closed)?;
        let command = Command::Txn(TxnCommand { work, permit });
        self.commands.send(command).map_err(|_| self.commit_thread_error())
    }

    /// Sends a small command to the commit thread and waits for its reply.
    async fn send<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, WriteError>>, OwnedSemaphorePermit) -> Command,
    ) -> Result<T, WriteError> {
        let permit =
            Arc::clone(&self.queue).acquire_owned().await.map_err(|_| WriteError::Closed)?;
        let (reply, replied) = oneshot::channel();
        self.commands.send(command(reply, permit)).map_err(|_| self.commit_thread_error())?;
        replied.await.map_err(|_| self.commit_thread_error())?
    }

    /// Finishes queued writes, flushes, and joins the commit thread; blocks meanwhile. Later writes
    /// fail, watches end, reads continue. The data directory stays locked until the store is
    /// dropped.
    pub fn close(&self) {
        self.queue.close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return };
        // Both fail only if the thread has ended already; `health` reports a panic there.
        let _ = self.commands.send(Command::Close);
        let _ = thread.join();
        self.shared.close();
    }

    /// Returns the error of a write when the commit thread has ended.
    fn commit_thread_error(&self) -> WriteError {
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

    fn range(&self, range: Range) -> BoxFuture<'_, Result<Page, ReadError>> {
        Box::pin(async move { self.shared.range(&range) })
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
            let bytes = txn.ops.iter().map(crate::Op::bytes).sum();
            let (reply, replied) = oneshot::channel();
            self.send_txn(Work::Txn { txn, reply }, bytes).await?;
            replied.await.map_err(|_| self.commit_thread_error())?
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
        let slot = self.shared.watches.acquire()?;
        let shared = Arc::downgrade(&self.shared);
        let newest_changed = self.shared.newest_changed();
        Ok(Box::new(EmbeddedWatch { shared, newest_changed, prefix, after, _slot: slot }))
    }

    fn revision(&self) -> Revision {
        self.shared.newest()
    }

    fn floor(&self) -> Revision {
        self.shared.floor()
    }

    fn compact(&self, through: Revision) -> BoxFuture<'_, Result<(), WriteError>> {
        Box::pin(self.send(move |reply, permit| Command::Compact { through, reply, permit }))
    }

    fn expire(&self, now: Timestamp) -> BoxFuture<'_, Result<usize, WriteError>> {
        Box::pin(self.send(move |reply, permit| Command::Expire { now, reply, permit }))
    }

    fn size(&self) -> BoxFuture<'_, Option<u64>> {
        Box::pin(async { self.shared.disk.size() })
    }

    fn health(&self) -> Result<(), HealthError> {
        self.shared.health()
    }
}

impl Watch for EmbeddedWatch {
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, WatchError>> {
        Box::pin(async move {
            loop {
                self.newest_changed.borrow_and_update();
                let shared = self.shared.upgrade().ok_or(WatchError::Closed)?;
                if let Some(batch) = shared.batch(&self.prefix, self.after)? {
                    self.after = batch.through;
                    return Ok(batch);
                }
                if shared.is_closed() {
                    return Err(WatchError::Closed);
                }
                drop(shared);
                self.newest_changed.changed().await.map_err(|_| WatchError::Closed)?;
            }
        })
    }
}
