//! The server that is attacked: how it is reached, and what must not be lost of it.

use crate::client::{Answer, Connection};
use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// Objects that are stored before and read after.
const WITNESSES: usize = 50;
/// Where they are.
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// A token that names a user who may do nothing.
pub const NOBODY: &str = "nobody-token";
/// A token of an administrator, for requests without a certificate.
pub const ADMIN: &str = "admin-token";

/// An authority whose key is known.
pub struct Authority {
    /// Its certificate.
    pub der: Vec<u8>,
    pub issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

/// A server on this host.
pub struct Target {
    pub address: SocketAddr,
    pub roots: Arc<RootCertStore>,
    /// Whose client certificates count, where this program started the server.
    pub clients: Option<Authority>,
    admin: Arc<ClientConfig>,
    pid: u32,
    /// Where the server was started by this program.
    started: Option<(Child, tempfile::TempDir)>,
}

impl Target {
    /// Starts a program with a data folder of its own.
    pub fn start(program: &Path) -> Result<Target> {
        let dir = tempfile::tempdir()?;
        let tokens = dir.path().join("tokens.csv");
        let text = format!("{ADMIN},admin,1,\"system:masters\"\n{NOBODY},nobody,2\n");
        std::fs::write(&tokens, text)?;
        let clients = Authority::new()?;
        let clients_file = dir.path().join("clients.crt");
        std::fs::write(&clients_file, pem(&clients.der))?;
        let mut child = Command::new(program)
            .args(["serve", "--bind-address=127.0.0.1", "--secure-port=0", "-v=0"])
            .arg("--data-dir")
            .arg(dir.path().join("data"))
            .arg("--token-auth-file")
            .arg(&tokens)
            .arg("--client-ca-file")
            .arg(&clients_file)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let mut line = String::new();
        let out = child.stdout.take().context("no output")?;
        BufReader::new(out).read_line(&mut line)?;
        ensure!(line.contains("https://"), "the server did not start: {line:?}");
        let kubeconfig = dir.path().join("data/admin.kubeconfig");
        let pid = child.id();
        let mut target = Target::running(&kubeconfig, pid)?;
        target.started = Some((child, dir));
        target.clients = Some(clients);
        Ok(target)
    }

    /// A server that runs already.
    pub fn running(kubeconfig: &Path, pid: u32) -> Result<Target> {
        let text = std::fs::read_to_string(kubeconfig)
            .with_context(|| format!("read {}", kubeconfig.display()))?;
        let field = |word: &str| {
            let line = text.lines().find_map(|line| line.trim().strip_prefix(word));
            line.with_context(|| format!("no {word} in {}", kubeconfig.display()))
        };
        let decoded = |word: &str| Ok::<_, anyhow::Error>(STANDARD.decode(field(word)?.trim())?);
        let server = field("server: ")?.trim().trim_start_matches("https://");
        let address: SocketAddr = server.parse().context("the server's address")?;
        if !address.ip().is_loopback() {
            bail!("{address} is not on this host");
        }
        let authority = decoded("certificate-authority-data: ")?;
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(&authority) {
            roots.add(root?)?;
        }
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&decoded("client-certificate-data: ")?)
            .collect::<Result<_, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(&decoded("client-key-data: ")?)?;
        let roots = Arc::new(roots);
        let admin = crate::client::config(&roots).with_client_auth_cert(chain, key)?;
        let admin = Arc::new(admin);
        Ok(Target { address, roots, clients: None, admin, pid, started: None })
    }

    /// A connection of the administrator.
    pub fn admin(&self) -> Result<Connection> {
        Connection::open(self.address, self.admin.clone())
    }

    /// A connection of nobody.
    pub fn anonymous(&self) -> Result<Connection> {
        let config = crate::client::config(&self.roots).with_no_client_auth();
        Connection::open(self.address, Arc::new(config))
    }

    /// The client's side of TLS for HTTP/2, without a certificate.
    pub fn http2_config(&self) -> Arc<ClientConfig> {
        let mut config = crate::client::config(&self.roots).with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(config)
    }

    /// Resident memory of the server, or 0 when it is not there.
    pub fn memory_kb(&self) -> u64 {
        memory_kb(self.pid)
    }

    /// The server's process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Stores what must be there afterwards.
    pub fn store_witnesses(&self) -> Result<()> {
        let mut admin = self.admin()?;
        for number in 0..WITNESSES {
            let body = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": format!("witness-{number}")},
                "data": {"number": number.to_string()}
            });
            let Answer { status, .. } = admin.send_json("POST", MAPS, &body)?;
            ensure!(matches!(status, 201 | 409), "witness {number}: {status}");
        }
        Ok(())
    }

    /// Reads it again, from the same server process.
    pub fn witnesses_are_there(&self) -> Result<()> {
        ensure!(self.memory_kb() > 0, "the server's process is gone");
        let mut admin = self.admin()?;
        for number in 0..WITNESSES {
            let answer = admin.get(&format!("{MAPS}/witness-{number}"))?;
            ensure!(answer.status == 200, "witness {number}: {}", answer.status);
            let obj: Value = serde_json::from_slice(&answer.body)?;
            let stored = obj["data"]["number"].as_str().unwrap_or_default();
            ensure!(stored == format!("{number}"), "witness {number}: {obj}");
        }
        Ok(())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some((child, _)) = &mut self.started {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A certificate as it is in files.
fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
}

/// Resident memory of a process, in KiB.
pub fn memory_kb(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok()).unwrap_or(0)
}
