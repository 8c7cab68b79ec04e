//! A minimal HTTP/2 client that writes and reads single frames.

use crate::world::POLL_TIMEOUT;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RESET: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// `SETTINGS_INITIAL_WINDOW_SIZE`.
const WINDOW: u8 = 4;
/// The client connection preface (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection.
pub struct Frames(TcpStream);

/// A received frame.
#[derive(Debug)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frames {
    /// Connects, with an initial window size of each stream.
    pub fn open(address: SocketAddr, window: u32) -> Frames {
        let mut frames = Frames(TcpStream::connect(address).expect("a connection"));
        frames.0.set_read_timeout(Some(POLL_TIMEOUT)).expect("a deadline");
        frames.0.write_all(PREFACE).expect("the preface goes out");
        let setting = [&[0, WINDOW][..], &window.to_be_bytes()].concat();
        frames.send(SETTINGS, 0, 0, &setting).expect("settings go out");
        frames
    }

    pub fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
        self.0.write_all(&frame(kind, flags, stream, payload))
    }

    /// Sends raw bytes.
    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    /// Sends a GET, with or without the administrator's token.
    pub fn get(&mut self, stream: u32, path: &str, token: bool) -> io::Result<()> {
        self.send(HEADERS, END_STREAM | END_HEADERS, stream, &head(b"\x82", path, token))
    }

    /// Reads the next frame.
    pub fn next(&mut self) -> io::Result<Frame> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head)?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.0.read_exact(&mut payload)?;
        Ok(Frame { kind, flags, stream: u32::from_be_bytes(stream), payload })
    }

    /// Reads until a frame of a type; an error if the connection ends first.
    pub fn read_until(&mut self, kind: u8) -> io::Result<Frame> {
        loop {
            let frame = self.next()?;
            if frame.kind == SETTINGS && frame.flags == 0 {
                self.send(SETTINGS, 1, 0, &[])?;
            }
            if frame.kind == kind {
                return Ok(frame);
            }
        }
    }

    /// Returns whether the connection is open and the server answers a PING.
    pub fn is_alive(&mut self) -> bool {
        self.send(PING, 0, 0, &[7; 8]).is_ok() && self.read_until(PING).is_ok()
    }

    /// Returns whether the server closes the connection before the read timeout.
    pub fn ends(&mut self) -> bool {
        loop {
            match self.next() {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(_) => return true,
            }
        }
    }
}

/// Encodes a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Encodes the header block of a request. `method` is its HPACK index: `\x82` is GET, `\x83` POST.
pub fn head(method: &[u8], path: &str, token: bool) -> Vec<u8> {
    // :scheme http from the static table, :path and :authority as literals.
    let mut head = [method, b"\x86\x04"].concat();
    head.push(u8::try_from(path.len()).expect("a short path"));
    head.extend_from_slice(path.as_bytes());
    head.extend_from_slice(b"\x01\x01h");
    if token {
        head.extend_from_slice(b"\x00\x0dauthorization\x08Bearer t");
    }
    head
}
