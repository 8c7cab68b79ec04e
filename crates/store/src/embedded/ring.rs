//! The newest events, in memory: most watches and reads of new values need no disk access.

use std::collections::VecDeque;

use bytes::Bytes;

use super::disk::RecordId;
use crate::{BATCH_BYTES_MAX, BATCH_EVENTS_MAX, Batch, Event, Revision};

/// Most events in the ring.
const RING_EVENTS_MAX: usize = 4096;
/// Most bytes of memory of the ring. A watch that is further behind reads from disk.
const RING_BYTES_MAX: usize = 2 << 20;

/// A ring buffer of the newest events.
pub(super) struct Ring {
    /// Invariant: all events with a revision above `after`, in order.
    events: VecDeque<(RecordId, Event)>,
    after: Revision,
    bytes: usize,
}

impl Ring {
    /// Creates an empty ring that begins after revision `after`.
    pub(super) fn new(after: Revision) -> Self {
        Self { events: VecDeque::new(), after, bytes: 0 }
    }

    /// Returns whether the ring has all events after this revision.
    pub(super) fn reaches(&self, after: Revision) -> bool {
        after >= self.after
    }

    pub(super) fn push(&mut self, id: RecordId, event: Event) {
        let last = self.events.back().map(|(last, _)| *last);
        assert!(last.is_none_or(|last| last < id), "an event went back: {id:?} after {last:?}");
        self.bytes += memory_bytes(&event);
        self.events.push_back((id, event));
        while self.events.len() > RING_EVENTS_MAX || self.bytes > RING_BYTES_MAX {
            let Some((id, event)) = self.events.pop_front() else { break };
            self.bytes -= memory_bytes(&event);
            self.after = id.revision;
        }
    }

    /// Forgets all events. A watch that is behind reads from disk.
    pub(super) fn clear(&mut self) {
        let Some((last, _)) = self.events.back() else { return };
        *self = Ring::new(last.revision);
    }

    /// Returns the value of a record if it is in the ring.
    pub(super) fn value(&self, id: RecordId) -> Option<Bytes> {
        let place = self.events.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.events[place].1.value.clone()
    }

    /// Returns the events under `prefix` after a revision that the ring [reaches](Ring::reaches).
    pub(super) fn batch(&self, prefix: &[u8], after: Revision, newest: Revision) -> Batch {
        debug_assert!(self.reaches(after));
        let start = self.events.partition_point(|(id, _)| id.revision <= after);
        let mut builder = BatchBuilder::new(prefix);
        for (_, event) in self.events.range(start..) {
            if !builder.has_room_for(event.revision) {
                break;
            }
            if builder.matches(&event.key) {
                builder.push(event.clone());
            }
        }
        builder.finish(newest)
    }
}

/// Builds a batch of whole revisions, up to the maximums of a batch.
pub(super) struct BatchBuilder<'a> {
    prefix: &'a [u8],
    events: Vec<Event>,
    bytes: usize,
    /// The revision of the last event considered.
    last: Revision,
    is_full: bool,
}

impl<'a> BatchBuilder<'a> {
    pub(super) fn new(prefix: &'a [u8]) -> Self {
        Self { prefix, events: Vec::new(), bytes: 0, last: Revision(0), is_full: false }
    }

    /// Returns whether the batch can take another event of this revision. A revision is never
    /// split.
    pub(super) fn has_room_for(&mut self, revision: Revision) -> bool {
        let is_over = self.events.len() >= BATCH_EVENTS_MAX || self.bytes >= BATCH_BYTES_MAX;
        if is_over && revision > self.last {
            self.is_full = true;
            return false;
        }
        self.last = revision;
        true
    }

    pub(super) fn matches(&self, key: &[u8]) -> bool {
        key.starts_with(self.prefix)
    }

    pub(super) fn push(&mut self, event: Event) {
        self.bytes += value_bytes(&event);
        if self.events.is_empty() {
            // Most batches have one event.
            self.events.reserve_exact(1);
        }
        self.events.push(event);
    }

    /// Finishes the batch. `newest` is its last revision if it is not full.
    pub(super) fn finish(self, newest: Revision) -> Batch {
        let through = if self.is_full { self.last } else { newest };
        Batch { events: self.events, through }
    }
}

/// Memory in bytes of an event in the ring.
fn memory_bytes(event: &Event) -> usize {
    size_of::<(RecordId, Event)>() + event.key.len() + value_bytes(event)
}

fn value_bytes(event: &Event) -> usize {
    event.value.as_ref().map_or(0, Bytes::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(ring: &mut Ring, revision: u64) {
        let revision = Revision(revision);
        let value = Some(Bytes::from_static(b"v"));
        let event = Event { key: Bytes::from_static(b"/k"), value, revision, created: revision };
        ring.push(RecordId::first(revision), event);
    }

    #[test]
    fn a_ring_that_was_cleared_reaches_what_comes_after() {
        let mut ring = Ring::new(Revision(3));
        ring.clear();
        assert!(ring.reaches(Revision(3)) && !ring.reaches(Revision(2)));
        push(&mut ring, 4);
        push(&mut ring, 5);
        ring.clear();
        assert_eq!((ring.events.capacity(), ring.bytes), (0, 0));
        assert!(ring.reaches(Revision(5)) && !ring.reaches(Revision(4)));
        push(&mut ring, 6);
        let batch = ring.batch(b"/", Revision(5), Revision(6));
        let revisions: Vec<u64> = batch.events.iter().map(|event| event.revision.0).collect();
        assert_eq!((revisions, batch.through), (vec![6], Revision(6)));
        assert!(ring.value(RecordId::first(Revision(6))).is_some());
        assert!(ring.value(RecordId::first(Revision(5))).is_none());
    }
}
