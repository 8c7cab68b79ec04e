//! Translates a WebSocket client that speaks `v5.channel.k8s.io` towards a node that speaks SPDY
//! only.
//!
//! The client is upgraded before the node is dialled, so every later error is a `Status` on the
//! error channel. The driver moves bytes and has the clock:
//!
//! 1. After the 101 to the client: [`Translator::new`]. From now on it sends what
//!    [`Translator::next_message`] returns as binary messages.
//! 2. It dials the node with POST and [`COMMAND_PROTOCOLS`], following no redirect, then calls
//!    [`Translator::connected`] with the protocol that the node chose, or [`Translator::failed`].
//! 3. It writes [`Translator::take_node_output`] to the node, only when all that it took before is
//!    written. It passes on what it reads, [`Translator::receive_client`] and
//!    [`Translator::receive_node`], while [`Translator::may_read_client`] and
//!    [`Translator::may_read_node`] allow it. This is the back pressure.
//! 4. While [`Translator::is_opening`], it waits [`OPENING_TIME_MAX`], then calls
//!    [`Translator::opening_timed_out`]. It calls [`Translator::ping_node`] every [`PING_PERIOD`].
//! 5. When [`Translator::is_done`] and the messages and the output are written (10 s at most), it
//!    closes the WebSocket with the code 1000, and the connection to the node.
//!
//! [`COMMAND_PROTOCOLS`]: crate::handshake::COMMAND_PROTOCOLS

use crate::channels::{
    ChannelError, Channels, CommandStreams, ERROR, Input, Message, RESIZE, STDERR, STDIN, STDOUT,
    V5,
};
use crate::outcome::{Form, MESSAGE_BYTES_MAX, Outcome, Writer};
use crate::resize::ResizeReader;
use crate::spdy::{CANCEL, Event, Headers, OpenError, Session, SpdyError};
use bytes::Bytes;
use std::collections::VecDeque;
use std::time::Duration;

/// How long a node may take to accept the streams.
pub const OPENING_TIME_MAX: Duration = Duration::from_secs(30);
/// How often the node gets a ping, so that nothing in between forgets an idle connection.
pub const PING_PERIOD: Duration = Duration::from_secs(5);
/// Most bytes for the client that are held before the node is not read.
pub const CLIENT_QUEUE_BYTES_MAX: usize = 64 << 10;
/// Most bytes for the node that are held before the client is not read.
pub const NODE_QUEUE_BYTES_MAX: usize = 64 << 10;
/// Most bytes of data in a message to the client.
const MESSAGE_DATA_BYTES_MAX: usize = 32 << 10;

/// The state between a client and a node.
#[derive(Debug)]
pub struct Translator {
    streams: CommandStreams,
    channels: Channels,
    resize: ResizeReader,
    phase: Phase,
    node: Option<Node>,
    /// Messages for the client, each with its channel.
    messages: VecDeque<Vec<u8>>,
    /// The bytes of `messages`.
    message_bytes: usize,
    outcome: Option<Outcome>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Dialing,
    /// The node has not accepted all streams yet.
    Opening {
        missing: usize,
    },
    Running,
    Done,
}

/// The connection to the node. A stream is `None` if it was not opened.
#[derive(Debug)]
struct Node {
    session: Session,
    form: Form,
    error: u32,
    stdin: Option<u32>,
    stdout: Option<u32>,
    stderr: Option<u32>,
    resize: Option<u32>,
    /// The output streams and the error stream that have not ended.
    unfinished: Vec<u32>,
    /// What the node has sent on the error stream.
    message: Vec<u8>,
}

impl Translator {
    /// Returns the state after the client was upgraded.
    pub fn new(streams: CommandStreams) -> Translator {
        let mut translator = Translator {
            streams,
            channels: Channels::of_command(V5, streams),
            resize: ResizeReader::default(),
            phase: Phase::Dialing,
            node: None,
            messages: VecDeque::new(),
            message_bytes: 0,
            outcome: None,
        };
        translator.push_message(streams.first_channel(), b"");
        translator
    }

    /// The node was dialled and has chosen a protocol, the value of `X-Stream-Protocol-Version`.
    pub fn connected(&mut self, protocol: &str) {
        if self.phase != Phase::Dialing {
            return;
        }
        let (form, can_resize) = match protocol {
            "v5.channel.k8s.io" | "v4.channel.k8s.io" => (Form::Status, true),
            "v3.channel.k8s.io" => (Form::Text, true),
            "v2.channel.k8s.io" | "channel.k8s.io" | "" => (Form::Text, false),
            unknown => return self.failed(format!("the node chose the protocol {unknown:?}")),
        };
        match Node::open(self.streams, form, can_resize) {
            Ok(node) => {
                self.phase = Phase::Opening { missing: node.session.open_streams() };
                self.node = Some(node);
            }
            Err(error) => self.failed(error.to_string()),
        }
    }

    /// The node cannot be reached, or does not switch to SPDY; `cause` is shown to the user.
    pub fn failed(&mut self, cause: impl Into<String>) {
        self.finish(Some(Outcome::Failed(cause.into())));
    }

    /// The node has not accepted the streams in time.
    pub fn opening_timed_out(&mut self) {
        if self.is_opening() {
            self.failed("Timeout occurred");
        }
    }

    /// Takes a message of the client, binary or text. An error ends the connection, without a
    /// message.
    pub fn receive_client(&mut self, message: Bytes) -> Result<(), ChannelError> {
        let input = match self.channels.decode(message) {
            Ok(input) => input,
            Err(error) => {
                self.client_gone();
                return Err(error);
            }
        };
        let Some(node) = &mut self.node else { return Ok(()) };
        // The node may have closed a stream, then it has no use for the data.
        match input {
            Some(Input::Data { channel: STDIN, data }) => {
                if let Some(stdin) = node.stdin {
                    let _ = node.session.send(stdin, &data);
                }
            }
            Some(Input::Data { channel: RESIZE, data }) => {
                if let (Some(size), Some(resize)) = (self.resize.receive(&data), node.resize) {
                    let _ = node.session.send(resize, size.to_line().as_bytes());
                }
            }
            Some(Input::Closed { channel: STDIN }) => {
                if let Some(stdin) = node.stdin {
                    let _ = node.session.finish(stdin);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The client has closed its connection, or it is lost.
    pub fn client_gone(&mut self) {
        self.messages.clear();
        self.message_bytes = 0;
        self.finish(None);
    }

    /// Takes all that was read from the node.
    pub fn receive_node(&mut self, mut input: Bytes) {
        while let Some(node) = self.node.as_mut().filter(|_| self.phase != Phase::Done) {
            match node.session.receive(&mut input) {
                Ok(Some(event)) => self.apply(event),
                Ok(None) => break,
                Err(error) => self.node_failed(&error),
            }
        }
    }

    /// The node has closed the connection, or it is lost.
    ///
    /// Unlike kube-apiserver, which reports success if the node had not said how the command ended.
    pub fn node_gone(&mut self) {
        self.failed("the connection to the node was lost before the command ended");
    }

    /// Sends a ping to the node.
    pub fn ping_node(&mut self) {
        // An unwritten output shows that the node does not read: more pings would not help.
        if let Some(node) = self.node.as_mut().filter(|node| node.session.output_bytes() == 0) {
            node.session.ping();
        }
    }

    /// Takes the next binary message for the client.
    pub fn next_message(&mut self) -> Option<Vec<u8>> {
        let message = self.messages.pop_front()?;
        self.message_bytes -= message.len();
        Some(message)
    }

    /// Takes the bytes for the node.
    pub fn take_node_output(&mut self) -> Bytes {
        self.node.as_mut().map(|node| node.session.take_output()).unwrap_or_default()
    }

    /// Returns whether the client should be read now.
    pub fn may_read_client(&self) -> bool {
        let node = self.node.as_ref().filter(|_| self.phase == Phase::Running);
        node.is_some_and(|node| node.session.output_bytes() < NODE_QUEUE_BYTES_MAX)
    }

    /// Returns whether the node should be read now.
    pub fn may_read_node(&self) -> bool {
        let is_connected = matches!(self.phase, Phase::Opening { .. } | Phase::Running);
        is_connected && self.message_bytes < CLIENT_QUEUE_BYTES_MAX
    }

    /// Returns whether the node was reached and has not accepted all streams yet.
    pub fn is_opening(&self) -> bool {
        matches!(self.phase, Phase::Opening { .. })
    }

    /// Returns whether nothing is left but to send what is queued and to close both connections.
    pub fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    /// Returns how the command ended. `None`: it has not, or the client has gone before.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    fn apply(&mut self, event: Event) {
        let is_opening = self.is_opening();
        let Some(node) = &mut self.node else { return };
        match event {
            Event::Replied { .. } => {
                if let Phase::Opening { missing } = self.phase {
                    self.phase = match missing - 1 {
                        0 => Phase::Running,
                        missing => Phase::Opening { missing },
                    };
                }
            }
            Event::Reset { .. } if is_opening => self.failed("Stream reset"),
            Event::Data { stream, data } if stream == node.error => {
                if node.message.len() + data.len() > MESSAGE_BYTES_MAX {
                    return self.failed("the node's message on the error stream is too long");
                }
                node.message.extend_from_slice(&data);
            }
            Event::Data { stream, data } if Some(stream) == node.stdout => {
                self.push_message(STDOUT, &data);
            }
            Event::Data { stream, data } if Some(stream) == node.stderr => {
                self.push_message(STDERR, &data);
            }
            Event::Finished { stream } | Event::Reset { stream, .. } => {
                if Some(stream) == node.stdin {
                    let _ = node.session.finish(stream);
                }
                node.unfinished.retain(|other| *other != stream);
                if node.unfinished.is_empty() {
                    let outcome = Outcome::from_message(&node.message, node.form);
                    self.finish(Some(outcome));
                }
            }
            Event::Data { .. } | Event::Opened { .. } | Event::Pong { .. } | Event::GoneAway => {}
        }
    }

    fn node_failed(&mut self, error: &SpdyError) {
        self.failed(format!("the node violates the protocol: {error}"));
    }

    /// Ends the command, unless it has ended. Without an outcome the client is told nothing.
    fn finish(&mut self, outcome: Option<Outcome>) {
        if self.phase == Phase::Done {
            return;
        }
        self.phase = Phase::Done;
        if let Some(status) =
            outcome.as_ref().and_then(|it| it.to_message(V5.errors, Writer::Server))
        {
            self.push_message(ERROR, status.as_bytes());
        }
        self.outcome = outcome;
        if let Some(node) = &mut self.node {
            node.close();
        }
    }

    /// Queues data for the client; it joins data to the last message if that is of the same
    /// channel.
    fn push_message(&mut self, channel: u8, data: &[u8]) {
        if let Some(last) = self.messages.back_mut()
            && last[0] == channel
            // The first message must stay empty.
            && last.len() > 1
            && last.len() + data.len() <= MESSAGE_DATA_BYTES_MAX
        {
            last.extend_from_slice(data);
            self.message_bytes += data.len();
            return;
        }
        let is_empty = data.is_empty();
        for piece in data.chunks(MESSAGE_DATA_BYTES_MAX).chain(is_empty.then_some(&[][..])) {
            let Some(Message::Binary(message)) = self.channels.encode(channel, piece) else {
                return;
            };
            self.message_bytes += message.len();
            self.messages.push_back(message);
        }
    }
}

impl Node {
    /// Opens the streams. All are opened at once; data follows when the node has accepted them.
    fn open(streams: CommandStreams, form: Form, can_resize: bool) -> Result<Node, OpenError> {
        let mut session = Session::client();
        let mut open = |is_wanted: bool, stream_type: &str| match is_wanted {
            true => session.open(&Headers::from([("streamtype", stream_type)])).map(Some),
            false => Ok(None),
        };
        let error = open(true, "error")?.unwrap_or_default();
        let stdin = open(streams.stdin, "stdin")?;
        let stdout = open(streams.stdout, "stdout")?;
        let stderr = open(streams.stderr && !streams.tty, "stderr")?;
        let resize = open(streams.tty && can_resize, "resize")?;
        let unfinished = [Some(error), stdout, stderr].into_iter().flatten().collect();
        Ok(Node {
            session,
            form,
            error,
            stdin,
            stdout,
            stderr,
            resize,
            unfinished,
            message: vec![],
        })
    }

    /// Ends all streams and says that there will be no others.
    fn close(&mut self) {
        let streams = [Some(self.error), self.stdin, self.stdout, self.stderr, self.resize];
        for stream in streams.into_iter().flatten() {
            // Those that have ended need no reset.
            let _ = self.session.reset(stream, CANCEL);
        }
        self.session.go_away();
    }
}

#[cfg(test)]
mod tests;
