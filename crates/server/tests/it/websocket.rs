//! Watches over WebSocket, frame by frame.

use crate::world::{Client, Options, Server};
use keelson_testkit::websocket::{UPGRADE, frame, upgrade_at};
use serde_json::{Value, json};
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;

const WATCH: &str = "/api/v1/namespaces/default/configmaps?watch=true&resourceVersion=0";
/// Key and accept value of RFC 6455, section 1.3.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
const ORIGIN: &str = "Origin: http://localhost\r\n";
const TOKEN: &str = "Authorization: Bearer t\r\n";

/// Requests a watch over WebSocket. Returns the lines of the response's head, and the rest.
fn upgrade(client: &Client, headers: &str) -> (Vec<String>, BufReader<TcpStream>) {
    upgrade_at(client, WATCH, headers)
}

fn event(reader: &mut impl Read) -> (String, String) {
    let (kind, body) = frame(reader);
    assert_eq!(kind, 1, "JSON goes as text");
    let event: Value = serde_json::from_slice(&body).expect("one event a message");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&event["type"]), text(&event["object"]["metadata"]["name"]))
}

fn create(client: &Client, name: &str) {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    assert_eq!(client.post("/api/v1/namespaces/default/configmaps", &map).status, 201);
}

#[test]
fn events_are_messages() {
    let server = Server::start_plain(Options::default());
    let client = server.client();
    create(&client, "a");
    create(&client, "b");
    let (head, mut reader) = upgrade(&client, &format!("{UPGRADE}{ORIGIN}{TOKEN}"));
    assert_eq!(head[0], "HTTP/1.1 101 Switching Protocols");
    let accept = head.iter().find_map(|line| line.strip_prefix("sec-websocket-accept: "));
    assert_eq!(accept, Some(ACCEPT), "{KEY}: {head:?}");
    let named = |word: &str, name: &str| (word.to_owned(), name.to_owned());
    assert_eq!(event(&mut reader), named("ADDED", "a"));
    assert_eq!(event(&mut reader), named("ADDED", "b"));
    create(&client, "c");
    assert_eq!(event(&mut reader), named("ADDED", "c"));
    assert_eq!(client.delete("/api/v1/namespaces/default/configmaps/a").status, 200);
    assert_eq!(event(&mut reader), named("DELETED", "a"));
    // A masked close frame without payload: the server responds with a close frame.
    reader.get_mut().write_all(&[0x88, 0x80, 0, 0, 0, 0]).expect("the close goes out");
    assert_eq!(frame(&mut reader).0, 8);
    server.stop();
}

#[test]
fn protobuf_events_are_binary_and_the_token_is_a_subprotocol() {
    let server = Server::start_plain(Options::default());
    let client = server.client();
    create(&client, "a");
    let accept = "Accept: application/vnd.kubernetes.protobuf;stream=watch\r\n";
    let token = "Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.dA, x\r\n";
    let (head, mut reader) = upgrade(&client, &format!("{UPGRADE}{ORIGIN}{accept}{token}"));
    assert_eq!(head[0], "HTTP/1.1 101 Switching Protocols", "{head:?}");
    assert!(head.iter().any(|line| line == "sec-websocket-protocol: x"), "{head:?}");
    let (kind, body) = frame(&mut reader);
    assert_eq!(kind, 2);
    assert!(body.windows(5).any(|bytes| bytes == b"ADDED"), "{body:?}");
    server.stop();
}

#[test]
fn an_invalid_handshake_is_rejected() {
    let server = Server::start_plain(Options::default());
    let client = server.client();
    let refused = |headers: &str, code: &str| {
        let (head, _) = upgrade(&client, headers);
        assert!(head[0].starts_with(&format!("HTTP/1.1 {code} ")), "{headers}: {head:?}");
    };
    refused(&format!("{UPGRADE}{TOKEN}"), "403");
    let old = UPGRADE.replace("Version: 13", "Version: 8");
    refused(&format!("{old}{ORIGIN}{TOKEN}"), "400");
    let two = "Sec-WebSocket-Protocol: x, y\r\n";
    refused(&format!("{UPGRADE}{ORIGIN}{TOKEN}{two}"), "400");
    refused(&format!("{UPGRADE}{ORIGIN}Authorization: Bearer wrong\r\n"), "401");
    refused(&format!("{UPGRADE}{ORIGIN}"), "403");
    server.stop();
}

/// Clients only send close frames, so no buffer is allocated for a long message.
#[test]
fn an_oversized_frame_closes_the_socket_before_its_payload() {
    let server = Server::start_plain(Options::default());
    let client = server.client();
    let (head, mut reader) = upgrade(&client, &format!("{UPGRADE}{ORIGIN}{TOKEN}"));
    assert_eq!(head[0], "HTTP/1.1 101 Switching Protocols");
    // A masked binary frame of 1 MiB, of which only the header and the mask are sent.
    let mut frame = vec![0x82, 0xff];
    frame.extend_from_slice(&(1_u64 << 20).to_be_bytes());
    frame.extend_from_slice(&[0; 4]);
    reader.get_mut().write_all(&frame).expect("the frame's head goes out");
    let end = reader.read_to_end(&mut vec![]);
    assert!(end.is_ok(), "the socket stays: {end:?}");
    server.stop();
}
