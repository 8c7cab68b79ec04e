//! Offline work on a data directory: checks and backups without writing to it, repair, and restore.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::directory::{self, OpenError, RECORDS_FILE};
use super::disk::{Disk, Head, Record, RecordId};
use super::files::DirFiles;
use super::index::Version;
use super::redb_disk::RedbDisk;
use super::rows::AuditItem;
use super::shared::{Shared, key_value};
use crate::backup::{BackupError, BackupFileError, BackupReader, BackupSummary, BackupWriter};
use crate::{DiskError, Durability, KEY_BYTES_MAX, KeyValue, ReadError, Revision};

/// Bytes of records that are restored with one sync.
const RESTORE_BYTES: usize = 4 << 20;
/// Most damaged records removed in one transaction.
const REMOVED_MAX: usize = 1024;
/// Suffix of the name of a directory while it is being restored.
const RESTORING: &str = ".restoring";

/// A locked data directory. Repairs done by the open are in memory only.
pub struct Offline {
    dir: PathBuf,
    disk: RedbDisk,
}

/// One item that [`Offline::check`] reports.
#[derive(Clone, Debug)]
pub enum CheckItem {
    /// The newest version of a key.
    Live(KeyValue),
    /// An older version, kept for reads at past revisions.
    Past(KeyValue),
    /// A line that describes damage.
    Damage(String),
}

/// Revisions and number of records of a data directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CheckSummary {
    /// The newest revision.
    pub newest: Revision,
    /// The oldest revision that can be read.
    pub floor: Revision,
    /// The number of records, including deletes and older versions.
    pub records: u64,
}

/// The last record of a key that the check has read.
struct LastRecord {
    id: RecordId,
    created: Revision,
    is_delete: bool,
}

impl Offline {
    /// Locks an existing data directory and opens it.
    pub fn open(dir: &Path) -> Result<Self, OpenError> {
        let lock = directory::lock_existing(dir)?;
        let disk = RedbDisk::open_read_only(&dir.join(RECORDS_FILE), lock)
            .map_err(|source| OpenError::Records { dir: dir.to_owned(), source })?;
        Ok(Self { dir: dir.to_owned(), disk })
    }

    /// Writes a backup of every live key at the newest revision.
    pub fn backup(self, out: &mut dyn Write) -> Result<BackupSummary, BackupError> {
        let loaded = Shared::load(Arc::new(self.disk), None);
        let failed = |source| BackupError::Read { source: ReadError::Backend { source } };
        backup(&loaded.map_err(failed)?.shared, out)
    }

    /// Verifies the checksum of each page, each record, and the consistency of the records of each
    /// key. Keeps all keys in memory.
    pub fn check(mut self, sink: &mut dyn FnMut(CheckItem)) -> Result<CheckSummary, OpenError> {
        match self.disk.check_pages() {
            Ok(true) => {}
            Ok(false) => {
                sink(CheckItem::Damage(format!("{RECORDS_FILE}: pages do not fit together")))
            }
            Err(error) => sink(CheckItem::Damage(format!("{RECORDS_FILE}: {error}"))),
        }
        let mut summary = CheckSummary::default();
        let read = self.disk.floor().and_then(|floor| {
            summary = CheckSummary { newest: floor, floor, records: 0 };
            self.check_records(&mut summary, sink)
        });
        read.map_err(|source| OpenError::Records { dir: self.dir, source })?;
        Ok(summary)
    }

    fn check_records(
        &self,
        summary: &mut CheckSummary,
        sink: &mut dyn FnMut(CheckItem),
    ) -> Result<(), DiskError> {
        let mut last: HashMap<_, LastRecord> = HashMap::new();
        self.disk.audit(&mut |item| {
            let head = match item {
                AuditItem::Record(Record { head, .. }) => head,
                AuditItem::Damage { .. } => return ControlFlow::Continue(()),
            };
            summary.newest = summary.newest.max(head.id.revision);
            let Head { id, created, is_delete, .. } = head;
            last.insert(head.key, LastRecord { id, created, is_delete });
            ControlFlow::Continue(())
        })?;
        let mut before: HashMap<_, LastRecord> = HashMap::new();
        self.disk.audit(&mut |item| {
            summary.records += 1;
            let Record { head, value } = match item {
                AuditItem::Record(record) => record,
                AuditItem::Damage { damage, key: None } => {
                    sink(CheckItem::Damage(damage.to_string()));
                    return ControlFlow::Continue(());
                }
                AuditItem::Damage { damage, key: Some(key) } => {
                    sink(CheckItem::Damage(format!("{damage} ({})", key.escape_ascii())));
                    return ControlFlow::Continue(());
                }
            };
            let Head { id, ref key, created, is_delete, .. } = head;
            if let Some(what) = inconsistency(&head, before.get(key)) {
                let key = key.escape_ascii();
                sink(CheckItem::Damage(format!(
                    "record {}.{} ({key}): {what}",
                    id.revision, id.index
                )));
            }
            if !is_delete {
                let is_live = last.get(key).is_some_and(|last| last.id == id);
                let kv = key_value(key.clone(), value, Version::of(&head));
                sink(if is_live { CheckItem::Live(kv) } else { CheckItem::Past(kv) });
            }
            before.insert(head.key, LastRecord { id, created, is_delete });
            ControlFlow::Continue(())
        })
    }
}

/// Returns what is inconsistent in a record, compared with the record before it of the same key.
fn inconsistency(head: &Head, before: Option<&LastRecord>) -> Option<&'static str> {
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
    // Records between the two may have been removed, also a delete.
    let is_same = !last.is_delete && last.created == created;
    let is_follower = is_same || created > last.id.revision;
    (!is_follower).then_some("the revision of creation does not follow from the record before")
}

/// Writes a backup of every live key at one revision, while writes continue.
pub(super) fn backup(shared: &Shared, out: &mut dyn Write) -> Result<BackupSummary, BackupError> {
    let failed = |source| BackupError::Write { source };
    let pin = shared.pin_revision(None).map_err(|source| BackupError::Read { source })?;
    let mut writer = BackupWriter::begin(out, pin.at()).map_err(failed)?;
    let mut broken = Ok(());
    let loaded = shared.load_pinned(&pin, b"", None, &mut |kv| {
        broken = writer.push(&kv);
        if broken.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    broken.map_err(failed)?;
    loaded.map_err(|source| BackupError::Read { source })?;
    writer.finish().map_err(failed)
}

/// A record that was removed from a data directory.
#[derive(Clone, Debug)]
pub struct Removed {
    /// Its key; `None` if it cannot be read.
    pub key: Option<Bytes>,
    /// Its revision.
    pub revision: Revision,
    /// What was wrong with it.
    pub why: String,
    /// Its value, if it is intact.
    pub value: Option<Bytes>,
}

/// Removes the damaged records of an unused data directory, and those that `fault` rejects, and
/// passes each to `sink`. Their changes are lost: the previous version of the key, if it is still
/// kept, becomes its newest. Raises the floor to the newest revision, so that revisions still grow.
pub fn remove_damaged(
    dir: &Path,
    fault: &dyn Fn(&KeyValue) -> Option<String>,
    sink: &mut dyn FnMut(Removed),
) -> Result<u64, OpenError> {
    let failed = |source| OpenError::Records { dir: dir.to_owned(), source };
    let lock = directory::claim(dir)?;
    let before_replace = || directory::write_format(dir);
    let disk = RedbDisk::open(
        DirFiles::new(dir.join(RECORDS_FILE), Durability::Sync),
        lock,
        &before_replace,
    )
    .map_err(failed)?;
    let mut newest = disk.floor().map_err(failed)?;
    let mut ids = vec![];
    let found = disk.audit(&mut |item| {
        let (id, removed) = match item {
            AuditItem::Damage { damage, key } => {
                let revision = damage.id.revision;
                let why = damage.to_string();
                (damage.id, Some(Removed { key, revision, why, value: None }))
            }
            AuditItem::Record(Record { head, .. }) if head.is_delete => (head.id, None),
            AuditItem::Record(Record { head, value }) => {
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
    for chunk in ids.chunks(REMOVED_MAX) {
        disk.discard(chunk, newest).map_err(failed)?;
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
    /// The backup cannot be read or is damaged.
    #[error(transparent)]
    Backup(BackupFileError),
    /// The records could not be written.
    #[error("write the records")]
    Write {
        /// The cause.
        source: DiskError,
    },
    /// The restored directory could not be moved to its final path.
    #[error("put the restored data in its place")]
    Place {
        /// The cause.
        source: io::Error,
    },
}

/// Creates a data directory from a backup. It is written to a temporary directory, which is renamed
/// when the whole backup is verified. `progress` is called after each key. Removes the temporary
/// directory of an earlier attempt; fails if another restore is in progress.
pub fn restore<R: Read>(
    dir: &Path,
    backup: &mut BackupReader<R>,
    progress: &mut dyn FnMut(BackupSummary),
) -> Result<BackupSummary, RestoreError> {
    let place = |source| RestoreError::Place { source };
    let mut name = dir.file_name().unwrap_or_default().to_owned();
    name.push(RESTORING);
    let temporary = dir.with_file_name(name);
    let lock = directory::claim(&temporary).map_err(RestoreError::Open)?;
    let filled = fill(&temporary, &lock, backup, progress);
    if let Err(error) = filled.and_then(|()| std::fs::rename(&temporary, dir).map_err(place)) {
        // The first error is returned; the next attempt cleans up as well.
        let _ = std::fs::remove_dir_all(&temporary);
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
    progress: &mut dyn FnMut(BackupSummary),
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
    let disk =
        RedbDisk::open(DirFiles::new(path, Durability::Sync), lock, &|| Ok(())).map_err(failed)?;
    let mut records = Vec::new();
    let mut bytes = 0;
    let mut next = RecordId::first(Revision(0));
    while let Some(kv) = backup.next_key().map_err(RestoreError::Backup)? {
        // The index in the transaction is new; only the order matters.
        let is_first = kv.modified > next.revision;
        let id = if is_first { RecordId::first(kv.modified) } else { next };
        next = RecordId { index: id.index + 1, ..id };
        bytes += kv.key.len() + kv.value.len();
        let value_bytes = kv.value.len() as u32;
        let created = kv.created;
        let expires = None;
        let head = Head { id, key: kv.key, created, is_delete: false, value_bytes, expires };
        records.push(Record { head, value: kv.value });
        if bytes >= RESTORE_BYTES {
            disk.commit(&records, None).map_err(failed)?;
            records.clear();
            bytes = 0;
        }
        progress(backup.summary());
    }
    disk.commit(&records, Some(backup.summary().revision)).map_err(failed)?;
    disk.settle().map_err(failed)
}
