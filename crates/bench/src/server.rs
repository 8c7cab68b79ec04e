//! A server that is started for a measurement, on a folder of its own, and ended after it.

use crate::client::{Ask, Client};
use crate::process::Processes;
use crate::target::{Target, Trust};
use anyhow::{Context, Result, bail};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a server may take to be ready, or to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is asked.
const LOOK: Duration = Duration::from_millis(1);
const TOKEN: &str = "bench";

/// How a server is started.
#[derive(Clone, Debug)]
pub struct Program {
    /// The file.
    pub path: PathBuf,
    /// Its arguments, with `{dir}`, `{port}` and `{tokens}` to be filled in.
    pub args: String,
    /// How it is spoken to.
    pub http2: bool,
}

/// A running server of our own.
pub struct Spawned {
    child: Ended,
    program: Program,
    dir: TempDir,
    /// Where it is.
    pub target: Arc<Target>,
    /// How long it took from the start of the process to the first 200 from /readyz.
    pub ready: Duration,
}

impl Spawned {
    /// Starts it on an empty folder.
    pub async fn start(program: &Program) -> Result<Spawned> {
        Spawned::start_in(program, TempDir::new()?).await
    }

    /// Ends it as an operator does, and starts it again on what it left.
    pub async fn restart(mut self) -> Result<Spawned> {
        let asked = Command::new("kill").arg(self.child.0.id().to_string()).status()?;
        anyhow::ensure!(asked.success(), "kill: {asked}");
        let began = Instant::now();
        while self.child.0.try_wait()?.is_none() {
            anyhow::ensure!(began.elapsed() < PATIENCE, "the server did not end in {PATIENCE:?}");
            tokio::time::sleep(LOOK).await;
        }
        let Spawned { program, dir, .. } = self;
        Spawned::start_in(&program, dir).await
    }

    async fn start_in(program: &Program, dir: TempDir) -> Result<Spawned> {
        let tokens = dir.path().join("tokens.csv");
        std::fs::write(&tokens, format!("{TOKEN},bench,bench,\"system:masters\"\n"))?;
        let [port] = free_ports()?;
        let fill = |word: &str| {
            word.replace("{dir}", &dir.path().display().to_string())
                .replace("{tokens}", &tokens.display().to_string())
                .replace("{port}", &port.to_string())
        };
        let url = format!("https://127.0.0.1:{port}");
        let target = Target::new(&url, &Trust::Anybody, None, Some(TOKEN), program.http2)?;
        let target = Arc::new(target);
        let began = Instant::now();
        let child = Command::new(&program.path)
            .args(program.args.split_whitespace().map(fill))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("--spawn: {}", program.path.display()))?;
        // Ends the process too when it never gets ready.
        let mut child = Ended(child);
        while !is_ready(&target).await {
            if let Some(status) = child.0.try_wait()? {
                bail!("--spawn: the server ended: {status}");
            }
            if began.elapsed() > PATIENCE {
                bail!("--spawn: the server was not ready after {PATIENCE:?}");
            }
            tokio::time::sleep(LOOK).await;
        }
        let ready = began.elapsed();
        Ok(Spawned { child, program: program.clone(), dir, target, ready })
    }

    /// Its process.
    pub fn processes(&self) -> Processes {
        Processes(vec![self.child.0.id()])
    }
}

/// Ports that nobody listens on.
pub fn free_ports<const N: usize>() -> std::io::Result<[u16; N]> {
    // Held together, so that they differ.
    let bound = std::iter::repeat_with(|| TcpListener::bind("127.0.0.1:0")).take(N);
    let listeners: Vec<TcpListener> = bound.collect::<std::io::Result<_>>()?;
    let mut ports = [0; N];
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

/// A process that does not outlive this value.
pub struct Ended(pub Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It holds nothing that is wanted; a failure leaves a process that the user sees.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn is_ready(target: &Arc<Target>) -> bool {
    let Ok(mut client) = Client::connect(target).await else { return false };
    client.must(Ask::get("/readyz")).await.is_ok()
}
