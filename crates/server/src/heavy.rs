//! Requests with large bodies: their work is done beside the threads that serve all others, by a bounded
//! number of them at once. One that waits for somebody else, a webhook for instance, lets others work.

use keelson_meta::status::Details;
use keelson_meta::{Failure, Reason, Status};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;

/// Bytes of a body up to which a request is served as it comes: the work for as many takes a few
/// milliseconds at most.
const LIGHT_BYTES_MAX: usize = 128 << 10;
/// Requests with larger bodies that are worked on at once, each on a thread of its own. Of the memory that
/// their objects take there is as much as that many of them need.
const HEAVY_AT_ONCE_MAX: u32 = 2;
/// Bytes of a body from which on a request is worked on while no other of these is.
const ALONE_BYTES_MIN: usize = 1 << 20;
/// How long a waiting request keeps its turn; longer than a commit takes.
const IDLE_TURN_MAX: Duration = Duration::from_millis(50);
/// Such requests that wait for their first turn. More are told to come back.
const HEAVY_WAITING_MAX: usize = 64;

/// The turns of this process, which has its processors and its memory once.
static TURNS: Turns = Turns::new();

/// Does the work of a request with a body of so many bytes. The work is lent: a future that is handed over
/// by value is held twice by whoever awaits it, and each layer would double the size of a request.
pub(crate) async fn run<T>(
    bytes: usize,
    work: Pin<&mut (impl Future<Output = Result<T, Failure>> + Send)>,
) -> Result<T, Failure> {
    if bytes <= LIGHT_BYTES_MAX { work.await } else { Box::pin(TURNS.run(bytes, work)).await }
}

/// Running and waiting requests.
struct Turns {
    free: Semaphore,
    waiting: AtomicUsize,
}

impl Turns {
    const fn new() -> Turns {
        Turns {
            free: Semaphore::const_new(HEAVY_AT_ONCE_MAX as usize),
            waiting: AtomicUsize::new(0),
        }
    }

    async fn run<T>(
        &self,
        bytes: usize,
        work: Pin<&mut (impl Future<Output = Result<T, Failure>> + Send)>,
    ) -> Result<T, Failure> {
        let waits = self.wait().ok_or_else(too_many)?;
        let turns = if bytes < ALONE_BYTES_MIN { 1 } else { HEAVY_AT_ONCE_MAX };
        let mut turn = self.free.acquire_many(turns).await.map_err(Status::internal)?;
        drop(waits);
        let mut work = work;
        let woken = Arc::new(Woken(Notify::new()));
        let waker = Waker::from(woken.clone());
        loop {
            if let Poll::Ready(done) = step(work.as_mut(), &mut Context::from_waker(&waker)) {
                return done;
            }
            if timeout(IDLE_TURN_MAX, woken.0.notified()).await.is_err() {
                drop(turn);
                woken.0.notified().await;
                turn = self.free.acquire_many(turns).await.map_err(Status::internal)?;
            }
        }
    }

    /// A place among those that wait, if there is one.
    fn wait(&self) -> Option<Waits<'_>> {
        let waits = Waits { waiting: &self.waiting };
        (self.waiting.fetch_add(1, Ordering::Relaxed) < HEAVY_WAITING_MAX).then_some(waits)
    }
}

/// A waiting request.
struct Waits<'t> {
    waiting: &'t AtomicUsize,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// 429, in the words of kube-apiserver's limit of requests in flight.
fn too_many() -> Failure {
    let why = "Too many requests, please try again later.";
    let mut status = Status::new(Reason::TooManyRequests, why);
    status.details = Some(Details { retry_after_seconds: 1, ..Details::default() });
    status
}

/// Hears that a request may go on.
struct Woken(Notify);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// Takes a step, after the other tasks of this thread were handed to another thread.
fn step<F: Future>(work: Pin<&mut F>, cx: &mut Context<'_>) -> Poll<F::Output> {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(|| work.poll(cx)),
        // There is one thread for all.
        _ => work.poll(cx),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::sync::mpsc;
    use std::time::Duration;

    const DEADLINE: Duration = Duration::from_secs(20);

    /// The heavy request holds its thread until another task of a runtime with one thread has run.
    #[test]
    fn others_are_served_while_a_large_body_is_worked_on() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build();
        let runtime = runtime.expect("a runtime");
        let (say, hear) = mpsc::channel();
        let (began, begun) = mpsc::channel();
        let work = Box::pin(async move {
            began.send(()).expect("the test waits");
            hear.recv_timeout(DEADLINE).map_err(Status::internal)
        });
        let heavy = runtime.spawn(async { run(LIGHT_BYTES_MAX + 1, pin!(work)).await });
        begun.recv_timeout(DEADLINE).expect("the work begins");
        runtime.spawn(async move { say.send(7) });
        let heard = runtime.block_on(heavy).expect("no panic");
        assert_eq!(heard.ok(), Some(7));
    }

    #[tokio::test]
    async fn a_runtime_of_one_thread_works_on_large_bodies_too() {
        assert_eq!(run(LIGHT_BYTES_MAX + 1, pin!(async { Ok(7) })).await.ok(), Some(7));
        assert_eq!(run(0, pin!(async { Ok(7) })).await.ok(), Some(7));
    }

    #[tokio::test]
    async fn who_waits_for_somebody_else_lets_others_work() {
        static TURNS: Turns = Turns::new();
        let (say, hear) = tokio::sync::oneshot::channel();
        let waits = pin!(async { hear.await.map_err(Status::internal) });
        let waits = TURNS.run(ALONE_BYTES_MIN, waits);
        let other = async {
            let worked = TURNS.run(ALONE_BYTES_MIN, pin!(async { Ok(7) })).await;
            say.send(worked.ok()).expect("the first waits");
        };
        let both = async { tokio::join!(waits, other) };
        let (heard, ()) = timeout(DEADLINE, both).await.expect("nobody keeps a turn for ever");
        assert_eq!(heard.ok(), Some(Some(7)));
    }

    #[test]
    fn only_so_many_wait() {
        let turns = Turns::new();
        let waiting: Vec<_> =
            std::iter::from_fn(|| turns.wait()).take(HEAVY_WAITING_MAX + 1).collect();
        assert_eq!(waiting.len(), HEAVY_WAITING_MAX);
        assert_eq!(too_many().code, 429);
        drop(waiting);
        assert!(turns.wait().is_some());
    }
}
