//! The spans of requests, as a collector receives them: compared with those of kube-apiserver 1.36.
//!
//! To record again, start a kube-apiserver with a `TracingConfiguration` whose endpoint is
//! `unix:///tmp/keelson-record.sock` and whose rate is one million, and see
//! `testkit/src/recorded.rs`.

use crate::http::{Server, without_controllers};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keelson::TracingOptions;
use keelson_auth::{MASTERS, TokenFile, User};
use keelson_testkit::api::Api;
use keelson_testkit::collector::{CollectedSpan, TraceCollector};
use keelson_testkit::https_peer::{HttpsPeer, Reply};
use keelson_testkit::recorded::{Recorded, TOKEN};
use keelson_traces::otlp::{AnyValue, KeyValue, WireSpan};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The socket while a kube-apiserver is recorded.
const RECORDED_SOCKET: &str = "/tmp/keelson-record.sock";
/// Attributes that are different each time, or have a form of Go's.
const VARYING: [&str; 6] =
    ["network.peer.port", "server.port", "server.address", "url.full", "encoder", "UID"];
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const JSON: &str = "Content-Type: application/json\r\n";
/// The caller's span.
const PARENT: &str = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n";

/// Method, path, header lines and body of each request. `url.path` names them in the recording.
fn requests() -> Vec<(&'static str, &'static str, String, &'static str)> {
    let with = |headers: &str| headers.to_owned();
    let media = |name: &str| format!("Content-Type: application/{name}\r\n");
    vec![
        ("POST", "/api/v1/nodes", with(JSON), r#"{"metadata":{"name":"traced"}}"#),
        ("GET", "/api/v1/nodes/traced", String::new(), ""),
        ("GET", "/api/v1/nodes?labelSelector=a%3Db", String::new(), ""),
        (
            "GET",
            "/api/v1/nodes?watch=1&sendInitialEvents=true&allowWatchBookmarks=true\
             &resourceVersionMatch=NotOlderThan&timeoutSeconds=1",
            String::new(),
            "",
        ),
        ("GET", "/api/v1/watch/nodes?resourceVersion=0&timeoutSeconds=1", String::new(), ""),
        (
            "PUT",
            "/api/v1/nodes/traced",
            with(JSON),
            r#"{"metadata":{"name":"traced","labels":{"a":"b"}}}"#,
        ),
        (
            "PATCH",
            "/api/v1/nodes/traced",
            media("merge-patch+json"),
            r#"{"metadata":{"labels":{"a":"c"}}}"#,
        ),
        (
            "PATCH",
            "/api/v1/nodes/traced?fieldManager=x",
            media("apply-patch+yaml"),
            r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"traced","labels":{"b":"c"}}}"#,
        ),
        ("DELETE", "/api/v1/nodes/traced", String::new(), ""),
        ("POST", CONFIG_MAPS, with(JSON), r#"{"metadata":{"name":"traced"},"data":{"a":"b"}}"#),
        ("POST", CONFIG_MAPS, with(JSON), r#"{"metadata":{"name":"TRACED"},"data":{"a":"b"}}"#),
        ("POST", CONFIG_MAPS, with(JSON), r#"{"metad"#),
        ("GET", "/api/v1/namespaces/default/configmaps/traced", String::new(), ""),
        ("GET", "/api/v1/namespaces/default/configmaps/absent", String::new(), ""),
        ("GET", CONFIG_MAPS, with("Impersonate-User: bob\r\n"), ""),
        ("DELETE", "/api/v1/namespaces/default/configmaps/traced", String::new(), ""),
        ("GET", "/apis/apps/v1/namespaces/default/deployments/x/scale", String::new(), ""),
        ("GET", "/api/v1/namespaces/default/pods/x/log", String::new(), ""),
        ("GET", "/version", String::new(), ""),
        ("GET", "/apis", String::new(), ""),
        ("GET", "/none", String::new(), ""),
        ("GET", "/api/v1/nodes/child", with(PARENT), ""),
        (
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            with(JSON),
            r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}"#,
        ),
    ]
}

/// Starts a collector, and a server that records all traces.
fn start(folder: &Path) -> (TraceCollector, Recorded) {
    let is_recording = std::env::var_os("KEELSON_RECORD").is_some();
    let socket =
        if is_recording { PathBuf::from(RECORDED_SOCKET) } else { folder.join("collector.sock") };
    let collector = TraceCollector::start(&socket);
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/files");
    let server = Recorded::start(&files, || {
        let mut tokens = TokenFile::default();
        let user = User { name: "admin".into(), uid: "admin-uid".into(), ..User::default() };
        tokens.insert(TOKEN, user.with_group(MASTERS));
        let mut builder = without_controllers();
        builder.authentication.tokens = tokens;
        builder.recording.tracing = Some(TracingOptions {
            endpoint: format!("unix://{}", socket.display()),
            samples_per_million: 1_000_000,
        });
        let server = Server::start(builder);
        (server.keelson.address(), Box::new(move || server.stop()))
    });
    (collector, server)
}

#[test]
fn spans_are_those_of_kube_apiserver() {
    let folder = tempfile::tempdir().expect("a folder");
    let (collector, server) = start(folder.path());
    let peer = HttpsPeer::start(|_, request| -> Reply {
        let uid = &request.body["request"]["uid"];
        let mut response = json!({"uid": uid, "allowed": true});
        if request.path.starts_with("/mutating") {
            response["patchType"] = "JSONPatch".into();
            response["patch"] =
                STANDARD.encode(r#"[{"op":"add","path":"/data/w","value":"x"}]"#).into();
        }
        let version = "admission.k8s.io/v1";
        let review =
            json!({"apiVersion": version, "kind": "AdmissionReview", "response": response});
        Some((200, review))
    });
    for kind in ["mutating", "validating"] {
        let webhook = json!({"name": "traced.example.com", "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "clientConfig": {"url": format!("https://{}/{kind}", peer.address),
                "caBundle": STANDARD.encode(&peer.authority)},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["configmaps"]}]});
        let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations");
        let body = json!({"metadata": {"name": format!("traced-{kind}")}, "webhooks": [webhook]});
        server.prepare("POST", &path, &body);
    }
    // The webhooks are called from then on.
    for probe in 0.. {
        assert!(probe < 100, "no webhook is called");
        let body = json!({"metadata": {"generateName": "probe-"}, "data": {"a": "b"}}).to_string();
        let created = server.send("POST", CONFIG_MAPS, "application/json", &body);
        if created.body["data"]["w"] == "x" {
            break;
        }
    }
    let requests = requests();
    for (number, (method, path, headers, body)) in requests.iter().enumerate() {
        let agent = format!("User-Agent: traced-{number}\r\n{headers}");
        server.send_with(method, path, &agent, body);
    }
    let is_whole = |spans: &[CollectedSpan]| {
        let agents = spans.iter().filter_map(|span| agent_of(&span.span));
        agents.collect::<BTreeSet<_>>().len() >= requests.len()
    };
    let spans = collector.wait_until(is_whole);
    let lines: Vec<String> = (0..requests.len()).flat_map(|number| tree(&spans, number)).collect();
    assert!(spans.iter().all(|span| span.program == ["service.instance.id", "service.name"]));
    server.end("tracing/spans.txt", &lines);
}

/// Only callers in system:masters and system:monitoring decide whether a trace is recorded.
#[test]
fn privileged_callers_decide_what_is_recorded() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("collector.sock");
    let collector = TraceCollector::start(&socket);
    let mut builder = without_controllers();
    builder.recording.tracing = Some(TracingOptions {
        endpoint: format!("unix://{}", socket.display()),
        samples_per_million: 0,
    });
    for (name, group) in [("admin", MASTERS), ("watcher", "system:monitoring"), ("bob", "devs")] {
        let user = User { name: name.into(), ..User::default() }.with_group(group);
        builder.authentication.tokens.insert(name, user);
    }
    let server = Server::start(builder);
    for (name, flags) in [("admin", "01"), ("watcher", "01"), ("bob", "01"), ("admin", "00")] {
        let api = Api::unchecked(server.keelson.address(), Some(name.to_owned()));
        let parent = format!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-{flags}");
        let headers = format!("User-Agent: {name}-{flags}\r\ntraceparent: {parent}\r\n");
        api.expect("a client").send_with("GET", "/version", &headers, "").expect("a response");
    }
    // A stopped server has sent all that was recorded.
    server.stop();
    let spans = collector.wait_until(|_| true);
    let servers = spans.iter().filter_map(|span| {
        let agent = text(&span.span.attributes, "user_agent.original")?;
        assert_eq!(span.span.parent_span_id, [0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31]);
        Some(agent.to_owned())
    });
    assert_eq!(servers.collect::<Vec<_>>(), ["admin-01", "watcher-01"]);
}

/// Returns the number of the request whose server span this is.
fn agent_of(span: &WireSpan) -> Option<usize> {
    text(&span.attributes, "user_agent.original")?.strip_prefix("traced-")?.parse().ok()
}

fn text<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    found.value.as_ref()?.string_value.as_deref()
}

/// Returns the spans of a request as indented lines, without what only one of the servers can have.
fn tree(spans: &[CollectedSpan], number: usize) -> Vec<String> {
    let server = spans
        .iter()
        .find(|span| agent_of(&span.span) == Some(number))
        .unwrap_or_else(|| panic!("no span of request {number}"));
    let trace: Vec<&CollectedSpan> =
        spans.iter().filter(|span| span.span.trace_id == server.span.trace_id).collect();
    let mut children: BTreeMap<&[u8], Vec<&CollectedSpan>> = BTreeMap::new();
    for span in &trace {
        children.entry(&span.span.parent_span_id).or_default().push(span);
    }
    children.values_mut().for_each(|of| of.sort_by_key(|span| span.span.start_time_unix_nano));
    let is_known = |id: &[u8]| trace.iter().any(|span| span.span.span_id == id);
    let root = trace.iter().find(|span| !is_known(&span.span.parent_span_id));
    let mut lines = vec![];
    append(root.expect("a first span"), &children, 0, false, &mut lines);
    lines
}

fn append(
    span: &CollectedSpan,
    children: &BTreeMap<&[u8], Vec<&CollectedSpan>>,
    depth: usize,
    is_read: bool,
    lines: &mut Vec<String>,
) {
    let name = span.span.name.as_str();
    let is_store = name.starts_with("etcdserverpb.")
        || name.ends_with(" etcd3")
        || name == "store.commit"
        // A kube-apiserver also reads before it writes.
        || (name.starts_with("cacher.") && !is_read);
    if is_store {
        return;
    }
    let indent = "  ".repeat(depth);
    lines.push(format!("{indent}{}", head(span)));
    // Steps of a cache that only one of the servers has.
    if !name.starts_with("cacher.") {
        for event in &span.span.events {
            let details = shown(&event.attributes, &["writer"]);
            // The size of a message of encoding is said at its beginning, too.
            let details = if event.name.starts_with("About to") { String::new() } else { details };
            lines.push(format!("{indent}  * {}{details}", event.name));
        }
    }
    let is_read = match name {
        "Get" | "List" | "WatchList" => true,
        "authorization" => span_is_plain_watch(span, children),
        _ => is_read,
    };
    for child in children.get(&*span.span.span_id).into_iter().flatten() {
        append(child, children, depth + 1, is_read, lines);
    }
}

/// Returns whether the cache is watched below a step that is followed by no verb.
fn span_is_plain_watch(
    span: &CollectedSpan,
    children: &BTreeMap<&[u8], Vec<&CollectedSpan>>,
) -> bool {
    let mut children = children.get(&*span.span.span_id).into_iter().flatten();
    children.any(|child| child.span.name == "cacher.Watch")
}

/// Returns name, scope, kind, attributes and links of a span.
fn head(span: &CollectedSpan) -> String {
    let WireSpan { name, kind, attributes, links, status, flags, .. } = &span.span;
    let failed =
        if status.as_ref().is_some_and(|status| status.code == 2) { " failed" } else { "" };
    let hidden: Vec<&str> = match name.as_str() {
        "WatchServer.HandleHTTP" => vec!["audit-id", "protocol"],
        name if name.starts_with("cacher.") => vec!["audit-id"],
        _ => vec![],
    };
    let attributes = shown(attributes, &hidden);
    let links = links.len();
    format!("{name} ({}, {kind}, {flags:#x}, {links} links{failed}){attributes}", span.scope)
}

fn shown(attributes: &[KeyValue], hidden: &[&str]) -> String {
    let shown: BTreeMap<&str, String> = attributes
        .iter()
        .map(|attribute| (attribute.key.as_str(), attribute.value.as_ref()))
        .filter(|(key, _)| !VARYING.contains(key) && !hidden.contains(key))
        .map(|(key, value)| match (key, value) {
            ("audit-id", _) => (key, "given".to_owned()),
            // Resource versions have not always as many digits.
            ("http.response.body.size" | "size", _) => (key, "some".to_owned()),
            (_, Some(AnyValue { int_value: Some(number), .. })) => (key, number.to_string()),
            (_, Some(AnyValue { string_value, .. })) => {
                (key, format!("{:?}", string_value.as_deref().unwrap_or_default()))
            }
            (_, None) => (key, "none".to_owned()),
        })
        .collect();
    shown.iter().map(|(key, value)| format!(" {key}={value}")).collect()
}
