//! A watch over HTTP/1.1 takes over its connection and returns it: pipelined requests before and
//! after it are answered in order, and no part of a body is parsed as a request.

use crate::http::Server;
use keelson::Keelson;
use keelson_testkit::connection::{authorities, plain, secure, tls_client};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::Arc;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const LAST: &str = "Connection: close\r\n";

/// Status, whether the response is chunked, whether it has `Connection: close`, and the body.
type Response = (u16, bool, bool, String);

fn get(path: &str, rest: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer t\r\n{rest}\r\n")
}

fn watch() -> String {
    format!("{MAPS}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Da")
}

/// Sends all requests at once, and reads until the server closes the connection.
fn answers(mut stream: impl Read + Write, requests: &[String]) -> Vec<Response> {
    stream.write_all(requests.concat().as_bytes()).expect("a write");
    stream.flush().expect("a flush");
    let mut reader = BufReader::new(stream);
    let mut answers = vec![];
    while let Some(answer) = answer(&mut reader) {
        let is_last = answer.2;
        answers.push(answer);
        if is_last {
            break;
        }
    }
    answers
}

fn answer(reader: &mut impl BufRead) -> Option<Response> {
    let mut line = || {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        Some(line.strip_suffix("\r\n")?.to_ascii_lowercase())
    };
    let status = line()?.strip_prefix("http/1.1 ")?.get(..3)?.parse().ok()?;
    let mut is_chunked = false;
    let mut is_last = false;
    let mut length = 0;
    let mut is_dated = false;
    loop {
        match line()? {
            end if end.is_empty() => break,
            field if field == "transfer-encoding: chunked" => is_chunked = true,
            field if field == "connection: close" => is_last = true,
            field if field.starts_with("date: ") => is_dated = true,
            field => length = number(&field, "content-length: ", 10).unwrap_or(length),
        }
    }
    assert!(is_dated, "no date");
    let mut body = vec![];
    loop {
        if is_chunked {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            length = number(line.trim_end(), "", 16)?;
        }
        let mut part = vec![0; length];
        reader.read_exact(&mut part).ok()?;
        body.append(&mut part);
        if is_chunked {
            let mut end = [0; 2];
            reader.read_exact(&mut end).ok()?;
            assert_eq!(&end, b"\r\n", "after {length} bytes");
        }
        if !is_chunked || length == 0 {
            return Some((status, is_chunked, is_last, String::from_utf8(body).ok()?));
        }
    }
}

fn number(line: &str, before: &str, radix: u32) -> Option<usize> {
    usize::from_str_radix(line.strip_prefix(before)?, radix).ok()
}

fn create() -> String {
    let map = json!({"metadata": {"name": "a"}, "data": {"k": "v"}}).to_string();
    format!(
        "POST {MAPS} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer t\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{map}",
        map.len()
    )
}

/// Sends requests on a server with a ConfigMap, and compares the responses.
fn check(stream: impl Read + Write, requests: &[String], want: &[&str]) {
    let mut all = vec![create()];
    all.extend_from_slice(requests);
    let answers = answers(stream, &all);
    let made: Value = serde_json::from_str(&answers[0].3).expect("a map");
    assert_eq!(made["data"], json!({"k": "v"}));
    let event = json!({"type": "ADDED", "object": made});
    let shown = |(status, is_chunked, is_last, body): &Response| {
        let what = match serde_json::from_str::<Value>(body) {
            Ok(body) if body == event => "event",
            Ok(body) if body["major"] == "1" => "version",
            _ => "other",
        };
        let how = if *is_chunked { " in chunks" } else { "" };
        format!("{status} {what}{how}{}", if *is_last { ", the last" } else { "" })
    };
    assert_eq!(answers[1..].iter().map(shown).collect::<Vec<_>>(), want, "{answers:?}");
}

#[test]
fn pipelined_requests_around_watches_are_answered_in_order() {
    let server = Server::start(Keelson::builder().no_controllers().token("t", "admin"));
    let roots = authorities(server.keelson.kubeconfig().text());
    let config = tls_client(roots).with_no_client_auth();
    let stream = secure(server.keelson.address(), &Arc::new(config)).expect("a connection");
    let version = || get("/version", "");
    let requests =
        [version(), get(&watch(), ""), version(), get(&watch(), ""), get("/version", LAST)];
    let event = "200 event in chunks";
    let version = "200 version";
    check(stream, &requests, &[version, event, version, event, "200 version, the last"]);
    server.stop();
}

#[test]
fn a_watch_can_be_the_last_answer() {
    let server = Server::start_plain(Keelson::builder().no_controllers());
    let stream = plain(server.keelson.address()).expect("a connection");
    let requests = [get(&watch(), LAST), get("/version", "")];
    check(stream, &requests, &["200 event in chunks, the last"]);
    server.stop();
}

#[test]
fn the_body_of_a_watch_is_not_read_as_a_request() {
    let server = Server::start_plain(Keelson::builder().no_controllers());
    let stream = plain(server.keelson.address()).expect("a connection");
    let hidden = get("/version", "");
    let length = format!("Content-Length: {}\r\n", hidden.len());
    let requests = [get(&watch(), &length), hidden, get("/version", LAST)];
    check(stream, &requests, &["200 event in chunks", "200 version, the last"]);
    server.stop();
}
