//! [`EgressSelector`]: the proxies through which the connections to a network go
//! (`--egress-selector-config-file`).

use crate::address::authority;
use crate::error::Cause;
use crate::konnectivity;
use crate::metrics;
use crate::peer::{Network, NetworkChoice, Peer, Route, Scheme};
use crate::resolve::{Reach, lookup};
use crate::tls::{self, ConfigError};
use crate::wire::{Security, Wire, io_cause};
use std::fmt;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

/// Most bytes of the head of a proxy's answer to CONNECT, as Go limits it.
const HEAD_BYTES_MAX: usize = 1 << 20;

/// The proxies of networks. Connections to a network without one are direct.
#[derive(Clone, Debug, Default)]
pub struct EgressSelector {
    /// The proxy of [`Network::ControlPlane`].
    pub control_plane: Option<Arc<Tunneler>>,
    /// The proxy of [`Network::Cluster`].
    pub cluster: Option<Arc<Tunneler>>,
    /// The proxy of [`Network::Etcd`].
    pub etcd: Option<Arc<Tunneler>>,
}

impl EgressSelector {
    /// Returns the proxy on the way to a peer.
    pub(crate) fn for_peer(&self, peer: &Peer) -> Option<&Arc<Tunneler>> {
        let network = match (peer.selection, peer.route) {
            (NetworkChoice::Direct, _) => return None,
            (NetworkChoice::Network(network), _) => network,
            (NetworkChoice::ByRoute, Route::Dns) => Network::ControlPlane,
            (NetworkChoice::ByRoute, Route::Node | Route::Public | Route::Given) => {
                Network::Cluster
            }
        };
        match network {
            Network::ControlPlane => self.control_plane.as_ref(),
            Network::Cluster => self.cluster.as_ref(),
            Network::Etcd => self.etcd.as_ref(),
        }
    }
}

/// A proxy that opens connections to any address.
pub struct Tunneler {
    way: Way,
}

enum Way {
    /// CONNECT over TCP.
    Connect { host: String, port: u16, security: Security },
    /// CONNECT over a Unix domain socket.
    ConnectSocket(String),
    /// The protocol of konnectivity over a Unix domain socket.
    Grpc(String),
}

/// The stage of a failure, as the metrics name it.
enum Stage {
    Connect,
    Proxy,
}

impl fmt::Debug for Tunneler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.way {
            Way::Connect { host, port, .. } => write!(f, "CONNECT by {}", authority(host, *port)),
            Way::ConnectSocket(path) => write!(f, "CONNECT by {path}"),
            Way::Grpc(path) => write!(f, "gRPC to {path}"),
        }
    }
}

impl Tunneler {
    /// Returns a proxy that is asked to CONNECT: its address, the trusted CAs and the client
    /// certificate are those of a peer.
    pub fn http_connect(peer: &Peer) -> Result<Tunneler, ConfigError> {
        let security = match peer.scheme {
            Scheme::Http => Security::None,
            Scheme::Https => {
                let config = tls::config(peer, &[])?;
                Security::Tls(Arc::new(config), tls::server_name(peer)?)
            }
        };
        Ok(Tunneler { way: Way::Connect { host: peer.host.clone(), port: peer.port, security } })
    }

    /// Returns a proxy at a Unix domain socket that is asked to CONNECT.
    pub fn http_connect_socket(path: impl Into<String>) -> Tunneler {
        Tunneler { way: Way::ConnectSocket(path.into()) }
    }

    /// Returns a proxy at a Unix domain socket that speaks konnectivity's protocol over gRPC.
    pub fn grpc_socket(path: impl Into<String>) -> Tunneler {
        Tunneler { way: Way::Grpc(path.into()) }
    }

    /// Opens a connection to `host:port`; a name is resolved by the proxy.
    pub async fn dial(&self, address: &str, deadline: Instant) -> Result<Wire, Cause> {
        let begun = Instant::now();
        let (protocol, transport) = match &self.way {
            Way::Connect { .. } => ("http_connect", "tcp"),
            Way::ConnectSocket(_) => ("http_connect", "uds"),
            Way::Grpc(_) => ("grpc", "uds"),
        };
        metrics::dial_started(protocol, transport);
        let mut stage = Stage::Connect;
        let dialed = timeout_at(deadline, self.dial_by(address, deadline, &mut stage)).await;
        let dialed = dialed.map_err(|_| Cause::Deadline).flatten();
        match (&dialed, stage) {
            (Ok(_), _) => metrics::dialed(protocol, transport, begun.elapsed()),
            (Err(_), Stage::Connect) => metrics::dial_failed(protocol, "connect", transport),
            (Err(_), Stage::Proxy) => metrics::dial_failed(protocol, "proxy", transport),
        }
        dialed
    }

    async fn dial_by(
        &self,
        address: &str,
        deadline: Instant,
        stage: &mut Stage,
    ) -> Result<Wire, Cause> {
        match &self.way {
            Way::Connect { host, port, security } => {
                let stream = connect_tcp(host, *port).await?;
                let shown = authority(host, *port);
                let Security::Tls(config, name) = security else {
                    *stage = Stage::Proxy;
                    return connect(stream, &shown, address).await;
                };
                let tls = TlsConnector::from(config.clone()).connect(name.clone(), stream);
                let stream = tls.await.map_err(|error| io_cause(error, None))?;
                *stage = Stage::Proxy;
                connect(stream, &shown, address).await
            }
            Way::ConnectSocket(path) => {
                let stream = UnixStream::connect(path).await;
                let stream = stream.map_err(|error| Cause::socket(path, &error))?;
                *stage = Stage::Proxy;
                connect(stream, path, address).await
            }
            Way::Grpc(path) => {
                let proxy = konnectivity::connect(path).await.map_err(Cause::Tunnel)?;
                *stage = Stage::Proxy;
                let dialed = konnectivity::dial(proxy, address, deadline).await;
                dialed.map(|stream| Box::pin(stream) as Wire).map_err(Cause::Tunnel)
            }
        }
    }
}

async fn connect_tcp(host: &str, port: u16) -> Result<TcpStream, Cause> {
    let mut first = None;
    for address in lookup(host, port, Reach::Anywhere).await? {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(error) => drop(first.get_or_insert(Cause::Connect { address, error })),
        }
    }
    Err(first.unwrap_or_else(|| Cause::Resolve("dial tcp: no address".to_owned())))
}

/// Asks a proxy at the other end of a connection to connect to an address.
async fn connect(
    mut stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    proxy: &str,
    address: &str,
) -> Result<Wire, Cause> {
    let failed = |why: String| {
        Cause::Tunnel(format!(
            "reading HTTP response from CONNECT to {address} via proxy {proxy} failed: {why}"
        ))
    };
    let request = format!("CONNECT {address} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(|error| failed(error.to_string()))?;
    stream.flush().await.map_err(|error| failed(error.to_string()))?;
    let status = match head(&mut stream).await {
        Ok(head) => status_line(&head).map_err(failed)?,
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(failed("unexpected EOF".to_owned()));
        }
        Err(error) => return Err(failed(error.to_string())),
    };
    if status.code != "200" {
        let StatusLine { code, text } = status;
        return Err(Cause::Tunnel(format!(
            "proxy error from {proxy} while dialing {address}, code {code}: {text}"
        )));
    }
    Ok(Box::pin(stream))
}

/// Reads the head of an answer, byte by byte: what follows it is of the far side.
async fn head(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut head = vec![];
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == HEAD_BYTES_MAX {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.push(stream.read_u8().await?);
    }
    Ok(head)
}

struct StatusLine {
    code: String,
    /// The code and what follows it.
    text: String,
}

fn status_line(head: &[u8]) -> Result<StatusLine, String> {
    let head = String::from_utf8_lossy(head);
    let line = head.lines().next().unwrap_or_default();
    let malformed = || format!("malformed HTTP response {line:?}");
    let (version, text) = line.split_once(' ').ok_or_else(malformed)?;
    let code = text.split(' ').next().unwrap_or_default();
    let is_code = code.len() == 3 && code.bytes().all(|byte| byte.is_ascii_digit());
    if !version.starts_with("HTTP/") || !is_code {
        return Err(malformed());
    }
    Ok(StatusLine { code: code.to_owned(), text: text.trim().to_owned() })
}
