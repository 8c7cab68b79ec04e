//! kubectl's exec, attach, logs, port-forward, cp and proxied requests, against a node that runs
//! commands as processes of this machine.

use super::Kubectl;
use crate::http::without_controllers;
use keelson_testkit::node::{NodeServer, ServerOptions};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};

/// How kubectl connects: over WebSocket, as by default, or over SPDY.
pub const SPDY: &str =
    "export KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false KUBECTL_PORT_FORWARD_WEBSOCKETS=false\n";

/// A server with a node and a pod on it.
struct World {
    kubectl: Kubectl,
    node: NodeServer,
}

impl World {
    /// `has_v5`: the node declares that it speaks v5 of the channel protocol.
    fn start(has_v5: bool) -> Option<World> {
        let node = NodeServer::start(ServerOptions { has_v5, ..ServerOptions::default() })
            .expect("a node");
        let kubectl = Kubectl::start(without_controllers())?;
        let features = if has_v5 { vec!["ExtendWebSocketsToKubelet"] } else { vec![] };
        let node_status = json!({"status": {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": node.address().port()}},
            "declaredFeatures": features
        }});
        let pod_status = json!({"status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{
                "name": "main", "ready": true, "restartCount": 0, "image": "i", "imageID": "i",
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
            }]
        }});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
            "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "i"}]}});
        let node_object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
        for line in [
            format!("echo '{node_object}' | k create -f -"),
            format!("k patch node n1 --subresource=status --type=merge -p '{node_status}'"),
            format!("echo '{pod}' | k create -f -"),
            format!("k patch pod web --subresource=status --type=merge -p '{pod_status}'"),
        ] {
            let output = kubectl.shell(&line).output().expect("a shell");
            let err = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{line}: {err}");
        }
        Some(World { kubectl, node })
    }

    /// Runs rows over both transports.
    fn run(&self, rows: &[super::Row]) {
        self.kubectl.run(rows);
        let over_spdy: Vec<(String, i32, &str)> =
            rows.iter().map(|(line, code, says)| (format!("{SPDY}{line}"), *code, *says)).collect();
        for (line, code, says) in &over_spdy {
            let output = self.kubectl.shell(line).output().expect("a shell");
            let out = String::from_utf8_lossy(&output.stdout);
            let err = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(*code), "{line}: {out}{err}");
            assert!(out.contains(says) || err.contains(says), "{line}: {out}{err}");
        }
    }
}

const COMMANDS: &[super::Row] = &[
    ("k exec web -- echo hello", 0, "hello"),
    ("k exec web -- sh -c 'echo oops >&2; exit 7'", 7, "oops"),
    ("k exec web -- sh -c 'exit 3' || echo code=$?", 0, "code=3"),
    ("echo abc | k exec -i web -- cat", 0, "abc"),
    ("head -c 30000000 /dev/zero | k exec -i web -- wc -c", 0, "30000000"),
    ("k exec web -- head -c 30000000 /dev/zero | wc -c", 0, "30000000"),
    ("k exec web -c other -- true", 1, "container other is not valid for pod web"),
    ("k exec gone -- true", 1, "pods \"gone\" not found"),
    ("echo text | k attach -i web", 0, "text"),
    ("echo a > a.txt; k cp a.txt web:$HOME/b.txt; k cp web:$HOME/b.txt c.txt; cat c.txt", 0, "a"),
];

/// Proves: R-STREAM-10, R-STREAM-04.
#[test]
fn commands_run_in_containers() {
    let Some(world) = World::start(false) else { return };
    world.run(COMMANDS);
    world.kubectl.server.stop();
}

#[test]
fn commands_run_on_nodes_that_speak_v5() {
    let Some(world) = World::start(true) else { return };
    world.run(COMMANDS);
    world.kubectl.server.stop();
}

/// Environment variable: how many bytes go through a pipe.
const PIPE_BYTES: &str = "KEELSON_PIPE_BYTES";
const PIPE_BYTES_DEFAULT: u64 = 64 << 20;

/// All bytes of a long pipe come back, in their order.
#[test]
fn a_long_pipe_loses_nothing() {
    let Some(world) = World::start(false) else { return };
    let bytes = std::env::var(PIPE_BYTES).ok().and_then(|text| text.parse().ok());
    let bytes: u64 = bytes.unwrap_or(PIPE_BYTES_DEFAULT);
    let line = format!(
        "numbers() {{ seq 1 999999999 | head -c {bytes}; }}\n\
         sent=$(numbers | sha256sum); got=$(numbers | k exec -i web -- cat | sha256sum)\n\
         test \"$sent\" = \"$got\" && echo the same"
    );
    for prelude in ["", SPDY] {
        world.kubectl.run(&[(&format!("{prelude}{line}"), 0, "the same")]);
    }
    world.kubectl.server.stop();
}

/// Proves: R-STREAM-07.
#[test]
fn logs_are_those_of_the_node() {
    let Some(world) = World::start(false) else { return };
    world.node.log("default/web/main", "stdout", "first line");
    world.node.log("default/web/main", "stderr", "second line");
    world.run(&[
        ("k logs web", 0, "first line\nsecond line"),
        ("k logs web --tail=1 | grep -c first", 1, "0"),
        ("k logs web --timestamps | grep -c T", 0, "2"),
        ("k logs web -c other", 1, "container other is not valid for pod web"),
        ("k logs web --limit-bytes=5", 0, "first"),
    ]);
    let mut following =
        world.kubectl.spawn("\"$KUBECTL\" --kubeconfig=admin.kubeconfig logs -f web");
    assert_eq!(following.line(), "first line");
    assert_eq!(following.line(), "second line");
    world.node.log("default/web/main", "stdout", "third line");
    assert_eq!(following.line(), "third line");
    world.node.restart("default/web/main");
    world.kubectl.server.stop();
}

/// Proves: R-SUB-07.
#[test]
fn ports_of_pods_are_forwarded() {
    for has_v5 in [false, true] {
        let Some(world) = World::start(has_v5) else { return };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || echo(stream));
            }
        });
        for prelude in ["", SPDY] {
            let line = format!(
                "{prelude}exec \"$KUBECTL\" --kubeconfig=admin.kubeconfig port-forward pod/web :{port}"
            );
            let mut forwarding = world.kubectl.spawn_shell(&line);
            // `Forwarding from 127.0.0.1:40123 -> 80`
            let said = forwarding.line();
            let local: u16 = said
                .split(':')
                .nth(1)
                .and_then(|rest| rest.split(' ').next())
                .and_then(|port| port.parse().ok())
                .expect("a local port");
            let clients: Vec<_> = (0..20)
                .map(|number| {
                    std::thread::spawn(move || {
                        let address = (Ipv4Addr::LOCALHOST, local);
                        let mut stream =
                            std::net::TcpStream::connect(address).expect("a connection");
                        let text = format!("hello {number} ").repeat(1000);
                        stream.write_all(text.as_bytes()).expect("written");
                        // Half closed: the answer still comes.
                        stream.shutdown(std::net::Shutdown::Write).expect("half closed");
                        let mut answer = String::new();
                        stream.read_to_string(&mut answer).expect("an answer");
                        assert_eq!(answer, text);
                    })
                })
                .collect();
            clients.into_iter().for_each(|client| client.join().expect("a client"));
        }
        world.kubectl.server.stop();
    }
}

fn echo(mut stream: std::net::TcpStream) {
    let mut text = vec![];
    if stream.read_to_end(&mut text).is_ok() {
        let _ = stream.write_all(&text);
    }
}

#[test]
fn requests_are_proxied_to_nodes() {
    let Some(world) = World::start(false) else { return };
    let node = "/api/v1/nodes/n1/proxy";
    let raw = |path: &str| format!("k get --raw '{node}{path}'");
    let port = world.node.address().port();
    let rows = [
        (raw("/healthz"), 0, "ok"),
        (raw("/testkit/echo/a/b?c=d"), 0, "/testkit/echo/a/b?c=d"),
        (raw("/testkit/echo/x"), 0, "x-forwarded-uri"),
        (format!("k get --raw /api/v1/nodes/n1:{port}/proxy/healthz"), 0, "ok"),
        (format!("k get --raw /api/v1/nodes/n1:{}/proxy/healthz", port - 1), 1, "not allowed"),
        ("k get --raw /api/v1/nodes/n2/proxy/healthz".to_owned(), 1, "\"n2\" not found"),
        (
            "k get --raw /api/v1/namespaces/default/pods/web/proxy/".to_owned(),
            1,
            "address not allowed",
        ),
    ];
    for (line, code, says) in rows {
        let output = world.kubectl.shell(&line).output().expect("a shell");
        let out = String::from_utf8_lossy(&output.stdout).to_lowercase();
        let err = String::from_utf8_lossy(&output.stderr).to_lowercase();
        assert_eq!(output.status.code(), Some(code), "{line}: {out}{err}");
        assert!(out.contains(says) || err.contains(says), "{line}: {out}{err}");
    }
    // Nothing that authenticates the client reaches the node.
    let output = world.kubectl.shell(&raw("/testkit/echo/x")).output().expect("a shell");
    let echoed = String::from_utf8_lossy(&output.stdout).to_lowercase();
    assert!(!echoed.contains("authorization"), "{echoed}");
    world.kubectl.server.stop();
}
