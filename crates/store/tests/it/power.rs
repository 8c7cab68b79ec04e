//! Simulated power loss below redb: at a sync, any subset of the sectors written since the last
//! sync may have reached the disk. Acknowledged writes must survive.

use std::sync::Arc;

use keelson_store::conformance::{Fault, PowerDisk, Rng, Snapshot, list, put};
use keelson_store::embedded::RedbDisk;
use keelson_store::embedded::disk::{Disk, Head, Record, RecordId};
use keelson_store::{Embedded, Op, Revision, Store, Txn, WriteError};

use crate::sim::recovered;

fn open(disk: &PowerDisk) -> Arc<Embedded> {
    let disk = RedbDisk::with_files(disk.clone()).expect("open");
    Embedded::with_disk(Arc::new(disk)).expect("start")
}

/// Opens the disk as each power cut would have left it. Checks that it holds the latest writes of
/// five keys, written in turn, up to the acknowledged revision or one more.
async fn check_snapshots(disk: &PowerDisk, context: &str) {
    let snapshots = disk.take_snapshots();
    assert!(snapshots.len() >= 25);
    for (n, Snapshot { disk, acknowledged }) in snapshots.into_iter().enumerate() {
        let store = open(&disk);
        let newest = store.revision();
        let is_next = newest == acknowledged || newest == acknowledged.next();
        assert!(is_next, "{context} snapshot {n}: {newest} after {acknowledged}");
        let expected: Vec<_> = (newest.0.saturating_sub(4).max(1)..=newest.0).collect();
        let mut values: Vec<u64> = list(&*store, "", None)
            .await
            .iter()
            .map(|line| line[3..].split(' ').next().unwrap().parse().unwrap())
            .collect();
        values.sort_unstable();
        assert_eq!(values, expected, "{context} snapshot {n}");
        put(&*store, "more", "").await;
    }
}

#[tokio::test]
async fn acknowledged_writes_survive_a_power_cut() {
    for seed in 0..6 {
        let disk = PowerDisk::default();
        let store = open(&disk);
        disk.start_snapshots(Rng(seed));
        let large = "x".repeat(3000);
        for n in 1..=25_u64 {
            let at = put(&*store, &format!("k{}", n % 5), &format!("{n} {large}")).await;
            assert_eq!(at, Revision(n));
            disk.acknowledge(Revision(n));
            if n % 7 == 0 {
                store.compact(Revision(n - 3)).await.unwrap();
            }
        }
        drop(store);
        check_snapshots(&disk, &format!("seed {seed}")).await;
    }
}

#[tokio::test]
async fn a_power_cut_after_failures_and_recoveries_loses_nothing() {
    let faults = [Fault::Syncs, Fault::Writes, Fault::Growth, Fault::All, Fault::Reads];
    for (seed, fault) in (0..).zip(faults) {
        let disk = PowerDisk::default();
        let store = open(&disk);
        disk.start_snapshots(Rng(seed));
        let large = "x".repeat(30_000);
        for n in 1..=25_u64 {
            let key = format!("k{}", n % 5);
            let value = format!("{n} {large}");
            if n % 6 == 0 {
                disk.fail(Some(fault));
                let op =
                    Op::Put { key: key.clone().into(), value: value.clone().into(), lease: None };
                // May succeed: the pages may be cached, and the file may not need to grow.
                if store.txn(Txn { compare: vec![], ops: vec![op] }).await.is_ok() {
                    disk.acknowledge(Revision(n));
                }
                let known = list(&*store, "", None).await.len();
                assert!(fault == Fault::Reads || known == 5, "{fault:?}: {known} keys");
                disk.fail(None);
                recovered(&*store).await;
            }
            if store.revision() < Revision(n) {
                assert_eq!(put(&*store, &key, &value).await, Revision(n), "{fault:?}");
            }
            disk.acknowledge(Revision(n));
        }
        drop(store);
        check_snapshots(&disk, &format!("{fault:?}")).await;
    }
}

/// Returns the only record of a revision: a put of one of five keys, in turn.
fn record(n: u64) -> Record {
    let id = RecordId::first(Revision(n));
    let value = format!("{n} {}", "x".repeat(3000));
    let created = Revision(if n > 5 { (n - 1) % 5 + 1 } else { n });
    let value_bytes = value.len() as u32;
    let key = format!("k{}", n % 5).into();
    let is_delete = false;
    let expires = None;
    Record { head: Head { id, key, created, is_delete, value_bytes, expires }, value: value.into() }
}

/// Copies all records up to this revision. Returns where to continue.
fn copy(disk: &RedbDisk, mut next: RecordId, through: u64) -> RecordId {
    while let Some(more) = disk.copy(next, Revision(through)).expect("a copy") {
        next = more;
    }
    RecordId::first(Revision(through + 1))
}

#[tokio::test]
async fn a_power_cut_around_a_rewrite_loses_nothing() {
    for seed in 0..6 {
        let disk = PowerDisk::default();
        let records = RedbDisk::with_files(disk.clone()).expect("open");
        disk.start_snapshots(Rng(seed));
        for n in 1..=30 {
            records.commit(&[record(n)], None).expect("a commit");
            disk.acknowledge(Revision(n));
            if n % 3 == 0 {
                let next = copy(&records, RecordId::first(Revision(0)), n / 2);
                if n % 2 == 0 {
                    // Otherwise the next copy starts again.
                    copy(&records, next, n);
                    records.switch_to_copy(Revision(0)).expect("it is whole");
                }
            }
            if n % 7 == 0 {
                records.settle().expect("it settles");
            }
        }
        assert_eq!(disk.promotions(), 5);
        drop(records);
        check_snapshots(&disk, &format!("seed {seed}")).await;
    }
}

#[tokio::test]
async fn a_failed_rewrite_loses_nothing() {
    for seed in 0..6 {
        let disk = PowerDisk::default();
        let records = RedbDisk::with_files(disk.clone()).expect("open");
        disk.start_snapshots(Rng(seed));
        let all_of = |through| copy(&records, RecordId::first(Revision(0)), through);
        for n in 1..=24 {
            records.commit(&[record(n)], None).expect("a commit");
            disk.acknowledge(Revision(n));
            if n % 8 == 0 {
                // Incomplete: a record is missing.
                all_of(n - 1);
                records.switch_to_copy(Revision(0)).expect_err("a record is missing");
                for fault in [Fault::Names, Fault::Syncs, Fault::All] {
                    all_of(n);
                    disk.fail(Some(fault));
                    records.switch_to_copy(Revision(0)).expect_err("the disk fails");
                    disk.fail(None);
                    records.settle().expect("all is as before");
                }
                all_of(n);
                records.switch_to_copy(Revision(0)).expect("it is whole");
                // The rename is not durable yet, and the new file can be opened again.
                for fault in [Fault::Names, Fault::Writes] {
                    disk.fail(Some(fault));
                    records.commit(&[record(n + 1)], None).expect_err("the disk fails");
                    disk.fail(None);
                    let undo = [RecordId::first(Revision(n + 1))];
                    records.recover(&undo, Revision(0)).expect("the disk works");
                }
            }
        }
        assert_eq!(disk.promotions(), 3);
        drop(records);
        check_snapshots(&disk, &format!("seed {seed}")).await;
    }
}

#[tokio::test]
async fn a_failing_disk_below_redb_stops_only_writes() {
    for fault in [Fault::Syncs, Fault::Writes, Fault::All] {
        let disk = PowerDisk::default();
        let store = open(&disk);
        let last = put(&*store, "a", "1").await;
        disk.fail(Some(fault));
        let error = store.txn(one_put()).await.unwrap_err();
        assert!(matches!(error, WriteError::Failed { .. }), "{fault:?}: {error}");
        let error = store.txn(one_put()).await.unwrap_err();
        assert!(matches!(error, WriteError::Refused { .. }), "{fault:?}: {error}");
        assert!(store.health().is_err());
        assert_eq!(store.revision(), last);
        assert_eq!(list(&*store, "", None).await, ["a=1"]);
        disk.fail(None);
        recovered(&*store).await;
        assert_eq!(list(&*store, "", None).await, ["a=1"], "{fault:?}: it came back");
        assert_eq!(put(&*store, "b", "2").await, last.next());
        drop(store);
        assert_eq!(list(&*open(&disk), "", None).await, ["a=1", "b=2"], "{fault:?}");
    }
}

#[tokio::test]
async fn a_failed_compaction_is_undone() {
    for fault in [Fault::Syncs, Fault::Writes, Fault::All] {
        let disk = PowerDisk::default();
        let store = open(&disk);
        let first = put(&*store, "a", "1").await;
        let last = put(&*store, "a", "2").await;
        disk.fail(Some(fault));
        let error = store.compact(last).await.unwrap_err();
        assert!(matches!(error, WriteError::Failed { .. }), "{fault:?}: {error}");
        disk.fail(None);
        recovered(&*store).await;
        assert_eq!(store.floor(), Revision(0), "{fault:?}");
        drop(store);
        let store = open(&disk);
        assert_eq!(store.floor(), Revision(0), "{fault:?}: it came back");
        assert_eq!(list(&*store, "", Some(first)).await, ["a=1"], "{fault:?}");
    }
}

#[tokio::test]
async fn a_closed_store_returns_closed_also_on_a_failing_disk() {
    let disk = PowerDisk::default();
    let store = open(&disk);
    let last = put(&*store, "a", "1").await;
    disk.fail(Some(Fault::All));
    store.txn(one_put()).await.unwrap_err();
    store.close();
    let write = store.txn(one_put()).await;
    assert!(matches!(write, Err(WriteError::Closed)), "{write:?}");
    let compaction = store.compact(last).await;
    assert!(matches!(compaction, Err(WriteError::Closed)), "{compaction:?}");
}

fn one_put() -> Txn {
    let op = Op::Put { key: "b".into(), value: "1".into(), lease: None };
    Txn { compare: vec![], ops: vec![op] }
}
