//! The format of a backup: every live key at one revision, in the order of their last writes, closed
//! by their count and a checksum. `docs/storage.md` describes it.
//!
//! Writer and reader stream: neither holds more than one value.

use std::io::{self, Read, Write};

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::{KEY_BYTES_MAX, KeyValue, ReadError, Revision, TXN_BYTES_MAX};

/// Raised by every change that an older reader cannot read.
const FORMAT_VERSION: u32 = 1;
/// The first line, without the number.
const MAGIC: &str = "keelson-backup ";
/// Bytes in which the first line must end.
const MAGIC_BYTES_MAX: usize = 32;
const DIGEST_BYTES: usize = 32;

/// What is in a backup.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BackupSummary {
    /// The revision at which everything was read.
    pub revision: Revision,
    /// How many keys there are.
    pub objects: u64,
    /// The size of the backup.
    pub bytes: u64,
}

/// Why a backup could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The store could not be read.
    #[error("read the store")]
    Read {
        /// Why.
        source: ReadError,
    },
    /// The backup could not be written.
    #[error("write the backup")]
    Write {
        /// What the system said.
        source: io::Error,
    },
}

/// Why bytes are not a whole backup.
#[derive(Debug, thiserror::Error)]
pub enum BackupFileError {
    /// They could not be read.
    #[error("read the backup")]
    Read {
        /// What the system said.
        source: io::Error,
    },
    /// They are something else.
    #[error("this is not a backup of Keelson")]
    Foreign,
    /// A later Keelson wrote them.
    #[error("the backup has format {found}, this version reads {FORMAT_VERSION}")]
    Newer {
        /// The format they have.
        found: u32,
    },
    /// They end too early.
    #[error("the backup is cut off after {objects} objects")]
    Truncated {
        /// Keys before the end.
        objects: u64,
    },
    /// They are not what was written.
    #[error("the backup is damaged: {what}, after {objects} objects")]
    Damaged {
        /// What does not fit.
        what: &'static str,
        /// Keys before that.
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

    /// Nothing is a backup before this.
    pub(crate) fn end(mut self) -> io::Result<BackupSummary> {
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

/// Reads a backup and holds it to its checksum. What it gives is proven only at the end.
pub struct BackupReader<R> {
    input: R,
    digest: Sha256,
    summary: BackupSummary,
    last: Revision,
}

impl<R: Read> BackupReader<R> {
    /// Reads the beginning.
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
            let [byte] = this.take()?;
            line.push(byte);
        }
        let text = std::str::from_utf8(&line).ok().and_then(|line| line.strip_prefix(MAGIC));
        match text.and_then(|text| text.trim_end().parse().ok()) {
            Some(FORMAT_VERSION) => {}
            Some(found) => return Err(BackupFileError::Newer { found }),
            None => return Err(BackupFileError::Foreign),
        }
        this.summary.revision = Revision(u64::from_be_bytes(this.take()?));
        Ok(this)
    }

    /// What has been read so far; all of it after the last key.
    pub fn summary(&self) -> BackupSummary {
        self.summary
    }

    /// The next key; `None` says that all were there and are what was written.
    pub fn next_key(&mut self) -> Result<Option<KeyValue>, BackupFileError> {
        let key_len = u32::from_be_bytes(self.take()?) as usize;
        if key_len == 0 {
            return self.finish().map(|()| None);
        }
        let value_len = u32::from_be_bytes(self.take()?) as usize;
        let created = Revision(u64::from_be_bytes(self.take()?));
        let modified = Revision(u64::from_be_bytes(self.take()?));
        if key_len > KEY_BYTES_MAX || value_len > TXN_BYTES_MAX {
            return Err(self.damaged("a length is out of bounds"));
        }
        let is_in_order = self.last <= modified && modified <= self.summary.revision;
        if !is_in_order || created > modified || created == Revision(0) {
            return Err(self.damaged("revisions are out of order"));
        }
        self.last = modified;
        let (key, value) = (self.take_vec(key_len)?, self.take_vec(value_len)?);
        self.summary.objects += 1;
        Ok(Some(KeyValue { key, value, created, modified }))
    }

    fn finish(&mut self) -> Result<(), BackupFileError> {
        if u64::from_be_bytes(self.take()?) != self.summary.objects {
            return Err(self.damaged("the count does not fit"));
        }
        let expected = std::mem::take(&mut self.digest).finalize();
        if self.take::<DIGEST_BYTES>()? != expected[..] {
            return Err(self.damaged("the checksum does not fit"));
        }
        match self.input.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(self.damaged("something follows the end")),
            Err(source) => Err(BackupFileError::Read { source }),
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], BackupFileError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn take_vec(&mut self, count: usize) -> Result<Bytes, BackupFileError> {
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
            let (created, modified) = (Revision(created), Revision(modified));
            let kv = KeyValue { key: key.into(), value: "value".into(), created, modified };
            writer.push(&kv).expect("push");
        }
        let summary = writer.end().expect("end");
        assert_eq!((summary.objects, summary.bytes), (3, out.len() as u64));
        out
    }

    fn read(bytes: &[u8]) -> Result<Vec<KeyValue>, BackupFileError> {
        let mut reader = BackupReader::new(bytes)?;
        let keys = std::iter::from_fn(|| reader.next_key().transpose());
        keys.collect()
    }

    #[test]
    fn what_was_written_is_read() {
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
    fn every_cut_and_every_flipped_bit_is_found() {
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
