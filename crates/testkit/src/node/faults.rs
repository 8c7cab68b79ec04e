//! Ways in which a node misbehaves.

use super::http::{Connection, Request};
use keelson_streams::handshake::{SPDY, STREAM_PROTOCOL};
use std::future::pending;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

/// What stands before the name of a fault in names of containers, pods and paths.
pub const PREFIX: &str = "fault-";

/// The names of the faults, and what the node does.
pub const FAULTS: [(&str, &str); 22] = [
    ("hang", "reads the request and never answers"),
    ("reset", "resets the connection after the request"),
    ("close", "closes the connection after the request"),
    ("half-head", "closes the connection in the first line of the answer"),
    ("garbage", "answers something that is not HTTP"),
    ("status-NNN", "answers with a status code and a text"),
    ("json-NNN", "answers with a status code and a Status in JSON"),
    ("redirect-NNN", "answers with a status code and a Location"),
    ("open-NNN", "answers with a status code and sends back all that follows on the connection"),
    ("endless-head", "answers with headers without end"),
    ("endless-body", "answers with a body without end"),
    ("no-upgrade", "answers 101 without the header Upgrade"),
    ("other-upgrade", "answers 101 with another protocol in Upgrade"),
    ("other-protocol", "answers 101 with an unknown subprotocol"),
    ("then-hang", "upgrades, then neither reads nor writes"),
    ("then-close", "upgrades, then closes the connection"),
    ("then-reset", "upgrades, then resets the connection"),
    ("then-half", "upgrades, then sends a half frame and closes the connection"),
    ("then-garbage", "upgrades, then sends bytes that are no frames"),
    ("then-settings", "upgrades, then announces 2^32-1 SPDY settings"),
    ("then-headers", "upgrades, then sends SPDY headers that inflate to 16 MiB"),
    ("lost", "runs no command, sends `partial` and cuts the connection, over SPDY"),
];

/// How long a piece of an endless answer waits for the next.
const ENDLESS_PERIOD: Duration = Duration::from_millis(1);

/// How long a connection is read after the last byte was sent.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(5);

/// Acts out a fault, except `lost`. Unknown names get 400.
pub(super) async fn misbehave(
    name: &str,
    mut connection: Connection,
    request: &Request,
) -> io::Result<()> {
    let (kind, code) = name.rsplit_once('-').unwrap_or((name, ""));
    match (kind, code) {
        ("hang", _) => pending().await,
        ("reset", _) => reset(connection),
        ("close", _) => connection.stream.shutdown().await,
        ("half", "head") => raw(connection, b"HTTP/1.1 101 Swi").await,
        ("garbage", _) => raw(connection, b"\x80\x03 this is not HTTP\r\n\r\n").await,
        ("status", code) => {
            connection.respond_error(&format!("{code} Fault"), &format!("fault {code}")).await
        }
        ("json", code) => {
            let status = format!(
                r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"fault {code}","code":{code}}}"#
            );
            let headers = [("Content-Type", "application/json")];
            connection.respond(&format!("{code} Fault"), &headers, status.as_bytes()).await
        }
        ("redirect", code) => {
            let headers = [("Location", "https://127.0.0.1:1/elsewhere")];
            connection.respond(&format!("{code} Fault"), &headers, b"elsewhere\n").await
        }
        ("open", code) => {
            let head = format!("HTTP/1.1 {code} Fault\r\nContent-Length: 5\r\n\r\nopen\n");
            connection.stream.write_all(head.as_bytes()).await?;
            send_back(connection).await
        }
        ("endless", "head") => endless(connection, "HTTP/1.1 200 OK\r\n", "A: b\r\n").await,
        ("endless", "body") => {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n";
            endless(connection, head, "endless\n").await
        }
        ("no", "upgrade") => raw(connection, b"HTTP/1.1 101 Switching Protocols\r\n\r\n").await,
        ("other", "upgrade") => {
            let head =
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
            raw(connection, head).await
        }
        ("other", "protocol") => {
            let head = upgrade_head(request, "v9.channel.k8s.io");
            raw(connection, head.as_bytes()).await
        }
        ("then", _) => after_upgrade(code, connection, request).await,
        _ => connection.respond_error("400 Bad Request", &format!("unknown fault {name:?}")).await,
    }
}

/// Upgrades to what the request asks for, then misbehaves.
async fn after_upgrade(
    what: &str,
    mut connection: Connection,
    request: &Request,
) -> io::Result<()> {
    let protocol = request
        .header(STREAM_PROTOCOL)
        .or(request.header("sec-websocket-protocol"))
        .and_then(|protocols| protocols.split(',').next());
    // A node knows no v5 over SPDY.
    let protocol = match protocol.map(str::trim) {
        Some("v5.channel.k8s.io") if request.upgrades_to("spdy") => "v4.channel.k8s.io",
        protocol => protocol.unwrap_or_default(),
    };
    let head = upgrade_head(request, protocol);
    connection.stream.write_all(head.as_bytes()).await?;
    connection.stream.flush().await?;
    match what {
        "hang" => pending().await,
        "close" => connection.stream.shutdown().await,
        "reset" => reset(connection),
        "half" => raw(connection, b"\x80\x03\0\x02\0\0").await,
        "garbage" => raw(connection, &[0xee; 64]).await,
        "settings" => raw(connection, b"\x80\x03\0\x04\0\0\0\x04\xff\xff\xff\xff").await,
        "headers" => raw(connection, &headers_bomb()).await,
        _ => Ok(()),
    }
}

/// Returns a 101 to a request.
fn upgrade_head(request: &Request, protocol: &str) -> String {
    let mut head = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n".to_owned();
    if request.upgrades_to("websocket") {
        let key = request.header("sec-websocket-key").unwrap_or_default();
        let accept = derive_accept_key(key.as_bytes());
        head.push_str(&format!(
            "Upgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: \
             {protocol}\r\n\r\n"
        ));
    } else {
        head.push_str(&format!("Upgrade: {SPDY}\r\n{STREAM_PROTOCOL}: {protocol}\r\n\r\n"));
    }
    head
}

/// Returns a SYN_REPLY whose headers would be 16 MiB: a byte, then copies of it.
fn headers_bomb() -> Vec<u8> {
    // A zlib stream of one fixed block: the literal 0 and many matches of 258 bytes at distance 1.
    // A match is 8 bits for the length 258, and 5 for the distance.
    let mut bits = BitWriter::default();
    bits.push(0b010, 3);
    bits.push(0b0000_1100, 8);
    for _ in 0..(16 << 20) / 258 {
        bits.push(0b1010_0011, 8);
        bits.push(0, 5);
    }
    let mut block = vec![0, 0, 0, 1, 0x78, 0x20, 0xe3, 0xc6, 0xa7, 0xc2];
    block.extend(bits.bytes);
    let mut frame = vec![0x80, 3, 0, 2];
    frame.extend((block.len() as u32).to_be_bytes());
    frame.extend(block);
    frame
}

/// Writes bits, the lowest first.
#[derive(Default)]
struct BitWriter {
    bytes: Vec<u8>,
    used: u32,
}

impl BitWriter {
    fn push(&mut self, bits: u32, count: u32) {
        for place in 0..count {
            if self.used.is_multiple_of(8) {
                self.bytes.push(0);
            }
            if let Some(last) = self.bytes.last_mut() {
                *last |= ((bits >> place & 1) as u8) << (self.used % 8);
            }
            self.used += 1;
        }
    }
}

/// Sends bytes and closes the connection. It is read until the other side closes it: closing it
/// with unread bytes would reset it, and the other side might lose what was sent.
async fn raw(mut connection: Connection, bytes: &[u8]) -> io::Result<()> {
    connection.stream.write_all(bytes).await?;
    connection.stream.shutdown().await?;
    let mut unread = [0; 4_096];
    let draining =
        async { while connection.read(&mut unread).await.is_ok_and(|count| count > 0) {} };
    let _ = tokio::time::timeout(DRAIN_TIME_MAX, draining).await;
    Ok(())
}

/// Closes the connection so that the other side gets a reset.
pub(super) fn reset(connection: Connection) -> io::Result<()> {
    let (stream, _) = connection.stream.into_inner();
    stream.set_zero_linger()
}

async fn send_back(mut connection: Connection) -> io::Result<()> {
    let mut buffer = [0; 4_096];
    loop {
        let count = connection.read(&mut buffer).await?;
        if count == 0 {
            return connection.stream.shutdown().await;
        }
        connection.stream.write_all(&buffer[..count]).await?;
        connection.stream.flush().await?;
    }
}

async fn endless(mut connection: Connection, head: &str, piece: &str) -> io::Result<()> {
    connection.stream.write_all(head.as_bytes()).await?;
    let pieces = piece.repeat(1_000);
    loop {
        connection.stream.write_all(pieces.as_bytes()).await?;
        tokio::time::sleep(ENDLESS_PERIOD).await;
    }
}
