//! An HTTPS server for tests whose responses come from a function: a token issuer or a webhook.

use crate::webhook::certificate;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

/// A request that the peer received.
pub struct PeerRequest {
    /// The path, without the query.
    pub path: String,
    /// The header `Authorization`, or empty.
    pub authorization: String,
    /// The body as JSON.
    pub body: Value,
}

/// Status and JSON body of a response; with `None` the peer never responds.
pub type Reply = Option<(u16, Value)>;

/// An HTTPS server.
pub struct HttpsPeer {
    /// The address that it listens on.
    pub address: SocketAddr,
    /// The CA bundle of its certificate in PEM.
    pub authority: String,
    _runtime: Runtime,
}

impl HttpsPeer {
    /// Starts a server; the function gets its URL and the request.
    pub fn start(answer: impl Fn(&str, PeerRequest) -> Reply + Send + Sync + 'static) -> HttpsPeer {
        let runtime = Runtime::new().expect("a runtime");
        let (config, bundle) = certificate("http/1.1", &["127.0.0.1"]);
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address = listener.local_addr().expect("an address");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let answer = Arc::new(answer);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                let answer = answer.clone();
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let answers = service_fn(move |request| {
                        let answer = answer.clone();
                        respond(request, move |received| {
                            answer(&format!("https://{address}"), received)
                        })
                    });
                    let http1 = hyper::server::conn::http1::Builder::new();
                    let _ = http1.serve_connection(TokioIo::new(stream), answers).await;
                });
            }
        });
        let authority = STANDARD.decode(bundle).expect("base64");
        let authority = String::from_utf8(authority).expect("PEM");
        HttpsPeer { address, authority, _runtime: runtime }
    }

    /// Returns the URL of the server.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }
}

async fn respond(
    request: Request<Incoming>,
    answer: impl FnOnce(PeerRequest) -> Reply,
) -> Result<Response<Full<Bytes>>, std::io::Error> {
    let path = request.uri().path().to_owned();
    let authorization = request
        .headers()
        .get("authorization")
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
        .to_owned();
    let body = request.into_body().collect().await.map_err(std::io::Error::other)?.to_bytes();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    let Some((status, body)) = answer(PeerRequest { path, authorization, body }) else {
        return std::future::pending().await;
    };
    let mut response = Response::new(Full::new(body.to_string().into()));
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    let media = "application/json".parse().expect("a media type");
    response.headers_mut().insert("content-type", media);
    Ok(response)
}
