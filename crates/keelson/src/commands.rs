//! Commands for those who run a server: backup, restore, check.

pub mod backup;
pub mod check;
mod output;
pub mod restore;

use crate::flags::STDIO;
use anyhow::{Context, Result};
use std::fs::File;
use std::io::{BufReader, Read};

/// Bytes that are read or written at once.
const CHUNK_BYTES: usize = 64 << 10;

/// A file to read, or standard input.
fn input(file: &str) -> Result<BufReader<Box<dyn Read>>> {
    let input: Box<dyn Read> = if file == STDIO {
        Box::new(std::io::stdin())
    } else {
        Box::new(File::open(file).with_context(|| file.to_owned())?)
    };
    Ok(BufReader::with_capacity(CHUNK_BYTES, input))
}
