//! A data directory that no server uses: looked at without writing to it, and made from a backup.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::directory::{self, OpenError, RECORDS_FILE};
use super::disk::{Disk, Head, Record, RecordId};
use super::index::Version;
use super::redb_disk::RedbDisk;
use super::rows::Finding;
use super::shared::{Shared, key_value};
use crate::backup::{BackupError, BackupFileError, BackupReader, BackupSummary, BackupWriter};
use crate::{DiskError, KEY_BYTES_MAX, KeyValue, ReadError, Revision};

/// Records that are restored with one sync.
const RESTORE_BYTES: usize = 4 << 20;
/// Damaged records that are removed in one transaction.
const REMOVED_MAX: usize = 1024;
/// What is added to the name of a directory while it is being restored.
const RESTORING: &str = ".restoring";

/// A data directory under lock. What opening it repairs is repaired in memory.
pub struct Offline {
    dir: PathBuf,
    disk: RedbDisk,
}

/// What [`Offline::check`] finds.
#[derive(Clone, Debug)]
pub enum Found {
    /// The newest version of a key.
    Live(KeyValue),
    /// An older version, kept for reads of the past.
    Past(KeyValue),
    /// Something is not as it was written; one line.
    Damage(String),
}

/// What a data directory holds, beside its keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Extent {
    /// The newest revision.
    pub newest: Revision,
    /// The oldest revision that can be read.
    pub floor: Revision,
    /// Records, deletes and older versions among them.
    pub records: u64,
}

/// The last record of a key that the check has come by.
struct Last {
    id: RecordId,
    created: Revision,
    is_delete: bool,
}

impl Offline {
    /// Takes the lock of a data directory and opens what is there.
    pub fn open(dir: &Path) -> Result<Self, OpenError> {
        let lock = directory::hold(dir)?;
        let disk = RedbDisk::open_read_only(&dir.join(RECORDS_FILE), lock);
        let disk = disk.map_err(|source| OpenError::Records { dir: dir.to_owned(), source })?;
        Ok(Self { dir: dir.to_owned(), disk })
    }

    /// Writes every live key at the newest revision.
    pub fn backup(self, out: &mut dyn Write) -> Result<BackupSummary, BackupError> {
        let loaded = Shared::load(Arc::new(self.disk), None);
        let failed = |source| BackupError::Read { source: ReadError::Backend { source } };
        backup(&loaded.map_err(failed)?.shared, out)
    }

    /// Reads everything: each page against its checksum, each record, and what records say of each
    /// other. Costs the memory of the keys.
    pub fn check(mut self, sink: &mut dyn FnMut(Found)) -> Result<Extent, OpenError> {
        match self.disk.check_pages() {
            Ok(true) => {}
            Ok(false) => sink(Found::Damage(format!("{RECORDS_FILE}: pages do not fit together"))),
            Err(error) => sink(Found::Damage(format!("{RECORDS_FILE}: {error}"))),
        }
        let mut extent = Extent::default();
        let read = self.disk.floor().and_then(|floor| {
            extent = Extent { newest: floor, floor, records: 0 };
            self.check_records(&mut extent, sink)
        });
        read.map_err(|source| OpenError::Records { dir: self.dir, source })?;
        Ok(extent)
    }

    fn check_records(
        &self,
        extent: &mut Extent,
        sink: &mut dyn FnMut(Found),
    ) -> Result<(), DiskError> {
        let mut last: HashMap<_, Last> = HashMap::new();
        self.disk.audit(&mut |finding| {
            let head = match finding {
                Finding::Record(Record { head, .. }) => head,
                Finding::Damage { .. } => return ControlFlow::Continue(()),
            };
            extent.newest = extent.newest.max(head.id.revision);
            let Head { id, created, is_delete, .. } = head;
            last.insert(head.key, Last { id, created, is_delete });
            ControlFlow::Continue(())
        })?;
        let mut before: HashMap<_, Last> = HashMap::new();
        self.disk.audit(&mut |finding| {
            extent.records += 1;
            let Record { head, value } = match finding {
                Finding::Record(record) => record,
                Finding::Damage { damage, key: None } => {
                    sink(Found::Damage(damage.to_string()));
                    return ControlFlow::Continue(());
                }
                Finding::Damage { damage, key: Some(key) } => {
                    sink(Found::Damage(format!("{damage} ({})", key.escape_ascii())));
                    return ControlFlow::Continue(());
                }
            };
            let Head { id, ref key, created, is_delete, .. } = head;
            if let Some(what) = fault(&head, before.get(key)) {
                let key = key.escape_ascii();
                sink(Found::Damage(format!("record {}.{} ({key}): {what}", id.revision, id.index)));
            }
            if !is_delete {
                let is_live = last.get(key).is_some_and(|last| last.id == id);
                let kv = key_value(key.clone(), value, Version::of(&head));
                sink(if is_live { Found::Live(kv) } else { Found::Past(kv) });
            }
            before.insert(head.key, Last { id, created, is_delete });
            ControlFlow::Continue(())
        })
    }
}

/// What a record cannot be after the one before it of the same key.
fn fault(head: &Head, before: Option<&Last>) -> Option<&'static str> {
    let Head { id, created, ref key, .. } = *head;
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Some("the length of the key is out of bounds");
    }
    if id.revision == Revision(0) || created == Revision(0) || created > id.revision {
        return Some("the revision of creation is out of bounds");
    }
    let last = before?;
    if last.id.revision == id.revision {
        return Some("twice in a transaction");
    }
    // Between the two some may have been forgotten, a deletion among them.
    let is_same = !last.is_delete && last.created == created;
    let is_follower = is_same || created > last.id.revision;
    (!is_follower).then_some("the revision of creation does not follow from the record before")
}

/// Writes every live key at one revision, while others write on.
pub(super) fn backup(shared: &Shared, out: &mut dyn Write) -> Result<BackupSummary, BackupError> {
    let failed = |source| BackupError::Write { source };
    let held = shared.hold(None).map_err(|source| BackupError::Read { source })?;
    let mut writer = BackupWriter::begin(out, held.at()).map_err(failed)?;
    let mut broken = Ok(());
    let loaded = shared.load_held(&held, b"", None, &mut |kv| {
        broken = writer.push(&kv);
        if broken.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    broken.map_err(failed)?;
    loaded.map_err(|source| BackupError::Read { source })?;
    writer.end().map_err(failed)
}

/// A record that was removed from a data directory.
#[derive(Clone, Debug)]
pub struct Removed {
    /// Its key; `None` when that cannot be read.
    pub key: Option<Bytes>,
    /// Its revision.
    pub revision: Revision,
    /// What was wrong with it.
    pub why: String,
    /// Its value, when it is what was written.
    pub value: Option<Bytes>,
}

/// Removes the records of a data directory at rest that are damaged, or whose values `fault` finds fault
/// with, and tells of each. What they said is lost: the version of the key before, where it is still
/// kept, becomes its newest one. History before is no longer told, so that revisions go on growing.
pub fn remove_damaged(
    dir: &Path,
    fault: &dyn Fn(&KeyValue) -> Option<String>,
    sink: &mut dyn FnMut(Removed),
) -> Result<u64, OpenError> {
    let failed = |source| OpenError::Records { dir: dir.to_owned(), source };
    let lock = directory::claim(dir)?;
    let known = || directory::write_format(dir);
    let disk = RedbDisk::open(&dir.join(RECORDS_FILE), lock, &known).map_err(failed)?;
    let mut newest = disk.floor().map_err(failed)?;
    let mut ids = vec![];
    let found = disk.audit(&mut |finding| {
        let (id, removed) = match finding {
            Finding::Damage { damage, key } => {
                let (revision, why) = (damage.id.revision, damage.to_string());
                (damage.id, Some(Removed { key, revision, why, value: None }))
            }
            Finding::Record(Record { head, .. }) if head.is_delete => (head.id, None),
            Finding::Record(Record { head, value }) => {
                let Head { id, key, created, .. } = head;
                let kv = KeyValue { key, value, created, modified: id.revision };
                (
                    id,
                    fault(&kv).map(|why| Removed {
                        key: Some(kv.key),
                        revision: id.revision,
                        why,
                        value: Some(kv.value),
                    }),
                )
            }
        };
        newest = newest.max(id.revision);
        if let Some(removed) = removed {
            ids.push(id);
            sink(removed);
        }
        ControlFlow::Continue(())
    });
    found.map_err(failed)?;
    for some in ids.chunks(REMOVED_MAX) {
        disk.discard(some, newest).map_err(failed)?;
    }
    disk.settle().map_err(failed)?;
    Ok(ids.len() as u64)
}

/// Why a backup was not restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The data directory could not be made.
    #[error(transparent)]
    Open(OpenError),
    /// The backup is not whole.
    #[error(transparent)]
    Backup(BackupFileError),
    /// The records could not be written.
    #[error("write the records")]
    Write {
        /// What the disk said.
        source: DiskError,
    },
    /// What was restored could not be put in its place.
    #[error("put the restored data in its place")]
    Place {
        /// What the system said.
        source: io::Error,
    },
}

/// Makes a data directory of a backup: beside its place, and moved there when all has been proven.
/// `seen` hears of each key. What an earlier attempt left beside is taken away; one that is under
/// way is an error.
pub fn restore<R: Read>(
    dir: &Path,
    backup: &mut BackupReader<R>,
    seen: &mut dyn FnMut(BackupSummary),
) -> Result<BackupSummary, RestoreError> {
    let place = |source| RestoreError::Place { source };
    let mut name = dir.file_name().unwrap_or_default().to_owned();
    name.push(RESTORING);
    let beside = dir.with_file_name(name);
    let lock = directory::claim(&beside).map_err(RestoreError::Open)?;
    let filled = fill(&beside, &lock, backup, seen);
    if let Err(error) = filled.and_then(|()| std::fs::rename(&beside, dir).map_err(place)) {
        // The first failure is the one to tell; the next attempt cleans up as well.
        let _ = std::fs::remove_dir_all(&beside);
        return Err(error);
    }
    directory::sync(directory::parent(dir)).map_err(place)?;
    drop(lock);
    Ok(backup.summary())
}

fn fill<R: Read>(
    dir: &Path,
    lock: &File,
    backup: &mut BackupReader<R>,
    seen: &mut dyn FnMut(BackupSummary),
) -> Result<(), RestoreError> {
    let failed = |source| RestoreError::Write { source };
    let path = dir.join(RECORDS_FILE);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(RestoreError::Place { source: error });
        }
        _ => {}
    }
    let lock = lock.try_clone().map_err(|source| RestoreError::Place { source })?;
    let disk = RedbDisk::open(&path, lock, &|| Ok(())).map_err(failed)?;
    let (mut records, mut bytes) = (Vec::new(), 0);
    let mut next = RecordId::first(Revision(0));
    while let Some(kv) = backup.next_key().map_err(RestoreError::Backup)? {
        // The place in the transaction is new; only the order counts.
        let is_first = kv.modified > next.revision;
        let id = if is_first { RecordId::first(kv.modified) } else { next };
        next = RecordId { index: id.index + 1, ..id };
        bytes += kv.key.len() + kv.value.len();
        let value_bytes = kv.value.len() as u32;
        let (created, expires) = (kv.created, None);
        let head = Head { id, key: kv.key, created, is_delete: false, value_bytes, expires };
        records.push(Record { head, value: kv.value });
        if bytes >= RESTORE_BYTES {
            disk.commit(&records, None).map_err(failed)?;
            records.clear();
            bytes = 0;
        }
        seen(backup.summary());
    }
    disk.commit(&records, Some(backup.summary().revision)).map_err(failed)?;
    disk.settle().map_err(failed)
}
