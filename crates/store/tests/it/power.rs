//! Power cuts, below the library: at a sync, any part of what was written since the last one may
//! have reached the disk, sector by sector, in any order. What was acknowledged must stand.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use keelson_store::conformance::{Rng, list, put};
use keelson_store::embedded::RedbDisk;
use keelson_store::{Embedded, Op, Revision, Store, Txn, WriteError};
use redb::StorageBackend;

use crate::sim::recovered;

const SECTOR_BYTES: usize = 512;

/// What the disk holds for sure, what the system shows, and what lies between.
#[derive(Debug, Default)]
struct Medium {
    durable: Vec<u8>,
    shown: Vec<u8>,
    since: Vec<Change>,
    syncs: usize,
    photos: Vec<Photo>,
    rng: Option<Rng>,
    fault: Option<Fault>,
}

/// What fails at present.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Fault {
    /// Syncs; what they should have written is forgotten, though reads still show it.
    Syncs,
    /// Writes, as on a full disk.
    Writes,
    /// Making the file longer, and writes.
    Growth,
    /// Everything that writes, as on a disk that became read-only.
    All,
    /// Reads.
    Reads,
}

#[derive(Debug)]
enum Change {
    Length(usize),
    Sector { offset: usize, bytes: Vec<u8> },
}

/// The disk as a power cut may leave it, and the newest revision acknowledged before.
#[derive(Debug)]
struct Photo {
    image: Vec<u8>,
    acknowledged: Revision,
}

#[derive(Clone, Debug, Default)]
struct PowerDisk {
    medium: Arc<Mutex<Medium>>,
    acknowledged: Arc<AtomicU64>,
}

impl Medium {
    fn new(image: Vec<u8>) -> Self {
        Self { durable: image.clone(), shown: image, ..Self::default() }
    }

    fn fails(&self, of: &[Fault]) -> io::Result<()> {
        let is_failing = self.fault.is_some_and(|fault| of.contains(&fault));
        if is_failing { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    /// Keeps each change with a probability that itself is drawn: all, none and half occur.
    fn photo(&self, rng: &mut Rng) -> Vec<u8> {
        let keep = [0, 20, 50, 80, 100][rng.below(5) as usize];
        self.image(|| rng.below(100) < keep)
    }

    /// What is on the disk when of what was not synced only this is kept.
    fn image(&self, mut keeps: impl FnMut() -> bool) -> Vec<u8> {
        let mut image = self.durable.clone();
        for change in self.since.iter().filter(|_| keeps()) {
            match change {
                Change::Length(length) => image.resize(*length, 0),
                Change::Sector { offset, bytes } => {
                    let end = offset + bytes.len();
                    image.resize(image.len().max(end), 0);
                    image[*offset..end].copy_from_slice(bytes);
                }
            }
        }
        image
    }
}

impl StorageBackend for PowerDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.medium.lock().unwrap().shown.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let medium = self.medium.lock().unwrap();
        medium.fails(&[Fault::Reads])?;
        let start = offset as usize;
        let bytes = medium.shown.get(start..start + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut medium = self.medium.lock().unwrap();
        medium.fails(&[Fault::Growth, Fault::All])?;
        medium.shown.resize(len as usize, 0);
        medium.since.push(Change::Length(len as usize));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let acknowledged = Revision(self.acknowledged.load(Ordering::Acquire));
        let mut medium = self.medium.lock().unwrap();
        medium.syncs += 1;
        if let Some(mut rng) = medium.rng.take() {
            let image = medium.photo(&mut rng);
            medium.photos.push(Photo { image: image.clone(), acknowledged });
            if medium.fault == Some(Fault::Syncs) {
                // Reads go on to show what a power cut would now show to be lost.
                medium.durable = image;
                medium.since.clear();
            }
            medium.rng = Some(rng);
        }
        medium.fails(&[Fault::Syncs, Fault::All])?;
        medium.durable = medium.image(|| true);
        medium.since.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut medium = self.medium.lock().unwrap();
        medium.fails(&[Fault::Writes, Fault::Growth, Fault::All])?;
        let start = offset as usize;
        medium.shown[start..start + data.len()].copy_from_slice(data);
        let sectors = data.chunks(SECTOR_BYTES).enumerate();
        medium.since.extend(sectors.map(|(n, bytes)| Change::Sector {
            offset: start + n * SECTOR_BYTES,
            bytes: bytes.to_vec(),
        }));
        Ok(())
    }
}

fn open(disk: &PowerDisk) -> Arc<Embedded> {
    Embedded::on(Arc::new(RedbDisk::with_backend(disk.clone()).expect("open"))).expect("start")
}

impl PowerDisk {
    fn fail(&self, fault: Option<Fault>) {
        self.medium.lock().unwrap().fault = fault;
    }

    /// Takes the disk as each power cut would have left it, opens it and looks whether it holds the
    /// last of five keys, written in turn, up to what was acknowledged or one revision more.
    async fn check_photos(&self, context: &str) {
        let photos = std::mem::take(&mut self.medium.lock().unwrap().photos);
        assert!(photos.len() >= 25);
        for (n, Photo { image, acknowledged }) in photos.into_iter().enumerate() {
            let medium = Arc::new(Mutex::new(Medium::new(image)));
            let store = open(&PowerDisk { medium, ..PowerDisk::default() });
            let newest = store.revision();
            let is_next = newest == acknowledged || newest == acknowledged.next();
            assert!(is_next, "{context} photo {n}: {newest} after {acknowledged}");
            let expected: Vec<_> = (newest.0.saturating_sub(4).max(1)..=newest.0).collect();
            let mut values: Vec<u64> = list(&*store, "", None)
                .await
                .iter()
                .map(|line| line[3..].split(' ').next().unwrap().parse().unwrap())
                .collect();
            values.sort_unstable();
            assert_eq!(values, expected, "{context} photo {n}");
            put(&*store, "more", "").await;
        }
    }
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_power_cut() {
    for seed in 0..6 {
        let disk = PowerDisk::default();
        let store = open(&disk);
        disk.medium.lock().unwrap().rng = Some(Rng(seed));
        let large = "x".repeat(3000);
        for n in 1..=25_u64 {
            let at = put(&*store, &format!("k{}", n % 5), &format!("{n} {large}")).await;
            assert_eq!(at, Revision(n));
            disk.acknowledged.store(n, Ordering::Release);
            if n % 7 == 0 {
                store.compact(Revision(n - 3)).await.unwrap();
            }
        }
        drop(store);
        disk.check_photos(&format!("seed {seed}")).await;
    }
}

#[tokio::test]
async fn a_power_cut_after_failures_and_recoveries_loses_nothing_either() {
    let faults = [Fault::Syncs, Fault::Writes, Fault::Growth, Fault::All, Fault::Reads];
    for (seed, fault) in (0..).zip(faults) {
        let disk = PowerDisk::default();
        let store = open(&disk);
        disk.medium.lock().unwrap().rng = Some(Rng(seed));
        let large = "x".repeat(30_000);
        for n in 1..=25_u64 {
            let (key, value) = (format!("k{}", n % 5), format!("{n} {large}"));
            if n % 6 == 0 {
                disk.fail(Some(fault));
                let op = Op::Put { key: key.clone().into(), value: value.clone().into() };
                // The pages may be in memory, and a growing file may have room.
                if store.txn(Txn { compare: vec![], ops: vec![op] }).await.is_ok() {
                    disk.acknowledged.store(n, Ordering::Release);
                }
                let known = list(&*store, "", None).await.len();
                assert!(fault == Fault::Reads || known == 5, "{fault:?}: {known} keys");
                disk.fail(None);
                recovered(&*store).await;
            }
            if store.revision() < Revision(n) {
                assert_eq!(put(&*store, &key, &value).await, Revision(n), "{fault:?}");
            }
            disk.acknowledged.store(n, Ordering::Release);
        }
        drop(store);
        disk.check_photos(&format!("{fault:?}")).await;
    }
}

#[tokio::test]
async fn a_failing_disk_below_the_library_stops_writes_and_nothing_else() {
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

fn one_put() -> Txn {
    let op = Op::Put { key: "b".into(), value: "1".into() };
    Txn { compare: vec![], ops: vec![op] }
}
