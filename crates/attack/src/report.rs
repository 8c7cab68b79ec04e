//! The table that a run prints.

use crate::attack::Outcome;
use crate::prober::Probe;
use anyhow::Result;
use std::time::Duration;

/// Limits on the measurements.
pub struct Limits {
    /// The longest response time.
    pub latency: Duration,
    /// The maximum of the resident memory.
    pub memory_kb: u64,
    /// Whether known faults fail the run.
    pub is_strict: bool,
}

/// One attack and its results.
pub struct Row {
    pub name: &'static str,
    pub known_fault: Option<&'static str>,
    pub duration: Duration,
    pub memory_before_kb: u64,
    pub outcome: Result<Outcome>,
    pub probe: Probe,
}

/// Returns the line with the names of the columns.
pub fn header() -> String {
    format!(
        "{:30} {:>7} {:>6} {:>9} {:>9} {:>7} {:>7}  {}",
        "attack", "seconds", "sent", "p100 ms", "poll ms", "MB from", "to", "result"
    )
}

impl Row {
    /// Returns the faults of the attack, known or not.
    fn faults(&self, limits: &Limits) -> Vec<String> {
        let mut faults = vec![];
        if let Err(error) = &self.outcome {
            faults.push(format!("{error:#}"));
        }
        if let Some(error) = &self.probe.error {
            faults.push(format!("the administrator: {error}"));
        }
        // A short attack is over before the first of its requests.
        if self.probe.responses == 0 && self.duration > limits.latency {
            faults.push("the administrator got no response".to_owned());
        }
        if self.probe.longest_response > limits.latency {
            faults.push("too slow".to_owned());
        }
        if self.probe.memory_max_kb > limits.memory_kb {
            faults.push("too much memory".to_owned());
        }
        faults
    }

    /// Returns whether there is a fault, known or not.
    pub fn has_fault(&self, limits: &Limits) -> bool {
        !self.faults(limits).is_empty()
    }

    /// Returns whether there is no fault that fails the run.
    pub fn passed(&self, limits: &Limits) -> bool {
        !self.has_fault(limits) || (self.known_fault.is_some() && !limits.is_strict)
    }

    /// Returns the line of the table.
    pub fn line(&self, limits: &Limits) -> String {
        let faults = self.faults(limits);
        let (sent, note) = match &self.outcome {
            Ok(outcome) => (outcome.sent, outcome.note.clone()),
            Err(_) => (0, String::new()),
        };
        let result = match (faults.is_empty(), self.known_fault) {
            (true, None) => format!("ok {note}"),
            (true, Some(known)) => format!("ok {note} (known fault did not occur: {known})"),
            (false, Some(known)) if !limits.is_strict => {
                format!("known fault ({known}): {}", faults.join("; "))
            }
            (false, _) => format!("FAILED: {}", faults.join("; ")),
        };
        format!(
            "{:30} {:>7.1} {:>6} {:>9.1} {:>9.1} {:>7} {:>7}  {result}",
            self.name,
            self.duration.as_secs_f64(),
            sent,
            self.probe.longest_response.as_secs_f64() * 1000.0,
            self.probe.longest_poll.unwrap_or_default().as_secs_f64() * 1000.0,
            self.memory_before_kb / 1024,
            self.probe.memory_max_kb / 1024,
        )
    }
}
