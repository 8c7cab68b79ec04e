//! The wire format of frames: an incremental decoder, and functions that append frames to a buffer.

use super::{CONTROL_FRAME_BYTES_MAX, SENT_DATA_BYTES_MAX, SETTINGS_MAX, SpdyError};
use bytes::{BufMut, Bytes, BytesMut};

/// The bit that a stream number cannot have.
const TOP_BIT: u32 = 1 << 31;
/// The flag of the last frame that one side sends on a stream.
pub(super) const FIN: u8 = 1;
/// The flag of a SYN_STREAM on which the receiver sends nothing.
pub(super) const UNIDIRECTIONAL: u8 = 2;
const HEAD_BYTES: usize = 8;
/// How much is allocated for a control frame before its bytes have arrived.
const FIRST_ALLOCATION_BYTES_MAX: usize = 4 << 10;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const SETTINGS: u16 = 4;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;
const WINDOW_UPDATE: u16 = 9;
const VERSION: u16 = 3;

/// A frame, or a piece of a data frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    SynStream { stream: u32, flags: u8, block: Vec<u8> },
    SynReply { stream: u32, flags: u8, block: Vec<u8> },
    Headers { stream: u32, flags: u8, block: Vec<u8> },
    RstStream { stream: u32, status: u32 },
    Ping { id: u32 },
    GoAway { last_stream: u32, status: u32 },
    Data { stream: u32, bytes: Bytes, is_last: bool },
}

/// A decoder that takes its input in pieces of any size.
#[derive(Debug, Default)]
pub(super) struct FrameReader {
    state: State,
    /// The bytes of an incomplete head, or of an incomplete control frame.
    held: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Head,
    Control {
        frame_type: u16,
        flags: u8,
        length: usize,
    },
    Data {
        stream: u32,
        is_last: bool,
        remaining: usize,
    },
}

impl FrameReader {
    /// Takes the next frame, or a piece of a data frame, from the front of `input`. `None`: `input`
    /// is empty now, and more is needed.
    pub fn next(&mut self, input: &mut Bytes) -> Result<Option<Frame>, SpdyError> {
        loop {
            match self.state {
                State::Head => {
                    let Some(head) = self.take_held(input, HEAD_BYTES) else { return Ok(None) };
                    self.state = parse_head(&head)?;
                    if let State::Data { stream, is_last, remaining: 0 } = self.state {
                        self.state = State::Head;
                        return Ok(Some(Frame::Data { stream, bytes: Bytes::new(), is_last }));
                    }
                }
                State::Control { frame_type, flags, length } => {
                    let Some(payload) = self.take_held(input, length) else { return Ok(None) };
                    self.state = State::Head;
                    if let Some(frame) = parse_control(frame_type, flags, payload)? {
                        return Ok(Some(frame));
                    }
                }
                State::Data { .. } if input.is_empty() => return Ok(None),
                State::Data { stream, is_last, remaining } => {
                    let bytes = input.split_to(remaining.min(input.len()));
                    let remaining = remaining - bytes.len();
                    self.state = match remaining {
                        0 => State::Head,
                        _ => State::Data { stream, is_last, remaining },
                    };
                    let is_last = is_last && remaining == 0;
                    return Ok(Some(Frame::Data { stream, bytes, is_last }));
                }
            }
        }
    }

    /// Moves bytes from `input` to the held ones until there are `count`, and takes those.
    fn take_held(&mut self, input: &mut Bytes, count: usize) -> Option<Vec<u8>> {
        if self.held.is_empty() {
            self.held.reserve(count.min(FIRST_ALLOCATION_BYTES_MAX));
        }
        let missing = count - self.held.len();
        let piece = input.split_to(missing.min(input.len()));
        self.held.extend_from_slice(&piece);
        (self.held.len() == count).then(|| std::mem::take(&mut self.held))
    }
}

fn parse_head(head: &[u8]) -> Result<State, SpdyError> {
    let first = word(head, 0);
    let second = word(head, 4);
    let flags = (second >> 24) as u8;
    let length = (second & 0x00ff_ffff) as usize;
    if first & TOP_BIT == 0 {
        if first == 0 {
            return Err(SpdyError::ZeroStream);
        }
        return Ok(State::Data { stream: first, is_last: flags & FIN != 0, remaining: length });
    }
    let version = (first >> 16 & 0x7fff) as u16;
    let frame_type = first as u16;
    if version != VERSION {
        return Err(SpdyError::Version(version));
    }
    if length > CONTROL_FRAME_BYTES_MAX {
        return Err(SpdyError::FrameTooLong(length));
    }
    Ok(State::Control { frame_type, flags, length })
}

/// Returns the frame, or `None` if it has no effect.
fn parse_control(
    frame_type: u16,
    flags: u8,
    mut payload: Vec<u8>,
) -> Result<Option<Frame>, SpdyError> {
    let length = payload.len();
    let check = |is_right: bool, name| is_right.then_some(()).ok_or(SpdyError::Malformed(name));
    let number = |at| word(&payload, at) & !TOP_BIT;
    let stream = |at| match number(at) {
        0 => Err(SpdyError::ZeroStream),
        stream => Ok(stream),
    };
    let frame = match frame_type {
        SYN_STREAM => {
            check(length >= 10, "SYN_STREAM")?;
            let stream = stream(0)?;
            Frame::SynStream { stream, flags, block: payload.split_off(10) }
        }
        SYN_REPLY => {
            check(length >= 4, "SYN_REPLY")?;
            let stream = stream(0)?;
            Frame::SynReply { stream, flags, block: payload.split_off(4) }
        }
        HEADERS => {
            check(length >= 4, "HEADERS")?;
            let stream = stream(0)?;
            Frame::Headers { stream, flags, block: payload.split_off(4) }
        }
        RST_STREAM => {
            check(length == 8, "RST_STREAM")?;
            let status = word(&payload, 4);
            check(status != 0, "RST_STREAM")?;
            Frame::RstStream { stream: stream(0)?, status }
        }
        SETTINGS => {
            check(length >= 4, "SETTINGS")?;
            let count = word(&payload, 0);
            let contained = (length - 4) / 8;
            if count as usize > SETTINGS_MAX.min(contained) {
                return Err(SpdyError::Settings(count));
            }
            return Ok(None);
        }
        PING => {
            check(length == 4 && flags == 0 && word(&payload, 0) != 0, "PING")?;
            Frame::Ping { id: word(&payload, 0) }
        }
        GOAWAY => {
            check(length == 8 && flags == 0, "GOAWAY")?;
            Frame::GoAway { last_stream: number(0), status: word(&payload, 4) }
        }
        WINDOW_UPDATE => {
            check(length == 8 && flags == 0, "WINDOW_UPDATE")?;
            return Ok(None);
        }
        unknown => return Err(SpdyError::FrameType(unknown)),
    };
    Ok(Some(frame))
}

/// Returns four bytes as a number. The caller has checked the length.
fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

/// Appends the head of a control frame.
fn put_control(out: &mut BytesMut, frame_type: u16, flags: u8, length: usize) {
    assert!(length <= CONTROL_FRAME_BYTES_MAX, "the caller bounds its headers");
    out.put_u16(0x8000 | VERSION);
    out.put_u16(frame_type);
    out.put_u32(u32::from(flags) << 24 | length as u32);
}

pub(super) fn put_syn_stream(out: &mut BytesMut, stream: u32, block: &[u8]) {
    put_control(out, SYN_STREAM, 0, 10 + block.len());
    out.put_u32(stream);
    // No associated stream, the highest priority, no credential.
    out.put_u32(0);
    out.put_u16(0);
    out.put_slice(block);
}

pub(super) fn put_syn_reply(out: &mut BytesMut, stream: u32, block: &[u8]) {
    put_control(out, SYN_REPLY, 0, 4 + block.len());
    out.put_u32(stream);
    out.put_slice(block);
}

pub(super) fn put_rst_stream(out: &mut BytesMut, stream: u32, status: u32) {
    put_control(out, RST_STREAM, 0, 8);
    out.put_u32(stream);
    out.put_u32(status);
}

pub(super) fn put_ping(out: &mut BytesMut, id: u32) {
    put_control(out, PING, 0, 4);
    out.put_u32(id);
}

pub(super) fn put_go_away(out: &mut BytesMut, last_stream: u32) {
    put_control(out, GOAWAY, 0, 8);
    out.put_u32(last_stream);
    out.put_u32(0);
}

/// Appends data frames.
pub(super) fn put_data(out: &mut BytesMut, stream: u32, data: &[u8]) {
    for piece in data.chunks(SENT_DATA_BYTES_MAX) {
        out.put_u32(stream);
        out.put_u32(piece.len() as u32);
        out.put_slice(piece);
    }
}

/// Appends the empty data frame that is the last one of a stream.
pub(super) fn put_fin(out: &mut BytesMut, stream: u32) {
    out.put_u32(stream);
    out.put_u32(u32::from(FIN) << 24);
}

#[cfg(test)]
impl FrameReader {
    /// Returns how much memory is allocated for incomplete frames.
    pub fn capacity(&self) -> usize {
        self.held.capacity()
    }
}
