//! [`Victim`]: a server as it is attacked and measured.

use anyhow::Result;
use std::time::Duration;

/// What is attacked and measured.
pub trait Victim {
    /// Returns the process ID of the server.
    fn pid(&self) -> u32;

    /// Connects as an administrator.
    fn administrator(&self) -> Result<Box<dyn Administrator>>;

    /// Checks that the process still runs and that what was stored before is unchanged.
    fn check_canaries(&self) -> Result<()>;
}

/// The connection of an administrator.
pub trait Administrator: Send {
    /// Sends a request. Fails if the response is wrong.
    fn request(&mut self) -> Result<()>;

    /// Returns how long a task held a thread of the server since the last call, if it measures
    /// that.
    fn longest_poll(&mut self) -> Result<Option<Duration>>;
}

/// Returns the resident memory of a process, in KiB, or 0 if the process has ended.
pub fn memory_kb(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok()).unwrap_or(0)
}
