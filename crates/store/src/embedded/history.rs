//! The newest events in memory: most watches never touch the disk, and fresh values need no read.

use std::collections::VecDeque;

use bytes::Bytes;

use super::disk::RecordId;
use crate::{BATCH_BYTES_MAX, BATCH_EVENTS_MAX, Batch, Event, Revision};

/// Most events kept.
const RING_EVENTS_MAX: usize = 4096;
/// Most bytes kept, of keys and values and what holds them. A watch that falls further behind reads the
/// disk.
const RING_BYTES_MAX: usize = 2 << 20;

/// The newest stretch of history.
pub(super) struct Ring {
    /// Invariant: every event with a revision above `after` is here, in order.
    events: VecDeque<(RecordId, Event)>,
    after: Revision,
    bytes: usize,
}

impl Ring {
    /// An empty ring that knows of nothing up to `after`.
    pub(super) fn new(after: Revision) -> Self {
        Self { events: VecDeque::new(), after, bytes: 0 }
    }

    /// Whether all events after this revision are here.
    pub(super) fn reaches(&self, after: Revision) -> bool {
        after >= self.after
    }

    pub(super) fn push(&mut self, id: RecordId, event: Event) {
        let last = self.events.back().map(|(last, _)| *last);
        assert!(last.is_none_or(|last| last < id), "an event went back: {id:?} after {last:?}");
        self.bytes += held(&event);
        self.events.push_back((id, event));
        while self.events.len() > RING_EVENTS_MAX || self.bytes > RING_BYTES_MAX {
            let Some((id, event)) = self.events.pop_front() else { break };
            self.bytes -= held(&event);
            self.after = id.revision;
        }
    }

    /// The value of a record, when it is new enough to be here.
    pub(super) fn value(&self, id: RecordId) -> Option<Bytes> {
        let place = self.events.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.events[place].1.value.clone()
    }

    /// Events under `prefix` after a revision that the ring reaches.
    pub(super) fn batch(&self, prefix: &[u8], after: Revision, newest: Revision) -> Batch {
        debug_assert!(self.reaches(after));
        let start = self.events.partition_point(|(id, _)| id.revision <= after);
        let mut filler = Filler::new(prefix);
        for (_, event) in self.events.range(start..) {
            if !filler.is_room_for(event.revision) {
                break;
            }
            if filler.wants(&event.key) {
                filler.push(event.clone());
            }
        }
        filler.finish(newest)
    }
}

/// Fills a batch with whole revisions, up to its maximums.
pub(super) struct Filler<'a> {
    prefix: &'a [u8],
    events: Vec<Event>,
    bytes: usize,
    /// The last revision looked at.
    last: Revision,
    is_full: bool,
}

impl<'a> Filler<'a> {
    pub(super) fn new(prefix: &'a [u8]) -> Self {
        Self { prefix, events: Vec::new(), bytes: 0, last: Revision(0), is_full: false }
    }

    /// Whether another event of this revision belongs into the batch. A revision is never split.
    pub(super) fn is_room_for(&mut self, revision: Revision) -> bool {
        let is_over = self.events.len() >= BATCH_EVENTS_MAX || self.bytes >= BATCH_BYTES_MAX;
        if is_over && revision > self.last {
            self.is_full = true;
            return false;
        }
        self.last = revision;
        true
    }

    pub(super) fn wants(&self, key: &[u8]) -> bool {
        key.starts_with(self.prefix)
    }

    pub(super) fn push(&mut self, event: Event) {
        self.bytes += weight(&event);
        if self.events.is_empty() {
            // Most batches have one event.
            self.events.reserve_exact(1);
        }
        self.events.push(event);
    }

    /// `newest` is what was reached when there was room for everything.
    pub(super) fn finish(self, newest: Revision) -> Batch {
        let through = if self.is_full { self.last } else { newest };
        Batch { events: self.events, through }
    }
}

/// Bytes of memory that an event in the ring holds.
fn held(event: &Event) -> usize {
    size_of::<(RecordId, Event)>() + event.key.len() + weight(event)
}

fn weight(event: &Event) -> usize {
    event.value.as_ref().map_or(0, Bytes::len)
}
