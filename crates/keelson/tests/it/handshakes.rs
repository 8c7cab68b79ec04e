//! Replays the recorded handshakes of kube-apiserver: requests that upgrade connections, and those
//! that are passed on to nodes.

use crate::certificates::client_files;
use crate::http::{Server, without_controllers};
use keelson_testkit::api::Api;
use keelson_testkit::handshakes::generated::{COUNT, SEED, generate};
use keelson_testkit::handshakes::{Servers, perform, prepare};
use keelson_testkit::node::{NodeServer, ServerOptions, machine_address};
use serde_json::{Value, json};

/// Proves: R-STREAM-01, R-STREAM-02, R-STREAM-03, R-STREAM-05, R-STREAM-06, R-STREAM-07,
/// R-STREAM-08, R-STREAM-09, R-SUB-06, R-SUB-07, R-SUB-08.
#[test]
fn handshakes_are_answered_as_recorded() {
    check(include_str!("files/handshakes.jsonl"));
}

#[test]
fn generated_handshakes_are_answered_as_recorded() {
    let recorded = include_str!("files/handshakes_generated.jsonl");
    let cases = recorded.lines().map(|line| {
        let mut case: Value = serde_json::from_str(line).expect("a case is JSON");
        case.as_object_mut().expect("an object").remove("answer");
        format!("{case}\n")
    });
    // The recording is that of all generated cases.
    assert_eq!(cases.collect::<String>(), generate(SEED, COUNT));
    check(recorded);
}

/// Performs recorded cases, and compares the answers.
fn check(recorded: &str) {
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
    // A server with a loopback address publishes none of its own.
    let endpoints = json!({"metadata": {"name": "kubernetes"}, "subsets": [{
        "addresses": [{"ip": "10.1.1.1"}], "ports": [{"name": "https", "port": 6443}]}]});
    let created = api.post("/api/v1/namespaces/default/endpoints", &endpoints).expect("an answer");
    assert_eq!(created.code, 201, "{}", created.body);
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

/// What a case may differ in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Difference {
    /// The text that describes malformed HTTP: that of an HTTP library.
    HttpLibrary,
    /// The last message: the end of the command is not known, and kube-apiserver says success, or
    /// nothing at all.
    LastMessage,
    /// The order of the headers that arrive at the node, and Accept-Encoding, which is not added.
    Headers,
    /// The same, and a slash in a segment of the path, which kube-apiserver decodes.
    HeadersAndSlash,
    /// The media type of a body that has none, which is not guessed.
    MediaType,
}

/// Cases that are answered differently on purpose, or by the texts of another HTTP library.
const DIFFERENT: [(&str, Difference); 15] = [
    ("fault-v4-garbage", Difference::HttpLibrary),
    ("fault-v5-garbage", Difference::HttpLibrary),
    ("fault-spdy-garbage", Difference::HttpLibrary),
    ("log-fault-garbage", Difference::HttpLibrary),
    ("log-fault-half-head", Difference::HttpLibrary),
    ("proxy-node-garbage", Difference::HttpLibrary),
    ("proxy-pod-port", Difference::HttpLibrary),
    ("proxy-pod-http-to-https", Difference::HttpLibrary),
    ("fault-v5-lost", Difference::LastMessage),
    ("fault-v5-other-protocol", Difference::LastMessage),
    ("proxy-node-encoded", Difference::HeadersAndSlash),
    ("proxy-pod-https-echo", Difference::Headers),
    ("proxy-node-body", Difference::Headers),
    ("proxy-node-redirect", Difference::MediaType),
    ("proxy-pod-https-redirect", Difference::MediaType),
];

/// Returns a case without what depends on the HTTP library, how the end of a body is marked and
/// whether the connection stays open afterwards, and without what it may differ in.
fn normal(case: &str) -> Value {
    let mut case: Value = serde_json::from_str(case).expect("a case is JSON");
    if let Some(headers) = case["answer"]["headers"].as_array_mut() {
        headers.retain(|header| {
            let is = |name: &str, value: &str| header[0] == name && header[1] == value;
            let is_length = header[0] == "transfer-encoding" || header[0] == "content-length";
            !is("connection", "close") && !is_length
        });
    }
    let is_case = |(name, _): &&(&str, _)| case["name"] == *name;
    if let Some((_, difference)) = DIFFERENT.iter().find(is_case) {
        remove(*difference, &mut case["answer"]);
    }
    case
}

/// Removes from an answer what it may differ in.
fn remove(difference: Difference, answer: &mut Value) {
    match difference {
        Difference::HttpLibrary => {
            for place in ["/body", "/messages/1/1"] {
                if let Some(text) = answer.pointer_mut(place) {
                    *text = without_library(text.as_str().unwrap_or_default()).into();
                }
            }
        }
        Difference::LastMessage => {
            let messages = answer["messages"].as_array_mut().expect("messages");
            messages.retain(|message| {
                !message[1].as_str().is_some_and(|text| text.starts_with("\\x03"))
            });
        }
        Difference::Headers | Difference::HeadersAndSlash => {
            let mut body = answer["body"].as_str().expect("a body").to_owned();
            if difference == Difference::HeadersAndSlash {
                body = body.replace("%2F", "/");
            }
            let mut body: Value = serde_json::from_str(&body).expect("JSON");
            let headers = body["headers"].as_array_mut().expect("headers");
            headers.retain(|header| header[0] != "Accept-Encoding");
            headers.sort_by_key(Value::to_string);
            answer["body"] = body;
        }
        Difference::MediaType => {
            let headers = answer["headers"].as_array_mut().expect("headers");
            headers.retain(|header| header[0] != "content-type");
        }
    }
}

/// Removes the words of an HTTP library: what follows on `malformed HTTP` up to the end of the
/// JSON string, however often that is escaped.
fn without_library(text: &str) -> String {
    let text = text
        .replace("net/http: HTTP/1.x transport connection broken: ", "")
        .replace("unexpected EOF", "EOF");
    let mut parts = text.split("malformed HTTP");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str("malformed HTTP");
        out.push_str(part.trim_start_matches(|letter| !matches!(letter, ',' | '}')));
    }
    out
}
