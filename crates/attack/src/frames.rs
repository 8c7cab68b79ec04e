//! HTTP/2 frames, written out.

use crate::client::{Tls, secure};
use crate::target::Target;
use anyhow::Result;
use std::io::Write;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RESET: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// `:method: GET` and `:method: POST` in HPACK.
pub const GET: &[u8] = b"\x82";
pub const POST: &[u8] = b"\x83";

/// `SETTINGS_INITIAL_WINDOW_SIZE`.
const WINDOW: u8 = 4;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection whose preface and settings were sent.
pub fn open(target: &Target, window: u32) -> Result<Tls> {
    let mut stream = secure(target.address, target.http2_config())?;
    let setting = [&[0, WINDOW][..], &window.to_be_bytes()].concat();
    stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &setting)].concat())?;
    stream.flush()?;
    Ok(stream)
}

/// A frame as it is on the wire.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The headers of a request, in HPACK without compression.
pub fn head(method: &[u8], path: &str, token: &str) -> Vec<u8> {
    let mut head = [method, b"\x87\x04"].concat();
    literal(path, &mut head);
    head.push(1);
    literal("attack", &mut head);
    if !token.is_empty() {
        head.push(0);
        literal("authorization", &mut head);
        literal(&format!("Bearer {token}"), &mut head);
    }
    head
}

/// A string of less than 127 bytes.
fn literal(text: &str, out: &mut Vec<u8>) {
    debug_assert!(text.len() < 127, "a short string");
    out.push(text.len() as u8);
    out.extend_from_slice(text.as_bytes());
}
