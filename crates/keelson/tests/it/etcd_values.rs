//! Values in etcd are those of kube-apiserver: they can be decoded with the schema, and values that
//! kube-apiserver has written are served.

use crate::controllers::wait_until;
use crate::etcd::{etcd, serve};
use crate::http::{Client, Response, Server};
use crate::reference::Reference;
use bytes::Bytes;
use keelson::{Etcd, Keelson, StorageMediaType};
use keelson_meta::{Features, GroupVersion};
use keelson_schema::catalogue::Catalogue;
use keelson_schema::{json, proto};
use keelson_store::{Op, Store, Txn, TxnOutcome};
use keelson_store_etcd::testing::EtcdProcess;
use keelson_store_etcd::{EtcdOptions, EtcdStore};
use keelson_testkit::prerequisites::{API_SERVER, kubernetes_program, reference_data};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::runtime::Runtime;

const PODS: &str = "/api/v1/namespaces/default/pods";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// A client of etcd itself.
struct Raw<'r> {
    runtime: &'r Runtime,
    store: Arc<EtcdStore>,
}

impl<'r> Raw<'r> {
    fn open(runtime: &'r Runtime, etcd: &EtcdProcess) -> Raw<'r> {
        let opened = runtime.block_on(EtcdStore::open(EtcdOptions::new(vec![etcd.url()])));
        Raw { runtime, store: opened.expect("etcd answers") }
    }

    fn get(&self, key: &str) -> Bytes {
        let found = self.runtime.block_on(self.store.get(key.as_bytes())).expect("an answer");
        found.unwrap_or_else(|| panic!("{key} is not there")).value
    }

    fn put(&self, key: &str, value: impl Into<Bytes>) {
        let key = Bytes::copy_from_slice(key.as_bytes());
        let txn =
            Txn { compare: vec![], ops: vec![Op::Put { key, value: value.into(), lease: None }] };
        let done = self.runtime.block_on(self.store.txn(txn)).expect("a write");
        assert!(matches!(done, TxnOutcome::Committed(_)));
    }
}

/// Decodes an envelope. Returns the object as JSON, and its apiVersion and kind.
fn unwrapped(value: &[u8]) -> (String, Value) {
    let envelope = proto::decode_envelope(value).expect("an envelope");
    let version = GroupVersion::parse(&envelope.api_version).expect("a version");
    let schema = Catalogue::shared()
        .schema_or_unserved(&version.kind(&*envelope.kind))
        .expect("a known kind");
    let obj = proto::decode_message(&schema, envelope.raw).expect("an object");
    let mut text = vec![];
    json::encode(&schema, &obj, &mut text);
    let what = format!("{} {}", envelope.api_version, envelope.kind);
    (what, serde_json::from_slice(&text).expect("JSON"))
}

fn without_revision(mut obj: Value) -> Value {
    let metadata = obj["metadata"].as_object_mut().expect("metadata");
    assert!(metadata.remove("resourceVersion").is_some());
    obj
}

#[test]
fn stored_values_have_the_encoding_of_kube_apiserver() {
    let Some((runtime, etcd)) = etcd() else { return };
    let server = serve(&etcd);
    let client = server.client();
    let raw = Raw::open(&runtime, &etcd);
    let of = |kind: &str, api_version: &str, rest: Value| {
        let mut obj = json!({"kind": kind, "apiVersion": api_version, "metadata": {"name": "a"}});
        obj.as_object_mut().expect("a map").extend(rest.as_object().expect("a map").clone());
        obj
    };
    let template = json!({"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let checks = [
        (SECRETS, "secrets/default/a", of("Secret", "v1", json!({"data": {"k": "aGk="}}))),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            "deployments/default/a",
            of(
                "Deployment",
                "apps/v1",
                json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}),
            ),
        ),
        (
            "/api/v1/namespaces/default/services",
            "services/specs/default/a",
            of("Service", "v1", json!({"spec": {"ports": [{"port": 80}]}})),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            "clusterroles/a",
            of("ClusterRole", "rbac.authorization.k8s.io/v1", json!({"rules": []})),
        ),
    ];
    for (path, key, obj) in checks {
        let created = client.post(path, &obj);
        assert_eq!(created.status, 201, "{created:?}");
        let (what, stored) = unwrapped(&raw.get(&format!("/registry/{key}")));
        assert_eq!(what, format!("{} {}", obj["apiVersion"], obj["kind"]).replace('"', ""));
        assert_eq!(stored, without_revision(created.body), "{key}");
    }
    let definition = definition(&json!({"type": "object"}));
    assert_eq!(client.post(DEFINITIONS, &definition).status, 201);
    let key = "/registry/apiextensions.k8s.io/customresourcedefinitions/as.example.com";
    let stored: Value = serde_json::from_slice(&raw.get(key)).expect("JSON");
    assert_eq!(stored["apiVersion"], "apiextensions.k8s.io/v1beta1");
    assert_eq!(stored["spec"]["validation"], json!({"openAPIV3Schema": {"type": "object"}}));
    assert_eq!(stored["metadata"].get("resourceVersion"), None);
    server.stop();
}

/// Returns a definition of `as.example.com` with the versions v1 (storage) and v2.
fn definition(schema: &Value) -> Value {
    let version = |name: &str| {
        json!({"name": name, "served": true, "storage": name == "v1",
            "schema": {"openAPIV3Schema": schema}})
    };
    json!({"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {"name": "as.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "as", "singular": "a", "kind": "A", "listKind": "AList"},
            "versions": [version("v1"), version("v2")]}})
}

#[test]
fn custom_resources_are_stored_as_by_kube_apiserver() {
    let Some((runtime, etcd)) = etcd() else { return };
    let raw = Raw::open(&runtime, &etcd);
    let server = serve(&etcd);
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object",
        "properties": {"z": {"type": "string"}, "b": {"type": "integer", "default": 3}}}}});
    assert_eq!(server.client().post(DEFINITIONS, &definition(&schema)).status, 201);
    let client = server.client();
    let path = "/apis/example.com/v1/namespaces/default/as";
    let old = "/registry/example.com/as/old/a";
    wait_until("the definition is served", || client.get(path).status == 200);
    let obj = json!({"kind": "A", "apiVersion": "example.com/v2", "metadata": {"name": "a",
        "labels": {"x": "y"}}, "spec": {"z": "<"}});
    let created = client.post(&path.replace("v1", "v2"), &obj);
    assert_eq!(created.status, 201, "{created:?}");
    let stored = raw.get("/registry/example.com/as/default/a");
    let text = std::str::from_utf8(&stored).expect("text");
    let first = r#"{"apiVersion":"example.com/v1","kind":"A","metadata":{"creationTimestamp":"#;
    assert!(text.starts_with(first), "{text}");
    assert!(text.ends_with("},\"spec\":{\"b\":3,\"z\":\"\\u003c\"}}\n"), "{text}");
    assert!(!text.contains("resourceVersion"), "{text}");
    // Writes of other processes arrive through the watch.
    let mut watch = client.open_watch(&format!("{path}?watch=1&labelSelector=of%3Dkube"));
    let foreign = |name: &str| {
        text.replace(r#""x":"y""#, r#""of":"kube""#)
            .replace(r#""name":"a""#, &format!(r#""name":"{name}""#))
            .replace(r#""b":3,"#, r#""b":4,"#)
    };
    raw.put("/registry/example.com/as/default/kube", foreign("kube"));
    assert_eq!(watch.next_types_and_names(1), [("ADDED".to_owned(), "kube".to_owned())]);
    // The format of earlier releases of Keelson.
    let form = keelson_resources::EtcdCodec::new(&[], Features::default());
    let in_old = text.replace(r#""namespace":"default""#, r#""namespace":"old""#);
    raw.put(old, form.decode(old.as_bytes(), in_old.into()));
    server.stop();

    raw.put("/registry/example.com/as/default/late", foreign("late"));
    raw.put("/registry/example.com/as/torn/torn", "k8s\0");
    let server = serve(&etcd);
    let client = server.client();
    let of_kube = client.get(&format!("{path}?labelSelector=of%3Dkube")).body;
    let names: Vec<_> = of_kube["items"]
        .as_array()
        .expect("items")
        .iter()
        .map(|item| &item["metadata"]["name"])
        .collect();
    assert_eq!(names, ["kube", "late"]);
    assert_eq!(client.get(&format!("{path}/late")).body["spec"], json!({"b": 4, "z": "<"}));
    assert_eq!(client.get(&format!("{path}/a")).body["spec"], created.body["spec"]);
    // A no-op write stores nothing, although another process has read the object.
    let body = json!({"spec": {"z": "<"}});
    let unchanged =
        client.call("PATCH", &format!("{path}/a"), "application/merge-patch+json", Some(&body));
    let revision = |body: &Value| body["metadata"]["resourceVersion"].clone();
    assert_eq!(revision(&unchanged.body), revision(&created.body), "{unchanged:?}");
    let in_old = client.get("/apis/example.com/v1/namespaces/old/as/a").body;
    assert_eq!(in_old["spec"], created.body["spec"]);
    let namespace = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "old"}});
    assert_eq!(client.post("/api/v1/namespaces", &namespace).status, 201);
    let body = json!({"spec": {"z": "new"}});
    let path = "/apis/example.com/v1/namespaces/old/as/a";
    assert_eq!(client.call("PATCH", path, "application/merge-patch+json", Some(&body)).status, 200);
    assert_eq!(raw.get(old)[0], b'{');
    let torn = client.get("/apis/example.com/v1/namespaces/torn/as/torn");
    let why = r#"unable to transform key "/registry/example.com/as/torn/torn": it is not JSON"#;
    assert_eq!((torn.status, &torn.body["message"]), (500, &json!(why)));
    server.stop();
}

/// A server that stores objects in an encoding. It leaves the service `kubernetes` to others.
fn serve_storing(etcd: &EtcdProcess, media_type: StorageMediaType) -> Server {
    let mut builder = Keelson::builder().etcd(Etcd::new(vec![etcd.url()])).no_controllers();
    builder.storage.media_type = media_type;
    Server::start_plain(builder)
}

/// Writes the secret `a` as it was read.
fn put(client: &Client, secret: &Value) -> Response {
    client.call("PUT", &format!("{SECRETS}/a"), "application/json", Some(secret))
}

const FORMS: [(StorageMediaType, &str, &str); 3] = [
    (StorageMediaType::Protobuf, "application/vnd.kubernetes.protobuf", "k8s\0"),
    (StorageMediaType::Json, "application/json", "{\"kind\":"),
    (StorageMediaType::Yaml, "application/yaml", "apiVersion: v1\n"),
];

#[test]
fn objects_are_stored_in_the_chosen_encoding_and_taken_over_from_others() {
    let Some((runtime, etcd)) = etcd() else { return };
    let raw = Raw::open(&runtime, &etcd);
    let key = "/registry/secrets/default/a";
    let secret = json!({"metadata": {"name": "a"}, "data": {"k": "aGk="}});
    let mut before: Option<Value> = None;
    // From each encoding to each.
    for number in [0, 1, 2, 1, 0, 2, 0] {
        let (media_type, _, first) = FORMS[number];
        let server = serve_storing(&etcd, media_type);
        let client = server.client();
        let ours = match before {
            None => client.post(SECRETS, &secret),
            Some(before) => {
                let read = client.get(&format!("{SECRETS}/a"));
                assert_eq!((read.status, &read.body), (200, &before), "{first}");
                // A write that changes nothing stores it in the new encoding.
                put(&client, &read.body)
            }
        };
        assert!(matches!(ours.status, 200 | 201), "{ours:?}");
        let stored = raw.get(key);
        assert!(stored.starts_with(first.as_bytes()), "{:?}", String::from_utf8_lossy(&stored));
        let again = put(&client, &ours.body);
        assert_eq!(again.body, ours.body, "and then nothing more");
        let service = json!({"metadata": {"name": format!("s{number}"), "namespace": "default"},
            "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
        let path = "/api/v1/namespaces/default/services";
        assert!(matches!(client.post(path, &service).status, 201 | 409));
        let ports = raw.get("/registry/ranges/servicenodeports");
        assert!(ports.starts_with(b"k8s") || !first.starts_with("k8s"), "{ports:?}");
        before = Some(ours.body);
        server.stop();
    }
}

#[test]
fn a_stock_kube_apiserver_reads_each_encoding_and_is_read() {
    let Some(program) = kubernetes_program(API_SERVER, "kube-apiserver") else { return };
    for (media_type, name, first) in FORMS {
        let Some((runtime, etcd)) = etcd() else { return };
        let raw = Raw::open(&runtime, &etcd);
        let dir = tempfile::tempdir().expect("a folder");
        let server = serve_storing(&etcd, media_type);
        let client = server.client();
        let object = |name: &str| json!({"metadata": {"name": name}, "data": {"k": "aGk="}});
        assert_eq!(client.post(SECRETS, &object("ours")).status, 201);
        let flag = format!("--storage-media-type={name}");
        let reference = Reference::start(&program, &etcd.url(), dir.path(), &[&flag]);
        let read = reference.api.get(&format!("{SECRETS}/ours")).expect("an answer");
        let ours = client.get(&format!("{SECRETS}/ours")).body;
        assert_eq!((read.code, read.body), (200, ours), "{name}");
        let created = reference.api.post(SECRETS, &object("theirs")).expect("an answer");
        assert_eq!(created.code, 201, "{}", created.body);
        let theirs = client.poll(&format!("{SECRETS}/theirs"), |got| got.status == 200);
        assert_eq!(theirs.body, created.body, "{name}");
        let values =
            ["ours", "theirs"].map(|name| raw.get(&format!("/registry/secrets/default/{name}")));
        for value in &values {
            assert!(value.starts_with(first.as_bytes()), "{:?}", String::from_utf8_lossy(value));
        }
        server.stop();
    }
}

/// Returns a populated object as kube-apiserver stores it, and as it returns it.
fn populated(stem: &str) -> Option<(Bytes, Value)> {
    let path = reference_data(&format!("reference/roundtrip/{stem}.pb"))?;
    let body = std::fs::read(path).expect("a populated object");
    let (_, obj) = unwrapped(&body);
    Some((body.into(), obj))
}

#[test]
fn data_of_a_kube_apiserver_is_served() {
    let Some((runtime, etcd)) = etcd() else { return };
    let raw = Raw::open(&runtime, &etcd);
    let namespace = "namespaceValue";
    let name = "nameValue";
    let checks = [
        ("core.v1.ConfigMap", "configmaps", "/api/v1/namespaces/{}/configmaps"),
        ("core.v1.Service", "services/specs", "/api/v1/namespaces/{}/services"),
        ("core.v1.Event", "events", "/api/v1/namespaces/{}/events"),
        (
            "coordination.k8s.io.v1.Lease",
            "leases",
            "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
        ),
        (
            "networking.k8s.io.v1.Ingress",
            "ingress",
            "/apis/networking.k8s.io/v1/namespaces/{}/ingresses",
        ),
    ];
    let mut expected = vec![];
    for (stem, key, path) in checks {
        let Some((body, mut obj)) = populated(stem) else { return };
        raw.put(&format!("/registry/{key}/{namespace}/{name}"), body);
        let metadata = obj["metadata"].as_object_mut().expect("metadata");
        metadata.remove("resourceVersion");
        expected.push((format!("{}/{name}", path.replace("{}", namespace)), obj));
    }
    let map = json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {"k": "v"},
        "metadata": {"name": "old", "namespace": "default", "uid": "u", "creationTimestamp": null}});
    raw.put("/registry/configmaps/default/old", map.to_string());
    let hpa = json!({"kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v1",
        "metadata": {"name": "old", "namespace": "default"},
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d"}}});
    raw.put("/registry/horizontalpodautoscalers/default/old", hpa.to_string());
    let server = serve(&etcd);
    let client = server.client();
    for (path, obj) in expected {
        let read = client.get(&path);
        assert_eq!(read.status, 200, "{read:?}");
        assert_eq!(without_revision(read.body), obj, "{path}");
    }
    let old = "/api/v1/namespaces/default/configmaps/old";
    assert_eq!(client.get(old).body["data"], json!({"k": "v"}));
    let patch = json!({"data": {"k": "w"}});
    assert_eq!(client.call("PATCH", old, "application/merge-patch+json", Some(&patch)).status, 200);
    let (what, stored) = unwrapped(&raw.get("/registry/configmaps/default/old"));
    assert_eq!(
        (&*what, &stored["data"], &stored["metadata"]["uid"]),
        ("v1 ConfigMap", &json!({"k": "w"}), &json!("u"))
    );
    for (version, place) in [("v1", "/spec/minReplicas"), ("v2", "/spec/minReplicas")] {
        let path =
            format!("/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers/old");
        assert_eq!(client.get(&path).body.pointer(place), Some(&json!(1)));
    }
    server.stop();
}

#[test]
fn foreign_keys_and_unreadable_values_affect_no_other_object() {
    let Some((runtime, etcd)) = etcd() else { return };
    let raw = Raw::open(&runtime, &etcd);
    let foreign = |round: &str| {
        raw.put("/registry/masterleases/10.1.2.3", format!("k8s\0 {round}"));
        raw.put("/registry/ranges/serviceips", format!("k8s\0 {round}"));
        raw.put("/registry/example.com/as/a", format!("not JSON {round}"));
        raw.put("/registry/health", round.to_owned());
    };
    foreign("before");
    raw.put("/registry/secrets/default/locked", "k8s:enc:aescbc:v1:key1:...");
    raw.put("/registry/pods/other/torn", "k8s\0\x0a\x7f");
    let builder = Keelson::builder().etcd(Etcd::new(vec![etcd.url()])).no_controllers();
    let server = Server::start_plain(builder);
    let client = server.client();
    let locked = r#"unable to transform key "/registry/secrets/default/locked": identity transformer tried to read encrypted data"#;
    for path in [SECRETS, "/api/v1/secrets", &format!("{SECRETS}/locked")] {
        let answer = client.get(path);
        assert_eq!((answer.status, &answer.body["message"]), (500, &json!(locked)), "{path}");
    }
    let patch = json!({"data": {}});
    let path = format!("{SECRETS}/locked");
    let answer = client.call("PATCH", &path, "application/merge-patch+json", Some(&patch));
    assert_eq!((answer.status, &answer.body["message"]), (500, &json!(locked)));
    let secret = json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "open"}});
    assert_eq!(client.post(SECRETS, &secret).status, 201);
    assert_eq!(client.get(&format!("{SECRETS}/open")).status, 200);
    // Other namespaces are unaffected, and later writes work.
    assert_eq!(client.get(PODS).status, 200);
    assert_eq!(client.get("/api/v1/pods").status, 500);
    let mut watch = client.open_watch("/api/v1/namespaces/default/configmaps?watch=1");
    foreign("after");
    raw.put("/registry/configmaps/default/torn", "torn");
    let map = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "whole"}});
    assert_eq!(client.post("/api/v1/namespaces/default/configmaps", &map).status, 201);
    assert_eq!(watch.next_types_and_names(1), [("ADDED".to_owned(), "whole".to_owned())]);
    let maps = client.get("/api/v1/namespaces/default/configmaps");
    assert_eq!(maps.status, 500);
    raw.put("/registry/configmaps/default/torn", r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"torn","namespace":"default"}}"#);
    assert_eq!(watch.next_types_and_names(1), [("ADDED".to_owned(), "torn".to_owned())]);
    assert_eq!(client.get("/api/v1/namespaces/default/configmaps").status, 200);
    server.stop();
}
