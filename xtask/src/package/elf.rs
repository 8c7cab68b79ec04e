//! What a package must say of a program: its architecture, and what it needs of the C library. Read
//! from the program's ELF headers.

use anyhow::{Context, Result, bail};

const MAGIC: &[u8] = b"\x7fELF\x02\x01";
const X86_64: u16 = 62;
const AARCH64: u16 = 183;
const SEGMENT_LOAD: u32 = 1;
const SEGMENT_DYNAMIC: u32 = 2;
const SEGMENT_INTERPRETER: u32 = 3;
const DYNAMIC_ENTRY_BYTES: usize = 16;
const TAG_NEEDED: u64 = 1;
const TAG_STRINGS: u64 = 5;
const TAG_STRINGS_SIZE: u64 = 10;
/// Versions of glibc symbols are `GLIBC_2.34`.
const VERSION_PREFIX: &str = "GLIBC_2.";
/// The version of a loader that supports packed relocations, and the glibc that has it.
const PACKED_RELOCATIONS: (&str, u32) = ("GLIBC_ABI_DT_RELR", 36);

/// What is known of a program.
#[derive(Debug, PartialEq)]
pub struct Elf {
    /// The architecture as Linux names it.
    pub machine: &'static str,
    /// Whether it runs without a loader and shared libraries.
    pub is_static: bool,
    /// The oldest glibc that it runs with, as the number after `2.`; `None`: it needs none.
    pub glibc: Option<u32>,
}

impl Elf {
    /// Reads the headers of a program.
    pub fn read(bytes: &[u8]) -> Result<Elf> {
        let headers = Headers { bytes };
        if !bytes.starts_with(MAGIC) {
            bail!("it is no ELF program of 64 bits");
        }
        let machine = match headers.number(18, 2)? {
            number if number == u64::from(X86_64) => "x86_64",
            number if number == u64::from(AARCH64) => "aarch64",
            other => bail!("its architecture, {other}, is unknown"),
        };
        let segments = headers.segments()?;
        let has_loader = segments.iter().any(|segment| segment.kind == SEGMENT_INTERPRETER);
        let dynamic = segments.iter().find(|segment| segment.kind == SEGMENT_DYNAMIC);
        let mut needs_libraries = false;
        let mut glibc = None;
        if let Some(dynamic) = dynamic {
            let entries = headers.dynamic_entries(dynamic)?;
            needs_libraries = entries.iter().any(|(tag, _)| *tag == TAG_NEEDED);
            let names = headers.strings(&entries, &segments)?;
            glibc = needs_libraries.then(|| glibc_of(names)).flatten();
        }
        Ok(Elf { machine, is_static: !has_loader && !needs_libraries, glibc })
    }
}

/// Returns the newest version of glibc that names of symbol versions have.
fn glibc_of(strings: &[u8]) -> Option<u32> {
    let names = strings.split(|byte| *byte == 0).filter_map(|name| std::str::from_utf8(name).ok());
    let minors = names.filter_map(|name| {
        if name == PACKED_RELOCATIONS.0 {
            return Some(PACKED_RELOCATIONS.1);
        }
        name.strip_prefix(VERSION_PREFIX)?.split('.').next()?.parse().ok()
    });
    minors.max()
}

struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    size: u64,
}

struct Headers<'a> {
    bytes: &'a [u8],
}

impl<'a> Headers<'a> {
    fn part(&self, at: u64, size: u64) -> Result<&'a [u8]> {
        let start = usize::try_from(at)?;
        let end = start.checked_add(usize::try_from(size)?).context("it is damaged")?;
        self.bytes.get(start..end).context("it is cut off")
    }

    fn number(&self, at: u64, size: u64) -> Result<u64> {
        let part = self.part(at, size)?;
        Ok(part.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn segments(&self) -> Result<Vec<Segment>> {
        let table = self.number(32, 8)?;
        let size = self.number(54, 2)?;
        let count = self.number(56, 2)?;
        let segments = (0..count).map(|index| {
            let at = table.checked_add(index * size).context("it is damaged")?;
            let field = |offset: u64, bytes: u64| {
                self.number(at.checked_add(offset).context("it is damaged")?, bytes)
            };
            Ok(Segment {
                kind: u32::try_from(field(0, 4)?)?,
                offset: field(8, 8)?,
                address: field(16, 8)?,
                size: field(32, 8)?,
            })
        });
        segments.collect()
    }

    /// Returns the tags and values of the dynamic section.
    fn dynamic_entries(&self, dynamic: &Segment) -> Result<Vec<(u64, u64)>> {
        let entries = self.part(dynamic.offset, dynamic.size)?.chunks_exact(DYNAMIC_ENTRY_BYTES);
        let entry = |bytes: &[u8]| {
            let entry = Headers { bytes };
            Ok((entry.number(0, 8)?, entry.number(8, 8)?))
        };
        entries.map(entry).collect()
    }

    /// Returns the names in the dynamic section.
    fn strings(&self, entries: &[(u64, u64)], segments: &[Segment]) -> Result<&'a [u8]> {
        let value = |tag| entries.iter().find(|entry| entry.0 == tag).map(|entry| entry.1);
        let (Some(address), Some(size)) = (value(TAG_STRINGS), value(TAG_STRINGS_SIZE)) else {
            return Ok(&[]);
        };
        let mut loaded = segments.iter().filter(|segment| segment.kind == SEGMENT_LOAD);
        let is_in = |segment: &&Segment| {
            address.checked_sub(segment.address).is_some_and(|distance| distance < segment.size)
        };
        let segment = loaded.find(is_in).context("its names are nowhere")?;
        self.part(segment.offset + (address - segment.address), size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_this_machine_needs_its_glibc() {
        let own = std::env::current_exe().expect("a path");
        let elf = Elf::read(&std::fs::read(own).expect("a program")).expect("an ELF program");
        assert_eq!(elf.machine, std::env::consts::ARCH);
        assert!(!elf.is_static);
        assert!(elf.glibc.is_some_and(|minor| minor >= 17), "{elf:?}");
    }

    #[test]
    fn the_newest_symbol_decides_about_glibc() {
        for (names, expected) in [
            ("\0libc.so.6\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.17\0", Some(34)),
            ("\0GLIBC_2.28\0GLIBC_ABI_DT_RELR\0", Some(36)),
            ("\0GLIBC_PRIVATE\0", None),
        ] {
            assert_eq!(glibc_of(names.as_bytes()), expected, "{names:?}");
        }
    }

    #[test]
    fn what_is_no_program_is_refused() {
        for bytes in [&b""[..], b"#!/bin/sh\n", b"\x7fELF\x02\x01"] {
            assert!(Elf::read(bytes).is_err(), "{bytes:?}");
        }
    }
}
