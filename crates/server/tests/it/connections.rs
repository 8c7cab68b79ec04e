//! Connection limits: which connections are accepted, which are closed, and how much memory they
//! may use.

use crate::frames::{
    CONTINUATION, DATA, END_HEADERS, Frames, GOAWAY, HEADERS, RESET, SETTINGS, WINDOW_UPDATE,
    frame, head,
};
use crate::world::{Client, Options, POLL_TIMEOUT, Server};
use keelson_server::Limits;
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WINDOW: u32 = 65_535;
const SOON: Duration = Duration::from_millis(100);

fn start(limits: Limits) -> Server {
    Server::start_plain(Options::default().with(|options| options.limits = limits))
}

/// Polls until a condition holds.
fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + POLL_TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn an_administrator_can_connect_among_many_anonymous_connections() {
    let server = start(Limits { connections_max: 64, ..Limits::default() });
    let address = server.address();
    let mut admin = Frames::open(address, WINDOW);
    admin.get(1, "/version", true).expect("a request");
    admin.read_until(DATA).expect("an answer");
    let crowd: Vec<TcpStream> = (0..200).map(|_| silent(address)).collect();
    // It is accepted at once, and the oldest others are closed for it.
    assert_eq!(server.client().get(MAPS).status, 200);
    wait_until("the crowd makes place", || server.connections() <= 32);
    assert!(admin.is_alive(), "who has authenticated stays");
    drop(crowd);
    server.stop();
}

/// A connection that waits for a slot is served while others close.
#[test]
fn a_queued_connection_is_not_reset() {
    let server = start(Limits { connections_max: 16, ..Limits::default() });
    let address = server.address();
    for _ in 0..100 {
        let crowd: Vec<TcpStream> = (0..16).map(|_| silent(address)).collect();
        assert_eq!(server.client().get(MAPS).status, 200);
        drop(crowd);
    }
    server.stop();
}

/// A connection that sends an HTTP/2 preface and then nothing.
fn silent(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("a connection");
    // The server may have closed it already.
    let _ = stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
    stream
}

#[test]
fn an_anonymous_http2_connection_has_one_request() {
    let server = start(Limits::default());
    for (path, token) in [("/version", false), ("/api/v1/pods", false)] {
        let mut frames = Frames::open(server.address(), WINDOW);
        frames.get(1, path, token).expect("a request");
        frames.read_until(GOAWAY).expect("a farewell");
        assert!(frames.ends(), "{path}");
    }
    let mut known = Frames::open(server.address(), WINDOW);
    for stream in [1, 3, 5] {
        known.get(stream, "/version", true).expect("a request");
        known.read_until(DATA).expect("an answer");
    }
    assert!(known.is_alive());
    server.stop();
}

#[test]
fn a_share_of_http2_requests_ends_its_connection() {
    for (goaway_chance, ends) in [(1.0, true), (0.0, false)] {
        let server = start(Limits { goaway_chance, ..Limits::default() });
        let mut frames = Frames::open(server.address(), WINDOW);
        frames.get(1, "/version", true).expect("a request");
        if ends {
            frames.read_until(GOAWAY).expect("a farewell");
            assert!(frames.ends());
        } else {
            frames.read_until(DATA).expect("an answer");
            assert!(frames.is_alive());
        }
        server.stop();
    }
}

#[test]
fn an_idle_connection_is_closed() {
    let limits = Limits { idle_timeout: SOON, header_timeout: SOON, ..Limits::default() };
    let server = start(limits);
    let mut frames = Frames::open(server.address(), WINDOW);
    frames.get(1, "/version", true).expect("a request");
    frames.read_until(GOAWAY).expect("a farewell");
    assert!(frames.ends());
    let mut old = client_of(&server);
    get_healthz(&mut old);
    assert_eq!(old.read(&mut [0]).expect("the end"), 0);
    server.stop();
}

#[test]
fn an_old_connection_is_closed() {
    let limits = Limits { connection_age_max: SOON, header_timeout: SOON, ..Limits::default() };
    let server = start(limits);
    let mut frames = Frames::open(server.address(), WINDOW);
    let watch = format!("{MAPS}?watch=1");
    frames.get(1, &watch, true).expect("a request");
    frames.read_until(GOAWAY).expect("a farewell");
    // The watch, which was open before, continues.
    let made = server.client().post(MAPS, &json!({"metadata": {"name": "a"}}));
    assert_eq!(made.status, 201);
    let event = frames.read_until(DATA).expect("an event");
    assert!(event.payload.starts_with(b"{\"type\":\"ADDED\""), "{event:?}");
    server.stop();
}

/// The header timeout also applies to later requests of a connection.
#[test]
fn missing_headers_close_a_reused_connection() {
    let server = start(Limits { header_timeout: SOON, ..Limits::default() });
    let mut client = client_of(&server);
    get_healthz(&mut client);
    client.get_mut().write_all(b"GET /version HT").expect("a part of a head");
    let began = Instant::now();
    let _ = client.read_to_end(&mut vec![]);
    assert!(began.elapsed() < POLL_TIMEOUT / 2, "the server waits");
    server.stop();
}

fn client_of(server: &Server) -> BufReader<TcpStream> {
    server.client().write(b"")
}

/// Sends a GET over a connection and reads the response; the connection stays open.
fn get_healthz(client: &mut BufReader<TcpStream>) {
    let request = b"GET /healthz HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer t\r\n\r\n";
    client.get_mut().write_all(request).expect("a request");
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        client.read_line(&mut line).expect("a line of the head");
    }
    client.read_exact(&mut [0; 2]).expect("ok");
}

#[test]
fn a_stalled_stream_is_reset_and_others_continue() {
    let server = start(Limits { write_stall_timeout: SOON, ..Limits::default() });
    let mut frames = Frames::open(server.address(), 0);
    let watch = format!("{MAPS}?watch=1");
    frames.get(1, &watch, true).expect("a watch");
    // Only the watch has a window.
    frames.send(WINDOW_UPDATE, 0, 1, &1_000_u32.to_be_bytes()).expect("a window");
    for (stream, path) in [(3, "/openapi/v2"), (5, "/version")] {
        frames.get(stream, path, true).expect("a request");
        let reset = frames.read_until(RESET).expect("a reset");
        assert_eq!(reset.stream, stream, "{path}");
    }
    // A watch without events is not stalled.
    server.client().post(MAPS, &json!({"metadata": {"name": "a"}}));
    let event = frames.read_until(DATA).expect("an event");
    assert_eq!(event.stream, 1);
    server.stop();
}

/// A request is in flight until its response was read, which never happens here.
fn hold_one(server: &Server) -> Frames {
    let mut frames = Frames::open(server.address(), 0);
    frames.get(1, "/version", false).expect("a request");
    frames.read_until(HEADERS).expect("the answer begins");
    frames
}

#[test]
fn requests_over_the_in_flight_maximum_get_429_except_for_masters() {
    let server = start(Limits { requests_in_flight_max: 1, fairness: false, ..Limits::default() });
    let held = hold_one(&server);
    let client = server.client();
    let anonymous = |client: &Client| client.send_as("GET /version", "", b"");
    let refused = anonymous(&client);
    assert_eq!(refused.status, 429);
    assert_eq!(refused.body, json!("Too many requests, please try again later.\n"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(refused.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(client.get("/version").status, 200);
    // Mutating requests are counted separately.
    assert_eq!(client.send_as(&format!("POST {MAPS}"), "", b"{}").status, 403);
    drop(held);
    wait_until("the place is free", || anonymous(&client).status == 200);
    server.stop();
}

#[test]
fn total_body_memory_is_bounded() {
    let limits = Limits { bodies_bytes_max: 1 << 20, bodies_wait_max: SOON, ..Limits::default() };
    let server = start(limits);
    let client = server.client();
    let head = format!(
        "POST {MAPS} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer t\r\n\
         Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"
    );
    let long = json!({"metadata": {"name": "a"}, "data": {"a": "x".repeat(300_000)}});
    let deadline = Instant::now() + POLL_TIMEOUT;
    let slow = loop {
        assert!(Instant::now() < deadline, "nothing is refused");
        // The second body may be admitted first; then the first one is rejected.
        let slow = client.write(&[head.as_bytes(), &vec![b' '; 900_000]].concat());
        if (0..10).any(|_| client.post(MAPS, &long).status == 429) {
            break slow;
        }
    };
    let short = json!({"metadata": {"name": "b"}});
    assert_eq!(client.post(MAPS, &short).status, 201);
    drop(slow);
    wait_until("there is room again", || client.post(MAPS, &long).status != 429);
    server.stop();
}

/// Incomplete request heads are limited, too.
#[test]
fn total_memory_of_anonymous_request_heads_is_bounded() {
    let server = start(Limits { unauthenticated_bytes_max: 100_000, ..Limits::default() });
    let begin = format!("GET /version HTTP/1.1\r\nHost: h\r\nA: {}", "a".repeat(60_000));
    let (send, ended) = std::sync::mpsc::channel();
    for _ in 0..3 {
        let mut client = server.client().write(begin.as_bytes());
        let send = send.clone();
        std::thread::spawn(move || {
            let end = client.read(&mut [0]);
            // The test may be over.
            let _ = send.send(end.is_err() || end.is_ok_and(|bytes| bytes == 0));
        });
    }
    // The limit has room for one of the heads. Each of the others is closed when it is read that
    // far.
    for _ in 0..2 {
        assert_eq!(ended.recv_timeout(POLL_TIMEOUT), Ok(true));
    }
    assert_eq!(server.client().get("/version").status, 200);
    server.stop();
}

#[test]
fn settings_contain_the_maximum_of_concurrent_streams() {
    let given = Limits { http2_streams_max: 258, ..Limits::default() };
    for (limits, want) in [(Limits::default(), [0, 100]), (given, [1, 2])] {
        let server = start(limits);
        let mut frames = Frames::open(server.address(), WINDOW);
        let settings = frames.read_until(SETTINGS).expect("settings").payload;
        let streams = settings.chunks(6).find(|setting| setting[..2] == [0, 3]);
        assert_eq!(streams, Some(&[&[0, 3, 0, 0][..], &want].concat()[..]));
        // The stop would wait for it.
        drop(frames);
        server.stop();
    }
}

/// Sends the same frames repeatedly. Returns whether the server closed the connection.
fn is_ended_by(server: &Server, mut next: impl FnMut(u32) -> Vec<u8>, turns: u32) -> bool {
    let mut frames = Frames::open(server.address(), WINDOW);
    for turn in 0..turns {
        if frames.send_raw(&next(turn)).is_err() {
            return true;
        }
    }
    // The last frames may not have been read yet.
    frames.send(6, 0, 0, &[9; 8]).is_err() || frames.read_until(GOAWAY).is_ok() || frames.ends()
}

#[test]
fn floods_of_frames_close_their_connection() {
    let server = start(Limits::default());
    let get = head(b"\x82", "/version", true);
    let post = head(b"\x83", MAPS, true);
    let stream = |turn: u32| 2 * turn + 1;
    let rapid_reset = |turn| {
        let reset = frame(RESET, 0, stream(turn), &8_u32.to_be_bytes());
        [frame(HEADERS, END_HEADERS | 1, stream(turn), &get), reset].concat()
    };
    assert!(is_ended_by(&server, rapid_reset, 100_000), "rapid reset");
    // MadeYouReset (CVE-2025-8671): errors of the client that make the server reset streams.
    let made_you_reset = |turn| {
        let nothing = frame(WINDOW_UPDATE, 0, stream(turn), &0_u32.to_be_bytes());
        [frame(HEADERS, END_HEADERS | 1, stream(turn), &get), nothing].concat()
    };
    assert!(is_ended_by(&server, made_you_reset, 100_000), "window updates of nothing");
    let overflow = |turn| {
        let much = frame(WINDOW_UPDATE, 0, stream(turn), &0x7fff_ffff_u32.to_be_bytes());
        [frame(HEADERS, END_HEADERS, stream(turn), &post), much].concat()
    };
    assert!(is_ended_by(&server, overflow, 100_000), "windows that overflow");
    let continuation = |turn| match turn {
        0 => frame(HEADERS, 1, 1, &get),
        _ => frame(CONTINUATION, 0, 1, b"\x00\x01a\x01b"),
    };
    assert!(is_ended_by(&server, continuation, 100_000), "headers without an end");
    let empty = |turn| match turn {
        0 => frame(HEADERS, END_HEADERS, 1, &post),
        _ => frame(DATA, 0, 1, &[]),
    };
    assert!(is_ended_by(&server, empty, 1_000_000), "data without bytes");
    assert_eq!(server.client().get(MAPS).status, 200);
    server.stop();
}
