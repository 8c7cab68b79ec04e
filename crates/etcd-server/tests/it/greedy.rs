//! Clients that take more than their share: others are answered meanwhile.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http::Request;
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use keelson_store::conformance::put;
use keelson_store::{Range, Store};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::Running;

/// How long an answer may take on a busy machine; each attack would last longer.
const PATIENCE: Duration = Duration::from_secs(8);
/// More calls than are answered at the same time.
const CALLS: usize = 400;

/// Starts calls with a first piece of a request that is never ended, or with all of it; reads no
/// response.
async fn start_calls(
    server: &Running,
    path: &str,
    piece: &'static [u8],
    is_end: bool,
) -> JoinSet<()> {
    let address = server.url.trim_start_matches("http://");
    let stream = TcpStream::connect(address).await.unwrap();
    let mut builder = http2::Builder::new(TokioExecutor::new());
    // No data of a response is let through.
    builder.initial_stream_window_size(0);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    let mut calls = JoinSet::new();
    calls.spawn(async move {
        let _ = connection.await;
    });
    for _ in 0..CALLS {
        let first =
            futures_util::stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from(piece)))]);
        let body = match is_end {
            true => StreamBody::new(first.left_stream()),
            false => StreamBody::new(first.chain(futures_util::stream::pending()).right_stream()),
        };
        let request = Request::post(format!("{}{path}", server.url))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(body)
            .unwrap();
        let mut sender = sender.clone();
        calls.spawn(async move {
            let response = sender.send_request(request).await;
            // The body stays unread as long as the test lasts.
            let _response = response;
            std::future::pending::<()>().await;
        });
    }
    calls
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_never_end_delay_nobody() {
    let server = Running::in_memory().await;
    let store = server.store("slow").await;
    put(&*store, "a", "1").await;
    let _calls = start_calls(&server, "/etcdserverpb.KV/Put", b"\0\0\0\0\x40begin", false).await;
    for _ in 0..20 {
        let found = timeout(PATIENCE, store.get(b"a")).await.expect("in time").unwrap();
        assert_eq!(found.map(|kv| kv.value), Some("1".into()));
        timeout(PATIENCE, put(&*store, "b", "2")).await.expect("in time");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_that_nobody_reads_make_room_for_others() {
    let server = Running::in_memory().await;
    let store = server.store("unread").await;
    let value = "v".repeat(1 << 20);
    for key in ["a", "b", "c", "d"] {
        put(&*store, key, &value).await;
    }
    // A long response arrives whole.
    let range = Range { start: Bytes::new(), end: Bytes::new(), limit: 100, at: None };
    let page = store.range(range).await.unwrap();
    let found: Vec<_> = page.items.iter().map(|kv| (&kv.key[..], kv.value == value)).collect();
    let expected: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
    assert_eq!(found, expected.map(|key| (key, true)));
    // All keys, four megabytes: more than there is room for in all.
    let all = b"\0\0\0\0\x06\x0a\x01\0\x12\x01\0";
    let _calls = start_calls(&server, "/etcdserverpb.KV/Range", all, true).await;
    for _ in 0..20 {
        let found = timeout(PATIENCE, store.get(b"a")).await.expect("in time").unwrap();
        assert_eq!(found.map(|kv| kv.value.len()), Some(value.len()));
    }
}
