//! Tokens as WebSocket subprotocols: when they count, and that no far side sees them (apiserver
//! `authentication/request/websocket`).

use crate::http::{Client, Server, without_controllers};
use keelson_testkit::node::machine_address;
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::thread;

/// The token `t`.
const TOKEN: &str = "base64url.bearer.authorization.k8s.io.dA";
const UPGRADE: &str = "Connection: Upgrade, close\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// Sends a GET, and returns its status and the whole answer.
fn get(client: &Client, path: &str, headers: &str) -> (u16, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\n{headers}\r\n");
    let mut reader = client.write(request.as_bytes());
    let mut answer = String::new();
    reader.read_line(&mut answer).expect("a status line");
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    if code != 101 {
        reader.read_to_string(&mut answer).expect("the answer ends");
    }
    (code, answer)
}

#[test]
fn a_token_among_the_subprotocols_is_a_credential_of_websockets_only() {
    let server = Server::start_plain(without_controllers());
    let client = server.client();
    // Watches need an Origin, without which they are 403 to those who may watch, and to those who
    // may not.
    let watch = "/api/v1/namespaces?watch=true";
    let check = |headers: String, want: u16| {
        assert_eq!(get(&client, watch, &headers).0, want, "{headers}");
    };
    let protocols = |list: &str| format!("Origin: http://o\r\nSec-WebSocket-Protocol: {list}\r\n");
    let both = protocols(&format!("{TOKEN}, x"));
    check(format!("{UPGRADE}{both}"), 101);
    check(format!("Connection: close\r\n{both}"), 403);
    check(
        format!("Connection: close\r\n{}", protocols("base64url.bearer.authorization.k8s.io.!, x")),
        403,
    );
    check(format!("{UPGRADE}{}", protocols(TOKEN)), 401);
    check(format!("{UPGRADE}{}", protocols(&format!("{TOKEN}, {TOKEN}, x"))), 401);
    check(format!("{UPGRADE}{}", protocols("base64url.bearer.authorization.k8s.io.!, x")), 401);
    check(format!("{UPGRADE}Authorization: Bearer wrong\r\n{both}"), 101);
    check(format!("{UPGRADE}Authorization: Bearer wrong\r\n{}", protocols("x")), 401);
    server.stop();
}

#[test]
fn credentials_of_an_upgrade_are_not_passed_on() {
    let listener = TcpListener::bind((machine_address().expect("an address of this machine"), 0))
        .expect("an address");
    let address = listener.local_addr().expect("an address");
    let server = Server::start_plain(without_controllers());
    let client = server.client();
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "web"},
        "spec": {"containers": [{"name": "main", "image": "i"}]}});
    assert_eq!(client.post(pods, &pod).status, 201);
    let status = json!({"status": {"podIP": address.ip(), "podIPs": [{"ip": address.ip()}]}});
    let kind = "application/merge-patch+json";
    let patched = client.call("PATCH", &format!("{pods}/web/status"), kind, Some(&status));
    assert_eq!(patched.status, 200);
    let seen = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let lines = BufReader::new(stream.try_clone().expect("a stream")).lines();
        let lines = lines.map(|line| line.expect("a line").to_lowercase());
        let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
        stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").expect("sent");
        head
    });
    let headers = format!(
        "{UPGRADE}Sec-WebSocket-Protocol: {TOKEN}, v4.channel.k8s.io\r\n\
         Proxy-Authorization: Basic eDp5\r\nX-Remote-User: x\r\n"
    );
    let path = format!("{pods}/web:{}/proxy/x", address.port());
    assert_eq!(get(&client, &path, &headers).0, 404);
    let seen = seen.join().expect("the head");
    let protocols: Vec<&str> =
        seen.iter().filter_map(|line| line.strip_prefix("sec-websocket-protocol: ")).collect();
    assert_eq!(protocols, ["v4.channel.k8s.io"], "{seen:?}");
    for name in ["authorization", "proxy-authorization", "x-remote-user"] {
        assert!(!seen.iter().any(|line| line.starts_with(&format!("{name}:"))), "{seen:?}");
    }
    server.stop();
}
