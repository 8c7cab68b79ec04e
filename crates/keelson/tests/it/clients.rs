//! Other clients: the official one for Python, and kube-rs. Both send the objects of
//! `clients/twenty.yaml` through all verbs.

mod streams;

use crate::http::{POLL_TIMEOUT, Server};
use futures_util::{StreamExt, TryStreamExt};
use keelson::Keelson;
use keelson_testkit::prerequisites::{PYTHON_CLIENT, prerequisite};
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent,
    WatchParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::discovery::{self, Scope};
use kube::{Client, Config};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

const LABEL: &str = "example.org/step";

pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients")
}

/// Returns a Python with the client: that of `cargo xtask ci`, or that of the system.
fn python() -> Option<PathBuf> {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/clients/bin/python");
    let found = [ours, PathBuf::from("python3")].into_iter().find(|python| {
        let has = Command::new(python).args(["-c", "import kubernetes.dynamic, yaml"]).output();
        has.is_ok_and(|output| output.status.success())
    });
    prerequisite(PYTHON_CLIENT, found)
}

#[test]
fn the_python_client_works() {
    let Some(printed) = run_python("twenty.py") else { return };
    assert_eq!(printed, "22 kinds");
}

/// Runs a program of `clients` with a new server. Returns its output; `None` if there is no client
/// for Python.
pub fn run_python(program: &str) -> Option<String> {
    let python = python()?;
    let server = Server::start(Keelson::builder());
    let dir = tempfile::tempdir().expect("a folder");
    let kubeconfig = dir.path().join("kubeconfig");
    std::fs::write(&kubeconfig, server.keelson.kubeconfig().text())
        .expect("the kubeconfig can be written");
    let output = Command::new(python)
        .arg(folder().join(program))
        .arg(&kubeconfig)
        .output()
        .expect("Python runs");
    let printed = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    assert!(output.status.success(), "{printed} {}", String::from_utf8_lossy(&output.stderr));
    server.stop();
    Some(printed)
}

fn objects() -> Vec<DynamicObject> {
    let text = std::fs::read_to_string(folder().join("twenty.yaml")).expect("the objects");
    text.split("---\n")
        .map(|document| {
            let parsed = keelson_schema::yaml::parse(document).expect("YAML");
            let mut json = vec![];
            keelson_schema::json::write_value(&parsed.value, &mut json);
            serde_json::from_slice(&json).expect("an object")
        })
        .collect()
}

/// Returns a kube-rs client of the administrator.
pub async fn kube_client(server: &Server) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(server.keelson.kubeconfig().text())
        .expect("a kubeconfig that kube-rs reads");
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.expect("a config");
    Client::try_from(config).expect("a client")
}

#[test]
fn kube_rs_works() {
    let server = Server::start(Keelson::builder().no_controllers());
    server.block_on(async {
        let client = kube_client(&server).await;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "clients"}});
        let namespace = serde_json::from_value(namespace).expect("an object");
        create(&client, &namespace).await;
        let objects = objects();
        assert_eq!(objects.len(), 22);
        for object in &objects {
            let all = all_verbs(&client, object);
            tokio::time::timeout(POLL_TIMEOUT, all).await.expect("the server answers in time");
        }
    });
    server.stop();
}

async fn api_of(client: &Client, object: &DynamicObject) -> Api<DynamicObject> {
    let types = object.types.as_ref().expect("a kind");
    let gvk = types.try_into().expect("a group and version");
    let found = discovery::pinned_kind(client, &gvk).await.expect("the kind is served");
    let (resource, capabilities) = found;
    match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => Api::namespaced_with(client.clone(), "clients", &resource),
    }
}

async fn create(client: &Client, object: &DynamicObject) -> DynamicObject {
    let api = api_of(client, object).await;
    api.create(&PostParams::default(), object).await.expect("a new object")
}

async fn all_verbs(client: &Client, object: &DynamicObject) {
    let api = api_of(client, object).await;
    let name = object.metadata.name.as_deref().expect("a name");
    let made = create(client, object).await;
    let got = api.get(name).await.expect("the object");
    assert_eq!(got.metadata.uid, made.metadata.uid, "{name}");

    let listed = api.list(&ListParams::default()).await.expect("a list");
    assert!(listed.items.iter().any(|item| item.metadata.name.as_deref() == Some(name)));
    let since = listed.metadata.resource_version.expect("a list has a version");

    let change = json!({"metadata": {"labels": {LABEL: "patched"}}});
    let patched = api.patch(name, &PatchParams::default(), &Patch::Merge(&change)).await;
    assert_eq!(step(&patched.expect("a patch")), "patched", "{name}");

    let mut config = object.clone();
    config.metadata.labels = Some([(LABEL.to_owned(), "applied".to_owned())].into());
    let params = PatchParams::apply("kube-rs").force();
    let applied = api.patch(name, &params, &Patch::Apply(&config)).await.expect("an apply");
    assert_eq!(step(&applied), "applied", "{name}");
    let owners = applied.metadata.managed_fields.unwrap_or_default();
    assert!(owners.iter().any(|owner| owner.manager.as_deref() == Some("kube-rs")), "{owners:?}");

    let stale = api.replace(name, &PostParams::default(), &made).await;
    let refused = stale.expect_err("the version is old");
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 409), "{refused}");

    api.delete(name, &DeleteParams::background()).await.expect("a deletion");
    let watch = api.watch(&WatchParams::default(), &since).await.expect("a watch");
    let mut events = watch.boxed();
    let mut seen = vec![];
    while let Some(event) = events.try_next().await.expect("an event") {
        let (word, object) = match event {
            WatchEvent::Added(object) => ("ADDED", object),
            WatchEvent::Modified(object) => ("MODIFIED", object),
            WatchEvent::Deleted(object) => ("DELETED", object),
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(status) => panic!("{name}: {status:?}"),
        };
        if object.metadata.name.as_deref() == Some(name) {
            seen.push(format!("{word} {}", step(&object)));
        }
        if word == "DELETED" {
            break;
        }
    }
    assert_eq!(seen, ["MODIFIED patched", "MODIFIED applied", "DELETED applied"], "{name}");
    let gone = api.get_opt(name).await.expect("an answer");
    assert!(gone.is_none(), "{name} is still there: {}", Value::from(gone.is_some()));
}

fn step(object: &DynamicObject) -> &str {
    let labels = object.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(LABEL)).map_or("", String::as_str)
}
