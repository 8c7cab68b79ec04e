//! A connection's streams, in the role of a client or a server.

use super::frame::{self, FIN, Frame, FrameReader, UNIDIRECTIONAL};
use super::header_block::Headers;
use super::inflate::{Deflater, Inflater};
use super::{ANSWER_BYTES_MAX, PROTOCOL_ERROR, REFUSED_STREAM, STREAMS_MAX, SpdyError};
use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;
use std::fmt;

/// The greatest number of a stream.
const STREAM_ID_MAX: u32 = (1 << 31) - 1;

/// What the peer did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It opened a stream. [`Session::reply`] accepts it, [`Session::reset`] refuses it.
    Opened {
        /// The stream.
        stream: u32,
        /// Its headers.
        headers: Headers,
    },
    /// It accepted a stream of ours, which may be used from now on.
    Replied {
        /// The stream.
        stream: u32,
    },
    /// It sent a part of a stream's data; never empty.
    Data {
        /// The stream.
        stream: u32,
        /// The data.
        data: Bytes,
    },
    /// It will send nothing more on a stream.
    Finished {
        /// The stream.
        stream: u32,
    },
    /// It ended a stream in both directions; the session has forgotten it.
    Reset {
        /// The stream.
        stream: u32,
        /// The reason, for example [`CANCEL`](super::CANCEL).
        status: u32,
    },
    /// It answered a ping of ours.
    Pong {
        /// The number that [`Session::ping`] returned.
        id: u32,
    },
    /// It opens no further streams and accepts none; those that are open go on.
    GoneAway,
}

/// A stream does not exist, or not any more, or its direction is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the stream is closed")
    }
}

impl std::error::Error for Gone {}

/// Why a stream cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// [`STREAMS_MAX`] streams are open, or all numbers are used.
    TooMany,
    /// The headers are longer than a peer accepts.
    HeadersTooLong,
    /// One side has said that it goes away.
    GoneAway,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OpenError::TooMany => "too many streams",
            OpenError::HeadersTooLong => "the headers of the stream are too long",
            OpenError::GoneAway => "the connection is about to be closed",
        })
    }
}

impl std::error::Error for OpenError {}

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// The side that did not open it has accepted it.
    is_replied: bool,
    /// We send nothing more.
    is_finished_here: bool,
    /// The peer sends nothing more.
    is_finished_there: bool,
}

/// One side of a connection.
///
/// What is sent is collected until [`Session::take_output`]. The caller should stop to send, and to
/// call [`Session::receive`], while [`Session::output_bytes`] is more than it wants to hold.
#[derive(Debug)]
pub struct Session {
    is_client: bool,
    reader: FrameReader,
    inflater: Inflater,
    deflater: Deflater,
    /// Invariant: no stream is finished on both sides.
    streams: BTreeMap<u32, Stream>,
    next_stream: u32,
    next_ping: u32,
    last_received: u32,
    is_going_away: bool,
    /// An event that the last frame caused besides the one that was returned.
    second_event: Option<Event>,
    output: BytesMut,
    /// The part of `output` that the peer has caused.
    answer_bytes: usize,
}

impl Session {
    /// Returns the side that has opened the connection.
    pub fn client() -> Session {
        Session::new(true)
    }

    /// Returns the side that has accepted the connection.
    pub fn server() -> Session {
        Session::new(false)
    }

    fn new(is_client: bool) -> Session {
        let first = if is_client { 1 } else { 2 };
        Session {
            is_client,
            reader: FrameReader::default(),
            inflater: Inflater::default(),
            deflater: Deflater::default(),
            streams: BTreeMap::new(),
            next_stream: first,
            next_ping: first,
            last_received: 0,
            is_going_away: false,
            second_event: None,
            output: BytesMut::new(),
            answer_bytes: 0,
        }
    }

    /// Takes frames from the front of `input` until one causes an event. `None`: all of `input` was
    /// taken. After an error the connection must be closed.
    pub fn receive(&mut self, input: &mut Bytes) -> Result<Option<Event>, SpdyError> {
        if let Some(event) = self.second_event.take() {
            return Ok(Some(event));
        }
        while let Some(frame) = self.reader.next(input)? {
            let event = self.apply(frame)?;
            if event.is_some() {
                return Ok(event);
            }
        }
        Ok(None)
    }

    /// Opens a stream and returns its number. Data should wait for [`Event::Replied`].
    pub fn open(&mut self, headers: &Headers) -> Result<u32, OpenError> {
        if self.is_going_away {
            return Err(OpenError::GoneAway);
        }
        if self.streams.len() >= STREAMS_MAX || self.next_stream > STREAM_ID_MAX {
            return Err(OpenError::TooMany);
        }
        let block = headers.encode().ok_or(OpenError::HeadersTooLong)?;
        let stream = self.next_stream;
        self.next_stream += 2;
        self.streams.insert(stream, Stream::default());
        frame::put_syn_stream(&mut self.output, stream, &self.deflater.deflate(&block));
        Ok(stream)
    }

    /// Accepts a stream that the peer has opened.
    pub fn reply(&mut self, stream: u32) -> Result<(), Gone> {
        let state = self.streams.get_mut(&stream).ok_or(Gone)?;
        if std::mem::replace(&mut state.is_replied, true) {
            return Ok(());
        }
        let block = Headers::default().encode().unwrap_or_default();
        frame::put_syn_reply(&mut self.output, stream, &self.deflater.deflate(&block));
        Ok(())
    }

    /// Sends data on a stream.
    pub fn send(&mut self, stream: u32, data: &[u8]) -> Result<(), Gone> {
        let state = self.streams.get(&stream).ok_or(Gone)?;
        if state.is_finished_here {
            return Err(Gone);
        }
        frame::put_data(&mut self.output, stream, data);
        Ok(())
    }

    /// Says that nothing more is sent on a stream.
    pub fn finish(&mut self, stream: u32) -> Result<(), Gone> {
        let state = self.streams.get_mut(&stream).ok_or(Gone)?;
        if std::mem::replace(&mut state.is_finished_here, true) {
            return Err(Gone);
        }
        frame::put_fin(&mut self.output, stream);
        self.forget_if_finished(stream);
        Ok(())
    }

    /// Ends a stream in both directions.
    pub fn reset(&mut self, stream: u32, status: u32) -> Result<(), Gone> {
        self.streams.remove(&stream).ok_or(Gone)?;
        frame::put_rst_stream(&mut self.output, stream, status);
        Ok(())
    }

    /// Sends a ping; returns its number.
    pub fn ping(&mut self) -> u32 {
        let id = self.next_ping;
        // After the greatest number the least one of the same parity.
        self.next_ping = if id > STREAM_ID_MAX - 2 { 2 - id % 2 } else { id + 2 };
        frame::put_ping(&mut self.output, id);
        id
    }

    /// Says that no further streams are opened or accepted.
    pub fn go_away(&mut self) {
        if !std::mem::replace(&mut self.is_going_away, true) {
            frame::put_go_away(&mut self.output, self.last_received);
        }
    }

    /// Returns the streams that are open.
    pub fn streams(&self) -> Vec<u32> {
        self.streams.keys().copied().collect()
    }

    /// Returns the number of streams that are open.
    pub fn open_streams(&self) -> usize {
        self.streams.len()
    }

    /// Returns how much [`Session::take_output`] would return.
    pub fn output_bytes(&self) -> usize {
        self.output.len()
    }

    /// Takes the bytes that are to be written to the connection.
    pub fn take_output(&mut self) -> Bytes {
        self.answer_bytes = 0;
        self.output.split().freeze()
    }

    /// Applies a frame; returns its first event.
    fn apply(&mut self, frame: Frame) -> Result<Option<Event>, SpdyError> {
        match frame {
            Frame::SynStream { stream, flags, block } => {
                // Decompressed in any case: later headers refer to it.
                let headers = Headers::parse(&self.inflater.inflate(&block)?)?;
                self.opened(stream, flags, headers)
            }
            Frame::SynReply { stream, flags, block } => {
                Headers::parse(&self.inflater.inflate(&block)?)?;
                let Some(state) = self.streams.get_mut(&stream) else { return Ok(None) };
                if std::mem::replace(&mut state.is_replied, true) {
                    return Ok(None);
                }
                self.second_event = (flags & FIN != 0).then(|| self.finished(stream)).flatten();
                Ok(Some(Event::Replied { stream }))
            }
            Frame::Headers { stream, flags, block } => {
                Headers::parse(&self.inflater.inflate(&block)?)?;
                Ok((flags & FIN != 0).then(|| self.finished(stream)).flatten())
            }
            Frame::RstStream { stream, status } => {
                let state = self.streams.remove(&stream);
                Ok(state.map(|_| Event::Reset { stream, status }))
            }
            Frame::Ping { id } if id % 2 == self.next_ping % 2 => Ok(Some(Event::Pong { id })),
            Frame::Ping { id } => {
                self.answer(|output| frame::put_ping(output, id))?;
                Ok(None)
            }
            Frame::GoAway { .. } => {
                self.is_going_away = true;
                Ok(Some(Event::GoneAway))
            }
            Frame::Data { stream, bytes, is_last } => {
                let state = self.streams.get(&stream);
                // Data for a stream that was reset here may be on its way.
                let is_read = state.is_some_and(|it| it.is_replied && !it.is_finished_there);
                if !is_read {
                    return Ok(None);
                }
                let finished = is_last.then(|| self.finished(stream)).flatten();
                if bytes.is_empty() {
                    return Ok(finished);
                }
                self.second_event = finished;
                Ok(Some(Event::Data { stream, data: bytes }))
            }
        }
    }

    fn opened(
        &mut self,
        stream: u32,
        flags: u8,
        headers: Headers,
    ) -> Result<Option<Event>, SpdyError> {
        if self.is_going_away {
            return Ok(None);
        }
        let is_of_peer = stream.is_multiple_of(2) == self.is_client;
        if !is_of_peer || stream <= self.last_received {
            self.answer(|output| frame::put_rst_stream(output, stream, PROTOCOL_ERROR))?;
            return Ok(None);
        }
        self.last_received = stream;
        if self.is_client || self.streams.len() >= STREAMS_MAX {
            self.answer(|output| frame::put_rst_stream(output, stream, REFUSED_STREAM))?;
            return Ok(None);
        }
        let is_finished_here = flags & UNIDIRECTIONAL != 0;
        self.streams.insert(stream, Stream { is_finished_here, ..Stream::default() });
        self.second_event = (flags & FIN != 0).then(|| self.finished(stream)).flatten();
        Ok(Some(Event::Opened { stream, headers }))
    }

    /// Records that the peer sends nothing more on a stream.
    fn finished(&mut self, stream: u32) -> Option<Event> {
        let state = self.streams.get_mut(&stream)?;
        if std::mem::replace(&mut state.is_finished_there, true) {
            return None;
        }
        self.forget_if_finished(stream);
        Some(Event::Finished { stream })
    }

    fn forget_if_finished(&mut self, stream: u32) {
        let state = self.streams.get(&stream);
        if state.is_some_and(|state| state.is_finished_here && state.is_finished_there) {
            self.streams.remove(&stream);
        }
    }

    /// Sends something that the peer has caused.
    fn answer(&mut self, put: impl FnOnce(&mut BytesMut)) -> Result<(), SpdyError> {
        let before = self.output.len();
        put(&mut self.output);
        self.answer_bytes += self.output.len() - before;
        match self.answer_bytes <= ANSWER_BYTES_MAX {
            true => Ok(()),
            false => Err(SpdyError::TooManyAnswers),
        }
    }
}

#[cfg(test)]
mod tests;
