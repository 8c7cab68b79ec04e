//! What flags of kube-apiserver change in a running process: flags whose effects no other test
//! sees.

mod audit_logs;
mod connections;
mod credentials;

use crate::certificates::authority;
use crate::http::POLL_TIMEOUT;
use crate::kill::Server;
use keelson_testkit::api::{Api, MERGE_PATCH, Response};
use keelson_testkit::node::{NodeServer, ServerOptions};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const PODS: &str = "/api/v1/namespaces/default/pods";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// No control loop makes the service account.
const WITHOUT_ACCOUNTS: &str = "--disable-admission-plugins=ServiceAccount";
const NO_LOOPS: &str = "--controllers=-*";
/// An address for documentation: no server has it.
const NOBODY: &str = "192.0.2.9";
const WATCHES: usize = 50;
/// Time over which the ends of these watches are spread, and when the last one has not ended before
/// with a probability of 1 - 2^-50.
const SPREAD: Duration = Duration::from_secs(2);
const HALF_SPREAD: Duration = Duration::from_secs(1);

fn serve(dir: &Path, flags: &[&str]) -> (Server, Api) {
    let flags = [&[NO_LOOPS, WITHOUT_ACCOUNTS], flags].concat();
    let server = Server::start_with_flags(dir, &flags);
    let api = Api::unchecked(server.address(), Some("t".to_owned())).expect("a client");
    (server, api)
}

fn create(api: &Api, path: &str, object: &Value) -> Response {
    let made = api.post(path, object).expect("an answer");
    assert_eq!(made.code, 201, "{made:?}");
    made
}

#[test]
fn pods_tolerate_lost_nodes_for_the_seconds_of_the_flags() {
    let dir = tempfile::tempdir().expect("a folder");
    let flags = [
        "--default-not-ready-toleration-seconds=11",
        "--default-unreachable-toleration-seconds=12",
    ];
    let (_server, api) = serve(dir.path(), &flags);
    let pod = json!({"metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let made = create(&api, PODS, &pod);
    let toleration = |word: &str, seconds: u32| {
        json!({"key": format!("node.kubernetes.io/{word}"), "operator": "Exists",
            "effect": "NoExecute", "tolerationSeconds": seconds})
    };
    let want = json!([toleration("not-ready", 11), toleration("unreachable", 12)]);
    assert_eq!(made.body["spec"]["tolerations"], want);
}

#[test]
fn the_audit_log_has_lines_of_the_legacy_format() {
    let dir = tempfile::tempdir().expect("a folder");
    let policy = dir.path().join("policy.yaml");
    let text = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n";
    std::fs::write(&policy, text).expect("a file");
    let log = dir.path().join("audit.log");
    let flags = [
        &format!("--audit-policy-file={}", policy.display()),
        &format!("--audit-log-path={}", log.display()),
        "--audit-log-mode=blocking",
        "--audit-log-format=legacy",
    ];
    let (_server, api) = serve(&dir.path().join("data"), &flags);
    let headers = "Audit-ID: mine\r\nUser-Agent: me\r\n";
    assert_eq!(api.send_with("GET", MAPS, headers, "").expect("an answer").code, 200);
    // The last event of a request comes after its response.
    let line = keelson_testkit::poll(POLL_TIMEOUT, || {
        let text = std::fs::read_to_string(&log).ok()?;
        let mut whole = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        let line = whole.find(|line| line.contains("id=\"mine\" stage=\"ResponseComplete\""))?;
        Some(line.to_owned())
    })
    .expect("the event of the response");
    let (_, said) = line.split_once("Z AUDIT: ").expect("a time first");
    let want = format!(
        "id=\"mine\" stage=\"ResponseComplete\" ip=\"127.0.0.1\" method=\"list\" user=\"admin\" \
         groups=\"\\\"system:masters\\\",\\\"system:authenticated\\\"\" as=\"<self>\" \
         asgroups=\"<lookup>\" user-agent=\"me\" namespace=\"default\" uri=\"{MAPS}\" \
         response=\"200\""
    );
    assert_eq!(said, want);
}

#[test]
fn the_longest_poll_is_measured_with_contention_profiling() {
    let dir = tempfile::tempdir().expect("a folder");
    for (flags, is_measured) in [(&["--contention-profiling"][..], true), (&[], false)] {
        let (_server, api) = serve(&dir.path().join(is_measured.to_string()), flags);
        assert_eq!(api.get(MAPS).expect("an answer").code, 200);
        let metrics = api.get("/metrics").expect("an answer");
        let text = String::from_utf8_lossy(&metrics.bytes).into_owned();
        let has = text.lines().any(|line| line.starts_with("keelson_longest_poll_seconds "));
        assert_eq!((metrics.code, has), (200, is_measured), "{text}");
    }
}

#[test]
fn the_ends_of_watches_are_spread_over_their_grace_period() {
    let dir = tempfile::tempdir().expect("a folder");
    let flag = format!("--shutdown-watch-termination-grace-period={}s", SPREAD.as_secs());
    let (mut server, api) = serve(dir.path(), &[&flag]);
    let open = |_| api.watch(&format!("{MAPS}?watch=1")).expect("a watch");
    let watches: Vec<_> = (0..WATCHES).map(open).collect();
    let began = Instant::now();
    server.signal("TERM");
    assert_eq!(server.exit_status(), Some(0));
    assert!(began.elapsed() > HALF_SPREAD, "all ended within {:?}", began.elapsed());
    drop(watches);
}

#[test]
fn two_servers_share_a_port_if_both_permit_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let (first, _) = serve(&dir.path().join("first"), &["--permit-port-sharing"]);
    let port = format!("--secure-port={}", first.address().port());
    let (second, api) = serve(&dir.path().join("second"), &["--permit-port-sharing", &port]);
    assert_eq!(second.address(), first.address());
    drop(first);
    // Connections to the first one are reset.
    let served = keelson_testkit::poll(POLL_TIMEOUT, || api.get("/version").ok());
    assert_eq!(served.map(|answer| answer.code), Some(200));
    let third = Command::new(env!("CARGO_BIN_EXE_keelson"))
        .args(["serve", "--bind-address=127.0.0.1", &port, "--data-dir"])
        .arg(dir.path().join("third"))
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&third.stderr);
    assert!(third.status.code() == Some(1) && said.contains("in use"), "{said}");
}

/// Creates a node at two addresses, of which the external one is its kubelet's, and a pod on it.
fn place_pod(api: &Api, node: &NodeServer) {
    create(api, "/api/v1/nodes", &json!({"metadata": {"name": "n"}}));
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": NOBODY},
            {"type": "ExternalIP", "address": node.address().ip().to_string()}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": node.address().port()}}}});
    let patched = api.call("PATCH", "/api/v1/nodes/n/status", MERGE_PATCH, Some(&status));
    assert_eq!(patched.expect("an answer").code, 200);
    let pod = json!({"metadata": {"name": "p"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    create(api, PODS, &pod);
}

/// `--kubelet-preferred-address-types` and `--kubelet-certificate-authority`.
#[test]
fn kubelets_are_reached_at_the_preferred_address_and_verified() {
    let dir = tempfile::tempdir().expect("a folder");
    let node = NodeServer::start(ServerOptions::default()).expect("a node");
    node.log("default/p/c", "stdout", "hello");
    let (other, _) = authority("another authority");
    for (name, pem) in [("node.crt", node.authority()), ("other.crt", &other)] {
        std::fs::write(dir.path().join(name), pem).expect("a file");
    }
    let unknown = "x509: certificate signed by unknown authority";
    let nowhere = format!(
        "no preferred addresses found; known addresses: [{{InternalIP {NOBODY}}} {{ExternalIP \
         127.0.0.1}}]"
    );
    for (types, authority, code, said) in [
        ("Hostname,ExternalIP,InternalIP", "node.crt", 200, "hello"),
        ("ExternalIP", "other.crt", 500, unknown),
        ("InternalDNS", "node.crt", 500, &nowhere),
    ] {
        let flags = [
            &format!("--kubelet-preferred-address-types={types}"),
            &*format!("--kubelet-certificate-authority={}", dir.path().join(authority).display()),
        ];
        let (_server, api) = serve(&dir.path().join(types), &flags);
        place_pod(&api, &node);
        let answer = api.get(&format!("{PODS}/p/log")).expect("an answer");
        let text = String::from_utf8_lossy(&answer.bytes).into_owned();
        assert!(answer.code == code && text.contains(said), "{types}: {} {text}", answer.code);
    }
}
