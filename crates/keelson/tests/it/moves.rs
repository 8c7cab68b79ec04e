//! Objects are moved between data folders and etcd by `keelson backup` and `keelson restore`, also
//! those of a kube-apiserver (docs/operations.md).

use crate::backup::{done, refused};
use crate::etcd::etcd;
use crate::http::{Client, Server, revision_of, without_controllers};
use crate::reference::Reference;
use keelson::{Builder, EncryptionFile, Etcd};
use keelson_meta::Features;
use keelson_store::{Op, Store, Txn};
use keelson_store_etcd::{EtcdOptions, EtcdStore};
use keelson_testkit::prerequisites::{API_SERVER, kubernetes_program};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use tempfile::TempDir;

const CONFIG: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n\
    - resources: [secrets]\n  providers:\n\
    \x20 - aesgcm: {keys: [{name: key1, secret: MDEyMzQ1Njc4OWFiY2RlZg==}]}\n\
    \x20 - identity: {}\n";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Collections of the namespace that the tests compare.
const COLLECTIONS: [&str; 6] = [
    "/api/v1/namespaces/shop/secrets",
    "/api/v1/namespaces/shop/configmaps",
    "/api/v1/namespaces/shop/services",
    "/api/v1/namespaces/shop/events",
    "/apis/apps/v1/namespaces/shop/deployments",
    "/apis/example.org/v1/namespaces/shop/ships",
];

/// What creates the objects: path and object.
fn objects() -> Vec<(&'static str, Value)> {
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
        {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    let definition = json!({"metadata": {"name": "ships.example.org"}, "spec": {"group": "example.org",
        "scope": "Namespaced", "versions": [version],
        "names": {"plural": "ships", "singular": "ship", "kind": "Ship"}}});
    let template = json!({"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    vec![
        ("/api/v1/namespaces", json!({"metadata": {"name": "shop"}})),
        (DEFINITIONS, definition),
        (COLLECTIONS[0], json!({"metadata": {"name": "a"}, "data": {"k": "aHVudGVyMg=="}})),
        (COLLECTIONS[1], json!({"metadata": {"name": "a"}, "data": {"k": "v"}})),
        (COLLECTIONS[2], json!({"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}})),
        (
            COLLECTIONS[3],
            json!({"metadata": {"name": "a"}, "involvedObject": {"namespace": "shop"}}),
        ),
        (
            COLLECTIONS[4],
            json!({"metadata": {"name": "a"},
                "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}),
        ),
        (
            COLLECTIONS[5],
            json!({"apiVersion": "example.org/v1", "kind": "Ship", "metadata": {"name": "a"},
                "spec": {"tonnage": 9_007_199_254_740_993_i64}}),
        ),
    ]
}

/// Asserts that a command fails and says why.
fn fails(dir: &Path, words: &[&str], why: &str) {
    let said = refused(dir, words);
    assert!(said.contains(why), "{words:?}: {said}");
}

fn builder(dir: &Path) -> Builder {
    let file = EncryptionFile::read(&dir.join("encryption.yaml"), false, Features::default())
        .expect("a configuration");
    without_controllers().with(|builder| builder.storage.encryption = Some(file))
}

fn fill(client: &Client) {
    for (path, object) in objects() {
        let answer = client.poll(path, |answer| answer.status == 200);
        assert_eq!(answer.status, 200, "{path}");
        let created = client.post(path, &object);
        assert_eq!(created.status, 201, "{path}: {:?}", created.body);
    }
}

/// Returns the objects of all collections by their path.
fn read(get: impl Fn(&str) -> Option<Value>) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for path in COLLECTIONS {
        let list = get(path).unwrap_or_else(|| panic!("{path} is not served"));
        for item in list["items"].as_array().into_iter().flatten() {
            let name = item["metadata"]["name"].as_str().expect("a name");
            found.insert(format!("{path}/{name}"), item.clone());
        }
    }
    found
}

fn read_from(client: &Client) -> BTreeMap<String, Value> {
    read(|path| Some(client.poll(path, |answer| answer.status == 200).body.clone()))
}

fn without_revisions(mut objects: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    for object in objects.values_mut() {
        object["metadata"].as_object_mut().expect("metadata").remove("resourceVersion");
    }
    objects
}

#[test]
fn a_data_folder_moves_to_etcd_and_back() {
    let Some((runtime, etcd)) = etcd() else { return };
    let folder = TempDir::new().expect("a folder");
    let dir = folder.path();
    let url = etcd.url();
    std::fs::write(dir.join("encryption.yaml"), CONFIG).expect("a file");
    let servers = format!("--etcd-servers={url}");
    let keys = "--encryption-provider-config=encryption.yaml";

    let server = Server::start_plain(without_controllers().data_dir(dir.join("first")));
    fill(&server.client());
    let first = read_from(&server.client());
    assert_eq!(first.len(), COLLECTIONS.len(), "{:?}", first.keys());
    server.stop();
    done(dir, &["backup", "one", "--data-dir=first"]);

    // Nothing is written of a backup that is damaged.
    let mut damaged = std::fs::read(dir.join("one")).expect("the backup");
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    std::fs::write(dir.join("damaged"), damaged).expect("a file");
    fails(dir, &["restore", "damaged", &servers], "the checksum does not fit");
    fails(dir, &["restore", "-", &servers], "it must be a file");
    done(dir, &["restore", "one", &servers, keys]);
    fails(dir, &["restore", "one", &servers, keys], "the cluster has objects");
    let opened = runtime.block_on(EtcdStore::open(EtcdOptions::new(vec![url.clone()])));
    let raw = opened.expect("etcd answers");
    let stored = runtime
        .block_on(raw.get(b"/registry/secrets/shop/a"))
        .expect("an answer")
        .expect("the secret")
        .value;
    assert!(stored.starts_with(b"k8s:enc:aesgcm:v1:key1:"), "{stored:?}");

    let server = Server::start_plain(builder(dir).etcd(Etcd::new(vec![url.clone()])));
    let in_etcd = read_from(&server.client());
    assert_eq!(without_revisions(in_etcd.clone()), without_revisions(first));
    server.stop();

    fails(
        dir,
        &["backup", "two", &servers],
        "secrets/shop/a: identity transformer tried to read encrypted data; if it is encrypted",
    );
    done(dir, &["backup", "two", &servers, keys]);
    done(dir, &["restore", "two", "--data-dir=second"]);
    done(dir, &["check", "--data-dir=second", keys]);
    let server = Server::start_plain(builder(dir).data_dir(dir.join("second")));
    let client = server.client();
    // The revisions are those of etcd, and go on from there.
    let moved = read_from(&client);
    assert_eq!(moved, in_etcd);
    let newest = moved.values().map(revision_of).max();
    let created = client.post(COLLECTIONS[1], &json!({"metadata": {"name": "new"}}));
    assert!(Some(revision_of(&created.body)) > newest);
    server.stop();

    // What cannot be decoded is named; a backup without it would lose it.
    let op = Op::put("/registry/others/a".to_owned(), b"k8s\0\x01".to_vec());
    let txn = Txn { compare: vec![], ops: vec![op] };
    runtime.block_on(raw.txn(txn)).expect("a write");
    let unknown = "/registry/others/a: this version of Keelson does not know its kind";
    fails(dir, &["backup", "three", &servers, keys], unknown);
    assert!(!dir.join("three").exists());
}

#[test]
fn a_kube_apiserver_moves_to_a_data_folder_and_back() {
    let Some(program) = kubernetes_program(API_SERVER, "kube-apiserver") else { return };
    let Some((_runtime, etcd)) = etcd() else { return };
    let folder = TempDir::new().expect("a folder");
    let dir = folder.path();
    let servers = format!("--etcd-servers={}", etcd.url());
    let reference = Reference::start(&program, &etcd.url(), dir, &[]);
    for (path, object) in objects() {
        let served = || reference.api.get(path).ok().filter(|got| got.code == 200);
        assert!(keelson_testkit::poll(crate::http::POLL_TIMEOUT, served).is_some(), "{path}");
        let created = reference.api.post(path, &object).expect("an answer");
        assert_eq!(created.code, 201, "{path}: {:?}", created.body);
    }
    let list = |reference: &Reference, path: &str| {
        let served = || reference.api.get(path).ok().filter(|got| got.code == 200);
        keelson_testkit::poll(crate::http::POLL_TIMEOUT, served).map(|got| got.body)
    };
    let first = read(|path| list(&reference, path));
    assert_eq!(first.len(), COLLECTIONS.len(), "{:?}", first.keys());
    drop(reference);

    done(dir, &["backup", "one", &servers]);
    done(dir, &["restore", "one", "--data-dir=data"]);
    let server = Server::start_plain(without_controllers().data_dir(dir.join("data")));
    let moved = read_from(&server.client());
    assert_eq!(moved, first);
    let created = server.client().post(COLLECTIONS[1], &json!({"metadata": {"name": "new"}}));
    assert_eq!(created.status, 201);
    let changed = read_from(&server.client());
    server.stop();

    done(dir, &["backup", "two", "--data-dir=data"]);
    done(dir, &["restore", "two", &servers, "--etcd-prefix=/moved"]);
    let reference = Reference::start(&program, &etcd.url(), dir, &["--etcd-prefix=/moved"]);
    let back = read(|path| list(&reference, path));
    assert_eq!(without_revisions(back), without_revisions(changed));
}
