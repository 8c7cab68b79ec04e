//! The turns of watches that read the past. A batch of it has megabytes, which stay in memory until
//! the client has read them: their room is taken before they are read, and few are read at the same
//! time.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use keelson_store::BATCH_BYTES_MAX;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::limits::PAST_READS_MAX;
use crate::room::{ResponseRoom, Room, shrink};

/// What the watches of all streams share.
#[derive(Clone)]
pub(crate) struct PastReads {
    room: ResponseRoom,
    reading: Arc<Semaphore>,
    ended: Arc<Notify>,
}

impl PastReads {
    /// Takes the room of batches from that of all responses.
    pub(crate) fn new(room: ResponseRoom) -> Self {
        let reading = Arc::new(Semaphore::new(PAST_READS_MAX));
        Self { room, reading, ended: Arc::default() }
    }

    async fn turn(self) -> Option<Turn> {
        let room = self.room.wait(BATCH_BYTES_MAX).await?;
        loop {
            // Nobody has a place in a queue for it: a stream that is not polled, because its client
            // does not read, would keep all others waiting.
            let ended = self.ended.notified();
            if let Ok(permit) = Arc::clone(&self.reading).try_acquire_owned() {
                let reading = Reading { permit: Some(permit), ended: Arc::clone(&self.ended) };
                return Some(Turn { room, reading });
            }
            ended.await;
        }
    }
}

/// The turn to read one batch.
pub(super) struct Turn {
    /// For the largest batch.
    room: Room,
    reading: Reading,
}

/// Others read when it is dropped.
struct Reading {
    permit: Option<OwnedSemaphorePermit>,
    ended: Arc<Notify>,
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.permit = None;
        self.ended.notify_waiters();
    }
}

impl Turn {
    /// Ends the turn. Returns the room of a batch of so many bytes.
    pub(super) fn end(self, bytes: usize) -> Room {
        drop(self.reading);
        shrink(self.room, bytes)
    }
}

/// The turns of one stream, one at a time.
pub(super) struct Turns {
    reads: PastReads,
    next: Option<Pin<Box<dyn Future<Output = Option<Turn>> + Send>>>,
}

impl Turns {
    pub(super) fn new(reads: PastReads) -> Self {
        Self { reads, next: None }
    }

    /// Waits for the next turn; `None` when the server ends. A call that is cancelled keeps its
    /// place.
    pub(super) async fn next(&mut self) -> Option<Turn> {
        let reads = &self.reads;
        let turn = self.next.get_or_insert_with(|| Box::pin(reads.clone().turn())).await;
        self.next = None;
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::RESPONSES_KILOBYTES_MAX;
    use futures_util::FutureExt;

    const BATCHES_MAX: usize = (RESPONSES_KILOBYTES_MAX << 10) / BATCH_BYTES_MAX;

    #[test]
    fn batches_that_nobody_reads_are_bounded() {
        let room = ResponseRoom::default();
        let reads = PastReads::new(room.clone());
        let turn = |turns: &mut Turns| turns.next().now_or_never().flatten();
        let read = |bytes| turn(&mut Turns::new(reads.clone())).map(|turn| turn.end(bytes));
        let mut unread: Vec<Room> =
            (0..BATCHES_MAX).filter_map(|_| read(BATCH_BYTES_MAX)).collect();
        assert_eq!(unread.len(), BATCHES_MAX);
        let mut late = Turns::new(reads.clone());
        assert!(turn(&mut late).is_none());
        assert!(room.is_wanted(), "those who do not read lose their streams");
        unread.pop();
        // It kept its place while nobody polled it.
        assert!(read(0).is_none());
        let first = turn(&mut late).expect("a turn");
        assert!(!room.is_wanted());
        // Only one stream reads at a time, whatever room there is.
        unread.pop();
        assert!(turn(&mut late).is_none());
        unread.push(first.end(1 << 20));
        // A stream that waits and is not polled keeps no other waiting.
        unread.pop();
        assert!(read(0).is_some());
        // The room of a small batch is small: that of the next is there, too.
        assert!(turn(&mut late).is_some());
    }
}
