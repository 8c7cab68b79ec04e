//! The server that is attacked, connections to it, and the canary objects that must not be lost.

use crate::client::{Connection, Response};
use crate::victim::{Administrator, Victim, memory_kb};
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
use std::time::Duration;

/// The number of ConfigMaps that are stored before the attacks and read after each of them.
const CANARIES: usize = 50;
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// The token of a user without permissions.
pub const UNPRIVILEGED_TOKEN: &str = "nobody-token";
/// The tokens of the users `editor` and `bystander`, whose permissions an attack grants.
pub const EDITOR_TOKEN: &str = "editor-token";
pub const BYSTANDER_TOKEN: &str = "bystander-token";
/// The token of an administrator, for requests without a client certificate.
pub const ADMIN_TOKEN: &str = "admin-token";

/// A certificate authority with its key.
pub struct CertificateAuthority {
    /// The certificate, in DER.
    pub der: Vec<u8>,
    pub issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

/// A server on this host.
pub struct Target {
    pub address: SocketAddr,
    pub roots: Arc<RootCertStore>,
    /// The authority of client certificates; `None` if this program did not start the server.
    pub client_ca: Option<CertificateAuthority>,
    admin: Arc<ClientConfig>,
    pid: u32,
    /// The server's process and its folder; `None` if this program did not start the server.
    child: Option<(Child, tempfile::TempDir)>,
}

impl Target {
    /// Starts a server with its own data folder.
    pub fn start(program: &Path) -> Result<Target> {
        let dir = tempfile::tempdir()?;
        let tokens = dir.path().join("tokens.csv");
        let text = format!(
            "{ADMIN_TOKEN},admin,1,\"system:masters\"\n{UNPRIVILEGED_TOKEN},nobody,2\n\
             {EDITOR_TOKEN},editor,3\n{BYSTANDER_TOKEN},bystander,4\n"
        );
        std::fs::write(&tokens, text)?;
        let client_ca = CertificateAuthority::new()?;
        let client_ca_file = dir.path().join("clients.crt");
        std::fs::write(&client_ca_file, pem(&client_ca.der))?;
        let mut child = Command::new(program)
            .args(["serve", "--bind-address=127.0.0.1", "--secure-port=0", "-v=0"])
            .arg("--contention-profiling")
            .arg("--data-dir")
            .arg(dir.path().join("data"))
            .arg("--token-auth-file")
            .arg(&tokens)
            .arg("--client-ca-file")
            .arg(&client_ca_file)
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
        let mut target = Target::connect(&kubeconfig, pid)?;
        target.child = Some((child, dir));
        target.client_ca = Some(client_ca);
        Ok(target)
    }

    /// Returns a server that already runs. Fails if its address is not a loopback address.
    pub fn connect(kubeconfig: &Path, pid: u32) -> Result<Target> {
        let text = std::fs::read_to_string(kubeconfig)
            .with_context(|| format!("read {}", kubeconfig.display()))?;
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.trim().strip_prefix(name));
            line.with_context(|| format!("no {name} in {}", kubeconfig.display()))
        };
        let decoded = |name: &str| Ok::<_, anyhow::Error>(STANDARD.decode(field(name)?.trim())?);
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
        let admin = crate::client::tls_config(&roots).with_client_auth_cert(chain, key)?;
        let admin = Arc::new(admin);
        Ok(Target { address, roots, client_ca: None, admin, pid, child: None })
    }

    /// Connects with the administrator's client certificate.
    pub fn admin(&self) -> Result<Connection> {
        Connection::open(self.address, self.admin.clone())
    }

    /// Connects without a client certificate.
    pub fn anonymous(&self) -> Result<Connection> {
        let config = crate::client::tls_config(&self.roots).with_no_client_auth();
        Connection::open(self.address, Arc::new(config))
    }

    /// Returns the TLS configuration of an HTTP/2 client without a certificate.
    pub fn http2_config(&self) -> Arc<ClientConfig> {
        let mut config = crate::client::tls_config(&self.roots).with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(config)
    }

    /// Stores the canary objects.
    pub fn store_canaries(&self) -> Result<()> {
        let mut admin = self.admin()?;
        for number in 0..CANARIES {
            let body = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": format!("canary-{number}")},
                "data": {"number": number.to_string()}
            });
            let Response { status, .. } = admin.send_json("POST", CONFIG_MAPS, &body)?;
            ensure!(matches!(status, 201 | 409), "create canary {number}: {status}");
        }
        Ok(())
    }
}

impl Victim for Target {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn administrator(&self) -> Result<Box<dyn Administrator>> {
        Ok(Box::new(self.admin()?))
    }

    fn check_canaries(&self) -> Result<()> {
        ensure!(memory_kb(self.pid) > 0, "the server's process has ended");
        let mut admin = self.admin()?;
        for number in 0..CANARIES {
            let response = admin.get(&format!("{CONFIG_MAPS}/canary-{number}"))?;
            ensure!(response.status == 200, "get canary {number}: {}", response.status);
            let obj: Value = serde_json::from_slice(&response.body)?;
            let stored = obj["data"]["number"].as_str().unwrap_or_default();
            ensure!(stored == format!("{number}"), "get canary {number}: {obj}");
        }
        Ok(())
    }
}

/// Requests `/livez`.
impl Administrator for Connection {
    fn request(&mut self) -> Result<()> {
        let response = self.get("/livez")?;
        ensure!(response.status == 200, "/livez: {}", response.status);
        Ok(())
    }

    fn longest_poll(&mut self) -> Result<Option<Duration>> {
        // A scrape begins the measurement of polls anew.
        Ok(longest_poll(&self.get("/metrics")?.body))
    }
}

fn longest_poll(metrics: &[u8]) -> Option<Duration> {
    let text = String::from_utf8_lossy(metrics);
    let value = text.lines().find_map(|line| line.strip_prefix("keelson_longest_poll_seconds "));
    value?.parse().ok().map(Duration::from_secs_f64)
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some((child, _)) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Encodes a certificate in PEM.
pub fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
}
