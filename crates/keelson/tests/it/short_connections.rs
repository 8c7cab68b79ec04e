//! Many short connections through proxies and streams to a node: each ends with all its
//! descriptors, however it ends.

use crate::http::{Client, POLL_TIMEOUT, Server, without_controllers};
use keelson_testkit::node::{NodeServer, ServerOptions, machine_address};
use serde_json::{Value, json};
use std::io::{BufRead, Read};
use std::time::Instant;

/// Environment variable: how many connections are opened.
const COUNT: &str = "KEELSON_SHORT_CONNECTIONS";
const COUNT_DEFAULT: usize = 10_000;
/// Clients at a time.
const CLIENTS: usize = 4;
/// Descriptors of idle connections in pools, at both ends.
const DESCRIPTORS_MORE_MAX: usize = 32;

const POD: &str = "/api/v1/namespaces/default/pods/web";

/// Returns the number of open descriptors of this process, which is all of them.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("descriptors").count()
}

/// Makes the node and the pod.
fn make_objects(client: &Client, node: &NodeServer) {
    let patch = |path: &str, status: Value| {
        let patch = json!({"status": status});
        let kind = "application/merge-patch+json";
        assert_eq!(client.call("PATCH", path, kind, Some(&patch)).status, 200, "{path}");
    };
    let object = json!({"metadata": {"name": "n1"}});
    assert_eq!(client.post("/api/v1/nodes", &object).status, 201);
    patch(
        "/api/v1/nodes/n1/status",
        json!({
        "addresses": [{"type": "InternalIP", "address": node.address().ip()}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": node.address().port()}}}),
    );
    let pod = json!({"metadata": {"name": "web"},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "i"}]}});
    assert_eq!(client.post("/api/v1/namespaces/default/pods", &pod).status, 201);
    patch(&format!("{POD}/status"), json!({"phase": "Running"}));
}

/// Asks for another protocol, and returns the status. If `to_the_end`, all is read that comes.
fn upgrade(client: &Client, path: &str, headers: &str, to_the_end: bool) -> u16 {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer t\r\nConnection: Upgrade\r\n\
         {headers}\r\n"
    );
    let mut reader = client.write(request.as_bytes());
    let mut line = String::new();
    reader.read_line(&mut line).expect("a status line");
    if to_the_end {
        // It may end with an error.
        let _ = reader.read_to_end(&mut vec![]);
    }
    line.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status")
}

/// Opens a connection of one of several kinds, and ends it.
fn visit(client: &Client, number: usize) {
    const WEBSOCKET: &str = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    const SPDY: &str = "Upgrade: SPDY/3.1\r\n";
    let channels = format!("{WEBSOCKET}Sec-WebSocket-Protocol: v4.channel.k8s.io\r\n");
    let remote = format!("{SPDY}X-Stream-Protocol-Version: v4.channel.k8s.io\r\n");
    let ports = format!("{SPDY}X-Stream-Protocol-Version: portforward.k8s.io\r\n");
    let exec = format!("{POD}/exec?command=true&stdout=true&container=main");
    let attach = format!("{POD}/attach?stdin=true&stdout=true&container=main");
    let plain = |path: &str| client.raw_response("GET", path, "", &[]).status;
    let got = match number % 7 {
        0 => upgrade(client, &exec, &channels, true),
        1 => upgrade(client, &exec, &channels, false),
        2 => upgrade(client, &attach, &channels, false),
        3 => upgrade(client, &attach, &remote, false),
        4 => upgrade(client, &format!("{POD}/portforward"), &ports, false),
        5 => plain(&format!("{POD}/log")),
        _ => plain("/api/v1/nodes/n1/proxy/healthz"),
    };
    let wanted = if number % 7 < 5 { 101 } else { 200 };
    assert_eq!(got, wanted, "connection {number}");
}

fn visit_all(client: &Client, count: usize) {
    std::thread::scope(|scope| {
        for first in 0..CLIENTS {
            scope.spawn(move || {
                (first..count).step_by(CLIENTS).for_each(|number| visit(client, number));
            });
        }
    });
}

#[test]
fn short_connections_leave_no_descriptor() {
    let count = std::env::var(COUNT).ok().and_then(|text| text.parse().ok());
    let count = count.unwrap_or(COUNT_DEFAULT);
    let options = ServerOptions { address: machine_address(), ..ServerOptions::default() };
    let node = NodeServer::start(options).expect("a node");
    let server = Server::start_plain(without_controllers());
    let client = server.client();
    make_objects(&client, &node);
    let idle = descriptors();
    visit_all(&client, count);
    let deadline = Instant::now() + POLL_TIMEOUT;
    loop {
        let open = descriptors();
        if open <= idle + DESCRIPTORS_MORE_MAX {
            break;
        }
        assert!(Instant::now() < deadline, "{idle} descriptors became {open}");
        std::thread::yield_now();
    }
    server.stop();
}
