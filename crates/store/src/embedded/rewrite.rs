//! Shrinks the records file after records were removed: copies the remaining ones to a new file
//! while writes continue, and switches to it.
//!
//! A thread copies. The commit thread copies the last writes and switches. No records are removed
//! meanwhile, so the copy never has a record too many.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::disk::RecordId;
use super::shared::Shared;
use crate::{DiskError, Revision};

/// Most revisions that the commit thread copies itself.
const REST_MAX: u64 = 256;
/// A rewrite is cancelled if more than this, and more than `1 / WRITTEN_PART` of the data, is
/// written meanwhile: it would take long under such a load, while obsolete records pile up.
const WRITTEN_BYTES: u64 = 4 << 20;
const WRITTEN_PART: u64 = 4;

/// A rewrite in progress. Dropping it cancels it.
pub(super) struct Rewrite {
    shared: Arc<Shared>,
    is_cancelled: Arc<AtomicBool>,
    /// Size of keys and values on the disk above which it is cancelled.
    bytes_max: u64,
    /// Returns where the commit thread continues the copy, or `None` if it was cancelled.
    thread: Option<JoinHandle<Result<Option<RecordId>, DiskError>>>,
}

impl Rewrite {
    /// Starts a rewrite if it is worthwhile. `bytes` is the size of all records on the disk.
    pub(super) fn begin(shared: &Arc<Shared>, bytes: u64) -> Option<Self> {
        if !shared.disk.should_rewrite(bytes) {
            return None;
        }
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new().name("store-copy".to_owned());
        let spawned = thread.spawn({
            let shared = Arc::clone(shared);
            let is_cancelled = Arc::clone(&is_cancelled);
            move || copy(&shared, &is_cancelled)
        });
        match spawned {
            Ok(thread) => {
                let bytes_max = bytes + WRITTEN_BYTES.max(bytes / WRITTEN_PART);
                Some(Self {
                    shared: Arc::clone(shared),
                    is_cancelled,
                    bytes_max,
                    thread: Some(thread),
                })
            }
            Err(source) => {
                tracing::warn!(%source, "cannot start a thread to shrink the records file");
                None
            }
        }
    }

    /// Cancels the rewrite if the records on the disk have grown to too many bytes.
    pub(super) fn cancel_if_outgrown(&self, bytes: u64) {
        if bytes > self.bytes_max {
            self.is_cancelled.store(true, Ordering::Release);
        }
    }

    /// Returns whether the copying thread has ended.
    pub(super) fn is_copied(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Finishes the rewrite, on the commit thread. Returns `false` if it was cancelled.
    pub(super) fn finish(mut self) -> bool {
        let Some(thread) = self.thread.take() else { return false };
        let copied = thread.join().unwrap_or_else(|_| Err(Arc::from(Box::from("it panicked"))));
        let done = copied.and_then(|next| {
            let Some(mut next) = next else { return Ok(false) };
            while let Some(more) = self.shared.disk.copy(next, self.shared.newest())? {
                next = more;
            }
            self.shared.disk.switch_to_copy(self.shared.floor())?;
            Ok(true)
        });
        done.unwrap_or_else(|source| {
            // The old file stays in use, and the next compaction tries again.
            tracing::warn!(%source, "the records file did not get smaller");
            true
        })
    }
}

impl Drop for Rewrite {
    fn drop(&mut self) {
        self.is_cancelled.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // The rewrite is cancelled, so its result does not matter.
            let _ = thread.join();
        }
        self.shared.disk.discard_copy();
    }
}

/// Copies visible records, which cannot be undone any more, until few are left. Returns where to
/// continue, or `None` if it was cancelled.
fn copy(shared: &Shared, is_cancelled: &AtomicBool) -> Result<Option<RecordId>, DiskError> {
    let mut next = RecordId::first(Revision(0));
    while !is_cancelled.load(Ordering::Acquire) {
        let through = shared.newest();
        if let Some(more) = shared.disk.copy(next, through)? {
            next = more;
            continue;
        }
        next = RecordId::first(through.next());
        if shared.newest().0 - through.0 <= REST_MAX {
            return Ok(Some(next));
        }
    }
    Ok(None)
}
