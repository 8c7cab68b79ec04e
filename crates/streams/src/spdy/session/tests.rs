//! Bytes go in, events come out; frames that spdystream wrote, and hostile ones.

use super::*;
use crate::spdy::CANCEL;
use bytes::BufMut;

fn bytes(digits: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(byte).collect()
}

/// Feeds bytes in pieces of a size; accepts the streams that are opened. Adjoining data is joined.
fn run(session: &mut Session, input: &[u8], piece: usize) -> Result<Vec<Event>, SpdyError> {
    let mut events = vec![];
    for piece in input.chunks(piece) {
        let mut input = Bytes::copy_from_slice(piece);
        while let Some(event) = session.receive(&mut input)? {
            if let Event::Opened { stream, .. } = event {
                let _ = session.reply(stream);
            }
            if let (Some(Event::Data { stream, data }), Event::Data { stream: next, data: more }) =
                (events.last_mut(), &event)
                && stream == next
            {
                *data = [&data[..], &more[..]].concat().into();
                continue;
            }
            events.push(event);
        }
    }
    Ok(events)
}

/// What spdystream 0.5.1 writes as a client.
const FROM_GO: &str = "80030001000000290000000100000000000078f9e3c6a7c26260606004a7b392a2d4c45c\
    6851c29a0a0a6800000000ffff800300010000001700000003000000000000c22e555c92929907000000ffff0000\
    00010100000268698003000300000008000000030000000580030006000000040000000180030004000000\
    0c000000010000000400000064800300090000000800000001000000648003000700000008000000030000\
    0000";

fn events_from_go() -> Vec<Event> {
    vec![
        Event::Opened { stream: 1, headers: Headers::from([("streamtype", "error")]) },
        Event::Opened { stream: 3, headers: Headers::from([("streamtype", "stdin")]) },
        Event::Data { stream: 1, data: Bytes::from_static(b"hi") },
        Event::Finished { stream: 1 },
        Event::Reset { stream: 3, status: CANCEL },
        Event::GoneAway,
    ]
}

#[test]
fn frames_of_spdystream_are_read_however_they_are_split() {
    let input = bytes(FROM_GO);
    for piece in 1..=input.len() {
        let mut session = Session::server();
        assert_eq!(run(&mut session, &input, piece), Ok(events_from_go()), "pieces of {piece}");
        let output = session.take_output();
        // Two replies, of which the first starts the compressed stream, and the ping.
        assert_eq!(output.len(), (8 + 4 + 6 + 14) + (8 + 4 + 14) + 12, "pieces of {piece}");
        assert_eq!(output[output.len() - 12..], bytes("800300060000000400000001"));
    }
}

#[test]
fn a_reply_of_spdystream_accepts_a_stream() {
    let mut session = Session::client();
    let stream = session.open(&Headers::from([("streamType", "stdout")])).unwrap();
    let early = bytes("0000000100000001ff");
    assert_eq!(run(&mut session, &early, 64), Ok(vec![]), "data before the reply is dropped");
    // Its first header block of a connection, with no headers.
    let reply = bytes("80030002000000140000000178f9e3c6a7c26260606000000000ffff");
    assert_eq!(run(&mut session, &reply, 64), Ok(vec![Event::Replied { stream }]));
    let data = bytes("00000001000000024142");
    let expected = Event::Data { stream, data: Bytes::from_static(b"AB") };
    assert_eq!(run(&mut session, &data, 64), Ok(vec![expected]));
    let fin = bytes("0000000101000000");
    assert_eq!(run(&mut session, &fin, 64), Ok(vec![Event::Finished { stream }]));
    session.send(stream, b"half open").unwrap();
    session.finish(stream).unwrap();
    assert_eq!(session.send(stream, b"more"), Err(Gone));
    assert_eq!(session.open_streams(), 0);
}

/// Proves: R-STREAM-04.
#[test]
fn both_roles_understand_each_other() {
    let mut client = Session::client();
    let mut server = Session::server();
    let first = client.open(&Headers::from([("streamType", "error"), ("port", "80")])).unwrap();
    let second = client.open(&Headers::from([("streamType", "data")])).unwrap();
    assert_eq!((first, second), (1, 3));
    let opened = run(&mut server, &client.take_output(), 7).unwrap();
    assert_eq!(opened.len(), 2);
    let replied = run(&mut client, &server.take_output(), 5).unwrap();
    assert_eq!(replied, [Event::Replied { stream: 1 }, Event::Replied { stream: 3 }]);
    let text = vec![b'x'; 100_000];
    client.send(second, &text).unwrap();
    client.finish(second).unwrap();
    assert!(client.output_bytes() > text.len());
    let received = run(&mut server, &client.take_output(), 1_000).unwrap();
    let data = Event::Data { stream: second, data: text.into() };
    assert_eq!(received, [data, Event::Finished { stream: second }]);
    server.reset(second, CANCEL).unwrap();
    let id = server.ping();
    server.go_away();
    let reset = Event::Reset { stream: second, status: CANCEL };
    assert_eq!(run(&mut client, &server.take_output(), 3), Ok(vec![reset, Event::GoneAway]));
    assert_eq!(client.open(&Headers::default()), Err(OpenError::GoneAway));
    assert_eq!(run(&mut server, &client.take_output(), 3), Ok(vec![Event::Pong { id }]));
}

/// A control frame.
fn control(frame_type: u16, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![];
    out.put_u16(0x8003);
    out.put_u16(frame_type);
    out.put_u32(u32::from(flags) << 24 | payload.len() as u32);
    out.put_slice(payload);
    out
}

#[test]
fn hostile_frames_are_refused() {
    let check = |input: Vec<u8>, expected: SpdyError| {
        for piece in [1, 3, 4_096] {
            let found = run(&mut Session::client(), &input, piece);
            assert_eq!(found, Err(expected.clone()), "{}", input.escape_ascii());
        }
    };
    let number = |number: u32| number.to_be_bytes();
    check(bytes("8002000400000004"), SpdyError::Version(2));
    check(bytes("8003000500000000"), SpdyError::FrameType(5));
    check(bytes("8003000400ffffff"), SpdyError::FrameTooLong(0xff_ffff));
    check(bytes("0000000000000001"), SpdyError::ZeroStream);
    check(control(2, 0, &number(0)), SpdyError::ZeroStream);
    check(control(1, 0, &[0; 9]), SpdyError::Malformed("SYN_STREAM"));
    check(control(2, 0, &[0; 3]), SpdyError::Malformed("SYN_REPLY"));
    check(control(3, 0, &[1; 7]), SpdyError::Malformed("RST_STREAM"));
    check(control(3, 0, &[0, 0, 0, 1, 0, 0, 0, 0]), SpdyError::Malformed("RST_STREAM"));
    check(control(6, 0, &[0; 4]), SpdyError::Malformed("PING"));
    check(control(6, 1, &[1; 4]), SpdyError::Malformed("PING"));
    check(control(7, 0, &[0; 4]), SpdyError::Malformed("GOAWAY"));
    check(control(8, 0, &[0; 3]), SpdyError::Malformed("HEADERS"));
    check(control(9, 0, &[0; 4]), SpdyError::Malformed("WINDOW_UPDATE"));
    check(control(4, 0, &[0; 3]), SpdyError::Malformed("SETTINGS"));
    check(control(4, 0, &number(u32::MAX)), SpdyError::Settings(u32::MAX));
    check(control(4, 0, &number(1)), SpdyError::Settings(1));
    let many = [&number(1_001)[..], &vec![0; 1_001 * 8]].concat();
    check(control(4, 0, &many), SpdyError::Settings(1_001));
    let stored = |block: &[u8]| Deflater::default().deflate(block);
    let with_block = |block: &[u8]| [&number(1)[..], &stored(block)].concat();
    check(control(2, 0, &with_block(&number(1_001))), SpdyError::TooManyHeaders(1_001));
    check(control(8, 0, &number(1)), SpdyError::Compression("the head is incomplete"));
}

#[test]
fn streams_that_must_not_be_opened_are_reset() {
    let block = [&[0; 10][..], &Deflater::default().deflate(&[0; 4])].concat();
    let syn_stream = |stream: u8| {
        let mut payload = block.clone();
        payload[3] = stream;
        control(1, 0, &payload)
    };
    let reset = |stream: u8, status: u8| control(3, 0, &[0, 0, 0, stream, 0, 0, 0, status]);
    let answers = |mut session: Session, stream: u8| {
        let events = run(&mut session, &syn_stream(stream), 5).unwrap();
        assert_eq!(events, [], "{stream}");
        session.take_output()
    };
    assert_eq!(answers(Session::client(), 2), reset(2, 3), "a node opens no streams");
    assert_eq!(answers(Session::client(), 1), reset(1, 1));
    assert_eq!(answers(Session::server(), 2), reset(2, 1));
    let mut server = Session::server();
    server.last_received = 5;
    assert_eq!(answers(server, 5), reset(5, 1), "numbers increase");
    let mut server = Session::server();
    server.go_away();
    server.take_output();
    assert_eq!(answers(server, 1), b""[..]);
}

#[test]
fn what_a_peer_causes_is_bounded() {
    let ping = control(6, 0, &[0, 0, 0, 2]);
    let pings = ping.repeat(ANSWER_BYTES_MAX / ping.len() + 1);
    let mut session = Session::client();
    assert_eq!(run(&mut session, &pings, 4_096), Err(SpdyError::TooManyAnswers));
    let mut session = Session::client();
    for _ in 0..3 {
        assert_eq!(run(&mut session, &pings[..pings.len() / 2], 4_096), Ok(vec![]));
        session.take_output();
    }
    let mut session = Session::client();
    for _ in 0..STREAMS_MAX {
        session.open(&Headers::default()).unwrap();
    }
    assert_eq!(session.open(&Headers::default()), Err(OpenError::TooMany));
    // An announced length allocates nothing.
    let mut input = Bytes::from(bytes("8003000100100000ff"));
    assert_eq!(session.receive(&mut input), Ok(None));
    assert!(session.reader.capacity() <= 8 << 10);
}
