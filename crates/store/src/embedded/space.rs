//! Gives back the space of forgotten records: copies what is left, beside the writes, and changes over.
//!
//! A thread copies; the commit thread, alone, copies what was written last and changes over. While
//! there is a copy nothing is forgotten, so that it never has a record too many.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::disk::RecordId;
use super::shared::Shared;
use crate::{DiskError, Revision};

/// Revisions that the commit thread copies itself, at most.
const REST_MAX: u64 = 256;
/// A copy is given up when more than the `WRITTEN_PART`th part of it is written meanwhile, and more than
/// this: under such a load it would take long, and what cannot be forgotten meanwhile would grow.
const WRITTEN_BYTES: u64 = 4 << 20;
const WRITTEN_PART: u64 = 4;

/// A copy that is being made. It is given up when this is dropped.
pub(super) struct Rewrite {
    shared: Arc<Shared>,
    must_end: Arc<AtomicBool>,
    /// Keys and values on the disk at which it is given up.
    bytes_max: u64,
    /// Gives where the commit thread goes on; `None` when it was given up.
    thread: Option<JoinHandle<Result<Option<RecordId>, DiskError>>>,
}

impl Rewrite {
    /// Begins when it is worth it. `bytes` are those of all records on the disk.
    pub(super) fn begin(shared: &Arc<Shared>, bytes: u64) -> Option<Self> {
        if !shared.disk.is_wasteful(bytes) {
            return None;
        }
        let must_end = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new().name("store-copy".to_owned());
        let spawned = thread.spawn({
            let (shared, must_end) = (Arc::clone(shared), Arc::clone(&must_end));
            move || copy(&shared, &must_end)
        });
        match spawned {
            Ok(thread) => {
                let bytes_max = bytes + WRITTEN_BYTES.max(bytes / WRITTEN_PART);
                Some(Self { shared: Arc::clone(shared), must_end, bytes_max, thread: Some(thread) })
            }
            Err(source) => {
                tracing::warn!(%source, "no thread to make the records file smaller");
                None
            }
        }
    }

    /// Gives it up when `bytes`, those on the disk now, have become too many.
    pub(super) fn watch(&self, bytes: u64) {
        if bytes > self.bytes_max {
            self.must_end.store(true, Ordering::Release);
        }
    }

    /// Whether the thread has nothing to do any more.
    pub(super) fn is_copied(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends it, on the commit thread; `false` when it was given up.
    pub(super) fn finish(mut self) -> bool {
        let Some(thread) = self.thread.take() else { return false };
        let copied = thread.join().unwrap_or_else(|_| Err(Arc::from(Box::from("it panicked"))));
        let done = copied.and_then(|next| {
            let Some(mut next) = next else { return Ok(false) };
            while let Some(more) = self.shared.disk.copy(next, self.shared.newest())? {
                next = more;
            }
            self.shared.disk.change_over(self.shared.floor())?;
            Ok(true)
        });
        done.unwrap_or_else(|source| {
            // All is as before, and the next compaction asks for it again.
            tracing::warn!(%source, "the records file did not get smaller");
            true
        })
    }
}

impl Drop for Rewrite {
    fn drop(&mut self) {
        self.must_end.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // What it came to does not matter any more.
            let _ = thread.join();
        }
        self.shared.disk.discard_copy();
    }
}

/// Copies what is visible, and so sure to stay, until little is left; `None` when it was given up.
fn copy(shared: &Shared, must_end: &AtomicBool) -> Result<Option<RecordId>, DiskError> {
    let mut next = RecordId::first(Revision(0));
    while !must_end.load(Ordering::Acquire) {
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
