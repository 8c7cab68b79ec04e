//! The local server of `keelson ui`: HTTP/1.1 on a loopback address, for one person's browser.

use super::answers::{AnswerBody, json, plain, whole};
use super::forward::Forwarder;
use super::gate::{Gate, Refusal};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use keelson::playground;
use keelson_meta::{Status, Str};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Most connections; further ones wait.
const CONNECTIONS_MAX: usize = 256;
/// How long a client may take to send the head of a request.
const HEAD_TIME_MAX: Duration = Duration::from_secs(15);
/// Most bytes of the head of a request.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Most bytes of an expression with its object.
const EXPRESSION_BYTES_MAX: usize = 4 << 20;
/// Wait after the system has refused a connection, for example because too many files are open.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(200);

/// What all connections share.
pub struct Shared {
    /// Decides which requests are answered.
    pub gate: Gate,
    /// Answers those for the API.
    pub forwarder: Forwarder,
}

/// Serves connections for ever.
pub async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            }
        };
        let shared = shared.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let shared = shared.clone();
                async move { Ok::<_, Infallible>(answer(&shared, request).await) }
            });
            let mut server = http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME_MAX);
            server.max_buf_size(HEAD_BYTES_MAX);
            let served =
                server.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
            if let Err(error) = served {
                tracing::debug!(%error, "a connection has failed");
            }
            drop(place);
        });
    }
}

/// Answers a request: the site is checked first, then the files are served, then the token is
/// checked.
async fn answer(shared: &Shared, request: Request<Incoming>) -> Response<AnswerBody> {
    if let Err(refusal) = shared.gate.check_site(request.headers()) {
        return refused(refusal);
    }
    let path = request.uri().path();
    if let Some(file) = keelson_explorer::answer(request.method(), path, request.headers()) {
        return file.map(whole);
    }
    if path == "/" && request.method() == Method::GET {
        let mut response = plain(StatusCode::FOUND, "");
        let location = HeaderValue::from_static(keelson_explorer::PATH);
        response.headers_mut().insert(header::LOCATION, location);
        return response;
    }
    match shared.gate.check_token(request.headers()) {
        Ok(()) if path == playground::PATH && request.method() == Method::POST => {
            evaluate(request).await
        }
        Ok(()) => shared.forwarder.forward(request).await,
        Err(refusal) => refused(refusal),
    }
}

/// Evaluates an expression in this process: the API server need not be able to.
async fn evaluate(request: Request<Incoming>) -> Response<AnswerBody> {
    let body = Limited::new(request.into_body(), EXPRESSION_BYTES_MAX).collect().await;
    let evaluated = match body {
        Ok(body) => playground::answer(Str::default(), body.to_bytes()).await,
        Err(error) => Err(Status::bad_request(error.to_string())),
    };
    match evaluated {
        Ok(value) => json(StatusCode::OK, &value),
        Err(failure) => {
            let status = StatusCode::from_u16(failure.code);
            json(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), &failure.to_value())
        }
    }
}

fn refused(refusal: Refusal) -> Response<AnswerBody> {
    let status = match refusal {
        Refusal::Host => StatusCode::MISDIRECTED_REQUEST,
        Refusal::Origin => StatusCode::FORBIDDEN,
        Refusal::Token => StatusCode::UNAUTHORIZED,
    };
    plain(status, refusal.text())
}
