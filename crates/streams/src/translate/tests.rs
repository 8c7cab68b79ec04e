//! A client's messages and a node's frames, and what the other side gets.

use super::*;

/// A translator and the node behind it.
struct Pair {
    translator: Translator,
    node: Session,
    /// Streams by their type, in the order in which they were opened.
    opened: Vec<(String, u32)>,
    /// What the node received.
    received: Vec<Event>,
}

const ALL: CommandStreams = CommandStreams { stdin: true, stdout: true, stderr: true, tty: false };
const TTY: CommandStreams = CommandStreams { stdin: true, stdout: true, stderr: false, tty: true };

impl Pair {
    /// Returns a pair whose node has accepted the streams.
    fn running(streams: CommandStreams, protocol: &str) -> Pair {
        let mut translator = Translator::new(streams);
        translator.connected(protocol);
        let node = Session::server();
        let mut pair = Pair { translator, node, opened: vec![], received: vec![] };
        pair.exchange();
        assert!(!pair.translator.is_opening());
        assert_eq!(pair.translator.next_message(), Some(vec![streams.first_channel()]));
        pair
    }

    /// Moves bytes in both directions until none are left.
    fn exchange(&mut self) {
        loop {
            let mut input = self.translator.take_node_output();
            let is_empty = input.is_empty();
            while let Some(event) = self.node.receive(&mut input).unwrap() {
                match event {
                    Event::Opened { stream, headers } => {
                        let name = headers.get("streamType").unwrap().to_owned();
                        self.opened.push((name, stream));
                        self.node.reply(stream).unwrap();
                    }
                    event => self.received.push(event),
                }
            }
            let output = self.node.take_output();
            if is_empty && output.is_empty() {
                return;
            }
            self.translator.receive_node(output);
        }
    }

    fn stream(&self, name: &str) -> u32 {
        self.opened.iter().find(|(other, _)| other == name).unwrap().1
    }

    /// The client sends a message.
    fn client_sends(&mut self, message: &'static [u8]) {
        self.translator.receive_client(Bytes::from_static(message)).unwrap();
        self.exchange();
    }

    /// The node sends data on a stream.
    fn node_sends(&mut self, name: &str, data: &[u8]) {
        self.node.send(self.stream(name), data).unwrap();
        self.exchange();
    }

    fn node_finishes(&mut self, name: &str) {
        self.node.finish(self.stream(name)).unwrap();
        self.exchange();
    }

    fn messages(&mut self) -> Vec<String> {
        let next = || self.translator.next_message();
        let text = |message: Vec<u8>| message.escape_ascii().to_string();
        std::iter::from_fn(next).map(text).collect()
    }
}

/// Proves: R-STREAM-03, R-STREAM-04.
#[test]
fn streams_are_opened_as_asked() {
    let check = |streams, protocol, expected: &[&str]| {
        let pair = Pair::running(streams, protocol);
        let names: Vec<&str> = pair.opened.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, expected, "{streams:?} {protocol}");
    };
    check(ALL, "v4.channel.k8s.io", &["error", "stdin", "stdout", "stderr"]);
    check(TTY, "v4.channel.k8s.io", &["error", "stdin", "stdout", "resize"]);
    check(
        CommandStreams { stderr: true, ..TTY },
        "v3.channel.k8s.io",
        &["error", "stdin", "stdout", "resize"],
    );
    check(TTY, "v2.channel.k8s.io", &["error", "stdin", "stdout"]);
    check(TTY, "", &["error", "stdin", "stdout"]);
    check(CommandStreams::default(), "channel.k8s.io", &["error"]);
}

#[test]
fn a_command_is_translated_until_its_exit_code() {
    let mut pair = Pair::running(ALL, "v4.channel.k8s.io");
    pair.client_sends(b"\0in");
    pair.client_sends(b"\x04{\"Width\":1}");
    pair.client_sends(b"\xff\0");
    pair.client_sends(b"\0late");
    let stdin = pair.stream("stdin");
    let data = Event::Data { stream: stdin, data: Bytes::from_static(b"in") };
    assert_eq!(pair.received, [data, Event::Finished { stream: stdin }]);
    pair.node_sends("stdout", b"out");
    pair.node_sends("stdout", b"put");
    pair.node_sends("stderr", b"err");
    assert_eq!(pair.messages(), ["\\x01output", "\\x02err"]);
    pair.node_finishes("stdout");
    pair.node_sends("stderr", b"or");
    pair.node_finishes("stderr");
    pair.node_sends(
        "error",
        br#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#,
    );
    assert!(!pair.translator.is_done());
    pair.received.clear();
    pair.node_finishes("error");
    assert!(pair.translator.is_done());
    assert_eq!(pair.translator.outcome(), Some(&Outcome::ExitCode(3)));
    let messages = pair.messages();
    assert_eq!(messages[0], "\\x02or");
    assert!(messages[1].starts_with("\\x03{\\\"metadata\\\":{},\\\"status\\\":\\\"Failure\\\""));
    assert_eq!(messages.len(), 2);
    assert_eq!(pair.received.last(), Some(&Event::GoneAway), "the node can close");
    assert_eq!(pair.node.open_streams(), 0);
}

#[test]
fn resizes_are_translated() {
    let mut pair = Pair::running(TTY, "v4.channel.k8s.io");
    pair.client_sends(b"\x04{\"Width\":80,");
    pair.client_sends(b"\x04\"Height\":24}");
    let data = Bytes::from_static(b"{\"Width\":80,\"Height\":24}\n");
    assert_eq!(pair.received, [Event::Data { stream: pair.stream("resize"), data }]);
}

#[test]
fn a_node_that_resets_its_streams_has_ended() {
    let end = |message: &[u8]| {
        let mut pair = Pair::running(ALL, "v4.channel.k8s.io");
        pair.node_sends("stdout", b"x");
        if !message.is_empty() {
            pair.node_sends("error", message);
        }
        for name in ["error", "stdin", "stdout", "stderr"] {
            pair.node.reset(pair.stream(name), CANCEL).unwrap();
        }
        pair.node.go_away();
        pair.exchange();
        assert!(pair.translator.is_done());
        pair.translator.outcome().cloned()
    };
    assert_eq!(end(br#"{"status":"Success"}"#), Some(Outcome::Success));
    assert_eq!(end(b""), Some(Outcome::Success));
    let failed = |cause: &str| Some(Outcome::Failed(cause.to_owned()));
    assert_eq!(end(br#"{"status":"Failure","message":"why"}"#), failed("why"));
}

#[test]
fn failures_are_told_on_the_error_channel() {
    let check = |translator: &mut Translator, cause: &str| {
        assert!(translator.is_done());
        let message = std::iter::from_fn(|| translator.next_message()).last().unwrap();
        let expected =
            Outcome::Failed(cause.to_owned()).to_message(Form::Status, Writer::Server).unwrap();
        assert_eq!(message, [b"\x03", expected.as_bytes()].concat());
    };
    let mut translator = Translator::new(ALL);
    assert!(!translator.may_read_client() && !translator.may_read_node());
    translator.failed("dial tcp: refused");
    check(&mut translator, "dial tcp: refused");

    let mut translator = Translator::new(ALL);
    translator.connected("v6.channel.k8s.io");
    check(&mut translator, "the node chose the protocol \"v6.channel.k8s.io\"");

    let mut translator = Translator::new(ALL);
    translator.connected("v4.channel.k8s.io");
    translator.opening_timed_out();
    check(&mut translator, "Timeout occurred");

    let mut pair = Pair::running(ALL, "v4.channel.k8s.io");
    pair.translator.opening_timed_out();
    assert!(!pair.translator.is_done(), "it was in time");
    pair.translator.node_gone();
    check(&mut pair.translator, "the connection to the node was lost before the command ended");

    let mut pair = Pair::running(ALL, "v4.channel.k8s.io");
    pair.translator.receive_node(Bytes::from_static(b"\x80\x03\0\x05\0\0\0\0"));
    check(&mut pair.translator, "the node violates the protocol: SPDY frame of unknown type 5");

    let mut pair = Pair::running(ALL, "v4.channel.k8s.io");
    for _ in 0..9 {
        pair.node.send(pair.stream("error"), &vec![b'x'; MESSAGE_BYTES_MAX / 8]).unwrap();
    }
    pair.exchange();
    check(&mut pair.translator, "the node's message on the error stream is too long");

    let mut translator = Translator::new(ALL);
    translator.connected("v4.channel.k8s.io");
    translator.receive_node(Bytes::from_static(b"\x80\x03\0\x03\0\0\0\x08\0\0\0\x01\0\0\0\x03"));
    check(&mut translator, "Stream reset");
}

#[test]
fn a_client_that_goes_ends_the_command() {
    let mut pair = Pair::running(ALL, "v4.channel.k8s.io");
    pair.node_sends("stdout", b"unread");
    let violation = pair.translator.receive_client(Bytes::from_static(b"\xff"));
    assert_eq!(violation, Err(ChannelError::CloseLength(1)));
    assert!(pair.translator.is_done());
    assert_eq!(pair.translator.outcome(), None);
    assert_eq!(pair.translator.next_message(), None);
    pair.exchange();
    let resets = pair.received.iter().filter(|it| matches!(it, Event::Reset { .. })).count();
    assert_eq!((resets, pair.received.last()), (4, Some(&Event::GoneAway)));
}

#[test]
fn a_side_that_does_not_read_stops_the_other() {
    let mut pair = Pair::running(ALL, "v4.channel.k8s.io");
    assert!(pair.translator.may_read_client() && pair.translator.may_read_node());
    let message = Bytes::from(vec![0; 40_000]);
    pair.translator.receive_client(message.clone()).unwrap();
    assert!(pair.translator.may_read_client());
    pair.translator.receive_client(message).unwrap();
    assert!(!pair.translator.may_read_client());
    pair.exchange();
    assert!(pair.translator.may_read_client());
    pair.node_sends("stdout", &[b'x'; 70_000]);
    assert!(!pair.translator.may_read_node());
    let lengths: Vec<usize> =
        std::iter::from_fn(|| pair.translator.next_message()).map(|it| it.len()).collect();
    assert_eq!(lengths.iter().sum::<usize>(), 70_000 + lengths.len());
    assert!(lengths.iter().all(|length| *length <= MESSAGE_DATA_BYTES_MAX + 1), "{lengths:?}");
    assert!(pair.translator.may_read_node());
}

#[test]
fn the_node_gets_pings_while_it_reads() {
    let mut pair = Pair::running(ALL, "v4.channel.k8s.io");
    for _ in 0..3 {
        pair.translator.ping_node();
    }
    assert_eq!(pair.translator.take_node_output().len(), 12);
}
