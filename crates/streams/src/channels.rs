//! Several channels in the messages of one WebSocket: the protocols `channel.k8s.io` and its
//! successors.
//!
//! Each message begins with the number of its channel: a byte, or a digit before base64. This is
//! the side of the server, which a node and the API server have in common.

use crate::outcome::Form;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf, Bytes};
use std::fmt;

/// The channel of what a command reads.
pub const STDIN: u8 = 0;
/// The channel of what a command writes.
pub const STDOUT: u8 = 1;
/// The channel of the errors that a command writes.
pub const STDERR: u8 = 2;
/// The channel on which the server says how the command ended.
pub const ERROR: u8 = 3;
/// The channel of terminal sizes.
pub const RESIZE: u8 = 4;
/// In v5, the channel of the signal that a channel is closed.
pub const CLOSE: u8 = 255;

/// Most channels of a connection: two for each of the ports that a client may forward at once.
pub const CHANNELS_MAX: usize = 250;

/// The protocols of exec and attach, with the names that clients ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// The name of the subprotocol.
    pub name: &'static str,
    /// The form of messages.
    pub encoding: Encoding,
    /// The form of what the error channel says.
    pub errors: Form,
    /// Whether clients can close a channel: `[255, channel]`.
    pub has_close: bool,
}

/// The form of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Binary messages.
    Binary,
    /// Text messages: a digit and base64.
    Base64,
}

/// `v5.channel.k8s.io`.
pub const V5: Protocol = Protocol {
    name: "v5.channel.k8s.io",
    encoding: Encoding::Binary,
    errors: Form::Status,
    has_close: true,
};

const fn before_v5(name: &'static str, encoding: Encoding, errors: Form) -> Protocol {
    Protocol { name, encoding, errors, has_close: false }
}

/// The protocols that a node serves for exec and attach. The first one is that of clients which ask
/// for none.
pub const NODE_PROTOCOLS: [Protocol; 5] = [
    before_v5("", Encoding::Binary, Form::Text),
    before_v5("channel.k8s.io", Encoding::Binary, Form::Text),
    before_v5("base64.channel.k8s.io", Encoding::Base64, Form::Text),
    before_v5("v4.channel.k8s.io", Encoding::Binary, Form::Status),
    before_v5("v4.base64.channel.k8s.io", Encoding::Base64, Form::Status),
];

/// The streams that a client asks for in exec and attach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandStreams {
    /// The client sends input.
    pub stdin: bool,
    /// The client receives output.
    pub stdout: bool,
    /// The client receives errors.
    pub stderr: bool,
    /// The command has a terminal.
    pub tty: bool,
}

impl CommandStreams {
    /// Returns the channel of the empty message that a server sends first, so that the client knows
    /// that the connection works.
    pub fn first_channel(self) -> u8 {
        match self {
            CommandStreams { stdout: true, .. } => STDOUT,
            CommandStreams { stderr: true, .. } => STDERR,
            _ => ERROR,
        }
    }
}

/// What the server does with a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// Nothing.
    Ignored,
    Read,
    Write,
    ReadWrite,
}

/// A message to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A binary message.
    Binary(Vec<u8>),
    /// A text message.
    Text(String),
}

/// What a message from the client means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Data for a channel that the server reads.
    Data {
        /// The channel.
        channel: u8,
        /// The data; it may be empty.
        data: Bytes,
    },
    /// The client sends nothing more on a channel that the server reads.
    Closed {
        /// The channel.
        channel: u8,
    },
}

/// A message that ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelError {
    /// A close signal that is not exactly two bytes.
    CloseLength(usize),
    /// A close signal for a channel that does not exist.
    CloseChannel(u8),
}

impl fmt::Display for ChannelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChannelError::CloseLength(bytes) => write!(f, "a close signal of {bytes} bytes"),
            ChannelError::CloseChannel(channel) => {
                write!(f, "a close signal for channel {channel}, which does not exist")
            }
        }
    }
}

impl std::error::Error for ChannelError {}

/// The channels of a connection.
#[derive(Clone, Debug)]
pub struct Channels {
    encoding: Encoding,
    has_close: bool,
    /// What the server does with each channel. Invariant: at most [`CHANNELS_MAX`].
    access: Vec<Access>,
}

impl Channels {
    /// Returns the channels of exec and attach.
    pub fn of_command(protocol: Protocol, streams: CommandStreams) -> Channels {
        let when = |is_asked, access| if is_asked { access } else { Access::Ignored };
        let access = vec![
            when(streams.stdin, Access::Read),
            when(streams.stdout, Access::Write),
            when(streams.stderr, Access::Write),
            Access::Write,
            Access::Read,
        ];
        Channels { encoding: protocol.encoding, has_close: protocol.has_close, access }
    }

    /// Returns the channels of a number of forwarded ports, of which there are no more than
    /// [`CHANNELS_MAX`] / 2: one for data and one for errors each.
    pub fn of_ports(encoding: Encoding, ports: usize) -> Channels {
        let ports = ports.min(CHANNELS_MAX / 2);
        let access = [Access::ReadWrite, Access::Write].repeat(ports);
        Channels { encoding, has_close: false, access }
    }

    /// Reads a message, binary or text. `None`: it means nothing and is skipped, as are messages
    /// for channels that do not exist or are not read.
    pub fn decode(&mut self, mut message: Bytes) -> Result<Option<Input>, ChannelError> {
        let Some(first) = message.first().copied() else { return Ok(None) };
        if self.has_close && first == CLOSE {
            return self.decode_close(&message);
        }
        let channel = match self.encoding {
            Encoding::Binary => first,
            Encoding::Base64 => first.wrapping_sub(b'0'),
        };
        if !self.is_read(channel) {
            return Ok(None);
        }
        message.advance(1);
        let data = match self.encoding {
            Encoding::Binary => message,
            Encoding::Base64 => {
                // Go's decoder skips line breaks.
                let digits: Vec<u8> =
                    message.into_iter().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
                let Ok(data) = STANDARD.decode(digits) else { return Ok(None) };
                data.into()
            }
        };
        Ok(Some(Input::Data { channel, data }))
    }

    /// Returns a message on a channel. `None`: the client did not ask for the channel.
    pub fn encode(&self, channel: u8, data: &[u8]) -> Option<Message> {
        let access = self.access.get(usize::from(channel));
        if !matches!(access, Some(Access::Write | Access::ReadWrite)) {
            return None;
        }
        Some(match self.encoding {
            Encoding::Binary => {
                let mut message = Vec::with_capacity(data.len() + 1);
                message.push(channel);
                message.extend_from_slice(data);
                Message::Binary(message)
            }
            Encoding::Base64 => {
                let mut message = char::from(b'0'.wrapping_add(channel)).to_string();
                STANDARD.encode_string(data, &mut message);
                Message::Text(message)
            }
        })
    }

    fn decode_close(&mut self, message: &[u8]) -> Result<Option<Input>, ChannelError> {
        let &[_, channel] = message else {
            return Err(ChannelError::CloseLength(message.len()));
        };
        if usize::from(channel) >= self.access.len() {
            return Err(ChannelError::CloseChannel(channel));
        }
        if !self.is_read(channel) {
            return Ok(None);
        }
        // Later messages for it are skipped.
        self.access[usize::from(channel)] = Access::Ignored;
        Ok(Some(Input::Closed { channel }))
    }

    fn is_read(&self, channel: u8) -> bool {
        let access = self.access.get(usize::from(channel));
        matches!(access, Some(Access::Read | Access::ReadWrite))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: CommandStreams =
        CommandStreams { stdin: true, stdout: true, stderr: true, tty: true };

    fn data(channel: u8, data: &'static [u8]) -> Result<Option<Input>, ChannelError> {
        Ok(Some(Input::Data { channel, data: Bytes::from_static(data) }))
    }

    #[test]
    fn messages_of_v5_are_read() {
        let none = CommandStreams::default();
        for (streams, message, expected) in [
            (ALL, &b"\0abc"[..], data(STDIN, b"abc")),
            (ALL, b"\0", data(STDIN, b"")),
            (ALL, b"", Ok(None)),
            (ALL, b"\x01x", Ok(None)),
            (ALL, b"\x03x", Ok(None)),
            (ALL, b"\x04{}", data(RESIZE, b"{}")),
            (ALL, b"\x05x", Ok(None)),
            (none, b"\0abc", Ok(None)),
            (none, b"\x04{}", data(RESIZE, b"{}")),
            (ALL, b"\xff\0", Ok(Some(Input::Closed { channel: STDIN }))),
            (none, b"\xff\0", Ok(None)),
            (ALL, b"\xff\x01", Ok(None)),
            (ALL, b"\xff", Err(ChannelError::CloseLength(1))),
            (ALL, b"\xff\0\0", Err(ChannelError::CloseLength(3))),
            (ALL, b"\xff\x05", Err(ChannelError::CloseChannel(5))),
            (ALL, b"\xff\xff", Err(ChannelError::CloseChannel(255))),
        ] {
            let mut channels = Channels::of_command(V5, streams);
            let found = channels.decode(Bytes::from_static(message));
            assert_eq!(found, expected, "{streams:?} {}", message.escape_ascii());
        }
    }

    #[test]
    fn a_closed_channel_reads_nothing_more() {
        let mut channels = Channels::of_command(V5, ALL);
        let close = Bytes::from_static(b"\xff\0");
        assert_eq!(channels.decode(close.clone()), Ok(Some(Input::Closed { channel: STDIN })));
        assert_eq!(channels.decode(Bytes::from_static(b"\0late")), Ok(None));
        assert_eq!(channels.decode(close), Ok(None), "closed twice");
    }

    /// Proves: R-STREAM-05, R-STREAM-06.
    #[test]
    fn messages_of_older_protocols_are_read() {
        let [none, v1, base64, v4, v4_base64] = NODE_PROTOCOLS;
        for (protocol, message, expected) in [
            (none, &b"\0abc"[..], data(STDIN, b"abc")),
            (v1, b"\xff\0", Ok(None)),
            (v4, b"\x04x", data(RESIZE, b"x")),
            (base64, b"0YWJj", data(STDIN, b"abc")),
            (v4_base64, b"0YW\r\nJj", data(STDIN, b"abc")),
            (v4_base64, b"0", data(STDIN, b"")),
            (base64, b"0YWJ", Ok(None)),
            (base64, b"\0YWJj", Ok(None)),
            (base64, b"/YWJj", Ok(None)),
        ] {
            let mut channels = Channels::of_command(protocol, ALL);
            let found = channels.decode(Bytes::from_static(message));
            assert_eq!(found, expected, "{} {}", protocol.name, message.escape_ascii());
        }
    }

    #[test]
    fn messages_are_written_on_channels_that_were_asked_for() {
        let out = CommandStreams { stdout: true, ..CommandStreams::default() };
        let binary = |bytes: &[u8]| Some(Message::Binary(bytes.to_vec()));
        let channels = Channels::of_command(V5, out);
        assert_eq!(channels.encode(STDOUT, b"ab"), binary(b"\x01ab"));
        assert_eq!(channels.encode(ERROR, b""), binary(b"\x03"));
        for channel in [STDIN, STDERR, RESIZE, 5, CLOSE] {
            assert_eq!(channels.encode(channel, b"ab"), None, "{channel}");
        }
        let channels = Channels::of_command(NODE_PROTOCOLS[4], out);
        assert_eq!(channels.encode(STDOUT, b"ab"), Some(Message::Text("1YWI=".to_owned())));
        let channels = Channels::of_ports(Encoding::Binary, 2);
        assert_eq!(channels.encode(2, b"\x50\0"), binary(b"\x02\x50\0"));
        assert_eq!(channels.encode(3, b"\x50\0"), binary(b"\x03\x50\0"));
        assert_eq!(channels.encode(4, b""), None);
        let first = [
            CommandStreams { stderr: true, ..out }.first_channel(),
            CommandStreams { stderr: true, stdout: false, ..out }.first_channel(),
            CommandStreams { stdin: true, stdout: false, ..out }.first_channel(),
        ];
        assert_eq!(first, [STDOUT, STDERR, ERROR]);
    }
}
