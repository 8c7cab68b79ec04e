//! Work on long inputs, on a thread that serves other requests: its other tasks run on another
//! thread meanwhile. The time of such work is counted, so that a measurement of tasks that hold
//! their thread can leave it out.

use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::time::Duration;
use tokio::runtime::{Handle, RuntimeFlavor};

/// Largest input that is processed without leaving the thread to other tasks: it takes a few
/// milliseconds at most.
pub const SHORT_BYTES_MAX: usize = 32 << 10;

thread_local! {
    /// Processor time of work on this thread in which other tasks could run on another one.
    static SPENT: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Does short work on an input of `bytes` bytes. Work on a long one does not hold up the other
/// tasks of the thread.
pub fn compute<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes > SHORT_BYTES_MAX { run(work) } else { work() }
}

/// Does work after moving the other tasks of this thread to another thread.
pub fn run<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => {
            let spent = SPENT.get();
            let begin = thread_time();
            let done = tokio::task::block_in_place(work);
            // Such work within such work counts once.
            SPENT.set(spent + thread_time().saturating_sub(begin));
            done
        }
        // A single-threaded runtime has no other thread.
        _ => work(),
    }
}

/// Returns the processor time of such work on this thread since the last call.
pub fn take_spent() -> Duration {
    SPENT.take()
}

/// Returns the processor time of this thread.
pub fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const DEADLINE: Duration = Duration::from_secs(20);

    /// Long work blocks the only worker thread until another task has run.
    #[test]
    fn other_tasks_run_during_long_work() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .expect("a runtime");
        let (sender, receiver) = mpsc::channel();
        let (start_sender, start_receiver) = mpsc::channel();
        let long = runtime.spawn(async move {
            compute(SHORT_BYTES_MAX + 1, || {
                start_sender.send(()).expect("the test waits");
                receiver.recv_timeout(DEADLINE)
            })
        });
        start_receiver.recv_timeout(DEADLINE).expect("the work begins");
        runtime.spawn(async move { sender.send(7) });
        assert_eq!(runtime.block_on(long).expect("no panic"), Ok(7));
    }

    #[tokio::test]
    async fn a_single_threaded_runtime_does_long_work_too() {
        assert_eq!(compute(SHORT_BYTES_MAX + 1, || 7), 7);
        assert_eq!(compute(0, || 7), 7);
        assert_eq!(take_spent(), Duration::ZERO);
    }
}
