//! When to compact: keeps the history of a period of time. Time is an argument, for simulations.

use std::collections::VecDeque;
use std::time::Duration;

use crate::Revision;

/// The default period of history; kube-apiserver compacts every five minutes too.
const WINDOW_DEFAULT: Duration = Duration::from_secs(300);

/// Most marks. They are at least `window / MARKS_MAX` apart.
const MARKS_MAX: u32 = 64;

/// Computes the revision to compact through, so that the history of a period of time is kept.
///
/// ```
/// # use {keelson_store::{CompactionWindow, Revision}, std::time::Duration};
/// let minutes = |n: u64| Duration::from_secs(60 * n);
/// let mut window = CompactionWindow::new(minutes(5));
/// assert_eq!(window.observe(minutes(0), Revision(10)), None);
/// assert_eq!(window.observe(minutes(4), Revision(20)), None);
/// assert_eq!(window.observe(minutes(5), Revision(30)), Some(Revision(10)));
/// ```
#[derive(Clone, Debug)]
pub struct CompactionWindow {
    window: Duration,
    /// Invariant: times and revisions grow from front to back.
    marks: VecDeque<(Duration, Revision)>,
}

impl Default for CompactionWindow {
    fn default() -> Self {
        Self::new(WINDOW_DEFAULT)
    }
}

impl CompactionWindow {
    /// Keeps at least `window` of history, and little more if observed often enough.
    #[must_use]
    pub fn new(window: Duration) -> Self {
        Self { window, marks: VecDeque::new() }
    }

    /// Records that `revision` is the newest at `now` (time since any fixed moment). Returns the
    /// newest revision recorded at least a window ago, the first time that it is that old.
    pub fn observe(&mut self, now: Duration, revision: Revision) -> Option<Revision> {
        let apart = self.window / MARKS_MAX;
        let is_new =
            self.marks.back().is_none_or(|&(at, mark)| now >= at + apart && revision > mark);
        if is_new {
            self.marks.push_back((now, revision));
        }
        let mut through = None;
        while let Some(&(at, mark)) = self.marks.front()
            && at + self.window <= now
        {
            through = Some(mark);
            self.marks.pop_front();
        }
        through
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn history_of_the_window_is_kept() {
        let mut window = CompactionWindow::new(seconds(300));
        let mut through = Revision(0);
        for second in 0..2000 {
            if let Some(revision) = window.observe(seconds(second), Revision(1 + second * 10)) {
                assert!(revision > through, "{revision} after {through}");
                through = revision;
            }
            // What was written in the last 300 seconds has a revision above this.
            let keep = 1 + second.saturating_sub(300) * 10;
            assert!(through.0 <= keep, "second {second}: compacted through {through}");
            assert!(through.0 + 60 >= keep, "second {second}: only through {through}");
        }
    }

    #[test]
    fn an_idle_store_is_compacted_once() {
        let mut window = CompactionWindow::new(seconds(10));
        let answers: Vec<_> =
            (0..100).filter_map(|second| window.observe(seconds(second), Revision(7))).collect();
        assert!(answers.iter().all(|revision| *revision == Revision(7)));
        assert!(window.marks.len() <= 1);
    }

    #[test]
    fn marks_are_bounded() {
        let mut window = CompactionWindow::new(seconds(300));
        for milli in 0..900_000 {
            window.observe(Duration::from_millis(milli), Revision(milli));
            assert!(window.marks.len() <= MARKS_MAX as usize + 1);
        }
    }
}
