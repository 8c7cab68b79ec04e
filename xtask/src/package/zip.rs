//! Zip archives, as far as wheels need them: deflated files with Unix modes. Equal files make equal
//! archives.

use anyhow::{Context, Result};
use flate2::Compression;
use flate2::write::DeflateEncoder;
use std::io::Write;

/// Version 2.0 of the format has folders and deflate.
const VERSION_NEEDED: u16 = 20;
/// Attributes are Unix modes.
const MADE_BY_UNIX: u16 = 3 << 8 | VERSION_NEEDED;
const METHOD_DEFLATE: u16 = 8;
/// Names are UTF-8.
const FLAGS: u16 = 1 << 11;
/// 1980-01-01, the first date.
const DATE: u16 = 1 << 5 | 1;
const REGULAR_FILE: u32 = 0o100_000;

/// An archive that is being written.
#[derive(Default)]
pub struct Zip {
    bytes: Vec<u8>,
    directory: Vec<u8>,
    files: u16,
}

impl Zip {
    /// Adds a file.
    pub fn add(&mut self, name: &str, content: &[u8], mode: u32) -> Result<()> {
        let mut encoder = DeflateEncoder::new(vec![], Compression::default());
        encoder.write_all(content).context("compress")?;
        let packed = encoder.finish().context("compress")?;
        let offset = size(self.bytes.len())?;
        // What the head of the file and its entry in the directory have in common.
        let mut common = vec![];
        for number in [VERSION_NEEDED, FLAGS, METHOD_DEFLATE, 0, DATE] {
            common.extend(number.to_le_bytes());
        }
        for number in [crc32fast::hash(content), size(packed.len())?, size(content.len())?] {
            common.extend(number.to_le_bytes());
        }
        let name_size = u16::try_from(name.len()).context(name.to_owned())?;
        common.extend(name_size.to_le_bytes());
        common.extend(0_u16.to_le_bytes());
        self.bytes.extend(b"PK\x03\x04");
        self.bytes.extend(&common);
        self.bytes.extend(name.as_bytes());
        self.bytes.extend(&packed);
        self.directory.extend(b"PK\x01\x02");
        self.directory.extend(MADE_BY_UNIX.to_le_bytes());
        self.directory.extend(&common);
        // No comment, the first disk, no internal attributes.
        self.directory.extend([0; 6]);
        self.directory.extend(((REGULAR_FILE | mode) << 16).to_le_bytes());
        self.directory.extend(offset.to_le_bytes());
        self.directory.extend(name.as_bytes());
        self.files = self.files.checked_add(1).context("too many files")?;
        Ok(())
    }

    /// Returns the archive.
    pub fn finish(mut self) -> Result<Vec<u8>> {
        let start = size(self.bytes.len())?;
        let directory_size = size(self.directory.len())?;
        self.bytes.append(&mut self.directory);
        self.bytes.extend(b"PK\x05\x06\0\0\0\0");
        self.bytes.extend(self.files.to_le_bytes());
        self.bytes.extend(self.files.to_le_bytes());
        self.bytes.extend(directory_size.to_le_bytes());
        self.bytes.extend(start.to_le_bytes());
        self.bytes.extend(0_u16.to_le_bytes());
        Ok(self.bytes)
    }
}

fn size(bytes: usize) -> Result<u32> {
    u32::try_from(bytes).context("it is larger than 4 GB")
}
