//! New connections while the server stops (`--shutdown-send-retry-after`): as long as requests are
//! in flight they are accepted, and each request on them is answered with 429, so that clients try
//! another server or try again.

use crate::app::App;
use crate::tls::Tls;
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, Version, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Most connections at once; further ones wait in the backlog.
const CONNECTIONS_MAX: usize = 256;
/// How long a connection may last.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(5);
/// kube-apiserver's values.
const RETRY_AFTER_SECONDS: &str = "5";
const MESSAGE: &str = "The apiserver is shutting down, please try again later.\n";

/// Refuses the requests of new connections until the future is dropped.
pub(crate) async fn run(app: &Arc<App>, listener: &TcpListener, tls: Option<&Tls>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.len() >= CONNECTIONS_MAX {
            connections.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                let connection = refuse(app.clone(), stream, tls.cloned());
                connections.spawn(timeout(CONNECTION_TIME_MAX, connection));
            }
            Err(error) => {
                // Most likely out of file descriptors: wait until other connections close.
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn refuse(app: Arc<App>, stream: TcpStream, tls: Option<Tls>) {
    let Some(tls) = tls else { return serve(stream, false).await };
    match tls.accept_plainly(stream).await {
        Ok(stream) => {
            let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            serve(stream, is_http2).await;
        }
        Err(error) => {
            app.state.metrics.handshake_errors.increment();
            tracing::debug!(%error, "TLS handshake failed");
        }
    }
}

async fn serve<S>(stream: S, is_http2: bool)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service =
        service_fn(
            |request: Request<Incoming>| async move { Ok::<_, Infallible>(refusal(&request)) },
        );
    let stream = TokioIo::new(stream);
    let served = match is_http2 {
        true => http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await,
        false => {
            http1::Builder::new().timer(TokioTimer::new()).serve_connection(stream, service).await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "connection ended");
    }
}

fn refusal(request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(MESSAGE.as_bytes())));
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    let headers = response.headers_mut();
    headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECONDS));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    // HTTP/2 has no such header.
    if request.version() < Version::HTTP_2 {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
