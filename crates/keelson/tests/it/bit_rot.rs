//! Bit rot: a record with a flipped bit is never served, and other objects are unaffected.

use crate::http::{Client, Server};
use keelson::Keelson;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MAP_COUNT: usize = 8;

fn text(n: usize) -> String {
    format!("value-{n}-").repeat(40)
}

fn start(dir: &Path) -> Server {
    Server::start_plain(Keelson::builder().no_controllers().data_dir(dir))
}

fn create(client: &Client, n: usize) {
    let map = json!({"metadata": {"name": format!("m{n}")}, "data": {"text": text(n)}});
    let answer = client.post(MAPS, &map);
    assert_eq!(answer.status, 201, "{answer:?}");
}

/// Flips bits of each occurrence of some bytes in the records file.
fn flip(dir: &Path, bytes: &[u8], bit: u8) {
    let path = dir.join("store/records.redb");
    let mut records = fs::read(&path).expect("records");
    let windows = records.windows(bytes.len()).enumerate();
    let places: Vec<usize> =
        windows.filter(|(_, window)| *window == bytes).map(|(place, _)| place).collect();
    assert!(!places.is_empty(), "{bytes:?} are not in the file");
    for place in places {
        records[place + bytes.len() - 2] ^= bit;
    }
    fs::write(path, records).expect("records");
}

#[test]
fn a_flipped_bit_of_a_value_makes_only_this_object_unreadable() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = start(dir.path());
    (0..MAP_COUNT).for_each(|n| create(&server.client(), n));
    server.stop();
    flip(dir.path(), text(3).as_bytes(), 1);

    let server = start(dir.path());
    let client = server.client();
    for n in 0..MAP_COUNT {
        let answer = client.get(&format!("{MAPS}/m{n}"));
        if n == 3 {
            assert_eq!(answer.status, 500, "{answer:?}");
            let message = answer.body["message"].as_str().unwrap_or_default();
            assert!(message.contains("/registry/configmaps/default/m3"), "{message}");
            assert!(message.contains("its value fails its checksum"), "{message}");
        } else {
            assert_eq!(answer.body["data"]["text"], Value::from(text(n)), "{answer:?}");
        }
    }
    // Other kinds can be listed, and this one can be written.
    assert_eq!(client.get("/api/v1/namespaces").status, 200);
    create(&client, MAP_COUNT);
    assert_eq!(client.get("/readyz").status, 200);
    server.stop();

    let dir = dir.path().to_str().expect("a path");
    let check = Command::new(env!("CARGO_BIN_EXE_keelson"))
        .args(["check", "--data-dir", dir])
        .output()
        .expect("the binary runs");
    assert_eq!(check.status.code(), Some(1), "{check:?}");
    let said = String::from_utf8_lossy(&check.stderr);
    assert!(
        said.contains("its value fails its checksum (/registry/configmaps/default/m3)"),
        "{said}"
    );
}

#[test]
fn a_flipped_bit_of_a_key_fails_the_start_with_the_remedy() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = start(dir.path());
    create(&server.client(), 0);
    server.stop();
    flip(dir.path(), b"/registry/configmaps/default/m0", 2);
    let dir = dir.path().to_str().expect("a path");
    let serve = Command::new(env!("CARGO_BIN_EXE_keelson"))
        .args(["serve", "--secure-port", "0", "--data-dir", dir])
        .output()
        .expect("the binary runs");
    assert_eq!(serve.status.code(), Some(1), "{serve:?}");
    let said = String::from_utf8_lossy(&serve.stderr);
    assert!(said.contains("is damaged: its head fails its checksum"), "{said}");
    assert!(said.contains("`keelson check`") && said.contains("`keelson restore`"), "{said}");
}
