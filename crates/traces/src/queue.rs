//! [`Queue`]: ended spans that wait for an exporter.

use crate::finished::FinishedSpan;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Most ended spans that wait for the exporter; further ones are dropped and counted (the default
/// of OpenTelemetry's batch processor, `OTEL_BSP_MAX_QUEUE_SIZE`).
pub const QUEUE_SPANS_MAX: usize = 2048;

/// Ended spans.
#[derive(Default)]
pub(crate) struct Queue {
    ended: Mutex<VecDeque<FinishedSpan>>,
    dropped: AtomicU64,
    /// Told when many spans wait.
    many: Notify,
}

impl Queue {
    pub fn push(&self, span: FinishedSpan) {
        let mut ended = self.ended();
        if ended.len() >= QUEUE_SPANS_MAX {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        ended.push_back(span);
        if ended.len() == QUEUE_SPANS_MAX / 4 {
            self.many.notify_one();
        }
    }

    pub fn take(&self, most: usize) -> Vec<FinishedSpan> {
        let mut ended = self.ended();
        let taken = most.min(ended.len());
        ended.drain(..taken).collect()
    }

    pub fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }

    pub async fn until_many_wait(&self) {
        self.many.notified().await;
    }

    fn ended(&self) -> MutexGuard<'_, VecDeque<FinishedSpan>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
