//! The administrator, who asks `/livez` all the time and notes how long each answer took; and the memory
//! of the server meanwhile.

use crate::client::Connection;
use crate::target::{Target, memory_kb};
use anyhow::{Result, ensure};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two questions.
const PERIOD: Duration = Duration::from_millis(20);

/// What the administrator felt of an attack.
#[derive(Debug, Default)]
pub struct Felt {
    pub answers: usize,
    pub longest: Duration,
    pub memory_kb: u64,
    pub fault: Option<String>,
}

/// An administrator at work.
pub struct Prober {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Felt>>,
}

impl Prober {
    /// Connects, and goes on until told to stop.
    pub fn start(target: &Target) -> Prober {
        let is_over: Arc<AtomicBool> = Arc::default();
        let (over, pid) = (is_over.clone(), target.pid());
        let connection = target.admin();
        let thread = std::thread::spawn(move || {
            let mut felt = Felt::default();
            let done = connection.and_then(|connection| probe(connection, pid, &over, &mut felt));
            felt.fault = done.err().map(|error| format!("{error:#}"));
            felt
        });
        Prober { is_over, thread: Some(thread) }
    }

    /// What was felt.
    pub fn stop(mut self) -> Felt {
        self.is_over.store(true, Ordering::Relaxed);
        let thread = self.thread.take().map(JoinHandle::join);
        let gone = || Felt { fault: Some("the prober died".to_owned()), ..Felt::default() };
        thread.and_then(Result::ok).unwrap_or_else(gone)
    }
}

fn probe(
    mut connection: Connection,
    pid: u32,
    is_over: &AtomicBool,
    felt: &mut Felt,
) -> Result<()> {
    // The handshake is not what is measured.
    connection.get("/livez")?;
    while !is_over.load(Ordering::Relaxed) {
        let began = Instant::now();
        let answer = connection.get("/livez")?;
        felt.longest = felt.longest.max(began.elapsed());
        felt.answers += 1;
        felt.memory_kb = felt.memory_kb.max(memory_kb(pid));
        ensure!(answer.status == 200, "/livez: {}", answer.status);
        crate::pause(PERIOD.saturating_sub(began.elapsed()));
    }
    Ok(())
}
