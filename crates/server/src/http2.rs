//! Connections that speak HTTP/2. A stream whose client takes nothing is reset after a while; a connection
//! ends in good order (GOAWAY) when it is idle or old, when somebody asks it to, or when the server stops.

use crate::app::App;
use crate::opening::{Opening, Peer, told};
use crate::sending::{self, Said};
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
pub(crate) async fn serve<S>(app: Arc<App>, stream: S, peer: Peer, opening: Opening)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let peer = Arc::new(peer);
    let place = peer.place.clone();
    let service = service_fn({
        let (app, opening) = (app.clone(), opening.clone());
        move |request: Request<Incoming>| {
            opening.asked();
            let (app, peer) = (app.clone(), peer.clone());
            // In a box, whose memory is given back when the answer begins: a watch needs little of it.
            Box::pin(async move {
                let answer = app.handle(request, peer).await;
                sending::waits_for_the_client();
                Ok::<_, Infallible>(answer)
            })
        }
    });
    let limits = &app.limits;
    let connection = http2::Builder::new(Streams { stall_max: limits.write_stall_timeout })
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.http2_streams_max)
        .initial_stream_window_size(limits.http2_window_bytes)
        .initial_connection_window_size(limits.http2_window_bytes.saturating_mul(4))
        .max_header_list_size(u32::try_from(limits.header_bytes_max).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(limits.http2_resets_max)
        .max_local_error_reset_streams(limits.http2_resets_max)
        .max_send_buf_size(sending::PIECE_BYTES)
        .keep_alive_interval(limits.http2_ping_interval)
        .keep_alive_timeout(limits.http2_ping_timeout)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let mut shutdown = app.shutdown.clone();
    let mut course = Course::begin(&app, opening);
    loop {
        let ends = tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection ended");
                }
                return;
            }
            () = told(&mut shutdown), if !course.is_ending => Step::End,
            () = place.ending(), if !course.is_ending => Step::End,
            () = sleep_until(course.look_at) => course.look(place.idle_for(), Instant::now()),
        };
        match ends {
            Step::Go => {}
            Step::End => {
                connection.as_mut().graceful_shutdown();
                course.end(Instant::now());
            }
            Step::Cut => return,
        }
    }
}

/// The next step of a connection's life.
#[derive(Debug, PartialEq)]
enum Step {
    /// Keep serving.
    Go,
    /// Send GOAWAY; close after the last stream.
    End,
    /// Close now.
    Cut,
}

/// State of a connection's life.
struct Course {
    opening: Opening,
    idle_max: Duration,
    drain_max: Duration,
    /// When it is too old.
    ends_at: Instant,
    /// When it has to be looked at next.
    look_at: Instant,
    is_ending: bool,
}

impl Course {
    fn begin(app: &App, opening: Opening) -> Course {
        let limits = &app.limits;
        // Connections that came together must not all go together.
        let random = app.registry.clock.random();
        let share = u32::from(u16::from_le_bytes([random[0], random[1]]));
        let age = limits.connection_age_max;
        let ends_at = Instant::now() + age - age / 8 * share / u32::from(u16::MAX);
        Course {
            look_at: opening.by(),
            opening,
            idle_max: limits.idle_timeout,
            drain_max: limits.drain_timeout,
            ends_at,
            is_ending: false,
        }
    }

    /// What to do with a connection that had no request for so long; nothing: it has one.
    fn look(&mut self, idle: Option<Duration>, now: Instant) -> Step {
        if self.is_ending {
            // Its last answers may wait for a client that takes nothing.
            self.look_at = now + self.drain_max;
            return if idle.is_some() { Step::Cut } else { Step::Go };
        }
        if !self.opening.is_asked() {
            tracing::debug!("no request came in time");
            return Step::Cut;
        }
        let idle = idle.unwrap_or_default();
        if now >= self.ends_at || idle >= self.idle_max {
            return Step::End;
        }
        self.look_at = (now + self.idle_max.saturating_sub(idle)).min(self.ends_at);
        Step::Go
    }

    fn end(&mut self, now: Instant) {
        self.is_ending = true;
        self.look_at = now + self.drain_max;
    }
}

/// Spawns the streams of a connection, and resets those whose client takes nothing.
#[derive(Clone)]
struct Streams {
    stall_max: Duration,
}

impl<F> Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let stall_max = self.stall_max;
        tokio::spawn(async move {
            // To drop it is to reset it.
            let mut stream = std::pin::pin!(stream);
            let mut stalled = None;
            std::future::poll_fn(|cx| poll(stream.as_mut(), &mut stalled, stall_max, cx)).await;
        });
    }
}

/// Polls a stream; ready also when its client took nothing for too long. `stalled` is set while the stream
/// waits for its client.
fn poll(
    stream: Pin<&mut impl Future<Output = ()>>,
    stalled: &mut Option<Pin<Box<Sleep>>>,
    stall_max: Duration,
    cx: &mut Context<'_>,
) -> Poll<()> {
    let (polled, said) = sending::observed(|| stream.poll(cx));
    if polled.is_ready() {
        return Poll::Ready(());
    }
    match said {
        Some(Said::WaitsForClient) => *stalled = Some(Box::pin(sleep(stall_max))),
        Some(Said::WaitsForServer) => *stalled = None,
        None => {}
    }
    let Some(stalled) = stalled else { return Poll::Pending };
    stalled.as_mut().poll(cx).map(|()| {
        tracing::debug!("a client took nothing of an answer; resetting its stream");
    })
}
