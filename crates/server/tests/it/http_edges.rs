//! Edge cases of HTTP: connections that are reused after an error, Host headers, timeouts that
//! overflow, verbs below `/watch/`. Expected bytes are those of a kube-apiserver 1.36.2.

use crate::world::{Options, POLL_TIMEOUT, Server};
use keelson_server::Limits;
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const TOKEN: &str = "Authorization: Bearer t\r\n";
const JSON: &str = "Content-Type: application/json\r\n";

fn start() -> Server {
    Server::start_plain(Options::default())
}

/// A connection that stays open until the server closes it.
struct Wire(BufReader<TcpStream>);

/// The status line, and whether the response has `Connection: close`.
#[derive(Debug, PartialEq)]
struct Head {
    status: u16,
    closes: bool,
}

impl Wire {
    fn open(server: &Server) -> Wire {
        let stream = TcpStream::connect(server.address()).expect("a connection");
        stream.set_read_timeout(Some(POLL_TIMEOUT)).expect("a deadline");
        Wire(BufReader::new(stream))
    }

    fn send(&mut self, bytes: &[u8]) {
        // The response of a server that closes early must still be read.
        let _ = self.0.get_mut().write_all(bytes);
    }

    /// Reads the next response and discards its body; `None` if the connection is closed.
    fn answer(&mut self) -> Option<Head> {
        let mut line = String::new();
        if !matches!(self.0.read_line(&mut line), Ok(1..)) {
            return None;
        }
        let status = line.split(' ').nth(1)?.parse().ok()?;
        let mut length = 0;
        let mut closes = false;
        loop {
            line.clear();
            self.0.read_line(&mut line).ok()?;
            let header = line.trim().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            closes |= header == "connection: close";
            if let Some(text) = header.strip_prefix("content-length: ") {
                length = text.parse().ok()?;
            }
        }
        self.0.read_exact(&mut vec![0; length]).ok()?;
        Some(Head { status, closes })
    }
}

/// Errors that are returned before the body was read.
fn early_refusals() -> Vec<(&'static str, String, String, u16)> {
    let all = |path: &str| path.to_owned();
    let with_token = format!("{TOKEN}{JSON}");
    vec![
        ("POST", all("/nope"), with_token.clone(), 404),
        ("POST", all("/api/v1/nope"), with_token.clone(), 404),
        ("POST", all("/version"), with_token.clone(), 405),
        ("PUT", all(MAPS), with_token.clone(), 405),
        ("POST", format!("{MAPS}?timeout=x"), with_token.clone(), 400),
        ("POST", all(MAPS), "Authorization: Bearer wrong\r\n".to_owned(), 401),
        ("POST", all(MAPS), String::new(), 403),
        ("POST", all(MAPS), format!("{TOKEN}Content-Type: a/b\r\n"), 415),
        ("GET", all(MAPS), with_token, 200),
    ]
}

#[test]
fn a_connection_is_reused_after_an_error_with_an_unread_body() {
    let server = start();
    let mut wire = Wire::open(&server);
    for bytes in [0, 10, 100_000, (256 << 10) - 1] {
        for (method, path, headers, status) in early_refusals() {
            let head = format!("{method} {path} HTTP/1.1\r\nHost: h\r\n{headers}");
            let body = "x".repeat(bytes);
            wire.send(format!("{head}Content-Length: {bytes}\r\n\r\n{body}").as_bytes());
            let want = Head { status, closes: false };
            // An empty body is another error.
            if bytes > 0 || status != 415 {
                assert_eq!(wire.answer(), Some(want), "{method} {path} with {bytes}");
            } else {
                assert!(wire.answer().is_some(), "{method} {path} with {bytes}");
            }
            let chunked = format!("Transfer-Encoding: chunked\r\n\r\n{bytes:x}\r\n{body}\r\n");
            if bytes > 0 {
                wire.send(format!("{head}{chunked}0\r\n\r\n").as_bytes());
                let want = Head { status, closes: false };
                assert_eq!(wire.answer(), Some(want), "{method} {path} with {bytes} in chunks");
            }
        }
    }
    wire.send(b"GET /version HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(wire.answer(), Some(Head { status: 200, closes: false }));
    server.stop();
}

#[test]
fn a_response_before_a_long_unread_body_arrives_with_connection_close() {
    let server = start();
    for (method, path, headers, status) in early_refusals() {
        // The last piece that is read before the 413 may be long, so the rest must be longer.
        for bytes in [256 << 10, 8 << 20] {
            let mut wire = Wire::open(&server);
            let head = format!("{method} {path} HTTP/1.1\r\nHost: h\r\n{headers}");
            let body = "x".repeat(bytes);
            wire.send(format!("{head}Content-Length: {bytes}\r\n\r\n{body}").as_bytes());
            // The media type is checked after the body was read, up to its limit.
            let (status, closes) = match status {
                415 if bytes > 3 << 20 => (413, true),
                415 => (415, false),
                other => (other, true),
            };
            let what = format!("{method} {path} with {bytes}");
            assert_eq!(wire.answer(), Some(Head { status, closes }), "{what}");
            assert!(!closes || wire.answer().is_none(), "{what}");
        }
    }
    server.stop();
}

/// A client that waits for 100 Continue sends no body after an error.
#[test]
fn an_error_before_an_expected_body_has_connection_close() {
    let server = start();
    let mut wire = Wire::open(&server);
    wire.send(
        b"POST /nope HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n",
    );
    assert_eq!(wire.answer(), Some(Head { status: 403, closes: true }));
    assert_eq!(wire.answer(), None);
    server.stop();
}

/// The server does not wait for the rest of a body.
#[test]
fn an_error_waits_for_an_unread_body_for_a_bounded_time() {
    let unread_body_timeout = Duration::from_millis(50);
    let limits = Limits { unread_body_timeout, ..Limits::default() };
    let server = Server::start_plain(Options::default().with(|options| options.limits = limits));
    let mut wire = Wire::open(&server);
    let began = Instant::now();
    wire.send(b"POST /nope HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nx");
    assert_eq!(wire.answer(), Some(Head { status: 403, closes: true }));
    assert_eq!(wire.answer(), None);
    assert!(began.elapsed() < POLL_TIMEOUT / 2);
    server.stop();
}

#[test]
fn a_request_has_one_host_header() {
    let server = start();
    let check = |request: &str, line: &str, body: &str| {
        let mut text = String::new();
        let mut wire = server.client().write(request.as_bytes());
        wire.read_to_string(&mut text).expect("the connection ends");
        let (head, got) = text.split_once("\r\n\r\n").unwrap_or_default();
        assert_eq!((head.lines().next().unwrap_or_default(), got), (line, body), "{request:?}");
        let closes = head.to_ascii_lowercase().contains("connection: close");
        assert!(closes, "{head}");
        let types = "content-type: text/plain; charset=utf-8";
        assert!(head.to_ascii_lowercase().contains(types), "{head}");
    };
    let bad = "HTTP/1.1 400 Bad Request";
    check("GET /version HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", bad, "400 Bad Request");
    check("GET /version HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", bad, "400 Bad Request");
    let missing = "400 Bad Request: missing required Host header";
    check("GET /version HTTP/1.1\r\n\r\n", &format!("HTTP/1.1 {missing}"), missing);
    let malformed = "400 Bad Request: malformed Host header";
    for host in ["a b", "a/b", "a\\b", "\u{e9}"] {
        let request = format!("GET /version HTTP/1.1\r\nHost: {host}\r\n\r\n");
        check(&request, &format!("HTTP/1.1 {malformed}"), malformed);
    }
    let fine = |host: &str, version: &str| {
        let mut wire = Wire::open(&server);
        wire.send(format!("GET /version HTTP/1.{version}\r\n{host}\r\n").as_bytes());
        wire.answer().map(|head| head.status)
    };
    assert_eq!(fine("Host: \r\n", "1"), Some(200));
    assert_eq!(fine("Host: [::1]:6443\r\n", "1"), Some(200));
    assert_eq!(fine("", "0"), Some(200));
    server.stop();
}

/// Go converts seconds to nanoseconds in 64 bits and ignores the overflow. A negative result ends
/// the watch at once.
#[test]
fn a_watch_with_an_overflowing_timeout_ends_at_once() {
    let server = start();
    for seconds in ["9223372036854775807", "9223372037", "18446744074", "-5"] {
        let path = format!("{MAPS}?watch=1&timeoutSeconds={seconds}");
        let mut watch = server.client().open_watch(&path);
        assert_eq!(watch.status, 200, "{seconds}");
        assert_eq!(watch.next(), Err("the watch ended".to_owned()), "{seconds}");
    }
    let path = format!("{MAPS}?watch=1&timeoutSeconds=9223372036");
    let mut watch = server.client().open_watch(&path);
    server.client().post(MAPS, &json!({"metadata": {"name": "a"}}));
    assert_eq!(watch.next().expect("an event")["type"], "ADDED");
    server.stop();
}

#[test]
fn only_get_watches() {
    let server = start();
    let client = server.client();
    let why = "the server does not allow this method on the requested resource";
    for path in ["configmaps", "namespaces/default/configmaps", "namespaces/default/configmaps/a"] {
        for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
            let answer =
                client.call(method, &format!("/api/v1/watch/{path}"), "application/json", None);
            assert_eq!(answer.status, 405, "{method} {path}");
            assert_eq!(answer.body["message"], why, "{method} {path}");
            assert_eq!(answer.body["reason"], "MethodNotAllowed", "{method} {path}");
        }
        let head = client.request("HEAD", &format!("/api/v1/watch/{path}"), "", None);
        assert_eq!(head.status, 405, "HEAD {path}");
    }
    let none = client.call("POST", "/api/v1/watch/bogus", "application/json", None);
    assert_eq!(none.status, 404);
    // The request is a watch, whatever its method.
    let other = "Authorization: Bearer t\r\nImpersonate-User: bob\r\n";
    let answer = client.request("POST", "/api/v1/watch/pods", other, None);
    let why = "pods is forbidden: User \"bob\" cannot watch resource \"pods\" in API group \"\" at \
               the cluster scope";
    assert_eq!((answer.status, &answer.body["message"]), (403, &json!(why)));
    server.stop();
}

/// A negative period is one second, and seconds that do not fit wrap around, as in Go.
#[test]
fn an_overflowing_grace_period_wraps_as_in_go() {
    let server = Server::start_plain(crate::world::without_accounts());
    let client = server.client();
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({
        "metadata": {"name": "p"},
        "spec": {"nodeName": "n", "containers": [{"name": "a", "image": "a"}]}
    });
    let grace = |seconds: &str| {
        let answer = client.delete(&format!("{pods}/p?gracePeriodSeconds={seconds}"));
        assert_eq!(answer.status, 200, "{answer:?}");
        let metadata = &answer.body["metadata"];
        let year = metadata["deletionTimestamp"].as_str().unwrap_or_default()[..4].to_owned();
        (metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or_default(), year)
    };
    for (seconds, want, year) in [
        ("9223372037", 9_223_372_037, Some("1734")),
        ("9223372036854775807", i64::MAX, None),
        ("-9223372036854775808", 1, None),
    ] {
        assert_eq!(client.post(pods, &pod).status, 201);
        let got = grace(seconds);
        assert_eq!(got.0, want, "{seconds}");
        assert!(year.is_none_or(|year| year == got.1), "{seconds}: {got:?}");
        assert_eq!(grace("-9223372036854775808").0, 1, "{seconds}");
        client.delete(&format!("{pods}/p?gracePeriodSeconds=0"));
    }
    server.stop();
}
