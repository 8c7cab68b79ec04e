//! Replays the recorded handshakes of kube-apiserver: requests that upgrade connections, and those
//! that are passed on to nodes.

use crate::certificates::client_files;
use crate::http::{Server, without_controllers};
use keelson_testkit::api::Api;
use keelson_testkit::handshakes::{Servers, perform, prepare};
use keelson_testkit::node::{NodeServer, ServerOptions, machine_address};
use serde_json::Value;

/// Proves: R-STREAM-01, R-STREAM-02, R-STREAM-03, R-STREAM-05, R-STREAM-06, R-STREAM-07,
/// R-STREAM-08, R-STREAM-09, R-SUB-06, R-SUB-07, R-SUB-08.
#[test]
fn handshakes_are_answered_as_recorded() {
    let recorded = include_str!("files/handshakes.jsonl");
    let dir = tempfile::tempdir().expect("a folder");
    let (authority, certificate) = client_files(dir.path(), "apiserver");
    // The node says whether it was shown the certificate; it must be for kubelets only.
    let node = NodeServer::start(ServerOptions {
        address: machine_address(),
        client_authority: Some(authority.into_bytes()),
        is_open: true,
        ..ServerOptions::default()
    })
    .expect("the node starts");
    let mut builder = without_controllers().token("t", "admin");
    builder.far_side.kubelets.client_certificate = Some(certificate);
    let server = Server::start(builder);
    let servers =
        Servers { api: server.keelson.address(), token: "t".to_owned(), node: node.address() };
    let api = Api::unchecked(servers.api, Some(servers.token.clone())).expect("a client");
    prepare(&api, servers.node).expect("the objects are created");
    let answers = perform(recorded, &servers).expect("each case has an answer");
    let different: Vec<String> = recorded
        .lines()
        .zip(answers.lines())
        .filter(|(recorded, now)| normal(recorded) != normal(now))
        .map(|(recorded, now)| format!("- {recorded}\n+ {now}\n"))
        .collect();
    assert!(different.is_empty(), "{} answers differ:\n{}", different.len(), different.concat());
    server.stop();
}

/// Cases that are answered differently on purpose, or by the texts of another HTTP library.
const DIFFERENT: [&str; 17] = [
    // Malformed HTTP is described by the HTTP library.
    "fault-v4-garbage",
    "fault-v5-garbage",
    "fault-spdy-garbage",
    "log-fault-garbage",
    "log-fault-half-head",
    "proxy-node-garbage",
    "proxy-pod-port",
    "proxy-pod-http-to-https",
    // The end of a command is not known: kube-apiserver says success, or nothing at all.
    "fault-v5-lost",
    "fault-v5-other-protocol",
    // The order of headers, and Accept-Encoding, which is not added here.
    "proxy-node-encoded",
    "proxy-pod-https-echo",
    "proxy-node-body",
    // The media type of a body that has none is not guessed.
    "proxy-node-redirect",
    "proxy-pod-https-redirect",
    // The endpoints of the service `kubernetes` are not published in this test.
    "proxy-service-kubernetes",
    "proxy-service-bad-port",
];

/// Returns a case without what depends on the HTTP library: how the end of a body is marked, and
/// whether the connection stays open afterwards. Errors of malformed HTTP name no bytes.
fn normal(case: &str) -> Option<Value> {
    let mut case: Value = serde_json::from_str(case).expect("a case is JSON");
    if DIFFERENT.contains(&case["name"].as_str().unwrap_or_default()) {
        return None;
    }
    if let Some(headers) = case["answer"]["headers"].as_array_mut() {
        headers.retain(|header| {
            let is = |name: &str, value: &str| header[0] == name && header[1] == value;
            let is_length = header[0] == "transfer-encoding" || header[0] == "content-length";
            !is("connection", "close") && !is_length
        });
    }
    Some(case)
}
