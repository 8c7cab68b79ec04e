//! Clients of streams that vanish, and users who open too many streams.

use super::{Entry, Outcome};
use crate::client::TlsStream;
use crate::far_scene::{
    Behind, Descriptors, END_MAX, Node, check_unseen, get, poll, status, upgrade,
};
use crate::far_side::Connection;
use crate::frames::{self, END_HEADERS, END_STREAM, GET, HEADERS, frame, header_block};
use crate::spdy;
use crate::target::{ADMIN_TOKEN, Target};
use anyhow::{Result, bail, ensure};
use std::io::{ErrorKind, Write};
use std::time::{Duration, Instant};

/// Clients of each kind of stream.
const CLIENTS: usize = 4;
/// How long nobody takes more of what a client sends.
const CLOG: Duration = Duration::from_millis(300);
/// Bytes of the messages that it sends, and of what the far side sends first: more than a client
/// reads with the status.
const PIECE_BYTES: u16 = 32 << 10;
const FIRST_BYTES: u32 = 256 << 10;
/// Most messages until the server reads no more.
const MESSAGES_MAX: usize = 1000;
/// Streams of one HTTP/2 connection, and so many connections that one user has too many streams.
const STREAMS: u32 = 100;
const CONNECTIONS: u32 = 21;
/// How long an answer is waited for that may not come.
const SHORT_WAIT: Duration = Duration::from_millis(500);
const GROUP: &str = "held.attack.example";
const PODS: [&str; 1] = ["held"];
const EXEC: &str = "exec?command=cat&stdin=true&stdout=true&container=c";

pub const ATTACKS: [Entry; 2] = [
    ("vanishing-clients", "clients of streams and proxies that vanish", None, vanishing),
    ("open-streams", "a user with 2,100 open logs", None, open_streams),
];

fn vanishing(target: &Target, end: Instant) -> Result<Outcome> {
    let descriptors = Descriptors::of(target)?;
    let node = Node::register(target, "held", &PODS, serve)?;
    let behind = Behind::register(target, GROUP, true, serve)?;
    let mut sent = 0;
    while sent == 0 || Instant::now() < end {
        let mut streams = vec![];
        for _ in 0..CLIENTS {
            streams.extend(open(target, &node, &behind, false)?);
        }
        sent += streams.len();
        drop(streams);
        let mut open = (0, 0);
        let ended = poll("the far sides end", END_MAX, || {
            open = (node.far_side.open(), behind.far_side.open());
            // The server keeps a few connections that it asks the server behind it by.
            Ok(open.0 == 0 && open.1 <= 4)
        });
        ended.map_err(|why| why.context(format!("{open:?} connections are open")))?;
    }
    // A far side that does not read learns of the end after what it has not read. The server ends
    // the stream all the same.
    let mut streams = vec![];
    for _ in 0..CLIENTS {
        streams.extend(open(target, &node, &behind, true)?);
    }
    sent += streams.len();
    drop(streams);
    descriptors.check()?;
    check_unseen(&node.far_side)?;
    check_unseen(&behind.far_side)?;
    node.remove()?;
    behind.remove()?;
    descriptors.check()?;
    Ok(Outcome::sent(sent))
}

/// Opens a stream of each kind. If `clogs`, the client sends until nobody takes more.
fn open(
    target: &Target,
    node: &Node<'_>,
    behind: &Behind<'_>,
    clogs: bool,
) -> Result<Vec<TlsStream>> {
    let mut streams = vec![
        upgrade(target, &node.path("held", EXEC), "v4.channel.k8s.io")?,
        upgrade(target, &node.path("held", EXEC), "v5.channel.k8s.io")?,
        upgrade(target, &node.path("held", "portforward"), "SPDY/3.1+portforward.k8s.io")?,
        upgrade(target, &behind.path("/switch"), "v4.channel.k8s.io")?,
    ];
    for stream in &mut streams {
        let code = status(stream)?;
        ensure!(code == 101, "a stream: {code}");
        if clogs {
            clog(stream)?;
        }
    }
    streams.push(get(target, &node.path("held", "log?follow=true&container=c"))?);
    streams.push(get(target, &behind.path("/silent-body"))?);
    for stream in &mut streams[4..] {
        let code = status(stream)?;
        ensure!(code == 200, "a body: {code}");
    }
    // This one waits for the head of the answer.
    streams.push(get(target, &behind.path("/silent"))?);
    Ok(streams)
}

/// Sends messages to stdin until nobody takes more. What the far side has sent stays unread, so
/// the kernel resets the connection when it is closed. Behind what it has not sent yet, another end
/// would not arrive.
fn clog(stream: &mut TlsStream) -> Result<()> {
    stream.sock.set_write_timeout(Some(CLOG))?;
    let [high, low] = (PIECE_BYTES + 1).to_be_bytes();
    let head = [0x82, 0x80 | 126, high, low, 0, 0, 0, 0, 0];
    let message = [&head[..], &vec![0; PIECE_BYTES.into()]].concat();
    for _ in 0..MESSAGES_MAX {
        match stream.write_all(&message) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok(());
            }
            Err(error) => bail!("a client cannot send: {error}"),
        }
    }
    bail!("the server takes everything, and the far side nothing")
}

/// Upgrades and answers, and then neither reads nor sends.
fn serve(connection: &mut Connection) -> Result<()> {
    let (path, lines) = connection.read_head()?;
    let path = path.split('?').next().unwrap_or_default();
    if path == format!("/apis/{GROUP}/v1") {
        let list = format!(
            "{{\"kind\":\"APIResourceList\",\"apiVersion\":\"v1\",\"groupVersion\":\"{GROUP}/v1\",\
             \"resources\":[]}}"
        );
        let head = format!(
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{list}",
            list.len()
        );
        return connection.send(head.as_bytes());
    }
    let upgrades = |to: &str| lines.iter().any(|line| *line == format!("upgrade: {to}"));
    if upgrades("websocket") {
        connection.send(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
              Sec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n",
        )?;
    } else if upgrades("spdy/3.1") {
        let protocol = match path.starts_with("/exec") {
            true => "v4.channel.k8s.io",
            false => "portforward.k8s.io",
        };
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
             X-Stream-Protocol-Version: {protocol}\r\n\r\n"
        );
        connection.send(head.as_bytes())?;
        if path.starts_with("/exec") {
            // The streams are 1 error, 3 stdin, 5 stdout.
            let replies = [1, 3, 5].map(|stream| spdy::empty_reply(stream, stream == 1));
            let output = spdy::data_head(5, FIRST_BYTES);
            connection.send(&[&replies.concat()[..], &output].concat())?;
        }
    } else if path.contains("Logs") || path.ends_with("-body") {
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")?;
        return connection.hold();
    } else if path.ends_with("/silent") {
        return connection.hold();
    } else {
        return connection.send(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    }
    connection.send(&vec![0; FIRST_BYTES as usize])?;
    connection.hold()
}

fn open_streams(target: &Target, _: Instant) -> Result<Outcome> {
    let descriptors = Descriptors::of(target)?;
    // It takes connections and does nothing with them.
    let node = Node::register(target, "many", &PODS, |_| Ok(()))?;
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    node.move_to(listener.local_addr()?.port())?;
    let path = node.path("held", "log?follow=true&container=c");
    let request = header_block(GET, &path, ADMIN_TOKEN);
    let mut streams = vec![];
    let end_headers = END_HEADERS | END_STREAM;
    for _ in 0..CONNECTIONS {
        let mut stream = frames::connect(target, 65_535)?;
        for number in 0..STREAMS {
            stream.write_all(&frame(HEADERS, end_headers, 2 * number + 1, &request))?;
        }
        stream.flush()?;
        streams.push(stream);
    }
    let gets_429 = || {
        let mut stream = get(target, &path)?;
        stream.sock.set_read_timeout(Some(SHORT_WAIT))?;
        // Nothing comes while the node is dialled.
        Ok(matches!(status(&mut stream), Ok(429)))
    };
    poll("the user has too many streams", END_MAX, gets_429)?;
    // Another user has a stream, although that leads nowhere: the deadline of the connection ends
    // it, not the limit.
    let mut other = upgrade(target, &path, "binary.k8s.io")?;
    other.sock.set_read_timeout(Some(SHORT_WAIT))?;
    if let Ok(code) = status(&mut other) {
        ensure!(code != 429, "another user has no stream");
    }
    drop((streams, other));
    poll("the user has streams again", END_MAX, || Ok(!gets_429()?))?;
    node.remove()?;
    drop(listener);
    descriptors.check()?;
    Ok(Outcome::sent((CONNECTIONS * STREAMS) as usize))
}
