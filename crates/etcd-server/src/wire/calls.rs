//! gRPC calls: reads the request, calls the engine, writes the response. tonic has the framing and the
//! trailers.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use prost::Message;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tonic::body::Body;
use tonic::server::{Grpc, ServerStreamingService, StreamingService, UnaryService};
use tonic::{Status, Streaming};
use tonic_prost::ProstCodec;

use super::shared::Shared;
use super::stall::Share;
use crate::error::EtcdError;

/// How long the message of a call may take to arrive.
const MESSAGE_TIME_MAX: Duration = Duration::from_secs(30);
/// Bytes before a message: whether it is compressed, and its length.
const FRAME_BYTES: usize = 5;

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Answers a call of one request and one response.
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
    let Ok(_call) = shared.calls.acquire().await else { return refusal(EtcdError::Stopped.into()) };
    let request = match collect(request, bytes_max).await {
        Ok(request) => request,
        Err(status) => return refusal(status),
    };
    let share = Share::default();
    let service = Unary {
        answer: Some(answer),
        share: share.clone(),
        room: Arc::clone(&shared.response_room),
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
    answer: F,
) -> Response<Body>
where
    Req: Message + Default + 'static,
    Res: Message + Default + 'static,
    F: FnOnce(Req) -> S + Send + 'static,
    S: Stream<Item = Result<Res, Status>> + Send + 'static,
{
    let request = match collect(request, bytes_max).await {
        Ok(request) => request,
        Err(status) => return refusal(status),
    };
    let service = ServerStream { answer: Some(answer), types: PhantomData };
    codec(bytes_max).server_streaming(service, request).await
}

/// Answers a call with a stream in each direction. `answer` gets the requests and where responses go.
pub(crate) async fn stream<Req, Res, F, Fut>(
    request: Request<Incoming>,
    bytes_max: usize,
    responses_max: usize,
    answer: F,
) -> Response<Body>
where
    Req: Message + Default + 'static,
    Res: Message + Default + 'static,
    F: FnOnce(Streaming<Req>, mpsc::Sender<Result<Res, Status>>) -> Fut + Send + 'static,
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

/// Reads the whole body before the call, within limits of size and time.
async fn collect(
    request: Request<Incoming>,
    bytes_max: usize,
) -> Result<Request<Full<Bytes>>, Status> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, bytes_max + FRAME_BYTES).collect();
    let body = match timeout(MESSAGE_TIME_MAX, body).await {
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

struct Unary<F, Req, Res> {
    answer: Option<F>,
    share: Share,
    room: Arc<Semaphore>,
    types: PhantomData<fn(Req) -> Res>,
}

impl<F, Fut, Req, Res> UnaryService<Req> for Unary<F, Req, Res>
where
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
        let (share, room) = (self.share.clone(), Arc::clone(&self.room));
        Box::pin(async move {
            let response = answer.await?;
            share.take(&room, response.encoded_len()).await?;
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
    type Future = std::future::Ready<Result<tonic::Response<S>, Status>>;

    fn call(&mut self, request: tonic::Request<Req>) -> Self::Future {
        let answer = self.answer.take().ok_or_else(called_twice);
        std::future::ready(answer.map(|answer| tonic::Response::new(answer(request.into_inner()))))
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
    F: FnOnce(Streaming<Req>, mpsc::Sender<Result<Res, Status>>) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    type Response = Res;
    type ResponseStream = Driven<Res, Fut>;
    type Future = std::future::Ready<Result<tonic::Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: tonic::Request<Streaming<Req>>) -> Self::Future {
        let answer = self.answer.take().ok_or_else(called_twice);
        let (sender, responses) = mpsc::channel(self.responses_max);
        std::future::ready(answer.map(|answer| {
            let running = Some(Box::pin(answer(request.into_inner(), sender)));
            tonic::Response::new(Driven { running, responses })
        }))
    }
}

/// The responses of a stream. Polling them runs what makes them, so that both end together.
pub(crate) struct Driven<Res, Fut> {
    running: Option<Pin<Box<Fut>>>,
    responses: mpsc::Receiver<Result<Res, Status>>,
}

impl<Res, Fut: Future<Output = ()>> Stream for Driven<Res, Fut> {
    type Item = Result<Res, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Poll::Ready(response) = self.responses.poll_recv(cx) {
            return Poll::Ready(response);
        }
        let ended = self.running.as_mut().is_some_and(|run| run.as_mut().poll(cx).is_ready());
        if ended {
            // Closes the channel: what is in it is sent, then the stream ends.
            self.running = None;
        }
        self.responses.poll_recv(cx)
    }
}

fn called_twice() -> Status {
    Status::internal("a call was made twice")
}
