//! What the kernel tells of the processes of a server: their memory, and the time they had on a core.

use anyhow::{Context, Result};
use std::time::Duration;

/// The kernel counts time in hundredths of a second, whatever its own clock does.
const TICK: Duration = Duration::from_millis(10);
/// Tells the kernel that the highest memory so far is forgotten.
const FORGET_PEAK: &str = "5";

/// The processes that are one server: itself, and its store where that is another program.
#[derive(Clone, Debug)]
pub struct Processes(pub Vec<u32>);

/// Resident memory, in MB.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    /// All that is resident.
    pub rss: f64,
    /// With pages that others share counted by their share.
    pub pss: f64,
}

impl Processes {
    /// Resident memory now.
    pub fn memory(&self) -> Result<Memory> {
        let mut all = Memory { rss: 0.0, pss: 0.0 };
        for pid in &self.0 {
            let text = read(*pid, "smaps_rollup")?;
            all.rss += megabytes(&text, "Rss:")?;
            all.pss += megabytes(&text, "Pss:")?;
        }
        Ok(all)
    }

    /// Time on a core since they began.
    pub fn cpu(&self) -> Result<Duration> {
        let ticks = self.0.iter().map(|pid| ticks(&read(*pid, "stat")?));
        Ok(TICK * u32::try_from(ticks.sum::<Result<u64>>()?)?)
    }

    /// The most that was resident since the last [`Processes::forget_peak`], in MB.
    pub fn peak(&self) -> Result<f64> {
        self.0.iter().map(|pid| megabytes(&read(*pid, "status")?, "VmHWM:")).sum()
    }

    /// From here on the peak is counted anew.
    pub fn forget_peak(&self) -> Result<()> {
        for pid in &self.0 {
            let path = format!("/proc/{pid}/clear_refs");
            std::fs::write(&path, FORGET_PEAK).context(path)?;
        }
        Ok(())
    }
}

fn read(pid: u32, file: &str) -> Result<String> {
    let path = format!("/proc/{pid}/{file}");
    std::fs::read_to_string(&path).context(path)
}

/// The value of a line like `VmHWM:    1024 kB`.
pub fn megabytes(text: &str, name: &str) -> Result<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    Ok(kib.with_context(|| format!("no {name} in /proc"))? * 1024.0 / 1e6)
}

/// User and system time of `/proc/PID/stat`; the program's name before them may hold spaces and brackets.
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
    fn lines_of_proc_are_read_in_units_of_ten_to_the_sixth() {
        let text = "Name:\tkeelson\nVmHWM:\t   15625 kB\nVmRSS:\t    1000 kB\nThreads:\t3\n";
        assert_eq!(megabytes(text, "VmHWM:").expect("peak"), 16.0);
        assert_eq!(megabytes(text, "VmRSS:").expect("now"), 1.024);
        assert!(megabytes(text, "Threads:").is_err());
        assert!(megabytes(text, "VmSwap:").is_err());
    }

    #[test]
    fn times_are_found_behind_any_name() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 120 34 0 0 20 0 3 0 100";
        assert_eq!(ticks(&format!("42 (keelson) {rest}")).expect("times"), 154);
        assert_eq!(ticks(&format!("42 (a b) (c) {rest}")).expect("times"), 154);
        assert!(ticks("42 keelson S 1 2").is_err());
        assert!(ticks("42 (keelson) S 1 2").is_err());
    }

    #[test]
    fn a_process_that_runs_has_all_figures() {
        let own = Processes(vec![std::process::id()]);
        own.forget_peak().expect("forget");
        let memory = own.memory().expect("memory");
        assert!(memory.rss >= memory.pss && memory.pss > 0.0, "{memory:?}");
        assert!(own.peak().expect("peak") > 0.0);
        own.cpu().expect("time");
        assert!(Processes(vec![u32::MAX]).memory().is_err());
    }
}
