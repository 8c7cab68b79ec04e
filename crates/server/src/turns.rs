//! Turns of long responses. A list is made and encrypted as fast as its client reads, so a few
//! clients that list all they can would keep every worker thread busy, and each small request would
//! wait behind all of them at each of its steps. Here only as many lists as there are threads run
//! at a moment; each sends [`TURN_BYTES`], then it is the next one's turn, in the order in which
//! they came. So a small request waits for one turn, however many lists are sent.
//!
//! A turn ends with the poll of its connection at the latest: a client that does not read has none.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// Bytes of a turn: about a tenth of a millisecond. hyper buffers as much before it writes.
const TURN_BYTES: usize = 128 << 10;

/// The turns of this process, whose threads all its servers share.
fn turns() -> &'static Arc<Semaphore> {
    static TURNS: OnceLock<Arc<Semaphore>> = OnceLock::new();
    TURNS.get_or_init(|| {
        Arc::new(Semaphore::new(std::thread::available_parallelism().map_or(1, usize::from)))
    })
}

/// What the current poll of a connection has.
#[derive(Default)]
enum Current {
    /// Nobody polls a connection, or only one whose responses wait for no turn.
    #[default]
    Outside,
    /// No response has asked for a turn.
    None,
    Turn {
        _permit: OwnedSemaphorePermit,
        left: usize,
    },
}

thread_local! {
    /// A poll stays on its thread.
    static CURRENT: Cell<Current> = const { Cell::new(Current::Outside) };
}

/// Polls a connection. A turn that one of its responses gets ends with the poll.
pub(crate) fn during<T>(poll: impl FnOnce() -> T) -> T {
    /// Also ends the turn of a poll that panics.
    struct End(Current);
    impl Drop for End {
        fn drop(&mut self) {
            CURRENT.set(std::mem::take(&mut self.0));
        }
    }
    let _end = End(CURRENT.replace(Current::None));
    poll()
}

/// A response that is sent in turns.
#[derive(Default)]
pub(crate) struct Turns {
    waiting: Option<Waiting>,
}

type Waiting = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>;

impl Turns {
    /// Waits until the response may send something.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match CURRENT.take() {
            Current::Outside => return Poll::Ready(()),
            // The permit is dropped: the next one's turn has come.
            Current::None | Current::Turn { left: 0, .. } => CURRENT.set(Current::None),
            turn @ Current::Turn { .. } => {
                CURRENT.set(turn);
                return Poll::Ready(());
            }
        }
        let permit = match (&self.waiting, turns().clone().try_acquire_owned()) {
            (None, Ok(permit)) => Ok(permit),
            _ => {
                let waiting =
                    self.waiting.get_or_insert_with(|| Box::pin(turns().clone().acquire_owned()));
                let Poll::Ready(permit) = waiting.as_mut().poll(cx) else { return Poll::Pending };
                self.waiting = None;
                permit
            }
        };
        // It is never closed.
        if let Ok(permit) = permit {
            CURRENT.set(Current::Turn { _permit: permit, left: TURN_BYTES });
        }
        Poll::Ready(())
    }

    /// Records work, as the bytes that take about as long to send.
    pub fn spend(&self, bytes: usize) {
        let mut current = CURRENT.take();
        if let Current::Turn { left, .. } = &mut current {
            *left = left.saturating_sub(bytes);
        }
        CURRENT.set(current);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    /// One test, because the turns are the process's.
    #[test]
    fn lists_take_turns_in_their_order_and_keep_none_between_polls() {
        let all = turns().available_permits();
        let mut cx = Context::from_waker(Waker::noop());
        // Nobody waits: a response has turn after turn.
        let mut alone = Turns::default();
        during(|| {
            for _ in 0..3 {
                assert!(alone.poll(&mut cx).is_ready());
                assert_eq!(turns().available_permits(), all - 1);
                alone.spend(TURN_BYTES);
            }
        });
        assert_eq!(turns().available_permits(), all);
        // Another one waits for as long as all threads are in use, and comes before who had its
        // turn.
        let others = turns().clone().try_acquire_many_owned(all as u32 - 1).expect("free turns");
        let mut second = Turns::default();
        during(|| {
            assert!(alone.poll(&mut cx).is_ready());
            alone.spend(TURN_BYTES - 1);
            assert!(alone.poll(&mut cx).is_ready());
            during(|| assert!(second.poll(&mut cx).is_pending()));
            assert!(alone.poll(&mut cx).is_ready());
            alone.spend(1);
            assert!(alone.poll(&mut cx).is_pending());
        });
        during(|| {
            assert!(second.poll(&mut cx).is_ready());
            during(|| assert!(alone.poll(&mut cx).is_pending()));
        });
        during(|| assert!(alone.poll(&mut cx).is_ready()));
        drop(others);
        // Outside of a connection nobody waits, and nobody has a turn for ever.
        let others = turns().clone().try_acquire_many_owned(all as u32).expect("free turns");
        assert!(Turns::default().poll(&mut cx).is_ready());
        drop((others, alone, second));
        assert_eq!(turns().available_permits(), all);
    }
}
