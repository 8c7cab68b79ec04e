//! The table of a run.

use crate::attacks::Outcome;
use crate::prober::Felt;
use anyhow::Result;
use std::time::Duration;

/// What may be felt of an attack.
pub struct Bounds {
    pub latency: Duration,
    pub memory_kb: u64,
    /// Whether known faults count.
    pub is_strict: bool,
}

/// One attack and what came of it.
pub struct Row {
    pub name: &'static str,
    pub known: Option<&'static str>,
    pub took: Duration,
    pub memory_before_kb: u64,
    pub outcome: Result<Outcome>,
    pub felt: Felt,
}

/// The first line.
pub fn head() -> String {
    format!(
        "{:30} {:>7} {:>6} {:>9} {:>7} {:>7}  {}",
        "attack", "seconds", "sent", "p100 ms", "MB from", "to", "result"
    )
}

impl Row {
    /// What went wrong.
    fn faults(&self, bounds: &Bounds) -> Vec<String> {
        let mut faults = vec![];
        if let Err(error) = &self.outcome {
            faults.push(format!("{error:#}"));
        }
        if let Some(fault) = &self.felt.fault {
            faults.push(format!("the administrator: {fault}"));
        }
        if self.felt.longest > bounds.latency {
            faults.push("too slow".to_owned());
        }
        if self.felt.memory_kb > bounds.memory_kb {
            faults.push("too much memory".to_owned());
        }
        faults
    }

    /// Whether something went wrong, known or not.
    pub fn has_fault(&self, bounds: &Bounds) -> bool {
        !self.faults(bounds).is_empty()
    }

    /// Whether the run may pass.
    pub fn is_fine(&self, bounds: &Bounds) -> bool {
        !self.has_fault(bounds) || (self.known.is_some() && !bounds.is_strict)
    }

    /// A line of the table.
    pub fn line(&self, bounds: &Bounds) -> String {
        let faults = self.faults(bounds);
        let (sent, note) = match &self.outcome {
            Ok(outcome) => (outcome.sent, outcome.note.clone()),
            Err(_) => (0, String::new()),
        };
        let result = match (faults.is_empty(), self.known) {
            (true, None) => format!("ok {note}"),
            (true, Some(known)) => format!("ok {note} (known fault does not show: {known})"),
            (false, Some(known)) if !bounds.is_strict => {
                format!("known fault ({known}): {}", faults.join("; "))
            }
            (false, _) => format!("FAILED: {}", faults.join("; ")),
        };
        format!(
            "{:30} {:>7.1} {:>6} {:>9.1} {:>7} {:>7}  {result}",
            self.name,
            self.took.as_secs_f64(),
            sent,
            self.felt.longest.as_secs_f64() * 1000.0,
            self.memory_before_kb / 1024,
            self.felt.memory_kb / 1024,
        )
    }
}
