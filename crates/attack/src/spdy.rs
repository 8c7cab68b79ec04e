//! Builds SPDY/3.1 frames by hand.

pub const SYN_STREAM: u8 = 1;
pub const SYN_REPLY: u8 = 2;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const HEADERS: u8 = 8;
pub const WINDOW_UPDATE: u8 = 9;

/// The longest payload that a frame can announce.
pub const LENGTH_MAX: u32 = 0x00ff_ffff;
/// The head of a zlib stream with the dictionary of SPDY.
const ZLIB_HEAD: [u8; 6] = [0x78, 0x20, 0xe3, 0xc6, 0xa7, 0xc2];
/// Bytes that a match of deflate repeats at most.
const MATCH_BYTES: usize = 258;

/// Encodes a control frame.
pub fn control(kind: u8, payload: &[u8]) -> Vec<u8> {
    [&control_head(kind, payload.len() as u32)[..], payload].concat()
}

/// Encodes the head of a control frame with a payload of this length.
pub fn control_head(kind: u8, length: u32) -> [u8; 8] {
    let [_, high, middle, low] = length.to_be_bytes();
    [0x80, 3, 0, kind, 0, high, middle, low]
}

/// Encodes the head of a data frame with a payload of this length.
pub fn data_head(stream: u32, length: u32) -> [u8; 8] {
    let [a, b, c, d] = stream.to_be_bytes();
    let [_, high, middle, low] = length.to_be_bytes();
    [a, b, c, d, 0, high, middle, low]
}

/// Encodes a block without headers: as the first one of a connection, or as a later one.
pub fn empty_block(is_first: bool) -> Vec<u8> {
    // A stored block of deflate with the number of headers, then an empty one.
    let stored = [0, 4, 0, 0xfb, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    let head: &[u8] = if is_first { &ZLIB_HEAD } else { &[] };
    [head, &stored].concat()
}

/// Encodes the acceptance of a stream, without headers; the first one of a connection, or a later
/// one.
pub fn empty_reply(stream: u32, is_first: bool) -> Vec<u8> {
    control(SYN_REPLY, &[&stream.to_be_bytes()[..], &empty_block(is_first)].concat())
}

/// Encodes a first block that inflates to this many bytes: a zero, then copies of it.
pub fn bomb(bytes: usize) -> Vec<u8> {
    let mut bits = BitWriter::default();
    // A block with the fixed codes, the literal 0, and matches at distance 1.
    bits.push(0b010, 3);
    bits.push(0b0000_1100, 8);
    for _ in 0..bytes / MATCH_BYTES {
        bits.push(0b1010_0011, 8);
        bits.push(0, 5);
    }
    [&ZLIB_HEAD[..], &bits.bytes].concat()
}

/// Writes bits, the lowest first.
#[derive(Default)]
struct BitWriter {
    bytes: Vec<u8>,
    used: u32,
}

impl BitWriter {
    fn push(&mut self, bits: u32, count: u32) {
        for place in 0..count {
            if self.used == 0 {
                self.bytes.push(0);
            }
            if let Some(last) = self.bytes.last_mut() {
                *last |= ((bits >> place & 1) as u8) << self.used;
            }
            self.used = (self.used + 1) % 8;
        }
    }
}
