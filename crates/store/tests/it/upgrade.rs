//! Upgrades of data directories of format 3, as an older version wrote them.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use keelson_store::conformance::{PowerDisk, Rng, drain, list, put};
use keelson_store::embedded::files::{FileRole, Files};
use keelson_store::embedded::{CheckItem, Offline, RedbDisk};
use keelson_store::{Embedded, EmbeddedOptions, OpenError, Revision, Store};
use tempfile::TempDir;

/// A records file of format 3, written by an older version from: 30 puts of ten keys `pods/NN`, of
/// `empty` and of `large`, the delete of `pods/03`, a compaction through revision 12 and a last put
/// of `pods/04`.
const RECORDS: &[u8] = include_bytes!("files/format3.redb.gz");
const LAST: Revision = Revision(34);

fn records() -> Vec<u8> {
    let mut bytes = vec![];
    flate2::read::GzDecoder::new(RECORDS).read_to_end(&mut bytes).unwrap();
    bytes
}

fn write(dir: &Path) {
    std::fs::write(dir.join("FORMAT"), "keelson-store 3\n").unwrap();
    std::fs::write(dir.join("LOCK"), "").unwrap();
    std::fs::write(dir.join("records.redb"), records()).unwrap();
}

/// Returns the newest version of each key.
fn expected() -> Vec<String> {
    let mut keys: BTreeMap<String, String> = (20..30)
        .map(|n| (format!("pods/{:02}", n % 10), format!("value {n} ").repeat(1 + n * 7)))
        .collect();
    keys.insert("empty".into(), String::new());
    keys.insert("large".into(), "0123456789abcdef".repeat(10_000));
    keys.remove("pods/03");
    keys.insert("pods/04".into(), "last".into());
    keys.into_iter().map(|(key, value)| format!("{key}={value}")).collect()
}

async fn check(store: &Embedded) {
    assert_eq!((store.revision(), store.floor()), (LAST, Revision(12)));
    assert!(list(store, "", None).await == expected());
    let kv = store.get(b"pods/07").await.unwrap().unwrap();
    assert_eq!((kv.created, kv.modified), (Revision(8), Revision(28)));
    let mut watch = store.watch(Bytes::from_static(b"pods/"), Revision(12)).unwrap();
    let events = drain(&mut *watch, LAST).await;
    let revisions: Vec<u64> = events.iter().map(|event| event.revision.0).collect();
    assert_eq!(revisions, (13..=30).chain([33, 34]).collect::<Vec<_>>());
}

#[tokio::test]
async fn an_upgrade_keeps_revisions_and_history() {
    let dir = TempDir::new().unwrap();
    write(dir.path());
    let refused = Offline::open(dir.path()).err().unwrap();
    assert!(matches!(refused, OpenError::Format { found: 3, known: 4, .. }), "{refused}");
    for _ in 0..2 {
        let store = Embedded::open(EmbeddedOptions::new(dir.path())).unwrap();
        check(&store).await;
    }
    assert_eq!(std::fs::read(dir.path().join("FORMAT")).unwrap(), b"keelson-store 4\n");
    let mut damages = vec![];
    let mut keep = |found| {
        if let CheckItem::Damage(line) = found {
            damages.push(line);
        }
    };
    Offline::open(dir.path()).unwrap().check(&mut keep).unwrap();
    assert_eq!(damages, [""; 0]);
    let store = Embedded::open(EmbeddedOptions::new(dir.path())).unwrap();
    assert_eq!(put(&*store, "new", "1").await, LAST.next());
}

#[tokio::test]
async fn an_upgrade_interrupted_after_writing_the_format_is_repeated() {
    let dir = TempDir::new().unwrap();
    write(dir.path());
    std::fs::write(dir.path().join("FORMAT"), "keelson-store 4\n").unwrap();
    std::fs::write(dir.path().join("records.redb.new"), "half a copy").unwrap();
    let refused = Offline::open(dir.path()).err().unwrap();
    assert!(matches!(refused, OpenError::Records { .. }), "{refused}");
    check(&Embedded::open(EmbeddedOptions::new(dir.path())).unwrap()).await;
}

#[tokio::test]
async fn a_power_cut_during_an_upgrade_loses_nothing() {
    let disk = PowerDisk::default();
    let file = disk.open(FileRole::Current).unwrap();
    file.set_len(records().len() as u64).unwrap();
    file.write(0, &records()).unwrap();
    file.sync_data().unwrap();
    drop(file);
    disk.start_snapshots(Rng(7));
    drop(RedbDisk::with_files(disk.clone()).unwrap());
    let snapshots = disk.take_snapshots();
    assert!(snapshots.len() > 10, "only {} moments", snapshots.len());
    for snapshot in snapshots {
        let disk = Arc::new(RedbDisk::with_files(snapshot.disk).unwrap());
        check(&Embedded::with_disk(disk).unwrap()).await;
    }
}

#[test]
fn damaged_pages_of_format_3_are_not_upgraded() {
    let dir = TempDir::new().unwrap();
    write(dir.path());
    let mut bytes = records();
    let text = b"0123456789abcdef";
    let place = bytes.windows(text.len()).position(|window| window == text).unwrap();
    bytes[place + 3] ^= 4;
    std::fs::write(dir.path().join("records.redb"), &bytes).unwrap();
    let refused = Embedded::open(EmbeddedOptions::new(dir.path())).err().unwrap();
    assert!(matches!(refused, OpenError::Records { .. }), "{refused}");
    assert_eq!(std::fs::read(dir.path().join("FORMAT")).unwrap(), b"keelson-store 3\n");
}
