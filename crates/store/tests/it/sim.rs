//! The engine over a simulated disk that fails or stalls where the test wants it to.

use std::future::{Future, poll_fn};
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use keelson_store::conformance::{Rng, commit, drain, list, put};
use keelson_store::embedded::disk::{Disk, Head, MemDisk, Record, RecordId, Sink, StoredRecord};
use keelson_store::{
    Compare, DiskError, Embedded, HealthError, Op, Revision, Store, Txn, TxnOutcome, WriteError,
};

use crate::log;

const DEADLINE: Duration = Duration::from_secs(5);

/// What happens to the data of the failed commit: after a failed sync it may be lost or kept.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Fault {
    Lost,
    Kept,
}

struct SimDisk {
    records: Arc<MemDisk>,
    plan: Mutex<Plan>,
    opened: Condvar,
    entered: Mutex<Sender<()>>,
}

#[derive(Default)]
struct Plan {
    commits: usize,
    fault: Option<(usize, Fault)>,
    is_gate_shut: bool,
    /// Whether the disk works again after its fault.
    is_repaired: bool,
    /// Whether commits wait at the gate after writing the records instead of before.
    is_gate_late: bool,
    /// The step that currently fails, in addition to the commit of `fault`.
    broken: Option<&'static str>,
}

impl SimDisk {
    fn new(records: &Arc<MemDisk>, fault: Option<(usize, Fault)>) -> (Arc<Self>, Receiver<()>) {
        let (sender, entered) = channel();
        let plan = Mutex::new(Plan { fault, ..Plan::default() });
        let records = Arc::clone(records);
        let opened = Condvar::new();
        (Arc::new(Self { records, plan, opened, entered: Mutex::new(sender) }), entered)
    }

    fn shut_gate(&self, is_shut: bool) {
        self.plan.lock().unwrap().is_gate_shut = is_shut;
        self.opened.notify_all();
    }

    fn try_step(&self, step: &str) -> Result<(), DiskError> {
        match self.plan.lock().unwrap().broken {
            Some(broken) if broken == step => Err(step_error(step)),
            _ => Ok(()),
        }
    }
}

/// Returns the error of a failing step.
fn step_error(step: &str) -> DiskError {
    Arc::new(std::io::Error::other(format!("to {step} fails here")))
}

impl Disk for SimDisk {
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
        self.try_step("read")?;
        self.records.value(id)
    }

    fn commit(&self, records: &[Record], floor: Option<Revision>) -> Result<(), DiskError> {
        self.try_step(if floor.is_some() { "compact" } else { "write" })?;
        let plan = self.plan.lock().unwrap();
        if plan.is_gate_late {
            self.records.commit(records, floor)?;
        }
        let _ = self.entered.lock().unwrap().send(());
        let shut = |plan: &mut Plan| plan.is_gate_shut;
        // With a timeout, so that a failing test ends too.
        let (mut plan, _) = self.opened.wait_timeout_while(plan, DEADLINE, shut).unwrap();
        plan.commits += 1;
        if plan.is_gate_late {
            return Ok(());
        }
        let Some((_, fault)) = plan.fault.filter(|(at, _)| *at == plan.commits) else {
            return self.records.commit(records, floor);
        };
        if fault == Fault::Kept {
            self.records.commit(records, floor)?;
        }
        Err(Arc::new(std::io::Error::other("sync failed")))
    }

    fn forget(&self, ids: &[RecordId]) -> Result<u64, DiskError> {
        self.try_step("forget")?;
        self.records.forget(ids)
    }

    fn settle(&self) -> Result<(), DiskError> {
        self.try_step("settle")
    }

    fn recover(&self, undo: &[RecordId], floor: Revision) -> Result<(), DiskError> {
        if self.plan.lock().unwrap().is_repaired {
            return self.records.recover(undo, floor);
        }
        Err(Arc::new(std::io::Error::other("still failing")))
    }
}

pub fn one_put(key: &str, value: &str) -> Txn {
    let op = Op::Put { key: key.to_owned().into(), value: value.to_owned().into(), lease: None };
    Txn { compare: vec![], ops: vec![op] }
}

#[tokio::test]
async fn a_failed_sync_stops_acknowledgements() {
    for fault in [Fault::Lost, Fault::Kept] {
        let records = Arc::new(MemDisk::new());
        let (disk, _entered) = SimDisk::new(&records, Some((3, fault)));
        let store = Embedded::with_disk(disk).unwrap();
        let mut watch = store.watch(Bytes::new(), Revision(0)).unwrap();
        put(&*store, "a", "1").await;
        let last = put(&*store, "b", "1").await;
        let error = store.txn(one_put("c", "1")).await.unwrap_err();
        assert!(matches!(error, WriteError::Failed { .. }), "{fault:?}: {error}");
        for _ in 0..3 {
            let error = store.txn(one_put("d", "1")).await.unwrap_err();
            assert!(matches!(error, WriteError::Refused { .. }), "{fault:?}: {error}");
        }
        let error = store.compact(last).await.unwrap_err();
        assert!(matches!(error, WriteError::Refused { .. }), "{fault:?}: {error}");
        assert!(matches!(store.health(), Err(HealthError::Failing { .. })));
        assert_eq!(store.revision(), last);
        assert_eq!(list(&*store, "", None).await, ["a=1", "b=1"], "{fault:?}");
        assert_eq!(drain(&mut *watch, last).await.len(), 2);
        drop(store);
        let store = Embedded::with_disk(records).unwrap();
        assert!(store.health().is_ok());
        let is_kept = store.get(b"c").await.unwrap().is_some();
        assert_eq!(is_kept, fault == Fault::Kept);
    }
}

#[tokio::test]
async fn a_failed_write_is_undone_and_writes_continue() {
    for fault in [Fault::Lost, Fault::Kept] {
        let records = Arc::new(MemDisk::new());
        let (disk, _entered) = SimDisk::new(&records, Some((2, fault)));
        let store = Embedded::with_disk(Arc::clone(&disk) as _).unwrap();
        let mut watch = store.watch(Bytes::new(), Revision(0)).unwrap();
        let before = put(&*store, "a", "1").await;
        let error = store.txn(one_put("lost", "1")).await.unwrap_err();
        assert!(matches!(error, WriteError::Failed { .. }), "{fault:?}: {error}");
        disk.plan.lock().unwrap().is_repaired = true;
        recovered(&*store).await;
        let after = put(&*store, "b", "1").await;
        assert_eq!(after, before.next(), "nobody has seen the revision that failed");
        assert_eq!(drain(&mut *watch, after).await.len(), 2);
        drop(store);
        let store = Embedded::with_disk(records).unwrap();
        assert_eq!(list(&*store, "", None).await, ["a=1", "b=1"], "{fault:?}");
    }
}

#[tokio::test]
async fn the_first_failure_is_logged_once() {
    log::start();
    for step in ["write", "compact", "forget", "settle"] {
        let (disk, _entered) = SimDisk::new(&Arc::new(MemDisk::new()), None);
        let store = Embedded::with_disk(Arc::clone(&disk) as _).unwrap();
        let break_disk = || disk.plan.lock().unwrap().broken = Some(step);
        if step == "settle" {
            // The disk settles without a request.
            break_disk();
        }
        put(&*store, "a", "1").await;
        let last = put(&*store, "a", "2").await;
        break_disk();
        match step {
            "write" => drop(store.txn(one_put("a", "3")).await),
            "compact" | "forget" => drop(store.compact(last).await),
            _ => {}
        }
        until(|| store.health().is_err(), step);
        for _ in 0..3 {
            let error = store.txn(one_put("a", "4")).await.unwrap_err();
            assert!(matches!(error, WriteError::Refused { .. }), "{step}: {error}");
        }
        let logged = log::lines(&step_error(step).to_string());
        let want = format!(
            "ERROR message=the disk fails, writes are refused until it works again \
             step={step:?} source={}",
            step_error(step)
        );
        assert_eq!(logged, [want]);
    }
}

#[tokio::test]
async fn an_unreadable_value_does_not_fail_other_writes() {
    let records = Arc::new(MemDisk::new());
    let first = Embedded::with_disk(Arc::clone(&records) as _).unwrap();
    let at = put(&*first, "a", "1").await;
    drop(first);
    // The value is not in the ring, because it was written before the store was opened.
    let (disk, _entered) = SimDisk::new(&records, None);
    let store = Embedded::with_disk(Arc::clone(&disk) as _).unwrap();
    disk.plan.lock().unwrap().broken = Some("read");
    let compare = vec![Compare { key: "a".into(), modified: Revision(0) }];
    let create = Txn { compare, ..one_put("a", "2") };
    let error = store.txn(create.clone()).await.unwrap_err();
    let WriteError::Unreadable { source } = &error else { panic!("{error}") };
    let messages = (error.to_string(), source.to_string());
    let cause = step_error("read").to_string();
    assert_eq!(messages, ("a stored value cannot be read".to_owned(), cause));
    assert!(store.health().is_ok());
    assert_eq!(put(&*store, "b", "1").await, at.next(), "other writes go on");
    disk.plan.lock().unwrap().broken = None;
    let outcome = store.txn(create).await.unwrap();
    assert!(matches!(outcome, TxnOutcome::Conflict { .. }), "{outcome:?}");
}

#[tokio::test]
async fn nothing_is_visible_before_its_sync() {
    let (disk, entered) = SimDisk::new(&Arc::new(MemDisk::new()), None);
    let store = Embedded::with_disk(Arc::clone(&disk) as _).unwrap();
    let before = put(&*store, "a", "1").await;
    entered.recv_timeout(DEADLINE).unwrap();
    let mut watch = store.watch(Bytes::new(), before).unwrap();
    disk.shut_gate(true);
    let mut writing = store.txn(one_put("a", "2"));
    let mut next = watch.next();
    assert!(is_pending(&mut writing).await);
    entered.recv_timeout(DEADLINE).unwrap();
    assert!(is_pending(&mut writing).await && is_pending(&mut next).await);
    assert_eq!(store.revision(), before);
    assert_eq!(list(&*store, "", None).await, ["a=1"]);
    disk.shut_gate(false);
    let TxnOutcome::Committed(at) = writing.await.unwrap() else { panic!("a conflict") };
    assert_eq!(next.await.unwrap().through, at);
    assert_eq!(list(&*store, "", None).await, ["a=2"]);
}

#[tokio::test]
async fn a_watch_that_reads_the_disk_shows_no_unsynced_write() {
    let records = Arc::new(MemDisk::new());
    let store = Embedded::with_disk(Arc::clone(&records) as _).unwrap();
    for n in 0..3 {
        put(&*store, "a", &n.to_string()).await;
    }
    drop(store);
    let (disk, entered) = SimDisk::new(&records, None);
    let store = Embedded::with_disk(Arc::clone(&disk) as _).unwrap();
    disk.plan.lock().unwrap().is_gate_late = true;
    disk.shut_gate(true);
    let mut writing = store.txn(one_put("a", "3"));
    assert!(is_pending(&mut writing).await);
    entered.recv_timeout(DEADLINE).unwrap();
    // The record is written, but its sync has not returned. The new ring is empty, so the disk is
    // read.
    let mut watch = store.watch(Bytes::new(), Revision(0)).unwrap();
    let batch = watch.next().await.unwrap();
    assert_eq!((batch.events.len(), batch.through), (3, Revision(3)));
    disk.shut_gate(false);
    writing.await.unwrap();
    assert_eq!(drain(&mut *watch, Revision(4)).await.len(), 1);
}

#[tokio::test]
async fn many_writers_share_a_sync() {
    let (disk, entered) = SimDisk::new(&Arc::new(MemDisk::new()), None);
    let store = Embedded::with_disk(Arc::clone(&disk) as _).unwrap();
    disk.shut_gate(true);
    let mut writers: Vec<_> = (0..100).map(|n| store.txn(one_put(&n.to_string(), ""))).collect();
    assert!(is_pending(&mut writers[0]).await);
    entered.recv_timeout(DEADLINE).unwrap();
    for writer in &mut writers {
        assert!(is_pending(writer).await);
    }
    disk.shut_gate(false);
    for writer in writers {
        assert!(matches!(writer.await.unwrap(), TxnOutcome::Committed(_)));
    }
    assert_eq!(disk.plan.lock().unwrap().commits, 2);
    assert_eq!(store.revision(), Revision(100));
}

#[tokio::test]
async fn dropping_a_write_future_does_not_cancel_the_write() {
    let (disk, entered) = SimDisk::new(&Arc::new(MemDisk::new()), None);
    let store = Embedded::with_disk(Arc::clone(&disk) as _).unwrap();
    disk.shut_gate(true);
    let mut writing = store.txn(one_put("a", "1"));
    assert!(is_pending(&mut writing).await);
    entered.recv_timeout(DEADLINE).unwrap();
    drop(writing);
    disk.shut_gate(false);
    put(&*store, "b", "1").await;
    assert_eq!(list(&*store, "", None).await, ["a=1", "b=1"]);
}

/// Writers, compactions and a fault at a random commit. Acknowledged writes must survive.
#[tokio::test]
async fn acknowledged_writes_survive_any_fault() {
    for seed in 0..200 {
        let mut rng = Rng(seed);
        let fault = if rng.below(2) == 0 { Fault::Lost } else { Fault::Kept };
        let at = 1 + rng.below(30) as usize;
        let records = Arc::new(MemDisk::new());
        let (disk, _entered) = SimDisk::new(&records, Some((at, fault)));
        let repaired_at = (seed % 2 == 0).then(|| rng.below(40));
        let store = Embedded::with_disk(Arc::clone(&disk) as _).unwrap();
        let mut acknowledged = vec![(String::new(), Revision(0)); 8];
        for round in 0..40 {
            let writers: Vec<_> = (0..1 + rng.below(8) as usize)
                .map(|n| (n, store.txn(one_put(&format!("k{n}"), &round.to_string()))))
                .collect();
            for (n, writer) in writers {
                if let Ok(TxnOutcome::Committed(at)) = writer.await {
                    acknowledged[n] = (round.to_string(), at);
                }
            }
            if repaired_at == Some(round) {
                disk.plan.lock().unwrap().is_repaired = true;
                recovered(&*store).await;
            }
            if rng.below(5) == 0 {
                let _ = store.compact(Revision(rng.below(store.revision().0 + 1))).await;
            }
        }
        let newest = store.revision();
        let floor = store.floor();
        drop(store);
        let store = Embedded::with_disk(Arc::clone(&records) as _).unwrap();
        assert!(store.revision() >= newest && store.floor() >= floor, "seed {seed}");
        for (n, (value, at)) in acknowledged.into_iter().enumerate() {
            let found = store.get(format!("k{n}").as_bytes()).await.unwrap();
            let is_there = found.is_some_and(|kv| kv.modified > at || kv.value == value);
            assert!(is_there || at == Revision(0), "seed {seed}: k{n} at {at}");
        }
        assert!(put(&*store, "more", "").await > newest, "seed {seed}");
    }
}

#[tokio::test]
async fn compaction_removes_records() {
    let records = Arc::new(MemDisk::new());
    let store = Embedded::with_disk(Arc::clone(&records) as _).unwrap();
    for n in 0..5000 {
        put(&*store, &format!("k{}", n % 10), &n.to_string()).await;
    }
    let ops = (0..5).map(|n| Op::Delete { key: format!("k{n}").into() }).collect();
    let last = commit(&*store, Txn { compare: vec![], ops }).await;
    assert_eq!(records.len(), 5005);
    store.compact(last).await.unwrap();
    store.close();
    drop(store);
    // The next open finishes what the close has interrupted.
    let store = Embedded::with_disk(Arc::clone(&records) as _).unwrap();
    for n in 0..20 {
        put(&*store, "x", &n.to_string()).await;
    }
    until(|| records.len() <= 5 + 20, "records stay");
    let mut keys = 0;
    let mut count = |_: StoredRecord| {
        keys += 1;
        ControlFlow::Continue(())
    };
    records.records(RecordId::first(Revision(0)), &mut count).unwrap();
    assert_eq!(keys, 5 + 20);
}

/// Waits until the store has recovered from a disk failure.
pub async fn recovered(store: &dyn Store) {
    until(|| store.health().is_ok(), "recover");
}

pub fn until(is_so: impl Fn() -> bool, what: &str) {
    let deadline = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

async fn is_pending<F: Future + Unpin>(future: &mut F) -> bool {
    let mut future = pin!(future);
    poll_fn(|ctx| Poll::Ready(future.as_mut().poll(ctx).is_pending())).await
}
