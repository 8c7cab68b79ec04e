//! A connection to etcd: calls of gRPC over HTTP/2, which is written and read by hand.

use super::messages::{self, framed};
use crate::client::connect_tcp;
use crate::frames::{
    DATA, END_HEADERS, END_STREAM, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame,
    grpc_header_block, preface,
};
use anyhow::{Result, bail, ensure};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

/// The type of the frame with which a server ends the connection.
const GOAWAY: u8 = 7;
const ACK: u8 = 1;
/// Bytes before a message of gRPC.
const FRAME_BYTES: usize = 5;
/// Bytes of the data of a frame.
const DATA_BYTES_MAX: usize = 16_384;
/// A window that is never used up.
const WINDOW: u32 = 1 << 30;

/// What a server lets a client send before it says anything.
const WINDOW_AT_FIRST: i64 = 65_535;

/// A connection.
pub struct EtcdConnection {
    stream: TcpStream,
    next_stream: u32,
    /// What the server lets the client send: over the connection, and of the current stream.
    window: i64,
    stream_window: (u32, i64),
}

/// A frame that was read.
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl EtcdConnection {
    /// Connects as a client that reads everything.
    pub fn open(address: SocketAddr) -> Result<EtcdConnection> {
        let mut connection = EtcdConnection::open_with_window(address, WINDOW)?;
        connection.send(&frame(WINDOW_UPDATE, 0, 0, &WINDOW.to_be_bytes()))?;
        Ok(connection)
    }

    /// Connects as a client that lets the server send so many bytes of each response.
    pub fn open_with_window(address: SocketAddr, window: u32) -> Result<EtcdConnection> {
        let mut stream = connect_tcp(address)?;
        stream.write_all(&preface(window))?;
        Ok(EtcdConnection {
            stream,
            next_stream: 1,
            window: WINDOW_AT_FIRST,
            stream_window: (0, WINDOW_AT_FIRST),
        })
    }

    /// Sends frames as they are.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(bytes)?)
    }

    /// Sends the headers of a call; returns its stream.
    pub fn begin(&mut self, path: &str, headers: &[(&str, &str)]) -> Result<u32> {
        let stream = self.next_stream;
        self.next_stream += 2;
        self.stream_window = (stream, WINDOW_AT_FIRST);
        let block = grpc_header_block(path, headers);
        self.send(&frame(HEADERS, END_HEADERS, stream, &block))?;
        Ok(stream)
    }

    /// Sends data of the stream that was begun last, as the server allows it.
    pub fn send_data(&mut self, stream: u32, data: &[u8], is_end: bool) -> Result<()> {
        let mut rest = data;
        loop {
            let (part, after) = rest.split_at(rest.len().min(DATA_BYTES_MAX));
            let bytes = part.len() as i64;
            while self.window < bytes || self.stream_window.1 < bytes {
                let read = self.read_frame()?;
                let is_ended = read.stream == stream && read.flags & END_STREAM != 0;
                ensure!(!is_ended && read.kind != RST_STREAM, "refused before it was sent");
                self.take(read)?;
            }
            self.window -= bytes;
            self.stream_window.1 -= bytes;
            let flags = if is_end && after.is_empty() { END_STREAM } else { 0 };
            self.send(&frame(DATA, flags, stream, part))?;
            if after.is_empty() {
                return Ok(());
            }
            rest = after;
        }
    }

    /// Sends a call, and does not wait for its response.
    pub fn start(&mut self, path: &str, message: &[u8]) -> Result<u32> {
        let stream = self.begin(path, &[])?;
        self.send_data(stream, &framed(message, false), true)?;
        Ok(stream)
    }

    /// Takes a call back.
    pub fn reset(&mut self, stream: u32) -> Result<()> {
        const CANCEL: [u8; 4] = [0, 0, 0, 8];
        self.send(&frame(RST_STREAM, 0, stream, &CANCEL))
    }

    /// Makes a call; returns the message of its response.
    pub fn call(&mut self, path: &str, message: &[u8]) -> Result<Vec<u8>> {
        let stream = self.start(path, message)?;
        let response = self.response(stream)?;
        ensure!(response.len() >= FRAME_BYTES, "{path}: an error");
        Ok(response[FRAME_BYTES..].to_vec())
    }

    /// Stores a key.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<Vec<u8>> {
        self.call(messages::PUT, &messages::put(key, value))
    }

    /// Reads the response of a stream to its end; empty if it is an error only.
    pub fn response(&mut self, stream: u32) -> Result<Vec<u8>> {
        let mut data = vec![];
        loop {
            let frame = self.read_frame()?;
            let is_ours = frame.stream == stream;
            ensure!(!(is_ours && frame.kind == RST_STREAM), "the server resets the stream");
            if is_ours && frame.kind == DATA {
                data.extend_from_slice(&frame.payload);
            }
            if is_ours && matches!(frame.kind, DATA | HEADERS) && frame.flags & END_STREAM != 0 {
                return Ok(data);
            }
            self.take(frame)?;
        }
    }

    /// Answers a frame that concerns the connection.
    fn take(&mut self, taken: Frame) -> Result<()> {
        let Frame { kind, flags, stream, payload } = taken;
        match kind {
            SETTINGS if flags & ACK == 0 => self.send(&frame(SETTINGS, ACK, 0, b"")),
            PING if flags & ACK == 0 => self.send(&frame(PING, ACK, 0, &payload)),
            GOAWAY => bail!("the server ends the connection"),
            WINDOW_UPDATE => {
                let more = payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
                match stream {
                    0 => self.window += i64::from(more),
                    _ if stream == self.stream_window.0 => self.stream_window.1 += i64::from(more),
                    _ => {}
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn read_frame(&mut self) -> Result<Frame> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head)?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.stream.read_exact(&mut payload)?;
        Ok(Frame { kind, flags, stream: u32::from_be_bytes(stream), payload })
    }
}
