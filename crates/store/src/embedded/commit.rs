//! The commit thread: the one writer. Takes what waits, decides it as a group, syncs once,
//! publishes, answers; then forgets a little of what compaction left over.
//!
//! After the first failure of the disk it answers every write with that failure, forever.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::group::Group;
use super::index::PruneCursor;
use super::shared::Shared;
use crate::{DiskError, Op, ReadError, Revision, Txn, TxnOutcome, WriteError};

/// Most transactions that share a sync.
const GROUP_TXNS_MAX: usize = 1024;
/// A group ends with the transaction that brings it to this many bytes.
const GROUP_BYTES_MAX: usize = 8 << 20;
/// Keys looked at between two groups while forgetting; bounds what a prune adds to a commit.
const PRUNE_KEYS_MAX: usize = 2048;
/// No write for so long, and the disk settles.
const SETTLE_AFTER: Duration = Duration::from_millis(200);

/// What the commit thread is asked for.
pub(super) enum Ask {
    Txn(TxnAsk),
    Compact {
        through: Revision,
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
    is_settled: bool,
}

/// Readiness must fail when the thread dies, whatever the reason.
struct StopOnPanic(Arc<Shared>);

impl Drop for StopOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop(Arc::from(Box::from("the commit thread panicked")));
        }
    }
}

impl Committer {
    pub(super) fn new(shared: Arc<Shared>, asks: Receiver<Ask>) -> Self {
        // A crash may have come between a compaction and its end.
        let prune = (shared.floor() > Revision(0)).then(PruneCursor::start);
        Self { shared, asks, held: None, prune, is_settled: true }
    }

    /// Runs until the engine closes. Everything asked for before is done first.
    pub(super) fn run(mut self) {
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
                Some(Ask::Close) => break,
                None => {}
            }
            self.prune_step();
        }
        self.settle();
    }

    /// The next ask; `None` when there is other work to do first.
    fn next(&mut self) -> Option<Ask> {
        if let Some(held) = self.held.take() {
            return Some(held);
        }
        if self.prune.is_some() {
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
                None
            }
            Err(RecvTimeoutError::Disconnected) => Some(Ask::Close),
        }
    }

    fn commit(&mut self, first: TxnAsk) {
        let shared = Arc::clone(&self.shared);
        let mut group = Group::new(&shared);
        let mut answers = Vec::new();
        // Dropped before the answers: no writer may take a panic for a refusal.
        let _guard = StopOnPanic(Arc::clone(&shared));
        let mut next = Some(first);
        let (mut bytes, mut failed) = (0, None);
        while let Some(TxnAsk { txn, answer, place }) = next.take() {
            bytes += txn.ops.iter().map(Op::bytes).sum::<usize>();
            match group.add(txn) {
                Ok(outcome) => answers.push((answer, Ok(outcome), place)),
                Err(error) => {
                    let source: DiskError = match error {
                        ReadError::Backend { source } => source,
                        other => Arc::new(other),
                    };
                    failed = Some(source.clone());
                    answers.push((answer, Err(WriteError::Stopped { source }), place));
                }
            }
            if answers.len() < GROUP_TXNS_MAX && bytes < GROUP_BYTES_MAX {
                next = self.next_of_group();
            }
        }
        let result = failed
            .or_else(|| shared.failure())
            .map_or_else(|| self.write(&group, None), |source| Err(shared.stop(source)));
        if result.is_ok() {
            shared.publish(group.records);
        }
        for (answer, outcome, place) in answers {
            let told = match &result {
                Ok(()) => outcome,
                Err(source) => Err(WriteError::Stopped { source: source.clone() }),
            };
            // A caller that went away does not take its transaction back.
            let _ = answer.send(told);
            drop(place);
        }
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
        let result = self.shared.disk.commit(&group.records, floor);
        result.map_err(|source| self.shared.stop(source))
    }

    fn compact(&mut self, through: Revision) -> Result<(), WriteError> {
        let shared = Arc::clone(&self.shared);
        let newest = shared.newest();
        if through > newest {
            return Err(WriteError::Future { asked: through, newest });
        }
        if let Some(source) = shared.failure() {
            return Err(WriteError::Stopped { source });
        }
        if through <= shared.floor() {
            return Ok(());
        }
        self.write(&Group::new(&shared), Some(through))
            .map_err(|source| WriteError::Stopped { source })?;
        shared.raise_floor(through);
        // A prune on its way starts over: keys behind its cursor have new work.
        self.prune = Some(PruneCursor::start());
        Ok(())
    }

    fn prune_step(&mut self) {
        let Some(cursor) = self.prune.take() else { return };
        if self.shared.failure().is_some() {
            return;
        }
        let (gone, next) = self.shared.prune(&cursor, PRUNE_KEYS_MAX);
        self.prune = next;
        if !gone.is_empty() {
            self.is_settled = false;
            if let Err(source) = self.shared.disk.forget(&gone) {
                self.shared.stop(source);
            }
        }
    }

    fn settle(&mut self) {
        if self.is_settled || self.shared.failure().is_some() {
            return;
        }
        self.is_settled = true;
        if let Err(source) = self.shared.disk.settle() {
            self.shared.stop(source);
        }
    }
}
