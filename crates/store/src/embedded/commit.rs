//! The commit thread, the only writer. It takes the waiting transactions, decides them as a group,
//! syncs once, publishes, replies, and wakes the watches; then it removes a few of the records that
//! are obsolete after compaction.
//!
//! When the disk fails, the failed group is undone, and every write is refused until the disk has
//! recovered. Recovery is retried with backoff.

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
use super::redb_panics::panic_message;
use super::rewrite::Rewrite;
use super::shared::Shared;
use crate::{DiskError, Op, ReadError, Revision, Timestamp, Txn, TxnOutcome, WriteError};

/// Most transactions that share a sync.
const GROUP_TXNS_MAX: usize = 1024;
/// A group ends with the transaction that brings it to this many bytes.
const GROUP_BYTES_MAX: usize = 8 << 20;
/// A group ends with the transaction that brings it to this many records, which later ones search.
const GROUP_RECORDS_MAX: usize = 8192;
/// Most expired keys that are deleted between two groups.
const EXPIRE_KEYS_MAX: usize = 256;
/// Most keys that a prune visits between two groups.
const PRUNE_KEYS_MAX: usize = 512;
/// Records removed between two groups for each record that the last group wrote: the extra work of
/// a commit is proportional to it, and removal still keeps up with the writes.
const FORGET_PER_WRITE: usize = 2;
/// Fewest records removed between two groups.
const FORGET_MIN: usize = 32;
/// How often to check whether a rewrite is copied, while there are no writes.
const REWRITE_POLL: Duration = Duration::from_millis(5);
/// Time without writes after which the disk settles.
const SETTLE_AFTER: Duration = Duration::from_millis(200);
/// Delay from a disk failure to the first attempt to recover; doubles with each attempt.
const RECOVER_DELAY: Duration = Duration::from_millis(5);
const RECOVER_DELAY_MAX: Duration = Duration::from_millis(500);

/// A command to the commit thread.
pub(super) enum Command {
    Txn(TxnCommand),
    Compact {
        through: Revision,
        reply: oneshot::Sender<Result<(), WriteError>>,
        permit: OwnedSemaphorePermit,
    },
    /// Delete expired keys; replies with their number.
    Expire {
        now: Timestamp,
        reply: oneshot::Sender<Result<usize, WriteError>>,
        permit: OwnedSemaphorePermit,
    },
    /// Give a lease to the keys under a prefix that have none.
    LeaseOthers {
        prefix: Bytes,
        expires: Timestamp,
        reply: oneshot::Sender<Result<(), WriteError>>,
        permit: OwnedSemaphorePermit,
    },
    Close,
}

pub(super) struct TxnCommand {
    pub(super) work: Work,
    /// The space in the queue, freed after the reply.
    pub(super) permit: OwnedSemaphorePermit,
}

/// What a transaction does.
pub(super) enum Work {
    Txn {
        txn: Txn,
        reply: Reply,
    },
    /// Decided by a function; see [`Embedded::decide`](super::Embedded::decide).
    Draft {
        decide: Decide,
        bytes: usize,
    },
}

type Reply = oneshot::Sender<Result<TxnOutcome, WriteError>>;
/// Reads and writes in the group, and returns what to call at its end.
pub(super) type Decide = Box<dyn FnOnce(&mut Group<'_>) -> Finish + Send>;
/// Called when the group is durable, or has failed.
pub(super) type Finish = Box<dyn FnOnce(Result<(), WriteError>) + Send>;

/// A transaction that was decided and may not be durable yet.
enum Decided {
    Txn { reply: Reply, outcome: Result<TxnOutcome, WriteError> },
    Draft(Finish),
}

impl Work {
    /// Returns the size of keys and values in bytes.
    fn bytes(&self) -> usize {
        match self {
            Self::Txn { txn, .. } => txn.ops.iter().map(Op::bytes).sum(),
            Self::Draft { bytes, .. } => *bytes,
        }
    }

    fn decide(self, group: &mut Group<'_>) -> Decided {
        match self {
            Self::Txn { txn, reply } => {
                // Only a conflict reads, so a transaction that fails here has changed nothing.
                let outcome = group.add(txn).map_err(unreadable_value);
                Decided::Txn { reply, outcome }
            }
            Self::Draft { decide, .. } => Decided::Draft(decide(group)),
        }
    }

    /// Replies with an error; nothing is written.
    fn refuse(self, error: WriteError, shared: &Shared) {
        match self {
            // The caller may have dropped its future.
            Self::Txn { reply, .. } => drop(reply.send(Err(error))),
            Self::Draft { decide, .. } => decide(&mut Group::new(shared))(Err(error)),
        }
    }
}

impl Decided {
    /// Replies, once the group was written or has failed. A caller that dropped its future does not
    /// cancel its transaction.
    fn finish(self, written: Result<(), WriteError>) {
        match self {
            // A conflict also fails: it may be with a write of the group.
            Self::Txn { reply, outcome } => drop(reply.send(written.and(outcome))),
            Self::Draft(finish) => finish(written),
        }
    }
}

pub(super) struct Committer {
    shared: Arc<Shared>,
    commands: Receiver<Command>,
    /// Received while collecting a group, but not a transaction: handled next.
    deferred: Option<Command>,
    prune: Option<PruneCursor>,
    /// Records that prunes took out of the index and that are still on the disk; sorted newest
    /// first when the prune has finished.
    obsolete: Vec<RecordId>,
    /// Size of the keys and values of all records on the disk.
    bytes: u64,
    rewrite: Option<Rewrite>,
    /// Whether a rewrite was cancelled because of the load, and must be started when there is none.
    is_rewrite_due: bool,
    /// Number of records in the last group.
    written: usize,
    is_settled: bool,
    failure: Option<DiskFailure>,
    leases: Leases,
    expiry: Option<Expiry>,
}

/// A deletion of expired keys in progress: some are deleted after each group.
struct Expiry {
    now: Timestamp,
    /// Number of keys deleted so far.
    count: usize,
    reply: oneshot::Sender<Result<usize, WriteError>>,
    _permit: OwnedSemaphorePermit,
}

/// A failure of the disk. `Shared::failure` reports it to other threads.
struct DiskFailure {
    source: DiskError,
    /// Records to remove from the disk when it works again.
    undo: Vec<RecordId>,
    delay: Duration,
    next_try: Instant,
}

/// Makes readiness fail when the thread dies, whatever the reason.
struct StopOnPanic(Arc<Shared>);

impl Drop for StopOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop(Arc::from(Box::from("it panicked")));
        }
    }
}

impl Committer {
    /// `bytes` is the size of the keys and values of all records on the disk.
    pub(super) fn new(
        shared: Arc<Shared>,
        commands: Receiver<Command>,
        bytes: u64,
        leases: Leases,
    ) -> Self {
        // A crash may have interrupted the prune after a compaction.
        let prune = (shared.floor() > Revision(0)).then(PruneCursor::start);
        Self {
            shared,
            commands,
            deferred: None,
            prune,
            obsolete: vec![],
            bytes,
            rewrite: None,
            is_rewrite_due: false,
            written: 0,
            is_settled: true,
            failure: None,
            leases,
            expiry: None,
        }
    }

    /// Calls [`Committer::run`]. A panic stops the store for good and is logged.
    pub(super) fn run_guarded(self) {
        let shared = Arc::clone(&self.shared);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.run())) {
            let line = panic_message(&*panic);
            tracing::error!(
                why = line,
                "commit thread panicked; no write is acknowledged any more"
            );
            shared.stop(Arc::from(Box::from(format!("it panicked: {line}"))));
        }
    }

    /// Runs until the engine closes. Commands sent before that are done first.
    fn run(mut self) {
        let _guard = StopOnPanic(Arc::clone(&self.shared));
        loop {
            match self.next() {
                Some(Command::Txn(first)) => self.commit(first),
                Some(Command::Compact { through, reply, permit }) => {
                    let result = self.compact(through);
                    // The caller may have dropped its future; the compaction is done all the same.
                    let _ = reply.send(result);
                    drop(permit);
                }
                Some(Command::Expire { now, reply, permit: _permit }) => {
                    // Replaces the expiry in progress: its caller has given up.
                    self.expiry = Some(Expiry { now, count: 0, reply, _permit });
                }
                Some(Command::LeaseOthers { prefix, expires, reply, permit }) => {
                    for key in self.shared.live_keys(&prefix) {
                        self.leases.add_if_absent(&key, expires);
                    }
                    let _ = reply.send(Ok(()));
                    drop(permit);
                }
                Some(Command::Close) => break,
                None => {}
            }
            self.expire_step();
            self.prune_step();
        }
        self.rewrite = None;
        if let Some(failure) = &mut self.failure {
            // The last chance to undo the failed writes; otherwise they may reappear when the store
            // is opened again.
            failure.next_try = Instant::now();
            let _ = self.ensure_recovered();
        }
        self.settle();
    }

    /// Returns the next command, or `None` if there is other work to do first.
    fn next(&mut self) -> Option<Command> {
        if let Some(deferred) = self.deferred.take() {
            return Some(deferred);
        }
        if let Some(failure) = &self.failure {
            let left = failure.next_try.saturating_duration_since(Instant::now());
            return match self.commands.recv_timeout(left) {
                Ok(command) => Some(command),
                Err(RecvTimeoutError::Timeout) => {
                    // If it fails, the next write is refused with the error.
                    let _ = self.ensure_recovered();
                    None
                }
                Err(RecvTimeoutError::Disconnected) => Some(Command::Close),
            };
        }
        if let Some(rewrite) = self.rewrite.take_if(|rewrite| rewrite.is_copied()) {
            self.is_rewrite_due = !rewrite.finish();
            self.is_settled = false;
        }
        if self.rewrite.is_some() {
            return match self.commands.recv_timeout(REWRITE_POLL) {
                Ok(command) => Some(command),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => Some(Command::Close),
            };
        }
        if self.prune.is_some() || !self.obsolete.is_empty() || self.expiry.is_some() {
            return match self.commands.try_recv() {
                Ok(command) => Some(command),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => Some(Command::Close),
            };
        }
        if self.is_settled {
            return Some(self.commands.recv().unwrap_or(Command::Close));
        }
        match self.commands.recv_timeout(SETTLE_AFTER) {
            Ok(command) => Some(command),
            Err(RecvTimeoutError::Timeout) => {
                self.settle();
                if self.is_rewrite_due {
                    self.rewrite_when_pruned();
                }
                None
            }
            Err(RecvTimeoutError::Disconnected) => Some(Command::Close),
        }
    }

    fn commit(&mut self, first: TxnCommand) {
        let shared = Arc::clone(&self.shared);
        if let Err(source) = self.ensure_recovered() {
            first.work.refuse(WriteError::Refused { source }, &shared);
            return;
        }
        let mut group = Group::new(&shared);
        // Most groups have one transaction.
        let mut replies = Vec::with_capacity(1);
        // Dropped before the replies: no writer may mistake a panic for a refused write.
        let _guard = StopOnPanic(Arc::clone(&shared));
        let mut next = Some(first);
        let mut bytes = 0;
        while let Some(TxnCommand { work, permit }) = next.take() {
            bytes += work.bytes();
            replies.push((work.decide(&mut group), permit));
            let has_room = bytes < GROUP_BYTES_MAX && group.records.len() < GROUP_RECORDS_MAX;
            if replies.len() < GROUP_TXNS_MAX && has_room {
                next = self.next_txn();
            }
        }
        let result = self.write(&group, None);
        if result.is_ok() {
            self.publish(group);
        }
        for (decided, permit) in replies {
            decided.finish(result.clone().map_err(|source| WriteError::Failed { source }));
            drop(permit);
        }
        // After the replies: who reads what somebody else has written may expect that the writer
        // has been answered.
        shared.wake_watches();
    }

    /// Makes a durable group visible. Watches see it when they are woken.
    fn publish(&mut self, group: Group<'_>) {
        group.records.iter().for_each(|record| self.leases.update(&record.head));
        self.shared.publish(group.records);
    }

    /// Deletes some expired keys in a separate transaction.
    fn expire_step(&mut self) {
        let Some(expiry) = self.expiry.take() else { return };
        let keys = self.leases.expired(expiry.now, EXPIRE_KEYS_MAX);
        let result = if keys.is_empty() { Ok(0) } else { self.expire(&keys) };
        match result {
            Ok(0) => drop(expiry.reply.send(Ok(expiry.count))),
            Ok(count) => self.expiry = Some(Expiry { count: expiry.count + count, ..expiry }),
            Err(error) => drop(expiry.reply.send(Err(error))),
        }
    }

    fn expire(&mut self, keys: &[Bytes]) -> Result<usize, WriteError> {
        self.ensure_recovered().map_err(|source| WriteError::Refused { source })?;
        let shared = Arc::clone(&self.shared);
        let mut group = Group::new(&shared);
        let ops = keys.iter().map(|key| Op::Delete { key: key.clone() }).collect();
        group.add(Txn { compare: vec![], ops }).map_err(unreadable_value)?;
        self.write(&group, None).map_err(|source| WriteError::Failed { source })?;
        self.publish(group);
        shared.wake_watches();
        // Also the leases of keys that were already deleted.
        keys.iter().for_each(|key| self.leases.remove(key));
        Ok(keys.len())
    }

    /// Returns the next command if it is a transaction; defers it otherwise.
    fn next_txn(&mut self) -> Option<TxnCommand> {
        match self.commands.try_recv().ok()? {
            Command::Txn(txn) => Some(txn),
            other => {
                self.deferred = Some(other);
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
                rewrite.cancel_if_outgrown(self.bytes);
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
        self.ensure_recovered().map_err(|source| WriteError::Refused { source })?;
        self.write(&Group::new(&shared), Some(through))
            .map_err(|source| WriteError::Failed { source })?;
        shared.raise_floor(through);
        // A prune in progress starts over: keys it has passed may have obsolete versions again.
        self.prune = Some(PruneCursor::start());
        Ok(())
    }

    fn prune_step(&mut self) {
        if self.failure.is_some() || self.rewrite.is_some() {
            return;
        }
        if let Some(cursor) = self.prune.take() {
            self.prune = self.shared.prune(&cursor, PRUNE_KEYS_MAX, &mut self.obsolete);
            if self.prune.is_none() {
                // Neighbouring records share pages, so removing them in order touches the fewest.
                self.obsolete.sort_unstable_by_key(|id| std::cmp::Reverse(*id));
                self.rewrite_when_pruned();
            }
            return;
        }
        let count = FORGET_MIN.max(FORGET_PER_WRITE * self.written).min(self.obsolete.len());
        if count == 0 {
            return;
        }
        self.is_settled = false;
        let oldest = self.obsolete.split_off(self.obsolete.len() - count);
        match self.shared.disk.forget(&oldest) {
            Ok(bytes) => self.bytes = self.bytes.saturating_sub(bytes),
            // The index has them no more, so the recovery must remove them.
            Err(source) => self.fail("forget", source, oldest),
        }
        self.rewrite_when_pruned();
    }

    /// Starts a rewrite if all obsolete records are removed and much of the file is empty.
    fn rewrite_when_pruned(&mut self) {
        if self.obsolete.is_empty() && self.failure.is_none() {
            // Frees the memory that a burst has left allocated.
            self.obsolete = Vec::new();
            self.is_rewrite_due = false;
            self.rewrite = Rewrite::begin(&self.shared, self.bytes);
        }
    }

    fn settle(&mut self) {
        if self.is_settled || self.failure.is_some() {
            return;
        }
        self.is_settled = true;
        self.shared.forget_events();
        if let Err(source) = self.shared.disk.settle() {
            self.fail("settle", source, Vec::new());
        }
    }

    fn fail(&mut self, step: &str, source: DiskError, undo: Vec<RecordId>) {
        // Many writes fail together; only the first failure and the recovery are logged.
        tracing::error!(step, %source, "the disk fails, writes are refused until it works again");
        self.shared.fail(source.clone());
        // The copy may be what filled the disk.
        self.rewrite = None;
        let delay = RECOVER_DELAY;
        let next_try = Instant::now() + RECOVER_DELAY;
        self.failure = Some(DiskFailure { source, undo, delay, next_try });
    }

    /// Recovers a failed disk if the next attempt is due. Returns an error while the disk is
    /// failed; nothing may be written then.
    fn ensure_recovered(&mut self) -> Result<(), DiskError> {
        let Some(failure) = &mut self.failure else { return Ok(()) };
        if Instant::now() < failure.next_try {
            return Err(failure.source.clone());
        }
        if let Err(source) = self.shared.disk.recover(&failure.undo, self.shared.floor()) {
            failure.delay = RECOVER_DELAY_MAX.min(failure.delay * 2);
            failure.next_try = Instant::now() + failure.delay;
            failure.source = source.clone();
            return Err(self.shared.fail(source));
        }
        self.failure = None;
        self.is_settled = false;
        self.shared.recover();
        tracing::warn!("the disk works again");
        Ok(())
    }
}

fn unreadable_value(error: ReadError) -> WriteError {
    let source = match error {
        ReadError::Backend { source } => source,
        error => Arc::new(error),
    };
    WriteError::Unreadable { source }
}
