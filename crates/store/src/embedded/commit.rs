//! The commit thread: the one writer. Takes what waits, decides it as a group, syncs once,
//! publishes, answers; then forgets a little of what compaction left over.
//!
//! When the disk fails, the group it failed is taken back, and every write is refused until the
//! disk has recovered; it is asked for that again and again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::disk::RecordId;
use super::group::Group;
use super::index::PruneCursor;
use super::leases::Leases;
use super::panics::line_of;
use super::shared::Shared;
use super::space::Rewrite;
use crate::{DiskError, Op, ReadError, Revision, Timestamp, Txn, TxnOutcome, WriteError};

/// Most transactions that share a sync.
const GROUP_TXNS_MAX: usize = 1024;
/// A group ends with the transaction that brings it to this many bytes.
const GROUP_BYTES_MAX: usize = 8 << 20;
/// Keys whose lease has ended that are deleted between two groups.
const EXPIRE_KEYS_MAX: usize = 256;
/// Keys looked at between two groups while a prune finds what can be forgotten.
const PRUNE_KEYS_MAX: usize = 512;
/// Records forgotten between two groups for each that the last one wrote: what this adds to a commit
/// is in proportion to it, and yet comes to its end while the writes go on.
const FORGET_PER_WRITE: usize = 2;
/// Records forgotten between two groups at least.
const FORGET_MIN: usize = 32;
/// How often it is asked whether a copy is made, while there are no writes.
const REWRITE_POLL: Duration = Duration::from_millis(5);
/// No write for so long, and the disk settles.
const SETTLE_AFTER: Duration = Duration::from_millis(200);
/// From a failure of the disk to the first attempt to get it going again; doubles each time.
const RECOVER_DELAY: Duration = Duration::from_millis(5);
const RECOVER_DELAY_MAX: Duration = Duration::from_millis(500);

/// What the commit thread is asked for.
pub(super) enum Ask {
    Txn(TxnAsk),
    Compact {
        through: Revision,
        answer: oneshot::Sender<Result<(), WriteError>>,
        place: OwnedSemaphorePermit,
    },
    /// Delete the keys whose lease has ended; how many these were.
    Expire {
        now: Timestamp,
        answer: oneshot::Sender<Result<usize, WriteError>>,
        place: OwnedSemaphorePermit,
    },
    /// Give a lease to the keys under a prefix that have none.
    LeaseOthers {
        prefix: Bytes,
        expires: Timestamp,
        answer: oneshot::Sender<Result<(), WriteError>>,
        place: OwnedSemaphorePermit,
    },
    Close,
}

pub(super) struct TxnAsk {
    pub(super) txn: Txn,
    pub(super) answer: Answer,
    /// The place in the queue, free again when the ask is answered.
    pub(super) place: OwnedSemaphorePermit,
}

type Answer = oneshot::Sender<Result<TxnOutcome, WriteError>>;

pub(super) struct Committer {
    shared: Arc<Shared>,
    asks: Receiver<Ask>,
    /// Taken from the queue, but not of this group.
    held: Option<Ask>,
    prune: Option<PruneCursor>,
    /// Found by prunes, and still on the disk; the newest first once the prune is through. The index
    /// knows them no more.
    gone: Vec<RecordId>,
    /// Keys and values of all records on the disk.
    bytes: u64,
    rewrite: Option<Rewrite>,
    /// Whether one was given up because of the load, and shall begin when there is none.
    is_rewrite_due: bool,
    /// Records of the last group.
    written: usize,
    is_settled: bool,
    trouble: Option<Trouble>,
    leases: Leases,
    expiry: Option<Expiry>,
}

/// Keys whose lease has ended are being deleted, some between two groups.
struct Expiry {
    now: Timestamp,
    /// How many are deleted.
    count: usize,
    answer: oneshot::Sender<Result<usize, WriteError>>,
    _place: OwnedSemaphorePermit,
}

/// The disk has failed. `Shared::failure` says the same to everyone else.
struct Trouble {
    source: DiskError,
    /// Records to be taken off the disk when it works again.
    undo: Vec<RecordId>,
    delay: Duration,
    next_try: Instant,
}

/// Readiness must fail when the thread dies, whatever the reason.
struct StopOnPanic(Arc<Shared>);

impl Drop for StopOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop(Arc::from(Box::from("it panicked")));
        }
    }
}

impl Committer {
    /// `bytes` are those of the keys and values of all records on the disk.
    pub(super) fn new(
        shared: Arc<Shared>,
        asks: Receiver<Ask>,
        bytes: u64,
        leases: Leases,
    ) -> Self {
        // A crash may have come between a compaction and its end.
        let prune = (shared.floor() > Revision(0)).then(PruneCursor::start);
        Self {
            shared,
            asks,
            held: None,
            prune,
            gone: vec![],
            bytes,
            rewrite: None,
            is_rewrite_due: false,
            written: 0,
            is_settled: true,
            trouble: None,
            leases,
            expiry: None,
        }
    }

    /// [`Committer::run`], whose panic stops the store for good and says why.
    pub(super) fn run_guarded(self) {
        let shared = Arc::clone(&self.shared);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.run())) {
            let line = line_of(&*panic);
            tracing::error!(
                why = line,
                "commit thread panicked; no write is acknowledged any more"
            );
            shared.stop(Arc::from(Box::from(format!("it panicked: {line}"))));
        }
    }

    /// Runs until the engine closes. Everything asked for before is done first.
    fn run(mut self) {
        let _guard = StopOnPanic(Arc::clone(&self.shared));
        loop {
            match self.next() {
                Some(Ask::Txn(first)) => self.commit(first),
                Some(Ask::Compact { through, answer, place }) => {
                    let result = self.compact(through);
                    // A caller that went away asked for the compaction all the same.
                    let _ = answer.send(result);
                    drop(place);
                }
                Some(Ask::Expire { now, answer, place: _place }) => {
                    // Whoever asks again has given up the one before.
                    self.expiry = Some(Expiry { now, count: 0, answer, _place });
                }
                Some(Ask::LeaseOthers { prefix, expires, answer, place }) => {
                    for key in self.shared.live_keys(&prefix) {
                        self.leases.adopt(&key, expires);
                    }
                    let _ = answer.send(Ok(()));
                    drop(place);
                }
                Some(Ask::Close) => break,
                None => {}
            }
            self.expire_step();
            self.prune_step();
        }
        self.rewrite = None;
        if let Some(trouble) = &mut self.trouble {
            // The last chance to take back what failed; else the next opening may find it.
            trouble.next_try = Instant::now();
            let _ = self.recovered();
        }
        self.settle();
    }

    /// The next ask; `None` when there is other work to do first.
    fn next(&mut self) -> Option<Ask> {
        if let Some(held) = self.held.take() {
            return Some(held);
        }
        if let Some(trouble) = &self.trouble {
            let left = trouble.next_try.saturating_duration_since(Instant::now());
            return match self.asks.recv_timeout(left) {
                Ok(ask) => Some(ask),
                Err(RecvTimeoutError::Timeout) => {
                    // The next ask hears of it when it did not help.
                    let _ = self.recovered();
                    None
                }
                Err(RecvTimeoutError::Disconnected) => Some(Ask::Close),
            };
        }
        if let Some(rewrite) = self.rewrite.take_if(|rewrite| rewrite.is_copied()) {
            self.is_rewrite_due = !rewrite.finish();
            self.is_settled = false;
        }
        if self.rewrite.is_some() {
            return match self.asks.recv_timeout(REWRITE_POLL) {
                Ok(ask) => Some(ask),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => Some(Ask::Close),
            };
        }
        if self.prune.is_some() || !self.gone.is_empty() || self.expiry.is_some() {
            return match self.asks.try_recv() {
                Ok(ask) => Some(ask),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => Some(Ask::Close),
            };
        }
        if self.is_settled {
            return Some(self.asks.recv().unwrap_or(Ask::Close));
        }
        match self.asks.recv_timeout(SETTLE_AFTER) {
            Ok(ask) => Some(ask),
            Err(RecvTimeoutError::Timeout) => {
                self.settle();
                if self.is_rewrite_due {
                    self.rewrite_when_pruned();
                }
                None
            }
            Err(RecvTimeoutError::Disconnected) => Some(Ask::Close),
        }
    }

    fn commit(&mut self, first: TxnAsk) {
        if let Err(source) = self.recovered() {
            // A caller that went away needs no answer.
            let _ = first.answer.send(Err(WriteError::Refused { source }));
            return;
        }
        let shared = Arc::clone(&self.shared);
        let mut group = Group::new(&shared);
        // Most groups have one transaction.
        let mut answers = Vec::with_capacity(1);
        // Dropped before the answers: no writer may take a panic for a refusal.
        let _guard = StopOnPanic(Arc::clone(&shared));
        let mut next = Some(first);
        let mut bytes = 0;
        while let Some(TxnAsk { txn, answer, place }) = next.take() {
            bytes += txn.ops.iter().map(Op::bytes).sum::<usize>();
            // Only a conflict reads, so a transaction that fails here has changed nothing.
            let outcome = group.add(txn).map_err(unreadable);
            answers.push((answer, outcome, place));
            if answers.len() < GROUP_TXNS_MAX && bytes < GROUP_BYTES_MAX {
                next = self.next_of_group();
            }
        }
        let result = self.write(&group, None);
        if result.is_ok() {
            self.publish(group);
        }
        for (answer, outcome, place) in answers {
            // Also a conflict may rest on what the group failed to write.
            let told = match &result {
                Ok(()) => outcome,
                Err(source) => Err(WriteError::Failed { source: source.clone() }),
            };
            // A caller that went away does not take its transaction back.
            let _ = answer.send(told);
            drop(place);
        }
    }

    /// Makes a group that is durable visible.
    fn publish(&mut self, group: Group<'_>) {
        group.records.iter().for_each(|record| self.leases.note(&record.head));
        self.shared.publish(group.records);
    }

    /// Deletes some of the keys whose lease has ended, as a transaction of its own.
    fn expire_step(&mut self) {
        let Some(expiry) = self.expiry.take() else { return };
        let keys = self.leases.ended(expiry.now, EXPIRE_KEYS_MAX);
        let result = if keys.is_empty() { Ok(0) } else { self.expire(&keys) };
        match result {
            Ok(0) => drop(expiry.answer.send(Ok(expiry.count))),
            Ok(count) => self.expiry = Some(Expiry { count: expiry.count + count, ..expiry }),
            Err(error) => drop(expiry.answer.send(Err(error))),
        }
    }

    fn expire(&mut self, keys: &[Bytes]) -> Result<usize, WriteError> {
        self.recovered().map_err(|source| WriteError::Refused { source })?;
        let shared = Arc::clone(&self.shared);
        let mut group = Group::new(&shared);
        let ops = keys.iter().map(|key| Op::Delete { key: key.clone() }).collect();
        group.add(Txn { compare: vec![], ops }).map_err(unreadable)?;
        self.write(&group, None).map_err(|source| WriteError::Failed { source })?;
        self.publish(group);
        // Also of those that were not there any more.
        keys.iter().for_each(|key| self.leases.remove(key));
        Ok(keys.len())
    }

    fn next_of_group(&mut self) -> Option<TxnAsk> {
        match self.asks.try_recv().ok()? {
            Ask::Txn(ask) => Some(ask),
            other => {
                self.held = Some(other);
                None
            }
        }
    }

    fn write(&mut self, group: &Group<'_>, floor: Option<Revision>) -> Result<(), DiskError> {
        if group.records.is_empty() && floor.is_none() {
            return Ok(());
        }
        self.is_settled = false;
        self.written = group.records.len();
        let result = self.shared.disk.commit(&group.records, floor);
        if result.is_ok() {
            self.bytes += group.records.iter().map(|record| record.head.bytes()).sum::<u64>();
            if let Some(rewrite) = &self.rewrite {
                rewrite.watch(self.bytes);
            }
        }
        result.inspect_err(|source| {
            let step = if floor.is_some() { "compact" } else { "write" };
            let undo = group.records.iter().map(|record| record.head.id).collect();
            self.fail(step, source.clone(), undo);
        })
    }

    fn compact(&mut self, through: Revision) -> Result<(), WriteError> {
        let shared = Arc::clone(&self.shared);
        let newest = shared.newest();
        if through > newest {
            return Err(WriteError::Future { asked: through, newest });
        }
        if through <= shared.floor() {
            return Ok(());
        }
        self.recovered().map_err(|source| WriteError::Refused { source })?;
        self.write(&Group::new(&shared), Some(through))
            .map_err(|source| WriteError::Failed { source })?;
        shared.raise_floor(through);
        // A prune on its way starts over: keys behind its cursor have new work.
        self.prune = Some(PruneCursor::start());
        Ok(())
    }

    fn prune_step(&mut self) {
        if self.trouble.is_some() || self.rewrite.is_some() {
            return;
        }
        if let Some(cursor) = self.prune.take() {
            self.prune = self.shared.prune(&cursor, PRUNE_KEYS_MAX, &mut self.gone);
            if self.prune.is_none() {
                // What was written together stands together, and is forgotten with the fewest pages.
                self.gone.sort_unstable_by_key(|id| std::cmp::Reverse(*id));
                self.rewrite_when_pruned();
            }
            return;
        }
        let count = FORGET_MIN.max(FORGET_PER_WRITE * self.written).min(self.gone.len());
        if count == 0 {
            return;
        }
        self.is_settled = false;
        let oldest = self.gone.split_off(self.gone.len() - count);
        match self.shared.disk.forget(&oldest) {
            Ok(bytes) => self.bytes = self.bytes.saturating_sub(bytes),
            // The index knows them no more, so they must go with the recovery.
            Err(source) => self.fail("forget", source, oldest),
        }
        self.rewrite_when_pruned();
    }

    /// Gives space back when all is forgotten that can be, and much of the file is empty.
    fn rewrite_when_pruned(&mut self) {
        if self.gone.is_empty() && self.trouble.is_none() {
            // A burst leaves no room behind.
            self.gone = Vec::new();
            self.is_rewrite_due = false;
            self.rewrite = Rewrite::begin(&self.shared, self.bytes);
        }
    }

    fn settle(&mut self) {
        if self.is_settled || self.trouble.is_some() {
            return;
        }
        self.is_settled = true;
        if let Err(source) = self.shared.disk.settle() {
            self.fail("settle", source, Vec::new());
        }
    }

    fn fail(&mut self, step: &str, source: DiskError, undo: Vec<RecordId>) {
        // Much fails together; the log tells the beginning and the end.
        tracing::error!(step, %source, "the disk fails, writes are refused until it works again");
        self.shared.fail(source.clone());
        // It may have taken the room that is missing.
        self.rewrite = None;
        let (delay, next_try) = (RECOVER_DELAY, Instant::now() + RECOVER_DELAY);
        self.trouble = Some(Trouble { source, undo, delay, next_try });
    }

    /// Gets a failed disk going again, when it is time to try. Nothing is written before that.
    fn recovered(&mut self) -> Result<(), DiskError> {
        let Some(trouble) = &mut self.trouble else { return Ok(()) };
        if Instant::now() < trouble.next_try {
            return Err(trouble.source.clone());
        }
        if let Err(source) = self.shared.disk.recover(&trouble.undo, self.shared.floor()) {
            trouble.delay = RECOVER_DELAY_MAX.min(trouble.delay * 2);
            trouble.next_try = Instant::now() + trouble.delay;
            trouble.source = source.clone();
            return Err(self.shared.fail(source));
        }
        self.trouble = None;
        self.is_settled = false;
        self.shared.recover();
        tracing::warn!("the disk works again");
        Ok(())
    }
}

fn unreadable(error: ReadError) -> WriteError {
    let source = match error {
        ReadError::Backend { source } => source,
        error => Arc::new(error),
    };
    WriteError::Unreadable { source }
}
