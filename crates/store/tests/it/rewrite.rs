//! Rewrites: the records file shrinks while it is in use, and nothing else changes.

use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use bytes::Bytes;
use keelson_store::conformance::{commit, drain, list, put};
use keelson_store::embedded::disk::{Disk, Head, MemDisk, Record, RecordId, Sink, StoredRecord};
use keelson_store::embedded::{CheckItem, Offline};
use keelson_store::{DiskError, Embedded, EmbeddedOptions, Op, Revision, Store, Txn, WriteError};
use tempfile::TempDir;

use crate::log;
use crate::sim::{one_put, recovered, until};

const DEADLINE: Duration = Duration::from_secs(30);

/// Returns a value that is unique to `n`.
fn value(n: usize, bytes: usize) -> String {
    let mut value = format!("{n:08}-").repeat(bytes / 9 + 1);
    value.truncate(bytes);
    value
}

/// Puts `k0` to `k{keys}`, in transactions of 50, with values unique to the round.
async fn put_all(store: &dyn Store, keys: usize, round: usize, bytes: usize) -> Revision {
    let mut last = Revision(0);
    for first in (0..keys).step_by(50) {
        let put = |n: usize| Op::put(format!("k{n:05}"), value(n + round * 100_000, bytes));
        let ops = (first..(first + 50).min(keys)).map(put).collect();
        last = commit(store, Txn { compare: vec![], ops }).await;
    }
    last
}

fn inode(dir: &Path) -> u64 {
    dir.join("records.redb").metadata().unwrap().ino()
}

/// Returns the disk space of the directory in bytes.
fn disk_usage(dir: &Path) -> u64 {
    let entries = dir.read_dir().unwrap().map(|entry| entry.unwrap().metadata().unwrap());
    entries.map(|entry| entry.blocks() * 512).sum()
}

#[tokio::test]
async fn a_directory_shrinks_below_three_times_its_live_data() {
    const KEYS: usize = 2000;
    const BYTES: usize = 2048;
    let dir = TempDir::new().unwrap();
    let store = Embedded::open(EmbeddedOptions::new(dir.path())).unwrap();
    let before = inode(dir.path());
    for round in 0..10 {
        put_all(&*store, KEYS, round, BYTES).await;
    }
    let last = store.revision();
    let live = (KEYS * BYTES) as u64;
    assert!(disk_usage(dir.path()) > 6 * live, "there is nothing to give back");
    store.compact(Revision(last.0 - 1)).await.unwrap();
    until(|| inode(dir.path()) != before && disk_usage(dir.path()) < 3 * live, "space");
    assert!(!dir.path().join("records.redb.new").exists());
    let now = list(&*store, "", None).await;
    assert_eq!(now.len(), KEYS);
    assert_eq!(now[7], format!("k00007={}", value(900_007, BYTES)));
    // History above the floor is kept, and a watch can start there.
    let past = list(&*store, "k01999", Some(Revision(last.0 - 1))).await;
    assert_eq!(past, [format!("k01999={}", value(801_999, BYTES))]);
    let next = put(&*store, "k00007", "new").await;
    assert_eq!(next, last.next());
    let mut rest = store.watch(Bytes::new(), Revision(last.0 - 1)).unwrap();
    assert_eq!(drain(&mut *rest, next).await.len(), 51);
    drop((rest, store));
    let mut damages = vec![];
    let summary = Offline::open(dir.path())
        .unwrap()
        .check(&mut |found| {
            if let CheckItem::Damage(line) = found {
                damages.push(line);
            }
        })
        .unwrap();
    assert_eq!((summary.newest, summary.floor, damages), (next, Revision(last.0 - 1), vec![]));
    let store = Embedded::open(EmbeddedOptions::new(dir.path())).unwrap();
    let mut expected = now;
    expected[7] = "k00007=new".to_owned();
    assert_eq!(list(&*store, "", None).await, expected);
}

#[tokio::test]
async fn a_new_file_left_by_a_crash_is_removed() {
    let dir = TempDir::new().unwrap();
    let open = || Embedded::open(EmbeddedOptions::new(dir.path())).unwrap();
    put(&*open(), "a", "1").await;
    let new_file = dir.path().join("records.redb.new");
    std::fs::write(&new_file, "half of it").unwrap();
    let store = open();
    assert!(!new_file.exists());
    assert_eq!(list(&*store, "", None).await, ["a=1"]);
}

/// An in-memory disk whose copies wait until the test lets them continue.
#[derive(Default)]
struct GatedDisk {
    records: MemDisk,
    gate: Mutex<Gate>,
    changed: Condvar,
}

#[derive(Default)]
struct Gate {
    should_rewrite: bool,
    is_shut: bool,
    failure: Option<&'static str>,
    refused: usize,
    started: usize,
    /// The revision through which records are copied.
    copied: Option<Revision>,
    discarded: usize,
    /// The copied revision and the floor of each switch to a copy.
    switches: Vec<(Option<Revision>, Revision)>,
}

impl GatedDisk {
    fn change(&self, change: impl FnOnce(&mut Gate)) {
        change(&mut self.gate.lock().unwrap());
        self.changed.notify_all();
    }

    fn until(&self, is_so: impl Fn(&Gate) -> bool, what: &str) {
        let gate = self.gate.lock().unwrap();
        let waited = self.changed.wait_timeout_while(gate, DEADLINE, |gate| !is_so(gate)).unwrap();
        assert!(!waited.1.timed_out(), "{what}");
    }
}

impl Disk for GatedDisk {
    fn floor(&self) -> Result<Revision, DiskError> {
        self.records.floor()
    }

    fn heads(&self, from: RecordId, sink: Sink<'_, Head>) -> Result<(), DiskError> {
        self.records.heads(from, sink)
    }

    fn records(&self, from: RecordId, sink: Sink<'_, StoredRecord>) -> Result<(), DiskError> {
        self.records.records(from, sink)
    }

    fn value(&self, id: RecordId) -> Result<Option<Bytes>, DiskError> {
        self.records.value(id)
    }

    fn commit(&self, records: &[Record], floor: Option<Revision>) -> Result<(), DiskError> {
        if self.gate.lock().unwrap().failure == Some("commit") {
            self.change(|gate| gate.refused += 1);
            return Err(step_error("commit"));
        }
        self.records.commit(records, floor)
    }

    fn forget(&self, ids: &[RecordId]) -> Result<u64, DiskError> {
        assert_eq!(self.gate.lock().unwrap().copied, None, "forgotten beside a copy");
        self.records.forget(ids)
    }

    fn settle(&self) -> Result<(), DiskError> {
        Ok(())
    }

    fn recover(&self, undo: &[RecordId], floor: Revision) -> Result<(), DiskError> {
        self.records.recover(undo, floor)
    }

    fn should_rewrite(&self, bytes: u64) -> bool {
        let mut held = 0;
        let first = RecordId::first(Revision(0));
        let mut add = |head: Head| {
            held += head.bytes();
            ControlFlow::Continue(())
        };
        self.records.heads(first, &mut add).unwrap();
        assert_eq!(bytes, held, "the sum of what is on the disk");
        self.gate.lock().unwrap().should_rewrite
    }

    fn copy(&self, from: RecordId, through: Revision) -> Result<Option<RecordId>, DiskError> {
        let is_first = from == RecordId::first(Revision(0));
        self.change(|gate| {
            gate.started += usize::from(is_first);
            gate.copied = gate.copied.or(Some(Revision(0)));
        });
        let gate = self.gate.lock().unwrap();
        let shut = |gate: &mut Gate| gate.is_shut;
        let (mut gate, _) = self.changed.wait_timeout_while(gate, DEADLINE, shut).unwrap();
        if gate.failure == Some("copy") {
            return Err(step_error("copy"));
        }
        gate.copied = Some(through);
        // The first step is incomplete.
        Ok(is_first.then(|| RecordId::first(Revision(1))))
    }

    fn switch_to_copy(&self, floor: Revision) -> Result<(), DiskError> {
        self.change(|gate| {
            gate.should_rewrite = false;
            gate.switches.push((gate.copied.take(), floor));
        });
        Ok(())
    }

    fn discard_copy(&self) {
        self.change(|gate| gate.discarded += usize::from(gate.copied.take().is_some()));
    }
}

fn step_error(what: &str) -> DiskError {
    Arc::new(std::io::Error::other(format!("to {what} here fails")))
}

/// Returns a store whose rewrite waits at the gate.
async fn copying() -> (Arc<GatedDisk>, Arc<Embedded>, Revision) {
    let disk = Arc::new(GatedDisk::default());
    disk.change(|gate| (gate.should_rewrite, gate.is_shut) = (true, true));
    let store = Embedded::with_disk(Arc::clone(&disk) as _).unwrap();
    for n in 0..100 {
        put(&*store, &format!("k{}", n % 10), &n.to_string()).await;
    }
    store.compact(Revision(100)).await.unwrap();
    disk.until(|gate| gate.started == 1, "a copy begins");
    assert_eq!(disk.records.len(), 10, "all is forgotten before");
    (disk, store, Revision(100))
}

#[tokio::test]
async fn writes_during_a_copy_are_in_the_copy() {
    let (disk, store, last) = copying().await;
    for n in 0..10 {
        put(&*store, "k0", &n.to_string()).await;
    }
    let floor = Revision(last.0 + 5);
    store.compact(floor).await.unwrap();
    assert_eq!(disk.records.len(), 20, "nothing is forgotten beside a copy");
    disk.change(|gate| gate.is_shut = false);
    disk.until(|gate| gate.switches == [(Some(Revision(110)), floor)], "the file is replaced");
    until(|| disk.records.len() == 15, "forgotten afterwards");
    assert_eq!(list(&*store, "k0", None).await, ["k0=9"]);
}

#[tokio::test]
async fn a_rewrite_is_cancelled_under_load_and_repeated_at_rest() {
    let (disk, store, last) = copying().await;
    let large = value(1, 1 << 20);
    for n in 1..=6 {
        assert_eq!(put(&*store, "large", &large).await, Revision(last.0 + n));
    }
    disk.change(|gate| gate.is_shut = false);
    disk.until(|gate| gate.discarded == 1 && gate.started == 2, "it begins again");
    disk.until(|gate| !gate.switches.is_empty(), "the file is replaced");
    let gate = disk.gate.lock().unwrap();
    assert_eq!((gate.started, &gate.switches[..]), (2, &[(Some(Revision(106)), last)][..]));
}

#[tokio::test]
async fn a_failed_copy_is_logged_and_changes_nothing_else() {
    log::start();
    let (disk, store, last) = copying().await;
    disk.change(|gate| (gate.is_shut, gate.failure) = (false, Some("copy")));
    disk.until(|gate| gate.discarded == 1, "it is given up");
    let words = step_error("copy").to_string();
    until(|| !log::lines(&words).is_empty(), "a line in the log");
    let line = format!("WARN message=the records file did not get smaller source={words}");
    assert_eq!(log::lines(&words), [line]);
    disk.change(|gate| gate.failure = None);
    assert!(store.health().is_ok());
    assert_eq!(put(&*store, "k0", "new").await, last.next());
    store.compact(last.next()).await.unwrap();
    disk.until(|gate| gate.switches.len() == 1, "the next compaction asks for it again");
}

#[tokio::test]
async fn a_disk_failure_cancels_the_copy() {
    let (disk, store, last) = copying().await;
    disk.change(|gate| gate.failure = Some("commit"));
    let writing = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.txn(one_put("k0", "lost")).await }
    });
    tokio::task::yield_now().await;
    disk.until(|gate| gate.refused > 0, "the commit fails");
    disk.change(|gate| gate.is_shut = false);
    let error = writing.await.unwrap().unwrap_err();
    assert!(matches!(error, WriteError::Failed { .. }), "{error}");
    disk.change(|gate| gate.failure = None);
    recovered(&*store).await;
    assert_eq!(put(&*store, "k0", "1").await, last.next());
    let gate = disk.gate.lock().unwrap();
    assert_eq!((gate.discarded, &gate.switches[..]), (1, &[][..]));
}
