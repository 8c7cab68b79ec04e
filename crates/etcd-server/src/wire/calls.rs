//! gRPC calls: reads the request, calls the engine, writes the response. tonic has the framing and
//! the trailers.

use std::future::{self, Future};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use prost::Message;
use tokio::sync::{AcquireError, mpsc};
use tokio::time::timeout;
use tonic::body::Body;
use tonic::server::{Grpc, ServerStreamingService, StreamingService, UnaryService};
use tonic::{Status, Streaming};
use tonic_prost::ProstCodec;

use super::shared::Shared;
use super::stall::Share;
use super::unfinished::Place;
use crate::error::EtcdError;
use crate::room::{Room, Sent};

/// How long the message of a call may take to arrive.
const MESSAGE_TIME_MAX: Duration = Duration::from_secs(30);
/// Bytes before a message: whether it is compressed, and its length.
pub(super) const FRAME_BYTES: usize = 5;

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Answers a call of one request and one response, after its turn among all others.
pub(crate) async fn unary<Req, Res, F, Fut>(
    request: Request<Incoming>,
    bytes_max: usize,
    shared: &Shared,
    answer: F,
) -> Response<Body>
where
    Req: Message + Default + 'static,
    Res: Message + Default + 'static,
    F: FnOnce(Req) -> Fut + Send + 'static,
    Fut: Future<Output = Result<Res, EtcdError>> + Send + 'static,
{
    let answered = Arc::clone(&shared.answered);
    unary_after(request, bytes_max, shared, answered.acquire_owned(), answer).await
}

/// Answers such a call that has bounds of its own.
pub(crate) async fn unary_beside<Req, Res, F, Fut>(
    request: Request<Incoming>,
    bytes_max: usize,
    shared: &Shared,
    answer: F,
) -> Response<Body>
where
    Req: Message + Default + 'static,
    Res: Message + Default + 'static,
    F: FnOnce(Req) -> Fut + Send + 'static,
    Fut: Future<Output = Result<Res, EtcdError>> + Send + 'static,
{
    unary_after(request, bytes_max, shared, future::ready(Ok(())), answer).await
}

/// Answers a call after its turn has come, which is over when there is a response.
async fn unary_after<Req, Res, T, F, Fut>(
    request: Request<Incoming>,
    bytes_max: usize,
    shared: &Shared,
    turn: impl Future<Output = Result<T, AcquireError>>,
    answer: F,
) -> Response<Body>
where
    Req: Message + Default + 'static,
    Res: Message + Default + 'static,
    T: Send + 'static,
    F: FnOnce(Req) -> Fut + Send + 'static,
    Fut: Future<Output = Result<Res, EtcdError>> + Send + 'static,
{
    let (request, turn) = match arrive(request, bytes_max, shared, turn).await {
        Ok(arrived) => arrived,
        Err(status) => return refusal(status),
    };
    let share = Share::default();
    let service = Unary {
        answer: Some(answer),
        turn: Some(turn),
        share: share.clone(),
        shared: shared.clone(),
        types: PhantomData,
    };
    let mut response = codec(bytes_max).unary(service, request).await;
    response.extensions_mut().insert(share);
    response
}

/// Answers a call of one request and a stream of responses.
pub(crate) async fn server_stream<Req, Res, F, S>(
    request: Request<Incoming>,
    bytes_max: usize,
    shared: &Shared,
    answer: F,
) -> Response<Body>
where
    Req: Message + Default + 'static,
    Res: Message + Default + 'static,
    F: FnOnce(Req) -> S + Send + 'static,
    S: Stream<Item = Result<Res, Status>> + Send + 'static,
{
    let request = match arrive(request, bytes_max, shared, future::ready(Ok(()))).await {
        Ok((request, ())) => request,
        Err(status) => return refusal(status),
    };
    let service = ServerStream { answer: Some(answer), types: PhantomData };
    codec(bytes_max).server_streaming(service, request).await
}

/// Answers a call with a stream in each direction. `answer` gets the requests and where responses
/// go.
pub(crate) async fn stream<Req, Res, F, Fut>(
    request: Request<Incoming>,
    bytes_max: usize,
    responses_max: usize,
    answer: F,
) -> Response<Body>
where
    Req: Message + Default + 'static,
    Res: Message + Default + 'static,
    F: FnOnce(Streaming<Req>, mpsc::Sender<Sent<Res>>) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let service = Duplex { answer: Some(answer), responses_max, types: PhantomData };
    codec(bytes_max).streaming(service, request).await
}

/// A response that is an error only.
pub(crate) fn refusal(status: Status) -> Response<Body> {
    status.into_http()
}

fn codec<Req, Res>(bytes_max: usize) -> Grpc<ProstCodec<Res, Req>>
where
    Req: Message + Default + 'static,
    Res: Message + Default + 'static,
{
    Grpc::new(ProstCodec::default()).max_decoding_message_size(bytes_max)
}

/// Reads the request and waits for the turn of its call, as long as newer requests leave it its
/// place.
async fn arrive<T>(
    request: Request<Incoming>,
    bytes_max: usize,
    shared: &Shared,
    turn: impl Future<Output = Result<T, AcquireError>>,
) -> Result<(Request<Full<Bytes>>, T), Status> {
    let (place, lost) = shared.unfinished.enter();
    let arriving = async {
        let request = collect(request, bytes_max, &place).await?;
        let turn = turn.await.map_err(|_| EtcdError::Stopped)?;
        Ok((request, turn))
    };
    match lost.unless(arriving).await {
        Some(arrived) => arrived,
        None => Err(EtcdError::TooManyRequests.into()),
    }
}

/// Reads the whole body before the call, within limits of size and time.
async fn collect(
    request: Request<Incoming>,
    bytes_max: usize,
    place: &Place,
) -> Result<Request<Full<Bytes>>, Status> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, bytes_max + FRAME_BYTES)
        .inspect_frame(|frame| place.grow(frame.data_ref().map_or(0, Bytes::len)));
    let body = match timeout(MESSAGE_TIME_MAX, body.collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let text = format!("grpc: received message larger than max (limit {bytes_max})");
            return Err(Status::resource_exhausted(text));
        }
        Ok(Err(error)) => return Err(Status::cancelled(error.to_string())),
        Err(_) => return Err(Status::deadline_exceeded("the message did not arrive in time")),
    };
    Ok(Request::from_parts(head, Full::new(body)))
}

struct Unary<F, T, Req, Res> {
    answer: Option<F>,
    turn: Option<T>,
    share: Share,
    shared: Shared,
    types: PhantomData<fn(Req) -> Res>,
}

impl<F, T, Fut, Req, Res> UnaryService<Req> for Unary<F, T, Req, Res>
where
    T: Send + 'static,
    Req: Message + Default + 'static,
    Res: Message + Default + 'static,
    F: FnOnce(Req) -> Fut + Send + 'static,
    Fut: Future<Output = Result<Res, EtcdError>> + Send + 'static,
{
    type Response = Res;
    type Future = BoxFuture<Result<tonic::Response<Res>, Status>>;

    fn call(&mut self, request: tonic::Request<Req>) -> Self::Future {
        let Some(answer) = self.answer.take() else {
            return Box::pin(async { Err(called_twice()) });
        };
        let answer = answer(request.into_inner());
        let turn = self.turn.take();
        let share = self.share.clone();
        let shared = self.shared.clone();
        Box::pin(async move {
            let response = answer.await?;
            // Others are answered while this one waits for those who do not read.
            drop(turn);
            share.take(&shared.response_room, response.encoded_len()).await?;
            Ok(tonic::Response::new(response))
        })
    }
}

struct ServerStream<F, Req, Res> {
    answer: Option<F>,
    types: PhantomData<fn(Req) -> Res>,
}

impl<F, S, Req, Res> ServerStreamingService<Req> for ServerStream<F, Req, Res>
where
    Req: Message + Default + 'static,
    Res: Message + Default + 'static,
    F: FnOnce(Req) -> S + Send + 'static,
    S: Stream<Item = Result<Res, Status>> + Send + 'static,
{
    type Response = Res;
    type ResponseStream = S;
    type Future = future::Ready<Result<tonic::Response<S>, Status>>;

    fn call(&mut self, request: tonic::Request<Req>) -> Self::Future {
        let answer = self.answer.take().ok_or_else(called_twice);
        future::ready(answer.map(|answer| tonic::Response::new(answer(request.into_inner()))))
    }
}

struct Duplex<F, Req, Res> {
    answer: Option<F>,
    responses_max: usize,
    types: PhantomData<fn(Req) -> Res>,
}

impl<F, Fut, Req, Res> StreamingService<Req> for Duplex<F, Req, Res>
where
    Req: Message + Default + 'static,
    Res: Message + Default + 'static,
    F: FnOnce(Streaming<Req>, mpsc::Sender<Sent<Res>>) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    type Response = Res;
    type ResponseStream = Driven<Res, Fut>;
    type Future = future::Ready<Result<tonic::Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: tonic::Request<Streaming<Req>>) -> Self::Future {
        let answer = self.answer.take().ok_or_else(called_twice);
        let (sender, responses) = mpsc::channel(self.responses_max);
        future::ready(answer.map(|answer| {
            let running = Some(Box::pin(answer(request.into_inner(), sender)));
            tonic::Response::new(Driven { running, responses, room: None })
        }))
    }
}

/// The responses of a stream. Polling them runs what makes them, so that both end together.
pub(crate) struct Driven<Res, Fut> {
    running: Option<Pin<Box<Fut>>>,
    responses: mpsc::Receiver<Sent<Res>>,
    /// That of the response that was sent last.
    room: Option<Arc<Room>>,
}

impl<Res, Fut: Future<Output = ()>> Driven<Res, Fut> {
    fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<Option<Sent<Res>>> {
        if let Poll::Ready(sent) = self.responses.poll_recv(cx) {
            return Poll::Ready(sent);
        }
        let ended = self.running.as_mut().is_some_and(|run| run.as_mut().poll(cx).is_ready());
        if ended {
            // Closes the channel: what is in it is sent, then the stream ends.
            self.running = None;
        }
        self.responses.poll_recv(cx)
    }
}

impl<Res, Fut: Future<Output = ()>> Stream for Driven<Res, Fut> {
    type Item = Result<Res, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // The client has read enough of the response before that there is room for the next.
        self.room = None;
        let Some(sent) = ready!(self.poll_sent(cx)) else { return Poll::Ready(None) };
        self.room = sent.room;
        Poll::Ready(Some(sent.response))
    }
}

fn called_twice() -> Status {
    Status::internal("a call was made twice")
}
