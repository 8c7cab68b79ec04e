//! Builds HTTP/2 frames by hand.

use crate::client::{TlsStream, connect_tls};
use crate::target::Target;
use anyhow::Result;
use std::io::Write;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PADDED: u8 = 8;

/// `:method: GET` and `:method: POST` as entries of HPACK's static table.
pub const GET: &[u8] = b"\x82";
pub const POST: &[u8] = b"\x83";

pub const SETTINGS_HEADER_TABLE_SIZE: u8 = 1;
pub const SETTINGS_INITIAL_WINDOW_SIZE: u8 = 4;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Connects and sends the preface and the settings. `window` is the initial window size.
pub fn connect(target: &Target, window: u32) -> Result<TlsStream> {
    let mut stream = connect_tls(target.address, target.http2_config())?;
    stream.write_all(&preface(window))?;
    stream.flush()?;
    Ok(stream)
}

/// Returns the preface and the settings.
pub fn preface(window: u32) -> Vec<u8> {
    [PREFACE, &setting(SETTINGS_INITIAL_WINDOW_SIZE, window)].concat()
}

/// Encodes a frame with one setting.
pub fn setting(name: u8, value: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&[0, name][..], &value.to_be_bytes()].concat())
}

/// Encodes a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Encodes the headers of a request in HPACK, without compression. An empty token is left out.
pub fn header_block(method: &[u8], path: &str, token: &str) -> Vec<u8> {
    let mut block = [method, b"\x87\x04"].concat();
    put_string(path, &mut block);
    block.push(1);
    put_string("attack", &mut block);
    if !token.is_empty() {
        block.push(0);
        put_string("authorization", &mut block);
        put_string(&format!("Bearer {token}"), &mut block);
    }
    block
}

/// Encodes the headers of a call of gRPC over HTTP, with further ones.
pub fn grpc_header_block(path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut block = [POST, b"\x86\x04"].concat();
    put_string(path, &mut block);
    block.push(1);
    put_string("attack", &mut block);
    let of_grpc = [("content-type", "application/grpc"), ("te", "trailers")];
    for (name, value) in of_grpc.iter().chain(headers) {
        block.push(0);
        put_string(name, &mut block);
        put_string(value, &mut block);
    }
    block
}

/// Appends a string of less than 127 bytes.
fn put_string(text: &str, out: &mut Vec<u8>) {
    debug_assert!(text.len() < 127, "a short string");
    out.push(text.len() as u8);
    out.extend_from_slice(text.as_bytes());
}
