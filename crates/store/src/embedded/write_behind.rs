//! A file that buffers operations that failed, and repeats them later in the same order.
//!
//! redb gives up for good at the first write error, so this file hides them: after the first
//! failure, writes stay in memory, reads see them, and [`WriteBehind::check`] reports the failure.
//! [`WriteBehind::catch_up`] repeats everything since the last successful sync, including the syncs
//! in between, so that a crash on the way leaves a state that redb can recover from. Data of a
//! failed sync is written again, because the system may have marked its pages clean. The file is
//! opened again first: after a failed sync, the next sync of the same handle may wrongly succeed.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use redb::StorageBackend;

use crate::DiskError;

/// Most bytes buffered between two syncs while the file works; beyond this it is synced early.
const UNSYNCED_BYTES_MAX: usize = 4 << 20;
/// Most bytes buffered while the file fails; far more than one group, and no other is started then.
const BEHIND_BYTES_MAX: usize = 96 << 20;
/// Size of a step without its bytes.
const STEP_BYTES: usize = 32;

/// Opens the file; called again after each failure.
type Opener = Box<dyn Fn() -> io::Result<Arc<dyn StorageBackend>> + Send + Sync>;

/// A handle to the file; clones refer to the same file.
#[derive(Clone, Debug)]
pub(super) struct WriteBehind {
    inner: Arc<Inner>,
}

struct Inner {
    open: Opener,
    /// Replaced only by [`WriteBehind::catch_up`]; a read in progress keeps the old one.
    file: RwLock<Arc<dyn StorageBackend>>,
    /// The length that redb sees.
    length: AtomicU64,
    /// Whether `log` has steps that the file lacks; changes together with `Log::failure`.
    is_behind: AtomicBool,
    log: Mutex<Log>,
}

#[derive(Debug, Default)]
struct Log {
    /// Invariant: all steps since the last successful sync, in order.
    steps: VecDeque<Step>,
    bytes: usize,
    failure: Option<DiskError>,
}

#[derive(Debug)]
enum Step {
    Write { offset: u64, bytes: Box<[u8]> },
    Length(u64),
    Sync,
}

impl WriteBehind {
    pub(super) fn new(
        open: impl Fn() -> io::Result<Arc<dyn StorageBackend>> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let open: Opener = Box::new(open);
        let file = open()?;
        let length = AtomicU64::new(file.len()?);
        let is_behind = AtomicBool::new(false);
        let log = Mutex::default();
        let file = RwLock::new(file);
        Ok(Self { inner: Arc::new(Inner { open, file, length, is_behind, log }) })
    }

    /// Opens a file that is never written; writes to it stay in memory.
    pub(super) fn read_only(
        open: impl Fn() -> io::Result<Arc<dyn StorageBackend>> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let this = Self::new(open)?;
        let error = io::Error::from(io::ErrorKind::ReadOnlyFilesystem);
        this.inner.fail(&mut this.inner.log(), error);
        Ok(this)
    }

    /// Returns the failure if a sync has not reached the disk.
    pub(super) fn check(&self) -> Result<(), DiskError> {
        self.inner.log().failure.clone().map_or(Ok(()), Err)
    }

    /// Repeats the failed steps. After `Ok` the file is up to date.
    pub(super) fn catch_up(&self) -> Result<(), DiskError> {
        let inner = &*self.inner;
        let mut log = inner.log();
        if log.failure.is_none() {
            return Ok(());
        }
        let repeated = inner.replace().and_then(|file| {
            while !log.steps.is_empty() {
                log.repeat(&*file)?;
            }
            Ok(())
        });
        if let Err(error) = repeated {
            return Err(inner.fail(&mut log, error));
        }
        log.failure = None;
        inner.is_behind.store(false, Ordering::Release);
        Ok(())
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Inner {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, log: &mut Log, error: io::Error) -> DiskError {
        let error: DiskError = Arc::new(error);
        log.failure = Some(error.clone());
        self.is_behind.store(true, Ordering::Release);
        error
    }

    fn file(&self) -> Arc<dyn StorageBackend> {
        Arc::clone(&self.file.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Opens the file again. If that fails, the old handle is kept for reads.
    fn replace(&self) -> io::Result<Arc<dyn StorageBackend>> {
        let new = (self.open)()?;
        *self.file.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&new);
        Ok(new)
    }

    /// Executes a step, or keeps it for later if the file fails.
    fn execute(
        &self,
        step: Step,
        work: impl FnOnce(&dyn StorageBackend) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut log = self.log();
        if log.failure.is_some() && log.bytes + step.bytes() > BEHIND_BYTES_MAX {
            return Err(io::Error::other("too much waits for the disk"));
        }
        if log.failure.is_none()
            && let Err(error) = work(&*self.file())
        {
            self.fail(&mut log, error);
        }
        log.bytes += step.bytes();
        log.steps.push_back(step);
        if log.failure.is_none() && log.bytes > UNSYNCED_BYTES_MAX {
            drop(log);
            return self.sync_data();
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut log = self.log();
        let synced = log.failure.is_none().then(|| self.file().sync_data());
        match synced {
            Some(Ok(())) => {
                log.steps.clear();
                log.bytes = 0;
                return Ok(());
            }
            Some(Err(error)) => drop(self.fail(&mut log, error)),
            None => {}
        }
        log.bytes += Step::Sync.bytes();
        log.steps.push_back(Step::Sync);
        Ok(())
    }

    /// Reads the file with all buffered steps applied.
    fn read_behind(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let log = self.log();
        let on_disk = self.file();
        let there = on_disk.len()?.saturating_sub(offset);
        let there = usize::try_from(there).unwrap_or(usize::MAX).min(out.len());
        let (file, beyond) = out.split_at_mut(there);
        beyond.fill(0);
        if !file.is_empty() {
            on_disk.read(offset, file)?;
        }
        for step in &log.steps {
            match step {
                Step::Write { offset: at, bytes } => overlay(out, offset, *at, bytes),
                Step::Length(length) => {
                    let left = usize::try_from(length.saturating_sub(offset))
                        .unwrap_or(usize::MAX)
                        .min(out.len());
                    out[left..].fill(0);
                }
                Step::Sync => {}
            }
        }
        Ok(())
    }
}

impl Log {
    /// Repeats the steps up to the next sync, and syncs.
    fn repeat(&mut self, file: &dyn StorageBackend) -> io::Result<()> {
        let is_sync = |step: &Step| matches!(step, Step::Sync);
        let end = self.steps.iter().position(is_sync).map_or(self.steps.len(), |place| place + 1);
        for step in self.steps.range(..end) {
            match step {
                Step::Write { offset, bytes } => file.write(*offset, bytes)?,
                Step::Length(length) => file.set_len(*length)?,
                Step::Sync => {}
            }
        }
        file.sync_data()?;
        let done: usize = self.steps.drain(..end).map(|step| step.bytes()).sum();
        self.bytes -= done;
        Ok(())
    }
}

impl Step {
    fn bytes(&self) -> usize {
        match self {
            Self::Write { bytes, .. } => STEP_BYTES + bytes.len(),
            Self::Length(_) | Self::Sync => STEP_BYTES,
        }
    }
}

/// Copies the part of `bytes`, at file offset `at`, that overlaps with `out`, at file offset
/// `offset`.
fn overlay(out: &mut [u8], offset: u64, at: u64, bytes: &[u8]) {
    let start = offset.max(at);
    let end = (offset + out.len() as u64).min(at + bytes.len() as u64);
    if start < end {
        let to = (start - offset) as usize;
        let from = (start - at) as usize;
        let count = (end - start) as usize;
        out[to..to + count].copy_from_slice(&bytes[from..from + count]);
    }
}

impl StorageBackend for WriteBehind {
    fn len(&self) -> io::Result<u64> {
        Ok(self.inner.length.load(Ordering::Acquire))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if self.inner.is_behind.load(Ordering::Acquire) {
            return self.inner.read_behind(offset, out);
        }
        self.inner.file().read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.execute(Step::Length(len), |file| file.set_len(len))?;
        self.inner.length.store(len, Ordering::Release);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.inner.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let step = Step::Write { offset, bytes: data.into() };
        self.inner.execute(step, |file| file.write(offset, data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{Fault, PowerDisk, Rng, Snapshot};
    use crate::embedded::files::{FileRole, Files};

    const SECTOR: usize = 512;
    const SECTORS: usize = 150;

    fn over(disk: &PowerDisk) -> WriteBehind {
        let disk = disk.clone();
        WriteBehind::new(move || disk.open(FileRole::Current)).expect("a file")
    }

    fn read(file: &WriteBehind) -> Vec<u8> {
        let mut bytes = vec![0; file.len().expect("a length") as usize];
        file.read(0, &mut bytes).expect("a read");
        bytes
    }

    /// After a power cut, data written after a sync may be present only if all data written before
    /// that sync is present.
    fn check_order(image: &[u8], epochs: &[usize]) {
        let is_present = |place: &usize| image.get(*place * SECTOR).is_some_and(|byte| *byte != 0);
        let last = (0..epochs.len()).rev().find(is_present).map_or(0, |place| epochs[place]);
        let missing = (0..epochs.len()).find(|place| epochs[*place] < last && !is_present(place));
        assert_eq!(missing, None, "data of epoch {last} is present");
    }

    #[test]
    fn reads_see_every_write_and_the_disk_sees_them_in_the_order_of_syncs() {
        let faults = [None, None, Some(Fault::Syncs), Some(Fault::Writes), Some(Fault::All)];
        for seed in 0..40 {
            let mut rng = Rng(seed);
            let disk = PowerDisk::default();
            disk.start_snapshots(Rng(seed));
            let file = over(&disk);
            let mut shown = vec![];
            let mut epoch = 0;
            // For each sector, in the order of writing, the number of syncs before it.
            let mut epochs = vec![];
            while epochs.len() < SECTORS {
                match rng.below(12) {
                    0 => disk.fail(faults[rng.below(faults.len() as u64) as usize]),
                    1 => drop(file.catch_up()),
                    2 | 3 => {
                        file.sync_data().expect("a sync");
                        epoch += 1;
                    }
                    _ => {
                        let end = shown.len() + SECTOR;
                        file.set_len(end as u64).expect("a length");
                        let bytes = [1 + (epochs.len() % 255) as u8; SECTOR];
                        file.write((end - SECTOR) as u64, &bytes).expect("a write");
                        shown.extend_from_slice(&bytes);
                        epochs.push(epoch);
                    }
                }
                assert!(read(&file) == shown, "seed {seed}: a read misses a write");
            }
            disk.fail(None);
            file.catch_up().expect("the disk works");
            file.sync_data().expect("a sync");
            file.check().expect("all is there");
            for Snapshot { disk, .. } in disk.take_snapshots() {
                check_order(&read(&over(&disk)), &epochs);
            }
            let durable = disk.cut(&mut Rng(0));
            assert!(read(&over(&durable)) == shown, "seed {seed}");
        }
    }

    #[test]
    fn buffered_writes_have_a_maximum() {
        let disk = PowerDisk::default();
        let file = over(&disk);
        disk.fail(Some(Fault::All));
        let bytes = vec![1; 8 << 20];
        file.set_len(bytes.len() as u64).expect("a length");
        let writes = (0..100).take_while(|_| file.write(0, &bytes).is_ok()).count();
        assert_eq!(writes, BEHIND_BYTES_MAX / bytes.len() - 1);
        disk.fail(None);
        file.catch_up().expect("the disk works");
        assert!(read(&file) == bytes);
    }

    #[test]
    fn a_read_only_file_keeps_writes_in_memory() {
        let disk = PowerDisk::default();
        let file = WriteBehind::read_only({
            let disk = disk.clone();
            move || disk.open(FileRole::Current)
        })
        .expect("a file");
        file.set_len(3).expect("a length");
        file.write(0, b"abc").expect("a write");
        file.sync_data().expect("a sync");
        assert_eq!(read(&file), b"abc");
        assert_eq!(disk.size().expect("a size"), 0);
    }
}
