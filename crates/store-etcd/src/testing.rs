//! A real etcd for a test: one member or a few, on free ports, with data in temporary folders.
// A test cannot go on without its etcd: what fails here fails the test.
#![allow(clippy::missing_panics_doc, clippy::unwrap_used)]

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::time::sleep;

use crate::{EtcdOptions, EtcdStore};

/// How long etcd may take until it answers.
const START_TIME_MAX: Duration = Duration::from_secs(30);
/// Between two looks whether it answers.
const LOOK: Duration = Duration::from_millis(20);

/// Files with which etcd speaks TLS and asks its clients for certificates.
#[derive(Clone, Debug)]
pub struct ServerFiles {
    /// The authority of both sides.
    pub authority: PathBuf,
    /// The server's certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// An etcd process, a member of its cluster. Dropping it kills it and takes its data away.
#[derive(Debug)]
pub struct EtcdProcess {
    dir: TempDir,
    files: Option<ServerFiles>,
    /// For clients and for peers.
    ports: [u16; 2],
    /// Names and addresses of all members, as etcd's flag takes them.
    cluster: String,
    running: Option<Child>,
}

impl EtcdProcess {
    /// Starts etcd and waits until it answers; `None` when there is no etcd on this host.
    pub async fn start() -> Option<Self> {
        Some(Self::start_cluster(1).await?.remove(0))
    }

    /// Starts a cluster of so many members and waits until each of them answers.
    pub async fn start_cluster(size: usize) -> Option<Vec<Self>> {
        let members: Option<Vec<_>> = (0..size).map(|_| Self::new(None)).collect();
        let mut members = members?;
        let all: Vec<_> = members.iter().map(|member| member.cluster.clone()).collect();
        for member in &mut members {
            member.cluster = all.join(",");
            member.spawn();
        }
        for member in &members {
            member.answers().await;
        }
        Some(members)
    }

    /// Starts etcd with TLS. Whether it answers shows with the client's certificate only.
    pub fn start_tls(files: ServerFiles) -> Option<Self> {
        let mut etcd = Self::new(Some(files))?;
        etcd.spawn();
        Some(etcd)
    }

    fn new(files: Option<ServerFiles>) -> Option<Self> {
        let found = Command::new("etcd").arg("--version").stdout(Stdio::null()).status();
        found.ok()?;
        let dir = TempDir::new().unwrap();
        // Held together, so that they differ.
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = listeners.map(|listener| listener.local_addr().unwrap().port());
        let cluster = format!("{}=http://127.0.0.1:{}", ports[0], ports[1]);
        Some(Self { dir, files, ports, cluster, running: None })
    }

    /// Where clients reach it.
    pub fn url(&self) -> String {
        let scheme = if self.files.is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.ports[0])
    }

    /// Ends it as a power cut would.
    pub fn kill(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.kill().unwrap();
            running.wait().unwrap();
        }
    }

    /// Starts it (again) on the same data and waits until it answers.
    pub async fn restart(&mut self) {
        self.kill();
        self.spawn();
        self.answers().await;
    }

    async fn answers(&self) {
        let began = Instant::now();
        loop {
            match EtcdStore::open(EtcdOptions::new(vec![self.url()])).await {
                Ok(_) => return,
                Err(error) => assert!(began.elapsed() < START_TIME_MAX, "etcd: {error}"),
            }
            sleep(LOOK).await;
        }
    }

    fn spawn(&mut self) {
        let [_, peers] = self.ports.map(|port| format!("http://127.0.0.1:{port}"));
        let mut command = Command::new("etcd");
        command
            .args(["--name", &self.ports[0].to_string(), "--log-level", "panic"])
            .arg("--data-dir")
            .arg(self.dir.path())
            .args(["--listen-client-urls", &self.url(), "--advertise-client-urls", &self.url()])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &self.cluster])
            // A leader is elected soon, but not each time that the machine is busy; as many operations as the
            // contract allows.
            .args(["--heartbeat-interval", "50", "--election-timeout", "1000"])
            .args(["--max-txn-ops", &keelson_store::TXN_OPS_MAX.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
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
