//! HTTP/1.1 connections. A watch takes over its connection: while it lasts there is nothing to read
//! and one response to write, so hyper's connection with its buffers and the future of the request
//! are freed, and the chunked body is encoded here (RFC 9112, section 7.1). Afterwards the
//! connection accepts requests again.

use crate::app::App;
use crate::body::{Body, ChunkStream};
use crate::context::RequestContext;
use crate::front;
use crate::header_lists::has_token;
use crate::host;
use crate::peer::{FirstRequest, Peer};
use crate::response_body::ResponseBody;
use crate::socket::{Http1State, PeekableStream};
use bytes::{Buf, Bytes};
use futures_util::FutureExt;
use http::response::Parts;
use http::{Request, Response, StatusCode, Version, header};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1::{Builder, UpgradeableConnection};
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io::{self, Write};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::SystemTime;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

/// The last chunk of a chunked body.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
/// Bytes of the longest chunk size line: hexadecimal digits and CRLF.
const SIZE_LINE_BYTES: usize = 18;

/// Serves a connection until its client or the server ends it.
pub(crate) async fn serve<S>(
    app: Arc<App>,
    mut stream: PeekableStream<S>,
    peer: Peer,
    first_request: FirstRequest,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let peer = Arc::new(peer);
    stream.set_header_timeout(app.limits.header_timeout);
    loop {
        // Boxed, so that its memory is freed during a watch.
        let requests = Box::pin(requests(&app, stream, peer.clone(), &first_request));
        let Some((back, watch)) = requests.await else { return };
        stream = back;
        match watch.send(&mut stream).await {
            Ok(true) if !*app.shutdown.borrow() => {}
            Ok(_) => {
                let _ = stream.shutdown().await;
                return;
            }
            Err(error) => return tracing::debug!(%error, "connection ended"),
        }
    }
}

/// Serves requests until the connection ends, or a watch takes it over.
async fn requests<S>(
    app: &Arc<App>,
    stream: PeekableStream<S>,
    peer: Arc<Peer>,
    first_request: &FirstRequest,
) -> Option<(PeekableStream<S>, WatchResponse)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handover = Arc::new(Handover { state: stream.state(), watch: Mutex::default() });
    let service = service_fn({
        let app = app.clone();
        let handover = handover.clone();
        let first_request = first_request.clone();
        move |request: Request<Incoming>| {
            first_request.mark_arrived();
            let app = app.clone();
            let peer = peer.clone();
            let handover = handover.clone();
            handover.state.request_received();
            async move {
                if let Some(refused) = host::refusal(request.version(), request.headers()) {
                    handover.state.response_ready();
                    return Ok(refused.map(ResponseBody::plain));
                }
                // The rest of an unread body would be parsed as the next request.
                let can_hand_over =
                    request.version() == Version::HTTP_11 && request.body().is_end_stream();
                let keep_alive = !has_token(request.headers(), header::CONNECTION, "close");
                let reply = front::answer(app, request, peer).await;
                if reply.status() != StatusCode::SWITCHING_PROTOCOLS {
                    handover.state.response_ready();
                }
                Ok::<_, Infallible>(if can_hand_over {
                    handover.offer(reply, keep_alive).await
                } else {
                    reply
                })
            }
        }
    });
    let connection = Builder::new()
        .half_close(true)
        .timer(TokioTimer::new())
        // After its first byte a head has less time: see `PeekableStream`.
        .header_read_timeout(app.limits.idle_timeout)
        .max_buf_size(app.limits.header_bytes_max)
        .max_headers(app.limits.header_lines_max)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection_or_watch =
        std::pin::pin!(Http1Connection { connection: Some(connection), handover });
    let stop = |connection_or_watch: Pin<&mut Http1Connection<_, _>>| {
        connection_or_watch.graceful_shutdown()
    };
    first_request.drive(&app.shutdown, connection_or_watch.as_mut(), stop).await?
}

/// hyper's connection. Resolves to the stream and the watch if a watch takes it over.
struct Http1Connection<S, F>
where
    F: HttpService<Incoming>,
{
    connection: Option<UpgradeableConnection<TokioIo<PeekableStream<S>>, F>>,
    handover: Arc<Handover>,
}

impl<S, F> Http1Connection<S, F>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: HttpService<Incoming, ResBody = ResponseBody, Error = Infallible> + Unpin,
{
    fn graceful_shutdown(self: Pin<&mut Self>) {
        if let Some(connection) = &mut self.get_mut().connection {
            Pin::new(connection).graceful_shutdown();
        }
    }
}

impl<S, F> Future for Http1Connection<S, F>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: HttpService<Incoming, ResBody = ResponseBody, Error = Infallible> + Unpin,
{
    type Output = Option<(PeekableStream<S>, WatchResponse)>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let Some(connection) = &mut this.connection else { return Poll::Ready(None) };
        if let Poll::Ready(ended) = Pin::new(connection).poll(cx) {
            if let Err(error) = ended {
                tracing::debug!(%error, "connection ended");
            }
            return Poll::Ready(None);
        }
        // Earlier responses must be flushed first; their progress polls this future again.
        if this.handover.state.has_unflushed() {
            return Poll::Pending;
        }
        let Some(watch) = this.handover.watch().take() else { return Poll::Pending };
        let parts = this.connection.take().and_then(UpgradeableConnection::into_parts);
        Poll::Ready(parts.map(|parts| {
            let mut stream = parts.io.into_inner();
            // Copied, because hyper's buffer has a much larger capacity.
            stream.unread(Bytes::copy_from_slice(&parts.read_buf));
            (stream, watch)
        }))
    }
}

/// State shared by the request service and the owner of hyper's connection.
struct Handover {
    /// The watch that takes the connection over.
    watch: Mutex<Option<WatchResponse>>,
    /// Whether hyper has unflushed data.
    state: Arc<Http1State>,
}

impl Handover {
    /// Offers the connection to a watch if the response is a stream, and never returns then.
    async fn offer(
        &self,
        reply: Response<ResponseBody>,
        keep_alive: bool,
    ) -> Response<ResponseBody> {
        let (head, body) = reply.into_parts();
        match body {
            ResponseBody { body: Body::Stream(events), context, .. } => {
                *self.watch() = Some(WatchResponse { head, events, keep_alive, context });
                std::future::pending().await
            }
            body => Response::from_parts(head, body),
        }
    }

    fn watch(&self) -> MutexGuard<'_, Option<WatchResponse>> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The response of a watch, which owns its connection.
struct WatchResponse {
    head: Parts,
    events: ChunkStream,
    /// Whether the connection accepts requests afterwards.
    keep_alive: bool,
    /// Dropped at the end of the response.
    context: RequestContext,
}

impl WatchResponse {
    /// Sends the response. Returns whether the connection accepts further requests.
    async fn send(mut self, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<bool> {
        stream.write_all(&self.encode_head()).await?;
        drop(self.head);
        // Events that are available are sent together with the head.
        let mut next = self.events.next().now_or_never();
        loop {
            let chunk = match next.take() {
                Some(chunk) => chunk,
                None => {
                    stream.flush().await?;
                    self.events.next().await
                }
            };
            match chunk {
                // An empty chunk would end the body.
                Some(chunk) if chunk.is_empty() => {}
                Some(chunk) => {
                    self.context.sent(chunk.len());
                    let mut line = [0; SIZE_LINE_BYTES];
                    let mut rest = line.as_mut_slice();
                    write!(rest, "{:x}\r\n", chunk.len())?;
                    let unused = rest.len();
                    let line = &line[..SIZE_LINE_BYTES - unused];
                    stream.write_all_buf(&mut line.chain(chunk).chain(b"\r\n".as_slice())).await?;
                }
                None => break,
            }
        }
        stream.write_all(LAST_CHUNK).await?;
        stream.flush().await?;
        Ok(self.keep_alive)
    }

    fn encode_head(&self) -> Vec<u8> {
        let mut out = format!("HTTP/1.1 {}\r\n", self.head.status).into_bytes();
        let mut field = |name: &str, value: &[u8]| {
            for part in [name.as_bytes(), b": ", value, b"\r\n"] {
                out.extend_from_slice(part);
            }
        };
        for (name, value) in &self.head.headers {
            field(name.as_str(), value.as_bytes());
        }
        if !self.keep_alive {
            field("connection", b"close");
        }
        field("date", httpdate::fmt_http_date(SystemTime::now()).as_bytes());
        field("transfer-encoding", b"chunked");
        out.extend_from_slice(b"\r\n");
        out
    }
}
