//! How long a server takes to be ready, and what it takes up when nothing happens.

use crate::report::Report;
use crate::server::{Memory, Spawned};
use anyhow::Result;
use std::path::Path;
use std::time::Duration;

/// How long a server does nothing before its memory is looked at.
const IDLE: Duration = Duration::from_secs(2);

/// Starts the program again and again, each time on an empty folder.
pub async fn run(program: &Path, args: &str, starts: usize, report: &mut Report) -> Result<()> {
    let (mut ready, mut rss, mut pss) = (vec![], vec![], vec![]);
    for _ in 0..starts.max(1) {
        let (server, took) = Spawned::start(program, args, false).await?;
        ready.push(took.as_secs_f64() * 1e3);
        tokio::time::sleep(IDLE).await;
        let memory = Memory::of(server.pid())?;
        rss.push(memory.rss);
        pss.push(memory.pss);
    }
    let name = "start, empty store";
    for (what, share) in [("p50", 0.5), ("max", 1.0)] {
        report.add(name, &format!("ready {what}"), "ms", quantile(&mut ready, share));
    }
    report.add(name, "RSS", "MB", quantile(&mut rss, 0.5));
    report.add(name, "PSS", "MB", quantile(&mut pss, 0.5));
    Ok(())
}

fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    values.get((last as f64 * share).round() as usize).copied().unwrap_or(f64::NAN)
}
