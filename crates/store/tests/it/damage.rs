//! Bit rot: damage on disk is detected, never served, and affects only its own key.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use keelson_store::backup::BackupReader;
use keelson_store::conformance::{Rng, drain, put};
use keelson_store::embedded::{CheckItem, Offline, remove_damaged, restore};
use keelson_store::{
    Embedded, EmbeddedOptions, KeyValue, OpenError, Range, ReadError, Revision, Store, WatchError,
    WriteError,
};
use redb::ReadableTable;
use tempfile::TempDir;

const KEYS: usize = 32;
const FLIPS: usize = 1000;

fn key(n: usize) -> String {
    format!("registry/pods/{n:03}")
}

/// Values of many lengths, so that some have several parts; all are different.
fn value(n: usize) -> String {
    format!("<{n:03}>").repeat(1 + n * n * 2)
}

/// Makes a data directory with history; returns the content of its records file.
async fn make_with_history(dir: &Path) -> Vec<u8> {
    let store = Embedded::open(EmbeddedOptions::new(dir)).unwrap();
    put_all(&store).await;
    store.close();
    drop(store);
    std::fs::read(dir.join("records.redb")).unwrap()
}

async fn put_all(store: &Embedded) {
    for n in 0..KEYS {
        put(store, &key(n), &value(n)).await;
    }
}

/// Makes a data directory with few unused pages; returns the content of its records file.
async fn make_compact(dir: &Path) -> Vec<u8> {
    let store = Embedded::in_memory();
    put_all(&store).await;
    let mut backup = vec![];
    store.backup(&mut backup).unwrap();
    let made = dir.join("made");
    restore(&made, &mut BackupReader::new(&backup[..]).unwrap(), &mut |_| {}).unwrap();
    for name in ["FORMAT", "LOCK", "records.redb"] {
        std::fs::rename(made.join(name), dir.join(name)).unwrap();
    }
    std::fs::remove_dir(made).unwrap();
    std::fs::read(dir.join("records.redb")).unwrap()
}

fn write(dir: &Path, records: &[u8]) {
    std::fs::write(dir.join("records.redb"), records).unwrap();
}

/// Returns the offsets of `bytes` in the file.
fn offsets(records: &[u8], bytes: &[u8]) -> Vec<usize> {
    let windows = records.windows(bytes.len()).enumerate();
    windows.filter(|(_, window)| *window == bytes).map(|(offset, _)| offset).collect()
}

fn damages(dir: &Path) -> Vec<String> {
    let mut damages = vec![];
    let mut keep = |found| {
        if let CheckItem::Damage(line) = found {
            damages.push(line);
        }
    };
    match Offline::open(dir).and_then(|offline| offline.check(&mut keep)) {
        Ok(_) => {}
        Err(error) => damages.push(error.to_string()),
    }
    damages
}

fn make_placeholder(why: &str) -> Bytes {
    format!("cannot be read: {why}").into()
}

/// Returns the offsets of record data: rows of heads, ids, and values.
fn record_offsets(records: &[u8]) -> [Vec<usize>; 3] {
    let [mut heads, mut names, mut values] = [vec![], vec![], vec![]];
    for n in 0..KEYS {
        let revision = (n as u64 + 1).to_be_bytes();
        // A key occurs only in its head, after the kind and two numbers.
        for offset in offsets(records, key(n).as_bytes()) {
            heads.extend(offset - 13..offset + key(n).len() + 4);
        }
        for offset in offsets(records, format!("<{n:03}>").as_bytes()) {
            values.extend(offset..offset + 5);
        }
        // The ids of the head and of the parts.
        for offset in offsets(records, &[&revision[..], &[0; 4]].concat()) {
            names.extend(offset..offset + 12);
        }
    }
    [heads, names, values]
}

#[tokio::test]
async fn a_check_finds_every_flipped_bit_and_no_read_returns_one() {
    let dir = TempDir::new().unwrap();
    let whole = make_compact(dir.path()).await;
    let offsets = record_offsets(&whole);
    let mut rng = Rng(20_261_122);
    let mut found = 0;
    let mut refused = 0;
    let mut unreadable = 0;
    let mut unused = 0;
    while found < FLIPS {
        let some = &offsets[found % offsets.len()];
        let offset = some[rng.below(some.len() as u64) as usize];
        let bit = rng.below(8);
        let mut flipped = whole.clone();
        flipped[offset] ^= 1 << bit;
        write(dir.path(), &flipped);
        let damages = damages(dir.path());
        let (read, is_open) = read_all(dir.path()).await;
        if damages.is_empty() {
            // An unused page, which is never read.
            assert!(is_open && read.iter().all(|ok| *ok), "bit {bit} of {offset} is not found");
            unused += 1;
            continue;
        }
        found += 1;
        refused += usize::from(!is_open);
        unreadable += read.iter().filter(|ok| !**ok).count();
    }
    assert!(unused < 100, "{unused} flips in pages that are not in use");
    assert!(refused > 300 && unreadable > 300, "{refused} {unreadable}");
}

/// Returns which keys can be read, and whether the store opens. Panics if a value is wrong.
async fn read_all(dir: &Path) -> (Vec<bool>, bool) {
    let Ok(store) = Embedded::open(EmbeddedOptions::new(dir)) else { return (vec![], false) };
    let mut read = vec![];
    for n in 0..KEYS {
        let got = store.get(key(n).as_bytes()).await;
        if let Ok(kv) = &got {
            let kv = kv.as_ref().expect("no key is missing");
            assert!(kv.value == value(n), "{} has another value", key(n));
            assert_eq!((kv.created, kv.modified), (Revision(n as u64 + 1), Revision(n as u64 + 1)));
        }
        read.push(got.is_ok());
    }
    (read, true)
}

/// Flips a bit in the value of one key, which is on disk only once.
fn flip_value(dir: &Path, whole: &[u8], n: usize) {
    let mut flipped = whole.to_vec();
    for offset in offsets(whole, format!("<{n:03}>").as_bytes()) {
        flipped[offset + 2] ^= 1;
    }
    write(dir, &flipped);
}

#[tokio::test]
async fn a_damaged_value_affects_only_its_key() {
    let dir = TempDir::new().unwrap();
    let whole = make_with_history(dir.path()).await;
    flip_value(dir.path(), &whole, 9);
    let store = Embedded::open(EmbeddedOptions::new(dir.path())).unwrap();
    let error = store.get(key(9).as_bytes()).await.unwrap_err();
    assert_eq!(error.to_string(), format!("the stored value of {} cannot be read", key(9)));
    assert!(matches!(&error, ReadError::Damaged { key: k, .. } if *k == key(9)), "{error:?}");
    assert!(store.get(key(8).as_bytes()).await.is_ok());
    assert!(store.range(Range::prefix(b"registry/")).await.is_err());
    let txn = keelson_store::Txn {
        compare: vec![keelson_store::Compare { key: key(9).into(), modified: Revision(1) }],
        ops: vec![],
    };
    assert!(matches!(store.txn(txn).await, Err(WriteError::Unreadable { .. })));
    let mut watch = store.watch(Bytes::new(), Revision(0)).unwrap();
    assert!(matches!(watch.next().await, Err(WatchError::Backend { .. })));
    let error = store.backup(&mut vec![]).unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, format!("the stored value of {} cannot be read", key(9)));
    // After the key is written again, everything can be read.
    put(&*store, &key(9), "anew").await;
    assert_eq!(store.range(Range::prefix(b"registry/")).await.unwrap().items.len(), KEYS);
    store.backup(&mut vec![]).unwrap();
}

#[tokio::test]
async fn a_placeholder_replaces_a_damaged_value() {
    let dir = TempDir::new().unwrap();
    let whole = make_with_history(dir.path()).await;
    flip_value(dir.path(), &whole, 9);
    let make_placeholder: keelson_store::MakePlaceholder = make_placeholder;
    let options = EmbeddedOptions {
        make_placeholder: Some(make_placeholder),
        ..EmbeddedOptions::new(dir.path())
    };
    let store = Embedded::open(options).unwrap();
    let text = "cannot be read: record 10.0 is damaged: its value fails its checksum";
    let expected = |n| if n == 9 { text.to_owned() } else { value(n) };
    let check = |kvs: &[KeyValue]| {
        assert_eq!(kvs.len(), KEYS);
        assert!(kvs.iter().zip(0..).all(|(kv, n)| kv.key == key(n) && kv.value == expected(n)));
    };
    check(&store.range(Range::prefix(b"registry/")).await.unwrap().items);
    let mut loaded = vec![];
    store.load(b"registry/", None, &mut |kv| loaded.push(kv)).await.unwrap();
    check(&loaded);
    let mut watch = store.watch(Bytes::new(), Revision(0)).unwrap();
    let events = drain(&mut *watch, store.revision()).await;
    assert!(events.iter().zip(0..).all(|(event, n)| event.value.clone().unwrap() == expected(n)));
    assert!(store.backup(&mut vec![]).is_err(), "a backup has no stand-ins");
}

#[tokio::test]
async fn a_damaged_head_is_refused_and_can_be_removed() {
    let dir = TempDir::new().unwrap();
    let whole = make_compact(dir.path()).await;
    let mut flipped = whole.clone();
    for offset in offsets(&whole, key(9).as_bytes()) {
        flipped[offset + 3] ^= 16;
    }
    write(dir.path(), &flipped);
    let error = Embedded::open(EmbeddedOptions::new(dir.path())).err().unwrap();
    let OpenError::Records { source, .. } = &error else { panic!("{error}") };
    assert_eq!(source.to_string(), "record 10.0 is damaged: its head fails its checksum");
    let mut removed = vec![];
    remove_damaged(dir.path(), &|_| None, &mut |one| removed.push(one.why)).unwrap();
    assert_eq!(removed, ["record 10.0 is damaged: its head fails its checksum"]);
    assert_eq!(damages(dir.path()), [""; 0]);
    let store = Embedded::open(EmbeddedOptions::new(dir.path())).unwrap();
    assert!(store.get(key(9).as_bytes()).await.unwrap().is_none());
    assert!(store.get(key(10).as_bytes()).await.unwrap().is_some());
}

#[tokio::test]
async fn swapped_values_are_detected() {
    let dir = TempDir::new().unwrap();
    drop(make_compact(dir.path()).await);
    let parts: redb::TableDefinition<'_, [u8; 14], &[u8]> = redb::TableDefinition::new("parts");
    let name = |revision: u8, part: u8| {
        let mut name = [0; 14];
        (name[7], name[13]) = (revision, part);
        name
    };
    // Values of the same length, and two parts of one value.
    for (a, b) in [(name(1, 0), name(2, 0)), (name(31, 0), name(31, 1))] {
        let database = redb::Database::open(dir.path().join("records.redb")).unwrap();
        let txn = database.begin_write().unwrap();
        {
            let mut table = txn.open_table(parts).unwrap();
            let [first, second] =
                [a, b].map(|name| table.get(name).unwrap().unwrap().value().to_vec());
            table.insert(a, &second[..]).unwrap();
            table.insert(b, &first[..]).unwrap();
        }
        txn.commit().unwrap();
    }
    let store = Embedded::open(EmbeddedOptions::new(dir.path())).unwrap();
    for n in [0, 1, 30] {
        let got = store.get(key(n).as_bytes()).await;
        assert!(matches!(got, Err(ReadError::Damaged { .. })), "{}: {got:?}", key(n));
    }
    assert!(store.get(key(2).as_bytes()).await.is_ok());
}

#[tokio::test]
async fn a_zeroed_page_is_an_error_and_no_panic() {
    let dir = TempDir::new().unwrap();
    let whole = make_compact(dir.path()).await;
    let mut refused = 0;
    let mut errors = 0;
    for page in 1..whole.len() / 4096 {
        let mut damaged = whole.clone();
        damaged[page * 4096..(page + 1) * 4096].fill(0);
        if damaged == whole {
            continue;
        }
        write(dir.path(), &damaged);
        let (read, is_open) = read_all(dir.path()).await;
        refused += usize::from(!is_open);
        errors += usize::from(read.iter().any(|ok| !*ok));
    }
    assert!(refused > 0 && errors > 0, "{refused} {errors}");
}

#[tokio::test]
async fn a_write_to_a_zeroed_page_is_refused_with_the_remedy() {
    let dir = TempDir::new().unwrap();
    let store = Embedded::open(EmbeddedOptions::new(dir.path())).unwrap();
    for n in 0..KEYS {
        put(&*store, &key(n), &value(n).repeat(60)).await;
    }
    drop(store);
    let store: Arc<Embedded> = Embedded::open(EmbeddedOptions::new(dir.path())).unwrap();
    // These reads evict the last pages from the cache, which the write needs.
    for n in 0..KEYS - 5 {
        store.get(key(n).as_bytes()).await.unwrap();
    }
    let records = OpenOptions::new().write(true).open(dir.path().join("records.redb")).unwrap();
    let length = records.metadata().unwrap().len() as usize;
    records.write_all_at(&vec![0; length - 4096], 4096).unwrap();
    let op = keelson_store::Op::Put { key: "new".into(), value: "1".into(), lease: None };
    let txn = keelson_store::Txn { compare: vec![], ops: vec![op] };
    for is_first in [true, false] {
        let source = match store.txn(txn.clone()).await {
            Err(WriteError::Failed { source }) if is_first => source,
            Err(WriteError::Refused { source }) if !is_first => source,
            other => panic!("{other:?}"),
        };
        let line = source.to_string();
        assert!(line.starts_with("records.redb is damaged (redb panicked: "), "{line}");
        assert!(line.contains("`keelson check`") && line.contains("`keelson restore`"), "{line}");
        assert!(store.health().is_err());
    }
    // Closing must not hang.
    store.close();
}
