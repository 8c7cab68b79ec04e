//! [`Client`]: one connection to the server, over HTTP/1.1 or HTTP/2.

pub use crate::api_request::{ApiRequest, JSON};
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

/// The media type of protobuf.
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// The media type of a merge patch.
pub const MERGE_PATCH: &str = "application/merge-patch+json";
/// The media type of a strategic merge patch.
pub const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
/// The media type of server-side apply; JSON is valid YAML.
pub const APPLY_PATCH: &str = "application/apply-patch+yaml";
/// Size of the read buffer. Without it rustls reads 4 KiB at a time, so four system calls a record.
const SOCKET_BYTES: usize = 64 << 10;

enum Wire {
    One(Box<Connection>),
    Many { sender: http2::SendRequest<Full<Bytes>>, body: Option<Incoming>, piece: Bytes },
}

/// Connects to the target, with TLS if it has that.
pub async fn open(target: &Target) -> Result<Box<dyn Stream>> {
    let stream = TcpStream::connect(&target.authority).await.context("connect")?;
    stream.set_nodelay(true)?;
    let stream = BufReader::with_capacity(SOCKET_BYTES, stream);
    let Some((config, name)) = &target.tls else { return Ok(Box::new(stream)) };
    let connector = TlsConnector::from(config.clone());
    Ok(Box::new(connector.connect(name.clone(), stream).await.context("TLS")?))
}

/// A connection with at most one request in flight.
pub struct Client {
    wire: Wire,
    target: Arc<Target>,
}

impl Client {
    /// Connects to the target.
    pub async fn connect(target: &Arc<Target>) -> Result<Client> {
        let stream = open(target).await?;
        let wire = if target.http2 {
            let (sender, connection) =
                http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
            // An error of the connection also fails its requests.
            tokio::spawn(connection);
            Wire::Many { sender, body: None, piece: Bytes::new() }
        } else {
            Wire::One(Box::new(Connection::new(stream, target.headers())))
        };
        Ok(Client { wire, target: target.clone() })
    }

    /// Returns a client on the same HTTP/2 connection; `None` for HTTP/1.1.
    pub fn share(&self) -> Option<Client> {
        let Wire::Many { sender, .. } = &self.wire else { return None };
        let wire = Wire::Many { sender: sender.clone(), body: None, piece: Bytes::new() };
        Some(Client { wire, target: self.target.clone() })
    }

    /// Sends a request and returns the status. The body must be read to its end with
    /// [`Client::chunk`] before the next request.
    pub async fn send(&mut self, request: &ApiRequest) -> Result<u16> {
        let (sender, body) = match &mut self.wire {
            Wire::One(connection) => return connection.send(request).await,
            Wire::Many { sender, body, .. } => (sender, body),
        };
        let mut builder = Request::builder()
            .method(&request.method)
            .uri(format!("https://{}{}", self.target.authority, request.path))
            .header(CONTENT_TYPE, HeaderValue::from_static(request.media))
            .header(ACCEPT, HeaderValue::from_static(request.accept));
        if let Some(authorization) = &self.target.authorization {
            builder = builder.header(AUTHORIZATION, authorization);
        }
        sender.ready().await?;
        let response = sender.send_request(builder.body(Full::new(request.body.clone()))?).await?;
        let status = response.status().as_u16();
        *body = Some(response.into_body());
        Ok(status)
    }

    /// Returns the next chunk of the body; `None` at its end.
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

    /// Sends a request and reads the whole response. Stores the first `prefix_bytes_max` bytes of
    /// the body in `head`, and returns the status and the length of the body.
    pub async fn execute(
        &mut self,
        request: &ApiRequest,
        prefix_bytes_max: usize,
        head: &mut Vec<u8>,
    ) -> Result<(u16, u64)> {
        head.clear();
        let status = self.send(request).await?;
        let mut length = 0;
        while let Some(chunk) = self.chunk().await? {
            length += chunk.len() as u64;
            let copied = chunk.len().min(prefix_bytes_max - head.len());
            head.extend_from_slice(&chunk[..copied]);
        }
        Ok((status, length))
    }

    /// Sends a request and returns the body. A status other than 2xx is an error with the body.
    pub async fn require_success(&mut self, request: ApiRequest) -> Result<Vec<u8>> {
        let what = || format!("{} {}", request.method, request.path);
        let mut body = vec![];
        let (status, _) = self.execute(&request, usize::MAX, &mut body).await.with_context(what)?;
        if !(200..300).contains(&status) {
            bail!("{}: {status} {}", what(), String::from_utf8_lossy(&body));
        }
        Ok(body)
    }
}
