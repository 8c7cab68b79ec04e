//! [`Turn`]: a long list is encoded and sent piece by piece. After each piece other requests come
//! first, and then other lists, those of each user in turn: however many lists are read at once, a
//! short request waits for a piece of one, not of each.

use futures_util::task::AtomicWaker;
use keelson_meta::Str;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::yield_now;

/// Most lists that are sent without a seat by priority and fairness. Each has at most 128 KiB in
/// buffers.
const UNSEATED_MAX: usize = 256;
static UNSEATED: Semaphore = Semaphore::const_new(UNSEATED_MAX);

/// The lists that wait. Static, because all servers of a process share its processors.
static LINE: Mutex<Line> = Mutex::new(Line { places: VecDeque::new(), is_led: false });

/// Lets a list be sent without a seat by priority and fairness, which would keep short requests
/// waiting while somebody reads slowly; `None` if many are.
pub(crate) fn without_seat() -> Option<SemaphorePermit<'static>> {
    UNSEATED.try_acquire().ok()
}

/// The turns of one list.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// Bytes that were sent in this turn.
    bytes: usize,
    /// Where it waits for the next one.
    place: Option<Arc<Place>>,
}

#[derive(Debug, Default)]
struct Place {
    /// Whether the turn has come.
    is_called: AtomicBool,
    waker: AtomicWaker,
}

struct Line {
    /// Waiting lists by user; the user whose turn it is comes first.
    places: VecDeque<(Str, VecDeque<Arc<Place>>)>,
    /// Whether a task calls those that wait.
    is_led: bool,
}

impl Turn {
    /// Counts what was sent.
    pub fn spend(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Ends the turn, whatever was sent.
    pub fn end(&mut self) {
        self.bytes = usize::MAX;
    }

    /// Ready while less than `bytes_max` were sent in this turn; then waits for the next one.
    pub fn poll(&mut self, user: &Str, bytes_max: usize, cx: &mut Context<'_>) -> Poll<()> {
        if self.bytes < bytes_max {
            return Poll::Ready(());
        }
        let place = self.place.get_or_insert_with(|| {
            let place: Arc<Place> = Arc::default();
            line_up(user, place.clone());
            place
        });
        place.waker.register(cx.waker());
        if !place.is_called.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        *self = Turn::default();
        Poll::Ready(())
    }
}

impl Place {
    fn call(&self) {
        self.is_called.store(true, Ordering::Release);
        self.waker.wake();
    }
}

fn line() -> MutexGuard<'static, Line> {
    // Every critical section leaves the line consistent.
    LINE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Line {
    fn push(&mut self, user: &Str, place: Arc<Place>) {
        match self.places.iter_mut().find(|(other, _)| other == user) {
            Some((_, places)) => places.push_back(place),
            None => self.places.push_back((user.clone(), VecDeque::from([place]))),
        }
    }

    fn pop(&mut self) -> Option<Arc<Place>> {
        let (user, mut places) = self.places.pop_front()?;
        let place = places.pop_front();
        if !places.is_empty() {
            self.places.push_back((user, places));
        }
        place
    }
}

fn line_up(user: &Str, place: Arc<Place>) {
    let Ok(runtime) = Handle::try_current() else { return place.call() };
    let mut line = line();
    line.push(user, place);
    if !std::mem::replace(&mut line.is_led, true) {
        drop(line);
        runtime.spawn(lead(Leader));
    }
}

/// Calls those that wait, a few each time the thread has nothing else to do and has looked at its
/// sockets, until nobody waits.
async fn lead(leader: Leader) {
    let workers = Handle::current().metrics().num_workers();
    loop {
        // The runtime wakes this task after all others, and after it has looked at the sockets.
        yield_now().await;
        let called: Vec<_> = {
            let mut line = line();
            std::iter::from_fn(|| line.pop()).take(workers).collect()
        };
        if called.is_empty() {
            return drop(leader);
        }
        called.iter().for_each(|place| place.call());
    }
}

/// The task that calls. When it ends with its runtime, all are called, so that one of them starts
/// another.
struct Leader;

impl Drop for Leader {
    fn drop(&mut self) {
        let mut line = line();
        line.is_led = false;
        let called = std::mem::take(&mut line.places);
        drop(line);
        called.iter().flat_map(|(_, places)| places).for_each(|place| place.call());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::{Body, ChunkSource, Step};
    use crate::context::RequestContext;
    use crate::response_body::ResponseBody;
    use http_body::Body as _;
    use keelson_meta::Failure;
    use std::future::poll_fn;
    use std::pin::Pin;
    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

    const PIECE: usize = 10;

    /// Sends pieces, and says so. The first letter of a list is its user.
    async fn send(name: &'static str, pieces: usize, said: UnboundedSender<&'static str>) {
        let mut turn = Turn::default();
        let user = Str::new(&name[..1]);
        for _ in 0..pieces {
            poll_fn(|cx| turn.poll(&user, PIECE, cx)).await;
            turn.spend(PIECE);
            said.send(name).expect("the test listens");
        }
    }

    fn drain(from: &mut UnboundedReceiver<&'static str>) -> String {
        let all: Vec<_> = std::iter::from_fn(|| from.try_recv().ok()).collect();
        all.join(" ")
    }

    /// A list that yields, says so, and ends.
    struct Computes(usize, UnboundedSender<&'static str>);

    impl ChunkSource for Computes {
        fn next(&mut self) -> Result<Step, Failure> {
            self.1.send(if self.0 > 0 { "c" } else { "done" }).expect("the test listens");
            let Some(left) = self.0.checked_sub(1) else { return Ok(Step::Done) };
            self.0 = left;
            Ok(Step::Yield)
        }

        fn is_done(&self) -> bool {
            false
        }

        fn source_bytes(&self) -> u64 {
            0
        }
    }

    /// One test, because the line is shared.
    #[test]
    fn lists_take_turns_and_others_come_first() {
        let runtime = || tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let (said, mut heard) = unbounded_channel();
        let first = runtime();
        first.block_on(async {
            let lists = ["a1", "a2", "b1"].map(|name| tokio::spawn(send(name, 3, said.clone())));
            let said = said.clone();
            let other = tokio::spawn(async move {
                for _ in 0..4 {
                    said.send("-").expect("the test listens");
                    yield_now().await;
                }
            });
            for list in lists {
                list.await.expect("no panic");
            }
            other.await.expect("no panic");
        });
        // All begin; then the users follow each other, with the others in between.
        assert_eq!(drain(&mut heard), "a1 a2 b1 - - a1 - b1 - a2 b1 a1 a2");

        // The task that calls ends with its runtime; those of another go on.
        first.block_on(async {
            tokio::spawn(send("d", 2, said.clone()));
            yield_now().await;
        });
        assert!(line().is_led);
        let second = runtime();
        second.block_on(async {
            let list = tokio::spawn(send("e", 2, said.clone()));
            yield_now().await;
            first.shutdown_background();
            list.await.expect("no panic");
        });
        assert_eq!(drain(&mut heard), "d e e");
        assert!(!line().is_led);

        // A list that has to compute before its first piece waits in line, too.
        second.block_on(async {
            let source = Body::Listing(Box::new(Computes(2, said.clone())));
            let mut body = ResponseBody::new(source, false, RequestContext::default());
            let list = tokio::spawn(async move {
                let end = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
                assert!(end.is_none());
            });
            while !line().is_led {
                assert!(!list.is_finished());
                yield_now().await;
            }
            list.await.expect("no panic");
        });
        assert_eq!(drain(&mut heard), "c c done");
    }
}
