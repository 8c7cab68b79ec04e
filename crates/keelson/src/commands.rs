//! The commands: serve, the explorer (ui), the operator's: backup, restore, check, version; and
//! those that read manifests: lint, validate.

pub mod backup;
pub mod check;
pub mod encryption;
pub mod envtest;
pub mod etcd;
mod findings;
pub mod lint;
mod manifests;
mod output;
pub mod restore;
pub mod serve;
pub mod simulation;
pub mod ui;
pub mod validate;
pub mod version;

use crate::flags::STDIO;
use anyhow::{Context, Result, anyhow};
use std::fs::File;
use std::io::{BufReader, Read};

/// Size of read and write buffers.
const CHUNK_BYTES: usize = 64 << 10;

/// Bytes of a new token.
const TOKEN_BYTES: usize = 32;

/// Returns a random token, in hexadecimal digits.
fn new_token() -> Result<String> {
    let mut bytes = [0; TOKEN_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| anyhow!("make a token: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Opens a file, or standard input for `-`.
fn open_input(file: &str) -> Result<BufReader<Box<dyn Read>>> {
    let input: Box<dyn Read> = if file == STDIO {
        Box::new(std::io::stdin())
    } else {
        Box::new(File::open(file).with_context(|| file.to_owned())?)
    };
    Ok(BufReader::with_capacity(CHUNK_BYTES, input))
}
