//! SIGINT and SIGTERM. The first one asks the server to stop; a second one, or a stop that takes
//! too long, ends the process. A thread of its own waits for them: it works while all threads of
//! the runtime are busy.

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;
use tokio::sync::watch;

/// Exit status of a process that did not wait for its requests, as kube-apiserver has it.
pub const FORCED_EXIT_STATUS: i32 = 1;

/// Becomes ready at the first signal.
pub struct StopSignal(watch::Receiver<bool>);

impl StopSignal {
    /// Waits for the first signal.
    pub async fn received(&mut self) {
        // The sender lives as long as the process.
        let _ = self.0.wait_for(|received| *received).await;
    }
}

/// Starts to listen for signals. After the first one the process has `stop_time_max` to end by
/// itself.
pub fn listen(stop_time_max: Duration) -> Result<StopSignal> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("listen for signals")?;
    let (send, received) = channel();
    let (stop, stop_signal) = watch::channel(false);
    let forward = move || {
        for signal in signals.forever() {
            if send.send(signal).is_err() {
                break;
            }
        }
    };
    let end = move || end_after(&received, &stop, stop_time_max, std::process::exit);
    let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
    thread("signals").spawn(forward).context("start a thread")?;
    thread("stop").spawn(end).context("start a thread")?;
    Ok(StopSignal(stop_signal))
}

/// Passes the first signal on. Then calls `exit`, at the second one or after `stop_time_max`.
fn end_after<T>(
    signals: &Receiver<i32>,
    stop: &watch::Sender<bool>,
    stop_time_max: Duration,
    exit: impl FnOnce(i32) -> T,
) {
    if signals.recv().is_err() {
        return;
    }
    stop.send_replace(true);
    match signals.recv_timeout(stop_time_max) {
        Ok(_) => tracing::warn!("second signal; exiting without waiting for requests"),
        Err(RecvTimeoutError::Timeout) => {
            tracing::error!(seconds = stop_time_max.as_secs(), "stop takes too long; exiting");
        }
        Err(RecvTimeoutError::Disconnected) => return,
    }
    exit(FORCED_EXIT_STATUS);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `end_after` with signals that have arrived already. Returns the exit status.
    fn status_after(count: usize, stop_time_max: Duration) -> (bool, Option<i32>) {
        let (send, signals) = channel();
        let (stop, stop_signal) = watch::channel(false);
        for _ in 0..count {
            send.send(SIGTERM).expect("a receiver");
        }
        let mut status = None;
        end_after(&signals, &stop, stop_time_max, |code| status = Some(code));
        (*stop_signal.borrow(), status)
    }

    #[test]
    fn a_second_signal_ends_the_process_at_once() {
        assert_eq!(status_after(2, Duration::MAX), (true, Some(FORCED_EXIT_STATUS)));
    }

    #[test]
    fn a_stop_that_takes_too_long_ends_the_process() {
        assert_eq!(status_after(1, Duration::from_millis(1)), (true, Some(FORCED_EXIT_STATUS)));
    }
}
