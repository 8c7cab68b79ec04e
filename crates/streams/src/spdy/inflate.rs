//! Compression of headers: one zlib stream for each direction of a connection, flushed after each
//! frame.
//!
//! What we send is not compressed: a few short headers per stream do not repay a compressor's 250
//! KB per connection. It is a valid zlib stream nevertheless: each frame is a stored block, and an
//! empty stored block, after which decoders deliver what they have.

use super::dictionary::{DICTIONARY_ID, dictionary};
use super::{HEADER_BLOCK_BYTES_MAX, SpdyError};
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::TINFL_FLAG_HAS_MORE_INPUT;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};
use std::fmt;

/// The window of zlib.
const WINDOW_BYTES: usize = 32 << 10;
/// The head of a zlib stream with a dictionary: deflate with a window of 32 KiB.
const HEAD: [u8; 2] = [0x78, 0x20];
/// The bit of the head's second byte that announces a dictionary.
const HAS_DICTIONARY: u8 = 0x20;
/// Most bytes of a stored block.
const STORED_BYTES_MAX: usize = 0xffff;

/// The decompressor of one direction. It takes some 45 KB from the first frame with headers on.
#[derive(Default)]
pub(super) struct Inflater(Option<Box<Running>>);

struct Running {
    decompressor: DecompressorOxide,
    window: Vec<u8>,
    position: usize,
}

impl Inflater {
    /// Decompresses the headers of the next frame.
    pub fn inflate(&mut self, mut block: &[u8]) -> Result<Vec<u8>, SpdyError> {
        let running = match &mut self.0 {
            Some(running) => running,
            none => none.insert(start(&mut block)?),
        };
        let Running { decompressor, window, position } = &mut **running;
        let mut out = vec![];
        loop {
            let (status, read, written) =
                decompress(decompressor, block, window, *position, TINFL_FLAG_HAS_MORE_INPUT);
            if out.len() + written > HEADER_BLOCK_BYTES_MAX {
                return Err(SpdyError::HeadersTooLong);
            }
            out.extend_from_slice(&window[*position..*position + written]);
            *position = (*position + written) % WINDOW_BYTES;
            block = &block[read..];
            match status {
                TINFLStatus::NeedsMoreInput => return Ok(out),
                // The end of the window was reached.
                TINFLStatus::HasMoreOutput => {}
                TINFLStatus::Done => return Err(SpdyError::Compression("the stream has ended")),
                _ => return Err(SpdyError::Compression("the stream is damaged")),
            }
        }
    }
}

impl fmt::Debug for Inflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inflater").field("started", &self.0.is_some()).finish()
    }
}

/// Takes the head of the zlib stream from the front of the first block.
fn start(block: &mut &[u8]) -> Result<Box<Running>, SpdyError> {
    let incomplete = SpdyError::Compression("the head is incomplete");
    let (head, rest) = block.split_first_chunk::<2>().ok_or(incomplete.clone())?;
    let is_deflate = head[0] & 0x0f == 8 && head[0] >> 4 <= 7;
    if !is_deflate || u16::from_be_bytes(*head) % 31 != 0 {
        return Err(SpdyError::Compression("the head is wrong"));
    }
    let mut window = vec![0; WINDOW_BYTES];
    let mut position = 0;
    *block = rest;
    if head[1] & HAS_DICTIONARY != 0 {
        let (id, rest) = block.split_first_chunk().ok_or(incomplete)?;
        if u32::from_be_bytes(*id) != DICTIONARY_ID {
            return Err(SpdyError::Compression("an unknown dictionary"));
        }
        let dictionary = dictionary();
        position = dictionary.len();
        window[..position].copy_from_slice(&dictionary);
        *block = rest;
    }
    Ok(Box::new(Running { decompressor: DecompressorOxide::new(), window, position }))
}

/// The other direction.
#[derive(Debug, Default)]
pub(super) struct Deflater {
    is_started: bool,
}

impl Deflater {
    /// Returns the headers of the next frame as a piece of the zlib stream.
    pub fn deflate(&mut self, headers: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(headers.len() + 16);
        if !self.is_started {
            out.extend_from_slice(&HEAD);
            out.extend_from_slice(&DICTIONARY_ID.to_be_bytes());
            self.is_started = true;
        }
        let blocks = headers.chunks(STORED_BYTES_MAX).chain([&[][..]]);
        for block in blocks {
            let length = block.len() as u16;
            // Not the last block, stored, padded to a byte.
            out.push(0);
            out.extend_from_slice(&length.to_le_bytes());
            out.extend_from_slice(&(!length).to_le_bytes());
            out.extend_from_slice(block);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Header blocks that Go's compress/zlib made with the dictionary, as hexadecimal digits.
    const FROM_GO: [&str; 2] = [
        "78f9e3c6a7c26260606004a7b392a2d4c45c6851c29a0a0a6800000000ffff",
        "c22e555c92929907000000ffff",
    ];

    fn bytes(digits: &str) -> Vec<u8> {
        let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        (0..digits.len()).step_by(2).map(byte).collect()
    }

    #[test]
    fn pieces_of_a_real_compressor_are_read() {
        let mut inflater = Inflater::default();
        for (piece, value) in FROM_GO.into_iter().zip(["error", "stdin"]) {
            let expected = [b"\0\0\0\x01\0\0\0\x0astreamtype\0\0\0\x05", value.as_bytes()];
            assert_eq!(inflater.inflate(&bytes(piece)).unwrap(), expected.concat());
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut deflater = Deflater::default();
        let mut inflater = Inflater::default();
        for length in [0, 1, 100, 40_000, 65_535, 65_536, 200_000] {
            let text: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            assert_eq!(inflater.inflate(&deflater.deflate(&text)).unwrap(), text, "{length}");
        }
    }

    #[test]
    fn bombs_and_damage_are_refused() {
        let mut bomb = HEAD.to_vec();
        bomb.extend(DICTIONARY_ID.to_be_bytes());
        bomb.extend(miniz_oxide::deflate::compress_to_vec(&vec![0; 8 << 20], 9));
        let check = |block: &[u8], expected: SpdyError| {
            assert_eq!(Inflater::default().inflate(block), Err(expected));
        };
        assert!(bomb.len() < 10_000);
        check(&bomb, SpdyError::HeadersTooLong);
        check(&[], SpdyError::Compression("the head is incomplete"));
        check(&[0x78, 0x20, 1], SpdyError::Compression("the head is incomplete"));
        check(&[0x78, 0x21], SpdyError::Compression("the head is wrong"));
        check(&[0x78, 0x20, 1, 2, 3, 4], SpdyError::Compression("an unknown dictionary"));
        let dictionary = DICTIONARY_ID.to_be_bytes();
        let with = |rest: &[u8]| [&HEAD[..], &dictionary, rest].concat();
        check(&with(&[7]), SpdyError::Compression("the stream is damaged"));
        check(&with(&[1, 0, 0, 255, 255]), SpdyError::Compression("the stream has ended"));
    }
}
