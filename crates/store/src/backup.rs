//! The format of a backup: every live key at one revision, in the order of their last writes,
//! followed by their count and a checksum. `docs/storage.md` describes it.
//!
//! Writer and reader stream: neither holds more than one value in memory.

use std::io::{self, Read, Write};

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::{KEY_BYTES_MAX, KeyValue, ReadError, Revision, TXN_BYTES_MAX};

/// Incremented by every change that older versions cannot read.
const FORMAT_VERSION: u32 = 1;
/// The first line, without the number.
const MAGIC: &str = "keelson-backup ";
/// Most bytes of the first line.
const MAGIC_BYTES_MAX: usize = 32;
const DIGEST_BYTES: usize = 32;

/// Revision, number of keys and size of a backup.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BackupSummary {
    /// The revision of all keys.
    pub revision: Revision,
    /// The number of keys.
    pub objects: u64,
    /// The size of the backup in bytes.
    pub bytes: u64,
}

/// Why a backup could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The store could not be read.
    #[error("read the store")]
    Read {
        /// The cause.
        source: ReadError,
    },
    /// The backup could not be written.
    #[error("write the backup")]
    Write {
        /// The cause.
        source: io::Error,
    },
}

/// Why a backup could not be read.
#[derive(Debug, thiserror::Error)]
pub enum BackupFileError {
    /// Reading failed.
    #[error("read the backup")]
    Read {
        /// The cause.
        source: io::Error,
    },
    /// The file is not a backup.
    #[error("this is not a backup of Keelson")]
    Foreign,
    /// A later version of Keelson wrote the backup.
    #[error("the backup has format {found}, this version reads {FORMAT_VERSION}")]
    Newer {
        /// The format of the backup.
        found: u32,
    },
    /// The backup ends too early.
    #[error("the backup is cut off after {objects} objects")]
    Truncated {
        /// The number of keys before the end.
        objects: u64,
    },
    /// The backup is not as it was written.
    #[error("the backup is damaged: {what}, after {objects} objects")]
    Damaged {
        /// What is wrong.
        what: &'static str,
        /// The number of keys before the damage.
        objects: u64,
    },
}

/// Writes a backup.
pub(crate) struct BackupWriter<'a> {
    out: &'a mut dyn Write,
    digest: Sha256,
    summary: BackupSummary,
}

impl<'a> BackupWriter<'a> {
    pub(crate) fn begin(out: &'a mut dyn Write, revision: Revision) -> io::Result<Self> {
        let summary = BackupSummary { revision, ..BackupSummary::default() };
        let mut this = Self { out, digest: Sha256::new(), summary };
        this.put(format!("{MAGIC}{FORMAT_VERSION}\n").as_bytes())?;
        this.put(&revision.0.to_be_bytes())?;
        Ok(this)
    }

    pub(crate) fn push(&mut self, kv: &KeyValue) -> io::Result<()> {
        self.put(&length(kv.key.len())?)?;
        self.put(&length(kv.value.len())?)?;
        self.put(&kv.created.0.to_be_bytes())?;
        self.put(&kv.modified.0.to_be_bytes())?;
        self.put(&kv.key)?;
        self.put(&kv.value)?;
        self.summary.objects += 1;
        Ok(())
    }

    /// Writes count and checksum. Without them the file is not a valid backup.
    pub(crate) fn finish(mut self) -> io::Result<BackupSummary> {
        self.put(&length(0)?)?;
        self.put(&self.summary.objects.to_be_bytes())?;
        let digest = std::mem::take(&mut self.digest).finalize();
        self.out.write_all(&digest)?;
        self.out.flush()?;
        self.summary.bytes += digest.len() as u64;
        Ok(self.summary)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.digest.update(bytes);
        self.summary.bytes += bytes.len() as u64;
        self.out.write_all(bytes)
    }
}

fn length(bytes: usize) -> io::Result<[u8; 4]> {
    u32::try_from(bytes).map(u32::to_be_bytes).map_err(io::Error::other)
}

/// Writes a backup of these keys, which may come in any order.
pub fn write(
    out: &mut dyn Write,
    revision: Revision,
    mut keys: Vec<KeyValue>,
) -> io::Result<BackupSummary> {
    keys.sort_unstable_by(|one, other| (one.modified, &one.key).cmp(&(other.modified, &other.key)));
    let mut writer = BackupWriter::begin(out, revision)?;
    for kv in &keys {
        writer.push(kv)?;
    }
    writer.finish()
}

/// Reads a backup and verifies its checksum. Its keys are verified only when the end is reached.
pub struct BackupReader<R> {
    input: R,
    digest: Sha256,
    summary: BackupSummary,
    last: Revision,
}

impl<R: Read> BackupReader<R> {
    /// Reads the header.
    pub fn new(input: R) -> Result<Self, BackupFileError> {
        let summary = BackupSummary::default();
        let mut this = Self { input, digest: Sha256::new(), summary, last: Revision(0) };
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            if line.len() == MAGIC_BYTES_MAX
                || !MAGIC.as_bytes().starts_with(&line[..line.len().min(MAGIC.len())])
            {
                return Err(BackupFileError::Foreign);
            }
            let [byte] = this.read_array()?;
            line.push(byte);
        }
        let text = std::str::from_utf8(&line).ok().and_then(|line| line.strip_prefix(MAGIC));
        match text.and_then(|text| text.trim_end().parse().ok()) {
            Some(FORMAT_VERSION) => {}
            Some(found) => return Err(BackupFileError::Newer { found }),
            None => return Err(BackupFileError::Foreign),
        }
        this.summary.revision = Revision(u64::from_be_bytes(this.read_array()?));
        Ok(this)
    }

    /// Returns what has been read so far.
    pub fn summary(&self) -> BackupSummary {
        self.summary
    }

    /// Reads the next key. Returns `None` at the end, once count and checksum are verified.
    pub fn next_key(&mut self) -> Result<Option<KeyValue>, BackupFileError> {
        let key_len = u32::from_be_bytes(self.read_array()?) as usize;
        if key_len == 0 {
            return self.finish().map(|()| None);
        }
        let value_len = u32::from_be_bytes(self.read_array()?) as usize;
        let created = Revision(u64::from_be_bytes(self.read_array()?));
        let modified = Revision(u64::from_be_bytes(self.read_array()?));
        if key_len > KEY_BYTES_MAX || value_len > TXN_BYTES_MAX {
            return Err(self.damaged("a length is out of bounds"));
        }
        let is_in_order = self.last <= modified && modified <= self.summary.revision;
        if !is_in_order || created > modified || created == Revision(0) {
            return Err(self.damaged("revisions are out of order"));
        }
        self.last = modified;
        let key = self.read_bytes(key_len)?;
        let value = self.read_bytes(value_len)?;
        self.summary.objects += 1;
        Ok(Some(KeyValue { key, value, created, modified }))
    }

    fn finish(&mut self) -> Result<(), BackupFileError> {
        if u64::from_be_bytes(self.read_array()?) != self.summary.objects {
            return Err(self.damaged("the count does not fit"));
        }
        let expected = std::mem::take(&mut self.digest).finalize();
        if self.read_array::<DIGEST_BYTES>()? != expected[..] {
            return Err(self.damaged("the checksum does not fit"));
        }
        match self.input.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(self.damaged("something follows the end")),
            Err(source) => Err(BackupFileError::Read { source }),
        }
    }

    fn read_array<const N: usize>(&mut self) -> Result<[u8; N], BackupFileError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn read_bytes(&mut self, count: usize) -> Result<Bytes, BackupFileError> {
        let mut bytes = vec![0; count];
        self.fill(&mut bytes)?;
        Ok(bytes.into())
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), BackupFileError> {
        self.input.read_exact(bytes).map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => {
                BackupFileError::Truncated { objects: self.summary.objects }
            }
            _ => BackupFileError::Read { source },
        })?;
        self.digest.update(&*bytes);
        self.summary.bytes += bytes.len() as u64;
        Ok(())
    }

    fn damaged(&self, what: &'static str) -> BackupFileError {
        BackupFileError::Damaged { what, objects: self.summary.objects }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole() -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = BackupWriter::begin(&mut out, Revision(9)).expect("begin");
        for (key, created, modified) in [("a", 1, 1), ("b", 2, 7), ("c", 7, 7)] {
            let created = Revision(created);
            let modified = Revision(modified);
            let kv = KeyValue { key: key.into(), value: "value".into(), created, modified };
            writer.push(&kv).expect("push");
        }
        let summary = writer.finish().expect("finish");
        assert_eq!((summary.objects, summary.bytes), (3, out.len() as u64));
        out
    }

    fn read(bytes: &[u8]) -> Result<Vec<KeyValue>, BackupFileError> {
        let mut reader = BackupReader::new(bytes)?;
        let keys = std::iter::from_fn(|| reader.next_key().transpose());
        keys.collect()
    }

    #[test]
    fn a_written_backup_can_be_read() {
        let keys = read(&whole()).expect("a whole backup");
        let shown: Vec<_> = keys.iter().map(|kv| format!("{kv:?}")).collect();
        let expected = [
            "a (5 bytes, created 1, modified 1)",
            "b (5 bytes, created 2, modified 7)",
            "c (5 bytes, created 7, modified 7)",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn every_truncation_and_every_flipped_bit_is_detected() {
        let whole = whole();
        for end in 0..whole.len() {
            assert!(read(&whole[..end]).is_err(), "cut at {end}");
        }
        for place in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[place / 8] ^= 1 << (place % 8);
            assert!(read(&bytes).is_err(), "bit {place}");
        }
        assert!(read(&[&whole[..], b"x"].concat()).is_err());
        let newer = [b"keelson-backup 2\n", &whole[17..]].concat();
        let error = read(&newer).expect_err("a newer format").to_string();
        assert_eq!(error, "the backup has format 2, this version reads 1");
    }
}
