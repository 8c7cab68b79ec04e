//! The smallest HTTP/1.1 client over TLS: one request after the other.

use anyhow::{Context, Result, bail};
use rustls::client::WantsClientCert;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ConfigBuilder, RootCertStore, StreamOwned};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(8);

/// A TLS stream.
pub type Tls = StreamOwned<ClientConnection, TcpStream>;

/// The client's side of TLS, but for its certificate.
pub fn config(roots: &Arc<RootCertStore>) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    versions.expect("the default versions").with_root_certificates(roots.clone())
}

/// Connects with TLS. The handshake is done with the first bytes.
pub fn secure(address: SocketAddr, config: Arc<ClientConfig>) -> Result<Tls> {
    let stream = plain(address)?;
    let session = ClientConnection::new(config, ServerName::from(address.ip()))?;
    Ok(StreamOwned::new(session, stream))
}

/// Connects.
pub fn plain(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).context("connect")?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
}

/// A connection that stays.
pub struct Connection(BufReader<Tls>);

impl Connection {
    pub fn open(address: SocketAddr, config: Arc<ClientConfig>) -> Result<Connection> {
        Ok(Connection(BufReader::new(secure(address, config)?)))
    }

    pub fn get(&mut self, path: &str) -> Result<Answer> {
        self.ask("GET", path, &[], b"")
    }

    pub fn send_json(&mut self, method: &str, path: &str, body: &Value) -> Result<Answer> {
        let headers = [("Content-Type", "application/json".as_bytes())];
        self.ask(method, path, &headers, body.to_string().as_bytes())
    }

    /// Sends a request with further headers, whose values may be any bytes.
    pub fn ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &[u8])],
        body: &[u8],
    ) -> Result<Answer> {
        let mut bytes = format!("{method} {path} HTTP/1.1\r\nHost: attack\r\n").into_bytes();
        for (name, value) in headers {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
        bytes.extend_from_slice(body);
        // A server that refuses early may not read all of it; its answer counts.
        let sent = self.0.get_mut().write_all(&bytes).and_then(|()| self.0.get_mut().flush());
        self.answer().map_err(|error| match sent {
            Err(sent) => error.context(format!("send: {sent}")),
            Ok(()) => error,
        })
    }

    fn answer(&mut self) -> Result<Answer> {
        let line = self.line()?;
        let status = line.split(' ').nth(1).and_then(|word| word.parse().ok());
        let Some(status) = status else { bail!("no status: {line:?}") };
        let (mut length, mut is_chunked) = (0, false);
        loop {
            let header = self.line()?.to_ascii_lowercase();
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
            return Ok(Answer { status, body });
        }
        loop {
            let size = usize::from_str_radix(&self.line()?, 16)?;
            let begin = body.len();
            body.resize(begin + size, 0);
            self.0.read_exact(&mut body[begin..])?;
            self.line()?;
            if size == 0 {
                return Ok(Answer { status, body });
            }
        }
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            bail!("the connection ended");
        }
        Ok(line.trim_end().to_owned())
    }
}
