//! A server that is started for a measurement, on an empty folder, and ended after it.

use crate::client::{Ask, Client};
use crate::target::{Target, Trust};
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a server may take to be ready.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is asked.
const LOOK: Duration = Duration::from_millis(1);
const TOKEN: &str = "bench";

/// A running server of our own.
pub struct Spawned {
    child: Child,
    _dir: TempDir,
    /// Where it is.
    pub target: Arc<Target>,
}

impl Spawned {
    /// Starts it, and waits for the first 200 from /readyz; how long that took from the start of the
    /// process.
    pub async fn start(program: &Path, args: &str, http2: bool) -> Result<(Spawned, Duration)> {
        let dir = TempDir::new()?;
        let tokens = dir.path().join("tokens.csv");
        std::fs::write(&tokens, format!("{TOKEN},bench,bench,\"system:masters\"\n"))?;
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let fill = |word: &str| {
            word.replace("{dir}", &dir.path().display().to_string())
                .replace("{tokens}", &tokens.display().to_string())
                .replace("{port}", &port.to_string())
        };
        let url = format!("https://127.0.0.1:{port}");
        let target = Arc::new(Target::new(&url, &Trust::Anybody, None, Some(TOKEN), http2)?);
        let began = Instant::now();
        let child = Command::new(program)
            .args(args.split_whitespace().map(fill))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("--spawn: {}", program.display()))?;
        let mut spawned = Spawned { child, _dir: dir, target };
        while !is_ready(&spawned.target).await {
            if let Some(status) = spawned.child.try_wait()? {
                bail!("--spawn: the server ended: {status}");
            }
            if began.elapsed() > PATIENCE {
                bail!("--spawn: the server was not ready after {PATIENCE:?}");
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok((spawned, began.elapsed()))
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        // It holds nothing that is wanted; a failure leaves a process that the user sees.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn is_ready(target: &Arc<Target>) -> bool {
    let Ok(mut client) = Client::connect(target).await else { return false };
    client.call(Ask::get("/readyz")).await.is_ok_and(|(status, _)| status == 200)
}

/// Resident memory of a process, in MB.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// All that is resident.
    pub rss: f64,
    /// With pages that others share counted by their share.
    pub pss: f64,
}

impl Memory {
    /// As the kernel tells it now.
    pub fn of(pid: u32) -> Result<Memory> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let mb = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            let kib: f64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
            Some(kib * 1024.0 / 1e6)
        };
        let (rss, pss) = (mb("Rss:"), mb("Pss:"));
        Ok(Memory { rss: rss.context("Rss")?, pss: pss.context("Pss")? })
    }
}
