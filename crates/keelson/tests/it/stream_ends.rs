//! How streams end when their client vanishes while the far side is silent and does not read what
//! was sent, and when the server stops.

use crate::aggregation::external_service;
use crate::http::{Client, Server, without_controllers};
use keelson_testkit::webhook::certificate;
use keelson_testkit::websocket::{UPGRADE, frame, upgrade_at};
use serde_json::json;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

const TOKEN: &str = "Authorization: Bearer t\r\n";
const PODS: &str = "/api/v1/namespaces/default/pods";
const BEHIND: &str = "/apis/held.example/v1";
const LIST: &str = r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"held.example/v1","resources":[]}"#;
const SWITCHED: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n";
/// How soon the connection to the far side ends (docs/security.md).
const END_MAX: Duration = Duration::from_secs(10);
/// Bytes that a client sends, of which the buffers on the way to the far side take most.
const SENT_BYTES: usize = 64 << 20;

/// A node and a server behind, which answers and is then silent, and reads nothing.
struct Silent {
    port: u16,
    bundle: String,
    /// Connections that are held open.
    open: Arc<AtomicUsize>,
    _runtime: Runtime,
}

impl Silent {
    fn start() -> Silent {
        let runtime = Runtime::new().expect("a runtime");
        let (config, bundle) = certificate("http/1.1", &["behind.default.svc"]);
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let open = Arc::new(AtomicUsize::new(0));
        let counted = open.clone();
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                let open = counted.clone();
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    let mut head = vec![];
                    while !head.ends_with(b"\r\n\r\n") {
                        match stream.read_buf(&mut head).await {
                            Ok(count) if count > 0 => {}
                            _ => return,
                        }
                    }
                    let head = String::from_utf8_lossy(&head).to_lowercase();
                    let (answer, is_held) = answer(&head);
                    open.fetch_add(usize::from(is_held), Ordering::Relaxed);
                    let _ = stream.write_all(answer.as_bytes()).await;
                    let socket = stream.get_ref().0;
                    while is_held
                        && socket
                            .ready(Interest::READABLE)
                            .await
                            .is_ok_and(|ready| !ready.is_read_closed())
                    {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    open.fetch_sub(usize::from(is_held), Ordering::Relaxed);
                });
            }
        });
        Silent { port, bundle, open, _runtime: runtime }
    }

    /// Waits until so many connections are held open.
    fn wait(&self, count: usize, what: &str) {
        let end = Instant::now() + END_MAX;
        while self.open.load(Ordering::Relaxed) != count {
            let open = self.open.load(Ordering::Relaxed);
            assert!(Instant::now() < end, "{what}: {open} connections are open, not {count}");
            std::thread::yield_now();
        }
    }
}

/// Returns the answer to a request, and whether its connection is held open afterwards.
fn answer(head: &str) -> (String, bool) {
    let path = head.split(' ').nth(1).unwrap_or_default();
    if path == BEHIND {
        let length = LIST.len();
        let head = "Connection: close\r\nContent-Type: application/json";
        return (
            format!("HTTP/1.1 200 OK\r\n{head}\r\nContent-Length: {length}\r\n\r\n{LIST}"),
            false,
        );
    }
    if head.contains("upgrade: websocket") {
        let protocol = "Upgrade: websocket\r\nSec-WebSocket-Protocol: v4.channel.k8s.io";
        return (format!("{SWITCHED}{protocol}\r\n\r\n"), true);
    }
    if head.contains("upgrade: spdy/3.1") {
        let protocol = match path.starts_with("/exec") {
            true => "v4.channel.k8s.io",
            false => "portforward.k8s.io",
        };
        let protocol = format!("Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: {protocol}");
        return (format!("{SWITCHED}{protocol}\r\n\r\n"), true);
    }
    match path {
        path if path.ends_with("/headless") => (String::new(), true),
        path if path.ends_with("/body") || path.starts_with("/containerlogs") => {
            ("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n".to_owned(), true)
        }
        _ => ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned(), false),
    }
}

fn prepare(client: &Client, far: &Silent) {
    external_service(client);
    let registered = json!({"metadata": {"name": "v1.held.example"}, "spec": {
        "group": "held.example", "version": "v1", "groupPriorityMinimum": 100,
        "versionPriority": 10, "caBundle": far.bundle,
        "service": {"name": "behind", "namespace": "default", "port": far.port}}});
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    assert_eq!(client.post(services, &registered).status, 201);
    assert_eq!(client.post("/api/v1/nodes", &json!({"metadata": {"name": "n"}})).status, 201);
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": far.port}}}});
    let merge = "application/merge-patch+json";
    let patched = client.call("PATCH", "/api/v1/nodes/n/status", merge, Some(&status));
    assert_eq!(patched.status, 200);
    let pod = json!({"metadata": {"name": "p"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(client.post(PODS, &pod).status, 201);
    client.poll(BEHIND, |answer| answer.status == 200);
}

#[test]
fn a_far_side_ends_when_its_client_has_vanished() {
    let far = Silent::start();
    let server = Server::start_plain(without_controllers());
    let client = server.client();
    prepare(&client, &far);
    let exec = format!("{PODS}/p/exec?command=cat&stdin=true&stdout=true");
    let ports = format!("{PODS}/p/portforward");
    for (path, protocol) in [
        (exec.as_str(), "v4.channel.k8s.io"),
        (&exec, "v5.channel.k8s.io"),
        (&ports, "SPDY/3.1+portforward.k8s.io"),
        (&format!("{BEHIND}/x"), "v4.channel.k8s.io"),
    ] {
        let headers = format!("{TOKEN}{UPGRADE}Sec-WebSocket-Protocol: {protocol}\r\n");
        let (head, stream) = upgrade_at(&client, path, &headers);
        assert!(head[0].contains(" 101 "), "{head:?}");
        far.wait(1, path);
        drop(stream);
        far.wait(0, &format!("{path}, {protocol}"));
    }
    for path in [format!("{PODS}/p/log?follow=true"), format!("{BEHIND}/body")] {
        let (_, stream) = client.stream(&path, TOKEN);
        far.wait(1, &path);
        drop(stream);
        far.wait(0, &path);
    }
    let path = format!("{BEHIND}/headless");
    let stream = client.write(format!("GET {path} HTTP/1.1\r\nHost: h\r\n{TOKEN}\r\n").as_bytes());
    far.wait(1, &path);
    drop(stream);
    far.wait(0, &path);
    server.stop();
}

/// The far side reads nothing, and so neither does the server, who could otherwise notice the end
/// of the connection while reading. That of the far side comes after what it has not read.
#[test]
fn a_vanished_client_is_noticed_behind_what_it_has_sent() {
    let far = Silent::start();
    let mut builder = without_controllers();
    builder.serving.limits.streams_of_user_max = 1;
    let server = Server::start_plain(builder);
    let client = server.client();
    prepare(&client, &far);
    let headers = format!("{TOKEN}{UPGRADE}Sec-WebSocket-Protocol: v4.channel.k8s.io\r\n");
    let path = format!("{PODS}/p/exec?command=cat&stdin=true&stdout=true");
    let (head, mut stream) = upgrade_at(&client, &path, &headers);
    assert!(head[0].contains(" 101 "), "{head:?}");
    // As much as the connections take. What the client's kernel has not sent yet would be in front
    // of the end, so the client resets the connection.
    stream.get_ref().set_write_timeout(Some(Duration::from_millis(300))).expect("a timeout");
    let sent = stream.get_mut().write_all(&vec![0; SENT_BYTES]);
    assert!(sent.is_err(), "the far side reads");
    let (head, _) = upgrade_at(&client, &path, &headers);
    assert!(head[0].contains(" 429 "), "{head:?}");
    let stream = stream.into_inner();
    stream.set_nonblocking(true).expect("a socket");
    server.block_on(async {
        let stream = tokio::net::TcpStream::from_std(stream).expect("a socket");
        stream.set_zero_linger().expect("a socket");
    });
    let end = Instant::now() + END_MAX;
    while upgrade_at(&client, &path, &headers).0[0].contains(" 429 ") {
        assert!(Instant::now() < end, "the stream has not ended");
    }
    server.stop();
}

#[test]
fn streams_end_with_a_close_frame_when_the_server_stops() {
    const CLOSE: u8 = 8;
    let far = Silent::start();
    let server = Server::start_plain(without_controllers());
    let client = server.client();
    prepare(&client, &far);
    // Those that are passed through have the frames of the far side.
    let exec = format!("{PODS}/p/exec?command=cat&stdin=true&stdout=true");
    let mut streams: Vec<_> = [
        (exec, "v5.channel.k8s.io"),
        (format!("{PODS}/p/portforward"), "SPDY/3.1+portforward.k8s.io"),
        (format!("{PODS}/p/log?follow=true"), "binary.k8s.io"),
    ]
    .into_iter()
    .map(|(path, protocol)| {
        let headers = format!("{TOKEN}{UPGRADE}Sec-WebSocket-Protocol: {protocol}\r\n");
        let (head, stream) = upgrade_at(&client, &path, &headers);
        assert!(head[0].contains(" 101 "), "{head:?}");
        (path, stream)
    })
    .collect();
    far.wait(3, "the streams");
    server.stop();
    for (path, stream) in &mut streams {
        let mut kind = 0;
        while kind != CLOSE {
            // The connection must not end before: that would be a panic.
            (kind, _) = frame(stream);
        }
        assert_eq!(kind, CLOSE, "{path}");
    }
}
