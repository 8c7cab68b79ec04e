//! All limits that are not flags. etcd has no maximum for most of them.

use std::time::Duration;

/// Most open connections; further ones wait in the listener's backlog. An apiserver has some
/// hundred.
pub(crate) const CONNECTIONS_MAX: usize = 1024;
/// How long the handshake and the first request of a connection may take, and the head of each
/// request.
pub(crate) const FIRST_REQUEST_TIME_MAX: Duration = Duration::from_secs(10);
/// Most bytes of the headers of a request.
pub(crate) const HEADER_BYTES_MAX: u32 = 64 << 10;
/// Most streams of a connection (clients of etcd open one for each call).
pub(crate) const STREAMS_MAX: u32 = 1024;
/// Most streams that the client resets before they are accepted, or that the server resets because
/// of its errors, before the connection ends (against rapid reset).
pub(crate) const RESETS_MAX: usize = 200;
/// Receive window of a stream; that of a connection is four times as large.
pub(crate) const WINDOW_BYTES: u32 = 64 << 10;
/// Bytes of responses that wait in a stream for the client to read them.
pub(crate) const SEND_BUFFER_BYTES: usize = 256 << 10;
/// Period of pings to a silent client, and how long it has for the answer.
pub(crate) const PING_INTERVAL: Duration = Duration::from_secs(30);
pub(crate) const PING_TIME_MAX: Duration = Duration::from_secs(15);

/// Bytes that a message may have beyond `--max-request-bytes`, as in etcd.
pub(crate) const REQUEST_OVERHEAD_BYTES: usize = 512 << 10;
/// Most calls of all connections whose responses have not ended; further ones are refused.
pub(crate) const OPEN_CALLS_MAX: usize = 16 << 10;
/// Most calls whose requests have not arrived as a whole, or wait to be answered, and the bytes of
/// their requests; a new one takes the place of the oldest.
pub(crate) const UNFINISHED_MAX: usize = 4096;
pub(crate) const UNFINISHED_BYTES_MAX: usize = 64 << 20;
/// Most calls, other than streams and ranges, that are answered at the same time; others wait.
pub(crate) const ANSWERED_MAX: usize = 256;

/// Most bytes of keys and values of one response to a range; a longer one is refused by
/// `ResourceExhausted`. kube-apiserver reads pages of at most 10,000 keys.
pub(crate) const RANGE_BYTES_MAX: usize = 512 << 20;
/// Most keys of a range that is read beside all others; those of more are read on threads of their
/// own.
pub(crate) const FEW_KEYS_MAX: usize = 32;
/// Most ranges of more keys that are read at the same time, and no more than there are processors:
/// those who ask for one key would wait for a processor. Others wait.
pub(crate) const RANGES_MAX: usize = 8;
/// Least of them, on a machine with one processor.
pub(crate) const RANGES_MIN: usize = 2;
/// Of these, how many may be longer than one page of the store.
pub(crate) const LONG_RANGES_MAX: usize = 2;
/// Most bytes of keys and values that one transaction reads.
pub(crate) const TXN_READ_BYTES_MAX: usize = 64 << 20;
/// Most keys of all ranges that one transaction compares, reads, counts or deletes.
pub(crate) const TXN_KEYS_MAX: usize = 1 << 20;
/// Most kilobytes of all long responses that are not sent yet (a longer one takes all of it), and
/// how many bytes a long one has.
pub(crate) const RESPONSES_KILOBYTES_MAX: usize = 256 << 10;
pub(crate) const LONG_RESPONSE_BYTES: usize = 64 << 10;
/// How long a long response waits for room before its call gets `too many requests`.
pub(crate) const RESPONSE_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long a client may read nothing of a response before its stream is reset.
pub(crate) const RESPONSE_STALL_MAX: Duration = Duration::from_secs(120);
/// How long while others need the room of its response.
pub(crate) const RESPONSE_STALL_SHORT: Duration = Duration::from_secs(1);
/// Most nested transactions in a request, one inside the other.
pub(crate) const TXN_DEPTH_MAX: usize = 32;
/// Most operations and compares of a request with all nested transactions: what the largest
/// `--max-txn-ops` allows in one that does not nest.
pub(crate) const TXN_OPS_TOTAL_MAX: usize = 30_000;

/// Most streams of watches.
pub(crate) const WATCH_STREAMS_MAX: usize = 2048;
/// Most streams that read the past at the same time, a batch each; others wait.
pub(crate) const PAST_READS_MAX: usize = 1;
/// Most watches of one stream.
pub(crate) const STREAM_WATCHES_MAX: usize = 10_000;
/// Most bytes of the ranges of the watches of one stream.
pub(crate) const STREAM_RANGES_BYTES_MAX: usize = 4 << 20;
/// Responses of a watch stream that wait to be sent. A stream whose client does not read stops
/// reading events; nothing is lost, because the store keeps the history.
pub(crate) const WATCH_RESPONSES_MAX: usize = 4;
/// Most streams that keep leases alive.
pub(crate) const KEEP_ALIVE_STREAMS_MAX: usize = 4096;
/// Most leases. Each takes some 200 bytes.
pub(crate) const LEASES_MAX: usize = 1 << 20;
/// Longest time to live of a lease in seconds, as in etcd.
pub(crate) const LEASE_SECONDS_MAX: i64 = 9_000_000_000;
/// Most leases that expire in one pass; the next pass follows at once.
pub(crate) const EXPIRED_MAX: usize = 1000;

/// Bytes of one message of a snapshot, as in etcd.
pub(crate) const SNAPSHOT_PIECE_BYTES: usize = 32 << 10;
/// Snapshots and hashes that are made at the same time; others wait.
pub(crate) const LONG_READS_MAX: usize = 2;
/// Responses of a stream that keeps leases alive that wait to be sent.
pub(crate) const KEEP_ALIVE_RESPONSES_MAX: usize = 16;
