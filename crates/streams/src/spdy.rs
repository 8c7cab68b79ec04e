//! SPDY/3.1 as far as Kubernetes uses it, which is what the Go library spdystream speaks.
//!
//! There is no flow control: WINDOW_UPDATE is neither sent nor obeyed, so a receiver that wants to
//! slow its peer down stops reading the connection. Streams of clients have odd numbers, those of
//! servers even ones. SETTINGS are checked and ignored.
//!
//! A [`Session`] holds no received data and no data to send beyond what the caller has not taken
//! yet. Its driver reads and writes the connection:
//!
//! ```
//! use bytes::Bytes;
//! use keelson_streams::spdy::{Event, Headers, Session};
//!
//! let (mut client, mut server) = (Session::client(), Session::server());
//! let stream = client.open(&Headers::from([("streamtype", "stdin")])).unwrap();
//! // What the client wants to write is what the server reads.
//! let mut input: Bytes = client.take_output();
//! while let Some(event) = server.receive(&mut input).unwrap() {
//!     if let Event::Opened { stream, headers } = event {
//!         assert_eq!(headers.get("streamType"), Some("stdin"));
//!         server.reply(stream).unwrap();
//!     }
//! }
//! let mut input = server.take_output();
//! assert_eq!(client.receive(&mut input), Ok(Some(Event::Replied { stream })));
//! ```

mod dictionary;
mod frame;
mod header_block;
mod inflate;
mod session;

pub use header_block::Headers;
pub use session::{Event, Gone, OpenError, Session};

use std::fmt;

/// Most bytes of the payload of a control frame. Data frames may have 16 MiB: they are not held.
pub const CONTROL_FRAME_BYTES_MAX: usize = 1 << 20;
/// Most bytes of the headers of a frame after decompression.
pub const HEADER_BLOCK_BYTES_MAX: usize = 1 << 20;
/// Most headers of a frame.
pub const HEADERS_MAX: usize = 1_000;
/// Most entries of a SETTINGS frame.
pub const SETTINGS_MAX: usize = 1_000;
/// Most streams that are open at once. A connection that forwards a port uses two.
pub const STREAMS_MAX: usize = 2_048;
/// Most bytes of answers that the peer causes (PING, RST_STREAM) while it reads nothing.
pub const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Most bytes of a data frame that is sent.
pub const SENT_DATA_BYTES_MAX: usize = 32 << 10;

/// RST_STREAM: the frame violates the protocol.
pub const PROTOCOL_ERROR: u32 = 1;
/// RST_STREAM: the stream is refused before anything was done.
pub const REFUSED_STREAM: u32 = 3;
/// RST_STREAM: the sender has no more use for the stream.
pub const CANCEL: u32 = 5;

/// Why a peer is not understood. The connection must be closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpdyError {
    /// A control frame of another version than 3.
    Version(u16),
    /// A control frame of an unknown type.
    FrameType(u16),
    /// A control frame longer than [`CONTROL_FRAME_BYTES_MAX`].
    FrameTooLong(usize),
    /// A control frame of this type has a length, or flags, that it cannot have.
    Malformed(&'static str),
    /// More than [`SETTINGS_MAX`] settings, or more than the frame contains.
    Settings(u32),
    /// A frame for stream 0.
    ZeroStream,
    /// Headers that cannot be decompressed.
    Compression(&'static str),
    /// Headers of more than [`HEADER_BLOCK_BYTES_MAX`] bytes.
    HeadersTooLong,
    /// More than [`HEADERS_MAX`] headers.
    TooManyHeaders(u32),
    /// Headers whose decompressed form is wrong.
    HeaderForm(&'static str),
    /// The peer causes answers and does not read them.
    TooManyAnswers,
}

impl fmt::Display for SpdyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpdyError::Version(version) => write!(f, "SPDY frame of version {version}"),
            SpdyError::FrameType(number) => write!(f, "SPDY frame of unknown type {number}"),
            SpdyError::FrameTooLong(bytes) => write!(f, "SPDY control frame of {bytes} bytes"),
            SpdyError::Malformed(name) => write!(f, "malformed SPDY frame {name}"),
            SpdyError::Settings(count) => write!(f, "SPDY frame with {count} settings"),
            SpdyError::ZeroStream => f.write_str("SPDY frame for stream 0"),
            SpdyError::Compression(why) => write!(f, "compressed SPDY headers: {why}"),
            SpdyError::HeadersTooLong => {
                write!(f, "SPDY headers of more than {HEADER_BLOCK_BYTES_MAX} bytes")
            }
            SpdyError::TooManyHeaders(count) => write!(f, "{count} SPDY headers"),
            SpdyError::HeaderForm(why) => write!(f, "SPDY headers: {why}"),
            SpdyError::TooManyAnswers => f.write_str("SPDY peer that does not read its answers"),
        }
    }
}

impl std::error::Error for SpdyError {}
