//! SPDY connections: one task reads and writes, each stream has a queue.

use super::http::Connection;
use bytes::{Bytes, BytesMut};
use keelson_streams::spdy::{CANCEL, Event, Headers, Session};
use std::collections::HashMap;
use std::collections::VecDeque;
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt, WriteHalf};
use tokio::sync::mpsc::{self, Receiver, Sender};

/// Most pieces of data that wait for the reader of a stream.
const QUEUE_PIECES_MAX: usize = 4;
/// Most commands that wait for the connection.
const QUEUE_COMMANDS_MAX: usize = 16;
/// Most bytes that are read at once.
const READ_BYTES_MAX: usize = 32 << 10;

/// A stream that the client has opened; it was accepted.
pub(super) struct Stream {
    pub id: u32,
    pub headers: Headers,
    /// What the client sends, until it finishes or resets the stream.
    pub data: Receiver<Bytes>,
    pub sender: StreamSender,
}

/// What is sent on a stream.
#[derive(Clone)]
pub(super) struct StreamSender {
    id: u32,
    commands: Sender<Command>,
}

impl StreamSender {
    /// Sends data. An error: the connection has ended.
    pub async fn send(&self, data: impl Into<Bytes>) -> io::Result<()> {
        self.command(Command::Send(self.id, data.into())).await
    }

    /// Says that nothing more is sent.
    pub async fn finish(&self) -> io::Result<()> {
        self.command(Command::Finish(self.id)).await
    }

    /// Ends the stream.
    pub async fn reset(&self) -> io::Result<()> {
        self.command(Command::Reset(self.id)).await
    }

    /// Ends all streams and the connection, after what was sent before.
    pub async fn close_connection(&self) -> io::Result<()> {
        self.command(Command::Close).await
    }

    async fn command(&self, command: Command) -> io::Result<()> {
        let sent = self.commands.send(command).await;
        sent.map_err(|_| io::ErrorKind::ConnectionReset.into())
    }
}

enum Command {
    Send(u32, Bytes),
    Finish(u32),
    Reset(u32),
    Close,
}

/// Serves a connection until either side ends it. Streams are given to `opened`.
pub(super) async fn serve(connection: Connection, opened: Sender<Stream>) -> io::Result<()> {
    let (mut reading, mut writing) = tokio::io::split(connection);
    let (sender, mut commands) = mpsc::channel(QUEUE_COMMANDS_MAX);
    let mut state = Serving {
        session: Session::server(),
        queues: HashMap::new(),
        waiting: VecDeque::new(),
        new: None,
        sender,
        is_closing: false,
    };
    let mut input = BytesMut::new();
    let mut output = Bytes::new();
    let mut needs_flush = false;
    loop {
        if output.is_empty() {
            output = state.session.take_output();
        }
        if state.is_closing && output.is_empty() {
            return writing.shutdown().await;
        }
        let waiting = state.waiting.front().map(|(stream, _)| *stream);
        let queue = waiting.and_then(|stream| state.queues.get(&stream).cloned());
        if waiting.is_some() && queue.is_none() {
            // The stream was reset, or nobody reads it.
            state.waiting.pop_front();
            state.receive(&mut input)?;
            continue;
        }
        tokio::select! {
            permit = opened.reserve(), if state.new.is_some() => {
                let permit = permit.map_err(|_| io::ErrorKind::ConnectionAborted)?;
                permit.send(state.new.take().expect("it is some"));
                state.receive(&mut input)?;
            }
            permit = reserve(queue), if state.new.is_none() && waiting.is_some() => {
                let data = state.waiting.pop_front().and_then(|(_, data)| data);
                match (permit, data) {
                    (Some(permit), Some(data)) => drop(permit.send(data)),
                    // The end of the stream, or nobody reads it.
                    _ => drop(waiting.and_then(|stream| state.queues.remove(&stream))),
                }
                state.receive(&mut input)?;
            }
            read = reading.read_buf(&mut input), if state.is_idle() => {
                if read? == 0 {
                    return Ok(());
                }
                state.receive(&mut input)?;
                input.reserve(READ_BYTES_MAX);
            }
            written = write_or_flush(&mut writing, &output), if !output.is_empty() || needs_flush => {
                needs_flush = !output.is_empty();
                output = output.split_off(written?);
            }
            command = commands.recv(), if output.is_empty() => {
                state.obey(command.expect("the state has a sender"));
            }
        }
    }
}

/// Writes a part of `bytes`, or flushes what was written if there are none. Cancelling it loses
/// nothing.
async fn write_or_flush(writing: &mut WriteHalf<Connection>, bytes: &[u8]) -> io::Result<usize> {
    match bytes {
        [] => writing.flush().await.map(|()| 0),
        bytes => writing.write(bytes).await,
    }
}

async fn reserve(queue: Option<Sender<Bytes>>) -> Option<mpsc::OwnedPermit<Bytes>> {
    queue?.reserve_owned().await.ok()
}

struct Serving {
    session: Session,
    /// Where the data of each stream goes, until its end.
    queues: HashMap<u32, Sender<Bytes>>,
    /// Data that was received and not queued yet; `None` is the end of a stream. While there is
    /// any, the connection is not read.
    waiting: VecDeque<(u32, Option<Bytes>)>,
    /// A stream that was opened and not given on yet.
    new: Option<Stream>,
    sender: Sender<Command>,
    is_closing: bool,
}

impl Serving {
    /// Returns whether the connection may be read.
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.new.is_none() && !self.is_closing
    }

    /// Takes the frames in `input` until one must wait.
    fn receive(&mut self, input: &mut BytesMut) -> io::Result<()> {
        let mut bytes = input.split().freeze();
        while self.waiting.is_empty() && self.new.is_none() {
            let event = self.session.receive(&mut bytes).map_err(io::Error::other)?;
            match event {
                None => break,
                Some(Event::Opened { stream, headers }) => {
                    let _ = self.session.reply(stream);
                    let (queue, data) = mpsc::channel(QUEUE_PIECES_MAX);
                    self.queues.insert(stream, queue);
                    let sender = StreamSender { id: stream, commands: self.sender.clone() };
                    self.new = Some(Stream { id: stream, headers, data, sender });
                }
                Some(Event::Data { stream, data }) => self.waiting.push_back((stream, Some(data))),
                Some(Event::Finished { stream } | Event::Reset { stream, .. }) => {
                    self.waiting.push_back((stream, None));
                }
                // The client closes the connection when its streams have ended.
                Some(Event::Replied { .. } | Event::Pong { .. } | Event::GoneAway) => {}
            }
        }
        input.extend_from_slice(&bytes);
        Ok(())
    }

    fn obey(&mut self, command: Command) {
        // The client may have reset the stream.
        let _ = match command {
            Command::Send(stream, data) => self.session.send(stream, &data),
            Command::Finish(stream) => self.session.finish(stream),
            Command::Reset(stream) => self.session.reset(stream, CANCEL),
            Command::Close => {
                for stream in self.session.streams() {
                    let _ = self.session.reset(stream, CANCEL);
                }
                self.session.go_away();
                self.is_closing = true;
                Ok(())
            }
        };
    }
}
