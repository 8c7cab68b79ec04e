//! Watches over WebSocket (RFC 6455): each event is a message, text for JSON and binary for protobuf
//! (apiserver `endpoints/handlers/watch.go`).

use crate::body::{Body, ChunkStream};
use crate::connections::ConnectionSlot;
use crate::peer::{Peer, shutdown_requested};
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

/// Most bytes of a message or frame from a client, which only sends the close.
const MESSAGE_BYTES_MAX: usize = 4 << 10;
/// The protocol version in `Sec-WebSocket-Version`.
const VERSION: &str = "13";
/// Prefix of a subprotocol that carries a bearer token (apiserver `authentication/request/websocket`).
const TOKEN_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// A request to upgrade to a WebSocket.
pub(crate) struct Upgrade {
    on: OnUpgrade,
    /// Counts the connection until the socket is closed.
    slot: ConnectionSlot,
}

impl Upgrade {
    /// Takes the upgrade out of a request; `None` if it does not request a WebSocket.
    pub fn of(request: &mut Request<Incoming>, peer: &Peer) -> Option<Upgrade> {
        if *request.method() != Method::GET
            || !has_token(request.headers(), header::UPGRADE, "websocket")
            || !has_token(request.headers(), header::CONNECTION, "upgrade")
        {
            return None;
        }
        Some(Upgrade { on: hyper::upgrade::on(request), slot: peer.slot.clone() })
    }

    /// Switches to a WebSocket if the response is a stream of events; returns other responses unchanged.
    pub fn switch(
        self,
        headers: &HeaderMap,
        reply: Reply,
        shutdown: watch::Receiver<bool>,
    ) -> Reply {
        let media_type = reply.headers().get(header::CONTENT_TYPE);
        let events = match media_type.and_then(|value| value.to_str().ok()) {
            Some("application/json") => Events::Lines,
            Some("application/vnd.kubernetes.protobuf;stream=watch") => Events::LengthPrefixed,
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

    async fn run(
        self,
        mut chunks: ChunkStream,
        events: Events,
        mut shutdown: watch::Receiver<bool>,
    ) {
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
                    tracing::debug!(%error, "WebSocket ended");
                }
            }
            () = listen => {}
            () = shutdown_requested(&mut shutdown) => {}
            () = self.slot.evicted() => {}
        }
    }
}

/// The framing of events in a stream.
#[derive(Clone, Copy)]
enum Events {
    /// JSON, one line per event.
    Lines,
    /// Each event has a length prefix of four bytes.
    LengthPrefixed,
}

impl Events {
    /// Splits the next event off a chunk.
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
            Events::LengthPrefixed => {
                let length = usize::try_from(chunk.try_get_u32().ok()?).ok()?;
                Some(Message::Binary(chunk.split_to(length.min(chunk.len()))))
            }
        }
    }
}

fn header_tokens(headers: &HeaderMap, name: header::HeaderName) -> impl Iterator<Item = &str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|text| text.split(',')).map(str::trim).filter(|word| !word.is_empty())
}

pub(crate) fn has_token(headers: &HeaderMap, name: header::HeaderName, word: &str) -> bool {
    header_tokens(headers, name).any(|given| given.eq_ignore_ascii_case(word))
}

/// Returns the response to a handshake: 101, or an error.
fn handshake(headers: &HeaderMap) -> Result<Reply, Box<Reply>> {
    let refused = |code| Box::new(respond::text(code, ""));
    if !has_token(headers, header::SEC_WEBSOCKET_VERSION, VERSION) {
        let mut reply = refused(400);
        let version = HeaderValue::from_static(VERSION);
        reply.headers_mut().insert(header::SEC_WEBSOCKET_VERSION, version);
        return Err(reply);
    }
    // kube-apiserver requires an Origin header, which browsers send.
    if !headers.contains_key(header::ORIGIN) {
        return Err(refused(403));
    }
    let key = headers.get(header::SEC_WEBSOCKET_KEY).ok_or_else(|| refused(400))?;
    let mut protocols = header_tokens(headers, header::SEC_WEBSOCKET_PROTOCOL)
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

/// Returns the value of the `Authorization` header given as a WebSocket subprotocol, because browsers cannot
/// send the header itself. Fails with 401 if it is invalid.
pub(crate) fn authorization(headers: &HeaderMap) -> Result<Option<String>, Failure> {
    let mut tokens = header_tokens(headers, header::SEC_WEBSOCKET_PROTOCOL)
        .filter_map(|protocol| protocol.strip_prefix(TOKEN_PREFIX));
    let Some(token) = tokens.next() else { return Ok(None) };
    let token = URL_SAFE_NO_PAD.decode(token).ok().and_then(|token| String::from_utf8(token).ok());
    token.map(|token| Some(format!("Bearer {token}"))).ok_or_else(Status::unauthorized)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_split_into_events() {
        let mut chunk = Bytes::from_static(b"{\"a\":1}\n{}\n");
        let first = Events::Lines.next(&mut chunk);
        assert_eq!(first, Some(Message::Text("{\"a\":1}\n".into())));
        assert_eq!(Events::Lines.next(&mut chunk), Some(Message::Text("{}\n".into())));
        assert_eq!(Events::Lines.next(&mut chunk), None);
        let mut chunk = Bytes::from_static(b"\0\0\0\x02ab\0\0\0\x01c");
        let binary = |bytes: &'static [u8]| Some(Message::Binary(Bytes::from_static(bytes)));
        assert_eq!(Events::LengthPrefixed.next(&mut chunk), binary(b"ab"));
        assert_eq!(Events::LengthPrefixed.next(&mut chunk), binary(b"c"));
        assert_eq!(Events::LengthPrefixed.next(&mut chunk), None);
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
