//! Requests `/livez` as an administrator during an attack. Measures the response times and the memory of
//! the server, and reads how long its tasks held a thread.

use crate::client::Connection;
use crate::target::{Target, memory_kb};
use anyhow::{Result, ensure};
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
    /// The longest time that a task held a thread of the server; `None` if it does not measure that.
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
    pub fn start(target: &Target) -> Prober {
        let must_stop: Arc<AtomicBool> = Arc::default();
        let (stop, pid) = (must_stop.clone(), target.pid());
        let connection = target.admin();
        let thread = std::thread::spawn(move || {
            let mut probe = Probe::default();
            let result =
                connection.and_then(|connection| measure(connection, pid, &stop, &mut probe));
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
    mut connection: Connection,
    pid: u32,
    must_stop: &AtomicBool,
    probe: &mut Probe,
) -> Result<()> {
    // The first request does the handshake, which is not measured.
    connection.get("/livez")?;
    // A scrape begins the measurement of polls anew.
    connection.get("/metrics")?;
    while !must_stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        let response = connection.get("/livez")?;
        probe.longest_response = probe.longest_response.max(start.elapsed());
        probe.responses += 1;
        probe.memory_max_kb = probe.memory_max_kb.max(memory_kb(pid));
        ensure!(response.status == 200, "/livez: {}", response.status);
        crate::pause(INTERVAL.saturating_sub(start.elapsed()));
    }
    probe.longest_poll = longest_poll(&connection.get("/metrics")?.body);
    Ok(())
}

fn longest_poll(metrics: &[u8]) -> Option<Duration> {
    let text = String::from_utf8_lossy(metrics);
    let value = text.lines().find_map(|line| line.strip_prefix("keelson_longest_poll_seconds "));
    value?.parse().ok().map(Duration::from_secs_f64)
}
