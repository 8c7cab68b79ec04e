//! Watches over WebSocket (RFC 6455): each event is a message, text for JSON and binary for protobuf
//! (apiserver `endpoints/handlers/watch.go`).

use crate::body::{Body, Chunks};
use crate::connections::Place;
use crate::opening::{Peer, told};
use crate::respond::{self, Reply};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::{Buf, Bytes};
use futures_util::{SinkExt, StreamExt};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use keelson_meta::{Failure, Status};
use tokio::sync::watch;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Message, Role, WebSocketConfig};

/// Bytes of a message, and of each of its frames, from a client, who has nothing to say but that it goes.
const MESSAGE_BYTES_MAX: usize = 4 << 10;
/// The version of the protocol, as its header has it.
const VERSION: &str = "13";
/// Prefix of a subprotocol that carries a bearer token (apiserver `authentication/request/websocket`).
const TOKEN_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// A request that wants to go on as a WebSocket.
pub(crate) struct Upgrade {
    on: OnUpgrade,
    /// The connection counts until the socket is closed.
    place: Place,
}

impl Upgrade {
    /// Takes what is needed for the upgrade out of a request that asks for one.
    pub fn of(request: &mut Request<Incoming>, peer: &Peer) -> Option<Upgrade> {
        if *request.method() != Method::GET
            || !has_word(request.headers(), header::UPGRADE, "websocket")
            || !has_word(request.headers(), header::CONNECTION, "upgrade")
        {
            return None;
        }
        Some(Upgrade { on: hyper::upgrade::on(request), place: peer.place.clone() })
    }

    /// Goes on as a WebSocket where the answer is a stream of events; other answers stay what they are.
    pub fn switch(
        self,
        headers: &HeaderMap,
        reply: Reply,
        shutdown: watch::Receiver<bool>,
    ) -> Reply {
        let media_type = reply.headers().get(header::CONTENT_TYPE);
        let events = match media_type.and_then(|value| value.to_str().ok()) {
            Some("application/json") => Events::Lines,
            Some("application/vnd.kubernetes.protobuf;stream=watch") => Events::Counted,
            _ => return reply,
        };
        let (parts, body) = reply.into_parts();
        let Body::Stream(chunks) = body else { return Reply::from_parts(parts, body) };
        let mut switched = match handshake(headers) {
            Ok(switched) => switched,
            Err(refused) => return *refused,
        };
        *switched.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        tokio::spawn(self.run(chunks, events, shutdown));
        switched
    }

    async fn run(self, mut chunks: Chunks, events: Events, mut shutdown: watch::Receiver<bool>) {
        let Ok(upgraded) = self.on.await else { return };
        let config = WebSocketConfig::default()
            .max_message_size(Some(MESSAGE_BYTES_MAX))
            .max_frame_size(Some(MESSAGE_BYTES_MAX))
            .read_buffer_size(MESSAGE_BYTES_MAX);
        let io = TokioIo::new(upgraded);
        let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
        let (mut sink, mut source) = socket.split();
        let pump = async {
            while let Some(mut chunk) = chunks.next().await {
                while let Some(message) = events.next(&mut chunk) {
                    sink.feed(message).await?;
                }
                sink.flush().await?;
            }
            sink.close().await
        };
        let listen = async { while let Some(Ok(_)) = source.next().await {} };
        tokio::select! {
            sent = pump => {
                if let Err(error) = sent {
                    tracing::debug!(%error, "a WebSocket ended");
                }
            }
            () = listen => {}
            () = told(&mut shutdown) => {}
            () = self.place.evicted() => {}
        }
    }
}

/// The framing of events in a stream.
#[derive(Clone, Copy)]
enum Events {
    /// JSON, a line each.
    Lines,
    /// Four bytes of length before each.
    Counted,
}

impl Events {
    /// Takes the next event off a chunk.
    fn next(self, chunk: &mut Bytes) -> Option<Message> {
        if chunk.is_empty() {
            return None;
        }
        match self {
            Events::Lines => {
                let end = chunk.iter().position(|byte| *byte == b'\n');
                let line = chunk.split_to(end.map_or(chunk.len(), |end| end + 1));
                Some(Message::Text(line.try_into().ok()?))
            }
            Events::Counted => {
                let length = usize::try_from(chunk.try_get_u32().ok()?).ok()?;
                Some(Message::Binary(chunk.split_to(length.min(chunk.len()))))
            }
        }
    }
}

fn words(headers: &HeaderMap, name: header::HeaderName) -> impl Iterator<Item = &str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|text| text.split(',')).map(str::trim).filter(|word| !word.is_empty())
}

pub(crate) fn has_word(headers: &HeaderMap, name: header::HeaderName, word: &str) -> bool {
    words(headers, name).any(|given| given.eq_ignore_ascii_case(word))
}

/// The answer to a handshake: 101, or its refusal.
fn handshake(headers: &HeaderMap) -> Result<Reply, Box<Reply>> {
    let refused = |code| Box::new(respond::text(code, ""));
    if !has_word(headers, header::SEC_WEBSOCKET_VERSION, VERSION) {
        let mut reply = refused(400);
        let version = HeaderValue::from_static(VERSION);
        reply.headers_mut().insert(header::SEC_WEBSOCKET_VERSION, version);
        return Err(reply);
    }
    // Browsers say where they come from; the reference wants that of everybody.
    if !headers.contains_key(header::ORIGIN) {
        return Err(refused(403));
    }
    let key = headers.get(header::SEC_WEBSOCKET_KEY).ok_or_else(|| refused(400))?;
    let mut protocols = words(headers, header::SEC_WEBSOCKET_PROTOCOL)
        .filter(|protocol| !protocol.starts_with(TOKEN_PREFIX));
    let (protocol, more) = (protocols.next(), protocols.next());
    if more.is_some() {
        return Err(refused(400));
    }
    let accept = HeaderValue::try_from(derive_accept_key(key.as_bytes()));
    let mut reply = Reply::new(Body::empty());
    let out = reply.headers_mut();
    out.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    out.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    out.insert(header::SEC_WEBSOCKET_ACCEPT, accept.map_err(|_| refused(400))?);
    if let Some(Ok(protocol)) = protocol.map(HeaderValue::from_str) {
        out.insert(header::SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    Ok(reply)
}

/// The `Authorization` header that a WebSocket's subprotocols stand for: browsers cannot send the header
/// itself. 401 for one that cannot be read.
pub(crate) fn authorization(headers: &HeaderMap) -> Result<Option<String>, Failure> {
    let mut tokens = words(headers, header::SEC_WEBSOCKET_PROTOCOL)
        .filter_map(|protocol| protocol.strip_prefix(TOKEN_PREFIX));
    let Some(token) = tokens.next() else { return Ok(None) };
    let token = URL_SAFE_NO_PAD.decode(token).ok().and_then(|token| String::from_utf8(token).ok());
    token.map(|token| Some(format!("Bearer {token}"))).ok_or_else(Status::unauthorized)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_taken_apart() {
        let mut chunk = Bytes::from_static(b"{\"a\":1}\n{}\n");
        let first = Events::Lines.next(&mut chunk);
        assert_eq!(first, Some(Message::Text("{\"a\":1}\n".into())));
        assert_eq!(Events::Lines.next(&mut chunk), Some(Message::Text("{}\n".into())));
        assert_eq!(Events::Lines.next(&mut chunk), None);
        let mut chunk = Bytes::from_static(b"\0\0\0\x02ab\0\0\0\x01c");
        let binary = |bytes: &'static [u8]| Some(Message::Binary(Bytes::from_static(bytes)));
        assert_eq!(Events::Counted.next(&mut chunk), binary(b"ab"));
        assert_eq!(Events::Counted.next(&mut chunk), binary(b"c"));
        assert_eq!(Events::Counted.next(&mut chunk), None);
    }

    #[test]
    fn tokens_come_as_subprotocols() {
        let mut headers = HeaderMap::new();
        assert_eq!(authorization(&headers), Ok(None));
        let text = "base64url.bearer.authorization.k8s.io.dG9r, x";
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(text));
        assert_eq!(authorization(&headers), Ok(Some("Bearer tok".to_owned())));
    }
}
