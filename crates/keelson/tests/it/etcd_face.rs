//! A stock kube-apiserver on the program in etcd's place.

use keelson_store_etcd::testing::EtcdProcess;
use keelson_testkit::api::{Api, MERGE_PATCH, Watch};
use keelson_testkit::poll;
use keelson_testkit::prerequisites::{API_SERVER, kubernetes_program};
use keelson_testkit::process::Process;
use rcgen::KeyPair;
use serde_json::{Value, json};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tokio::runtime::Runtime;

const KEELSON: &str = env!("CARGO_BIN_EXE_keelson");
const TOKEN: &str = "admintoken";
const MAPS: &str = "/api/v1/namespaces/demo/configmaps";
const EVENTS: &str = "/api/v1/namespaces/demo/events";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const FOOS: &str = "/apis/example.com/v1/namespaces/demo/foos";
/// Timeout for what a program does on a busy machine.
const TIME_MAX: Duration = Duration::from_secs(60);

/// Starts kube-apiserver on an etcd. Its files are in `dir`.
fn start_api_server(program: &Path, dir: &Path, etcd_url: &str) -> (Process, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let file = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).expect("a file");
        path
    };
    let key = KeyPair::generate().expect("a key");
    let tokens = file("tokens.csv", &format!("{TOKEN},admin,admin,system:masters\n"));
    let mut command = Command::new(program);
    command.args(["--etcd-servers", etcd_url, "--bind-address=127.0.0.1"]);
    command.args(["--secure-port", &address.port().to_string(), "--authorization-mode=RBAC"]);
    command.args(["--advertise-address=10.1.1.1", "--service-cluster-ip-range=10.0.0.0/24"]);
    command.args(["--event-ttl=1h", "--service-account-issuer=https://kubernetes.default.svc"]);
    command.arg("--token-auth-file").arg(tokens).arg("--cert-dir").arg(dir.join("certs"));
    command.arg("--service-account-key-file").arg(file("sa.pub", &key.public_key_pem()));
    command.arg("--service-account-signing-key-file").arg(file("sa.key", &key.serialize_pem()));
    let process = Process::start(command, &dir.join("server.log"));
    (process.expect("kube-apiserver starts"), address)
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

fn created(api: &Api, path: &str, obj: &Value) -> Value {
    let response = api.post(path, obj).expect("a response");
    assert_eq!(response.code, 201, "{}", response.body);
    response.body
}

/// Lists by pages; returns the names.
fn pages(api: &Api, limit: usize, count: usize) -> Vec<String> {
    let mut names = vec![];
    let mut token = String::new();
    loop {
        let page = api.get(&format!("{MAPS}?limit={limit}&continue={token}")).expect("a page").body;
        let items = page["items"].as_array().expect("items");
        names.extend(
            items.iter().filter_map(|obj| obj["metadata"]["name"].as_str().map(str::to_owned)),
        );
        let remaining = page["metadata"]["remainingItemCount"].as_u64().unwrap_or(0);
        assert_eq!(remaining as usize, count - names.len(), "counted in etcd");
        match page["metadata"]["continue"].as_str() {
            Some(next) if !next.is_empty() => next.clone_into(&mut token),
            _ => return names,
        }
    }
}

/// Waits for an event about an object.
fn next_about(watch: &mut Watch, name: &str) -> Value {
    loop {
        let event = watch.next_event().expect("an event");
        if event["object"]["metadata"]["name"] == name {
            return event;
        }
    }
}

/// Serves a custom resource, and creates an object of it.
fn add_custom_resource(api: &Api) {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": schema}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "versions": [version],
            "names": {"plural": "foos", "kind": "Foo"}},
    });
    created(api, DEFINITIONS, &definition);
    let object = json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "f"}});
    let is_created = || api.post(FOOS, &object).ok().filter(|response| response.code == 201);
    assert!(poll(TIME_MAX, is_created).is_some(), "the custom resource is not served");
}

#[test]
fn a_stock_kube_apiserver_works_on_it_over_a_kill() {
    let Some(program) = kubernetes_program(API_SERVER, "kube-apiserver") else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let etcd_program = dir.path().join("etcd");
    std::os::unix::fs::symlink(KEELSON, &etcd_program).expect("a link");
    let runtime = Runtime::new().expect("a runtime");
    let mut etcd =
        runtime.block_on(EtcdProcess::start(&etcd_program)).expect("the program is there");
    let (server, address) = start_api_server(&program, dir.path(), &etcd.url());
    let api = Api::unchecked(address, Some(TOKEN.to_owned())).expect("a client");
    let ready = || api.get("/readyz").ok().filter(|response| response.code == 200);
    assert!(poll(TIME_MAX, ready).is_some(), "no server: {}", server.log());

    created(&api, "/api/v1/namespaces", &json!({"metadata": {"name": "demo"}}));
    let names: Vec<_> = (0..25).map(|n| format!("m{n:02}")).collect();
    names.iter().for_each(|name| drop(created(&api, MAPS, &map(name))));
    assert!(pages(&api, 7, 25).iter().eq(&names));
    let since = api.get(MAPS).expect("a list").body["metadata"]["resourceVersion"]
        .clone()
        .as_str()
        .expect("a version")
        .to_owned();
    let mut watch = api.watch(&format!("{MAPS}?watch=1&resourceVersion={since}")).expect("a watch");
    let patch = json!({"data": {"a": "2"}}).to_string();
    let one = format!("{MAPS}/m00");
    let patched = api.send_text("PATCH", &one, MERGE_PATCH, &patch).expect("a response");
    assert_eq!((patched.code, &patched.body["data"]["a"]), (200, &json!("2")));
    assert_eq!(next_about(&mut watch, "m00")["type"], "MODIFIED");
    assert_eq!(api.delete(&format!("{MAPS}/m01"), None).expect("a response").code, 200);
    assert_eq!(next_about(&mut watch, "m01")["type"], "DELETED");
    add_custom_resource(&api);
    let involved = json!({"kind": "Pod", "name": "p", "namespace": "demo"});
    let event = json!({"metadata": {"name": "e"}, "involvedObject": involved, "reason": "R",
        "message": "m", "type": "Normal"});
    created(&api, EVENTS, &event);

    runtime.block_on(etcd.restart());
    // 409 if the write was done and its response lost.
    let is_written = |code| code == 201 || code == 409;
    let written = || api.post(MAPS, &map("after")).ok().filter(|got| is_written(got.code));
    assert!(poll(TIME_MAX, written).is_some(), "no write after the restart: {}", server.log());
    assert_eq!(next_about(&mut watch, "after")["type"], "ADDED");
    assert_eq!(pages(&api, 10, 25).len(), 25);
    assert_eq!(api.get(&one).expect("a response").body["data"]["a"], "2");
    assert_eq!(api.get(&format!("{FOOS}/f")).expect("a response").code, 200);
    assert_eq!(api.get(&format!("{EVENTS}/e")).expect("a response").code, 200);
    let past = api
        .get(&format!("{MAPS}?resourceVersion={since}&resourceVersionMatch=Exact"))
        .expect("a list of the past")
        .body;
    assert_eq!(past["items"].as_array().map(Vec::len), Some(25));
    assert_eq!(past["items"][0]["data"]["a"], "1");
}
