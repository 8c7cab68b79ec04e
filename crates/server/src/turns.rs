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
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::yield_now;

/// Most lists that are sent without a seat by priority and fairness. Each has at most 128 KiB in
/// buffers.
const UNSEATED_MAX: usize = 256;

/// The lists that a server sends.
#[derive(Clone, Debug)]
pub(crate) struct Lists {
    unseated: Arc<Semaphore>,
    line: SharedLine,
}

impl Default for Lists {
    fn default() -> Lists {
        let unseated = Arc::new(Semaphore::new(UNSEATED_MAX));
        Lists { unseated, line: SharedLine::default() }
    }
}

impl Lists {
    /// Lets a list be sent without a seat by priority and fairness, which would keep short requests
    /// waiting while somebody reads slowly; `None` if many are.
    pub fn without_seat(&self) -> Option<OwnedSemaphorePermit> {
        self.unseated.clone().try_acquire_owned().ok()
    }

    /// Returns the turns of a list of this user.
    pub fn turn(&self, user: Str) -> Turn {
        Turn { line: self.line.clone(), user, bytes: 0, place: None }
    }
}

/// The turns of one list.
#[derive(Debug)]
pub(crate) struct Turn {
    line: SharedLine,
    user: Str,
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

/// The lists of a server that wait.
#[derive(Clone, Debug, Default)]
struct SharedLine(Arc<Mutex<Line>>);

#[derive(Debug, Default)]
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
    pub fn poll(&mut self, bytes_max: usize, cx: &mut Context<'_>) -> Poll<()> {
        if self.bytes < bytes_max {
            return Poll::Ready(());
        }
        let place = self.place.get_or_insert_with(|| {
            let place: Arc<Place> = Arc::default();
            self.line.join(&self.user, place.clone());
            place
        });
        place.waker.register(cx.waker());
        if !place.is_called.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        self.bytes = 0;
        self.place = None;
        Poll::Ready(())
    }
}

impl Place {
    fn call(&self) {
        self.is_called.store(true, Ordering::Release);
        self.waker.wake();
    }
}

impl SharedLine {
    fn lock(&self) -> MutexGuard<'_, Line> {
        // Every critical section leaves the line consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join(&self, user: &Str, place: Arc<Place>) {
        let Ok(runtime) = Handle::try_current() else { return place.call() };
        let mut line = self.lock();
        line.push(user, place);
        if !std::mem::replace(&mut line.is_led, true) {
            drop(line);
            runtime.spawn(lead(Leader(self.clone())));
        }
    }
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

/// Calls those that wait, a few each time the thread has nothing else to do and has looked at its
/// sockets, until nobody waits.
async fn lead(leader: Leader) {
    let workers = Handle::current().metrics().num_workers();
    loop {
        // The runtime wakes this task after all others, and after it has looked at the sockets.
        yield_now().await;
        let called: Vec<_> = {
            let mut line = leader.0.lock();
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
struct Leader(SharedLine);

impl Drop for Leader {
    fn drop(&mut self) {
        let called = std::mem::take(&mut *self.0.lock()).places;
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
    use tokio::runtime::{Builder, Runtime};
    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

    const PIECE: usize = 10;

    /// Sends pieces, and says so. The first letter of a list is its user.
    async fn send(
        lists: Lists,
        name: &'static str,
        pieces: usize,
        said: UnboundedSender<&'static str>,
    ) {
        let mut turn = lists.turn(Str::new(&name[..1]));
        for _ in 0..pieces {
            poll_fn(|cx| turn.poll(PIECE, cx)).await;
            turn.spend(PIECE);
            said.send(name).expect("the test listens");
        }
    }

    fn drain(from: &mut UnboundedReceiver<&'static str>) -> String {
        let all: Vec<_> = std::iter::from_fn(|| from.try_recv().ok()).collect();
        all.join(" ")
    }

    fn runtime() -> Runtime {
        Builder::new_current_thread().build().expect("a runtime")
    }

    #[test]
    fn lists_take_turns_and_others_come_first() {
        let lists = Lists::default();
        let (said, mut heard) = unbounded_channel();
        runtime().block_on(async {
            let sent = ["a1", "a2", "b1"]
                .map(|name| tokio::spawn(send(lists.clone(), name, 3, said.clone())));
            let said = said.clone();
            let other = tokio::spawn(async move {
                for _ in 0..4 {
                    said.send("-").expect("the test listens");
                    yield_now().await;
                }
            });
            for list in sent {
                list.await.expect("no panic");
            }
            other.await.expect("no panic");
        });
        // All begin; then the users follow each other, with the others in between.
        assert_eq!(drain(&mut heard), "a1 a2 b1 - - a1 - b1 - a2 b1 a1 a2");
    }

    #[test]
    fn lists_go_on_when_the_task_that_calls_ends_with_its_runtime() {
        let lists = Lists::default();
        let (said, mut heard) = unbounded_channel();
        let first = runtime();
        first.block_on(async {
            tokio::spawn(send(lists.clone(), "a", 2, said.clone()));
            yield_now().await;
        });
        assert!(lists.line.lock().is_led);
        runtime().block_on(async {
            let list = tokio::spawn(send(lists.clone(), "b", 2, said.clone()));
            yield_now().await;
            first.shutdown_background();
            list.await.expect("no panic");
        });
        assert_eq!(drain(&mut heard), "a b b");
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

    #[test]
    fn a_list_that_computes_before_its_first_piece_waits_in_line() {
        let lists = Lists::default();
        let (said, mut heard) = unbounded_channel();
        runtime().block_on(async {
            let source = Body::Listing(Box::new(Computes(2, said.clone())));
            let mut body = ResponseBody::new(source, false, RequestContext::default(), &lists);
            let list = tokio::spawn(async move {
                let end = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
                assert!(end.is_none());
            });
            while !lists.line.lock().is_led {
                assert!(!list.is_finished());
                yield_now().await;
            }
            list.await.expect("no panic");
        });
        assert_eq!(drain(&mut heard), "c c done");
    }
}
