//! Real etcd processes for tests: one member or a few, on free ports, with data in temporary
//! folders.
// A failure here fails the test.
#![allow(clippy::missing_panics_doc, clippy::unwrap_used)]

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::{NamedTempFile, TempDir};
use tokio::time::sleep;

use crate::{EtcdOptions, EtcdStore};

/// Time limit for etcd to start, and to find its leader, on a busy machine.
const START_TIME_MAX: Duration = Duration::from_secs(120);
/// Lines of etcd's log that a failure shows.
const LOG_LINES: usize = 20;
/// Interval between checks whether etcd responds.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Certificate files for an etcd that requires client certificates.
#[derive(Clone, Debug)]
pub struct ServerFiles {
    /// The authority of both sides.
    pub authority: PathBuf,
    /// The server's certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// An etcd process, a member of its cluster. Dropping it kills it and removes its data.
#[derive(Debug)]
pub struct EtcdProcess {
    dir: TempDir,
    /// What it has written; outside of its folder, whose disk may be full.
    log: NamedTempFile,
    program: PathBuf,
    files: Option<ServerFiles>,
    /// Ports for clients and for peers.
    ports: [u16; 2],
    /// The port at which its peers reach it.
    advertised: u16,
    /// Value of etcd's flag `--initial-cluster`.
    cluster: String,
    running: Option<Child>,
}

impl EtcdProcess {
    /// Starts etcd, a path or a name on the PATH, and waits until it responds; `None` if there is
    /// no such program.
    pub async fn start(program: &Path) -> Option<Self> {
        Some(Self::start_cluster(program, 1).await?.remove(0))
    }

    /// Starts a cluster of `size` members and waits until each of them responds.
    pub async fn start_cluster(program: &Path, size: usize) -> Option<Vec<Self>> {
        Self::start_cluster_behind(program, size, |port| port).await
    }

    /// Like [`EtcdProcess::start_cluster`]; the members reach each other at the port that `front`
    /// returns for the own port of each.
    pub async fn start_cluster_behind(
        program: &Path,
        size: usize,
        front: impl Fn(u16) -> u16,
    ) -> Option<Vec<Self>> {
        let members: Option<Vec<_>> = (0..size).map(|_| Self::new(program, None)).collect();
        let mut members = members?;
        for member in &mut members {
            member.advertised = front(member.ports[1]);
            member.cluster = format!("{}=http://127.0.0.1:{}", member.name(), member.advertised);
        }
        let all: Vec<_> = members.iter().map(|member| member.cluster.clone()).collect();
        for member in &mut members {
            member.cluster = all.join(",");
            member.spawn();
        }
        for member in &members {
            member.wait_until_ready().await;
        }
        Some(members)
    }

    /// Starts etcd with TLS. Does not wait, because checking it needs the client's certificate.
    pub fn start_tls(program: &Path, files: ServerFiles) -> Option<Self> {
        let mut etcd = Self::new(program, Some(files))?;
        etcd.spawn();
        Some(etcd)
    }

    fn new(program: &Path, files: Option<ServerFiles>) -> Option<Self> {
        let found = Command::new(program).arg("--version").stdout(Stdio::null()).status();
        found.ok()?;
        let dir = TempDir::new().unwrap();
        // Both are open at the same time, so that the ports differ.
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = listeners.map(|listener| listener.local_addr().unwrap().port());
        let cluster = format!("{}=http://127.0.0.1:{}", ports[0], ports[1]);
        let program = program.to_owned();
        let log = NamedTempFile::new().unwrap();
        Some(Self { dir, log, program, files, ports, advertised: ports[1], cluster, running: None })
    }

    /// Returns the name in its cluster.
    pub fn name(&self) -> String {
        self.ports[0].to_string()
    }

    /// Returns the own port for peers.
    pub fn peer_port(&self) -> u16 {
        self.ports[1]
    }

    /// Stops the process for some time, and continues it: the signals STOP and CONT.
    pub fn signal(&self, name: &str) {
        if let Some(running) = &self.running {
            let pid = running.id().to_string();
            let sent = Command::new("kill").args(["-s", name, &pid]).status().unwrap();
            assert!(sent.success());
        }
    }

    /// Returns the URL for clients.
    pub fn url(&self) -> String {
        let scheme = if self.files.is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.ports[0])
    }

    /// Returns the folder with its data.
    pub fn data_dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns whether the process has neither been killed nor ended itself.
    pub fn runs(&mut self) -> bool {
        self.running.as_mut().is_some_and(|running| matches!(running.try_wait(), Ok(None)))
    }

    /// Kills the process, as a power cut would.
    pub fn kill(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.kill().unwrap();
            running.wait().unwrap();
        }
    }

    /// Restarts etcd on the same data and waits until it responds.
    pub async fn restart(&mut self) {
        self.kill();
        self.spawn();
        self.wait_until_ready().await;
    }

    /// Returns the end of what it has written.
    fn last_lines(&self) -> String {
        let log = std::fs::read(self.log.path()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }

    async fn wait_until_ready(&self) {
        let start = Instant::now();
        loop {
            match EtcdStore::open(EtcdOptions::new(vec![self.url()])).await {
                Ok(_) => return,
                Err(error) => assert!(
                    start.elapsed() < START_TIME_MAX,
                    "etcd: {error}\n{}",
                    self.last_lines()
                ),
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    fn spawn(&mut self) {
        let [peers, advertised] =
            [self.ports[1], self.advertised].map(|port| format!("http://127.0.0.1:{port}"));
        let mut command = Command::new(&self.program);
        command
            .args(["--name", &self.name(), "--log-level", "error"])
            .arg("--data-dir")
            .arg(self.dir.path())
            .args(["--listen-client-urls", &self.url(), "--advertise-client-urls", &self.url()])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &advertised])
            .args(["--initial-cluster", &self.cluster])
            // Elects a leader fast, but not whenever the machine is busy.
            .args(["--heartbeat-interval", "50", "--election-timeout", "1000"])
            // Else the logs of half an hour of writes fill the disk of a test.
            .args(["--max-wals", "2", "--max-snapshots", "2"])
            .args(["--max-txn-ops", &keelson_store::TXN_OPS_MAX.to_string()])
            .stdout(Stdio::null())
            .stderr(self.log.reopen().unwrap());
        // etcd ends when a setting is in its environment and among its flags.
        let names = std::env::vars_os().map(|(name, _)| name);
        for name in names.filter(|name| name.as_encoded_bytes().starts_with(b"ETCD_")) {
            command.env_remove(name);
        }
        if let Some(files) = &self.files {
            command.args(["--client-cert-auth", "--trusted-ca-file"]).arg(&files.authority);
            command.arg("--cert-file").arg(&files.certificate);
            command.arg("--key-file").arg(&files.key);
        }
        self.running = Some(command.spawn().unwrap());
    }
}

impl Drop for EtcdProcess {
    fn drop(&mut self) {
        self.kill();
    }
}
