//! A data directory at rest: backups, restores, and what a check finds.

use std::path::Path;

use keelson_store::backup::BackupReader;
use keelson_store::conformance::{delete, list, put};
use keelson_store::embedded::{Found, Offline, RestoreError, restore};
use keelson_store::{Embedded, EmbeddedOptions, OpenError, Revision, Store};
use redb::{Database, TableDefinition};
use tempfile::TempDir;

const HEADS: TableDefinition<'_, [u8; 12], &[u8]> = TableDefinition::new("heads");
const VALUES: TableDefinition<'_, [u8; 12], &[u8]> = TableDefinition::new("values");

async fn fill(dir: &Path) {
    let store = Embedded::open(EmbeddedOptions::new(dir)).unwrap();
    put(&*store, "a", "1").await;
    put(&*store, "b", "1").await;
    put(&*store, "a", "2").await;
    delete(&*store, "b").await;
    put(&*store, "b", "2").await;
    put(&*store, "c", "1").await;
}

/// What a check finds: live keys, older versions, damages.
fn check(dir: &Path) -> (Vec<String>, usize, Vec<String>) {
    let (mut live, mut past, mut damages) = (vec![], 0, vec![]);
    let offline = Offline::open(dir).unwrap();
    let extent = offline.check(&mut |found| match found {
        Found::Live(kv) => live.push(format!("{kv:?}")),
        Found::Past(_) => past += 1,
        Found::Damage(line) => damages.push(line),
    });
    assert_eq!(extent.unwrap().newest, Revision(6));
    (live, past, damages)
}

fn name(revision: u64) -> [u8; 12] {
    let mut name = [0; 12];
    name[..8].copy_from_slice(&revision.to_be_bytes());
    name
}

#[tokio::test]
async fn a_whole_directory_has_no_damages() {
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
async fn records_that_do_not_fit_are_named() {
    type Change = fn(&redb::WriteTransaction);
    let checks: [(&str, Change); 7] = [
        ("record 3.0 (a) has a value of 2 bytes, not of 1", |txn| {
            txn.open_table(VALUES).unwrap().insert(name(3), &b"11"[..]).unwrap();
        }),
        ("record 3.0 (a) has no value", |txn| {
            txn.open_table(VALUES).unwrap().remove(name(3)).unwrap();
        }),
        ("record 3.0 has a value and no head", |txn| {
            txn.open_table(HEADS).unwrap().remove(name(3)).unwrap();
        }),
        ("record 4.0 (b) is a delete and has a value", |txn| {
            txn.open_table(VALUES).unwrap().insert(name(4), &b"x"[..]).unwrap();
        }),
        ("record 3.0 is damaged", |txn| {
            txn.open_table(HEADS).unwrap().insert(name(3), &b"\x07short"[..]).unwrap();
        }),
        ("record 6.0 (c): the revision of creation is out of bounds", |txn| {
            let row = [&[0][..], &9_u64.to_be_bytes(), b"c"].concat();
            txn.open_table(HEADS).unwrap().insert(name(6), &row[..]).unwrap();
        }),
        (
            "record 5.0 (b): the revision of creation does not follow from the record before",
            |txn| {
                let row = [&[0][..], &2_u64.to_be_bytes(), b"b"].concat();
                txn.open_table(HEADS).unwrap().insert(name(5), &row[..]).unwrap();
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
async fn a_directory_of_format_1_is_read_and_taken_over() {
    let dir = TempDir::new().unwrap();
    fill(dir.path()).await;
    let database = Database::open(dir.path().join("records.redb")).unwrap();
    let txn = database.begin_write().unwrap();
    for (revision, created, key) in [(1, 1, b"a"), (2, 2, b"b"), (3, 1, b"a"), (5, 5, b"b")] {
        let row = [&[0][..], &u64::to_be_bytes(created), key].concat();
        txn.open_table(HEADS).unwrap().insert(name(revision), &row[..]).unwrap();
    }
    txn.commit().unwrap();
    drop(database);
    std::fs::write(dir.path().join("FORMAT"), "keelson-store 1\n").unwrap();
    let before = check(dir.path());
    assert_eq!((before.0.len(), before.1, &before.2[..]), (3, 2, &[][..]));
    let store = Embedded::open(EmbeddedOptions::new(dir.path())).unwrap();
    assert_eq!(list(&*store, "", None).await, ["a=2", "b=2", "c=1"]);
    assert_eq!(list(&*store, "", Some(Revision(2))).await, ["a=1", "b=1"]);
    drop(store);
    assert_eq!(std::fs::read(dir.path().join("FORMAT")).unwrap(), b"keelson-store 2\n");
    assert_eq!(check(dir.path()), before);
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
    let (from, to) = (dir.path().join("from"), dir.path().join("a.b"));
    fill(&from).await;
    let mut bytes = vec![];
    Offline::open(&from).unwrap().backup(&mut bytes).unwrap();
    // Of something else, whose name is like that of an unfinished restore.
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
async fn what_is_not_at_rest_or_no_data_is_refused() {
    let dir = TempDir::new().unwrap();
    let refusal = || Offline::open(dir.path()).err().unwrap();
    assert!(matches!(refusal(), OpenError::Absent { .. }));
    let store = Embedded::open(EmbeddedOptions::new(dir.path())).unwrap();
    assert!(matches!(refusal(), OpenError::Locked { .. }));
    drop(store);
    std::fs::write(dir.path().join("FORMAT"), "keelson-store 3\n").unwrap();
    assert!(matches!(refusal(), OpenError::Newer { found: 3, .. }));
}
