//! A disk in memory, below the library, that fails where a test wants it to and whose power can be
//! cut: of what was written since the last sync any part may then be there, sector by sector.
//!
//! It holds the file in use and one that is made beside it; which of them has the name of the one in
//! use is as unsure before a sync as what is written.

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
    /// The file in use, and what comes after it; one that has been replaced keeps its place.
    files: Vec<Content>,
    /// Which of them has the name of the one in use, as the system shows it.
    current: usize,
    /// Which had it when the names were last synced.
    current_durable: usize,
    new_file: Option<usize>,
    promotions: usize,
    photos: Vec<Photo>,
    rng: Option<Rng>,
    fault: Option<Fault>,
}

/// What the disk holds of a file for sure, what the system shows, and what lies between.
#[derive(Debug, Default)]
struct Content {
    durable: Vec<u8>,
    shown: Vec<u8>,
    since: Vec<Change>,
}

/// What fails at present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Syncs; what they should have written is forgotten, though reads still show it.
    Syncs,
    /// Writes, as on a full disk.
    Writes,
    /// What has to do with names of files: making, renaming and syncing them.
    Names,
    /// Making the file longer, and writes.
    Growth,
    /// Everything that writes, as on a disk that became read-only.
    All,
    /// Reads.
    Reads,
    /// Everything, as when the power is gone.
    Power,
}

#[derive(Debug)]
enum Change {
    Length(usize),
    Sector { offset: usize, bytes: Vec<u8> },
}

/// The disk as a power cut may leave it, and the newest revision acknowledged before.
#[derive(Debug)]
pub struct Photo {
    /// The disk.
    pub disk: PowerDisk,
    /// What [`PowerDisk::acknowledge`] was told last.
    pub acknowledged: Revision,
}

/// A handle; its clones are the same disk.
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
    /// Whether a write or a sync has failed on this one. It writes no more: on a real one the
    /// next sync may say that all is well when it is not.
    is_spent: AtomicBool,
}

impl PowerDisk {
    /// Lets something fail from now on, or nothing any more.
    pub fn fail(&self, fault: Option<Fault>) {
        self.medium().fault = fault;
    }

    /// How often a file beside has taken the place of the one in use.
    #[must_use]
    pub fn promotions(&self) -> usize {
        self.medium().promotions
    }

    /// From now on takes a photo at each sync.
    pub fn start_photos(&self, rng: Rng) {
        self.medium().rng = Some(rng);
    }

    /// The photos since the last call.
    #[must_use]
    pub fn take_photos(&self) -> Vec<Photo> {
        std::mem::take(&mut self.medium().photos)
    }

    /// Says that this revision has been acknowledged to a writer.
    pub fn acknowledge(&self, at: Revision) {
        self.acknowledged.store(at.0, Ordering::Release);
    }

    /// Cuts the power for good; the disk as it is found afterwards.
    #[must_use]
    pub fn cut(&self, rng: &mut Rng) -> PowerDisk {
        let mut medium = self.medium();
        medium.fault = Some(Fault::Power);
        PowerDisk::holding(medium.photo(rng))
    }

    fn holding(image: Vec<u8>) -> PowerDisk {
        let files = vec![Content { durable: image.clone(), shown: image, since: vec![] }];
        let medium = Arc::new(Mutex::new(Medium { files, ..Medium::default() }));
        PowerDisk { medium, ..PowerDisk::default() }
    }

    /// Takes a photo before what follows has begun.
    fn photo(&self, medium: &mut Medium) {
        let acknowledged = Revision(self.acknowledged.load(Ordering::Acquire));
        if let Some(mut rng) = medium.rng.take() {
            let disk = PowerDisk::holding(medium.photo(&mut rng));
            medium.photos.push(Photo { disk, acknowledged });
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

    /// The file in use after a power cut.
    fn photo(&self, rng: &mut Rng) -> Vec<u8> {
        let keep = percent_kept(rng);
        let named = if rng.below(100) < keep { self.current } else { self.current_durable };
        let content = self.files.get(named);
        content.map(|content| content.image(|| rng.below(100) < keep)).unwrap_or_default()
    }
}

/// With which probability a change that was not synced is kept: all, none and half occur.
fn percent_kept(rng: &mut Rng) -> u64 {
    [0, 20, 50, 80, 100][rng.below(5) as usize]
}

impl Content {
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
        Ok(Arc::new(PowerFile { disk: self.clone(), number, is_spent: AtomicBool::default() }))
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
        self.photo(&mut medium);
        medium.fails(&[Fault::Names, Fault::Syncs, Fault::All])?;
        medium.current_durable = medium.current;
        Ok(())
    }

    fn remove_new(&self) -> io::Result<()> {
        // Whoever has it open still reads and writes it.
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
    /// Whether a step that writes fails, now or because one before it did.
    fn spend(&self, medium: &Medium, of: &[Fault]) -> io::Result<()> {
        if self.is_spent.load(Ordering::Acquire) {
            return Err(io::Error::other("an earlier failure has spent the handle"));
        }
        medium.fails(of).inspect_err(|_| self.is_spent.store(true, Ordering::Release))
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
        self.spend(&medium, &[Fault::Growth, Fault::All])?;
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
            // Reads go on to show what a power cut would now show to be lost.
            let keep = percent_kept(&mut rng);
            let content = &mut medium.files[self.number];
            content.durable = content.image(|| rng.below(100) < keep);
            content.since.clear();
            medium.rng = Some(rng);
        }
        self.disk.photo(&mut medium);
        self.spend(&medium, &[Fault::Syncs, Fault::All])?;
        let content = &mut medium.files[self.number];
        content.durable = content.image(|| true);
        content.since.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut medium = self.disk.medium();
        self.spend(&medium, &[Fault::Writes, Fault::Growth, Fault::All])?;
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
