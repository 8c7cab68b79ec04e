//! Starts a server for a measurement, on a temporary folder, and kills it afterwards.

use crate::client::{ApiRequest, Client};
use crate::process::Processes;
use crate::target::{Target, Trust};
use anyhow::{Context, Result, bail};
use rcgen::KeyPair;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Timeout of the start and the end of a server.
const READY_TIME_MAX: Duration = Duration::from_secs(60);
/// Interval of the readiness checks, and of those of the end.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// The interval of readiness checks is a start's time until then over this, if that is more: each
/// is a handshake, and many of them would slow down the start that they measure.
const POLLS_EACH: u32 = 64;
const TOKEN: &str = "bench";

/// A server program.
#[derive(Clone, Debug)]
pub struct Program {
    /// The executable.
    pub path: PathBuf,
    /// The arguments, with the placeholders `{dir}`, `{port}`, `{tokens}`, `{key}` and
    /// `{public-key}`.
    pub args: String,
    /// Whether to use HTTP/2.
    pub http2: bool,
}

/// A running server. It is killed on drop.
pub struct SpawnedServer {
    child: KillOnDrop,
    program: Program,
    dir: TempDir,
    /// Its address and credentials.
    pub target: Arc<Target>,
    /// Time from the start of the process to the first 200 of /readyz.
    pub ready: Duration,
}

impl SpawnedServer {
    /// Starts a server on an empty folder.
    pub async fn start(program: &Program) -> Result<SpawnedServer> {
        SpawnedServer::start_in(program, TempDir::new()?).await
    }

    /// Stops the server with SIGTERM, and starts it again on the same folder.
    pub async fn restart(self) -> Result<SpawnedServer> {
        self.stop().await?.start().await
    }

    /// Stops the server with SIGTERM.
    pub async fn stop(mut self) -> Result<StoppedServer> {
        let status = Command::new("kill").arg(self.child.0.id().to_string()).status()?;
        anyhow::ensure!(status.success(), "kill: {status}");
        let began = Instant::now();
        while self.child.0.try_wait()?.is_none() {
            anyhow::ensure!(
                began.elapsed() < READY_TIME_MAX,
                "the server did not end in {READY_TIME_MAX:?}"
            );
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let SpawnedServer { program, dir, .. } = self;
        Ok(StoppedServer { program, dir })
    }

    async fn start_in(program: &Program, dir: TempDir) -> Result<SpawnedServer> {
        let tokens = dir.path().join("tokens.csv");
        std::fs::write(&tokens, format!("{TOKEN},bench,bench,\"system:masters\"\n"))?;
        let key = dir.path().join("signing.key");
        let pair = KeyPair::generate()?;
        std::fs::write(&key, pair.serialize_pem())?;
        let public_key = dir.path().join("signing.pub");
        std::fs::write(&public_key, pair.public_key_pem())?;
        let [port] = free_ports()?;
        let fill = |word: &str| {
            word.replace("{dir}", &dir.path().display().to_string())
                .replace("{tokens}", &tokens.display().to_string())
                .replace("{key}", &key.display().to_string())
                .replace("{public-key}", &public_key.display().to_string())
                .replace("{port}", &port.to_string())
        };
        let url = format!("https://127.0.0.1:{port}");
        let target = Target::new(&url, &Trust::AnyCertificate, None, Some(TOKEN), program.http2)?;
        let target = Arc::new(target);
        let began = Instant::now();
        let child = Command::new(&program.path)
            .args(program.args.split_whitespace().map(fill))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("--spawn: {}", program.path.display()))?;
        // Also kills the process when it never gets ready.
        let mut child = KillOnDrop(child);
        while !is_ready(&target).await {
            if let Some(status) = child.0.try_wait()? {
                bail!("--spawn: the server ended: {status}");
            }
            if began.elapsed() > READY_TIME_MAX {
                bail!("--spawn: the server was not ready after {READY_TIME_MAX:?}");
            }
            tokio::time::sleep(POLL_INTERVAL.max(began.elapsed() / POLLS_EACH)).await;
        }
        let ready = began.elapsed();
        Ok(SpawnedServer { child, program: program.clone(), dir, target, ready })
    }

    /// Returns the process of the server.
    pub fn processes(&self) -> Processes {
        Processes(vec![self.child.0.id()])
    }
}

/// Returns ports that nobody listens on.
pub fn free_ports<const N: usize>() -> std::io::Result<[u16; N]> {
    // All are bound at the same time, so that they differ.
    let bound = std::iter::repeat_with(|| TcpListener::bind("127.0.0.1:0")).take(N);
    let listeners: Vec<TcpListener> = bound.collect::<std::io::Result<_>>()?;
    let mut ports = [0; N];
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

/// A process that is killed on drop.
pub struct KillOnDrop(pub Child);

/// A server that was stopped, with its folder.
pub struct StoppedServer {
    program: Program,
    dir: TempDir,
}

impl StoppedServer {
    /// Starts the server again.
    pub async fn start(self) -> Result<SpawnedServer> {
        SpawnedServer::start_in(&self.program, self.dir).await
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // A failure leaves a process behind, which the user can see.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn is_ready(target: &Arc<Target>) -> bool {
    let Ok(mut client) = Client::connect(target).await else { return false };
    client.require_success(ApiRequest::get("/readyz")).await.is_ok()
}
