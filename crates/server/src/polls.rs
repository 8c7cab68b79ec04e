//! `--contention-profiling`: measures how long tasks hold a worker thread, in processor time. A task that holds its
//! thread delays every other task there, so no loop over a client's input or over stored objects may do so.

use keelson_metrics::{Description, Exposition, MetricType};
use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

/// A poll that is logged: the longest that a task should hold its thread.
const POLL_TIME_MAX: Duration = Duration::from_millis(10);

/// The longest poll since the last scrape, in nanoseconds. Static, because all servers of a process share threads.
static LONGEST_NANOSECONDS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Time of the current poll in which other tasks could run on another thread.
    static OFF_WORKER: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

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
        OFF_WORKER.set(Duration::ZERO);
        let begin = thread_time();
        let polled = self.task.as_mut().poll(cx);
        let taken = thread_time().saturating_sub(begin).saturating_sub(OFF_WORKER.get());
        let nanoseconds = u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX);
        LONGEST_NANOSECONDS.fetch_max(nanoseconds, Ordering::Relaxed);
        if taken > POLL_TIME_MAX {
            tracing::warn!(milliseconds = taken.as_millis(), "a task held its worker thread");
        }
        polled
    }
}

/// Runs work during which the other tasks of this thread run elsewhere: it does not count.
pub(crate) fn off_worker<T>(work: impl FnOnce() -> T) -> T {
    let begin = thread_time();
    let done = work();
    OFF_WORKER.set(OFF_WORKER.get() + thread_time().saturating_sub(begin));
    done
}

/// Returns the processor time of this thread.
fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default())
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
        let elsewhere = poll_fn(|_| {
            off_worker(|| work_for(Duration::from_millis(20)));
            Poll::Ready(())
        });
        assert!(pin!(Measured::new(elsewhere)).poll(&mut cx).is_ready());
        assert!(pin!(Measured::new(pending::<()>())).poll(&mut cx).is_pending());
        assert!(longest().is_some_and(|seconds| seconds < 0.01));
    }
}
