//! One connection: HTTP/1 or HTTP/2, whichever the client speaks.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::header::CONTENT_TYPE;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::sleep;

use super::calls::refusal;
use super::pages;
use super::routes::Routes;
use super::stall::Observed;
use super::streams::Streams;
use crate::error::EtcdError;
use crate::limits::{
    FIRST_REQUEST_TIME_MAX, HEADER_BYTES_MAX, PING_INTERVAL, PING_TIME_MAX, RESETS_MAX,
    SEND_BUFFER_BYTES, STREAMS_MAX, WINDOW_BYTES,
};

/// Serves a connection until it ends.
pub(crate) async fn serve<S>(routes: Routes, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let has_request = Arc::new(AtomicBool::new(false));
    let streams = Streams::new(routes.shared.clone());
    let builder = builder(streams.clone());
    let service = service_fn({
        let has_request = Arc::clone(&has_request);
        move |request: Request<Incoming>| {
            has_request.store(true, Ordering::Relaxed);
            let routes = routes.clone();
            async move { Ok::<_, Infallible>(answer(routes, request).await) }
        }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(streams.run(connection));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = sleep(FIRST_REQUEST_TIME_MAX) => {
            if !has_request.load(Ordering::Relaxed) {
                return;
            }
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error, "connection ended");
    }
}

fn builder(streams: Streams) -> auto::Builder<Streams> {
    let mut builder = auto::Builder::new(streams);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(FIRST_REQUEST_TIME_MAX)
        .max_buf_size(HEADER_BYTES_MAX as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES.saturating_mul(4))
        .max_header_list_size(HEADER_BYTES_MAX)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_local_error_reset_streams(RESETS_MAX)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIME_MAX);
    builder
}

async fn answer(routes: Routes, request: Request<Incoming>) -> Response<Observed> {
    let media = request.headers().get(CONTENT_TYPE);
    let is_call = media.is_some_and(|media| media.as_bytes().starts_with(b"application/grpc"));
    if is_call && routes.has_calls {
        let Some(call) = routes.shared.open_call() else {
            return Observed::response(refusal(EtcdError::TooManyRequests.into()), None);
        };
        return Observed::response(routes.answer(request).await, Some(call));
    }
    let page = pages::answer(&routes.engine, request.method(), request.uri().path());
    Observed::response(page, None)
}
