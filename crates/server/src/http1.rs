//! Connections that speak HTTP/1.1. A watch takes its connection over: for as long as it lasts there is
//! nothing to read and one answer to write, so hyper's connection with its buffers and the future of the
//! request are given back, and the events are framed here (RFC 9112, section 7.1). Afterwards the
//! connection takes requests again.

use crate::app::App;
use crate::body::{Body, Chunks};
use crate::context::RequestContext;
use crate::host;
use crate::opening::{Opening, Peer};
use crate::sending::Sending;
use crate::socket::{Rewound, Signals};
use crate::websocket;
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
/// Digits of the largest chunk's size, and the end of their line.
const SIZE_LINE_BYTES: usize = 18;

/// Serves a connection until its client or the server ends it.
pub(crate) async fn serve<S>(app: Arc<App>, mut stream: Rewound<S>, peer: Peer, opening: Opening)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let peer = Arc::new(peer);
    stream.bound_heads(app.limits.header_timeout);
    loop {
        // In a box of its own, whose memory a watch gives back.
        let requests = Box::pin(requests(&app, stream, peer.clone(), &opening));
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

/// Answers requests until the connection ends, or a watch takes it over.
async fn requests<S>(
    app: &Arc<App>,
    stream: Rewound<S>,
    peer: Arc<Peer>,
    opening: &Opening,
) -> Option<(Rewound<S>, Watch)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let lent = Arc::new(Lent { signals: stream.signals(), watch: Mutex::default() });
    let service = service_fn({
        let (app, lent, opening) = (app.clone(), lent.clone(), opening.clone());
        move |request: Request<Incoming>| {
            opening.asked();
            let (app, peer, lent) = (app.clone(), peer.clone(), lent.clone());
            lent.signals.asked();
            async move {
                if let Some(refused) = host::refusal(request.version(), request.headers()) {
                    lent.signals.answered();
                    let context = RequestContext::default();
                    return Ok(refused.map(|body| Sending::new(body, false, context)));
                }
                // What is left of a body would be read as the next request.
                let can_take =
                    request.version() == Version::HTTP_11 && request.body().is_end_stream();
                let stays = !websocket::has_word(request.headers(), header::CONNECTION, "close");
                let reply = app.handle(request, peer).await;
                if reply.status() != StatusCode::SWITCHING_PROTOCOLS {
                    lent.signals.answered();
                }
                Ok::<_, Infallible>(if can_take { lent.take(reply, stays).await } else { reply })
            }
        }
    });
    let connection = Builder::new()
        .half_close(true)
        .timer(TokioTimer::new())
        // From its first byte on, a head has less time: see `Rewound`.
        .header_read_timeout(app.limits.idle_timeout)
        .max_buf_size(app.limits.header_bytes_max)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut borrowing = std::pin::pin!(Borrowing { connection: Some(connection), lent });
    let stop = |borrowing: Pin<&mut Borrowing<_, _>>| borrowing.graceful_shutdown();
    opening.attend(&app.shutdown, borrowing.as_mut(), stop).await?
}

/// hyper's connection, until a watch takes it over.
struct Borrowing<S, F>
where
    F: HttpService<Incoming>,
{
    connection: Option<UpgradeableConnection<TokioIo<Rewound<S>>, F>>,
    lent: Arc<Lent>,
}

impl<S, F> Borrowing<S, F>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: HttpService<Incoming, ResBody = Sending, Error = Infallible> + Unpin,
{
    fn graceful_shutdown(self: Pin<&mut Self>) {
        if let Some(connection) = &mut self.get_mut().connection {
            Pin::new(connection).graceful_shutdown();
        }
    }
}

impl<S, F> Future for Borrowing<S, F>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: HttpService<Incoming, ResBody = Sending, Error = Infallible> + Unpin,
{
    type Output = Option<(Rewound<S>, Watch)>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let Some(connection) = &mut this.connection else { return Poll::Ready(None) };
        if let Poll::Ready(ended) = Pin::new(connection).poll(cx) {
            if let Err(error) = ended {
                tracing::debug!(%error, "connection ended");
            }
            return Poll::Ready(None);
        }
        // What is left of the answers before is sent first; each step of that comes by here.
        if this.lent.signals.is_unsent() {
            return Poll::Pending;
        }
        let Some(watch) = this.lent.watch().take() else { return Poll::Pending };
        let parts = this.connection.take().and_then(UpgradeableConnection::into_parts);
        Poll::Ready(parts.map(|parts| {
            let mut stream = parts.io.into_inner();
            // A copy, for hyper's buffer has room for much more.
            stream.read_again(Bytes::copy_from_slice(&parts.read_buf));
            (stream, watch)
        }))
    }
}

/// State shared by hyper's connection and its owner.
struct Lent {
    /// The watch that takes the connection over.
    watch: Mutex<Option<Watch>>,
    /// Whether hyper has something to send: it flushes when all is written.
    signals: Arc<Signals>,
}

impl Lent {
    /// Takes the connection over where the answer is a stream, and never ends then.
    async fn take(&self, reply: Response<Sending>, stays: bool) -> Response<Sending> {
        let (head, Sending { body, context, .. }) = reply.into_parts();
        match body {
            Body::Stream(events) => {
                *self.watch() = Some(Watch { head, events, stays, context });
                std::future::pending().await
            }
            body => Response::from_parts(head, Sending::new(body, false, context)),
        }
    }

    fn watch(&self) -> MutexGuard<'_, Option<Watch>> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer that has its connection for itself.
struct Watch {
    head: Parts,
    events: Chunks,
    /// Whether the client may ask again afterwards.
    stays: bool,
    /// Ends with it.
    context: RequestContext,
}

impl Watch {
    /// Sends it, to its end; true when the connection can go on.
    async fn send(mut self, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<bool> {
        stream.write_all(&self.written_head()).await?;
        drop(self.head);
        // Events that are there go out with the head.
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
                // One without bytes would be the last.
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
        Ok(self.stays)
    }

    fn written_head(&self) -> Vec<u8> {
        let mut out = format!("HTTP/1.1 {}\r\n", self.head.status).into_bytes();
        let mut field = |name: &str, value: &[u8]| {
            for part in [name.as_bytes(), b": ", value, b"\r\n"] {
                out.extend_from_slice(part);
            }
        };
        for (name, value) in &self.head.headers {
            field(name.as_str(), value.as_bytes());
        }
        if !self.stays {
            field("connection", b"close");
        }
        field("date", httpdate::fmt_http_date(SystemTime::now()).as_bytes());
        field("transfer-encoding", b"chunked");
        out.extend_from_slice(b"\r\n");
        out
    }
}
