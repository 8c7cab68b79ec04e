//! One connection to the server, HTTP/1.1 or HTTP/2.

pub use crate::ask::{Ask, JSON};
use crate::http1::{Connection, Stream};
use crate::target::Target;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::sync::Arc;
use tokio::io::BufReader;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Protobuf.
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// A merge patch.
pub const MERGE_PATCH: &str = "application/merge-patch+json";
/// A strategic merge patch.
pub const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
/// What server-side apply takes; JSON is YAML.
pub const APPLY_PATCH: &str = "application/apply-patch+yaml";
/// What is taken from a socket at once: rustls alone asks for 4 KiB, which is a call into the kernel for
/// each quarter of a record.
const SOCKET_BYTES: usize = 64 << 10;

enum Wire {
    One(Box<Connection>),
    Many { sender: http2::SendRequest<Full<Bytes>>, body: Option<Incoming>, piece: Bytes },
}

/// A connection. A clone of an HTTP/2 one shares it.
pub struct Client {
    wire: Wire,
    target: Arc<Target>,
}

impl Client {
    /// Connects.
    pub async fn connect(target: &Arc<Target>) -> Result<Client> {
        let stream = TcpStream::connect(&target.authority).await.context("connect")?;
        stream.set_nodelay(true)?;
        let stream = BufReader::with_capacity(SOCKET_BYTES, stream);
        let stream: Box<dyn Stream> = match &target.tls {
            None => Box::new(stream),
            Some((config, name)) => {
                let connector = TlsConnector::from(config.clone());
                Box::new(connector.connect(name.clone(), stream).await.context("TLS")?)
            }
        };
        let wire = if target.http2 {
            let (sender, connection) =
                http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
            // Its end shows in the requests that it fails.
            tokio::spawn(connection);
            Wire::Many { sender, body: None, piece: Bytes::new() }
        } else {
            Wire::One(Box::new(Connection::new(stream, target.headers())))
        };
        Ok(Client { wire, target: target.clone() })
    }

    /// The same connection for another worker, where it carries more than one request at once.
    pub fn share(&self) -> Option<Client> {
        let Wire::Many { sender, .. } = &self.wire else { return None };
        let wire = Wire::Many { sender: sender.clone(), body: None, piece: Bytes::new() };
        Some(Client { wire, target: self.target.clone() })
    }

    /// Asks; the answer's status. Its body is to be read to the end before the next request.
    pub async fn send(&mut self, ask: &Ask) -> Result<u16> {
        let (sender, body) = match &mut self.wire {
            Wire::One(connection) => return connection.send(ask).await,
            Wire::Many { sender, body, .. } => (sender, body),
        };
        let mut request = Request::builder()
            .method(&ask.method)
            .uri(format!("https://{}{}", self.target.authority, ask.path))
            .header(CONTENT_TYPE, HeaderValue::from_static(ask.media))
            .header(ACCEPT, HeaderValue::from_static(ask.accept));
        if let Some(authorization) = &self.target.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        sender.ready().await?;
        let response = sender.send_request(request.body(Full::new(ask.body.clone()))?).await?;
        let status = response.status().as_u16();
        *body = Some(response.into_body());
        Ok(status)
    }

    /// The next piece of the answer's body as it came, or none at its end.
    pub async fn chunk(&mut self) -> Result<Option<&[u8]>> {
        match &mut self.wire {
            Wire::One(connection) => connection.chunk().await,
            Wire::Many { body, piece, .. } => {
                while let Some(incoming) = body {
                    let Some(frame) = incoming.frame().await else {
                        *body = None;
                        break;
                    };
                    if let Ok(data) = frame?.into_data() {
                        *piece = data;
                        return Ok(Some(piece));
                    }
                }
                Ok(None)
            }
        }
    }

    /// Asks, and reads all of the answer, of which the first `kept` bytes are left in `head`; the status
    /// and the body's length.
    pub async fn skim(&mut self, ask: &Ask, kept: usize, head: &mut Vec<u8>) -> Result<(u16, u64)> {
        head.clear();
        let status = self.send(ask).await?;
        let mut length = 0;
        while let Some(chunk) = self.chunk().await? {
            length += chunk.len() as u64;
            let room = chunk.len().min(kept - head.len());
            head.extend_from_slice(&chunk[..room]);
        }
        Ok((status, length))
    }

    /// Asks; the whole answer. Anything but success is an error that says what the server said.
    pub async fn must(&mut self, ask: Ask) -> Result<Vec<u8>> {
        let what = || format!("{} {}", ask.method, ask.path);
        let mut body = vec![];
        let (status, _) = self.skim(&ask, usize::MAX, &mut body).await.with_context(what)?;
        if !(200..300).contains(&status) {
            bail!("{}: {status} {}", what(), String::from_utf8_lossy(&body));
        }
        Ok(body)
    }
}
