//! One etcd and one configuration for kube-apiserver and Keelson: each reads what the other has encrypted, with every
//! provider, before, during and after a rotation.

use super::{KmsBehaviour, STATUS};
use crate::controllers::wait_until;
use crate::etcd::etcd;
use crate::http::{Client, Server, without_controllers};
use keelson::{Builder, EncryptionFile, Etcd};
use keelson_testkit::api::Api;
use keelson_testkit::kms::FakeKms;
use keelson_testkit::poll;
use keelson_testkit::prerequisites::{API_SERVER, kubernetes_program};
use keelson_testkit::process::Process;
use rcgen::KeyPair;
use serde_json::{Value, json};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

const START_TIME_MAX: Duration = Duration::from_secs(40);

/// Resources, each with another provider: path, kind and apiVersion.
const RESOURCES: [(&str, &str, &str); 5] = [
    ("/api/v1/namespaces/default/secrets", "Secret", "v1"),
    ("/api/v1/namespaces/default/configmaps", "ConfigMap", "v1"),
    ("/api/v1/namespaces/default/serviceaccounts", "ServiceAccount", "v1"),
    ("/api/v1/namespaces/default/podtemplates", "PodTemplate", "v1"),
    ("/apis/apps/v1/namespaces/default/controllerrevisions", "ControllerRevision", "apps/v1"),
];

/// Returns a configuration in which the keys with these numbers are known; the first one encrypts.
fn config(numbers: &[u8], kms: &str) -> String {
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
    let kms = format!("kms: {{apiVersion: v2, name: p, endpoint: '{kms}', timeout: 3s}}");
    let mut text =
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"
            .to_owned();
    for (resource, provider) in [
        ("secrets", keys("aesgcm")),
        ("configmaps", keys("aescbc")),
        ("serviceaccounts", keys("secretbox")),
        ("podtemplates", kms),
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
        "ControllerRevision" => {
            obj["revision"] = json!(1);
            obj["data"] = json!({"a": "b"});
        }
        _ => {}
    }
    obj
}

/// The reference, with the configuration in a file.
struct Reference {
    api: Api,
    process: Process,
}

impl Reference {
    fn start(program: &Path, etcd: &str, dir: &Path, config: &Path) -> Reference {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        drop(listener);
        let key = KeyPair::generate().expect("a key");
        for (name, pem) in [("sa.key", key.serialize_pem()), ("sa.pub", key.public_key_pem())] {
            std::fs::write(dir.join(name), pem).expect("a file");
        }
        std::fs::write(dir.join("tokens.csv"), "t,admin,1,system:masters\n").expect("a file");
        let file = |name: &str| dir.join(name).display().to_string();
        let mut command = Command::new(program);
        command.args(["--etcd-servers", etcd, "--cert-dir", &file("certs")]);
        command.args(["--secure-port", &address.port().to_string()]);
        command.args(["--bind-address=127.0.0.1", "--advertise-address=10.1.1.1"]);
        command.args(["--service-cluster-ip-range=10.0.0.0/24", "--authorization-mode=RBAC"]);
        command.args(["--service-account-issuer=https://kubernetes.default.svc"]);
        command.args(["--service-account-key-file", &file("sa.pub")]);
        command.args(["--service-account-signing-key-file", &file("sa.key")]);
        command.args(["--token-auth-file", &file("tokens.csv")]);
        command.args(["--encryption-provider-config", &config.display().to_string()]);
        let process = Process::start(command, &dir.join("log")).expect("the program starts");
        let api = Api::unchecked(address, Some("t".to_owned())).expect("a client");
        let ready = poll(START_TIME_MAX, || api.get("/readyz").ok().filter(|got| got.code == 200));
        assert!(ready.is_some(), "not ready: {}", process.log());
        Reference { api, process }
    }

    fn create(&self, name: &str) {
        for (path, kind, api_version) in RESOURCES {
            let created = self.api.post(path, &object(kind, api_version, name)).expect("an answer");
            assert_eq!(created.code, 201, "{created:?}");
        }
    }

    fn reads(&self, names: &[&str]) {
        for ((path, ..), name) in RESOURCES.iter().flat_map(|at| names.iter().map(move |n| (at, n)))
        {
            let got = self.api.get(&format!("{path}/{name}")).expect("an answer");
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
    let file = EncryptionFile::read(config, false).expect("a configuration");
    let builder = Builder { encryption: Some(file), ..without_controllers() };
    Server::start_plain(builder.etcd(Etcd::new(vec![etcd.to_owned()])))
}

#[test]
fn kube_apiserver_and_keelson_read_each_others_encrypted_objects() {
    let Some(program) = kubernetes_program(API_SERVER, "kube-apiserver") else { return };
    let Some((_runtime, etcd)) = etcd() else { return };
    let dir = TempDir::new().expect("a folder");
    let kms = FakeKms::start(&dir.path().join("kms.sock"), KmsBehaviour::default());
    let write = |name: &str, numbers: &[u8]| -> PathBuf {
        let path = dir.path().join(name);
        std::fs::write(&path, config(numbers, &kms.endpoint())).expect("a file");
        path
    };
    let (old, both) = (write("old.yaml", &[1]), write("both.yaml", &[2, 1]));
    let new = write("new.yaml", &[2]);
    let reference = Reference::start(&program, &etcd.url(), dir.path(), &old);
    reference.create("theirs");
    let server = serve(&etcd.url(), &old);
    reads(&server.client(), &["theirs"]);
    create(&server.client(), "ours");
    reference.reads(&["theirs", "ours"]);
    server.stop();
    drop(reference);
    // Both know both keys; the new one writes. The plug-in has another key, too.
    kms.behave(|kms| kms.key_id = "2".to_owned());
    let reference = Reference::start(&program, &etcd.url(), dir.path(), &both);
    reference.reads(&["theirs", "ours"]);
    reference.create("later");
    let server = serve(&etcd.url(), &both);
    let client = server.client();
    reads(&client, &["theirs", "ours", "later"]);
    assert_eq!(client.post(&format!("{STATUS}/rotate"), &json!({})).status, 200);
    wait_until("nothing is stale", || {
        let status = client.get(STATUS).body;
        let resources = status["resources"].as_array().expect("resources").clone();
        resources.len() == 4 && resources.iter().all(|resource| resource["stale"] == 0)
    });
    reference.reads(&["theirs", "ours", "later"]);
    server.stop();
    // The old key is gone.
    let server = serve(&etcd.url(), &new);
    reads(&server.client(), &["theirs", "ours", "later"]);
    create(&server.client(), "last");
    reference.reads(&["last"]);
    server.stop();
    reference.process.terminate();
}
