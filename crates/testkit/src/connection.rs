//! A persistent connection, with or without TLS, for tests with many requests or with servers that
//! are killed.

use crate::http::POLL_TIMEOUT;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::client::WantsClientCert;
use rustls::{ClientConfig, ClientConnection, ConfigBuilder, RootCertStore, StreamOwned};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

/// A TCP or TLS stream.
pub trait Wire: Read + Write + Send {}
impl<T: Read + Write + Send> Wire for T {}

/// Returns the CA certificates of a kubeconfig.
pub fn authorities(kubeconfig: &str) -> RootCertStore {
    let word = "certificate-authority-data: ";
    let text = kubeconfig.lines().find_map(|line| line.trim().strip_prefix(word));
    let pem = STANDARD.decode(text.expect("an authority")).expect("base64");
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(&pem) {
        roots.add(root.expect("PEM")).expect("a root");
    }
    roots
}

/// Returns a TLS configuration that trusts CA certificates.
pub fn tls_client(roots: RootCertStore) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
}

/// Connects with TLS.
pub fn secure(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let name = ServerName::try_from("127.0.0.1").map_err(io::Error::other)?;
    let session = ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
    Ok(StreamOwned::new(session, plain(address)?))
}

/// Sends a GET with the administrator's certificate. Returns the status line.
pub fn request_as_admin(kubeconfig: &Path, address: SocketAddr, path: &str) -> io::Result<String> {
    let text = std::fs::read_to_string(kubeconfig)?;
    let field = |word: &str| {
        let text = text.lines().find_map(|line| line.trim().strip_prefix(word));
        STANDARD.decode(text.expect("a field")).expect("base64")
    };
    let chain = CertificateDer::pem_slice_iter(&field("client-certificate-data: "))
        .collect::<Result<_, _>>()
        .expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(&field("client-key-data: ")).expect("a key");
    let config = tls_client(authorities(&text)).with_client_auth_cert(chain, key);
    let mut stream = secure(address, &Arc::new(config.map_err(io::Error::other)?))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")?;
    line(&mut BufReader::new(stream))
}

/// Connects without TLS.
pub fn plain(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(POLL_TIMEOUT))?;
    Ok(stream)
}

/// A function that opens a connection.
pub type Connect = Arc<dyn Fn() -> io::Result<Connection> + Send + Sync>;

/// An HTTP/1.1 connection for sequential requests.
pub struct Connection {
    reader: BufReader<Box<dyn Wire>>,
}

impl Connection {
    /// Returns a connection over a stream.
    pub fn over(stream: impl Wire + 'static) -> Connection {
        Connection { reader: BufReader::new(Box::new(stream)) }
    }

    /// Sends a request and reads the whole response. Returns an error if the server has closed the
    /// connection.
    pub fn call(
        &mut self,
        method: &str,
        path: &str,
        media: &str,
        body: Option<&Value>,
    ) -> io::Result<(u16, Value)> {
        self.send(method, path, media, body)?;
        let (status, length) = self.head()?;
        let length = length.ok_or_else(|| io::Error::other("a body without a length"))?;
        let mut text = vec![0; length];
        self.reader.read_exact(&mut text)?;
        Ok((status, serde_json::from_slice(&text)?))
    }

    /// Gets a path and returns the status. The connection cannot be used further.
    pub fn status(mut self, path: &str) -> io::Result<u16> {
        self.send("GET", path, "", None)?;
        Ok(self.head()?.0)
    }

    /// Starts a watch. Returns an error if it is rejected.
    pub fn watch(mut self, path: &str) -> io::Result<Watch> {
        self.send("GET", path, "", None)?;
        match self.head()? {
            (200, _) => Ok(Watch { reader: self.reader, ready: vec![] }),
            (code, _) => Err(io::Error::other(format!("{path}: {code}"))),
        }
    }

    fn send(
        &mut self,
        method: &str,
        path: &str,
        media: &str,
        body: Option<&Value>,
    ) -> io::Result<()> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let text = format!(
            "{method} {path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer t\r\n\
             Content-Type: {media}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let stream = self.reader.get_mut();
        stream.write_all(text.as_bytes())?;
        stream.flush()
    }

    /// Returns the status, and the length of the body if there is a `Content-Length`.
    fn head(&mut self) -> io::Result<(u16, Option<usize>)> {
        let status = self
            .line()?
            .split(' ')
            .nth(1)
            .and_then(|word| word.parse().ok())
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut length = None;
        loop {
            let line = self.line()?.to_ascii_lowercase();
            if line.is_empty() {
                return Ok((status, length));
            }
            if let Some(text) = line.strip_prefix("content-length: ") {
                length = text.parse().ok();
            }
        }
    }

    fn line(&mut self) -> io::Result<String> {
        line(&mut self.reader)
    }
}

fn line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 || !line.ends_with('\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    line.truncate(line.trim_end().len());
    Ok(line)
}

/// The events of a watch.
pub struct Watch {
    reader: BufReader<Box<dyn Wire>>,
    ready: Vec<u8>,
}

impl Watch {
    /// Returns the next event, or an error if the watch has ended.
    // An error ends the events, and is part of what tests compare.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> io::Result<Value> {
        loop {
            if let Some(end) = self.ready.iter().position(|byte| *byte == b'\n') {
                let event = serde_json::from_slice(&self.ready[..end])?;
                self.ready.drain(..=end);
                return Ok(event);
            }
            let size =
                usize::from_str_radix(&line(&mut self.reader)?, 16).map_err(io::Error::other)?;
            if size == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let begin = self.ready.len();
            self.ready.resize(begin + size, 0);
            self.reader.read_exact(&mut self.ready[begin..])?;
            line(&mut self.reader)?;
        }
    }
}
