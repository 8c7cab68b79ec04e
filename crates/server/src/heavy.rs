//! Requests with large bodies and long lists that are encoded whole: a limited number of them is
//! processed at once, without blocking the threads that serve other requests. A request that waits,
//! for a webhook for instance, releases its permit.

use keelson_auth::off_worker::{self, SHORT_BYTES_MAX};
use keelson_meta::status::Details;
use keelson_meta::{Failure, Reason, Status};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;

/// Largest body of a request that is processed without a limit.
pub(crate) const LIGHT_BYTES_MAX: usize = 128 << 10;
/// Most requests with larger bodies that are processed at once, each on its own thread. Also limits
/// the memory of their objects.
const HEAVY_AT_ONCE_MAX: u32 = 2;
/// Smallest body of a request that is processed alone.
const ALONE_BYTES_MIN: usize = 1 << 20;
/// How long a waiting request keeps its permit; longer than a commit takes.
const IDLE_TURN_MAX: Duration = Duration::from_millis(50);
/// Most requests that wait for their first permit. Further ones get 429.
const HEAVY_WAITING_MAX: usize = 64;

/// The limiter of this process. Static, because processors and memory are shared by all servers in
/// it.
static LIMITER: HeavyLimiter = HeavyLimiter::new();

/// Runs the work of a request with an input of `bytes` bytes: a body, a stored object, a list. The
/// work is borrowed, because a future that is passed by value is stored twice by the caller, which
/// would double the size of a request with each layer.
pub(crate) async fn run<T>(
    bytes: usize,
    mut work: Pin<&mut (impl Future<Output = Result<T, Failure>> + Send)>,
) -> Result<T, Failure> {
    if bytes <= SHORT_BYTES_MAX {
        return work.await;
    }
    if bytes > LIGHT_BYTES_MAX {
        return Box::pin(LIMITER.run(bytes, work)).await;
    }
    poll_fn(|cx| step(work.as_mut(), cx)).await
}

/// Limits running and waiting requests.
struct HeavyLimiter {
    permits: Semaphore,
    waiting: AtomicUsize,
}

impl HeavyLimiter {
    const fn new() -> HeavyLimiter {
        HeavyLimiter {
            permits: Semaphore::const_new(HEAVY_AT_ONCE_MAX as usize),
            waiting: AtomicUsize::new(0),
        }
    }

    async fn run<T>(
        &self,
        bytes: usize,
        work: Pin<&mut (impl Future<Output = Result<T, Failure>> + Send)>,
    ) -> Result<T, Failure> {
        let waiting_guard = self.enqueue().ok_or_else(too_many)?;
        let permits = if bytes < ALONE_BYTES_MIN { 1 } else { HEAVY_AT_ONCE_MAX };
        let mut permit = self.permits.acquire_many(permits).await.map_err(Status::internal)?;
        drop(waiting_guard);
        let mut work = work;
        let wake_flag = Arc::new(WakeFlag(Notify::new()));
        let waker = Waker::from(wake_flag.clone());
        loop {
            if let Poll::Ready(done) = step(work.as_mut(), &mut Context::from_waker(&waker)) {
                return done;
            }
            if timeout(IDLE_TURN_MAX, wake_flag.0.notified()).await.is_err() {
                drop(permit);
                wake_flag.0.notified().await;
                permit = self.permits.acquire_many(permits).await.map_err(Status::internal)?;
            }
        }
    }

    /// Counts a waiting request. Returns `None` if too many wait.
    fn enqueue(&self) -> Option<WaitingGuard<'_>> {
        let waiting_guard = WaitingGuard { waiting: &self.waiting };
        (self.waiting.fetch_add(1, Ordering::Relaxed) < HEAVY_WAITING_MAX).then_some(waiting_guard)
    }
}

/// Counts a waiting request until it is dropped.
struct WaitingGuard<'t> {
    waiting: &'t AtomicUsize,
}

impl Drop for WaitingGuard<'_> {
    fn drop(&mut self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns 429 with the message of kube-apiserver's limit of requests in flight.
fn too_many() -> Failure {
    let why = "Too many requests, please try again later.";
    let mut status = Status::new(Reason::TooManyRequests, why);
    status.details = Some(Details { retry_after_seconds: 1, ..Details::default() });
    status
}

/// A waker that notifies a waiting request.
struct WakeFlag(Notify);

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// Polls the work, after moving the other tasks of this thread to another thread.
fn step<F: Future>(work: Pin<&mut F>, cx: &mut Context<'_>) -> Poll<F::Output> {
    off_worker::run(|| work.poll(cx))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::sync::mpsc;
    use std::time::Duration;

    const DEADLINE: Duration = Duration::from_secs(20);

    /// The heavy request blocks the only worker thread until another task has run.
    #[test]
    fn other_tasks_run_while_a_large_body_is_processed() {
        for bytes in [SHORT_BYTES_MAX + 1, LIGHT_BYTES_MAX + 1] {
            check_other_tasks_run(bytes);
        }
    }

    fn check_other_tasks_run(bytes: usize) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .expect("a runtime");
        let (sender, receiver) = mpsc::channel();
        let (start_sender, start_receiver) = mpsc::channel();
        let work = Box::pin(async move {
            start_sender.send(()).expect("the test waits");
            receiver.recv_timeout(DEADLINE).map_err(Status::internal)
        });
        let heavy = runtime.spawn(async move { run(bytes, pin!(work)).await });
        start_receiver.recv_timeout(DEADLINE).expect("the work begins");
        runtime.spawn(async move { sender.send(7) });
        let received = runtime.block_on(heavy).expect("no panic");
        assert_eq!(received.ok(), Some(7));
    }

    #[tokio::test]
    async fn a_single_threaded_runtime_processes_large_bodies() {
        assert_eq!(run(LIGHT_BYTES_MAX + 1, pin!(async { Ok(7) })).await.ok(), Some(7));
        assert_eq!(run(0, pin!(async { Ok(7) })).await.ok(), Some(7));
    }

    #[tokio::test]
    async fn a_waiting_request_releases_its_permit() {
        static LIMITER: HeavyLimiter = HeavyLimiter::new();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let waiting_guard = pin!(async { receiver.await.map_err(Status::internal) });
        let waiting_guard = LIMITER.run(ALONE_BYTES_MIN, waiting_guard);
        let other = async {
            let worked = LIMITER.run(ALONE_BYTES_MIN, pin!(async { Ok(7) })).await;
            sender.send(worked.ok()).expect("the first waits");
        };
        let both = async { tokio::join!(waiting_guard, other) };
        let (received, ()) = timeout(DEADLINE, both).await.expect("nobody keeps a permit for ever");
        assert_eq!(received.ok(), Some(Some(7)));
    }

    #[test]
    fn waiting_requests_have_a_maximum() {
        let permits = HeavyLimiter::new();
        let waiting: Vec<_> =
            std::iter::from_fn(|| permits.enqueue()).take(HEAVY_WAITING_MAX + 1).collect();
        assert_eq!(waiting.len(), HEAVY_WAITING_MAX);
        assert_eq!(too_many().code, 429);
        drop(waiting);
        assert!(permits.enqueue().is_some());
    }
}
