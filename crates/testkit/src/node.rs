//! The HTTPS server of a fake node: what an API server asks a kubelet for.
//!
//! Commands run as real processes on this machine, forwarded ports are its ports, and logs are kept
//! in memory. Every pod and container exists, except those whose names start with `missing`. A
//! container, pod or path with the name `fault-NAME` misbehaves; the table [`faults::FAULTS`] lists
//! how. So a test needs no state to get a fault, and tests run side by side on one node.
//!
//! | path | served |
//! |---|---|
//! | `/exec/NS/POD/CONTAINER` | the command, over WebSocket (v1 to v5) and SPDY |
//! | `/attach/NS/POD/CONTAINER` | the process `cat` |
//! | `/portForward/NS/POD` | ports of this machine (127.0.0.1), over WebSocket (v4) and SPDY |
//! | `/containerLogs/NS/POD/CONTAINER` | what `POST /testkit/log/...` has added, with all options |
//! | `/testkit/log/NS/POD/CONTAINER?stream=stderr` | POST: adds the lines of the body to a log; DELETE: ends it |
//! | `/testkit/echo/...` | the request as JSON: method, target, headers, body, `hasCertificate` |
//! | `/healthz`, `/metrics`, `/metrics/resource`, `/stats/summary`, `/configz`, `/logs/` | as a kubelet, in small |

mod command;
pub mod faults;
mod http;
mod logs;
mod pages;
mod portforward;
mod serve;
mod spdy;
mod usage;
mod websocket;

pub use usage::{ContainerUsage, Usage};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

/// The options of a node.
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    /// The address. `None`: 127.0.0.1, to which no API server proxies.
    pub address: Option<IpAddr>,
    /// The port; 0 chooses one.
    pub port: u16,
    /// The authority, in PEM, of the certificates that clients must have. `None`: anyone is served.
    pub client_authority: Option<Vec<u8>>,
    /// Serves clients without a certificate all the same; the page `/testkit/echo` says who has
    /// one.
    pub is_open: bool,
    /// The folder in which commands run. `None`: the current one.
    pub folder: Option<PathBuf>,
    /// Whether exec and attach over WebSocket offer v5, as nodes that declare the feature
    /// `ExtendWebSocketsToKubelet` do.
    pub has_v5: bool,
}

/// A running node; it stops when it is dropped.
pub struct NodeServer {
    address: SocketAddr,
    authority: String,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    state: Arc<State>,
}

/// What all connections share.
struct State {
    logs: logs::Logs,
    options: ServerOptions,
    /// Sizes of terminals that clients have sent, in order.
    sizes: std::sync::Mutex<Vec<(u16, u16)>>,
    /// What the page `/metrics/resource` says; `None`: always the same.
    usage: std::sync::Mutex<Option<Usage>>,
}

impl NodeServer {
    /// Starts a node, in a thread of its own.
    pub fn start(options: ServerOptions) -> io::Result<NodeServer> {
        let ip = options.address.unwrap_or(Ipv4Addr::LOCALHOST.into());
        let (config, authority) = tls(ip, options.client_authority.as_deref())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = std::net::TcpListener::bind((ip, options.port))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let state = Arc::new(State {
            logs: logs::Logs::default(),
            options,
            sizes: std::sync::Mutex::default(),
            usage: std::sync::Mutex::default(),
        });
        let (stop, stopped) = oneshot::channel();
        let shared = state.clone();
        let thread = std::thread::spawn(move || {
            let tls = TlsAcceptor::from(Arc::new(config));
            runtime.block_on(async {
                tokio::select! {
                    _ = accept(listener, tls, shared) => {}
                    _ = stopped => {}
                }
            });
            // Ends the connections that are open.
            runtime.shutdown_background();
        });
        Ok(NodeServer { address, authority, stop: Some(stop), thread: Some(thread), state })
    }

    /// Returns the address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the authority of the server's certificate, in PEM.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Adds a line to the log of a container; `stream` is `stdout` or `stderr`.
    pub fn log(&self, container: &str, stream: &str, line: &str) {
        self.state.logs.add(container, stream, line);
    }

    /// Ends the log of a container as a restart does: it becomes the previous one, and those who
    /// follow it reach its end.
    pub fn restart(&self, container: &str) {
        self.state.logs.end(container);
    }

    /// Says what the node and its containers use from now on.
    pub fn set_usage(&self, usage: Usage) {
        if let Ok(mut place) = self.state.usage.lock() {
            *place = Some(usage);
        }
    }

    /// Returns the sizes of terminals that clients have sent, in order.
    pub fn terminal_sizes(&self) -> Vec<(u16, u16)> {
        self.state.sizes.lock().map(|sizes| sizes.clone()).unwrap_or_default()
    }
}

impl Drop for NodeServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns an address of this machine that is not its loopback address: the one from which it
/// reaches others. API servers proxy to no other nodes. `None`: it has none.
pub fn machine_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // Connecting sends nothing.
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

async fn accept(
    listener: std::net::TcpListener,
    tls: TlsAcceptor,
    state: Arc<State>,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        let tls = tls.clone();
        let state = state.clone();
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            // A client that fails here sees it itself.
            if let Ok(stream) = tls.accept(stream).await {
                let _ = serve::serve(stream, &state).await;
            }
        });
    }
}

/// Returns the configuration of the server with a new certificate, and its authority.
fn tls(ip: IpAddr, client_authority: Option<&[u8]>) -> io::Result<(ServerConfig, String)> {
    let authority = authority()?;
    let key = KeyPair::generate().map_err(io::Error::other)?;
    let mut params =
        CertificateParams::new(vec!["localhost".to_owned()]).map_err(io::Error::other)?;
    params.subject_alt_names.push(SanType::IpAddress(ip));
    let certificate = params.signed_by(&key, &authority).map_err(io::Error::other)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    let builder = match client_authority {
        None => builder.with_no_client_auth(),
        Some(pem) => {
            let mut roots = RootCertStore::empty();
            for root in CertificateDer::pem_slice_iter(pem) {
                roots.add(root.map_err(io::Error::other)?).map_err(io::Error::other)?;
            }
            // Those without a certificate get 401, as from a kubelet.
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build();
            builder.with_client_cert_verifier(verifier.map_err(io::Error::other)?)
        }
    };
    let private_key = PrivateKeyDer::try_from(key.serialize_der()).map_err(io::Error::other)?;
    let mut config = builder
        .with_single_cert(vec![certificate.der().clone()], private_key)
        .map_err(io::Error::other)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok((config, authority.pem()))
}

/// Returns a new authority.
fn authority() -> io::Result<CertifiedIssuer<'static, KeyPair>> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().map_err(io::Error::other)?;
    CertifiedIssuer::self_signed(params, key).map_err(io::Error::other)
}

#[cfg(test)]
mod tests;
