//! Sends requests as an administrator during an attack. Measures the response times and the memory
//! of the server, and reads how long its tasks held a thread.

use crate::victim::{Administrator, Victim, memory_kb};
use anyhow::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The interval of the requests.
const INTERVAL: Duration = Duration::from_millis(20);

/// The measurements during an attack.
#[derive(Debug, Default)]
pub struct Probe {
    pub responses: usize,
    pub longest_response: Duration,
    pub memory_max_kb: u64,
    /// The longest time that a task held a thread of the server; `None` if it does not measure
    /// that.
    pub longest_poll: Option<Duration>,
    /// Why the measurement ended early.
    pub error: Option<String>,
}

/// The thread that measures.
pub struct Prober {
    must_stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Probe>>,
}

impl Prober {
    /// Connects, and measures until [`Prober::stop`].
    pub fn start(target: &impl Victim) -> Prober {
        let must_stop: Arc<AtomicBool> = Arc::default();
        let stop = must_stop.clone();
        let pid = target.pid();
        let administrator = target.administrator();
        let thread = std::thread::spawn(move || {
            let mut probe = Probe::default();
            let result = administrator
                .and_then(|mut administrator| measure(&mut *administrator, pid, &stop, &mut probe));
            probe.error = result.err().map(|error| format!("{error:#}"));
            probe
        });
        Prober { must_stop, thread: Some(thread) }
    }

    /// Ends the thread and returns its measurements.
    pub fn stop(mut self) -> Probe {
        self.must_stop.store(true, Ordering::Relaxed);
        let result = self.thread.take().map(JoinHandle::join);
        let panicked =
            || Probe { error: Some("the prober panicked".to_owned()), ..Probe::default() };
        result.and_then(Result::ok).unwrap_or_else(panicked)
    }
}

fn measure(
    administrator: &mut dyn Administrator,
    pid: u32,
    must_stop: &AtomicBool,
    probe: &mut Probe,
) -> Result<()> {
    // The first request does the handshake, which is not measured.
    administrator.request()?;
    administrator.longest_poll()?;
    while !must_stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        administrator.request()?;
        probe.longest_response = probe.longest_response.max(start.elapsed());
        probe.responses += 1;
        probe.memory_max_kb = probe.memory_max_kb.max(memory_kb(pid));
        crate::pause(INTERVAL.saturating_sub(start.elapsed()));
    }
    probe.longest_poll = administrator.longest_poll()?;
    Ok(())
}
