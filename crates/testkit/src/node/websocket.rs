//! WebSockets with channels.

use super::http::{Connection, Request};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use keelson_streams::channels::{Channels, Input, Message};
use keelson_streams::handshake::choose_websocket;
use std::io;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc::{Receiver, Sender};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

/// Most bytes of a message, as golang.org/x/net has it.
const MESSAGE_BYTES_MAX: usize = 32 << 20;

/// Answers the handshake as golang.org/x/net does. `None`: it was refused.
pub(super) async fn accept(
    mut connection: Connection,
    request: &Request,
    supported: &[&str],
) -> io::Result<Option<(WebSocketStream<Connection>, String)>> {
    let refusal = |status: &str, headers: &str, body: &str| {
        format!("HTTP/1.1 {status}\r\n{headers}\r\n{body}")
    };
    let key = request.header("sec-websocket-key").unwrap_or_default();
    let requested = request.header("sec-websocket-protocol").unwrap_or_default();
    let protocol = choose_websocket(requested, supported);
    let refused = if request.method != "GET" {
        Some(refusal("405 Method Not Allowed", "", "bad method"))
    } else if key.is_empty() {
        Some(refusal("400 Bad Request", "", "mismatch challenge/response"))
    } else if request.header("sec-websocket-version") != Some("13") {
        let version = "Sec-WebSocket-Version: 13\r\n";
        Some(refusal("400 Bad Request", version, "missing or bad WebSocket Version"))
    } else if protocol.is_none() {
        Some(refusal("403 Forbidden", "", ""))
    } else {
        None
    };
    if let Some(refused) = refused {
        connection.stream.write_all(refused.as_bytes()).await?;
        connection.stream.shutdown().await?;
        return Ok(None);
    }
    let protocol = protocol.unwrap_or_default().to_owned();
    let mut response = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {}\r\n",
        derive_accept_key(key.as_bytes())
    );
    if !requested.trim().is_empty() {
        response.push_str(&format!("Sec-WebSocket-Protocol: {protocol}\r\n"));
    }
    response.push_str("\r\n");
    connection.stream.write_all(response.as_bytes()).await?;
    let config = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX));
    let socket = WebSocketStream::from_raw_socket(connection, Role::Server, Some(config)).await;
    Ok(Some((socket, protocol)))
}

/// Moves messages between a socket and queues: each input of the client to `inputs`, each message
/// of `outputs` to the client. Ends after the close message that follows the last output, or when
/// the client has gone or violates the protocol.
pub(super) async fn serve(
    socket: WebSocketStream<Connection>,
    mut channels: Channels,
    inputs: Sender<Input>,
    mut outputs: Receiver<Message>,
) {
    let (mut sink, mut source) = socket.split();
    let reading = async {
        while let Some(Ok(message)) = source.next().await {
            let bytes = match message {
                tungstenite::Message::Binary(bytes) => bytes,
                tungstenite::Message::Text(text) => Bytes::from(text),
                tungstenite::Message::Close(_) => return,
                _ => continue,
            };
            match channels.decode(bytes) {
                Ok(Some(input)) => {
                    // Nobody reads when the command has ended.
                    let _ = inputs.send(input).await;
                }
                Ok(None) => {}
                Err(_) => return,
            }
        }
    };
    let writing = async {
        while let Some(message) = outputs.recv().await {
            let message = match message {
                Message::Binary(bytes) => tungstenite::Message::binary(bytes),
                Message::Text(text) => tungstenite::Message::text(text),
            };
            if sink.send(message).await.is_err() {
                return;
            }
        }
        let normal = tungstenite::protocol::CloseFrame {
            code: tungstenite::protocol::frame::coding::CloseCode::Normal,
            reason: "".into(),
        };
        let _ = sink.send(tungstenite::Message::Close(Some(normal))).await;
        let _ = sink.close().await;
    };
    tokio::select! {
        () = reading => {}
        () = writing => {}
    }
}
