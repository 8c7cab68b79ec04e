//! Closing and opening a store, and directories that cannot be opened.

use std::sync::Arc;

use bytes::Bytes;
use keelson_store::conformance::{delete, drain, list, put};
use keelson_store::{
    Durability, Embedded, EmbeddedOptions, OpenError, Revision, Store, WatchError, WriteError,
};
use tempfile::TempDir;

fn open(dir: &TempDir) -> Arc<Embedded> {
    Embedded::open(EmbeddedOptions::new(dir.path())).expect("open")
}

fn refusal(dir: &TempDir) -> OpenError {
    match Embedded::open(EmbeddedOptions::new(dir.path())) {
        Err(error) => error,
        Ok(_) => panic!("opened"),
    }
}

#[tokio::test]
async fn a_restart_keeps_everything() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    let first = put(&*store, "a", "1").await;
    let second = put(&*store, "a", "2").await;
    delete(&*store, "b").await;
    drop(store);
    let store = open(&dir);
    assert_eq!((store.revision(), store.floor()), (second, Revision(0)));
    let kv = store.get(b"a").await.unwrap().unwrap();
    assert_eq!((&kv.value[..], kv.created, kv.modified), (&b"2"[..], first, second));
    assert_eq!(list(&*store, "", Some(first)).await, ["a=1"]);
    assert!(put(&*store, "a", "3").await > second);
}

#[tokio::test]
async fn revisions_grow_over_restarts_even_when_nothing_is_left() {
    let dir = TempDir::new().unwrap();
    let mut last = Revision(0);
    for _ in 0..3 {
        let store = open(&dir);
        assert_eq!(store.revision(), last);
        put(&*store, "a", "1").await;
        let gone = delete(&*store, "a").await;
        assert!(gone > last);
        store.compact(gone).await.unwrap();
        last = gone;
    }
    let store = open(&dir);
    assert_eq!((store.revision(), store.floor()), (last, last));
    assert_eq!(list(&*store, "", None).await, [""; 0]);
}

#[tokio::test]
async fn a_watch_continues_from_before_the_restart() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    for n in 0..30 {
        put(&*store, &format!("p/{}", n % 4), &n.to_string()).await;
    }
    let floor = Revision(10);
    store.compact(floor).await.unwrap();
    drop(store);
    let store = open(&dir);
    let last = put(&*store, "p/0", "30").await;
    for after in 10..30 {
        let mut watch = store.watch(Bytes::from_static(b"p/"), Revision(after)).unwrap();
        let events = drain(&mut *watch, last).await;
        let values: Vec<_> = events.iter().map(|event| event.value.clone().unwrap()).collect();
        let expected: Vec<_> = (after..=30).map(|n| Bytes::from(n.to_string())).collect();
        assert_eq!(values, expected, "after {after}");
    }
    let refused = store.watch(Bytes::new(), Revision(9)).map(|_| ());
    assert!(matches!(refused, Err(WatchError::Compacted { .. })));
}

#[tokio::test]
async fn a_watch_behind_the_ring_reads_from_disk_and_catches_up() {
    let store = Embedded::in_memory();
    let mut watch = store.watch(Bytes::from_static(b"k"), Revision(0)).unwrap();
    for n in 0..20_000_u32 {
        let key = if n % 100 == 0 { "k" } else { "other" };
        put(&*store, key, &n.to_string()).await;
    }
    let events = drain(&mut *watch, store.revision()).await;
    assert_eq!(events.len(), 200);
    assert!(events.iter().zip(0..).all(|(event, n)| event.revision == Revision(n * 100 + 1)));
}

#[tokio::test]
async fn a_load_reads_one_revision_during_compaction() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    for n in 0..10 {
        put(&*store, &format!("k{n}"), "old").await;
    }
    let before = store.revision();
    let mut values = Vec::new();
    let mut keep = |kv: keelson_store::KeyValue| {
        if values.is_empty() {
            overwrite_and_compact(Arc::clone(&store));
        }
        values.push(kv.value);
    };
    assert_eq!(store.load(b"", None, &mut keep).await.unwrap(), before);
    assert_eq!(values, [&b"old"[..]; 10]);
    assert!(store.floor() > before);
    assert_eq!(list(&*store, "", None).await.len(), 10);
}

/// Runs on another thread and waits for it.
fn overwrite_and_compact(store: Arc<Embedded>) {
    let work = async move {
        for n in 0..10 {
            put(&*store, &format!("k{n}"), "new").await;
        }
        store.compact(store.revision()).await.unwrap();
        // Prunes run between commits.
        put(&*store, "k0", "newer").await;
        put(&*store, "k0", "newest").await;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    std::thread::spawn(move || runtime.block_on(work)).join().unwrap();
}

#[tokio::test]
async fn a_closed_store_serves_reads_and_refuses_writes() {
    let store = Embedded::in_memory();
    let at = put(&*store, "a", "1").await;
    let mut watch = store.watch(Bytes::new(), at).unwrap();
    store.close();
    store.close();
    assert!(matches!(watch.next().await, Err(WatchError::Closed)));
    let txn = keelson_store::Txn::default();
    assert!(matches!(store.txn(txn).await, Err(WriteError::Closed)));
    assert!(store.health().is_err());
    assert_eq!(list(&*store, "", None).await, ["a=1"]);
}

#[tokio::test]
async fn a_leaked_watch_does_not_lock_the_directory() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    let mut watch = store.watch(Bytes::new(), Revision(0)).unwrap();
    drop(store);
    assert!(matches!(watch.next().await, Err(WatchError::Closed)));
    drop(open(&dir));
}

#[test]
fn a_directory_is_locked_by_one_store() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    let error = refusal(&dir);
    assert!(matches!(error, OpenError::Locked { .. }), "{error}");
    let line = format!("data directory {} is in use by another process", dir.path().display());
    assert_eq!(error.to_string(), line);
    drop(store);
    drop(open(&dir));
}

#[test]
fn another_format_is_refused() {
    let older = ": restore a backup made by the version that wrote it";
    for (found, after) in [(5, ""), (2, older)] {
        let dir = TempDir::new().unwrap();
        drop(open(&dir));
        std::fs::write(dir.path().join("FORMAT"), format!("keelson-store {found}\n")).unwrap();
        let error = refusal(&dir).to_string();
        let line = format!("has format {found}, this version reads 4{after}");
        assert!(error.ends_with(&line), "{error}");
    }
}

#[test]
fn a_directory_of_something_else_is_left_alone() {
    for name in ["notes.txt", "FORMAT"] {
        let dir = TempDir::new().unwrap();
        std::fs::write(dir.path().join(name), "mine").unwrap();
        let error = refusal(&dir);
        assert!(matches!(error, OpenError::Foreign { .. }), "{name}: {error}");
        assert_eq!(std::fs::read(dir.path().join(name)).unwrap(), b"mine");
        assert!(!dir.path().join("records.redb").exists());
    }
}

#[test]
fn an_interrupted_creation_is_finished() {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("LOCK"), "").unwrap();
    std::fs::write(dir.path().join("FORMAT.new"), "keel").unwrap();
    drop(open(&dir));
    assert_eq!(std::fs::read(dir.path().join("FORMAT")).unwrap(), b"keelson-store 4\n");
}

#[test]
fn damaged_records_are_an_error() {
    let dir = TempDir::new().unwrap();
    drop(open(&dir));
    std::fs::write(dir.path().join("records.redb"), vec![7; 8192]).unwrap();
    let error = refusal(&dir);
    assert!(matches!(error, OpenError::Records { .. }), "{error}");
}

#[test]
fn memory_leaves_the_directory_alone() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("absent");
    let options =
        EmbeddedOptions { durability: Durability::Memory, ..EmbeddedOptions::new(path.clone()) };
    drop(Embedded::open(options).unwrap());
    assert!(!path.exists());
}

#[tokio::test]
async fn unsynced_writes_are_there_after_a_restart() {
    let dir = TempDir::new().unwrap();
    let durability = Durability::Unsynced;
    let options = EmbeddedOptions { durability, ..EmbeddedOptions::new(dir.path()) };
    let store = Embedded::open(options).unwrap();
    put(&*store, "a", "1").await;
    drop(store);
    assert_eq!(list(&*open(&dir), "", None).await, ["a=1"]);
}
