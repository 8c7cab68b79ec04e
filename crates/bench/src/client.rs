//! One connection to the server, HTTP/1.1 or HTTP/2.

use crate::target::Target;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// JSON.
pub const JSON: &str = "application/json";
/// Protobuf.
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// A request.
#[derive(Clone, Debug)]
pub struct Ask {
    pub method: Method,
    pub path: String,
    /// The body's type.
    pub media: &'static str,
    /// What the answer is to be.
    pub accept: &'static str,
    pub body: Bytes,
}

impl Ask {
    /// Reads.
    pub fn get(path: impl Into<String>) -> Ask {
        Ask::new(Method::GET, path, JSON, Bytes::new())
    }

    /// Writes.
    pub fn new(
        method: Method,
        path: impl Into<String>,
        media: &'static str,
        body: impl Into<Bytes>,
    ) -> Ask {
        Ask { method, path: path.into(), media, accept: JSON, body: body.into() }
    }
}

enum Sender {
    One(http1::SendRequest<Full<Bytes>>),
    Many(http2::SendRequest<Full<Bytes>>),
}

/// A connection. A clone of an HTTP/2 one shares it.
pub struct Client {
    sender: Sender,
    target: Arc<Target>,
}

impl Client {
    /// Connects.
    pub async fn connect(target: &Arc<Target>) -> Result<Client> {
        let stream = TcpStream::connect(&target.authority).await.context("connect")?;
        stream.set_nodelay(true)?;
        let sender = match &target.tls {
            None => talk(stream, target.http2).await?,
            Some((config, name)) => {
                let connector = TlsConnector::from(config.clone());
                let stream = connector.connect(name.clone(), stream).await.context("TLS")?;
                talk(stream, target.http2).await?
            }
        };
        Ok(Client { sender, target: target.clone() })
    }

    /// The same connection for another worker, where it carries more than one request at once.
    pub fn share(&self) -> Option<Client> {
        match &self.sender {
            Sender::One(_) => None,
            Sender::Many(sender) => {
                Some(Client { sender: Sender::Many(sender.clone()), target: self.target.clone() })
            }
        }
    }

    /// Asks, and takes all of the answer.
    pub async fn call(&mut self, ask: Ask) -> Result<(u16, Bytes)> {
        let response = self.open(ask).await?;
        let status = response.status().as_u16();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    }

    /// Asks; anything but success is an error that says what the server said.
    pub async fn must(&mut self, ask: Ask) -> Result<Bytes> {
        let what = format!("{} {}", ask.method, ask.path);
        let (status, body) = self.call(ask).await.with_context(|| what.clone())?;
        if !(200..300).contains(&status) {
            bail!("{what}: {status} {}", String::from_utf8_lossy(&body));
        }
        Ok(body)
    }

    /// Asks, and leaves the answer's body to be read as it comes.
    pub async fn open(&mut self, ask: Ask) -> Result<Response<Incoming>> {
        let mut request = Request::builder()
            .method(ask.method)
            .header(CONTENT_TYPE, HeaderValue::from_static(ask.media))
            .header(ACCEPT, HeaderValue::from_static(ask.accept));
        if let Some(authorization) = &self.target.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let body = Full::new(ask.body);
        Ok(match &mut self.sender {
            Sender::One(sender) => {
                sender.ready().await?;
                let request = request.uri(ask.path).header(HOST, &self.target.authority);
                sender.send_request(request.body(body)?).await?
            }
            Sender::Many(sender) => {
                sender.ready().await?;
                let uri = format!("https://{}{}", self.target.authority, ask.path);
                sender.send_request(request.uri(uri).body(body)?).await?
            }
        })
    }
}

async fn talk<S>(stream: S, http2: bool) -> Result<Sender>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(stream);
    // The connection's end shows in the requests that it fails.
    if http2 {
        let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
        tokio::spawn(connection);
        return Ok(Sender::Many(sender));
    }
    let (sender, connection) = http1::handshake(io).await?;
    tokio::spawn(connection);
    Ok(Sender::One(sender))
}
