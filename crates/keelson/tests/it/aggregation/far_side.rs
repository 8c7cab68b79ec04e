//! What a far side is sent, and what the client gets of its answers: servers behind this one, and
//! the proxies to pods. The expected answers are those of a kube-apiserver 1.36.3.

use super::raw::RawServer;
use super::{SERVICES, external_service};
use crate::certificates::{authority, client_files};
use crate::http::{Client, Response, Server, without_controllers};
use keelson_testkit::node::{NodeServer, ServerOptions, machine_address};
use serde_json::{Value, json};
use std::io::Read;

const BEHIND: &str = "/apis/raw.example/v1";
const LIST: &str = r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"raw.example/v1","resources":[{"name":"things","kind":"Thing","namespaced":false,"verbs":["get"]}]}"#;
const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
/// Answers until the one that is expected has come.
const TRIES_MAX: usize = 50;

/// The answers of the far side, by the last part of the path.
fn answers(path: &str) -> Vec<u8> {
    let path = path.split('?').next().unwrap_or_default();
    if path == BEHIND {
        return page("200 OK", "Content-Type: application/json", LIST);
    }
    let host = "Content-Type: text/html";
    match path.rsplit('/').next().unwrap_or_default() {
        "switch" => {
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"
                .to_vec()
        }
        "switch-to-nothing" => b"HTTP/1.1 101 Switching Protocols\r\n\r\n".to_vec(),
        "refused" => page("404 Not Found", "Content-Type: text/plain", "no"),
        "redirect" => page("302 Found", "Location: https://example.org/", "go"),
        "unmodified" => page("304 Not Modified", "Content-Type: text/plain", ""),
        "created" => page("201 Created", "Location: /things/a", "{}"),
        "html" => page("200 OK", host, r#"<a href="/x">x</a><a href="y">y</a>"#),
        "own" => page("200 OK", "Audit-Id: mine\r\nCache-Control: max-age=5", "{}"),
        "lines" => {
            let lines: Vec<String> = (0..300).map(|number| format!("X-{number}: v")).collect();
            page("200 OK", &lines.join("\r\n"), "{}")
        }
        _ => page("200 OK", "Content-Type: application/json", "{}"),
    }
}

fn page(status: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    // The connection is not used again, and so cannot end at the next request.
    let always = format!("Connection: close\r\nContent-Length: {length}");
    format!("HTTP/1.1 {status}\r\n{always}\r\n{headers}\r\n\r\n{body}").into_bytes()
}

/// A server, and a far side that it reaches as a server behind it and as a pod.
struct World {
    server: Server,
    far: RawServer,
}

impl World {
    fn start() -> World {
        let far = RawServer::start(answers);
        let server = Server::start_plain(without_controllers());
        let client = server.client();
        external_service(&client);
        let registered = json!({"metadata": {"name": "v1.raw.example"}, "spec": {
            "group": "raw.example", "version": "v1", "groupPriorityMinimum": 100,
            "versionPriority": 10, "caBundle": far.bundle,
            "service": {"name": "behind", "namespace": "default", "port": far.port}}});
        assert_eq!(client.post(SERVICES, &registered).status, 201);
        let pod = json!({"metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        assert_eq!(client.post("/api/v1/namespaces/default/pods", &pod).status, 201);
        if let Some(address) = machine_address() {
            let ip = address.to_string();
            let status = json!({"status": {"podIP": ip, "podIPs": [{"ip": ip}]}});
            let path = "/api/v1/namespaces/default/pods/p/status";
            let patched = client.call("PATCH", path, "application/merge-patch+json", Some(&status));
            assert_eq!(patched.status, 200, "{patched:?}");
        }
        client.poll(BEHIND, |answer| answer.status == 200);
        World { server, far }
    }

    fn client(&self) -> Client {
        self.server.client()
    }

    /// The path of the proxy to the pod; `None` on a machine that has no address but loopback.
    fn pod(&self) -> Option<String> {
        let port = self.far.port;
        machine_address()?;
        Some(format!("/api/v1/namespaces/default/pods/https:p:{port}/proxy"))
    }
}

fn get(client: &Client, path: &str, headers: &str) -> Response {
    client.send_bytes(&format!("GET {path}"), headers, b"")
}

/// Returns all values of a header.
fn all<'a>(answer: &'a Response, name: &str) -> Vec<&'a str> {
    let named = answer.headers.iter().filter(|(of, _)| of == name);
    named.map(|(_, value)| value.as_str()).collect()
}

/// Asks for an upgrade and returns the whole answer.
fn upgrade(client: &Client, path: &str, headers: &str) -> String {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: front\r\nAuthorization: Bearer t\r\n{UPGRADE}{headers}\r\n"
    );
    let mut answer = String::new();
    let _ = client.write(request.as_bytes()).read_to_string(&mut answer);
    answer.to_lowercase()
}

/// `--enable-aggregator-routing`.
#[test]
fn a_server_behind_is_reached_at_an_endpoint_of_its_service() {
    let Some(address) = machine_address() else { return };
    let far = RawServer::start(answers);
    let routed = without_controllers().with(|builder| builder.far_side.aggregator_routing = true);
    let server = Server::start_plain(routed);
    let client = server.client();
    // Nobody answers at its ClusterIP.
    let service = json!({"metadata": {"name": "behind"},
        "spec": {"ports": [{"name": "https", "port": 443}]}});
    assert_eq!(client.post("/api/v1/namespaces/default/services", &service).status, 201);
    let slice = json!({"metadata": {"name": "behind-1",
            "labels": {"kubernetes.io/service-name": "behind"}},
        "addressType": if address.is_ipv4() { "IPv4" } else { "IPv6" },
        "endpoints": [{"addresses": [address.to_string()]}],
        "ports": [{"name": "https", "port": far.port}]});
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let made = client.post(slices, &slice);
    assert_eq!(made.status, 201, "{made:?}");
    let registered = json!({"metadata": {"name": "v1.raw.example"}, "spec": {
        "group": "raw.example", "version": "v1", "groupPriorityMinimum": 100,
        "versionPriority": 10, "caBundle": far.bundle,
        "service": {"name": "behind", "namespace": "default", "port": 443}}});
    assert_eq!(client.post(SERVICES, &registered).status, 201);
    client.poll(BEHIND, |answer| answer.status == 200);
    assert_eq!(get(&client, &format!("{BEHIND}/echo"), "").status, 200);
    let host = format!("host: {address}:{}", far.port);
    let head = far.head("/echo");
    assert!(head.contains(&format!("\n{host}\n")), "{head}");
    server.stop();
}

#[test]
fn a_switch_that_nobody_asked_for_is_an_error() {
    let world = World::start();
    let client = world.client();
    let why = "backend tried to switch protocol \"x\" when \"\" was requested";
    let empty = "internal error: 101 switching protocols response with non-writable body";
    for (name, why) in [("switch", why), ("switch-to-nothing", empty)] {
        let answer = get(&client, &format!("{BEHIND}/{name}"), "");
        assert_eq!((answer.status, &answer.body), (503, &json!(format!("{why}\n"))));
        let Some(pod) = world.pod() else { continue };
        let answer = get(&client, &format!("{pod}/{name}"), "");
        let want = json!({"kind": "Status", "apiVersion": "v1", "metadata": {},
            "status": "Failure", "message": why, "code": 500});
        assert_eq!((answer.status, answer.body), (500, want));
    }
    world.server.stop();
}

#[test]
fn a_server_behind_is_told_its_address_and_the_audit_id() {
    let world = World::start();
    let client = world.client();
    let forged =
        "X-Forwarded-Host: evil\r\nX-Forwarded-Proto: http\r\nX-Forwarded-For: 1.2.3.4\r\n";
    let answer = get(&client, &format!("{BEHIND}/a//echo?x=%20&y=a+b;c&a=%2f"), forged);
    assert_eq!(answer.status, 200, "{answer:?}");
    let head = world.far.head("/echo");
    let port = world.far.port;
    let audit_id = answer.header("audit-id").expect("an identifier");
    assert!(head.starts_with(&format!("GET {BEHIND}/a//echo?a=%2F&x=+ HTTP/1.1\n")), "{head}");
    for line in [
        format!("host: localhost:{port}"),
        format!("x-forwarded-host: localhost:{port}"),
        "x-forwarded-proto: https".to_owned(),
        "x-forwarded-for: 1.2.3.4, 127.0.0.1".to_owned(),
        format!("x-forwarded-uri: {BEHIND}/a/echo"),
        format!("audit-id: {audit_id}"),
    ] {
        assert_eq!(head.matches(&format!("\n{line}\n")).count(), 1, "{line}: {head}");
    }
    assert!(!head.contains("evil"), "{head}");
    // Of an upgrade they are passed on.
    upgrade(&client, &format!("{BEHIND}/refused"), forged);
    let head = world.far.head("/refused");
    for line in ["x-forwarded-host: evil\n", "x-forwarded-proto: http\n", "audit-id: "] {
        assert!(head.contains(line), "{line}: {head}");
    }
    assert!(!head.contains("x-forwarded-uri"), "{head}");
    world.server.stop();
}

#[test]
fn answers_of_a_far_side_are_passed_on_as_upstream() {
    let world = World::start();
    let client = world.client();
    let port = world.far.port;
    let answer = get(&client, &format!("{BEHIND}/redirect"), "");
    assert_eq!(answer.status, 502);
    assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
    let answer = get(&client, &format!("{BEHIND}/created"), "");
    let there = format!("https://localhost:{port}/things/a");
    assert_eq!((answer.status, answer.header("location")), (201, Some(there.as_str())));
    let answer = get(&client, &format!("{BEHIND}/html"), "");
    let page = format!("<a href=\"https://localhost:{port}/x\">x</a><a href=\"y\">y</a>");
    assert_eq!(answer.body, Value::from(page));
    let mut places = vec![BEHIND.to_owned()];
    places.extend(world.pod());
    for place in &places {
        let answer = get(&client, &format!("{place}/unmodified"), "");
        assert_eq!((answer.status, answer.header("content-type")), (304, None));
        let answer = get(&client, &format!("{place}/own"), "Audit-ID: given\r\n");
        assert_eq!(all(&answer, "audit-id"), ["given", "mine"]);
        assert_eq!(all(&answer, "cache-control"), ["no-cache, private", "max-age=5"]);
        let answer = get(&client, &format!("{place}/lines"), "");
        assert_eq!((answer.status, answer.header("x-299")), (200, Some("v")));
    }
    world.server.stop();
}

#[test]
fn answers_to_upgrades_have_only_the_headers_of_the_far_side() {
    let world = World::start();
    let client = world.client();
    let mut places = vec![BEHIND.to_owned()];
    places.extend(world.pod());
    for (name, status) in places
        .iter()
        .flat_map(|place| [(format!("{place}/switch"), "101"), (format!("{place}/refused"), "404")])
    {
        let answer = upgrade(&client, &name, "");
        assert!(answer.starts_with(&format!("http/1.1 {status} ")), "{name}: {answer}");
        for header in ["audit-id", "cache-control", "x-kubernetes"] {
            assert!(!answer.contains(header), "{name}: {answer}");
        }
    }
    world.server.stop();
}

#[test]
fn the_path_of_a_proxied_request_is_written_as_in_go() {
    let world = World::start();
    let client = world.client();
    let Some(pod) = world.pod() else { return };
    // The path, then what the far side is told of it.
    for (path, sent, uri) in [
        ("/a%2Fb/echo", "/a/b/echo", "/a/b/echo"),
        ("/a%20b/echo", "/a%20b/echo", "/a%20b/echo"),
        ("/a'b!(c)*/echo", "/a%27b%21%28c%29%2A/echo", "/a%27b%21%28c%29%2A/echo"),
        ("/a+b;c/echo/", "/a+b;c/echo/", "/a+b;c/echo/"),
        ("/a//echo", "/a/echo", "/a/echo/a/echo"),
        ("/%C3%A4/echo?q=a+b;c", "/%C3%A4/echo?q=a+b;c", "/%C3%A4/echo"),
    ] {
        assert_eq!(get(&client, &format!("{pod}{path}"), "").status, 200);
        let head = world.far.head("GET ");
        let line = head.lines().next().unwrap_or_default();
        assert_eq!(line, format!("GET {sent} HTTP/1.1"));
        assert!(head.contains(&format!("x-forwarded-uri: {pod}{uri}\n")), "{head}");
    }
    world.server.stop();
}

#[test]
fn a_certificate_that_a_node_refuses_is_no_failure_of_the_connection() {
    let dir = tempfile::tempdir().expect("a folder");
    let (_, certificate) = client_files(dir.path(), "apiserver");
    let (other, _) = authority("another authority");
    let node = NodeServer::start(ServerOptions {
        client_authority: Some(other.into_bytes()),
        ..ServerOptions::default()
    })
    .expect("a node");
    let mut builder = without_controllers();
    builder.far_side.kubelets.client_certificate = Some(certificate);
    let server = Server::start_plain(builder);
    let client = server.client();
    let created = client.post("/api/v1/nodes", &json!({"metadata": {"name": "n"}}));
    assert_eq!(created.status, 201);
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": node.address().ip().to_string()}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": node.address().port()}}}});
    let merge = "application/merge-patch+json";
    let patched = client.call("PATCH", "/api/v1/nodes/n/status", merge, Some(&status));
    assert_eq!(patched.status, 200);
    let pod = json!({"metadata": {"name": "p"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(client.post("/api/v1/namespaces/default/pods", &pod).status, 201);
    let path = "/api/v1/namespaces/default/pods/p/exec?command=true&stdout=true";
    let why = "remote error: tls: unknown certificate authority";
    // The node's reset of the connection may overtake its alert.
    let says_why = (0..TRIES_MAX).any(|_| {
        let answer = get(&client, path, UPGRADE);
        let message = answer.body["message"].as_str().unwrap_or_default();
        assert_eq!(answer.status, 500, "{message}");
        assert!(!message.contains("error dialing backend"), "{message}");
        message == why
    });
    assert!(says_why, "no answer says {why:?}");
    server.stop();
}
