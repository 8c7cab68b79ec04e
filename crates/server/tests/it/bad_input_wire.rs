//! Connections that violate HTTP, stall or are closed early: each gets the response of Go's server
//! or is closed; the server continues, keeps no resources, and stops at once on request.

use crate::world::{Client, Options, POLL_TIMEOUT, Server};
use keelson_server::Limits;
use serde_json::json;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MAP: &str = r#"{"metadata":{"name":"a"}}"#;
/// The client connection preface (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const EMPTY_SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

fn start(limits: Limits) -> Server {
    let options = Options::default().with(|options| options.limits = limits);
    Server::start_plain(options)
}

/// Short timeouts.
fn short_timeouts() -> Limits {
    let soon = Duration::from_millis(100);
    Limits {
        header_timeout: soon,
        idle_timeout: soon,
        request_timeout: soon,
        handshake_timeout: soon,
        ..Limits::default()
    }
}

/// Returns the bytes of a request with the given headers and body.
fn post(framing: &str, rest: &str) -> String {
    format!(
        "POST {MAPS} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer t\r\n\
         Content-Type: application/json\r\n{framing}\r\n{rest}"
    )
}

/// Checks that nothing was stored and that all connections are closed, and stops the server.
fn end(server: Server) {
    let list = server.client().get(MAPS).body;
    assert_eq!(list["items"], json!([]), "{list}");
    until_alone(&server);
    let began = Instant::now();
    server.stop();
    assert!(began.elapsed() < Limits::default().drain_timeout / 2, "the stop was held up");
}

fn until_alone(server: &Server) {
    let deadline = Instant::now() + POLL_TIMEOUT;
    // The listener holds one slot for the next connection.
    while server.connections() > 1 {
        assert!(Instant::now() < deadline, "{} connections stay", server.connections());
        std::thread::yield_now();
    }
}

/// Returns the status of the response to bytes; 0 if the connection is closed without one.
fn status(client: &Client, bytes: &[u8]) -> u16 {
    client.raw(bytes).map_or(0, |answer| answer.status)
}

#[test]
fn malformed_requests_are_rejected() {
    let server = start(short_timeouts());
    let client = server.client();
    let check = |bytes: &[u8], want: u16| {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        assert_eq!(status(&client, bytes), want, "{shown:?}");
    };
    check(b"\0\xff\x01garbage\r\n\r\n", 400);
    check(b"GET\r\n\r\n", 400);
    check(b"GET / HTTP/9.9\r\n\r\n", 400);
    check(b"GET /a b HTTP/1.1\r\nHost: h\r\n\r\n", 400);
    check(b"GET / HTTP/1.1\r\nHost: h\r\nno colon\r\n\r\n", 400);
    check(b"GET / HTTP/1.1\r\nHost: h\r\nA: \x01\r\n\r\n", 400);
    check(b"GET / HTTP/1.1\r\nHost: h\r\n : b\r\n\r\n", 400);
    check(b"GET /%zz HTTP/1.1\r\nHost: h\r\n\r\n", 400);
    check(b"GET /api/v1/namespaces/%4 HTTP/1.1\r\nHost: h\r\n\r\n", 400);
    let long = format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(70_000));
    check(long.as_bytes(), 414);
    let wide = format!("GET / HTTP/1.1\r\nHost: h\r\nA: {}\r\n\r\n", "a".repeat(1 << 21));
    check(wide.as_bytes(), 431);
    let many = format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", "A: b\r\n".repeat(7000));
    check(many.as_bytes(), 431);
    end(server);
}

#[test]
fn bodies_of_ambiguous_length_are_rejected() {
    let server = start(short_timeouts());
    let client = server.client();
    let check = |framing: &str, rest: &str, want: u16| {
        assert_eq!(status(&client, post(framing, rest).as_bytes()), want, "{framing:?} {rest:?}");
    };
    check("Content-Length: x\r\n", MAP, 400);
    check("Content-Length: -1\r\n", MAP, 400);
    check("Content-Length: 99999999999999999999\r\n", MAP, 400);
    check("Content-Length: 3\r\nContent-Length: 4\r\n", MAP, 400);
    check("Content-Length: 3, 4\r\n", MAP, 400);
    check("Transfer-Encoding: gzip\r\n", MAP, 400);
    check("Transfer-Encoding: chunked, gzip\r\n", MAP, 400);
    check("Transfer-Encoding: chunked\r\n", "zz\r\n", 500);
    check("Transfer-Encoding: chunked\r\n", "5\r\n{\"a\":1}\r\n0\r\n\r\n", 500);
    check("Transfer-Encoding: chunked\r\n", "fffffffffffffffff\r\n", 500);
    let large = format!("400000\r\n{}\r\n0\r\n\r\n", "x".repeat(4 << 20));
    check("Transfer-Encoding: chunked\r\n", &large, 413);
    end(server);
}

/// A proxy may use the other of the two framings and see another request (request smuggling).
#[test]
fn a_request_with_length_and_chunks_is_never_two_requests() {
    let server = start(short_timeouts());
    let client = server.client();
    let smuggled = format!("0\r\n\r\nDELETE {MAPS}/a HTTP/1.1\r\nHost: h\r\n\r\n");
    for framing in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        "Content-Length: 4\r\nTransfer-Encoding: xchunked\r\n",
        "Content-Length: 4\r\nTransfer-Encoding : chunked\r\n",
        "Content-Length: 4\r\nTransfer-Encoding:\x0bchunked\r\n",
        "Content-Length: 4\r\n Transfer-Encoding: chunked\r\n",
    ] {
        let got = status(&client, post(framing, &smuggled).as_bytes());
        assert!(matches!(got, 0 | 400), "{framing:?}: {got}");
    }
    end(server);
}

#[test]
fn a_body_that_ends_too_early_stores_nothing() {
    let server = start(Limits::default());
    let client = server.client();
    for framing in [
        format!("Content-Length: {}\r\n\r\n{MAP}", MAP.len() + 1),
        format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{MAP}", MAP.len()),
        format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{MAP}\r\n", MAP.len()),
    ] {
        let mut stream = TcpStream::connect(client.address).expect("a connection");
        stream.set_read_timeout(Some(POLL_TIMEOUT)).expect("a deadline");
        let text = post("", "");
        let head = text.trim_end();
        stream.write_all(format!("{head}\r\n{framing}").as_bytes()).expect("the request goes out");
        stream.shutdown(Shutdown::Write).expect("half of it closes");
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 500"), "{framing:?}: {answer}");
    }
    end(server);
}

#[test]
fn stalled_clients_are_disconnected() {
    let server = start(short_timeouts());
    let client = server.client();
    // No bytes; a part of the headers; the start of an HTTP/2 preface.
    for bytes in [&b""[..], b"GET / HTTP/1.1\r\nHost: h\r\n", b"PRI * HT", PREFACE] {
        let mut text = vec![];
        let _ = client.write(bytes).read_to_end(&mut text);
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(!text.starts_with("HTTP/1.1 2"), "{text}");
    }
    // The timeout of slow headers starts with their first byte.
    let mut dripping = TcpStream::connect(client.address).expect("a connection");
    dripping.write_all(b"GET / HTTP/1.1\r\n").expect("the first line goes out");
    let deadline = Instant::now() + POLL_TIMEOUT;
    while dripping.write_all(b"A: b\r\n").is_ok() {
        assert!(Instant::now() < deadline, "the server still listens");
        std::thread::yield_now();
    }
    // A body that is never sent.
    let late = client.raw(post("Content-Length: 100\r\n", "").as_bytes()).expect("an answer");
    let words = "Timeout: request did not complete within the allotted timeout";
    assert_eq!((late.status, &late.body["message"]), (504, &json!(words)), "{late:?}");
    end(server);
}

#[test]
fn disconnected_clients_free_their_resources() {
    let server = start(Limits::default());
    let client = server.client();
    let watch =
        format!("GET {MAPS}?watch=1 HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer t\r\n\r\n");
    let watches: Vec<_> = (0..20)
        .map(|_| {
            let mut reader = client.write(watch.as_bytes());
            let mut first = [0; 12];
            reader.read_exact(&mut first).expect("the watch begins");
            assert_eq!(&first, b"HTTP/1.1 200");
            reader
        })
        .collect();
    let waiting: Vec<_> =
        (0..20).map(|_| client.write(post("Content-Length: 100\r\n", "{").as_bytes())).collect();
    assert!(server.connections() >= watches.len());
    drop((watches, waiting));
    end(server);
}

#[test]
fn open_watches_and_idle_connections_do_not_delay_the_shutdown() {
    let server = start(Limits::default());
    let client = server.client();
    let watch =
        format!("GET {MAPS}?watch=1 HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer t\r\n\r\n");
    let mut watching = client.write(watch.as_bytes());
    watching.read_exact(&mut [0; 12]).expect("the watch begins");
    let silent = client.write(b"");
    let began = Instant::now();
    server.stop();
    assert!(began.elapsed() < Limits::default().drain_timeout / 2, "the stop was held up");
    let mut rest = String::new();
    watching.read_to_string(&mut rest).expect("the watch ends in order");
    assert!(rest.ends_with("0\r\n\r\n"), "{rest}");
    drop(silent);
}

#[test]
fn frames_of_garbage_end_only_their_connection() {
    let server = start(short_timeouts());
    let client = server.client();
    let frame = |kind: u8, flags: u8, stream: u8, body: &[u8]| {
        let length = u32::try_from(body.len()).expect("a short frame").to_be_bytes();
        let mut bytes = length[1..].to_vec();
        bytes.extend_from_slice(&[kind, flags, 0, 0, 0, stream]);
        bytes.extend_from_slice(body);
        bytes
    };
    let cases: [(&str, Vec<u8>); 7] = [
        ("noise", vec![0xff; 4096]),
        ("a frame that is too large", vec![0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]),
        ("headers that do not unpack", frame(1, 4, 1, &[0xff; 64])),
        ("data of no stream", frame(0, 0, 1, b"data")),
        ("headers without an end", frame(9, 0, 1, b"x")),
        ("settings of a wrong size", frame(4, 0, 0, b"x")),
        ("a window that grows by nothing", frame(8, 0, 0, &[0; 4])),
    ];
    for (what, bytes) in cases {
        let mut sent = [PREFACE, EMPTY_SETTINGS].concat();
        sent.extend_from_slice(&bytes);
        let mut answer = vec![];
        let _ = client.write(&sent).read_to_end(&mut answer);
        // GOAWAY, if sent, is the last frame.
        assert!(answer.is_empty() || answer.len() >= 17, "{what}: {answer:?}");
        assert_eq!(client.get(MAPS).status, 200, "{what}");
    }
    end(server);
}

/// CVE-2023-44487 (rapid reset) and similar attacks: streams that are opened and reset at once.
#[test]
fn a_flood_of_resets_ends_its_connection() {
    let server = start(Limits { http2_resets_max: 20, ..short_timeouts() });
    let client = server.client();
    let mut sent = [PREFACE, EMPTY_SETTINGS].concat();
    // :method GET, :scheme http, :path / from the static table, :authority h.
    let headers = [0x82, 0x86, 0x84, 0x41, 0x01, b'h'];
    for stream in (1u32..20_001).step_by(2) {
        sent.extend_from_slice(&[0, 0, headers.len() as u8, 1, 5]);
        sent.extend_from_slice(&stream.to_be_bytes());
        sent.extend_from_slice(&headers);
        sent.extend_from_slice(&[0, 0, 4, 3, 0]);
        sent.extend_from_slice(&stream.to_be_bytes());
        sent.extend_from_slice(&[0, 0, 0, 8]);
    }
    let mut answer = vec![];
    let _ = client.write(&sent).read_to_end(&mut answer);
    assert_eq!(client.get(MAPS).status, 200);
    end(server);
}
