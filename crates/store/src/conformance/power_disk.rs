//! An in-memory disk below redb that can fail, and whose power can be cut: any subset of the
//! sectors written since the last sync may then be on the disk.
//!
//! It has the file in use and a new file. A rename may also be lost before a sync.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;

use super::Rng;
use crate::Revision;
use crate::embedded::files::{FileRole, Files};

const SECTOR_BYTES: usize = 512;

#[derive(Debug, Default)]
struct Medium {
    /// All files, including replaced ones.
    files: Vec<Content>,
    /// Index of the file in use, as the system shows it.
    current: usize,
    /// Index of the file in use at the last sync of the directory.
    current_durable: usize,
    new_file: Option<usize>,
    promotions: usize,
    snapshots: Vec<Snapshot>,
    rng: Option<Rng>,
    fault: Option<Fault>,
}

/// A file: its durable content, its visible content, and the changes in between.
#[derive(Debug, Default)]
struct Content {
    durable: Vec<u8>,
    shown: Vec<u8>,
    since: Vec<Change>,
}

/// What currently fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Syncs; their data is lost, although reads still show it.
    Syncs,
    /// Writes, as on a full disk.
    Writes,
    /// Creating and renaming files, and syncing the directory.
    Names,
    /// Growing the file, and writes.
    Growth,
    /// Everything that writes, as on a disk that became read-only.
    All,
    /// Reads.
    Reads,
    /// Everything, as after a power loss.
    Power,
}

#[derive(Debug)]
enum Change {
    Length(usize),
    Sector { offset: usize, bytes: Vec<u8> },
}

/// The disk as a power cut may leave it, and the newest revision acknowledged before.
#[derive(Debug)]
pub struct Snapshot {
    /// The disk.
    pub disk: PowerDisk,
    /// The last revision passed to [`PowerDisk::acknowledge`].
    pub acknowledged: Revision,
}

/// A handle to the disk; clones refer to the same disk.
#[derive(Clone, Debug, Default)]
pub struct PowerDisk {
    medium: Arc<Mutex<Medium>>,
    acknowledged: Arc<AtomicU64>,
}

/// An open file of the disk.
#[derive(Debug)]
struct PowerFile {
    disk: PowerDisk,
    number: usize,
    /// Whether a write or a sync has failed on this handle. It refuses further writes, because on a
    /// real disk the next sync could wrongly succeed.
    has_failed: AtomicBool,
}

impl PowerDisk {
    /// Sets what fails from now on; `None` means nothing.
    pub fn fail(&self, fault: Option<Fault>) {
        self.medium().fault = fault;
    }

    /// Returns how often a new file has replaced the one in use.
    #[must_use]
    pub fn promotions(&self) -> usize {
        self.medium().promotions
    }

    /// Takes a snapshot at each sync from now on.
    pub fn start_snapshots(&self, rng: Rng) {
        self.medium().rng = Some(rng);
    }

    /// Returns the snapshots since the last call.
    #[must_use]
    pub fn take_snapshots(&self) -> Vec<Snapshot> {
        std::mem::take(&mut self.medium().snapshots)
    }

    /// Records that this revision has been acknowledged to a writer.
    pub fn acknowledge(&self, at: Revision) {
        self.acknowledged.store(at.0, Ordering::Release);
    }

    /// Cuts the power for good. Returns the disk as it is found afterwards.
    #[must_use]
    pub fn cut(&self, rng: &mut Rng) -> PowerDisk {
        let mut medium = self.medium();
        medium.fault = Some(Fault::Power);
        PowerDisk::holding(medium.snapshot(rng))
    }

    fn holding(image: Vec<u8>) -> PowerDisk {
        let files = vec![Content { durable: image.clone(), shown: image, since: vec![] }];
        let medium = Arc::new(Mutex::new(Medium { files, ..Medium::default() }));
        PowerDisk { medium, ..PowerDisk::default() }
    }

    /// Takes a snapshot before the next operation.
    fn snapshot(&self, medium: &mut Medium) {
        let acknowledged = Revision(self.acknowledged.load(Ordering::Acquire));
        if let Some(mut rng) = medium.rng.take() {
            let disk = PowerDisk::holding(medium.snapshot(&mut rng));
            medium.snapshots.push(Snapshot { disk, acknowledged });
            medium.rng = Some(rng);
        }
    }

    fn medium(&self) -> MutexGuard<'_, Medium> {
        self.medium.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Medium {
    fn fails(&self, of: &[Fault]) -> io::Result<()> {
        let is_failing = self.fault.is_some_and(|at| at == Fault::Power || of.contains(&at));
        if is_failing { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    /// Returns the file in use after a power cut.
    fn snapshot(&self, rng: &mut Rng) -> Vec<u8> {
        let keep = keep_percentage(rng);
        let named = if rng.below(100) < keep { self.current } else { self.current_durable };
        let content = self.files.get(named);
        content.map(|content| content.image(|| rng.below(100) < keep)).unwrap_or_default()
    }
}

/// Returns the random percentage of unsynced changes to keep, including all and none.
fn keep_percentage(rng: &mut Rng) -> u64 {
    [0, 20, 50, 80, 100][rng.below(5) as usize]
}

impl Content {
    /// Returns the content with the unsynced changes that `keeps` selects.
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

impl Files for PowerDisk {
    fn open(&self, role: FileRole) -> io::Result<Arc<dyn StorageBackend>> {
        let mut medium = self.medium();
        if medium.files.is_empty() {
            medium.files.push(Content::default());
        }
        let number = match role {
            FileRole::Current => medium.current,
            FileRole::New => medium.new_file.ok_or(io::ErrorKind::NotFound)?,
        };
        drop(medium);
        Ok(Arc::new(PowerFile { disk: self.clone(), number, has_failed: AtomicBool::default() }))
    }

    fn create_new(&self) -> io::Result<()> {
        let mut medium = self.medium();
        medium.fails(&[Fault::Names, Fault::All])?;
        medium.new_file = Some(medium.files.len());
        medium.files.push(Content::default());
        Ok(())
    }

    fn promote(&self) -> io::Result<()> {
        let mut medium = self.medium();
        medium.fails(&[Fault::Names, Fault::All])?;
        medium.current = medium.new_file.take().ok_or(io::ErrorKind::NotFound)?;
        medium.promotions += 1;
        Ok(())
    }

    fn sync_directory(&self) -> io::Result<()> {
        let mut medium = self.medium();
        self.snapshot(&mut medium);
        medium.fails(&[Fault::Names, Fault::Syncs, Fault::All])?;
        medium.current_durable = medium.current;
        Ok(())
    }

    fn remove_new(&self) -> io::Result<()> {
        // Open handles can still read and write it.
        self.medium().new_file = None;
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        let medium = self.medium();
        Ok(medium.files.get(medium.current).map_or(0, |content| content.shown.len() as u64))
    }

    fn free_bytes(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }

    /// Tests write little.
    fn rewrite_bytes_min(&self) -> u64 {
        0
    }
}

impl PowerFile {
    /// Returns an error if a write fails now, or an earlier one has failed.
    fn check_write(&self, medium: &Medium, of: &[Fault]) -> io::Result<()> {
        if self.has_failed.load(Ordering::Acquire) {
            return Err(io::Error::other("an earlier failure has spent the handle"));
        }
        medium.fails(of).inspect_err(|_| self.has_failed.store(true, Ordering::Release))
    }
}

impl StorageBackend for PowerFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.medium().files[self.number].shown.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let medium = self.disk.medium();
        medium.fails(&[Fault::Reads])?;
        let start = offset as usize;
        let bytes = medium.files[self.number].shown.get(start..start + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut medium = self.disk.medium();
        self.check_write(&medium, &[Fault::Growth, Fault::All])?;
        let content = &mut medium.files[self.number];
        content.shown.resize(len as usize, 0);
        content.since.push(Change::Length(len as usize));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut medium = self.disk.medium();
        if medium.fault == Some(Fault::Syncs)
            && let Some(mut rng) = medium.rng.take()
        {
            // Reads still show the data that is lost now.
            let keep = keep_percentage(&mut rng);
            let content = &mut medium.files[self.number];
            content.durable = content.image(|| rng.below(100) < keep);
            content.since.clear();
            medium.rng = Some(rng);
        }
        self.disk.snapshot(&mut medium);
        self.check_write(&medium, &[Fault::Syncs, Fault::All])?;
        let content = &mut medium.files[self.number];
        content.durable = content.image(|| true);
        content.since.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut medium = self.disk.medium();
        self.check_write(&medium, &[Fault::Writes, Fault::Growth, Fault::All])?;
        let start = offset as usize;
        let content = &mut medium.files[self.number];
        content.shown[start..start + data.len()].copy_from_slice(data);
        let sectors = data.chunks(SECTOR_BYTES).enumerate();
        content.since.extend(sectors.map(|(n, bytes)| Change::Sector {
            offset: start + n * SECTOR_BYTES,
            bytes: bytes.to_vec(),
        }));
        Ok(())
    }
}
