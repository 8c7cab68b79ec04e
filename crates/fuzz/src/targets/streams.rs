//! What nodes and clients send on upgraded connections: SPDY frames and messages of channels.

use super::{Target, hash_outcome};
use bytes::Bytes;
use keelson_streams::channels::{Channels, CommandStreams, NODE_PROTOCOLS, Protocol, V5};
use keelson_streams::spdy::{ANSWER_BYTES_MAX, Event, Headers, Session};
use keelson_streams::translate::Translator;

/// Frames of a client, without the compressed headers of the second stream, and those of a server.
const CLIENT_FRAMES: &[u8] = b"\x80\x03\0\x01\0\0\0\x29\0\0\0\x01\0\0\0\0\0\0\x78\xf9\xe3\xc6\xa7\
    \xc2\x62\x60\x60\x60\x04\xa7\xb3\x92\xa2\xd4\xc4\x5c\x68\x51\xc2\x9a\x0a\x0a\x68\0\0\0\0\xff\
    \xff\0\0\0\x01\x01\0\0\x02hi\x80\x03\0\x03\0\0\0\x08\0\0\0\x01\0\0\0\x05\x80\x03\0\x06\0\0\0\
    \x04\0\0\0\x02\x80\x03\0\x04\0\0\0\x0c\0\0\0\x01\0\0\0\x04\0\0\0\x64\x80\x03\0\x07\0\0\0\x08\
    \0\0\0\x03\0\0\0\0";
const SERVER_FRAMES: &[u8] = b"\x80\x03\0\x02\0\0\0\x14\0\0\0\x01\x78\xf9\xe3\xc6\xa7\xc2\x62\x60\
    \x60\x60\0\0\0\0\xff\xff\0\0\0\x01\0\0\0\x14{\"status\":\"Success\"}\0\0\0\x01\x01\0\0\0";

pub const SPDY: Target = Target {
    name: "spdy",
    seeds: || {
        let with = |first: u8, frames: &[u8]| [&[first][..], frames].concat();
        vec![with(0, CLIENT_FRAMES), with(7, CLIENT_FRAMES), with(0x81, SERVER_FRAMES)]
    },
    dictionary: &[
        b"\x80\x03\0\x01\0\0\0\x14",
        b"\x80\x03\0\x02\0\0\0\x14",
        b"\x80\x03\0\x03\0\0\0\x08",
        b"\x80\x03\0\x06\0\0\0\x04",
        b"\x80\x03\0\x08\0\0\0\x14",
        b"\0\0\0\x01",
        b"\0\0\0\x02",
        b"\0\0\0\x03",
        b"\x78\x20\xe3\xc6\xa7\xc2",
        b"\0\x04\0\xfb\xff\0\0\0\0\0\0\0\xff\xff",
        b"\0\0\0\xff\xff",
        b"\xff\xff\xff\xff",
    ],
    attempt: |input| {
        let Some((first, frames)) = input.split_first() else { return Ok(0) };
        let is_server = *first < 0x80;
        let piece = usize::from(first % 0x80) + 1;
        let whole = read_all(is_server, frames, frames.len().max(1))?;
        let pieces = read_all(is_server, frames, piece)?;
        if whole != pieces {
            return Err(format!("{whole:?}\nin pieces of {piece}:\n{pieces:?}"));
        }
        translate(frames, piece)?;
        Ok(hash_outcome(&format!("{whole:?}")))
    },
};

/// Returns the events of an input, with adjoining data joined, and the error at its end.
fn read_all(is_server: bool, input: &[u8], piece: usize) -> Result<Vec<String>, String> {
    let mut session = if is_server { Session::server() } else { Session::client() };
    if !is_server {
        for _ in 0..3 {
            session.open(&Headers::default()).map_err(|error| error.to_string())?;
        }
        session.take_output();
    }
    let mut events: Vec<String> = vec![];
    let mut last_data = None;
    for piece in input.chunks(piece) {
        let mut piece = Bytes::copy_from_slice(piece);
        loop {
            let event = match session.receive(&mut piece) {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(error) => {
                    events.push(error.to_string());
                    return Ok(events);
                }
            };
            let data_of = match &event {
                Event::Data { stream, .. } => Some(*stream),
                _ => None,
            };
            match (&event, events.last_mut()) {
                (Event::Opened { stream, .. }, _) => {
                    // It may be gone: opened and closed by one frame.
                    let _ = session.reply(*stream);
                    events.push(format!("{event:?}"));
                }
                (Event::Data { data, .. }, Some(last)) if last_data == data_of => {
                    last.push_str(&data.escape_ascii().to_string());
                }
                (Event::Data { stream, data }, _) => {
                    events.push(format!("{stream}: {}", data.escape_ascii()));
                }
                _ => events.push(format!("{event:?}")),
            }
            last_data = data_of;
        }
        // Each opened stream is answered too.
        let output_max = ANSWER_BYTES_MAX + 64 * (input.len() + 1);
        if session.output_bytes() > output_max {
            return Err(format!("{} bytes of output", session.output_bytes()));
        }
    }
    Ok(events)
}

/// Feeds frames to a translator; whatever the node sends, its queues are proportional to that.
fn translate(frames: &[u8], piece: usize) -> Result<(), String> {
    let streams = CommandStreams { stdin: true, stdout: true, stderr: true, tty: false };
    let mut translator = Translator::new(streams);
    translator.connected("v4.channel.k8s.io");
    for piece in frames.chunks(piece) {
        translator.receive_node(Bytes::copy_from_slice(piece));
    }
    let mut queued = 0;
    while let Some(message) = translator.next_message() {
        queued += message.len();
    }
    // A status repeats the node's message three times, with escapes.
    match queued <= 32 * frames.len() + 1_024 {
        true => Ok(()),
        false => Err(format!("{queued} bytes of messages for {} of frames", frames.len())),
    }
}

pub const CHANNELS: Target = Target {
    name: "channels",
    seeds: || {
        let messages: [&[u8]; 5] = [
            b"\x05\0abc\n\xff\0\n\0d",
            b"\x02\x30YWJj\n1",
            b"\0\x04{}\n\x03",
            b"\x04\n\n4e30=",
            b"\x05\xff",
        ];
        messages.iter().map(|message| message.to_vec()).collect()
    },
    dictionary: &[b"\n", b"\0", b"0", b"\xff\0", b"\xff\x04", b"YWJj", b"=", b"{\"Width\":80}"],
    attempt: |input| {
        let Some((first, messages)) = input.split_first() else { return Ok(0) };
        let all: Vec<Protocol> = NODE_PROTOCOLS.into_iter().chain([V5]).collect();
        let protocol = all[usize::from(first % 8) % all.len()];
        let streams =
            CommandStreams { stdin: first & 8 == 0, tty: true, ..CommandStreams::default() };
        let mut channels = Channels::of_command(protocol, streams);
        let mut translator = Translator::new(streams);
        translator.connected("v4.channel.k8s.io");
        let mut outcome = String::new();
        for message in messages.split(|byte| *byte == b'\n') {
            let message = Bytes::copy_from_slice(message);
            let found = channels.decode(message.clone());
            outcome.push_str(&format!("{found:?}"));
            let is_error = translator.receive_client(message).is_err();
            if found.is_err() {
                break;
            }
            if is_error && !translator.is_done() {
                return Err("a violation does not end the translation".to_owned());
            }
        }
        Ok(hash_outcome(&outcome))
    },
};
