//! `--etcd-servers-overrides`: events in an etcd of their own, with its revisions.

use crate::etcd::etcd;
use crate::http::{Client, Server, revision_of};
use crate::reference::Reference;
use keelson::{Etcd, Keelson};
use keelson_store::{KeyValue, Op, Store, Txn};
use keelson_store_etcd::testing::EtcdProcess;
use keelson_store_etcd::{EtcdOptions, EtcdStore};
use keelson_testkit::prerequisites::{API_SERVER, kubernetes_program};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

const EVENTS: &str = "/api/v1/namespaces/default/events";
const SAME_EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MERGE: &str = "application/merge-patch+json";

/// Two clusters.
struct Clusters {
    runtime: Runtime,
    main: EtcdProcess,
    of_events: EtcdProcess,
}

impl Clusters {
    fn start() -> Option<Clusters> {
        let (runtime, main) = etcd()?;
        let (_, of_events) = etcd()?;
        Some(Clusters { runtime, main, of_events })
    }

    /// Starts a server without control loops: all writes are those of the test.
    fn serve(&self) -> Server {
        let overrides = vec![self.flag().parse().expect("an override")];
        let etcd = Etcd { overrides, ..Etcd::new(vec![self.main.url()]) };
        Server::start_plain(Keelson::builder().etcd(etcd).no_controllers())
    }

    fn flag(&self) -> String {
        format!("/events#{}", self.of_events.url())
    }

    fn open(&self, etcd: &EtcdProcess) -> std::sync::Arc<EtcdStore> {
        let opened = EtcdStore::open(EtcdOptions::new(vec![etcd.url()]));
        self.runtime.block_on(opened).expect("etcd answers")
    }

    fn get(&self, etcd: &EtcdProcess, key: &str) -> Option<KeyValue> {
        self.runtime.block_on(self.open(etcd).get(key.as_bytes())).expect("an answer")
    }
}

fn event(name: &str) -> Value {
    json!({"metadata": {"name": name}, "involvedObject": {"namespace": "default"}, "message": "m"})
}

fn create(client: &Client, path: &str, object: &Value) -> Value {
    let created = client.post(path, object);
    assert_eq!(created.status, 201, "{created:?}");
    created.body
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().expect("items");
    items.iter().filter_map(|item| item["metadata"]["name"].as_str()).collect()
}

#[test]
fn a_resource_of_another_cluster_is_there_alone_and_has_its_revisions() {
    let Some(clusters) = Clusters::start() else { return };
    // What another server left in the first cluster is not served.
    let left_over = Op::put("/registry/events/default/left-over", "{}");
    let main = clusters.open(&clusters.main);
    let written = main.txn(Txn { compare: vec![], ops: vec![left_over] });
    clusters.runtime.block_on(written).expect("a write");
    let server = clusters.serve();
    let client = server.client();
    let map = create(&client, MAPS, &json!({"metadata": {"name": "m"}}));
    let first = create(&client, EVENTS, &event("a"));
    let key = "/registry/events/default/a";
    let stored = clusters.get(&clusters.of_events, key).expect("it is there");
    assert_eq!(stored.modified.0, revision_of(&first));
    assert_eq!(clusters.get(&clusters.main, key), None);
    let map_key = "/registry/configmaps/default/m";
    let stored = clusters.get(&clusters.main, map_key).expect("it is there");
    assert_eq!(stored.modified.0, revision_of(&map));
    assert_eq!(clusters.get(&clusters.of_events, map_key), None);
    for path in [EVENTS, SAME_EVENTS] {
        let list = client.get(path).body;
        assert_eq!((names(&list), revision_of(&list)), (vec!["a"], revision_of(&first)), "{path}");
    }
    assert!(revision_of(&client.get(MAPS).body) > revision_of(&first), "other revisions");
    let absent = json!({"metadata": {"name": "b", "namespace": "absent"},
        "involvedObject": {"namespace": "absent"}});
    assert_eq!(client.post("/api/v1/namespaces/absent/events", &absent).status, 404);
    server.stop();
}

#[test]
fn lists_and_watches_go_on_at_the_revisions_of_the_other_cluster_also_after_a_restart() {
    let Some(clusters) = Clusters::start() else { return };
    let server = clusters.serve();
    let client = server.client();
    let first = create(&client, EVENTS, &event("a"));
    let from = revision_of(&first);
    // Writes to the first cluster do not count.
    for name in ["m1", "m2"] {
        create(&client, MAPS, &json!({"metadata": {"name": name}}));
    }
    let mut watch = client.open_watch(&format!("{EVENTS}?watch=1&resourceVersion={from}"));
    let patch = json!({"message": "changed"});
    let changed = client.call("PATCH", &format!("{EVENTS}/a"), MERGE, Some(&patch));
    assert_eq!((changed.status, revision_of(&changed.body)), (200, from + 1));
    create(
        &client,
        SAME_EVENTS,
        &json!({"metadata": {"name": "b"},
        "regarding": {"namespace": "default"}, "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "c", "reportingInstance": "i", "action": "a", "reason": "r",
        "type": "Normal"}),
    );
    let expected = [("MODIFIED", "a"), ("ADDED", "b")];
    let expected = expected.map(|(kind, name)| (kind.to_owned(), name.to_owned()));
    assert_eq!(watch.next_types_and_names(2), expected);
    let past = format!("{EVENTS}?resourceVersion={from}&resourceVersionMatch=Exact");
    assert_eq!(names(&client.get(&past).body), ["a"]);
    let page = client.get(&format!("{EVENTS}?limit=1")).body;
    let token = page["metadata"]["continue"].as_str().expect("there is more").to_owned();
    assert_eq!(client.delete(&format!("{EVENTS}/b")).status, 200);
    let rest = client.get(&format!("{EVENTS}?limit=1&continue={token}")).body;
    assert_eq!((names(&rest), revision_of(&rest)), (vec!["b"], from + 2));
    let future = client.get(&format!("{EVENTS}?resourceVersion={}", from + 1000));
    assert_eq!(future.status, 504, "{future:?}");
    server.stop();

    let server = clusters.serve();
    let client = server.client();
    let list = client.get(EVENTS).body;
    assert_eq!((names(&list), revision_of(&list)), (vec!["a"], from + 3));
    let mut watch = client.open_watch(&format!("{EVENTS}?watch=1&resourceVersion={}", from + 3));
    create(&client, EVENTS, &event("c"));
    assert_eq!(watch.next_types_and_names(1), [("ADDED".to_owned(), "c".to_owned())]);
    server.stop();
}

#[test]
fn a_cluster_that_fails_has_checks_of_its_own_and_stops_its_resources_only() {
    let Some(mut clusters) = Clusters::start() else { return };
    let server = clusters.serve();
    let client = server.client();
    create(&client, EVENTS, &event("a"));
    let ready = client.get("/readyz?verbose").body;
    let ready = ready.as_str().expect("text");
    let checks = "[+]etcd ok\n[+]etcd-readiness ok\n[+]etcd-override-0 ok\n[+]etcd-override-readiness-0 ok\n";
    assert!(ready.contains(checks) && !ready.contains("etcd-override-1"), "{ready}");
    let live = client.get("/livez?verbose").body;
    let live = live.as_str().expect("text");
    assert!(live.contains("[+]etcd ok\n[+]etcd-override-0 ok\n") && !live.contains("readiness-0"));
    let metrics = client.get("/metrics").body;
    let metrics = metrics.as_str().expect("text");
    for cluster in ["etcd-0", "etcd-1"] {
        let series = format!("apiserver_storage_size_bytes{{storage_cluster_id=\"{cluster}\"}} ");
        assert!(metrics.contains(&series), "{cluster}");
    }
    clusters.of_events.kill();
    client.poll("/readyz/etcd-override-0", |answer| {
        // What the last requests met is what counts.
        client.get(EVENTS);
        answer.status == 500
    });
    assert_eq!(client.get("/readyz/etcd").status, 200);
    assert_eq!(client.get("/readyz").status, 500);
    create(&client, MAPS, &json!({"metadata": {"name": "m"}}));
    assert_eq!(client.get(MAPS).status, 200);
    clusters.runtime.block_on(clusters.of_events.restart());
    client.poll("/readyz", |answer| {
        client.get(EVENTS);
        answer.status == 200
    });
    assert_eq!(names(&client.get(EVENTS).body), ["a"]);
    server.stop();
}

#[test]
fn a_stock_kube_apiserver_and_keelson_share_both_clusters() {
    let Some(program) = kubernetes_program(API_SERVER, "kube-apiserver") else { return };
    let Some(clusters) = Clusters::start() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let flag = format!("--etcd-servers-overrides={}", clusters.flag());
    let reference = Reference::start(&program, &clusters.main.url(), dir.path(), &[&flag]);
    let server = clusters.serve();
    let client = server.client();
    let theirs = reference.api.post(EVENTS, &event("theirs")).expect("an answer");
    assert_eq!(theirs.code, 201, "{}", theirs.body);
    assert_eq!(client.get(&format!("{EVENTS}/theirs")).body, theirs.body);
    let from = revision_of(&theirs.body);
    let mut watch = client.open_watch(&format!("{EVENTS}?watch=1&resourceVersion={from}"));
    let ours = create(&client, EVENTS, &event("ours"));
    let read = reference.api.get(&format!("{EVENTS}/ours")).expect("an answer");
    assert_eq!(read.body, ours);
    assert_eq!(watch.next_types_and_names(1), [("ADDED".to_owned(), "ours".to_owned())]);
    let lists = [client.get(EVENTS).body, reference.api.get(EVENTS).expect("an answer").body];
    assert_eq!(names(&lists[0]), names(&lists[1]));
    server.stop();
}
