//! Encryption at rest: what is on the disk, rotation of keys, missing keys, reload, the commands,
//! and the same etcd as kube-apiserver.

mod kube_apiserver;

use crate::controllers::wait_until;
use crate::http::{Client, Server, revision_of, without_controllers};
use keelson::{Builder, EncryptionFile, Keelson};
use keelson_meta::Features;
use keelson_testkit::kms::{FakeKms, KmsBehaviour};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const STATUS: &str = "/keelson/encryption";
/// A text that stands in no file if it is encrypted.
const SECRET: &str = "aHVudGVyMi1odW50ZXIyLWh1bnRlcjI=";
const PUBLIC: &str = "public-public-public";

/// Returns a configuration of secrets with these providers. `K1` and `K2` are keys.
fn config(providers: &[&str]) -> String {
    let mut text = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n\
                    resources:\n- resources: [secrets]\n  providers:\n"
        .to_owned();
    for provider in providers {
        text.push_str(&format!("  - {provider}\n"));
    }
    text.replace("K1", "MDEyMzQ1Njc4OWFiY2RlZg==")
        .replace("K2", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=")
}

const KEY1: &str = "aesgcm: {keys: [{name: key1, secret: K1}]}";
const KEY2: &str = "secretbox: {keys: [{name: key2, secret: K2}]}";

/// A data folder, and a file with a configuration.
struct Case {
    dir: TempDir,
}

impl Case {
    fn new() -> Case {
        Case { dir: TempDir::new().expect("a folder") }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, providers: &[&str]) {
        std::fs::write(self.path("encryption.yaml"), config(providers)).expect("a file");
    }

    fn builder(&self) -> Builder {
        let certificate_check_interval = Duration::from_millis(20);
        without_controllers()
            .with(|builder| builder.serving.certificate_check_interval = certificate_check_interval)
            .data_dir(self.path("data"))
    }

    /// Starts a server with these providers.
    fn serve(&self, providers: &[&str]) -> Server {
        self.write(providers);
        let file = EncryptionFile::read(&self.path("encryption.yaml"), true, Features::default());
        let encryption = Some(file.expect("a configuration"));
        Server::start_plain(self.builder().with(|builder| builder.storage.encryption = encryption))
    }

    /// Runs the program. Returns whether it succeeded, stdout and stderr.
    fn run(&self, arguments: &[&str]) -> (bool, String, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_keelson"))
            .args(arguments)
            .current_dir(self.dir.path())
            .output()
            .expect("the program runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    }
}

fn create(client: &Client, name: &str) -> Value {
    let secret = json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": name},
        "data": {"k": SECRET}});
    let created = client.post(SECRETS, &secret);
    assert_eq!(created.status, 201, "{created:?}");
    created.body
}

/// Whether a file below a folder contains a text.
fn contains(dir: &Path, text: &str) -> bool {
    let entries = std::fs::read_dir(dir).expect("a folder").map(|entry| entry.expect("an entry"));
    entries.into_iter().any(|entry| {
        let path = entry.path();
        if path.is_dir() {
            return contains(&path, text);
        }
        let bytes = std::fs::read(&path).unwrap_or_default();
        bytes.windows(text.len()).any(|part| part == text.as_bytes())
    })
}

/// Returns the keys of secrets with their numbers, and the number of stale ones.
fn keys(client: &Client) -> (String, i64) {
    let status = client.get(STATUS);
    assert_eq!(status.status, 200, "{status:?}");
    let resources = status.body["resources"].as_array().expect("resources").clone();
    let Some(secrets) = resources.iter().find(|one| one["resource"] == "secrets") else {
        return (String::new(), 0);
    };
    let keys = secrets["keys"].as_array().expect("keys").iter();
    let keys =
        keys.map(|key| format!("{}={}", key["key"].as_str().expect("a key"), key["objects"]));
    (keys.collect::<Vec<_>>().join(" "), secrets["stale"].as_i64().expect("a number"))
}

fn touch(client: &Client, name: &str) -> u64 {
    let path = format!("{SECRETS}/{name}");
    let patched = client.call("PATCH", &path, "application/merge-patch+json", Some(&json!({})));
    assert_eq!(patched.status, 200, "{patched:?}");
    revision_of(&patched.body)
}

#[test]
fn keys_are_rotated_while_no_secret_is_on_the_disk() {
    let case = Case::new();
    let server = case.serve(&[KEY1]);
    let client = server.client();
    let created = create(&client, "a");
    create(&client, "b");
    let map = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "m"},
        "data": {"k": PUBLIC}});
    assert_eq!(client.post(MAPS, &map).status, 201);
    assert_eq!(client.get(&format!("{SECRETS}/a")).body["data"]["k"], SECRET);
    assert_eq!(keys(&client), ("aesgcm:key1=2".to_owned(), 0));
    for line in [format!("GET {STATUS}"), format!("POST {STATUS}/rotate")] {
        assert_eq!(client.send_as(&line, "", b"").status, 403, "{line}");
    }
    assert_eq!(touch(&client, "a"), revision_of(&created), "nothing is stale");
    server.stop();
    assert!(contains(&case.path("data"), PUBLIC) && !contains(&case.path("data"), SECRET));
    // Both keys are known: the second one writes.
    let server = case.serve(&[KEY2, KEY1]);
    let client = server.client();
    assert_eq!(keys(&client), ("aesgcm:key1=2".to_owned(), 2));
    assert_eq!(client.get(SECRETS).body["items"].as_array().map(Vec::len), Some(2));
    let mut watch =
        client.open_watch(&format!("{SECRETS}?watch=1&fieldSelector=metadata.name%3Da"));
    assert_eq!(watch.next_types_and_names(1), [("ADDED".to_owned(), "a".to_owned())]);
    let touched = touch(&client, "a");
    assert!(touched > revision_of(&created), "a stale value is written again");
    let event = watch.next().expect("an event");
    assert_eq!(
        (&event["type"], &event["object"]["data"]["k"]),
        (&json!("MODIFIED"), &json!(SECRET))
    );
    assert_eq!((touch(&client, "a"), keys(&client).1), (touched, 1));
    let rotating = client.post(&format!("{STATUS}/rotate"), &json!({}));
    assert_eq!(rotating.status, 200, "{rotating:?}");
    wait_until("nothing is stale", || keys(&client) == ("secretbox:key2=2".to_owned(), 0));
    wait_until("the rotation ends", || {
        client.get(STATUS).body["rotation"]
            == json!({"running": false, "total": 1, "rewritten": 1, "failed": 0, "failures": []})
    });
    server.stop();
    let server = case.serve(&[KEY2]);
    assert_eq!(server.client().get(&format!("{SECRETS}/b")).body["data"]["k"], SECRET);
    server.stop();
    assert!(!contains(&case.path("data"), SECRET));
}

#[test]
fn a_missing_key_affects_only_its_objects_and_is_named() {
    let case = Case::new();
    let server = case.serve(&[KEY1, "identity: {}"]);
    create(&server.client(), "a");
    server.stop();
    let check = |server: Server, why: &str| {
        let client = server.client();
        let message = format!("unable to transform key \"/registry/secrets/default/a\": {why}");
        for path in [SECRETS, &format!("{SECRETS}/a")] {
            let answer = client.get(path);
            assert_eq!((answer.status, &answer.body["message"]), (500, &json!(message)), "{path}");
        }
        assert_eq!(client.get(MAPS).status, 200);
        server.stop();
    };
    check(Server::start_plain(case.builder()), "identity transformer tried to read encrypted data");
    check(case.serve(&[KEY2]), "no matching prefix found");
    // The missing key is added while the server runs.
    let server = case.serve(&[KEY2]);
    let client = server.client();
    case.write(&[KEY2, KEY1]);
    client.poll(&format!("{SECRETS}/a"), |answer| answer.status == 200);
    assert_eq!(keys(&client), ("aesgcm:key1=1".to_owned(), 1));
    client.post(&format!("{STATUS}/rotate"), &json!({}));
    wait_until("the value has the new key", || keys(&client).1 == 0);
    server.stop();
    let server = case.serve(&[KEY1, KEY2]);
    server.client().post(&format!("{STATUS}/rotate"), &json!({}));
    wait_until("the value has the old key", || keys(&server.client()).1 == 0);
    server.stop();
    let other = KEY1.replace("K1", "K2");
    check(case.serve(&[&other]), "cipher: message authentication failed");
    // The other way: a value that is not encrypted.
    let server = case.serve(&["identity: {}", KEY1]);
    create(&server.client(), "plain");
    server.stop();
    let server = case.serve(&[KEY1]);
    let why =
        "unable to transform key \"/registry/secrets/default/plain\": no matching prefix found";
    let client = server.client();
    let path = format!("{SECRETS}/plain");
    let answer = client.get(&path);
    assert_eq!((answer.status, &answer.body["message"]), (500, &json!(why)));
    let ignore = "ignoreStoreReadErrorWithClusterBreakingPotential=true";
    assert_eq!(client.delete(&path).status, 500);
    assert_eq!(client.delete(&format!("{path}?{ignore}")).status, 200);
    assert_eq!((client.get(&path).status, client.get(SECRETS).status), (404, 200));
    server.stop();
}

#[test]
fn a_storage_version_migration_replaces_keys() {
    let case = Case::new();
    let server = case.serve(&[KEY1]);
    create(&server.client(), "a");
    server.stop();
    case.write(&[KEY2, KEY1]);
    let file = EncryptionFile::read(&case.path("encryption.yaml"), false, Features::default());
    let encryption = Some(file.expect("a configuration"));
    let features = Features::parse(["StorageVersionMigrator=true"]).expect("a feature gate");
    let runtime_config = vec![("storagemigration.k8s.io/v1beta1".to_owned(), true)];
    let builder = Keelson::builder().with(|builder| {
        builder.storage.encryption = encryption;
        builder.apis.features = features;
        builder.apis.runtime_config = runtime_config;
    });
    let server = Server::start_plain(builder.data_dir(case.path("data")));
    let client = server.client();
    assert_eq!(keys(&client), ("aesgcm:key1=1".to_owned(), 1));
    let migration = json!({"kind": "StorageVersionMigration",
        "apiVersion": "storagemigration.k8s.io/v1beta1", "metadata": {"name": "secrets"},
        "spec": {"resource": {"group": "", "resource": "secrets"}}});
    let path = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations";
    assert_eq!(client.post(path, &migration).status, 201);
    wait_until("the secret is migrated", || keys(&client) == ("secretbox:key2=1".to_owned(), 0));
    server.stop();
}

#[test]
fn a_changed_file_is_used_and_a_broken_one_is_not() {
    let case = Case::new();
    let server = case.serve(&[KEY1]);
    let client = server.client();
    create(&client, "a");
    let key_of_writes = || {
        let status = client.get(STATUS).body;
        status["resources"][0]["writeKey"].as_str().expect("a key").to_owned()
    };
    assert_eq!(key_of_writes(), "aesgcm:key1");
    case.write(&["aesgcm: {keys: [{name: short, secret: MDEy}]}"]);
    // Whether it was seen or not, the loop goes on.
    create(&client, "b");
    assert_eq!(key_of_writes(), "aesgcm:key1");
    case.write(&[KEY2, KEY1]);
    wait_until("the file is reloaded", || key_of_writes() == "secretbox:key2");
    create(&client, "c");
    assert_eq!(keys(&client), ("aesgcm:key1=2 secretbox:key2=1".to_owned(), 2));
    assert_eq!(client.get("/readyz/kms-providers").status, 200);
    server.stop();
}

#[test]
fn a_plug_in_is_part_of_the_health_and_its_keys_are_rotated() {
    let case = Case::new();
    let kms = FakeKms::start(&case.path("kms.sock"), KmsBehaviour::default());
    let provider =
        format!("kms: {{apiVersion: v2, name: p, endpoint: '{}', timeout: 1s}}", kms.endpoint());
    let server = case.serve(&[&provider]);
    let client = server.client();
    let check = "/readyz/kms-providers";
    assert_eq!(client.get(check).status, 200);
    create(&client, "a");
    assert_eq!(keys(&client), ("kms:p:1=1".to_owned(), 0));
    server.stop();
    // A server that starts asks for the key of the value.
    let server = case.serve(&[&provider]);
    let client = server.client();
    assert_eq!(client.get(&format!("{SECRETS}/a")).body["data"]["k"], SECRET);
    kms.behave(|kms| kms.key_id = "2".to_owned());
    assert_eq!(client.post(&format!("{STATUS}/rotate"), &json!({})).status, 200);
    wait_until("the value has the new key", || keys(&client) == ("kms:p:2=1".to_owned(), 0));
    server.stop();
    kms.behave(|kms| kms.failing = vec!["Status"]);
    let server = case.serve(&[&provider]);
    let client = server.client();
    assert_eq!(client.get(check).status, 500);
    assert_eq!(client.get(MAPS).status, 200);
    // The plug-in starts after the server.
    let path = format!("{SECRETS}/a");
    assert_eq!(client.get(&path).status, 500);
    kms.behave(|kms| kms.failing = vec![]);
    client.poll(check, |answer| answer.status == 200);
    client.poll(&path, |answer| answer.body["data"]["k"] == SECRET);
    server.stop();
}

#[test]
fn the_commands_know_keys() {
    let case = Case::new();
    let server = case.serve(&[KEY1]);
    create(&server.client(), "a");
    server.stop();
    let status = case.run(&["encryption", "status", "--data-dir", "data"]);
    let table = "RESOURCE  KEY          OBJECTS\nsecrets   aesgcm:key1        1\n";
    assert_eq!(status, (true, table.to_owned(), String::new()));
    let (ok, _, why) = case.run(&["encryption", "rotate", "--data-dir", "data"]);
    assert!(!ok && why.contains("no server uses the data folder"), "{why}");
    let (ok, _, told) = case.run(&["check", "--data-dir", "data"]);
    assert!(ok, "{told}");
    assert_eq!(
        told,
        "1 values are encrypted with aesgcm:key1: only their checksums were checked, see \
         --encryption-provider-config\n"
    );
    let with_config =
        ["check", "--data-dir", "data", "--encryption-provider-config", "encryption.yaml"];
    let (ok, table, told) = case.run(&with_config);
    assert_eq!((ok, told.as_str()), (true, ""), "{table}");
    // A backup has the same bytes, and is restored without the keys.
    assert!(case.run(&["backup", "--data-dir", "data", "all.backup"]).0);
    assert!(case.run(&["restore", "--data-dir", "restored", "all.backup"]).0);
    assert!(!contains(case.dir.path(), SECRET));
    let restored = case.run(&["encryption", "status", "--data-dir", "restored"]);
    assert!(restored.1.contains("aesgcm:key1"), "{restored:?}");
    case.write(&[KEY2]);
    let (ok, _, told) = case.run(&with_config);
    let missing = "/registry/secrets/default/a at revision";
    assert!(!ok && told.contains(missing), "{told}");
    assert!(told.contains("encrypted with aesgcm:key1: no matching prefix found"), "{told}");
    // A repair removes no value for lack of a key.
    assert!(case.run(&["check", "--repair", "--data-dir", "data"]).0);
    let status = case.run(&["encryption", "status", "--data-dir", "data"]);
    assert!(status.1.contains("aesgcm:key1"), "{status:?}");
}
