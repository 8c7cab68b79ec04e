//! Connections that ask slowly, take slowly, or do nothing.

use super::{Line, Outcome};
use crate::client::{Connection, plain, secure};
use crate::frames::{self, END_HEADERS, END_STREAM, GET, HEADERS, frame, head};
use crate::target::{ADMIN, Target};
use anyhow::{Result, ensure};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Connections of one attack.
const CONNECTIONS: usize = 1_000;
/// Streams of one connection.
const STREAMS: u32 = 100;
/// Between two drips.
const DRIP: Duration = Duration::from_millis(100);

pub const ATTACKS: [Line; 7] = [
    ("half-open", "1,000 connections without a handshake", None, half_open),
    ("idle", "1,000 connections with a handshake and no request", None, idle),
    ("slow-headers", "200 heads that come byte by byte", None, slow_headers),
    ("long-headers", "200 heads of up to a MiB that do not end", None, long_headers),
    ("slow-bodies", "200 bodies that come byte by byte", None, slow_bodies),
    ("slow-readers", "lists that nobody reads", None, slow_readers),
    ("window-zero", "1,500 HTTP/2 streams of /openapi/v2 that may not send", None, window_zero),
];

fn half_open(target: &Target, end: Instant) -> Result<Outcome> {
    let held: Vec<TcpStream> =
        (0..CONNECTIONS).filter_map(|_| plain(target.address).ok()).collect();
    comes_in(target)?;
    rest(end);
    Ok(Outcome::of(held.len()))
}

fn idle(target: &Target, end: Instant) -> Result<Outcome> {
    let mut held = vec![];
    while held.len() < CONNECTIONS && Instant::now() < end {
        let mut stream = secure(target.address, target.http2_config())?;
        // The handshake; a server that has enough of these may close some.
        let _ = stream.conn.complete_io(&mut stream.sock);
        held.push(stream);
    }
    comes_in(target)?;
    rest(end);
    Ok(Outcome::of(held.len()))
}

fn slow_headers(target: &Target, end: Instant) -> Result<Outcome> {
    let begin = b"GET /version HTTP/1.1\r\nHost: a\r\nA: ";
    drip(target, end, begin, b"a", 200)
}

fn long_headers(target: &Target, end: Instant) -> Result<Outcome> {
    let begin = [b"GET /version HTTP/1.1\r\nHost: a\r\nA: ".as_slice(), &[b'a'; 300_000]].concat();
    drip(target, end, &begin, &[b'a'; 60_000], 200)
}

fn slow_bodies(target: &Target, end: Instant) -> Result<Outcome> {
    let begin = format!(
        "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: a\r\n\
         Authorization: Bearer {ADMIN}\r\nContent-Type: application/json\r\n\
         Content-Length: 3000000\r\n\r\n{}",
        " ".repeat(100_000)
    );
    drip(target, end, begin.as_bytes(), b" ", 200)
}

/// Sends the same beginning over many connections, and then a little over each again and again.
fn drip(
    target: &Target,
    end: Instant,
    begin: &[u8],
    drop: &[u8],
    connections: usize,
) -> Result<Outcome> {
    let config = target.http2_config();
    let mut config = (*config).clone();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let config = std::sync::Arc::new(config);
    let mut held = vec![];
    while held.len() < connections && Instant::now() < end {
        let mut stream = secure(target.address, config.clone())?;
        // A server that closes it for that is right.
        let _ = stream.write_all(begin);
        held.push(stream);
    }
    while Instant::now() < end {
        for stream in &mut held {
            let _ = stream.write_all(drop);
        }
        crate::pause(DRIP);
    }
    comes_in(target)?;
    Ok(Outcome::of(held.len()))
}

fn slow_readers(target: &Target, end: Instant) -> Result<Outcome> {
    let maps = "/api/v1/namespaces/default/configmaps";
    let time = end.saturating_duration_since(Instant::now());
    let mut admin = target.admin()?;
    for number in 0..100 {
        let body = json!({
            "metadata": {"name": format!("wide-{number}")}, "data": {"a": "x".repeat(100_000)}
        });
        admin.send_json("POST", maps, &body)?;
    }
    let end = Instant::now() + time;
    let request = format!(
        "GET {maps} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\
         Authorization: Bearer {ADMIN}\r\n\r\n"
    );
    let config = std::sync::Arc::new(crate::client::config(&target.roots).with_no_client_auth());
    let mut held = vec![];
    while held.len() < 200 && Instant::now() < end {
        let mut stream = secure(target.address, config.clone())?;
        stream.write_all(request.as_bytes())?;
        held.push(stream);
    }
    rest(end);
    let sent = held.len();
    drop(held);
    for number in 0..100 {
        admin.ask("DELETE", &format!("{maps}/wide-{number}"), &[], b"")?;
    }
    Ok(Outcome::of(sent))
}

fn window_zero(target: &Target, end: Instant) -> Result<Outcome> {
    let mut held = vec![];
    let ask = head(GET, "/openapi/v2", ADMIN);
    for _ in 0..15 {
        let mut stream = frames::open(target, 0)?;
        for number in 0..STREAMS {
            stream.write_all(&frame(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, &ask))?;
        }
        stream.flush()?;
        held.push(stream);
    }
    rest(end);
    for stream in &mut held {
        stream.sock.set_read_timeout(Some(Duration::from_millis(10)))?;
        let _ = stream.read(&mut [0; 16_384]);
    }
    Ok(Outcome::of(held.len() * STREAMS as usize))
}

/// A new connection of the administrator finds its place at once.
fn comes_in(target: &Target) -> Result<()> {
    let began = Instant::now();
    let mut admin: Connection = target.admin()?;
    let answer = admin.get("/api/v1/namespaces")?;
    ensure!(answer.status == 200, "a new administrator: {}", answer.status);
    ensure!(
        began.elapsed() < Duration::from_secs(1),
        "a new administrator waits {:?}",
        began.elapsed()
    );
    Ok(())
}

fn rest(end: Instant) {
    crate::pause(end.saturating_duration_since(Instant::now()));
}
