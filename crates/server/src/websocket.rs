//! Streams over WebSocket (RFC 6455). Each event of a watch is a message, text for JSON and binary
//! for protobuf (apiserver `endpoints/handlers/watch.go`); a log is cut into pieces.

use crate::app::App;
use crate::body::{Body, ChunkStream};
use crate::header_lists::{has_token, header_tokens, is_handshake};
use crate::peer::shutdown_requested;
use crate::request_head::RequestHead;
use crate::respond::{self, Reply};
use crate::upgrade::Tunnel;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::{Buf, Bytes};
use futures_util::{SinkExt, StreamExt};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use keelson_auth::ProtocolToken;
use tokio::sync::watch;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message, Role, WebSocketConfig};

/// Most bytes of a message or frame from a client, which only sends the close.
const MESSAGE_BYTES_MAX: usize = 4 << 10;
/// Largest buffer for what clients send (the library's default).
const READ_BUFFER_BYTES_MAX: usize = 128 << 10;
/// Most bytes of a message of a stream without structure.
const PIECE_BYTES_MAX: usize = 2048;
/// The protocol version in `Sec-WebSocket-Version`.
const VERSION: &str = "13";
/// Prefix of a subprotocol that carries a bearer token (apiserver
/// `authentication/request/websocket`).
const TOKEN_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// Switches the connection to a WebSocket that carries a stream, or refuses the handshake.
pub(crate) fn switch(
    app: &App,
    head: &RequestHead,
    chunks: ChunkStream,
    framing: Framing,
) -> Result<Tunnel, Box<Reply>> {
    let (reply, framing) = match framing {
        Framing::Lines | Framing::LengthPrefixed => (handshake(&head.headers)?, framing),
        Framing::Bytes | Framing::Base64 => {
            let requested = head.header(header::SEC_WEBSOCKET_PROTOCOL).unwrap_or_default();
            let names = BYTE_PROTOCOLS.map(|(name, _)| name);
            let chosen = keelson_streams::handshake::choose_websocket(requested, &names)
                .ok_or_else(|| bare(403, ""))?;
            let row = BYTE_PROTOCOLS.iter().find(|(name, _)| *name == chosen);
            let reply = accept(&head.headers, Some(chosen))?;
            (reply, row.map_or(framing, |(_, framing)| *framing))
        }
    };
    let shutdown = app.shutdown.clone();
    let run = move |io| Box::pin(run(io, chunks, framing, shutdown)) as _;
    Ok(Tunnel { reply, run: Box::new(run) })
}

/// The subprotocols of streams of bytes (apiserver `util/wsstream`).
const BYTE_PROTOCOLS: [(&str, Framing); 3] = [
    ("", Framing::Bytes),
    ("binary.k8s.io", Framing::Bytes),
    ("base64.binary.k8s.io", Framing::Base64),
];

/// Starts the server's side of a WebSocket, whose messages and frames may have `bytes_max` bytes.
pub(crate) async fn socket(
    io: TokioIo<Upgraded>,
    bytes_max: usize,
) -> WebSocketStream<TokioIo<Upgraded>> {
    let config = WebSocketConfig::default()
        .max_message_size(Some(bytes_max))
        .max_frame_size(Some(bytes_max))
        .read_buffer_size(bytes_max.min(READ_BUFFER_BYTES_MAX));
    WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await
}

/// Returns the message that ends a WebSocket whose stream is complete.
pub(crate) fn normal_close() -> Message {
    Message::Close(Some(CloseFrame { code: CloseCode::Normal, reason: "".into() }))
}

async fn run(
    io: TokioIo<Upgraded>,
    mut chunks: ChunkStream,
    framing: Framing,
    mut shutdown: watch::Receiver<bool>,
) {
    let (mut sink, mut source) = socket(io, MESSAGE_BYTES_MAX).await.split();
    let pump = async {
        if let Some(first) = framing.first_message() {
            sink.send(first).await?;
        }
        while let Some(mut chunk) = chunks.next().await {
            while let Some(message) = framing.next(&mut chunk) {
                sink.feed(message).await?;
            }
            sink.flush().await?;
        }
        sink.send(normal_close()).await
    };
    let listen = async { while let Some(Ok(_)) = source.next().await {} };
    let sent = tokio::select! {
        sent = pump => sent,
        () = listen => Ok(()),
        () = shutdown_requested(&mut shutdown) => sink.send(normal_close()).await,
    };
    if let Err(error) = sent {
        tracing::debug!(%error, "WebSocket ended");
    }
}

/// How the chunks of a stream become messages.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Framing {
    /// JSON, one line per event.
    Lines,
    /// Each event has a length prefix of four bytes.
    LengthPrefixed,
    /// Bytes without structure, after an empty message.
    Bytes,
    /// The same in base64.
    Base64,
}

impl Framing {
    /// Returns the message in front of all chunks.
    fn first_message(self) -> Option<Message> {
        match self {
            Framing::Lines | Framing::LengthPrefixed => None,
            Framing::Bytes => Some(Message::Binary(Bytes::new())),
            Framing::Base64 => Some(Message::Text("".into())),
        }
    }

    /// Splits the next message off a chunk.
    fn next(self, chunk: &mut Bytes) -> Option<Message> {
        if chunk.is_empty() {
            return None;
        }
        match self {
            Framing::Lines => {
                let end = chunk.iter().position(|byte| *byte == b'\n');
                let line = chunk.split_to(end.map_or(chunk.len(), |end| end + 1));
                Some(Message::Text(line.try_into().ok()?))
            }
            Framing::LengthPrefixed => {
                let length = usize::try_from(chunk.try_get_u32().ok()?).ok()?;
                Some(Message::Binary(chunk.split_to(length.min(chunk.len()))))
            }
            Framing::Bytes => Some(Message::Binary(piece(chunk))),
            Framing::Base64 => Some(Message::Text(STANDARD.encode(piece(chunk)).into())),
        }
    }
}

/// Splits the bytes of a message off a stream without structure.
fn piece(chunk: &mut Bytes) -> Bytes {
    chunk.split_to(chunk.len().min(PIECE_BYTES_MAX))
}

/// Returns the response to the handshake of a watch: 101, or an error.
fn handshake(headers: &HeaderMap) -> Result<Reply, Box<Reply>> {
    check_version(headers)?;
    // kube-apiserver requires an Origin header, which browsers send.
    if !headers.contains_key(header::ORIGIN) {
        return Err(refused(403));
    }
    let mut protocols = header_tokens(headers, header::SEC_WEBSOCKET_PROTOCOL);
    let protocol = protocols.next();
    let more = protocols.next();
    if more.is_some() {
        return Err(refused(400));
    }
    let key = headers.get(header::SEC_WEBSOCKET_KEY).ok_or_else(|| refused(400))?;
    switched(key, protocol)
}

/// Returns the response 101 to a handshake, with the chosen subprotocol, or an error.
pub(crate) fn accept(headers: &HeaderMap, protocol: Option<&str>) -> Result<Reply, Box<Reply>> {
    let Some(key) = headers.get(header::SEC_WEBSOCKET_KEY) else {
        return Err(bare(400, "mismatch challenge/response"));
    };
    if !has_token(headers, header::SEC_WEBSOCKET_VERSION, VERSION) {
        let mut reply = bare(400, "missing or bad WebSocket Version");
        set_version(&mut reply);
        return Err(reply);
    }
    switched(key, protocol)
}

/// Returns the response to a handshake with another method than GET.
pub(crate) fn bad_method() -> Reply {
    *bare(405, "bad method")
}

/// Returns the response 101, with the chosen subprotocol.
fn switched(key: &HeaderValue, protocol: Option<&str>) -> Result<Reply, Box<Reply>> {
    let accept = HeaderValue::try_from(derive_accept_key(key.as_bytes()));
    let mut reply = Reply::new(Body::empty());
    *reply.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let out = reply.headers_mut();
    out.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    out.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    out.insert(header::SEC_WEBSOCKET_ACCEPT, accept.map_err(|_| refused(400))?);
    if let Some(Ok(protocol)) = protocol.map(HeaderValue::from_str) {
        out.insert(header::SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    Ok(reply)
}

/// Returns the response to a handshake of a tunnel that is none, in the words of another library.
pub(crate) fn tunnel_refusal(head: &RequestHead) -> Option<Reply> {
    let is_versioned = has_token(&head.headers, header::SEC_WEBSOCKET_VERSION, VERSION);
    let has_key = head.headers.contains_key(header::SEC_WEBSOCKET_KEY);
    let (code, text) = match head.is_websocket() {
        true if is_versioned && has_key => return None,
        false if head.method != Method::GET => (405, "Method Not Allowed\n"),
        _ => (400, "Bad Request\n"),
    };
    let mut reply = respond::text(code, text);
    set_version(&mut reply);
    Some(reply)
}

fn check_version(headers: &HeaderMap) -> Result<(), Box<Reply>> {
    if has_token(headers, header::SEC_WEBSOCKET_VERSION, VERSION) {
        return Ok(());
    }
    let mut reply = refused(400);
    set_version(&mut reply);
    Err(reply)
}

fn set_version(reply: &mut Reply) {
    reply.headers_mut().insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static(VERSION));
}

/// Returns a response without headers.
fn bare(code: u16, text: &str) -> Box<Reply> {
    let mut reply = Reply::new(Body::from(text.as_bytes().to_vec()));
    *reply.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::BAD_REQUEST);
    Box::new(reply)
}

fn refused(code: u16) -> Box<Reply> {
    Box::new(respond::text(code, ""))
}

/// Returns the bearer token among the subprotocols of a WebSocket's handshake; other requests have
/// none (apiserver `authentication/request/websocket`).
pub(crate) fn token(headers: &HeaderMap) -> ProtocolToken {
    if !is_handshake(headers) {
        return ProtocolToken::Absent;
    }
    let protocols = || header_tokens(headers, header::SEC_WEBSOCKET_PROTOCOL);
    let mut tokens = protocols().filter_map(|protocol| protocol.strip_prefix(TOKEN_PREFIX));
    let Some(token) = tokens.next() else { return ProtocolToken::Absent };
    let decoded = URL_SAFE_NO_PAD.decode(token).ok().map(String::from_utf8);
    match (decoded, tokens.next()) {
        (Some(Ok(token)), None) if token.is_empty() => ProtocolToken::Absent,
        (Some(Ok(token)), None) if protocols().any(|one| !one.starts_with(TOKEN_PREFIX)) => {
            ProtocolToken::Token(token)
        }
        _ => ProtocolToken::Invalid,
    }
}

/// Takes tokens off the subprotocols, so that neither a node nor another server sees them.
pub(crate) fn drop_tokens(headers: &mut HeaderMap) {
    let protocols = || header_tokens(headers, header::SEC_WEBSOCKET_PROTOCOL);
    if !protocols().any(|protocol| protocol.starts_with(TOKEN_PREFIX)) {
        return;
    }
    let others: Vec<&str> = protocols().filter(|one| !one.starts_with(TOKEN_PREFIX)).collect();
    let others = others.join(",");
    headers.remove(header::SEC_WEBSOCKET_PROTOCOL);
    if let Ok(value) = HeaderValue::try_from(others)
        && !value.is_empty()
    {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_split_into_events() {
        let mut chunk = Bytes::from_static(b"{\"a\":1}\n{}\n");
        let first = Framing::Lines.next(&mut chunk);
        assert_eq!(first, Some(Message::Text("{\"a\":1}\n".into())));
        assert_eq!(Framing::Lines.next(&mut chunk), Some(Message::Text("{}\n".into())));
        assert_eq!(Framing::Lines.next(&mut chunk), None);
        let mut chunk = Bytes::from_static(b"\0\0\0\x02ab\0\0\0\x01c");
        let binary = |bytes: &'static [u8]| Some(Message::Binary(Bytes::from_static(bytes)));
        assert_eq!(Framing::LengthPrefixed.next(&mut chunk), binary(b"ab"));
        assert_eq!(Framing::LengthPrefixed.next(&mut chunk), binary(b"c"));
        assert_eq!(Framing::LengthPrefixed.next(&mut chunk), None);
    }

    fn asked(protocols: &'static [&'static str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("keep-alive, Upgrade"));
        for protocol in protocols {
            headers.append(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
        }
        headers
    }

    #[test]
    fn tokens_come_as_subprotocols() {
        let check = |protocols: &'static [&'static str], want: ProtocolToken| {
            assert!(token(&asked(protocols)) == want, "{protocols:?}");
        };
        const TOKEN: &str = "base64url.bearer.authorization.k8s.io.dG9r";
        check(&[], ProtocolToken::Absent);
        check(&["x"], ProtocolToken::Absent);
        check(&["base64url.bearer.authorization.k8s.io.", "x"], ProtocolToken::Absent);
        check(&[TOKEN, "x"], ProtocolToken::Token("tok".to_owned()));
        check(
            &["x, base64url.bearer.authorization.k8s.io.dG9r"],
            ProtocolToken::Token("tok".into()),
        );
        // No other is left to answer with.
        check(&[TOKEN], ProtocolToken::Invalid);
        check(&[TOKEN, TOKEN, "x"], ProtocolToken::Invalid);
        check(&["base64url.bearer.authorization.k8s.io.d!", "x"], ProtocolToken::Invalid);
        check(&["base64url.bearer.authorization.k8s.io._w", "x"], ProtocolToken::Invalid);
        let mut plain = asked(&[TOKEN, "x"]);
        plain.remove(header::UPGRADE);
        assert!(token(&plain) == ProtocolToken::Absent);
    }

    #[test]
    fn tokens_are_taken_off_the_subprotocols() {
        let check = |protocols: &'static [&'static str], want: Option<&str>| {
            let mut headers = asked(protocols);
            drop_tokens(&mut headers);
            let left = headers.get(header::SEC_WEBSOCKET_PROTOCOL).map(|one| one.to_str().unwrap());
            assert_eq!(left, want, "{protocols:?}");
        };
        check(&[], None);
        check(&["x, y"], Some("x, y"));
        check(&["base64url.bearer.authorization.k8s.io.dG9r, x", "y"], Some("x,y"));
        check(&["base64url.bearer.authorization.k8s.io.dG9r"], None);
    }
}
