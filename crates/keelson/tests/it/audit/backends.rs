//! The log and the webhook of a server: reloads of the policy, failures, batches.

use super::recorded::log_to;
use crate::http::{Client, POLL_TIMEOUT, Server, without_controllers};
use keelson::{AuditBatching, AuditMode, AuditOptions, AuditPolicyFile, AuditWebhookOptions};
use keelson_testkit::https_peer::HttpsPeer;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Writes a policy with one level for all requests, and returns its path.
fn policy(folder: &TempDir, level: &str) -> PathBuf {
    let path = folder.path().join("policy.yaml");
    let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{{level: {level}}}]\n");
    std::fs::write(&path, text).expect("a policy");
    path
}

fn server(audit: AuditOptions) -> Server {
    let mut builder = without_controllers();
    builder.serving.certificate_check_interval = Duration::from_millis(20);
    builder.recording.audit = Some(audit);
    Server::start_plain(builder)
}

/// Returns stage and code of the events of a request.
fn stages(log: &Path, id: &str) -> Vec<String> {
    let text = std::fs::read_to_string(log).expect("a log");
    // The last line may be half-written.
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let events = whole.map(|line| serde_json::from_str(line).expect("an event"));
    let of_request = events.filter(|event: &Value| event["auditID"] == id);
    let shown = of_request.map(|event| {
        let stage = event["stage"].as_str().expect("a stage").to_owned();
        match event["responseStatus"]["code"].as_u64() {
            Some(code) => format!("{stage} {code}"),
            None => stage,
        }
    });
    shown.collect()
}

fn get(client: &Client, id: &str) -> u16 {
    client.request("GET", MAPS, &format!("Audit-ID: {id}\r\n"), None).status
}

fn poll(holds: impl Fn() -> bool) {
    let until = Instant::now() + POLL_TIMEOUT;
    while !holds() {
        assert!(Instant::now() < until, "it does not come true");
        std::thread::yield_now();
    }
}

#[test]
fn a_changed_policy_is_reloaded_and_an_invalid_one_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("audit.log");
    let server = server(log_to(&policy(&folder, "None"), &log));
    let client = server.client();
    let is_audited = |id: &str| {
        assert_eq!(get(&client, id), 200);
        !stages(&log, id).is_empty()
    };
    assert!(!is_audited("before"));
    policy(&folder, "Metadata");
    poll(|| is_audited("after"));
    policy(&folder, "Nonsense");
    let metrics = client.get("/metrics").body;
    assert!(metrics.as_str().is_some_and(|text| text.contains("apiserver_audit_event_total")));
    for number in 0..50 {
        assert!(is_audited(&format!("kept-{number}")));
    }
    server.stop();
}

const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                       Origin: http://localhost\r\n";

/// Starts a watch, waits until it has begun, and closes the connection.
fn check_watch(headers: &str, code: u16) {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("audit.log");
    let server = server(log_to(&policy(&folder, "Metadata"), &log));
    let head = format!(
        "GET {MAPS}?watch=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer t\r\nAudit-ID: \
         w\r\n{headers}\r\n"
    );
    let connection = server.client().write(head.as_bytes());
    poll(|| stages(&log, "w").len() == 2);
    drop(connection);
    poll(|| stages(&log, "w").len() == 3);
    let started = format!("ResponseStarted {code}");
    let complete = format!("ResponseComplete {code}");
    assert_eq!(stages(&log, "w"), ["RequestReceived", &started, &complete]);
    server.stop();
}

#[test]
fn a_watch_has_its_last_event_when_its_client_goes() {
    check_watch("", 200);
}

#[test]
fn an_upgraded_connection_has_its_last_event_when_it_ends() {
    check_watch(UPGRADE, 101);
}

#[test]
fn a_panic_is_an_event() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("audit.log");
    let mut builder = without_controllers().admission(
        ("", "v1", "configmaps"),
        |_, _: &mut Value| panic!("this panic is part of a test"),
        |_, _| Ok(()),
    );
    builder.recording.audit = Some(log_to(&policy(&folder, "Metadata"), &log));
    let server = Server::start_plain(builder);
    let map = json!({"metadata": {"name": "a"}});
    let headers = "Audit-ID: p\r\nContent-Type: application/json\r\n";
    let answer = server.client().request("POST", MAPS, headers, Some(&map));
    assert_eq!(answer.status, 500);
    assert_eq!(stages(&log, "p"), ["RequestReceived", "Panic 500"]);
    let text = std::fs::read_to_string(&log).expect("a log");
    assert!(text.contains("\"message\":\"APIServer panic'd: this panic is part of a test\""));
    server.stop();
}

#[test]
fn a_full_disk_ends_requests_in_the_strict_mode_only() {
    let folder = tempfile::tempdir().expect("a folder");
    for (mode, code) in [(AuditMode::Blocking, 200), (AuditMode::BlockingStrict, 500)] {
        let mut audit = log_to(&policy(&folder, "Metadata"), Path::new("/dev/full"));
        audit.log.as_mut().expect("a log").mode = mode;
        let server = server(audit);
        let answer = server.client().get(MAPS);
        assert_eq!(answer.status, code);
        if code == 500 {
            let why = format!("Internal Server Error: {MAPS:?}: failed to store audit event\n");
            assert_eq!(answer.body, Value::from(why));
        }
        server.stop();
    }
}

/// Returns the audit by a webhook.
fn webhook(folder: &TempDir, peer: &HttpsPeer, mode: AuditMode) -> AuditOptions {
    let authority = folder.path().join("ca.pem");
    std::fs::write(&authority, &peer.authority).expect("a bundle");
    let kubeconfig = folder.path().join("kubeconfig");
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "x", "cluster": {
            "server": format!("{}/events", peer.url()), "certificate-authority": "ca.pem"}}],
        "users": [{"name": "u", "user": {"token": "hook"}}],
        "contexts": [{"name": "c", "context": {"cluster": "x", "user": "u"}}]
    });
    std::fs::write(&kubeconfig, text.to_string()).expect("a kubeconfig");
    let initial_backoff = Duration::from_millis(1);
    let webhook = AuditWebhookOptions { kubeconfig, initial_backoff, mode, truncation: None };
    AuditOptions {
        policy: AuditPolicyFile::read(&policy(folder, "Metadata")).expect("a policy"),
        log: None,
        webhook: Some(webhook),
    }
}

#[test]
fn a_webhook_gets_lists_of_events_and_is_asked_again_after_failures() {
    let folder = tempfile::tempdir().expect("a folder");
    let lists: Arc<Mutex<Vec<Value>>> = Arc::default();
    let tries = AtomicUsize::new(0);
    let received = lists.clone();
    let peer = HttpsPeer::start(move |_, request| {
        assert_eq!((request.path.as_str(), &*request.authorization), ("/events", "Bearer hook"));
        if tries.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) {
            return Some((500, json!({})));
        }
        received.lock().expect("the lists").push(request.body);
        Some((200, json!({})))
    });
    let batching = AuditBatching {
        buffer_events_max: 1000,
        batch_events_max: 10,
        wait: Duration::from_secs(3600),
        throttle: None,
    };
    let server = server(webhook(&folder, &peer, AuditMode::Batch(batching)));
    for number in 0..9 {
        assert_eq!(get(&server.client(), &format!("e{number}")), 200);
    }
    // The rest waits for more, and is sent when the server stops.
    server.stop();
    let lists = lists.lock().expect("the lists");
    let mut sizes: Vec<usize> =
        lists.iter().map(|list| list["items"].as_array().expect("items").len()).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [8, 10]);
    for list in lists.iter() {
        let kind = (list["kind"].as_str(), list["apiVersion"].as_str());
        assert_eq!(kind, (Some("EventList"), Some("audit.k8s.io/v1")));
    }
    let events = lists.iter().flat_map(|list| list["items"].as_array().expect("items"));
    let mut shown: Vec<String> = events
        .map(|event| format!("{} {}", event["auditID"], event["stage"]).replace('"', ""))
        .collect();
    shown.sort();
    let mut expected: Vec<String> = (0..9)
        .flat_map(|number| {
            ["RequestReceived", "ResponseComplete"]
                .into_iter()
                .rev()
                .map(move |stage| format!("e{number} {stage}"))
        })
        .collect();
    expected.sort();
    assert_eq!(shown, expected);
}

/// A request that does not go on has no further event.
#[test]
fn a_dead_webhook_ends_requests_in_the_strict_mode_only() {
    const TRIES: usize = 5;
    let folder = tempfile::tempdir().expect("a folder");
    let asked: Arc<AtomicUsize> = Arc::default();
    let counted = asked.clone();
    let peer = HttpsPeer::start(move |_, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        Some((503, json!({})))
    });
    let modes = [(AuditMode::Blocking, 200, 2), (AuditMode::BlockingStrict, 500, 1)];
    for (mode, code, events) in modes {
        let server = server(webhook(&folder, &peer, mode));
        assert_eq!(get(&server.client(), "x"), code);
        server.stop();
        assert_eq!(asked.swap(0, Ordering::SeqCst), events * TRIES);
    }
}
