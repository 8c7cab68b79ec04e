//! Exchanges with local peers: pooled connections, limits, deadlines, and error texts, which are
//! those of a kube-apiserver 1.36 for the same peers.

mod peer;
mod selector;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt, Empty, Full};
use keelson_egress::{
    BoxFuture, Client, Egress, Error, Peer, Phase, Request, Resolved, Resolver, Response, Route,
    StreamedBody, Trust,
};
use peer::{Authority, Certificate, TestPeer};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

const BYTES_MAX: usize = 100_000;

/// Resolves all names but one to a local peer.
struct Table(SocketAddr);

impl Resolver for Table {
    fn resolve<'a>(&'a self, host: &'a str, _: u16) -> BoxFuture<'a, Result<Resolved, String>> {
        Box::pin(async move {
            match host {
                "gone.default.svc" => Err("service \"gone\" not found".to_owned()),
                "named.default.svc" => {
                    Ok(Resolved::Name { host: "localhost".to_owned(), port: self.0.port() })
                }
                _ => Ok(Resolved::Addresses(vec![self.0])),
            }
        })
    }
}

fn client(authority: &Authority, address: SocketAddr) -> Arc<Client> {
    let peer = Peer { trust: authority.trust(), ..Peer::new("127.0.0.1", address.port()) };
    Egress::new(Arc::new(Table(address))).client(&peer).expect("a client")
}

async fn post(client: &Arc<Client>, path: &str) -> Result<Response, Error> {
    post_within(client, path, Duration::from_secs(20)).await
}

async fn post_within(client: &Arc<Client>, path: &str, time: Duration) -> Result<Response, Error> {
    let request = Request {
        method: Method::POST,
        path: path.to_owned(),
        headers: HeaderMap::new(),
        body: Bytes::from_static(b"ping"),
    };
    client.send(&request, BYTES_MAX, Instant::now() + time).await
}

fn no_body() -> StreamedBody {
    StreamedBody::new(Empty::new().map_err(|never| match never {}))
}

async fn text_of(client: &Arc<Client>, path: &str) -> String {
    post(client, path).await.expect_err("a failure").to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_shared_in_both_protocols() {
    for alpn in ["http/1.1", "h2"] {
        let authority = Authority::new();
        let server = TestPeer::start(&authority.issue(&Certificate::default()), alpn).await;
        let client = client(&authority, server.address);
        for _ in 0..5 {
            let answer = post(&client, "/echo?timeout=1s").await.expect("an answer");
            assert_eq!((answer.status, &answer.body[..]), (StatusCode::OK, &b"ping"[..]));
        }
        assert_eq!(server.connections(), 1, "{alpn}");
        assert_eq!(server.hosts(), [format!("127.0.0.1:{}", server.address.port())], "{alpn}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_first_requests_share_one_connection_over_http2() {
    let authority = Authority::new();
    let server = TestPeer::start(&authority.issue(&Certificate::default()), "h2").await;
    let client = client(&authority, server.address);
    let sent = (0..20).map(|_| {
        let client = client.clone();
        tokio::spawn(async move { post(&client, "/echo").await.is_ok() })
    });
    for task in sent.collect::<Vec<_>>() {
        assert!(task.await.expect("no panic"));
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_peers_share_a_client_and_others_do_not() {
    let authority = Authority::new();
    let egress = Egress::new(Arc::new(Table(SocketAddr::from(([127, 0, 0, 1], 1)))));
    let peer = Peer { trust: authority.trust(), ..Peer::new("127.0.0.1", 1) };
    let same = egress.client(&peer.clone()).expect("a client");
    assert!(Arc::ptr_eq(&same, &egress.client(&peer).expect("a client")));
    for other in [
        Peer { port: 2, ..peer.clone() },
        Peer { trust: Authority::new().trust(), ..peer.clone() },
        Peer { server_name: Some("a".to_owned()), ..peer.clone() },
        Peer { authorization: Some("Bearer a".to_owned()), ..peer.clone() },
    ] {
        assert!(!Arc::ptr_eq(&same, &egress.client(&other).expect("a client")));
    }
    let empty = Peer { trust: Trust::Bundle(Arc::from(&b"none"[..])), ..peer };
    let error = egress.client(&empty).err().map(|error| error.to_string());
    let want = "unable to load root certificates: unable to parse bytes as PEM block";
    assert_eq!(error.as_deref(), Some(want));
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_sent_but_not_printed() {
    let authority = Authority::new();
    let server = TestPeer::start(&authority.issue(&Certificate::default()), "h2").await;
    let peer = Peer {
        trust: authority.trust(),
        authorization: Some("Bearer secret".to_owned()),
        ..Peer::new("127.0.0.1", server.address.port())
    };
    assert!(!format!("{peer:?}").contains("secret"));
    let client = Egress::new(Arc::new(Table(server.address))).client(&peer).expect("a client");
    let answer = post(&client, "/authorization").await.expect("an answer");
    assert_eq!(&answer.body[..], b"Bearer secret");
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_are_not_followed() {
    let authority = Authority::new();
    let server = TestPeer::start(&authority.issue(&Certificate::default()), "h2").await;
    let answer = post(&client(&authority, server.address), "/redirect").await.expect("an answer");
    assert_eq!((answer.status.as_u16(), server.requests()), (307, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_have_limits() {
    for alpn in ["http/1.1", "h2"] {
        let authority = Authority::new();
        let server = TestPeer::start(&authority.issue(&Certificate::default()), alpn).await;
        let client = client(&authority, server.address);
        let time = Duration::from_millis(200);
        let slow = post_within(&client, "/slow", time).await.expect_err("too slow");
        assert_eq!(
            (slow.phase, slow.to_string().as_str()),
            (Phase::Head, "context deadline exceeded"),
            "{alpn}"
        );
        let slow = post_within(&client, "/slow-body", time).await.expect_err("too slow");
        assert_eq!(
            (slow.phase, slow.to_string().as_str()),
            (Phase::Body, "context deadline exceeded"),
            "{alpn}"
        );
        let large = post(&client, "/large").await.expect_err("too large");
        let want = "http: response body is larger than 100000 bytes";
        assert_eq!((large.phase, large.to_string().as_str()), (Phase::Body, want), "{alpn}");
        let heads = post(&client, "/large-head").await.expect_err("too large a head");
        assert_eq!(heads.phase, Phase::Head, "{alpn}");
        assert!(post(&client, "/echo").await.is_ok(), "{alpn}");
    }
}

/// Long responses that do not end take all places. A short one does not need any.
#[tokio::test(flavor = "multi_thread")]
async fn long_responses_of_a_peer_wait_for_each_other() {
    for alpn in ["http/1.1", "h2"] {
        let authority = Authority::new();
        let server = TestPeer::start(&authority.issue(&Certificate::default()), alpn).await;
        let client = client(&authority, server.address);
        let endless = endless_responses(&client);
        let brief = Duration::from_millis(50);
        let end = Instant::now() + Duration::from_secs(20);
        while post_within(&client, "/long", brief).await.is_ok() {
            assert!(Instant::now() < end, "{alpn}: there is always a place");
        }
        assert!(post(&client, "/echo").await.is_ok(), "{alpn}");
        endless.into_iter().for_each(|task| task.abort());
        let long = post(&client, "/long").await.expect("a place is free");
        assert_eq!(long.body.len(), 70_000, "{alpn}");
    }
}

/// Each of four peers takes as many places as one may; then there is none for the fifth.
#[tokio::test(flavor = "multi_thread")]
async fn long_responses_of_all_peers_wait_for_each_other() {
    let authority = Authority::new();
    let server = TestPeer::start(&authority.issue(&Certificate::default()), "h2").await;
    let egress = Egress::new(Arc::new(Table(server.address)));
    let client_of = |name: usize| {
        let server_name = Some("127.0.0.1".to_owned());
        let trust = authority.trust();
        let host = format!("peer-{name}");
        let route = Route::Given;
        let peer = Peer { trust, server_name, route, ..Peer::new(&host, server.address.port()) };
        egress.client(&peer).expect("a client")
    };
    let fifth = client_of(4);
    let mut endless = vec![];
    for peer in 0..3 {
        endless.extend(endless_responses(&client_of(peer)));
    }
    assert!(post(&fifth, "/long").await.is_ok(), "three peers leave places");
    endless.extend(endless_responses(&client_of(3)));
    let brief = Duration::from_millis(50);
    let end = Instant::now() + Duration::from_secs(20);
    while post_within(&fifth, "/long", brief).await.is_ok() {
        assert!(Instant::now() < end, "there is always a place");
    }
    assert!(post(&fifth, "/echo").await.is_ok());
    endless.into_iter().for_each(|task| task.abort());
    assert!(post(&fifth, "/long").await.is_ok(), "places are given back");
}

/// Asks a peer four times for a long response that does not end.
fn endless_responses(client: &Arc<Client>) -> Vec<JoinHandle<Result<Response, Error>>> {
    let ask = |client: Arc<Client>| async move { post(&client, "/slow-long-body").await };
    (0..4).map(|_| tokio::spawn(ask(client.clone()))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_that_nobody_reads_do_not_hold_up_others() {
    let authority = Authority::new();
    let server = TestPeer::start(&authority.issue(&Certificate::default()), "h2").await;
    let client = client(&authority, server.address);
    let mut unread = vec![];
    for _ in 0..32 {
        let request = http::Request::post("/huge").body(no_body()).expect("a request");
        let deadline = Instant::now() + Duration::from_secs(20);
        let response = client.stream(request, deadline).await.expect("a response");
        unread.push(response);
    }
    assert!(post(&client, "/echo").await.is_ok());
    assert_eq!(server.connections(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unprocessed_request_is_retried() {
    for alpn in ["http/1.1", "h2"] {
        let authority = Authority::new();
        let server = TestPeer::start(&authority.issue(&Certificate::default()), alpn).await;
        let client = client(&authority, server.address);
        for _ in 0..5 {
            match post(&client, "/last").await {
                Ok(answer) => assert_eq!(&answer.body[..], b"ping", "{alpn}"),
                // It was sent while the peer closed the connection, and may have been processed.
                Err(error) => assert_eq!((alpn, &*error.to_string()), ("http/1.1", "EOF")),
            }
        }
        assert!(server.connections() >= 3, "{alpn}");
    }
}

/// Sends a request without a body. Returns the body of the response.
async fn send_bare(client: &Arc<Client>, method: Method, key: bool) -> Result<Bytes, Error> {
    let mut headers = HeaderMap::new();
    if key {
        headers.insert("idempotency-key", HeaderValue::from_static("1"));
    }
    let request = Request { method, path: "/".to_owned(), headers, body: Bytes::new() };
    let deadline = Instant::now() + Duration::from_secs(20);
    client.send(&request, BYTES_MAX, deadline).await.map(|response| response.body)
}

/// Streams a request. Returns the body of the response.
async fn stream(client: &Arc<Client>, method: Method, body: StreamedBody) -> Result<Bytes, Error> {
    let request = http::Request::builder().method(method).body(body).expect("a request");
    let deadline = Instant::now() + Duration::from_secs(20);
    let response = client.stream(request, deadline).await?;
    Ok(response.into_body().collect().await.expect("a body").to_bytes())
}

/// Go's client does the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_may_be_repeated_is_when_a_pooled_connection_ends() {
    let authority = Authority::new();
    let issued = authority.issue(&Certificate::default());
    let cut = "net/http: HTTP/1.x transport connection broken: unexpected EOF";
    let ping = || Full::new(Bytes::from_static(b"ping")).map_err(|never| match never {});
    for streams in [false, true] {
        for (method, key, has_body, beginning, expected) in [
            (Method::GET, false, false, "", Ok("ok")),
            (Method::HEAD, false, false, "", Ok("")),
            (Method::OPTIONS, false, false, "", Ok("ok")),
            (Method::POST, true, false, "", Ok("ok")),
            // It may have been processed.
            (Method::POST, false, false, "", Err("EOF")),
            (Method::DELETE, false, false, "", Err("EOF")),
            // Its body has been read.
            (Method::GET, false, true, "", Err("EOF")),
            // A part of a response came.
            (Method::GET, false, false, "HTTP/1.1 200", Err(cut)),
        ] {
            let (address, requests) = peer::start_forgetful(&issued, beginning.as_bytes()).await;
            let client = client(&authority, address);
            assert!(send_bare(&client, Method::GET, false).await.is_ok());
            let got = match streams {
                _ if has_body && !streams => continue,
                true if key => continue,
                true if has_body => {
                    stream(&client, method.clone(), StreamedBody::new(ping())).await
                }
                true => stream(&client, method.clone(), no_body()).await,
                false => send_bare(&client, method.clone(), key).await,
            };
            let got = got.map_err(|error| error.to_string());
            let expected =
                expected.map(|text: &str| Bytes::from(text.to_owned())).map_err(str::to_owned);
            assert_eq!(got, expected, "{method} {has_body} {beginning:?} {streams}");
            let sent = if got.is_ok() { 3 } else { 2 };
            assert_eq!(requests.load(Ordering::SeqCst), sent, "{method} {beginning:?} {streams}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_errors_are_worded_as_by_go() {
    let authority = Authority::new();
    let start = "tls: failed to verify certificate: x509: ";
    let legacy = "certificate relies on legacy Common Name field, use SANs instead";
    let no_ip = "cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs";
    let names = |names: &[&str]| Certificate {
        names: names.iter().map(|&name| name.to_owned()).collect(),
        ..Certificate::default()
    };
    let years = |from, to| Certificate { years: (from, to), ..Certificate::default() };
    for (certificate, host, want) in [
        (
            names(&["10.1.2.3", "a.b"]),
            "127.0.0.1",
            "certificate is valid for 10.1.2.3, not 127.0.0.1",
        ),
        (names(&["a.b"]), "127.0.0.1", no_ip),
        (
            names(&["a.b", "*.c.d"]),
            "localhost",
            "certificate is valid for a.b, *.c.d, not localhost",
        ),
        (names(&[]), "localhost", legacy),
        (
            Certificate { is_client: true, ..Certificate::default() },
            "127.0.0.1",
            "certificate specifies an incompatible key usage",
        ),
        (years(2000, 2001), "127.0.0.1", " is after 2001-01-01T00:00:00Z"),
        (years(2200, 2201), "127.0.0.1", " is before 2200-01-01T00:00:00Z"),
    ] {
        let server = TestPeer::start(&authority.issue(&certificate), "h2").await;
        let peer = Peer { trust: authority.trust(), ..Peer::new(host, server.address.port()) };
        let client = Egress::new(Arc::new(Table(server.address))).client(&peer).expect("a client");
        let text = text_of(&client, "/echo").await;
        assert!(text.starts_with(start) && text.ends_with(want), "{text}, not {want}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_authority_is_rejected_and_a_served_root_is_trusted() {
    let authority = Authority::named("ca");
    let other = Authority::named("ca");
    let server = TestPeer::start(&other.issue(&Certificate::default()), "h2").await;
    let want = "tls: failed to verify certificate: x509: certificate signed by unknown authority \
                (possibly because of \"x509: ECDSA verification failure\" while trying to verify \
                candidate authority certificate \"ca\")";
    assert_eq!(text_of(&client(&authority, server.address), "/echo").await, want);
    let other = Authority::named("other");
    let text = text_of(&client(&other, server.address), "/echo").await;
    assert_eq!(text, want.split(" (").next().unwrap_or_default());
    let own = Certificate { is_authority: true, ..Certificate::default() };
    let server = TestPeer::start(&other.issue(&own), "h2").await;
    assert!(post(&client(&other, server.address), "/echo").await.is_ok());
    let stranger = Authority::named("stranger");
    let text = text_of(&client(&stranger, server.address), "/echo").await;
    assert_eq!(text, want.split(" (").next().unwrap_or_default());
    let (root, trust) = Authority::serving();
    let server = TestPeer::start(&root, "h2").await;
    let peer = Peer { trust, ..Peer::new("127.0.0.1", server.address.port()) };
    let client = Egress::new(Arc::new(Table(server.address))).client(&peer).expect("a client");
    assert!(post(&client, "/echo").await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_absent_peers_and_peers_without_tls() {
    let authority = Authority::new();
    let free = peer::free_port().await;
    let text = text_of(&client(&authority, free), "/").await;
    assert_eq!(text, format!("dial tcp {free}: connect: connection refused"));
    let plain = peer::start_with_text(b"HTTP/1.0 400 Bad Request\r\n\r\n").await;
    let text = text_of(&client(&authority, plain), "/").await;
    assert_eq!(text, "http: server gave HTTP response to HTTPS client");
    let other = peer::start_with_text(b"SSH-2.0-OpenSSH\r\n").await;
    let text = text_of(&client(&authority, other), "/").await;
    assert_eq!(text, "tls: first record does not look like a TLS handshake");
    let silent = peer::start_with_text(b"").await;
    let text = text_of(&client(&authority, silent), "/").await;
    assert!(text == "EOF" || text.ends_with("read: connection reset by peer"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_depend_on_the_progress_of_the_response() {
    let authority = Authority::new();
    let server = TestPeer::start(&authority.issue(&Certificate::default()), "http/1.1").await;
    let client = client(&authority, server.address);
    let cut = post(&client, "/cut").await.expect_err("a cut body");
    assert_eq!((cut.phase, cut.to_string().as_str()), (Phase::Body, "unexpected EOF"));
    let closed = post(&client, "/close").await.expect_err("no answer");
    assert_eq!((closed.phase, closed.to_string().as_str()), (Phase::Head, "EOF"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_may_end_with_its_connection() {
    let authority = Authority::new();
    let issued = authority.issue(&Certificate::default());
    let old = b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{\"a\":1}";
    let client_of = |address| client(&authority, address);
    let answer = post(&client_of(peer::start_truncating(&issued, old).await), "/")
        .await
        .expect("the end of the connection is that of the answer");
    assert_eq!((answer.status.as_u16(), &answer.body[..]), (200, &br#"{"a":1}"#[..]));
    // A response with a length must be complete.
    let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{\"a\":1}";
    let cut = post(&client_of(peer::start_truncating(&issued, cut).await), "/").await;
    assert_eq!(cut.expect_err("a cut body").to_string(), "unexpected EOF");
}

#[tokio::test(flavor = "multi_thread")]
async fn services_are_resolved_and_verified_by_name() {
    let authority = Authority::new();
    let names = ["a.default.svc", "named.default.svc"].map(str::to_owned).to_vec();
    let certificate = authority.issue(&Certificate { names, ..Certificate::default() });
    let server = TestPeer::start(&certificate, "h2").await;
    let egress = Egress::new(Arc::new(Table(server.address)));
    let service = |name: &str| {
        let host = format!("{name}.default.svc");
        let peer = Peer { route: Route::Given, trust: authority.trust(), ..Peer::new(host, 443) };
        egress.client(&peer).expect("a client")
    };
    assert!(post(&service("a"), "/echo").await.is_ok());
    assert!(post(&service("named"), "/echo").await.is_ok());
    assert_eq!(server.hosts(), ["a.default.svc:443", "named.default.svc:443"]);
    let text = text_of(&service("b"), "/echo").await;
    assert!(text.ends_with("not b.default.svc"), "{text}");
    assert_eq!(text_of(&service("gone"), "/echo").await, "service \"gone\" not found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_located_service_is_named_by_its_address_and_verified_by_name() {
    let authority = Authority::new();
    let names = ["a.default.svc", "named.default.svc"].map(str::to_owned).to_vec();
    let certificate = authority.issue(&Certificate { names, ..Certificate::default() });
    let server = TestPeer::start(&certificate, "h2").await;
    let egress = Egress::new(Arc::new(Table(server.address)));
    let service = |name: &str| {
        let host = format!("{name}.default.svc");
        Peer { route: Route::Given, trust: authority.trust(), ..Peer::new(host, 443) }
    };
    let port = server.address.port();
    for (name, at) in [("a", "127.0.0.1"), ("named", "localhost")] {
        let located = egress.located(service(name)).await.expect("a place");
        assert_eq!(located.authority(), format!("{at}:{port}"));
        let client = egress.client(&located).expect("a client");
        assert!(post(&client, "/echo").await.is_ok(), "{name}");
    }
    assert_eq!(server.hosts(), [format!("127.0.0.1:{port}"), format!("localhost:{port}")]);
    let other = egress.located(service("b")).await.expect("a place");
    let text = text_of(&egress.client(&other).expect("a client"), "/echo").await;
    assert!(text.ends_with("not b.default.svc"), "{text}");
    let gone = egress.located(service("gone")).await.expect_err("no place");
    assert_eq!(gone, "service \"gone\" not found");
}
