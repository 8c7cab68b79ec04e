//! A minimal HTTP/1.1 client over TLS, which sends one request after the other.

use anyhow::{Context, Result, bail};
use rustls::client::WantsClientCert;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ConfigBuilder, RootCertStore, StreamOwned};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// The timeout of reads and writes.
const TIMEOUT: Duration = Duration::from_secs(8);

/// A TLS stream.
pub type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// Returns the TLS configuration of a client, without a client certificate.
pub fn tls_config(roots: &Arc<RootCertStore>) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    versions.expect("the default versions").with_root_certificates(roots.clone())
}

/// Connects with TLS. The first read or write does the handshake.
pub fn connect_tls(address: SocketAddr, config: Arc<ClientConfig>) -> Result<TlsStream> {
    let stream = connect_tcp(address)?;
    let session = ClientConnection::new(config, ServerName::from(address.ip()))?;
    Ok(StreamOwned::new(session, stream))
}

/// Connects without TLS.
pub fn connect_tcp(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).context("connect")?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

/// A response.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub body: Vec<u8>,
}

/// A connection that is used for several requests.
pub struct Connection(BufReader<TlsStream>);

impl Connection {
    pub fn open(address: SocketAddr, config: Arc<ClientConfig>) -> Result<Connection> {
        Ok(Connection(BufReader::new(connect_tls(address, config)?)))
    }

    pub fn get(&mut self, path: &str) -> Result<Response> {
        self.send("GET", path, &[], b"")
    }

    pub fn send_json(&mut self, method: &str, path: &str, body: &Value) -> Result<Response> {
        let headers = [("Content-Type", "application/json".as_bytes())];
        self.send(method, path, &headers, body.to_string().as_bytes())
    }

    /// Sends a request with additional headers, whose values may be any bytes. Returns the
    /// response.
    pub fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &[u8])],
        body: &[u8],
    ) -> Result<Response> {
        let mut bytes = format!("{method} {path} HTTP/1.1\r\nHost: attack\r\n").into_bytes();
        for (name, value) in headers {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
        bytes.extend_from_slice(body);
        // A server may respond before it has read all of the request. Its response counts, not the
        // write error.
        let sent = self.0.get_mut().write_all(&bytes).and_then(|()| self.0.get_mut().flush());
        self.read_response().map_err(|error| match sent {
            Err(sent) => error.context(format!("send: {sent}")),
            Ok(()) => error,
        })
    }

    fn read_response(&mut self) -> Result<Response> {
        let line = self.read_line()?;
        let status = line.split(' ').nth(1).and_then(|word| word.parse().ok());
        let Some(status) = status else { bail!("no status: {line:?}") };
        let mut length = 0;
        let mut is_chunked = false;
        loop {
            let header = self.read_line()?.to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(text) = header.strip_prefix("content-length: ") {
                length = text.parse()?;
            }
            is_chunked |= header == "transfer-encoding: chunked";
        }
        let mut body = vec![];
        if !is_chunked {
            body.resize(length, 0);
            self.0.read_exact(&mut body)?;
            return Ok(Response { status, body });
        }
        loop {
            let size = usize::from_str_radix(&self.read_line()?, 16)?;
            let start = body.len();
            body.resize(start + size, 0);
            self.0.read_exact(&mut body[start..])?;
            self.read_line()?;
            if size == 0 {
                return Ok(Response { status, body });
            }
        }
    }

    fn read_line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            bail!("the connection ended");
        }
        Ok(line.trim_end().to_owned())
    }
}
