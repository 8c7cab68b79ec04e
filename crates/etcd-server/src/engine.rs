//! The keys with their revisions, and what is beside them. All operations of etcd end here;
//! services only translate them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use keelson_store::{Embedded, EmbeddedOptions, OpenError, ReadError, Revision, Store};
use tokio::sync::{Mutex, Semaphore};

use crate::error::EtcdError;
use crate::kv::{Evaluation, LeaseChange};
use crate::leases::Leases;
use crate::limits::{KEEP_ALIVE_STREAMS_MAX, LONG_RANGES_MAX, LONG_READS_MAX, WATCH_STREAMS_MAX};
use crate::options::EtcdOptions;
use crate::proto::ResponseHeader;
use crate::record::{from_etcd, to_etcd};
use crate::state::{Ids, State};

/// The term of etcd's raft; there is one member, which always leads.
pub(crate) const TERM: u64 = 2;
/// What one write may add to the file beyond its request, in bytes; as in etcd.
const WRITE_OVERHEAD_BYTES: u64 = 256;
const RECORDS_FILE: &str = "records.redb";

/// The state of the server.
pub(crate) struct Engine {
    pub store: Arc<Embedded>,
    pub leases: Arc<Leases>,
    pub state: State,
    pub ids: Ids,
    pub options: EtcdOptions,
    /// Bounds the responses that are built from more than one page of the store.
    pub long_ranges: Arc<Semaphore>,
    /// Bounds snapshots and hashes.
    pub long_reads: Arc<Semaphore>,
    /// Bounds streams of watches.
    pub watch_streams: Arc<Semaphore>,
    /// Bounds streams that keep leases alive.
    pub keep_alive_streams: Arc<Semaphore>,
    /// The oldest revision that may be read; -1 before the first compaction.
    compacted: AtomicI64,
    compaction: Mutex<()>,
    /// Whether the alarm is raised that the quota is used up.
    is_full: AtomicBool,
    records_file: Option<PathBuf>,
}

impl Engine {
    pub(crate) async fn open(options: EtcdOptions) -> Result<Arc<Self>, StartError> {
        let member = options.data_dir.as_deref().map(|dir| dir.join("member"));
        let keys_dir = member.as_deref().map(|dir| dir.join("kv"));
        let durability = options.durability;
        if let Some(member) = &member {
            refuse_foreign(member)?;
        }
        let store = match &keys_dir {
            Some(dir) => {
                Embedded::open(EmbeddedOptions { durability, ..EmbeddedOptions::new(dir) })?
            }
            None => Embedded::in_memory(),
        };
        let state =
            State::open(member.as_deref().map(|dir| dir.join("state")).as_deref(), durability)?;
        let leases = Arc::new(Leases::new(&state.leases().await?));
        let floor = store.floor();
        let compacted = if floor == Revision(0) { -1 } else { to_etcd(floor.next()) };
        Ok(Arc::new(Self {
            ids: state.ids().await?,
            is_full: AtomicBool::new(state.has_no_space_alarm().await?),
            store,
            leases,
            state,
            long_ranges: Arc::new(Semaphore::new(LONG_RANGES_MAX)),
            long_reads: Arc::new(Semaphore::new(LONG_READS_MAX)),
            watch_streams: Arc::new(Semaphore::new(WATCH_STREAMS_MAX)),
            keep_alive_streams: Arc::new(Semaphore::new(KEEP_ALIVE_STREAMS_MAX)),
            compacted: AtomicI64::new(compacted),
            compaction: Mutex::default(),
            records_file: keys_dir.map(|dir| dir.join(RECORDS_FILE)),
            options,
        }))
    }

    /// Returns the newest revision, which is durable and visible.
    pub(crate) fn revision(&self) -> i64 {
        to_etcd(self.store.revision())
    }

    /// Returns the oldest revision that may be read, or -1.
    pub(crate) fn compacted(&self) -> i64 {
        self.compacted.load(Ordering::Acquire)
    }

    /// Returns the header of a response at a revision.
    pub(crate) fn header(&self, revision: i64) -> ResponseHeader {
        let Ids { cluster, member } = self.ids;
        ResponseHeader { cluster_id: cluster, member_id: member, revision, raft_term: TERM }
    }

    /// Returns the revision of the store for one that a request asks for; `None` is the newest.
    pub(crate) fn revision_to_read(&self, asked: i64) -> Result<Option<Revision>, EtcdError> {
        if asked <= 0 {
            return Ok(None);
        }
        if asked > self.revision() {
            return Err(EtcdError::FutureRevision);
        }
        if asked < self.compacted() {
            return Err(EtcdError::Compacted);
        }
        Ok(Some(from_etcd(asked)))
    }

    /// Evaluates a transaction that writes about so many bytes. Returns its result and the revision
    /// after it.
    pub(crate) async fn write<T: Send + 'static>(
        self: &Arc<Self>,
        bytes: usize,
        evaluate: impl FnOnce(&mut Evaluation<'_, '_, '_>) -> Result<T, EtcdError> + Send + 'static,
    ) -> Result<(T, i64), EtcdError> {
        let engine = Arc::clone(self);
        let leases = Arc::clone(&self.leases);
        let decide = move |draft: &mut keelson_store::Draft<'_, '_>| {
            let mut evaluation = Evaluation::new(draft, &engine.leases, engine.compacted());
            let result = evaluate(&mut evaluation)?;
            let revision = evaluation.revision();
            Ok((result, revision, evaluation.into_changes()))
        };
        let finish = move |(result, revision, changes): (T, i64, Vec<LeaseChange>)| {
            leases.apply(changes);
            (result, revision)
        };
        self.store.decide(bytes, decide, finish).await?
    }

    /// Drops the history before a revision, of which reads and watches may still begin.
    pub(crate) async fn compact(&self, revision: i64) -> Result<(), EtcdError> {
        let _one = self.compaction.lock().await;
        if revision <= self.compacted() {
            return Err(EtcdError::Compacted);
        }
        if revision > self.revision() {
            return Err(EtcdError::FutureRevision);
        }
        // A watch from that revision on needs its events: the store keeps one revision more.
        let through = Revision(from_etcd(revision).0.saturating_sub(1));
        if through > Revision(0) {
            self.store.compact(through).await?;
        }
        self.compacted.store(revision, Ordering::Release);
        Ok(())
    }

    /// Fails if the quota is used up, or would be by a request of so many bytes; raises the alarm
    /// then.
    pub(crate) async fn check_space(&self, bytes: usize) -> Result<(), EtcdError> {
        if self.is_full() {
            return Err(EtcdError::NoSpace);
        }
        let Some(quota) = self.options.quota_bytes else { return Ok(()) };
        let needed = (bytes as u64).saturating_add(WRITE_OVERHEAD_BYTES);
        if self.size().saturating_add(needed) < quota {
            return Ok(());
        }
        tracing::warn!(quota, "the quota of the data is used up; alarm NOSPACE");
        self.set_full(true).await?;
        Err(EtcdError::NoSpace)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Acquire)
    }

    /// Raises or disarms the alarm.
    pub(crate) async fn set_full(&self, is_full: bool) -> Result<(), EtcdError> {
        self.state.set_no_space_alarm(is_full).await?;
        self.is_full.store(is_full, Ordering::Release);
        Ok(())
    }

    /// Returns the size of the file of the keys in bytes; 0 in memory.
    pub(crate) fn size(&self) -> u64 {
        let size = |path: &PathBuf| std::fs::metadata(path).map(|metadata| metadata.len()).ok();
        self.records_file.as_ref().and_then(size).unwrap_or(0)
    }

    /// Reads the leases of the keys of an earlier run.
    pub(crate) async fn learn_leases(&self) -> Result<(), EtcdError> {
        let mut broken = Ok(());
        let mut learn = |kv: keelson_store::KeyValue| match crate::record::decode_kv(kv) {
            Ok(kv) => self.leases.learn(&kv.key, kv.lease),
            Err(error) => broken = Err(error),
        };
        self.store.load(b"", None, &mut learn).await.map_err(|error: ReadError| error)?;
        self.leases.end_learning();
        broken
    }
}

/// Why the server could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The state cannot be read or written.
    #[error("{0}")]
    State(String),
    /// The folder has the data of etcd itself.
    #[error(
        "{dir} has the data of another etcd: save a snapshot there, and restore it by a client"
    )]
    Foreign {
        /// The folder.
        dir: PathBuf,
    },
}

impl From<EtcdError> for StartError {
    fn from(error: EtcdError) -> Self {
        Self::State(error.to_string())
    }
}

/// etcd keeps its data in `member/snap` and `member/wal`.
fn refuse_foreign(member: &Path) -> Result<(), StartError> {
    let is_foreign = ["snap", "wal"].iter().any(|name| member.join(name).exists());
    if is_foreign { Err(StartError::Foreign { dir: member.to_owned() }) } else { Ok(()) }
}
