//! HTTP/2 connections. A stream whose client reads nothing is reset after a timeout. A connection
//! ends gracefully (GOAWAY) if it is idle or old, on request, or at shutdown.

use crate::app::App;
use crate::front;
use crate::peer::{FirstRequest, Peer, shutdown_requested};
use crate::polls::Measured;
use crate::response_body::{self, PollOutcome};
use http::Request;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

/// Serves a connection until its client or the server ends it.
pub(crate) async fn serve<S>(app: Arc<App>, stream: S, peer: Peer, first_request: FirstRequest)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let peer = Arc::new(peer);
    let slot = peer.slot.clone();
    let service = service_fn({
        let app = app.clone();
        let first_request = first_request.clone();
        move |request: Request<Incoming>| {
            first_request.mark_arrived();
            let app = app.clone();
            let peer = peer.clone();
            // Boxed, so that its memory is freed when the response begins: a watch needs little of
            // it.
            Box::pin(async move {
                let answer = front::answer(app, request, peer).await;
                response_body::mark_waiting_for_client();
                Ok::<_, Infallible>(answer)
            })
        }
    });
    let limits = &app.limits;
    let connection = http2::Builder::new(Streams {
        stall_max: limits.write_stall_timeout,
        is_profiled: limits.contention_profiling,
    })
    .timer(TokioTimer::new())
    .max_concurrent_streams(limits.http2_streams_max)
    .initial_stream_window_size(limits.http2_window_bytes)
    .initial_connection_window_size(limits.http2_window_bytes.saturating_mul(4))
    .max_header_list_size(u32::try_from(limits.header_bytes_max).unwrap_or(u32::MAX))
    .max_pending_accept_reset_streams(limits.http2_resets_max)
    .max_local_error_reset_streams(limits.http2_resets_max)
    .max_send_buf_size(response_body::PIECE_BYTES)
    .keep_alive_interval(limits.http2_ping_interval)
    .keep_alive_timeout(limits.http2_ping_timeout)
    .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let mut shutdown = app.shutdown.clone();
    let mut lifetime = Lifetime::begin(&app, first_request);
    loop {
        let action = tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection ended");
                }
                return;
            }
            () = shutdown_requested(&mut shutdown), if !lifetime.is_ending => Action::GoAway,
            () = slot.goaway_requested(), if !lifetime.is_ending => Action::GoAway,
            () = sleep_until(lifetime.check_at) => lifetime.check(slot.idle_for(), Instant::now()),
        };
        match action {
            Action::Continue => {}
            Action::GoAway => {
                connection.as_mut().graceful_shutdown();
                lifetime.end(Instant::now());
            }
            Action::Close => return,
        }
    }
}

/// What to do with a connection.
#[derive(Debug, PartialEq)]
enum Action {
    /// Keep serving.
    Continue,
    /// Send GOAWAY; close after the last stream.
    GoAway,
    /// Close now.
    Close,
}

/// Tracks when a connection has to end.
struct Lifetime {
    first_request: FirstRequest,
    idle_max: Duration,
    drain_max: Duration,
    /// When the connection reaches its maximum age.
    ends_at: Instant,
    /// When to check the connection next.
    check_at: Instant,
    is_ending: bool,
}

impl Lifetime {
    fn begin(app: &App, first_request: FirstRequest) -> Lifetime {
        let limits = &app.limits;
        // Random, so that connections opened together do not all end together.
        let random = app.registry.clock.random();
        let share = u32::from(u16::from_le_bytes([random[0], random[1]]));
        let age = limits.connection_age_max;
        let ends_at = Instant::now() + age - age / 8 * share / u32::from(u16::MAX);
        Lifetime {
            check_at: first_request.deadline(),
            first_request,
            idle_max: limits.idle_timeout,
            drain_max: limits.drain_timeout,
            ends_at,
            is_ending: false,
        }
    }

    /// Decides what to do with a connection that has been idle this long; `None` if it has a
    /// request.
    fn check(&mut self, idle: Option<Duration>, now: Instant) -> Action {
        if self.is_ending {
            // The last responses may wait for a client that reads nothing.
            self.check_at = now + self.drain_max;
            return if idle.is_some() { Action::Close } else { Action::Continue };
        }
        if !self.first_request.has_arrived() {
            tracing::debug!("no request came in time");
            return Action::Close;
        }
        let idle = idle.unwrap_or_default();
        if now >= self.ends_at || idle >= self.idle_max {
            return Action::GoAway;
        }
        self.check_at = (now + self.idle_max.saturating_sub(idle)).min(self.ends_at);
        Action::Continue
    }

    fn end(&mut self, now: Instant) {
        self.is_ending = true;
        self.check_at = now + self.drain_max;
    }
}

/// Spawns the streams of a connection, and resets those whose client reads nothing.
#[derive(Clone)]
struct Streams {
    stall_max: Duration,
    is_profiled: bool,
}

impl<F> Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let stall_max = self.stall_max;
        let task = async move {
            // Dropping the stream resets it.
            let mut stream = std::pin::pin!(stream);
            let mut stalled = None;
            std::future::poll_fn(|cx| poll(stream.as_mut(), &mut stalled, stall_max, cx)).await;
        };
        match self.is_profiled {
            true => tokio::spawn(Measured::new(task)),
            false => tokio::spawn(task),
        };
    }
}

/// Polls a stream. Also ready if its client has read nothing for too long. `stalled` is set while
/// the stream waits for its client.
fn poll(
    stream: Pin<&mut impl Future<Output = ()>>,
    stalled: &mut Option<Pin<Box<Sleep>>>,
    stall_max: Duration,
    cx: &mut Context<'_>,
) -> Poll<()> {
    let (polled, outcome) = response_body::observe_poll(|| stream.poll(cx));
    if polled.is_ready() {
        return Poll::Ready(());
    }
    match outcome {
        Some(PollOutcome::WaitingForClient) => *stalled = Some(Box::pin(sleep(stall_max))),
        Some(PollOutcome::WaitingForServer) => *stalled = None,
        None => {}
    }
    let Some(stalled) = stalled else { return Poll::Pending };
    stalled.as_mut().poll(cx).map(|()| {
        tracing::debug!("client reads nothing; resetting its stream");
    })
}
