//! One etcd and one configuration for kube-apiserver and Keelson: each reads what the other has
//! encrypted, with every provider, before, during and after a rotation.

use super::{KmsBehaviour, STATUS};
use crate::controllers::wait_until;
use crate::etcd::etcd;
use crate::http::{Client, Server, without_controllers};
use crate::reference::Reference;
use keelson::{EncryptionFile, Etcd};
use keelson_meta::{Feature, Features};
use keelson_testkit::kms::FakeKms;
use keelson_testkit::prerequisites::{API_SERVER, kubernetes_program};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Resources, each with another provider: path, kind and apiVersion.
const RESOURCES: [(&str, &str, &str); 6] = [
    ("/api/v1/namespaces/default/secrets", "Secret", "v1"),
    ("/api/v1/namespaces/default/configmaps", "ConfigMap", "v1"),
    ("/api/v1/namespaces/default/serviceaccounts", "ServiceAccount", "v1"),
    ("/api/v1/namespaces/default/podtemplates", "PodTemplate", "v1"),
    ("/api/v1/namespaces/default/limitranges", "LimitRange", "v1"),
    ("/apis/apps/v1/namespaces/default/controllerrevisions", "ControllerRevision", "apps/v1"),
];

/// Returns a configuration in which the keys with these numbers are known; the first one encrypts.
fn config(numbers: &[u8], kms: &FakeKms, kms_v1: &FakeKms) -> String {
    let keys = |cipher: &str| {
        let key = |number: &u8| {
            let secret = format!("{number}").repeat(43);
            format!(
                "{{name: k{number}, secret: '{}='}}",
                secret.replace('1', "E").replace('2', "I")
            )
        };
        let keys: Vec<String> = numbers.iter().map(key).collect();
        format!("{cipher}: {{keys: [{}]}}", keys.join(", "))
    };
    let plug_in = |version: &str, kms: &FakeKms| {
        let endpoint = kms.endpoint();
        format!("kms: {{apiVersion: {version}, name: p, endpoint: '{endpoint}', timeout: 3s}}")
    };
    let mut text =
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"
            .to_owned();
    for (resource, provider) in [
        ("secrets", keys("aesgcm")),
        ("configmaps", keys("aescbc")),
        ("serviceaccounts", keys("secretbox")),
        ("podtemplates", plug_in("v2", kms)),
        ("limitranges", plug_in("v1", kms_v1)),
        ("'*.apps'", "identity: {}".to_owned()),
    ] {
        let identity = if numbers.len() > 1 { "\n  - identity: {}" } else { "" };
        text.push_str(&format!(
            "- resources: [{resource}]\n  providers:\n  - {provider}{identity}\n"
        ));
    }
    text
}

fn object(kind: &str, api_version: &str, name: &str) -> Value {
    let mut obj = json!({"kind": kind, "apiVersion": api_version, "metadata": {"name": name}});
    match kind {
        "Secret" => obj["data"] = json!({"k": "aHVudGVyMg=="}),
        "ConfigMap" => obj["data"] = json!({"k": "hunter2"}),
        "PodTemplate" => {
            obj["template"] = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}})
        }
        "LimitRange" => obj["spec"] = json!({"limits": [{"type": "Pod"}]}),
        "ControllerRevision" => {
            obj["revision"] = json!(1);
            obj["data"] = json!({"a": "b"});
        }
        _ => {}
    }
    obj
}

/// A kube-apiserver with the configuration in a file.
struct Encrypting(Reference);

impl Encrypting {
    fn start(program: &Path, etcd: &str, dir: &Path, config: &Path) -> Encrypting {
        let config = config.display().to_string();
        let flags = ["--encryption-provider-config", &config, "--feature-gates=KMSv1=true"];
        Encrypting(Reference::start(program, etcd, dir, &flags))
    }

    fn create(&self, name: &str) {
        for (path, kind, api_version) in RESOURCES {
            let created =
                self.0.api.post(path, &object(kind, api_version, name)).expect("an answer");
            assert_eq!(created.code, 201, "{created:?}");
        }
    }

    fn reads(&self, names: &[&str]) {
        for ((path, ..), name) in RESOURCES.iter().flat_map(|at| names.iter().map(move |n| (at, n)))
        {
            let got = self.0.api.get(&format!("{path}/{name}")).expect("an answer");
            assert_eq!(got.code, 200, "kube-apiserver: {path}/{name}: {:?}", got.body);
        }
    }
}

fn create(client: &Client, name: &str) {
    for (path, kind, api_version) in RESOURCES {
        let created = client.post(path, &object(kind, api_version, name));
        assert_eq!(created.status, 201, "{created:?}");
    }
}

fn reads(client: &Client, names: &[&str]) {
    for (path, ..) in RESOURCES {
        for name in names {
            let got = client.poll(&format!("{path}/{name}"), |got| got.status != 404);
            assert_eq!(got.status, 200, "Keelson: {path}/{name}: {:?}", got.body);
        }
    }
}

fn serve(etcd: &str, config: &Path) -> Server {
    let features = Features::default().with(Feature::KMSv1, true);
    let file = EncryptionFile::read(config, false, features).expect("a configuration");
    let builder = without_controllers().with(|builder| {
        builder.apis.features = features;
        builder.storage.encryption = Some(file);
    });
    Server::start_plain(builder.etcd(Etcd::new(vec![etcd.to_owned()])))
}

#[test]
fn kube_apiserver_and_keelson_read_each_others_encrypted_objects() {
    let Some(program) = kubernetes_program(API_SERVER, "kube-apiserver") else { return };
    let Some((_runtime, etcd)) = etcd() else { return };
    let dir = TempDir::new().expect("a folder");
    let kms = FakeKms::start(&dir.path().join("kms.sock"), KmsBehaviour::default());
    let of_v1 = KmsBehaviour { version: "v1beta1".to_owned(), ..KmsBehaviour::default() };
    // kube-apiserver sends the escaped path of a socket as `:authority` to plug-ins of version 1,
    // which hyper refuses.
    let name = format!("@keelson-{}-kms-v1", std::process::id());
    let kms_v1 = FakeKms::start(Path::new(&name), of_v1);
    let write = |name: &str, numbers: &[u8]| -> PathBuf {
        let path = dir.path().join(name);
        std::fs::write(&path, config(numbers, &kms, &kms_v1)).expect("a file");
        path
    };
    let old = write("old.yaml", &[1]);
    let both = write("both.yaml", &[2, 1]);
    let new = write("new.yaml", &[2]);
    let reference = Encrypting::start(&program, &etcd.url(), dir.path(), &old);
    reference.create("theirs");
    let server = serve(&etcd.url(), &old);
    reads(&server.client(), &["theirs"]);
    create(&server.client(), "ours");
    reference.reads(&["theirs", "ours"]);
    server.stop();
    drop(reference);
    // Both know both keys; the new one writes. The plug-in has another key, too.
    for plugin in [&kms, &kms_v1] {
        plugin.behave(|kms| kms.key_id = "2".to_owned());
    }
    let reference = Encrypting::start(&program, &etcd.url(), dir.path(), &both);
    reference.reads(&["theirs", "ours"]);
    reference.create("later");
    let server = serve(&etcd.url(), &both);
    let client = server.client();
    reads(&client, &["theirs", "ours", "later"]);
    assert_eq!(client.post(&format!("{STATUS}/rotate"), &json!({})).status, 200);
    wait_until("nothing is stale", || {
        let status = client.get(STATUS).body;
        let resources = status["resources"].as_array().expect("resources").clone();
        resources.len() == 5 && resources.iter().all(|resource| resource["stale"] == 0)
    });
    reference.reads(&["theirs", "ours", "later"]);
    server.stop();
    // The old key is gone.
    let server = serve(&etcd.url(), &new);
    reads(&server.client(), &["theirs", "ours", "later"]);
    create(&server.client(), "last");
    reference.reads(&["last"]);
    server.stop();
    reference.0.process.terminate();
}
