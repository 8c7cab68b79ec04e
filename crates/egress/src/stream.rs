//! Exchanges whose bodies are passed on while they arrive, and upgrades to other protocols: what a
//! proxy needs.

use crate::body::{Body, StreamedBody};
use crate::client::Client;
use crate::connection::{self, Sender};
use crate::error::{Cause, Error};
use crate::http1_sender::{Http1Sender, Unanswered, is_replayable};
use crate::hyper_errors::hyper_cause;
use crate::traced;
use crate::wire::AddrPair;
use bytes::Bytes;
use http::header::HOST;
use http::{HeaderValue, Request, Response, StatusCode, Uri, Version};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};

/// A connection that has left HTTP.
pub type Upgraded = TokioIo<hyper::upgrade::Upgraded>;

/// The answer to a request to upgrade.
pub enum UpgradeAnswer {
    /// 101: the connection carries the new protocol.
    Switched(Response<()>, Upgraded),
    /// Any other answer.
    Refused(Response<StreamedResponse>),
}

/// The body of a response that is read while it arrives.
pub struct StreamedResponse {
    incoming: Incoming,
    addrs: AddrPair,
    /// Where an HTTP/1.1 connection goes when the body has ended.
    back: Option<(Arc<Client>, Http1Sender)>,
    _permit: OwnedSemaphorePermit,
}

impl Client {
    /// Sends a request, whose headers may name the host. Returns when the head of the response has
    /// arrived. The deadline covers the connection only: how long the exchange takes is up to the
    /// caller. The request is sent again over another connection only if nothing of it was sent,
    /// or, as Go does, if it has no body and a method that may be repeated, and nothing of a
    /// response has arrived on a pooled connection.
    pub async fn stream(
        self: &Arc<Self>,
        mut request: Request<StreamedBody>,
        connect_by: Instant,
    ) -> Result<Response<StreamedResponse>, Error> {
        // The query of a user's request may hold tokens.
        let span = traced::start(request.method(), self.peer(), request.uri().path());
        keelson_traces::propagate(&span, request.headers_mut());
        let response = self.stream_head(request, connect_by).await;
        match &response {
            Ok(response) => traced::answered(&span, response),
            Err(_) => span.fail(),
        }
        response.map_err(Error::head)
    }

    async fn stream_head(
        self: &Arc<Self>,
        request: Request<StreamedBody>,
        connect_by: Instant,
    ) -> Result<Response<StreamedResponse>, Cause> {
        let permit = self.stream_permit(connect_by).await?;
        let may_repeat =
            request.body().is_end_stream() && is_replayable(request.method(), request.headers());
        let mut message = request.map(Body::Right);
        loop {
            let pooled = timeout_at(connect_by, self.take(connect_by))
                .await
                .map_err(|_| Cause::Deadline)
                .flatten()?;
            let addrs = pooled.addrs;
            let is_new = pooled.is_new;
            let mut again = None;
            let sent = match pooled.sender {
                Sender::Http1(mut sender) => {
                    self.address(&mut message, Version::HTTP_11);
                    again = (may_repeat && !is_new).then(|| copy_head(&message));
                    let sent = sender.send(message).await;
                    sent.map(|response| (response, Some((self.clone(), sender))))
                }
                Sender::Http2(mut sender) => {
                    self.address(&mut message, Version::HTTP_2);
                    let sent = sender.try_send_request(message).await;
                    sent.map(|response| (response, None)).map_err(Unanswered::of_http2)
                }
            };
            let failed = match sent {
                Ok((response, back)) => {
                    return Ok(response.map(|incoming| StreamedResponse {
                        incoming,
                        addrs,
                        back,
                        _permit: permit,
                    }));
                }
                Err(failed) => failed,
            };
            let cause = failed.cause(addrs);
            message = match (failed.unsent, again) {
                (Some(unsent), _) if !is_new => unsent,
                (None, Some(again)) if !failed.is_begun => again,
                _ => return Err(cause),
            };
        }
    }

    /// Sends a request to upgrade over a connection of its own, in HTTP/1.1. The deadline covers
    /// the connection and the head of the response.
    pub async fn request_upgrade(
        self: &Arc<Self>,
        request: Request<()>,
        deadline: Instant,
    ) -> Result<UpgradeAnswer, Error> {
        let late = |_| Cause::Deadline;
        let opened = timeout_at(deadline, self.open_for_upgrade(deadline)).await;
        let opened = opened.map_err(late).flatten().map_err(Error::connect)?;
        let answer = timeout_at(deadline, self.upgrade_head(request, opened)).await;
        answer.map_err(late).flatten().map_err(Error::head)
    }

    async fn upgrade_head(
        self: &Arc<Self>,
        request: Request<()>,
        opened: Opened,
    ) -> Result<UpgradeAnswer, Cause> {
        let Opened { mut sender, addrs, permit } = opened;
        let empty = Empty::new().map_err(|never| match never {});
        let mut message = request.map(|()| Body::Right(UnsyncBoxBody::new(empty)));
        self.address(&mut message, Version::HTTP_11);
        let response =
            sender.send_request(message).await.map_err(|error| hyper_cause(&error, addrs))?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let body = |incoming| StreamedResponse { incoming, addrs, back: None, _permit: permit };
            return Ok(UpgradeAnswer::Refused(response.map(body)));
        }
        let (parts, incoming) = response.into_parts();
        let upgraded = hyper::upgrade::on(Response::from_parts(parts.clone(), incoming))
            .await
            .map_err(|error| hyper_cause(&error, addrs))?;
        Ok(UpgradeAnswer::Switched(Response::from_parts(parts, ()), TokioIo::new(upgraded)))
    }

    /// Completes the request line for a version of HTTP. A `Host` of the request is kept.
    fn address(&self, message: &mut Request<Body>, version: Version) {
        *message.version_mut() = version;
        let path = message
            .uri()
            .path_and_query()
            .cloned()
            .unwrap_or_else(|| http::uri::PathAndQuery::from_static("/"));
        if version != Version::HTTP_2 {
            if !message.headers().contains_key(HOST)
                && let Ok(host) = HeaderValue::from_str(self.authority())
            {
                message.headers_mut().insert(HOST, host);
            }
            *message.uri_mut() = Uri::from(path);
            return;
        }
        let removed = message.headers_mut().remove(HOST);
        let host = removed.as_ref().and_then(|host| host.to_str().ok());
        let uri = Uri::builder()
            .scheme("https")
            .authority(host.unwrap_or(self.authority()))
            .path_and_query(path)
            .build();
        *message.uri_mut() = uri.unwrap_or_default();
    }
}

/// Returns a request with the same head and no body.
fn copy_head(message: &Request<Body>) -> Request<Body> {
    let mut copy = Request::new(Body::Left(Full::default()));
    *copy.method_mut() = message.method().clone();
    *copy.uri_mut() = message.uri().clone();
    *copy.headers_mut() = message.headers().clone();
    copy
}

impl HttpBody for StreamedResponse {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.incoming).poll_frame(cx);
        let is_over = matches!(polled, Poll::Ready(None)) || this.incoming.is_end_stream();
        if is_over && let Some((client, sender)) = this.back.take() {
            client.put_back(sender, this.addrs);
        }
        polled.map_err(|error| match hyper_cause(&error, this.addrs) {
            Cause::Closed | Cause::Protocol(_) => io::Error::other(Cause::Cut.to_string()),
            other => io::Error::other(other.to_string()),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

/// A connection in HTTP/1.1 that is not pooled and may be upgraded.
struct Opened {
    sender: http1::SendRequest<Body>,
    addrs: AddrPair,
    permit: OwnedSemaphorePermit,
}

impl Client {
    async fn open_for_upgrade(self: &Arc<Self>, deadline: Instant) -> Result<Opened, Cause> {
        let permit = self.stream_permit(deadline).await?;
        let (stream, addrs) = self.connect_http1(deadline).await?;
        let sender = connection::start_upgradable(stream).await;
        let sender = sender.map_err(|error| hyper_cause(&error, addrs))?;
        Ok(Opened { sender, addrs, permit })
    }
}
