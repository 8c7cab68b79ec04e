//! The commands `backup` (also of a running server), `restore` and `check`.

use crate::http::{Server as InProcess, revision_of, without_controllers};
use crate::kill::Server;
use keelson_store::{Embedded, EmbeddedOptions, Op, Store, Txn};
use keelson_testkit::connection::Connection;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const JSON: &str = "application/json";
const WRITERS: usize = 4;
const NAMES: usize = 5;
const BACKUPS: usize = 3;

/// Runs the program in a directory.
fn run(dir: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keelson"));
    command.current_dir(dir).args(words).stdin(Stdio::null());
    command.output().expect("the binary runs")
}

/// Returns the output of a command that must succeed.
pub fn done(dir: &Path, words: &[&str]) -> String {
    let answer = run(dir, words);
    let said = String::from_utf8_lossy(&answer.stderr);
    assert_eq!(answer.status.code(), Some(0), "{words:?}: {said}");
    String::from_utf8(answer.stdout).expect("text")
}

/// Returns the error output of a command that must fail.
pub fn refused(dir: &Path, words: &[&str]) -> String {
    let answer = run(dir, words);
    assert_eq!(answer.status.code(), Some(1), "{words:?}: {answer:?}");
    String::from_utf8(answer.stderr).expect("text")
}

fn map(name: &str, value: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"value": value}})
}

fn list(connection: &mut Connection) -> (BTreeMap<String, Value>, u64) {
    let (code, list) = connection.call("GET", MAPS, "", None).expect("a list");
    assert_eq!(code, 200, "{list}");
    let items = list["items"].as_array().expect("items").iter();
    let name = |obj: &Value| obj["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    (items.map(|obj| (name(obj), obj.clone())).collect(), revision_of(&list))
}

/// Writes until the flag is set. Returns the name and the returned object of each write.
fn write(
    mut connection: Connection,
    writer: usize,
    is_over: &AtomicBool,
    newest: &AtomicUsize,
) -> Vec<(String, Value)> {
    let mut written = vec![];
    for n in 0.. {
        if is_over.load(Ordering::Acquire) {
            break;
        }
        let name = format!("w{writer}-{}", n % NAMES);
        let (method, path) =
            if n < NAMES { ("POST", MAPS.to_owned()) } else { ("PUT", format!("{MAPS}/{name}")) };
        let obj = map(&name, &format!("{n} {}", "x".repeat(500)));
        let (code, answer) = connection.call(method, &path, JSON, Some(&obj)).expect("an answer");
        assert!(matches!(code, 200 | 201), "{answer}");
        newest.fetch_max(revision_of(&answer) as usize, Ordering::AcqRel);
        written.push((name, answer));
    }
    written
}

#[test]
fn a_backup_during_writes_is_consistent_at_one_revision() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(&dir.path().join("data"));
    let mut connection = server.connect();
    let gone = connection.call("POST", MAPS, JSON, Some(&map("gone", ""))).expect("an answer");
    let path = format!("{MAPS}/gone");
    assert_eq!(gone.0, 201);
    assert_eq!(connection.call("DELETE", &path, JSON, None).expect("an answer").0, 200);
    let is_over = AtomicBool::new(false);
    let newest = AtomicUsize::new(0);
    let (written, backups) = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let connection = server.connect();
                let is_over = &is_over;
                let newest = &newest;
                scope.spawn(move || write(connection, writer, is_over, newest))
            })
            .collect();
        let backups: Vec<(u64, u64)> = (0..BACKUPS)
            .map(|n| {
                let before = newest.load(Ordering::Acquire);
                while newest.load(Ordering::Acquire) < before + WRITERS * NAMES {
                    std::thread::yield_now();
                }
                let before = newest.load(Ordering::Acquire) as u64;
                let file = format!("{n}.backup");
                let words = ["backup", "--data-dir", "data", "-o", "json", &file];
                let told: Value =
                    serde_json::from_str(&done(dir.path(), &words)).expect("an object");
                assert_eq!(told["file"], file.as_str());
                (before, told["revision"].as_u64().expect("a revision"))
            })
            .collect();
        is_over.store(true, Ordering::Release);
        let written = writers.into_iter().flat_map(|writer| writer.join().expect("a log"));
        (written.collect::<Vec<_>>(), backups)
    });
    drop(server);
    for (n, (before, at)) in backups.into_iter().enumerate() {
        assert!(at >= before, "{before} was acknowledged, and the backup is of {at}");
        check_restored(dir.path(), n, at, &written);
    }
}

/// Restores a backup and checks that a server on it has exactly the objects of its revision.
fn check_restored(dir: &Path, n: usize, at: u64, written: &[(String, Value)]) {
    let file = format!("{n}.backup");
    let data = format!("restored-{n}");
    let mode = fs::metadata(dir.join(&file)).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    done(dir, &["check", &file]);
    done(dir, &["restore", "--data-dir", &data, &file]);
    done(dir, &["check", "--data-dir", &data]);
    let server = Server::start(&dir.join(&data));
    let (there, revision) = list(&mut server.connect());
    let mut expected: BTreeMap<String, Value> = BTreeMap::new();
    for (name, obj) in written.iter().filter(|(_, obj)| revision_of(obj) <= at) {
        let old = expected.get(name).map_or(0, revision_of);
        if revision_of(obj) > old {
            expected.insert(name.clone(), obj.clone());
        }
    }
    for obj in expected.values_mut() {
        // Items of a list have no kind and apiVersion.
        let map = obj.as_object_mut().expect("a map");
        map.remove("kind");
        map.remove("apiVersion");
    }
    assert!(!expected.is_empty());
    assert_eq!(there, expected, "{file}");
    // The next revisions are larger, and watches from earlier revisions must list again.
    assert!(revision >= at, "{revision} is below {at}");
    let made = server.connect().call("POST", MAPS, JSON, Some(&map("new", "")));
    assert!(revision_of(&made.expect("an answer").1) > at);
    let path = format!("{MAPS}?watch=1&resourceVersion={}", at - 1);
    let event = server.connect().watch(&path).expect("a watch").next().expect("an event");
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    let path = format!("{MAPS}?watch=1&resourceVersion={at}");
    let event = server.connect().watch(&path).expect("a watch").next().expect("an event");
    assert_eq!(event["object"]["metadata"]["name"], "new", "{event}");
}

#[test]
fn offline_backup_and_check_leave_the_directory_unchanged() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(&dir.path().join("data"));
    let mut connection = server.connect();
    for n in 0..20 {
        let obj = map(&format!("m{n}"), &"x".repeat(5_000));
        assert_eq!(connection.call("POST", MAPS, JSON, Some(&obj)).expect("an answer").0, 201);
    }
    let said = refused(dir.path(), &["check", "--data-dir", "data"]);
    assert_eq!(
        said,
        "keelson: --data-dir: data directory data/store is in use by another process\n"
    );
    done(dir.path(), &["backup", "--data-dir", "data", "hot"]);
    // As left by a crash.
    drop(server);
    let store = dir.path().join("data/store");
    let look = || {
        let entries = fs::read_dir(&store).expect("the folder");
        let mut all: Vec<_> = entries
            .map(|entry| {
                let entry = entry.expect("an entry");
                let changed = entry.metadata().and_then(|data| data.modified()).expect("a time");
                (entry.file_name(), changed, fs::read(entry.path()).ok())
            })
            .collect();
        all.sort();
        all
    };
    let before = look();
    let told = done(dir.path(), &["check", "--data-dir", "data"]);
    let row: Vec<_> =
        told.lines().find(|line| line.starts_with("configmaps")).into_iter().collect();
    // One is created by the server itself.
    assert_eq!(row[0].split_whitespace().nth(1), Some("21"), "{told}");
    assert!(told.ends_with(" 0 damages\n"), "{told}");
    let told = done(dir.path(), &["check", "--data-dir", "data", "-o", "json"]);
    let told: Value = serde_json::from_str(&told).expect("an object");
    assert_eq!(told["resources"]["configmaps"]["objects"], 21);
    assert_eq!(told["damages"], json!([]));
    let yaml = done(dir.path(), &["check", "--data-dir", "data", "-o", "yaml"]);
    assert!(yaml.contains("\n  configmaps:\n") && yaml.contains("damages: []\n"), "{yaml}");
    let line = done(dir.path(), &["backup", "--data-dir", "data", "cold"]);
    assert!(line.starts_with("backed up ") && line.lines().count() == 1, "{line}");
    assert_eq!(before, look(), "the folder has changed");
    let [hot, cold] = ["hot", "cold"].map(|name| fs::read(dir.path().join(name)).expect("a file"));
    assert!(hot == cold, "the running server and the folder say different things");
    let piped = run(dir.path(), &["backup", "--data-dir", "data", "-"]);
    assert_eq!(piped.stdout, cold);
    // The stale socket is replaced, and removed at the end.
    let builder =
        without_controllers().token("t", "admin").with(|builder| builder.serving.tls = false);
    let server = InProcess::start(builder.data_dir(dir.path().join("data")));
    done(dir.path(), &["backup", "--data-dir", "data", "again"]);
    let socket = keelson::backup_socket(&dir.path().join("data"));
    let mode = fs::metadata(&socket).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    server.stop();
    assert!(!socket.exists());
}

#[test]
fn a_check_finds_damage_anywhere() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(&dir.path().join("data"));
    // Only damage to the last write before a crash is undetected: it counts as torn.
    for (name, value) in [("found-by-name", "found-by-value"), ("a", "b"), ("c", "d")] {
        let made = server.connect().call("POST", MAPS, JSON, Some(&map(name, value)));
        assert_eq!(made.expect("an answer").0, 201);
    }
    drop(server);
    let records = dir.path().join("data/store/records.redb");
    let whole = fs::read(&records).expect("the records");
    let places = |text: &[u8]| -> Vec<usize> {
        (0..whole.len() - text.len()).filter(|at| whole[*at..].starts_with(text)).collect()
    };
    let check = |what: &str, bytes: &[u8]| {
        fs::write(&records, bytes).expect("a file");
        let said = refused(dir.path(), &["check", "--data-dir", "data"]);
        assert!(said.contains(" is damaged"), "{what}: {said}");
        assert!((2..=102).contains(&said.lines().count()), "{what}: {said}");
    };
    for text in ["found-by-value", "configmaps/default/found-by-name"] {
        let mut bytes = whole.clone();
        let places = places(text.as_bytes());
        assert!(!places.is_empty(), "{text}");
        places.into_iter().for_each(|at| bytes[at + 3] ^= 1);
        check(text, &bytes);
    }
    check("the end cut off", &whole[..whole.len() / 2]);
    check("nothing left", b"short");
    let mut bytes = whole.clone();
    bytes[..512].fill(0);
    check("the header gone", &bytes);
    fs::write(&records, &whole).expect("a file");
    done(dir.path(), &["check", "--data-dir", "data"]);
    fs::remove_file(&records).expect("the file");
    let said = refused(dir.path(), &["check", "--data-dir", "data"]);
    assert!(said.contains("No such file"), "{said}");
    assert!(!records.exists(), "the check made a file");
}

#[test]
fn a_failed_restore_leaves_no_files() {
    let dir = tempfile::tempdir().expect("a folder");
    drop(Server::start(&dir.path().join("data")));
    done(dir.path(), &["backup", "--data-dir", "data", "whole"]);
    let whole = fs::read(dir.path().join("whole")).expect("a file");
    fs::write(dir.path().join("cut"), &whole[..whole.len() - 1]).expect("a file");
    let mut bytes = whole.clone();
    bytes[whole.len() / 2] ^= 4;
    fs::write(dir.path().join("flipped"), bytes).expect("a file");
    fs::write(dir.path().join("other"), "something else\n").expect("a file");
    fs::create_dir(dir.path().join("empty")).expect("a folder");
    let checks = [
        ("cut", "keelson: cut: the backup is cut off after "),
        ("flipped", "keelson: flipped: the backup is "),
        ("other", "keelson: other: this is not a backup of Keelson\n"),
        ("none", "keelson: none: No such file or directory"),
    ];
    for (file, expected) in checks {
        for data in ["new", "empty"] {
            let said = refused(dir.path(), &["restore", "--data-dir", data, file]);
            assert!(said.starts_with(expected) && said.lines().count() == 1, "{said}");
        }
        assert!(!dir.path().join("new").exists(), "{file}");
        assert_eq!(fs::read_dir(dir.path().join("empty")).expect("a folder").count(), 0, "{file}");
    }
    let said = refused(dir.path(), &["restore", "--data-dir", "data", "whole"]);
    let expected = "keelson: --data-dir: data is not empty; a backup is restored into a new one\n";
    assert_eq!(said, expected);
    done(dir.path(), &["restore", "--data-dir", "empty", "whole"]);
    done(dir.path(), &["check", "--data-dir", "empty"]);
    // A file gets its name only when it is complete, and an existing file is not replaced.
    let said = refused(dir.path(), &["backup", "--data-dir", "nothing", "whole"]);
    assert!(said.starts_with("keelson: --data-dir: there is no data in nothing/store"), "{said}");
    assert_eq!(fs::read(dir.path().join("whole")).expect("a file"), whole);
    let names = fs::read_dir(dir.path()).expect("the folder").map(|entry| entry.expect("a file"));
    let partial = |name: &str| name.contains(".partial");
    assert!(!names.into_iter().any(|entry| partial(&entry.file_name().to_string_lossy())));
}

#[test]
fn backup_commands_are_completed_and_check_knows_no_etcd() {
    let dir = tempfile::tempdir().expect("a folder");
    let answer = run(dir.path(), &["check", "--etcd-servers=http://127.0.0.1:2379"]);
    assert_eq!(answer.status.code(), Some(2), "{answer:?}");
    let answer = run(dir.path(), &["completion", "bash"]);
    let script = String::from_utf8_lossy(&answer.stdout);
    assert!(["backup", "restore", "check"].iter().all(|word| script.contains(word)));
}

#[test]
fn a_path_too_long_for_a_socket_disables_hot_backups() {
    let dir = tempfile::tempdir().expect("a folder");
    let deep = dir.path().join("d".repeat(120));
    let server = Server::start(&deep);
    let data = deep.display().to_string();
    let said = refused(dir.path(), &["backup", "--data-dir", &data, "f"]);
    assert!(said.contains("offers no backup"), "{said}");
    drop(server);
    done(dir.path(), &["backup", "--data-dir", &data, "f"]);
}

#[test]
fn repair_removes_unreadable_records_and_saves_their_bytes() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(&dir.path().join("data"));
    let mut connection = server.connect();
    let made = connection.call("POST", MAPS, JSON, Some(&map("good", "x"))).expect("an answer");
    assert_eq!(made.0, 201);
    drop(server);
    let key = "/registry/configmaps/default/bad";
    let store = Embedded::open(EmbeddedOptions::new(dir.path().join("data/store"))).expect("opens");
    let ops = vec![Op::Put { key: key.into(), value: "what?".into(), lease: None }];
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let written = runtime.block_on(store.txn(Txn { compare: vec![], ops }));
    written.expect("a write");
    store.close();
    drop(store);
    let said = refused(dir.path(), &["check", "--data-dir", "data"]);
    assert!(said.contains(key) && said.contains("unknown record format"), "{said}");
    let output = run(dir.path(), &["check", "--repair", "--data-dir", "data"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains(&format!("removed {key} at revision")), "{said}");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.ends_with(" 0 damages\n"), "{told}");
    let saved = fs::read_dir(dir.path().join("data")).expect("the folder").find_map(|entry| {
        let path = entry.expect("an entry").path();
        (path.extension()? == "jsonl").then(|| fs::read_to_string(path).expect("a file"))
    });
    let saved: Value = serde_json::from_str(&saved.expect("it is saved")).expect("an object");
    assert_eq!((&saved["key"], &saved["value"]), (&json!(key), &json!("d2hhdD8=")));
    // The other objects are unchanged, and revisions continue to grow.
    let server = Server::start(&dir.path().join("data"));
    let list = server.connect().call("GET", MAPS, "", None).expect("an answer").1;
    let names: Vec<_> = list["items"].as_array().expect("items").iter().collect();
    assert!(names.iter().any(|item| item["metadata"]["name"] == "good"), "{list}");
    assert!(names.iter().all(|item| item["metadata"]["name"] != "bad"), "{list}");
    let at: u64 = list["metadata"]["resourceVersion"].as_str().expect("one").parse().expect("one");
    assert!(Some(at) >= saved["revision"].as_u64(), "{at} {saved}");
}
