//! A disk in memory, below the library, that fails where a test wants it to and whose power can be
//! cut: of what was written since the last sync any part may then be there, sector by sector.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;

use super::Rng;
use crate::Revision;

const SECTOR_BYTES: usize = 512;

/// What the disk holds for sure, what the system shows, and what lies between.
#[derive(Debug, Default)]
struct Medium {
    durable: Vec<u8>,
    shown: Vec<u8>,
    since: Vec<Change>,
    photos: Vec<Photo>,
    rng: Option<Rng>,
    fault: Option<Fault>,
}

/// What fails at present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
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

/// A handle; its clones are the same disk and the same handle.
#[derive(Clone, Debug, Default)]
pub struct PowerDisk {
    medium: Arc<Mutex<Medium>>,
    acknowledged: Arc<AtomicU64>,
    /// Whether a write or a sync has failed on this handle. It writes no more: on a real one the
    /// next sync may say that all is well when it is not.
    is_spent: Arc<AtomicBool>,
}

impl PowerDisk {
    /// Lets something fail from now on, or nothing any more.
    pub fn fail(&self, fault: Option<Fault>) {
        self.medium().fault = fault;
    }

    /// Another handle of the same disk.
    #[must_use]
    pub fn reopen(&self) -> PowerDisk {
        PowerDisk { is_spent: Arc::default(), ..self.clone() }
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
        let medium = Arc::new(Mutex::new(Medium::new(image)));
        PowerDisk { medium, ..PowerDisk::default() }
    }

    /// Whether a step that writes fails, now or because one before it did.
    fn spend(&self, medium: &Medium, of: &[Fault]) -> io::Result<()> {
        if self.is_spent.load(Ordering::Acquire) {
            return Err(io::Error::other("an earlier failure has spent the handle"));
        }
        medium.fails(of).inspect_err(|_| self.is_spent.store(true, Ordering::Release))
    }

    fn medium(&self) -> MutexGuard<'_, Medium> {
        self.medium.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Medium {
    fn new(image: Vec<u8>) -> Self {
        Self { durable: image.clone(), shown: image, ..Self::default() }
    }

    fn fails(&self, of: &[Fault]) -> io::Result<()> {
        let is_failing = self.fault.is_some_and(|at| at == Fault::Power || of.contains(&at));
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
        Ok(self.medium().shown.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let medium = self.medium();
        medium.fails(&[Fault::Reads])?;
        let start = offset as usize;
        let bytes = medium.shown.get(start..start + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut medium = self.medium();
        self.spend(&medium, &[Fault::Growth, Fault::All])?;
        medium.shown.resize(len as usize, 0);
        medium.since.push(Change::Length(len as usize));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let acknowledged = Revision(self.acknowledged.load(Ordering::Acquire));
        let mut medium = self.medium();
        if let Some(mut rng) = medium.rng.take() {
            let image = medium.photo(&mut rng);
            let disk = PowerDisk::holding(image.clone());
            medium.photos.push(Photo { disk, acknowledged });
            if medium.fault == Some(Fault::Syncs) {
                // Reads go on to show what a power cut would now show to be lost.
                medium.durable = image;
                medium.since.clear();
            }
            medium.rng = Some(rng);
        }
        self.spend(&medium, &[Fault::Syncs, Fault::All])?;
        medium.durable = medium.image(|| true);
        medium.since.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut medium = self.medium();
        self.spend(&medium, &[Fault::Writes, Fault::Growth, Fault::All])?;
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
