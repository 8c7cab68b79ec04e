//! What the search for nodes needs from one pod to the next, and what it reports.

use keelson_meta::Str;
use std::collections::BTreeMap;

/// Where the next search begins, and randomness.
#[derive(Debug, Default)]
pub struct Search {
    pub next: usize,
    seed: u64,
}

impl Search {
    pub fn new(seed: u64) -> Search {
        Search { next: 0, seed }
    }

    /// Returns a number below `end` (xorshift).
    pub fn below(&mut self, end: usize) -> usize {
        self.seed |= 1;
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        usize::try_from(self.seed % u64::try_from(end.max(1)).unwrap_or(1)).unwrap_or(0)
    }
}

/// Returns the text about nodes: how many were rejected for which reason.
pub fn histogram(all: usize, reasons: impl Iterator<Item = (Str, usize)>) -> String {
    let mut counts: BTreeMap<Str, usize> = BTreeMap::new();
    for (reason, count) in reasons {
        *counts.entry(reason).or_default() += count;
    }
    let mut parts: Vec<String> =
        counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    parts.sort();
    format!("0/{all} nodes are available: {}.", parts.join(", "))
}
