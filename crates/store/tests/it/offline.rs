//! Offline work on a data directory: backups, restores and checks.

use std::path::Path;

use keelson_store::backup::BackupReader;
use keelson_store::conformance::{delete, list, put};
use keelson_store::embedded::{CheckItem, Offline, RestoreError, restore};
use keelson_store::{Embedded, EmbeddedOptions, OpenError, Revision, Store};
use redb::{Database, TableDefinition};
use tempfile::TempDir;

const HEADS: TableDefinition<'_, [u8; 12], &[u8]> = TableDefinition::new("heads");
const PARTS: TableDefinition<'_, [u8; 14], &[u8]> = TableDefinition::new("parts");

async fn fill(dir: &Path) {
    let store = Embedded::open(EmbeddedOptions::new(dir)).unwrap();
    put(&*store, "a", "1").await;
    put(&*store, "b", "1").await;
    put(&*store, "a", "2").await;
    delete(&*store, "b").await;
    put(&*store, "b", "2").await;
    put(&*store, "c", "1").await;
}

/// Runs a check. Returns live keys, the number of older versions, and damages.
fn check(dir: &Path) -> (Vec<String>, usize, Vec<String>) {
    let mut live = vec![];
    let mut past = 0;
    let mut damages = vec![];
    let offline = Offline::open(dir).unwrap();
    let summary = offline.check(&mut |found| match found {
        CheckItem::Live(kv) => live.push(format!("{kv:?}")),
        CheckItem::Past(_) => past += 1,
        CheckItem::Damage(line) => damages.push(line),
    });
    assert_eq!(summary.unwrap().newest, Revision(6));
    (live, past, damages)
}

fn name(revision: u64) -> [u8; 12] {
    let mut name = [0; 12];
    name[..8].copy_from_slice(&revision.to_be_bytes());
    name
}

/// A head of a value of one byte, with its checksum.
fn head(revision: u64, created: u64, key: &[u8]) -> Vec<u8> {
    let row = [&[2][..], &created.to_be_bytes(), &1_u32.to_be_bytes(), key].concat();
    let sum = crc32fast::hash(&[b"head", &name(revision)[..], &row[..]].concat());
    [&row[..], &sum.to_be_bytes()].concat()
}

/// The first part of a value.
fn part(revision: u64) -> [u8; 14] {
    let mut part = [0; 14];
    part[..12].copy_from_slice(&name(revision));
    part
}

#[tokio::test]
async fn an_intact_directory_has_no_damages() {
    let dir = TempDir::new().unwrap();
    fill(dir.path()).await;
    let (live, past, damages) = check(dir.path());
    let expected = [
        "a (1 bytes, created 1, modified 3)",
        "b (1 bytes, created 5, modified 5)",
        "c (1 bytes, created 6, modified 6)",
    ];
    assert_eq!(live, expected);
    assert_eq!((past, damages), (2, vec![]));
}

#[tokio::test]
async fn values_of_every_length_are_read_back() {
    const LENGTHS: [usize; 12] =
        [0, 1, 1005, 1006, 2048, 4096, 16_361, 16_362, 32_746, 65_514, 65_515, 1_500_000];
    let dir = TempDir::new().unwrap();
    let open = || Embedded::open(EmbeddedOptions::new(dir.path())).unwrap();
    let value = |n: usize, length: usize| {
        let bytes = (0..length).map(|place| b'a' + ((n + place / 7 + place) % 26) as u8);
        String::from_utf8(bytes.collect()).unwrap()
    };
    let store = open();
    for n in 0..2 {
        for length in LENGTHS {
            put(&*store, &format!("k{length:07}"), &value(n, length)).await;
        }
    }
    drop(store);
    let store = open();
    for at in [None, Some(Revision(LENGTHS.len() as u64))] {
        let n = usize::from(at.is_none());
        let expected = LENGTHS.map(|length| format!("k{length:07}={}", value(n, length)));
        assert!(list(&*store, "", at).await == expected, "{at:?}");
    }
    store.compact(store.revision()).await.unwrap();
    // After the restart, all parts of the compacted records are removed.
    drop(store);
    drop(open());
    let mut found = vec![];
    Offline::open(dir.path()).unwrap().check(&mut |finding| found.push(finding)).unwrap();
    let damage = found.iter().find(|finding| matches!(finding, CheckItem::Damage(_)));
    assert!(damage.is_none(), "{damage:?}");
    let mut live: Vec<_> = found
        .iter()
        .filter_map(
            |found| if let CheckItem::Live(kv) = found { Some(kv.value.len()) } else { None },
        )
        .collect();
    live.sort_unstable();
    assert_eq!(live, LENGTHS);
}

#[tokio::test]
async fn inconsistent_records_are_reported() {
    type Change = fn(&redb::WriteTransaction);
    let checks: [(&str, Change); 7] = [
        ("record 3.0 is damaged: its value fails its checksum (a)", |txn| {
            txn.open_table(PARTS).unwrap().insert(part(3), &b"11"[..]).unwrap();
        }),
        ("record 3.0 is damaged: it has no value (a)", |txn| {
            txn.open_table(PARTS).unwrap().remove(part(3)).unwrap();
        }),
        ("record 3.0 is damaged: it has a value and no head", |txn| {
            txn.open_table(HEADS).unwrap().remove(name(3)).unwrap();
        }),
        ("record 4.0 is damaged: it is a delete and has a value (b)", |txn| {
            txn.open_table(PARTS).unwrap().insert(part(4), &b"x"[..]).unwrap();
        }),
        ("record 3.0 is damaged: its head fails its checksum", |txn| {
            txn.open_table(HEADS).unwrap().insert(name(3), &b"\x07short"[..]).unwrap();
        }),
        ("record 6.0 (c): the revision of creation is out of bounds", |txn| {
            txn.open_table(HEADS).unwrap().insert(name(6), &head(6, 9, b"c")[..]).unwrap();
        }),
        (
            "record 5.0 (b): the revision of creation does not follow from the record before",
            |txn| {
                txn.open_table(HEADS).unwrap().insert(name(5), &head(5, 2, b"b")[..]).unwrap();
            },
        ),
    ];
    for (expected, change) in checks {
        let dir = TempDir::new().unwrap();
        fill(dir.path()).await;
        let database = Database::open(dir.path().join("records.redb")).unwrap();
        let txn = database.begin_write().unwrap();
        change(&txn);
        txn.commit().unwrap();
        drop(database);
        let (_, _, damages) = check(dir.path());
        assert_eq!(damages, [expected]);
    }
}

#[tokio::test]
async fn a_backup_of_a_running_store_restores_to_the_same() {
    let dir = TempDir::new().unwrap();
    let from = dir.path().join("from");
    fill(&from).await;
    let store = Embedded::open(EmbeddedOptions::new(&from)).unwrap();
    store.compact(Revision(2)).await.unwrap();
    let mut bytes = vec![];
    let made = store.backup(&mut bytes).unwrap();
    assert_eq!((made.revision, made.objects, made.bytes), (Revision(6), 3, bytes.len() as u64));
    let mut reader = BackupReader::new(&bytes[..]).unwrap();
    let to = dir.path().join("to");
    assert_eq!(restore(&to, &mut reader, &mut |_| {}).unwrap(), made);
    let restored = Embedded::open(EmbeddedOptions::new(&to)).unwrap();
    assert_eq!((restored.revision(), restored.floor()), (Revision(6), Revision(6)));
    assert_eq!(list(&*restored, "", None).await, list(&*store, "", None).await);
    for key in ["a", "b", "c"] {
        let key = key.as_bytes();
        assert_eq!(restored.get(key).await.unwrap(), store.get(key).await.unwrap());
    }
    assert_eq!(put(&*restored, "d", "1").await, Revision(7));
}

#[tokio::test]
async fn one_restore_at_a_time_makes_a_directory() {
    let dir = TempDir::new().unwrap();
    let from = dir.path().join("from");
    let to = dir.path().join("a.b");
    fill(&from).await;
    let mut bytes = vec![];
    Offline::open(&from).unwrap().backup(&mut bytes).unwrap();
    // Another directory with a name like that of an unfinished restore.
    let other = dir.path().join("a.restoring");
    std::fs::create_dir(&other).unwrap();
    // Left by an attempt that was cut short.
    fill(&dir.path().join("a.b.restoring")).await;
    let mut refusals = 0;
    let made = restore(&to, &mut BackupReader::new(&bytes[..]).unwrap(), &mut |_| {
        let second = restore(&to, &mut BackupReader::new(&bytes[..]).unwrap(), &mut |_| {});
        assert!(matches!(second, Err(RestoreError::Open(OpenError::Locked { .. }))), "{second:?}");
        refusals += 1;
    });
    assert_eq!((made.unwrap().objects, refusals), (3, 3));
    let restored = Embedded::open(EmbeddedOptions::new(&to)).unwrap();
    assert_eq!(list(&*restored, "", None).await, ["a=2", "b=2", "c=1"]);
    assert!(other.exists() && !dir.path().join("a.b.restoring").exists());
}

#[tokio::test]
async fn a_directory_in_use_or_without_data_is_refused() {
    let dir = TempDir::new().unwrap();
    let refusal = || Offline::open(dir.path()).err().unwrap();
    assert!(matches!(refusal(), OpenError::Absent { .. }));
    let store = Embedded::open(EmbeddedOptions::new(dir.path())).unwrap();
    assert!(matches!(refusal(), OpenError::Locked { .. }));
    drop(store);
    std::fs::write(dir.path().join("FORMAT"), "keelson-store 5\n").unwrap();
    assert!(matches!(refusal(), OpenError::Format { found: 5, .. }));
}
