//! Memory and CPU time of the server's processes, from `/proc`.

use anyhow::{Context, Result};
use std::time::Duration;

/// The unit of CPU time in `/proc` (USER_HZ), on every kernel.
const TICK: Duration = Duration::from_millis(10);
/// The value for `clear_refs` that resets the peak of resident memory.
const RESET_PEAK: &str = "5";

/// The processes of one server: its own, and that of its store if there is one.
#[derive(Clone, Debug)]
pub struct Processes(pub Vec<u32>);

/// Resident memory, in MB.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    /// All resident pages.
    pub rss: f64,
    /// The proportional set size: shared pages count by their share.
    pub pss: f64,
}

impl Processes {
    /// Returns the resident memory.
    pub fn memory(&self) -> Result<Memory> {
        let mut all = Memory { rss: 0.0, pss: 0.0 };
        for pid in &self.0 {
            let text = read(*pid, "smaps_rollup")?;
            all.rss += megabytes(&text, "Rss:")?;
            all.pss += megabytes(&text, "Pss:")?;
        }
        Ok(all)
    }

    /// Returns the CPU time since the start of the processes.
    pub fn cpu(&self) -> Result<Duration> {
        let ticks = self.0.iter().map(|pid| ticks(&read(*pid, "stat")?));
        Ok(TICK * u32::try_from(ticks.sum::<Result<u64>>()?)?)
    }

    /// Returns the time that the threads which run now have had a processor, to the nanosecond.
    pub fn run_time(&self) -> Result<Duration> {
        let mut all = Duration::ZERO;
        for pid in &self.0 {
            let path = format!("/proc/{pid}/task");
            for task in std::fs::read_dir(&path).context(path)? {
                // A thread that has ended meanwhile does not count.
                let times = std::fs::read_to_string(task?.path().join("schedstat"));
                let first = times.ok().and_then(|text| text.split(' ').next()?.parse().ok());
                all += Duration::from_nanos(first.unwrap_or(0));
            }
        }
        Ok(all)
    }

    /// Returns the peak of resident memory since the last [`Processes::reset_peak`], in MB.
    pub fn peak(&self) -> Result<f64> {
        self.0.iter().map(|pid| megabytes(&read(*pid, "status")?, "VmHWM:")).sum()
    }

    /// Resets the peak of resident memory.
    pub fn reset_peak(&self) -> Result<()> {
        for pid in &self.0 {
            let path = format!("/proc/{pid}/clear_refs");
            std::fs::write(&path, RESET_PEAK).context(path)?;
        }
        Ok(())
    }
}

fn read(pid: u32, file: &str) -> Result<String> {
    let path = format!("/proc/{pid}/{file}");
    std::fs::read_to_string(&path).context(path)
}

/// Returns the value of a line like `VmHWM:    1024 kB`, in MB.
pub fn megabytes(text: &str, name: &str) -> Result<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    Ok(kib.with_context(|| format!("no {name} in /proc"))? * 1024.0 / 1e6)
}

/// Returns user plus system time of `/proc/PID/stat`. The program's name before them may contain
/// spaces and brackets.
fn ticks(stat: &str) -> Result<u64> {
    let (_, rest) = stat.rsplit_once(')').context("no name in /proc/PID/stat")?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    next().zip(next()).map(|(user, system)| user + system).context("no times in /proc/PID/stat")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_returned_in_units_of_a_million_bytes() {
        let text = "Name:\tkeelson\nVmHWM:\t   15625 kB\nVmRSS:\t    1000 kB\nThreads:\t3\n";
        assert_eq!(megabytes(text, "VmHWM:").expect("peak"), 16.0);
        assert_eq!(megabytes(text, "VmRSS:").expect("now"), 1.024);
        assert!(megabytes(text, "Threads:").is_err());
        assert!(megabytes(text, "VmSwap:").is_err());
    }

    #[test]
    fn times_are_found_after_any_program_name() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 120 34 0 0 20 0 3 0 100";
        assert_eq!(ticks(&format!("42 (keelson) {rest}")).expect("times"), 154);
        assert_eq!(ticks(&format!("42 (a b) (c) {rest}")).expect("times"), 154);
        assert!(ticks("42 keelson S 1 2").is_err());
        assert!(ticks("42 (keelson) S 1 2").is_err());
    }

    #[test]
    fn a_running_process_has_all_values() {
        let own = Processes(vec![std::process::id()]);
        own.reset_peak().expect("reset");
        let memory = own.memory().expect("memory");
        assert!(memory.rss >= memory.pss && memory.pss > 0.0, "{memory:?}");
        assert!(own.peak().expect("peak") > 0.0);
        own.cpu().expect("time");
        assert!(own.run_time().expect("time") > Duration::ZERO);
        assert!(Processes(vec![u32::MAX]).memory().is_err());
    }
}
