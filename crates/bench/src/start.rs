//! Time until a server is ready, and its idle memory.

use crate::report::Report;
use crate::server::{Program, SpawnedServer};
use anyhow::Result;
use std::time::Duration;

/// Idle time before memory is measured.
const IDLE: Duration = Duration::from_secs(2);

/// The values of several starts, in milliseconds or MB.
#[derive(Default)]
pub struct Starts {
    pub ready: Vec<f64>,
    pub rss: Vec<f64>,
    pub pss: Vec<f64>,
}

/// Starts the program `count` times, each time on an empty folder.
pub async fn starts(program: &Program, count: usize) -> Result<Starts> {
    let mut all = Starts::default();
    for _ in 0..count.max(1) {
        let server = SpawnedServer::start(program).await?;
        all.ready.push(server.ready.as_secs_f64() * 1e3);
        tokio::time::sleep(IDLE).await;
        let memory = server.processes().memory()?;
        all.rss.push(memory.rss);
        all.pss.push(memory.pss);
    }
    Ok(all)
}

/// Measures starts.
pub async fn run(program: &Program, count: usize, report: &mut Report) -> Result<()> {
    let all = starts(program, count).await?;
    let name = "start, empty store";
    for (what, share) in [("p50", 0.5), ("max", 1.0)] {
        report.add(name, &format!("ready {what}"), "ms", quantile(&all.ready, share));
    }
    report.add(name, "RSS", "MB", quantile(&all.rss, 0.5));
    report.add(name, "PSS", "MB", quantile(&all.pss, 0.5));
    Ok(())
}

/// Returns a quantile of the values; `share` is from 0 to 1.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    values.get((last as f64 * share).round() as usize).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_measured_values() {
        let values = [5.0, 1.0, 4.0, 2.0, 3.0];
        let check = |share, want| assert_eq!(quantile(&values, share), want, "{share}");
        check(0.0, 1.0);
        check(0.5, 3.0);
        check(1.0, 5.0);
        assert!(quantile(&[], 0.5).is_nan());
    }
}
