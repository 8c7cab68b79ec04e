//! Servers on a real etcd: two on one cluster, restarts of etcd under load, TLS, and messages if
//! etcd cannot be used.

use crate::faults::rounds;
use crate::http::{Client, POLL_TIMEOUT, Response, Server, revision_of};
use keelson::{Etcd, Keelson, Pki};
use keelson_store::{Op, Store, Txn};
use keelson_store_etcd::testing::{EtcdProcess, ServerFiles};
use keelson_store_etcd::{EtcdOptions, EtcdStore};
use keelson_testkit::prerequisites::{self, peer_or_installed};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WRITERS: usize = 6;
const RESTARTS: usize = 3;
/// Descriptors that a process may have more after restarts: connections of clients that are about
/// to close.
const DESCRIPTORS_MORE_MAX: usize = 16;
/// Acknowledged writes between two restarts.
const WRITES_BETWEEN: usize = 60;

/// A running etcd.
pub fn etcd() -> Option<(Runtime, EtcdProcess)> {
    let runtime = Runtime::new().expect("a runtime");
    let started = runtime.block_on(EtcdProcess::start(&peer_or_installed("etcd")));
    Some((runtime, prerequisites::etcd(started)?))
}

/// A running cluster of etcd, whose members reach each other at the ports that `front` returns for
/// their own ports.
pub fn cluster(size: usize, front: impl Fn(u16) -> u16) -> Option<(Runtime, Vec<EtcdProcess>)> {
    let runtime = Runtime::new().expect("a runtime");
    let program = peer_or_installed("etcd");
    let started = runtime.block_on(EtcdProcess::start_cluster_behind(&program, size, front));
    Some((runtime, prerequisites::etcd(started)?))
}

/// A server without controllers, so namespaces have no ConfigMap of their own.
pub fn serve(etcd: &EtcdProcess) -> Server {
    let mut builder = Keelson::builder().etcd(Etcd::new(vec![etcd.url()]));
    builder.controllers.selected.push("-root-ca-certificate-publisher-controller".to_owned());
    Server::start_plain(builder)
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

fn name(obj: &Value) -> String {
    obj["metadata"]["name"].as_str().expect("a name").to_owned()
}

#[test]
fn a_write_on_one_server_is_read_and_watched_on_another() {
    let Some((_runtime, etcd)) = etcd() else { return };
    let (one, other) = std::thread::scope(|scope| {
        let servers = [(); 2].map(|()| scope.spawn(|| serve(&etcd)));
        let [one, other] = servers.map(|server| server.join().expect("both start"));
        (one, other)
    });
    let writer = one.client();
    let reader = other.client();
    let began = revision_of(&reader.get(MAPS).body);
    let mut watch = reader.open_watch(&format!("{MAPS}?watch=1&resourceVersion={began}"));
    for n in 0..20 {
        let name = format!("m{n}");
        let created = writer.post(MAPS, &map(&name));
        assert_eq!(created.status, 201, "{created:?}");
        let read = reader.get(&format!("{MAPS}/{name}"));
        assert_eq!((read.status, &read.body), (200, &created.body));
        let list = reader.get(MAPS).body;
        assert!(revision_of(&list) >= revision_of(&created.body), "{list}");
        let patch = json!({"data": {"n": n.to_string()}});
        let path = format!("{MAPS}/{name}");
        let changed = reader.call("PATCH", &path, "application/merge-patch+json", Some(&patch));
        assert_eq!(changed.status, 200, "{changed:?}");
        assert_eq!(writer.get(&path).body, changed.body);
        assert_eq!(writer.delete(&path).status, 200);
        assert_eq!(reader.get(&path).status, 404);
        let expected = ["ADDED", "MODIFIED", "DELETED"].map(|word| (word.to_owned(), name.clone()));
        assert_eq!(watch.next_types_and_names(3), expected);
    }
    one.stop();
    assert_eq!(reader.post(MAPS, &map("alone")).status, 201);
    other.stop();
}

/// The metrics of calls to etcd have the types and labels of kube-apiserver's.
#[test]
fn calls_to_etcd_are_counted() {
    let Some((_runtime, process)) = etcd() else { return };
    let server = serve(&process);
    let client = server.client();
    let count = |metric: &str, labels: &str| {
        let text = crate::metrics::text(&client);
        let series = format!("grpc_client_{metric}_total{{{labels}}} ");
        text.lines().find_map(|line| line.strip_prefix(&series)?.parse::<u64>().ok())
    };
    let of = |method: &str, service: &str, kind: &str| {
        format!(
            "grpc_method=\"{method}\",grpc_service=\"etcdserverpb.{service}\",grpc_type=\"{kind}\""
        )
    };
    let puts = of("Txn", "KV", "unary");
    let handled = format!("grpc_code=\"OK\",{puts}");
    let numbers = || {
        let messages = ["started", "msg_sent", "msg_received"].map(|metric| count(metric, &puts));
        let [started, sent, received] = messages.map(Option::unwrap_or_default);
        [started, sent, received, count("handled", &handled).unwrap_or_default()]
    };
    let before = numbers();
    for n in 0..20 {
        assert_eq!(client.post(MAPS, &map(&format!("counted-{n}"))).status, 201);
    }
    // The control loops write too.
    for (before, after) in before.into_iter().zip(numbers()) {
        assert!(after >= before + 20, "{before} {after}");
    }
    let watch = of("Watch", "Watch", "bidi_stream");
    assert!(count("started", &watch) >= Some(1));
    assert!(count("msg_sent", &watch) >= Some(1));
    assert!(count("msg_received", &watch) >= Some(20));
    assert_eq!(count("handled", &format!("grpc_code=\"OK\",{watch}")), None, "it goes on");
    let text = crate::metrics::text(&client);
    assert!(!text.contains("DeadlineExceeded"), "a call that ended counts once");
    for name in ["handled", "msg_received", "msg_sent", "started"] {
        crate::metrics::check_fact(&text, &format!("grpc_client_{name}_total"));
    }
    server.stop();
}

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str, port: Option<u16>) -> Value {
    json!({"metadata": {"name": name},
        "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}})
}

#[test]
fn one_of_several_servers_allocates_a_requested_port() {
    let Some((_runtime, process)) = etcd() else { return };
    let servers = [serve(&process), serve(&process)];
    for port in 30_100..30_120_u16 {
        let answers = std::thread::scope(|scope| {
            let servers = &servers;
            let asked = [0, 1].map(|n| {
                scope.spawn(move || {
                    let name = format!("s{port}-{n}");
                    servers[n].client().post(SERVICES, &service(&name, Some(port)))
                })
            });
            asked.map(|answer| answer.join().expect("an answer"))
        });
        let mut codes = answers.each_ref().map(|answer| answer.status);
        codes.sort_unstable();
        assert_eq!(codes, [201, 422], "{answers:?}");
        let refused = answers.iter().find(|answer| answer.status == 422).expect("one is refused");
        let why = format!("Invalid value: {port}: provided port is already allocated");
        let said = refused.body["message"].as_str().unwrap_or_default();
        assert!(said.ends_with(&why), "{said}");
    }
    servers.into_iter().for_each(Server::stop);
}

#[test]
fn servers_allocate_no_port_and_no_address_twice() {
    let Some((runtime, process)) = etcd() else { return };
    let servers = [serve(&process), serve(&process)];
    let given: Vec<Value> = std::thread::scope(|scope| {
        let makers = servers.each_ref().map(|server| {
            let client = server.client();
            scope.spawn(move || {
                let name = |n| format!("any{}-{n}", client.address.port());
                let made = (0..15).map(|n| client.post(SERVICES, &service(&name(n), None)));
                made.map(|answer| answer.body["spec"].clone()).collect::<Vec<_>>()
            })
        });
        makers.into_iter().flat_map(|maker| maker.join().expect("services")).collect()
    });
    let set = |of: fn(&Value) -> &Value| given.iter().map(|spec| of(spec).to_string()).collect();
    let ports: BTreeSet<String> = set(|spec| &spec["ports"][0]["nodePort"]);
    let addresses: BTreeSet<String> = set(|spec| &spec["clusterIP"]);
    assert_eq!((given.len(), ports.len(), addresses.len()), (30, 30, 30), "{given:?}");
    // What one server has allocated can be released through the other, and is then free for both.
    for (maker, killer) in [(0, 1), (1, 0)] {
        let made = servers[maker].client().post(SERVICES, &service("moves", Some(30_200)));
        assert_eq!(made.status, 201, "{made:?}");
        assert_eq!(servers[killer].client().delete(&format!("{SERVICES}/moves")).status, 200);
    }
    // The records as kube-apiserver reads them, and an allocation by a kube-apiserver on the same
    // etcd.
    let raw = runtime
        .block_on(EtcdStore::open(EtcdOptions::new(vec![process.url()])))
        .expect("etcd answers");
    let key = "/registry/ranges/servicenodeports";
    let stored = runtime.block_on(raw.get(key.as_bytes())).expect("an answer").expect("a range");
    assert!(stored.value.starts_with(b"k8s\0\x0a\x15\x0a\x02v1\x12\x0fRangeAllocation"));
    let taken: Vec<u32> = stored.value.iter().map(|byte| byte.count_ones()).collect();
    assert!(taken.iter().sum::<u32>() > 30);
    let all = [
        &b"k8s\0\x0a\x15\x0a\x02v1\x12\x0fRangeAllocation\x12\xea\x02"[..],
        b"\x12\x0b30000-32767\x1a\xda\x02",
        &[0xff; 346],
        b"\x1a\0\x22\0",
    ]
    .concat();
    let op = Op::Put { key: key.into(), value: all.into(), lease: None };
    runtime.block_on(raw.txn(Txn { compare: vec![], ops: vec![op] })).expect("a write");
    let full = servers[0].client().post(SERVICES, &service("full", None));
    assert_eq!(full.status, 500, "{full:?}");
    assert!(
        full.body["message"].as_str().unwrap_or_default().contains("range is full"),
        "{full:?}"
    );
    servers.into_iter().for_each(Server::stop);
}

const KUBERNETES: &str = "/api/v1/namespaces/default/endpoints/kubernetes";
const KUBERNETES_SLICE: &str =
    "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";

/// Returns the addresses of the Service `kubernetes` in its Endpoints and its EndpointSlice.
fn servers_of(client: &Client) -> [Vec<String>; 2] {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let endpoints = client.get(KUBERNETES).body;
    let addresses = endpoints["subsets"][0]["addresses"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| text(&one["ip"]))
        .collect();
    let slice = client.get(KUBERNETES_SLICE).body;
    let in_slice = slice["endpoints"].as_array().into_iter().flatten();
    [addresses, in_slice.map(|one| text(&one["addresses"][0])).collect()]
}

#[test]
fn all_servers_are_endpoints_of_the_service_kubernetes_until_they_stop() {
    let Some((runtime, process)) = etcd() else { return };
    let raw = runtime
        .block_on(EtcdStore::open(EtcdOptions::new(vec![process.url()])))
        .expect("etcd answers");
    // As a kube-apiserver would register itself.
    let announced = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09Endpoints\x12\x18\x0a\x06\x0a\0\x12\0\x1a\0\
                      \x12\x0e\x0a\x0c\x0a\x0810.1.1.9\x1a\0\x1a\0\"\0";
    let key = "/registry/masterleases/10.1.1.9";
    let op = Op::Put { key: key.into(), value: announced.to_vec().into(), lease: None };
    runtime.block_on(raw.txn(Txn { compare: vec![], ops: vec![op] })).expect("a write");
    let serve = |address: &str| {
        let mut builder = Keelson::builder().etcd(Etcd::new(vec![process.url()])).no_controllers();
        builder.network.advertise = Some(address.parse().expect("an address"));
        Server::start_plain(builder)
    };
    let is = |client: &Client, want: &[&str]| {
        let deadline = Instant::now() + POLL_TIMEOUT;
        while servers_of(client) != [want, want] {
            assert!(Instant::now() < deadline, "{want:?}: {:?}", servers_of(client));
            std::thread::yield_now();
        }
    };
    let one = serve("10.1.1.2");
    is(&one.client(), &["10.1.1.2", "10.1.1.9"]);
    let other = serve("10.1.1.1");
    is(&one.client(), &["10.1.1.1", "10.1.1.2", "10.1.1.9"]);
    let stored = runtime
        .block_on(raw.get(b"/registry/masterleases/10.1.1.1"))
        .expect("an answer")
        .expect("a key");
    assert!(stored.value.starts_with(b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09Endpoints"), "{stored:?}");
    one.stop();
    is(&other.client(), &["10.1.1.1", "10.1.1.9"]);
    other.stop();
    let stored = runtime.block_on(raw.get(b"/registry/masterleases/10.1.1.1"));
    assert_eq!(stored.expect("an answer"), None);
}

#[test]
fn endpoints_of_the_service_kubernetes_follow_the_address_of_the_server() {
    let dir = tempfile::tempdir().expect("a folder");
    let serve = |address: &str| {
        let mut builder = Keelson::builder().data_dir(dir.path()).no_controllers();
        builder.network.advertise = Some(address.parse().expect("an address"));
        Server::start_plain(builder)
    };
    serve("10.1.1.1").stop();
    let server = serve("10.1.1.2");
    let client = server.client();
    client.poll(KUBERNETES, |got| got.body["subsets"][0]["addresses"][0]["ip"] == "10.1.1.2");
    client.poll(KUBERNETES_SLICE, |got| got.body["endpoints"][0]["addresses"][0] == "10.1.1.2");
    server.stop();
}

/// `--endpoint-reconciler-type=none`.
#[test]
fn the_service_kubernetes_has_no_endpoints_without_a_reconciler() {
    let mut builder = Keelson::builder().no_controllers();
    builder.network.advertise = Some("10.1.1.1".parse().expect("an address"));
    builder.network.publishes_endpoint = false;
    let server = Server::start_plain(builder);
    let client = server.client();
    let paths = [&format!("{SERVICES}/kubernetes"), KUBERNETES, KUBERNETES_SLICE];
    assert_eq!(paths.map(|path| client.get(path).status), [200, 404, 404]);
    server.stop();
}

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

/// Returns the holder of the controllers' lease.
fn holder(client: &Client) -> Option<String> {
    let lease = client.get(&format!("{LEASES}/keelson-controllers")).body;
    lease["spec"]["holderIdentity"].as_str().map(str::to_owned)
}

fn namespace(client: &Client, name: &str) -> Response {
    let made = client.post("/api/v1/namespaces", &json!({"metadata": {"name": name}}));
    assert_eq!(made.status, 201, "{made:?}");
    client.poll(&format!("/api/v1/namespaces/{name}/serviceaccounts/default"), |answer| {
        answer.status == 200
    })
}

#[test]
fn control_loops_run_on_one_server_and_move_to_another() {
    let Some((_runtime, etcd)) = etcd() else { return };
    let one = serve(&etcd);
    let other = serve(&etcd);
    let ends = |server: &Server| format!(":{}_", server.keelson.address().port());
    namespace(&one.client(), "a");
    let first = holder(&other.client()).expect("a holder");
    assert!(first.contains(&ends(&one)) || first.contains(&ends(&other)), "{first}");
    let (leader, left) = if first.contains(&ends(&one)) { (one, other) } else { (other, one) };
    leader.stop();
    let client = left.client();
    let lease = client.poll(&format!("{LEASES}/keelson-controllers"), |answer| {
        let holder = answer.body["spec"]["holderIdentity"].as_str();
        holder.is_some_and(|holder| holder.contains(&ends(&left)))
    });
    let spec = &lease.body["spec"];
    assert_eq!((&spec["leaseTransitions"], &spec["leaseDurationSeconds"]), (&json!(1), &json!(15)));
    namespace(&client, "b");
    left.stop();
}

#[test]
fn control_loops_wait_while_another_server_holds_the_lease() {
    let Some((_runtime, process)) = etcd() else { return };
    let etcd = Etcd::new(vec![process.url()]);
    let quiet = Server::start_plain(Keelson::builder().etcd(etcd).no_controllers());
    let client = quiet.client();
    assert_eq!(holder(&client), None);
    let lease = json!({"metadata": {"name": "keelson-controllers"},
        "spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 3600}});
    assert_eq!(client.post(LEASES, &lease).status, 201);
    let server = serve(&process);
    let made = client.post("/api/v1/namespaces", &json!({"metadata": {"name": "a"}}));
    assert_eq!(made.status, 201);
    let path = format!("{LEASES}/keelson-controllers");
    let patch = json!({"spec": {"holderIdentity": null}});
    let freed = client.call("PATCH", &path, "application/merge-patch+json", Some(&patch));
    assert_eq!(freed.status, 200, "{freed:?}");
    let account =
        client.poll("/api/v1/namespaces/a/serviceaccounts/default", |answer| answer.status == 200);
    assert!(revision_of(&account.body) > revision_of(&freed.body));
    assert!(holder(&client).is_some_and(|holder| holder != "somebody"));
    server.stop();
    assert_eq!(holder(&client), None);
    quiet.stop();
}

/// Returns the number of open descriptors of this process.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("descriptors").count()
}

/// Creates objects until the flag is set; returns the acknowledged names. The others get an error
/// that says why.
fn create(client: &Client, writer: usize, stop: &AtomicBool, done: &AtomicUsize) -> Vec<String> {
    let mut acknowledged = vec![];
    for n in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let name = format!("w{writer}-{n}");
        let answer = client.post(MAPS, &map(&name));
        if answer.status == 201 {
            acknowledged.push(name);
            done.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let message = answer.body["message"].as_str().unwrap_or_default();
        assert!(matches!(answer.status, 500 | 503 | 504) && !message.is_empty(), "{answer:?}");
    }
    acknowledged
}

#[test]
fn restarts_of_etcd_under_load_lose_and_repeat_no_write() {
    let Some((runtime, mut etcd)) = etcd() else { return };
    let servers = [serve(&etcd), serve(&etcd)];
    let began = revision_of(&servers[0].client().get(MAPS).body);
    let watches = servers.each_ref().map(|server| {
        server.client().open_watch(&format!("{MAPS}?watch=1&resourceVersion={began}"))
    });
    let open_before = descriptors();
    let stop = AtomicBool::new(false);
    let done = AtomicUsize::new(0);
    let acknowledged: Vec<String> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let client = servers[writer % 2].client();
                let stop = &stop;
                let done = &done;
                scope.spawn(move || create(&client, writer, stop, done))
            })
            .collect();
        for round in 1..=rounds(RESTARTS) {
            let deadline = Instant::now() + POLL_TIMEOUT;
            while done.load(Ordering::Relaxed) < round * WRITES_BETWEEN {
                assert!(Instant::now() < deadline, "no writes in round {round}");
                std::thread::yield_now();
            }
            etcd.kill();
            runtime.block_on(etcd.restart());
        }
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().flat_map(|writer| writer.join().expect("a writer")).collect()
    });
    let last = servers[0].client().post(MAPS, &map("last"));
    assert_eq!(last.status, 201, "{last:?}");
    let open = descriptors();
    assert!(open <= open_before + DESCRIPTORS_MORE_MAX, "{open_before} descriptors became {open}");
    let list = servers[1].client().get(MAPS).body;
    let stored: BTreeMap<String, u64> = list["items"]
        .as_array()
        .expect("items")
        .iter()
        .map(|obj| (name(obj), revision_of(obj)))
        .collect();
    let lost: Vec<_> = acknowledged.iter().filter(|name| !stored.contains_key(*name)).collect();
    assert!(lost.is_empty(), "acknowledged and gone: {lost:?}");
    for mut watch in watches {
        let mut seen = BTreeMap::new();
        let mut before = began;
        while !seen.contains_key("last") {
            let event = watch.next().expect("the watch goes on");
            assert_eq!(event["type"], "ADDED", "{event}");
            let at = revision_of(&event["object"]);
            assert!(at > before, "{event} after {before}");
            before = at;
            seen.insert(name(&event["object"]), at);
        }
        assert_eq!(
            seen,
            stored.iter().filter(|(_, at)| **at > began).map(|(k, v)| (k.clone(), *v)).collect()
        );
    }
    servers.into_iter().for_each(Server::stop);
}

#[test]
fn history_is_compacted_and_watches_go_on() {
    let Some((_runtime, process)) = etcd() else { return };
    let etcd =
        Etcd { compaction_interval: Duration::from_millis(50), ..Etcd::new(vec![process.url()]) };
    let server = Server::start_plain(Keelson::builder().etcd(etcd).no_controllers());
    let client = server.client();
    let first = revision_of(&client.post(MAPS, &map("first")).body);
    let mut watch = client.open_watch(&format!("{MAPS}?watch=1&resourceVersion={first}"));
    client.poll(&format!("{MAPS}?resourceVersion={first}&resourceVersionMatch=Exact"), |answer| {
        answer.status == 410
    });
    assert_eq!(client.post(MAPS, &map("second")).status, 201);
    assert_eq!(watch.next_types_and_names(1), [("ADDED".to_owned(), "second".to_owned())]);
    server.stop();
}

#[test]
fn with_etcd_the_data_directory_holds_only_certificates() {
    let Some((_runtime, etcd)) = etcd() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let builder = Keelson::builder().data_dir(dir.path()).etcd(Etcd::new(vec![etcd.url()]));
    let server = Server::start_plain(builder);
    assert_eq!(server.client().post(MAPS, &map("a")).status, 201);
    server.stop();
    let kept: Vec<_> = std::fs::read_dir(dir.path())
        .expect("the folder")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(kept, ["pki"]);
    let server = Server::start_plain(Keelson::builder().etcd(Etcd::new(vec![etcd.url()])));
    assert_eq!(server.client().get(&format!("{MAPS}/a")).status, 200);
    server.stop();
}

/// Writes a CA, a server certificate and a client certificate with their keys into a directory.
fn certificates(dir: &Path) -> Pki {
    let pki = Pki::make(&["127.0.0.1".to_owned()]).expect("certificates");
    let files = [
        ("ca.pem", &pki.ca),
        ("server.pem", &pki.serving.certificate),
        ("server.key", &pki.serving.key),
        ("client.pem", &pki.admin.certificate),
        ("client.key", &pki.admin.key),
    ];
    for (name, text) in files {
        std::fs::write(dir.join(name), text).expect("a file");
    }
    pki
}

#[test]
fn etcd_connections_require_client_certificates() {
    let dir = tempfile::tempdir().expect("a folder");
    let foreign = tempfile::tempdir().expect("two");
    certificates(dir.path());
    certificates(foreign.path());
    let file = |name: &str| dir.path().join(name);
    let files = ServerFiles {
        authority: file("ca.pem"),
        certificate: file("server.pem"),
        key: file("server.key"),
    };
    let started = EtcdProcess::start_tls(&peer_or_installed("etcd"), files);
    let Some(process) = prerequisites::etcd(started) else { return };
    let etcd = Etcd {
        ca_file: Some(file("ca.pem")),
        identity_files: Some((file("client.pem"), file("client.key"))),
        start_timeout: Duration::ZERO,
        ..Etcd::new(vec![process.url()])
    };
    let runtime = Runtime::new().expect("a runtime");
    let start =
        |etcd: &Etcd| runtime.block_on(Keelson::builder().etcd(etcd.clone()).plain_http().start());
    let deadline = Instant::now() + POLL_TIMEOUT;
    let keelson = loop {
        match start(&etcd) {
            Ok(keelson) => break keelson,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    };
    runtime.block_on(keelson.stop());
    let nameless = Etcd { identity_files: None, ..etcd.clone() };
    // This error is final: a retry would fail in the same way.
    let ca_file = Some(foreign.path().join("ca.pem"));
    let distrusting = Etcd { ca_file, start_timeout: POLL_TIMEOUT * 10, ..etcd };
    // The TLS alert to a client without a certificate may be lost with the connection.
    for (etcd, why) in
        [(nameless, "no etcd server answers"), (distrusting, "invalid peer certificate")]
    {
        let error = start(&etcd).err().expect("etcd is not to be reached").to_string();
        assert!(error.starts_with("--etcd-servers/--etcd-cafile/--etcd-certfile: "), "{error}");
        assert!(error.contains(why), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn etcd_errors_are_one_line_that_names_the_flag() {
    let dir = tempfile::tempdir().expect("a folder");
    certificates(dir.path());
    let file = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(dir.path().join("text"), "no certificate").expect("a file");
    let url = "--etcd-servers=http://127.0.0.1:1";
    let checks: [(&[&str], &str); 8] = [
        (&["--etcd-servers=a:2379"], "--etcd-servers: a:2379: \"a:2379\": "),
        (&[url, "--etcd-prefix=/"], "--etcd-prefix: "),
        (
            &[url, "--etcd-compaction-interval=soon"],
            "invalid argument \"soon\" for \"--etcd-compaction-interval\" flag: ",
        ),
        (&[url, "--etcd-compaction-interval=-5m"], "--etcd-compaction-interval: -5m0s is negative"),
        (&[url, &format!("--etcd-cafile={}", file("none"))], "--etcd-cafile: "),
        (&[url, &format!("--etcd-cafile={}", file("text"))], "--etcd-cafile: "),
        (
            &[
                url,
                &format!("--etcd-certfile={}", file("text")),
                &format!("--etcd-keyfile={}", file("client.key")),
            ],
            "--etcd-certfile: ",
        ),
        (
            &[
                url,
                &format!("--etcd-certfile={}", file("client.pem")),
                &format!("--etcd-keyfile={}", file("text")),
            ],
            "--etcd-keyfile: ",
        ),
    ];
    for (flags, expected) in checks {
        let answer = Command::new(env!("CARGO_BIN_EXE_keelson"))
            .args(["serve", "--secure-port=0", "--bind-address=127.0.0.1", "--data-dir"])
            .arg(dir.path())
            .args(flags)
            .output()
            .expect("the server runs");
        let said = String::from_utf8_lossy(&answer.stderr);
        assert_eq!(answer.status.code(), Some(1), "{flags:?}: {said}");
        assert!(said.starts_with(&format!("keelson: {expected}")), "{flags:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{flags:?}: {said}");
    }
    assert!(!dir.path().join("store").exists());
}

#[test]
fn a_server_waits_for_etcd() {
    let Some((runtime, mut process)) = etcd() else { return };
    process.kill();
    let etcd = Etcd::new(vec![process.url()]);
    let server = std::thread::spawn(|| Server::start_plain(Keelson::builder().etcd(etcd)));
    runtime.block_on(process.restart());
    let server = server.join().expect("the server starts");
    assert_eq!(server.client().get(MAPS).status, 200);
    server.stop();
}

#[test]
fn a_server_that_waits_for_etcd_logs_it_and_can_be_stopped() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut server = Command::new(env!("CARGO_BIN_EXE_keelson"))
        .args(["serve", "--secure-port=0", "--bind-address=127.0.0.1", "--data-dir"])
        .arg(dir.path())
        .arg("--etcd-servers=http://127.0.0.1:1")
        .stderr(Stdio::piped())
        .spawn()
        .expect("the server runs");
    let mut said = String::new();
    let mut lines = BufReader::new(server.stderr.take().expect("its output"));
    lines.read_line(&mut said).expect("a line");
    let line = "--etcd-servers: http://127.0.0.1:1: no etcd server answers: Connection refused";
    assert!(said.contains(line) && said.contains("waiting for it"), "{said}");
    let pid = server.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().expect("a signal").success());
    assert!(server.wait().expect("it ends").success());
    said.clear();
    lines.read_to_string(&mut said).expect("the rest");
    assert_eq!(said, "");
}
