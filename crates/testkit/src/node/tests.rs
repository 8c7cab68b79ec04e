//! The node, as a client sees it.

use super::{NodeServer, ServerOptions};
use bytes::{Bytes, BytesMut};
use futures_util::{SinkExt, StreamExt};
use keelson_streams::channels::{CommandStreams, STDIN};
use keelson_streams::outcome::Outcome;
use keelson_streams::spdy::{Event, Headers, Session};
use keelson_streams::translate::Translator;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

const SPDY: &str = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n";
const WEBSOCKET: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
const V5: &str = "v5.channel.k8s.io";
const PIPE: CommandStreams = CommandStreams { stdin: true, stdout: true, stderr: true, tty: false };

fn node() -> NodeServer {
    NodeServer::start(ServerOptions { has_v5: true, ..ServerOptions::default() }).unwrap()
}

async fn connect(node: &NodeServer) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(node.authority().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(node.address()).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}

/// Sends a request; returns the connection, the head of the response, and what follows it so far.
async fn request(
    node: &NodeServer,
    method: &str,
    target: &str,
    headers: &str,
) -> (TlsStream<TcpStream>, String, BytesMut) {
    let mut stream = connect(node).await;
    let head = format!("{method} {target} HTTP/1.1\r\nHost: node\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut received = BytesMut::new();
    loop {
        if let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = received.split_to(end + 4);
            return (stream, String::from_utf8_lossy(&head).into_owned(), received);
        }
        if stream.read_buf(&mut received).await.unwrap_or(0) == 0 {
            return (stream, String::from_utf8_lossy(&received).into_owned(), BytesMut::new());
        }
    }
}

/// Returns the whole response to a request.
async fn fetch(node: &NodeServer, method: &str, target: &str, headers: &str) -> String {
    let (mut stream, head, mut rest) = request(node, method, target, headers).await;
    while stream.read_buf(&mut rest).await.unwrap_or(0) > 0 {}
    format!("{head}{}", String::from_utf8_lossy(&rest))
}

/// Opens a WebSocket.
async fn open_websocket(
    node: &NodeServer,
    target: &str,
    protocol: &str,
) -> WebSocketStream<TlsStream<TcpStream>> {
    let headers = format!("{WEBSOCKET}Sec-WebSocket-Protocol: {protocol}\r\n");
    let (stream, head, rest) = request(node, "GET", target, &headers).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    assert!(head.contains(&format!("Sec-WebSocket-Protocol: {protocol}\r\n")), "{head}");
    let rest = rest.to_vec();
    WebSocketStream::from_partially_read(stream, rest, Role::Client, None).await
}

/// Reads until the close message; data of the same channel is joined.
async fn read_messages(socket: &mut WebSocketStream<TlsStream<TcpStream>>) -> Vec<String> {
    let mut out: Vec<Vec<u8>> = vec![];
    while let Some(message) = socket.next().await {
        let data = match message.unwrap() {
            Message::Binary(data) => data,
            Message::Text(text) => Bytes::from(text),
            Message::Close(frame) => {
                out.push(format!("close {:?}", frame.map(|it| u16::from(it.code))).into());
                break;
            }
            _ => continue,
        };
        match out.last_mut() {
            Some(last) if last.first() == data.first() && data.len() > 1 => {
                last.extend_from_slice(&data[1..]);
            }
            _ => out.push(data.to_vec()),
        }
    }
    out.iter().map(|message| message.escape_ascii().to_string()).collect()
}

#[tokio::test]
async fn commands_run_over_websocket() {
    let node = node();
    let script = "cat;%20echo%20err%20%3E%262;%20exit%203";
    let target = format!(
        "/exec/ns/pod/main?command=sh&command=-c&command={script}&input=1&output=1&error=1"
    );
    let mut socket = open_websocket(&node, &target, V5).await;
    for message in [&b"\0hello"[..], b"\xff\0"] {
        socket.send(Message::binary(message.to_vec())).await.unwrap();
    }
    let messages = read_messages(&mut socket).await;
    assert_eq!(messages[..2], ["\\x01hello", "\\x02err\\n"]);
    assert!(messages[2].contains("\\\"reason\\\":\\\"ExitCode\\\",\\\"message\\\":\\\"3\\\""));
    assert_eq!(messages[3..], ["close Some(1000)"]);

    let target = "/exec/ns/pod/main?command=echo&command=hi&output=1";
    for (protocol, expected) in [
        ("channel.k8s.io", &["\\x01hi\\n"][..]),
        ("base64.channel.k8s.io", &["1aGkK"]),
        ("v4.channel.k8s.io", &["\\x01hi\\n", "\\x03{\\\"status\\\":\\\"Success\\\"}"]),
        ("v4.base64.channel.k8s.io", &["1aGkK", "3eyJzdGF0dXMiOiJTdWNjZXNzIn0="]),
    ] {
        let mut socket = open_websocket(&node, target, protocol).await;
        let messages = read_messages(&mut socket).await;
        assert_eq!(messages[..messages.len() - 1], *expected, "{protocol}");
    }
}

#[tokio::test]
async fn a_terminal_echoes_and_ends_with_its_input() {
    let node = node();
    let target = "/attach/ns/pod/main?input=1&output=1&tty=1";
    let mut socket = open_websocket(&node, target, "v4.channel.k8s.io").await;
    for message in [&b"\x04{\"Width\":80,\"Height\":24}"[..], b"\0a\r", b"\0\x04"] {
        socket.send(Message::binary(message.to_vec())).await.unwrap();
    }
    let messages = read_messages(&mut socket).await;
    assert!(messages[0].starts_with("\\x01a\\r\\n"), "{messages:?}");
    assert_eq!(messages[1], "\\x03{\\\"status\\\":\\\"Success\\\"}");
    assert_eq!(node.terminal_sizes(), [(80, 24)]);
}

/// Runs a command over SPDY by the translator; returns its messages and its outcome.
async fn translated(node: &NodeServer, target: &str, input: &[u8]) -> (Vec<u8>, Option<Outcome>) {
    let headers = format!("{SPDY}X-Stream-Protocol-Version: v4.channel.k8s.io\r\n");
    let (mut stream, head, rest) = request(node, "POST", target, &headers).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    let mut translator = Translator::new(PIPE);
    translator.connected("v4.channel.k8s.io");
    translator.receive_node(rest.freeze());
    let mut input = Some(Bytes::copy_from_slice(input));
    let mut output = vec![];
    let mut buffer = BytesMut::new();
    loop {
        if translator.may_read_client()
            && let Some(data) = input.take()
        {
            let message = [&[STDIN], &data[..]].concat();
            translator.receive_client(message.into()).unwrap();
            translator.receive_client(Bytes::from_static(b"\xff\0")).unwrap();
        }
        while let Some(message) = translator.next_message() {
            output.extend_from_slice(&message);
        }
        let to_node = translator.take_node_output();
        if translator.is_done() {
            return (output, translator.outcome().cloned());
        }
        // A node that has closed the connection may have sent something before.
        let _ = stream.write_all(&to_node).await;
        let _ = stream.flush().await;
        match stream.read_buf(&mut buffer).await {
            Ok(0) | Err(_) => translator.node_gone(),
            Ok(_) => translator.receive_node(buffer.split().freeze()),
        }
    }
}

#[tokio::test]
async fn commands_run_over_spdy() {
    let node = node();
    let target = |command: &str| format!("/exec/ns/pod/main?{command}&input=1&output=1&error=1");
    let (output, outcome) = translated(&node, &target("command=cat"), b"through").await;
    assert_eq!(outcome, Some(Outcome::Success));
    assert!(output.starts_with(b"\x01\x01through\x03"), "{}", output.escape_ascii());
    let failing = target("command=sh&command=-c&command=exit%207");
    assert_eq!(translated(&node, &failing, b"").await.1, Some(Outcome::ExitCode(7)));
    let missing = translated(&node, &target("command=/no/such/program"), b"").await.1;
    assert!(matches!(missing, Some(Outcome::Failed(why)) if why.contains("/no/such/program")));
    let lost = "/exec/ns/pod/fault-lost?command=x&input=1&output=1&error=1";
    let (output, outcome) = translated(&node, lost, b"").await;
    assert!(output.starts_with(b"\x01\x01partial\n"), "{}", output.escape_ascii());
    assert!(matches!(outcome, Some(Outcome::Failed(why)) if why.contains("lost")));
}

#[tokio::test]
async fn bombs_are_sent_and_refused() {
    let node = node();
    let target =
        |fault: &str| format!("/exec/ns/pod/fault-then-{fault}?command=x&input=1&output=1&error=1");
    for (fault, expected) in [
        ("settings", "4294967295 settings"),
        ("headers", "SPDY headers of more than 1048576 bytes"),
        ("garbage", "SPDY frame of version"),
        ("half", "lost"),
    ] {
        let outcome = translated(&node, &target(fault), b"").await.1;
        assert!(
            matches!(&outcome, Some(Outcome::Failed(why)) if why.contains(expected)),
            "{fault}: {outcome:?}"
        );
    }
}

/// Answers each connection with what it received, in upper case, when the client has finished.
async fn upper_case_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut text = vec![];
            stream.read_to_end(&mut text).await.unwrap();
            stream.write_all(&text.to_ascii_uppercase()).await.unwrap();
        }
    });
    port
}

#[tokio::test]
async fn ports_are_forwarded_over_spdy() {
    let node = node();
    let port = upper_case_server().await.to_string();
    let headers = format!("{SPDY}X-Stream-Protocol-Version: portforward.k8s.io\r\n");
    let (mut stream, head, rest) = request(&node, "POST", "/portForward/ns/pod", &headers).await;
    assert!(head.contains("X-Stream-Protocol-Version: portforward.k8s.io\r\n"), "{head}");
    let mut session = Session::client();
    let mut open = |stream_type: &str, port: &str, request_id: &str| {
        let headers = [("streamType", stream_type), ("port", port), ("requestID", request_id)];
        session.open(&Headers::from(headers)).unwrap()
    };
    let error = open("error", &port, "0");
    let data = open("data", &port, "0");
    let refused_error = open("error", "1", "1");
    let refused_data = open("data", "1", "1");
    let mut missing = 4;
    let mut events = vec![];
    let mut input = rest;
    loop {
        let mut bytes = input.split().freeze();
        while let Some(event) = session.receive(&mut bytes).unwrap() {
            if matches!(event, Event::Replied { .. }) {
                missing -= 1;
                if missing == 0 {
                    session.finish(error).unwrap();
                    session.send(data, b"half closed").unwrap();
                    session.finish(data).unwrap();
                }
                continue;
            }
            events.push(event);
        }
        let is_end = |it: &&Event| matches!(it, Event::Finished { .. } | Event::Reset { .. });
        if events.iter().filter(is_end).count() == 4 {
            break;
        }
        stream.write_all(&session.take_output()).await.unwrap();
        stream.flush().await.unwrap();
        stream.read_buf(&mut input).await.unwrap();
    }
    let data = Event::Data { stream: data, data: Bytes::from_static(b"HALF CLOSED") };
    assert!(events.contains(&data), "{events:?}");
    let text: Vec<&[u8]> = events
        .iter()
        .filter_map(|event| match event {
            Event::Data { stream, data } if *stream == refused_error => Some(&data[..]),
            _ => None,
        })
        .collect();
    let text = String::from_utf8_lossy(&text.concat()).into_owned();
    assert!(text.starts_with("error forwarding port 1 to pod pod_ns, uid : "), "{text}");
    let reset = |it: &&Event| matches!(it, Event::Reset { stream, .. } if *stream == refused_data);
    assert_eq!(events.iter().filter(reset).count(), 1);
}

#[tokio::test]
async fn ports_are_forwarded_over_websocket() {
    let node = node();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let target = format!("/portForward/ns/pod?port={port}&port=1");
    let mut socket = open_websocket(&node, &target, "v4.channel.k8s.io").await;
    let (mut inside, _) = listener.accept().await.unwrap();
    socket.send(Message::binary(b"\0ping".to_vec())).await.unwrap();
    let mut text = [0; 4];
    inside.read_exact(&mut text).await.unwrap();
    assert_eq!(&text, b"ping");
    inside.write_all(b"pong").await.unwrap();
    drop(inside);
    let messages = read_messages(&mut socket).await.join(" ");
    let [low, high] = port.to_le_bytes();
    let of_port = |channel: u8| [channel, low, high].escape_ascii().to_string();
    assert!(messages.starts_with(&of_port(0)), "{messages}");
    assert!(messages.contains(&of_port(1)) && messages.contains("\\x02\\x01\\x00"), "{messages}");
    assert!(messages.contains("\\x00pong") || messages.contains("pong"), "{messages}");
    assert!(messages.contains("error forwarding port 1 to pod pod_ns"), "{messages}");
    assert!(messages.ends_with("close Some(1000)"), "{messages}");
}

/// Returns the body of a log, out of its chunks.
async fn log(node: &NodeServer, query: &str) -> String {
    let response = fetch(node, "GET", &format!("/containerLogs/ns/pod/main?{query}"), "").await;
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    if !head.contains("chunked") {
        return body.to_owned();
    }
    body.split("\r\n").skip(1).step_by(2).collect()
}

#[tokio::test]
async fn logs_have_all_options() {
    let node = node();
    for (stream, line) in [("stdout", "one"), ("stderr", "two"), ("stdout", "three")] {
        node.log("ns/pod/main", stream, line);
    }
    for (query, expected) in [
        ("", "one\ntwo\nthree\n"),
        ("tailLines=2", "two\nthree\n"),
        ("tailLines=0", ""),
        ("limitBytes=6", "one\ntw"),
        ("stream=Stderr", "two\n"),
        ("stream=Stdout&tailLines=1", "three\n"),
        ("sinceSeconds=3600", "one\ntwo\nthree\n"),
        ("sinceTime=2200-01-01T00:00:00Z", ""),
        ("previous=true", "previous terminated container \"main\" not found\n"),
        ("tailLines=x", "Invalid request.\n"),
    ] {
        assert_eq!(log(&node, query).await, expected, "{query}");
    }
    let stamped = log(&node, "timestamps=true&tailLines=1").await;
    assert!(stamped.starts_with("20") && stamped.ends_with("Z three\n"), "{stamped}");
    let target = "/containerLogs/ns/pod/main?follow=true&tailLines=1";
    let (mut stream, _, mut followed) = request(&node, "GET", target, "").await;
    while !followed.ends_with(b"three\n\r\n") {
        stream.read_buf(&mut followed).await.unwrap();
    }
    let body = "Content-Length: 5\r\n\r\nfour\n";
    fetch(&node, "POST", "/testkit/log/ns/pod/main", body).await;
    node.restart("ns/pod/main");
    while stream.read_buf(&mut followed).await.unwrap_or(0) > 0 {}
    assert_eq!(followed, b"6\r\nthree\n\r\n5\r\nfour\n\r\n0\r\n\r\n"[..]);
    assert_eq!(log(&node, "previous=true").await, "one\ntwo\nthree\nfour\n");
    assert_eq!(log(&node, "").await, "");
}

#[tokio::test]
async fn refusals_and_faults_are_answers() {
    let node = node();
    let check = async |method: &str, target: &str, headers: &str, start: &str, end: &str| {
        let response = fetch(&node, method, target, headers).await;
        assert!(response.starts_with(start) && response.ends_with(end), "{target}: {response}");
    };
    check("GET", "/healthz", "", "HTTP/1.1 200", "ok").await;
    check("GET", "/nothing", "", "HTTP/1.1 404", "404 page not found\n").await;
    let exec = "/exec/ns/pod/main?command=x";
    check("POST", exec, SPDY, "HTTP/1.1 400", "at least 1 of stdin, stdout, stderr\n").await;
    let exec = "/exec/ns/pod/main?command=x&output=1";
    check("POST", exec, SPDY, "HTTP/1.1 400", "does not exist in request with 2 headers\n").await;
    let unknown = format!("{SPDY}X-Stream-Protocol-Version: v9\r\n");
    check("POST", exec, &unknown, "HTTP/1.1 403", "v2.channel.k8s.io channel.k8s.io]\n").await;
    let missing = "/exec/ns/pod/missing?command=x&output=1";
    check("POST", missing, SPDY, "HTTP/1.1 404", "not found in pod \"pod\"\n").await;
    let unknown = format!("{WEBSOCKET}Sec-WebSocket-Protocol: v9\r\n");
    check("GET", exec, &unknown, "HTTP/1.1 403 Forbidden\r\n\r\n", "\r\n\r\n").await;
    let fault = |name: &str| format!("/exec/ns/pod/fault-{name}?output=1");
    check("GET", &fault("status-503"), "", "HTTP/1.1 503 Fault", "fault 503\n").await;
    check("GET", &fault("redirect-302"), "", "HTTP/1.1 302", "elsewhere\n").await;
    check("GET", &fault("half-head"), "", "HTTP/1.1 101 Swi", "Swi").await;
    check("GET", &fault("reset"), "", "", "").await;
    check("GET", &fault("unheard"), "", "HTTP/1.1 400", "\n").await;
    let echoed = fetch(&node, "PUT", "/testkit/echo?a=b", "Content-Length: 2\r\n\r\nhi").await;
    assert!(echoed.contains(r#""body":"hi""#) && echoed.contains(r#""method":"PUT""#), "{echoed}");
}

#[tokio::test]
async fn clients_without_a_certificate_are_refused() {
    let authority = node().authority().as_bytes().to_vec();
    let options = ServerOptions { client_authority: Some(authority), ..ServerOptions::default() };
    let node = NodeServer::start(options).unwrap();
    let response = fetch(&node, "GET", "/healthz", "").await;
    assert!(response.starts_with("HTTP/1.1 401 Unauthorized"), "{response}");
}
