//! `--contention-profiling`: measures how long tasks hold a worker thread, in processor time. A
//! task that holds its thread delays every other task there, so no loop over a client's input or
//! over stored objects may do so.

use keelson_auth::off_worker::{take_spent, thread_time};
use keelson_metrics::{Description, Exposition, MetricType};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

/// A poll that is logged: the longest that a task should hold its thread.
const POLL_TIME_MAX: Duration = Duration::from_millis(10);

/// The longest poll since the last scrape, in nanoseconds. Static, because all servers of a process
/// share threads.
static LONGEST_NANOSECONDS: AtomicU64 = AtomicU64::new(0);

/// A task whose polls are measured.
pub(crate) struct Measured<F> {
    task: Pin<Box<F>>,
}

impl<F: Future> Measured<F> {
    pub fn new(task: F) -> Measured<F> {
        Measured { task: Box::pin(task) }
    }
}

impl<F: Future> Future for Measured<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        take_spent();
        let begin = thread_time();
        let polled = self.task.as_mut().poll(cx);
        let taken = thread_time().saturating_sub(begin).saturating_sub(take_spent());
        let nanoseconds = u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX);
        LONGEST_NANOSECONDS.fetch_max(nanoseconds, Ordering::Relaxed);
        if taken > POLL_TIME_MAX {
            tracing::warn!(milliseconds = taken.as_millis(), "a task held its worker thread");
        }
        polled
    }
}

/// Writes the longest poll since the last scrape; nothing if none was measured.
pub(crate) fn write(out: &mut Exposition) {
    let nanoseconds = LONGEST_NANOSECONDS.swap(0, Ordering::Relaxed);
    if nanoseconds > 0 {
        let seconds = Duration::from_nanos(nanoseconds).as_secs_f64();
        out.family(&LONGEST_POLL).value(&[], seconds);
    }
}

static LONGEST_POLL: Description = Description {
    name: "keelson_longest_poll_seconds",
    help: "Longest time that a task held a worker thread since the last scrape.",
    metric_type: MetricType::Gauge,
    labels: &[],
};

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_auth::off_worker;
    use std::future::{pending, poll_fn};
    use std::pin::pin;
    use std::time::Instant;

    fn work_for(time: Duration) {
        let begin = thread_time();
        let deadline = Instant::now() + Duration::from_secs(20);
        while thread_time() - begin < time && Instant::now() < deadline {}
    }

    /// One test, because the measurement is the process's.
    #[test]
    fn the_longest_poll_is_measured_without_work_off_the_worker() {
        let longest = || {
            let mut out = Exposition::default();
            write(&mut out);
            let text = out.finish();
            let line =
                text.lines().find_map(|line| line.strip_prefix("keelson_longest_poll_seconds "));
            line.map(|number| number.parse::<f64>().expect("a number"))
        };
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let long = poll_fn(|_| {
            work_for(Duration::from_millis(20));
            Poll::Ready(())
        });
        assert!(pin!(Measured::new(long)).poll(&mut cx).is_ready());
        assert!(longest().is_some_and(|seconds| seconds >= 0.02));
        assert_eq!(longest(), None, "a scrape begins anew");
        // Only a runtime with several threads has another one for the other tasks.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .expect("a runtime");
        let _entered = runtime.enter();
        let elsewhere = poll_fn(|_| {
            off_worker::run(|| work_for(Duration::from_millis(20)));
            Poll::Ready(())
        });
        assert!(pin!(Measured::new(elsewhere)).poll(&mut cx).is_ready());
        assert!(pin!(Measured::new(pending::<()>())).poll(&mut cx).is_pending());
        assert!(longest().is_some_and(|seconds| seconds < 0.01));
    }
}
