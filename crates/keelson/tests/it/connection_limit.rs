//! `--max-connection-bytes-per-sec`: the output of a command comes no faster, whether its stream is
//! passed through or translated.

use crate::http::{Client, Server, without_controllers};
use keelson_testkit::node::{NodeServer, ServerOptions};
use keelson_testkit::websocket::{UPGRADE, frame, upgrade_at};
use serde_json::json;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

const TOKEN: &str = "Authorization: Bearer t\r\n";
const EXEC: &str = "/api/v1/namespaces/default/pods/p/exec?command=head&command=-c&command=3000&command=/dev/zero&stdout=true";
/// The bytes of the command's output.
const BYTES: usize = 3000;
/// 500 bytes in a tenth of a second: the output needs at least six of them, and so the whole time
/// of four.
const RATE: NonZeroU64 = NonZeroU64::new(5000).expect("it is not 0");
const TIME_MIN: Duration = Duration::from_millis(400);

/// Creates a node and a pod on it.
fn prepare(client: &Client, node: &NodeServer) {
    let nodes = "/api/v1/nodes";
    assert_eq!(client.post(nodes, &json!({"metadata": {"name": "n"}})).status, 201);
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": node.address().port()}}}});
    let merge = "application/merge-patch+json";
    let patched = client.call("PATCH", &format!("{nodes}/n/status"), merge, Some(&status));
    assert_eq!(patched.status, 200, "{patched:?}");
    let pod = json!({"metadata": {"name": "p"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    let created = client.post("/api/v1/namespaces/default/pods", &pod);
    assert_eq!(created.status, 201, "{created:?}");
}

/// Returns how long the output takes over a protocol.
fn time_of(client: &Client, protocol: &str) -> Duration {
    let headers = format!("{TOKEN}{UPGRADE}Sec-WebSocket-Protocol: {protocol}\r\n");
    let (head, mut reader) = upgrade_at(client, EXEC, &headers);
    assert!(head[0].contains(" 101 "), "{head:?}");
    let begun = Instant::now();
    let mut bytes = 0;
    while bytes < BYTES {
        let (_, payload) = frame(&mut reader);
        match payload.split_first() {
            Some((1, output)) => bytes += output.len(),
            Some((3, error)) => panic!("{}", String::from_utf8_lossy(error)),
            _ => {}
        }
    }
    begun.elapsed()
}

#[test]
fn the_output_of_a_command_comes_no_faster_than_the_limit() {
    let node = NodeServer::start(ServerOptions::default()).expect("a node");
    let mut builder = without_controllers();
    builder.serving.limits.connection_bytes_per_second_max = Some(RATE);
    let server = Server::start_plain(builder);
    let client = server.client();
    prepare(&client, &node);
    for protocol in ["v4.channel.k8s.io", "v5.channel.k8s.io"] {
        let took = time_of(&client, protocol);
        assert!(took >= TIME_MIN, "{protocol}: {took:?}");
    }
    server.stop();
}
