//! [`FarSide`]: a server that this program plays towards the server that is attacked: a webhook, a
//! node, or a server behind it. What it does with a connection is up to a function.

use crate::target::CertificateAuthority;
use anyhow::{Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The timeout of reads and writes, after which a far side looks whether it must stop.
const TIMEOUT: Duration = Duration::from_secs(4);
/// The pause between two writes of a flood.
const FLOOD_INTERVAL: Duration = Duration::from_millis(5);
/// How often a connection that is held is looked at.
const HOLD_INTERVAL: Duration = Duration::from_millis(200);
/// Most lines of a request's head.
const HEAD_LINES_MAX: usize = 1000;
/// Most heads that are kept.
const HEADS_MAX: usize = 1000;

type TlsStream = BufReader<StreamOwned<ServerConnection, TcpStream>>;

/// A server with TLS on a port of this host; all of it ends when it is dropped.
pub struct FarSide {
    pub address: SocketAddr,
    /// Its authority in PEM, in base64, as `caBundle` has it.
    pub bundle: String,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    must_stop: AtomicBool,
    /// Connections that the other side has not closed.
    open: AtomicUsize,
    heads: Mutex<Vec<String>>,
}

/// A connection to a far side. Reads and writes time out.
pub struct Connection {
    stream: TlsStream,
    shared: Arc<Shared>,
}

impl FarSide {
    /// Starts a server whose certificate has these names. `serve` runs in a thread for each
    /// connection, which is closed when it returns; its errors mean nothing.
    pub fn start<F>(names: &[&str], serve: F) -> Result<FarSide>
    where
        F: Fn(&mut Connection) -> Result<()> + Clone + Send + 'static,
    {
        let authority = CertificateAuthority::new()?;
        let key = KeyPair::generate()?;
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let leaf = CertificateParams::new(names)?.signed_by(&key, &authority.issuer)?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], key)?;
        let config = Arc::new(config);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let shared: Arc<Shared> = Arc::default();
        let far_side = FarSide {
            address: listener.local_addr()?,
            bundle: STANDARD.encode(crate::target::pem(&authority.der)),
            shared: shared.clone(),
        };
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if shared.must_stop.load(Ordering::Relaxed) {
                    return;
                }
                let open = Open::new(&shared);
                let config = config.clone();
                let shared = shared.clone();
                let serve = serve.clone();
                std::thread::spawn(move || {
                    let _open = open;
                    if let Ok(mut connection) = Connection::new(stream, config, shared) {
                        // An error ends the connection, as expected of one that misbehaves.
                        let _ = serve(&mut connection);
                    }
                });
            }
        });
        Ok(far_side)
    }

    /// Returns the number of connections that are open.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// Returns the heads of the requests, in lower case.
    pub fn heads(&self) -> Vec<String> {
        self.shared.heads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for FarSide {
    fn drop(&mut self) {
        self.shared.must_stop.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts connections.
        let _ = TcpStream::connect(self.address);
    }
}

/// Counts a connection.
struct Open(Arc<Shared>);

impl Open {
    fn new(shared: &Arc<Shared>) -> Open {
        shared.open.fetch_add(1, Ordering::Relaxed);
        Open(shared.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connection {
    fn new(
        stream: TcpStream,
        config: Arc<ServerConfig>,
        shared: Arc<Shared>,
    ) -> Result<Connection> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let stream = BufReader::new(StreamOwned::new(ServerConnection::new(config)?, stream));
        Ok(Connection { stream, shared })
    }

    /// Returns whether the far side goes on.
    pub fn goes_on(&self) -> bool {
        !self.shared.must_stop.load(Ordering::Relaxed)
    }

    /// Reads the head of a request, and keeps it. Returns its path, and its lines in lower case.
    pub fn read_head(&mut self) -> Result<(String, Vec<String>)> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let Some(path) = line.split(' ').nth(1).map(str::to_owned) else {
            bail!("no request line: {line:?}")
        };
        let mut lines = vec![line.trim_end().to_ascii_lowercase()];
        while lines.len() < HEAD_LINES_MAX {
            let mut line = String::new();
            self.stream.read_line(&mut line)?;
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_ascii_lowercase()),
            }
        }
        let mut heads = self.shared.heads.lock().unwrap_or_else(PoisonError::into_inner);
        if heads.len() < HEADS_MAX {
            heads.push(lines.join("\n"));
        }
        Ok((path, lines))
    }

    /// Reads the body of a request whose head has these lines.
    pub fn read_body(&mut self, lines: &[String]) -> Result<Vec<u8>> {
        let length = lines.iter().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.unwrap_or("0").parse()?];
        self.stream.read_exact(&mut body)?;
        Ok(body)
    }

    /// Sends bytes.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.get_mut().write_all(bytes)?;
        Ok(self.stream.get_mut().flush()?)
    }

    /// Sends the same bytes again and again, until the other side takes no more. The attacked
    /// server shares its processors with this program, and so it pauses.
    pub fn send_without_end(&mut self, bytes: &[u8]) -> Result<()> {
        while self.goes_on() {
            self.send(bytes)?;
            crate::pause(FLOOD_INTERVAL);
        }
        Ok(())
    }

    /// Sends a byte now and then.
    pub fn drip(&mut self, byte: u8, pause: Duration) -> Result<()> {
        while self.goes_on() {
            self.send(&[byte])?;
            crate::pause(pause);
        }
        Ok(())
    }

    /// Reads nothing and sends nothing, until the other side has closed the connection.
    pub fn hold(&mut self) -> Result<()> {
        let socket = &self.stream.get_ref().sock;
        socket.set_nonblocking(true)?;
        // What is unread stays unread: a byte that can be peeked at is there until the other side
        // resets the connection.
        let is_open = || match socket.peek(&mut [0]) {
            Ok(0) => false,
            Ok(_) => matches!(socket.take_error(), Ok(None)) && is_established(socket),
            Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
        };
        while self.goes_on() && is_open() {
            crate::pause(HOLD_INTERVAL);
        }
        Ok(())
    }

    /// Reads and drops what comes, until the other side closes the connection.
    pub fn drain(&mut self) -> Result<()> {
        let mut unread = [0; 4096];
        while self.goes_on() {
            match self.stream.read(&mut unread) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}

/// Returns whether the kernel knows the connection of a socket as established: neither side has
/// closed it.
fn is_established(socket: &TcpStream) -> bool {
    const ESTABLISHED: &str = "01";
    let (Ok(local), Ok(peer)) = (socket.local_addr(), socket.peer_addr()) else { return false };
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let hex = |address: SocketAddr| match address {
        SocketAddr::V4(address) => {
            let ip = u32::from_ne_bytes(address.ip().octets());
            format!("{ip:08X}:{:04X}", address.port())
        }
        SocketAddr::V6(_) => String::new(),
    };
    let start = format!("{} {} {ESTABLISHED}", hex(local), hex(peer));
    table.lines().any(|line| line.contains(&start))
}
