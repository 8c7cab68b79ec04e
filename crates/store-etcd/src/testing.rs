//! A real etcd for a test: one member, on free ports, with its data in a temporary folder.
// A test cannot go on without its etcd: what fails here fails the test.
#![allow(clippy::missing_panics_doc, clippy::unwrap_used)]

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::time::sleep;

use crate::{EtcdOptions, EtcdStore, EtcdTls};

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

/// An etcd process. Dropping it kills it and takes its data away.
#[derive(Debug)]
pub struct EtcdProcess {
    dir: TempDir,
    files: Option<ServerFiles>,
    ports: [u16; 2],
    running: Option<Child>,
}

impl EtcdProcess {
    /// Starts etcd and waits until it answers; `None` when there is no etcd on this host.
    pub async fn start() -> Option<Self> {
        let mut etcd = Self::new(None)?;
        etcd.restart().await;
        Some(etcd)
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
        Some(Self { dir, files, ports, running: None })
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
        let began = Instant::now();
        loop {
            let options = EtcdOptions::new(vec![self.url()]);
            match EtcdStore::open(EtcdOptions { tls: EtcdTls::default(), ..options }).await {
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
            .args(["--name", "test", "--log-level", "panic", "--data-dir"])
            .arg(self.dir.path())
            .args(["--listen-client-urls", &self.url(), "--advertise-client-urls", &self.url()])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("test={peers}")])
            // One member elects itself; as many operations as the contract allows.
            .args(["--heartbeat-interval", "20", "--election-timeout", "200"])
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
