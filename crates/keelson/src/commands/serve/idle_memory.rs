//! Gives memory back when a server that did something has nothing to do.
//!
//! A thread gives back pages of what was freed only while it allocates itself. What others freed of
//! it, and what it freed last, it keeps as long as it is idle: after a start half a megabyte.

use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How often the server's processor time is looked at.
const INTERVAL: Duration = Duration::from_secs(1);
/// Processor time in an interval in which a server has nothing to do: leases are renewed, and
/// somebody asks whether it is there.
const IDLE_TIME_MAX: Duration = Duration::from_millis(10);
/// Intervals after which it is taken for idle.
const INTERVALS: u32 = 3;

/// How many times all threads were asked to give memory back.
static ASKED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// How many times this thread was.
    static HEARD: Cell<usize> = const { Cell::new(0) };
}

/// Is called by each thread of the runtime before it waits.
pub fn before_waiting() {
    let asked = ASKED.load(Ordering::Relaxed);
    if HEARD.replace(asked) != asked {
        keelson_platform::allocator::give_back_now();
    }
}

/// Asks all threads to give memory back when the server is idle. Runs on the thread that started
/// the runtime, which has no other task.
pub async fn run() {
    let mut idleness = Idleness::default();
    // The start was work, too.
    let mut before = Duration::ZERO;
    loop {
        tokio::time::sleep(INTERVAL).await;
        let now = processor_time();
        let took = now.saturating_sub(before);
        before = now;
        if !idleness.begins(took) {
            continue;
        }
        ASKED.fetch_add(1, Ordering::Relaxed);
        before_waiting();
        // Wakes threads that wait.
        let threads = tokio::runtime::Handle::current().metrics().num_workers();
        for _ in 0..2 * threads {
            tokio::spawn(tokio::task::yield_now());
        }
        // With many objects that takes longer than an idle server may: it is no work.
        tokio::time::sleep(INTERVAL).await;
        before = processor_time();
    }
}

/// Whether a server is idle. A state machine without a clock.
#[derive(Default)]
struct Idleness {
    /// Intervals since it did something.
    intervals: u32,
    /// Whether it did something since it was idle last.
    was_busy: bool,
}

impl Idleness {
    /// Takes the processor time of an interval. Returns whether the server is idle now and was not
    /// before.
    fn begins(&mut self, took: Duration) -> bool {
        if took > IDLE_TIME_MAX {
            *self = Idleness { intervals: 0, was_busy: true };
            return false;
        }
        self.intervals = self.intervals.saturating_add(1);
        let begins = self.was_busy && self.intervals >= INTERVALS;
        self.was_busy &= !begins;
        begins
    }
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_once_after_work() {
        let mut idleness = Idleness::default();
        let mut begins =
            |millis: [u64; 6]| millis.map(|millis| idleness.begins(Duration::from_millis(millis)));
        assert_eq!(begins([0; 6]), [false; 6], "it has done nothing");
        assert_eq!(begins([11, 10, 0, 10, 0, 0]), [false, false, false, true, false, false]);
        // A pause is not yet idleness.
        assert_eq!(begins([900, 0, 0, 900, 0, 0]), [false; 6]);
        assert_eq!(begins([0; 6]), [true, false, false, false, false, false]);
    }
}
