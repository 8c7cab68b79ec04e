//! Requests through the proxies of networks: CONNECT over TCP, with TLS and without, and over a
//! Unix domain socket.

use crate::peer::{Authority, Certificate, TestPeer, acceptor};
use crate::{BYTES_MAX, Table};
use bytes::Bytes;
use http::{HeaderMap, Method};
use keelson_egress::{
    Egress, EgressSelector, NetworkChoice, Peer, Request, Route, Scheme, Tunneler,
};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::time::Instant;

/// The addresses that a proxy was asked for.
type Asked = Arc<Mutex<Vec<String>>>;

/// Reads CONNECT, answers, and passes bytes on to the target, whatever the address is.
async fn serve(mut near: impl AsyncRead + AsyncWrite + Unpin, target: SocketAddr, asked: Asked) {
    let mut head = vec![];
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = near.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8(head).expect("text");
    let (line, headers) = head.split_once("\r\n").expect("a line");
    assert_eq!(headers, "Host: 127.0.0.1\r\n\r\n");
    let address = line.strip_prefix("CONNECT ").and_then(|rest| rest.strip_suffix(" HTTP/1.1"));
    let address = address.expect("a request to connect").to_owned();
    asked.lock().expect("a lock").push(address.clone());
    let answer = match address.as_str() {
        "refused.example:443" => "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n",
        "odd.example:443" => "SSH-2.0\r\n\r\n",
        "gone.example:443" => return,
        _ => "HTTP/1.1 200 Connection Established\r\nVia: x\r\n\r\n",
    };
    let _ = near.write_all(answer.as_bytes()).await;
    let _ = near.flush().await;
    let mut far = TcpStream::connect(target).await.expect("the target listens");
    let _ = copy_bidirectional(&mut near, &mut far).await;
}

/// Starts a proxy at a socket in a folder.
fn at_socket(dir: &std::path::Path, target: SocketAddr, asked: &Asked) -> Arc<Tunneler> {
    let path = dir.join("proxy.sock");
    let listener = UnixListener::bind(&path).expect("a socket");
    let asked = asked.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, target, asked.clone()));
        }
    });
    Arc::new(Tunneler::http_connect_socket(path.display().to_string()))
}

async fn answer(egress: &Egress, peer: &Peer) -> Result<Bytes, String> {
    let client = egress.client(peer).expect("a client");
    let request = Request {
        method: Method::POST,
        path: "/echo".to_owned(),
        headers: HeaderMap::new(),
        body: Bytes::from_static(b"ping"),
    };
    let deadline = Instant::now() + Duration::from_secs(20);
    let sent = client.send(&request, BYTES_MAX, deadline).await;
    sent.map(|response| response.body).map_err(|error| error.to_string())
}

/// Returns a peer with a name that only a proxy knows.
fn named(authority: &Authority, host: &str, route: Route) -> Peer {
    let mut peer = Peer::new(host, 443);
    peer.route = route;
    peer.trust = authority.trust();
    peer.server_name = Some("localhost".to_owned());
    peer
}

#[tokio::test]
async fn each_network_has_its_proxy_which_resolves_names() {
    let authority = Authority::new();
    let server = TestPeer::start(&authority.issue(&Certificate::default()), "http/1.1").await;
    let dir = tempfile::tempdir().expect("a folder");
    let asked = Asked::default();
    let proxy = at_socket(dir.path(), server.address, &asked);
    let resolver = Arc::new(Table(SocketAddr::from(([10, 0, 0, 7], 443))));
    let of_cluster = EgressSelector { cluster: Some(proxy.clone()), ..EgressSelector::default() };
    let cluster = Egress::new(resolver.clone()).with_selector(of_cluster);
    let direct = Peer { trust: authority.trust(), ..Peer::new("127.0.0.1", server.address.port()) };
    for (peer, address) in [
        (named(&authority, "node.example", Route::Node), "node.example:443"),
        (named(&authority, "a.default.svc", Route::Given), "10.0.0.7:443"),
        (named(&authority, "named.default.svc", Route::Given), "localhost:443"),
        (named(&authority, "192.0.2.1", Route::Public), "192.0.2.1:443"),
    ] {
        assert!(answer(&cluster, &peer).await.is_ok(), "{address}");
        assert_eq!(asked.lock().expect("a lock").pop().as_deref(), Some(address));
    }
    assert!(answer(&cluster, &direct).await.is_ok(), "names of DNS are in another network");
    let of_control_plane =
        EgressSelector { control_plane: Some(proxy), ..EgressSelector::default() };
    let egress = Egress::new(resolver).with_selector(of_control_plane);
    let chosen = Peer { selection: NetworkChoice::Direct, ..direct };
    assert!(answer(&egress, &chosen).await.is_ok());
    assert!(asked.lock().expect("a lock").is_empty());
    let peer = named(&authority, "hook.example", Route::Dns);
    assert!(answer(&egress, &peer).await.is_ok());
    assert_eq!(*asked.lock().expect("a lock"), ["hook.example:443"]);
}

#[tokio::test]
async fn a_proxy_is_reached_over_tcp_with_a_client_certificate_and_without_tls() {
    let authority = Authority::new();
    let server = TestPeer::start(&authority.issue(&Certificate::default()), "h2").await;
    let resolver = Arc::new(Table(server.address));
    for scheme in [Scheme::Http, Scheme::Https] {
        let asked = Asked::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let mut proxy = Peer::new("127.0.0.1", listener.local_addr().expect("an address").port());
        proxy.scheme = scheme;
        proxy.trust = authority.trust();
        let acceptor = acceptor(&authority.issue(&Certificate::default()), "");
        let told = asked.clone();
        let target = server.address;
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                let told = told.clone();
                tokio::spawn(async move {
                    match scheme {
                        Scheme::Http => serve(stream, target, told).await,
                        Scheme::Https => {
                            let stream = acceptor.accept(stream).await.expect("a handshake");
                            serve(stream, target, told).await;
                        }
                    }
                });
            }
        });
        let tunneler = Arc::new(Tunneler::http_connect(&proxy).expect("a proxy"));
        let selector = EgressSelector { cluster: Some(tunneler), ..EgressSelector::default() };
        let egress = Egress::new(resolver.clone()).with_selector(selector);
        let peer = named(&authority, "node.example", Route::Node);
        assert!(answer(&egress, &peer).await.is_ok(), "{scheme:?}");
        assert_eq!(*asked.lock().expect("a lock"), ["node.example:443"]);
    }
}

#[tokio::test]
async fn failures_of_a_proxy_have_the_words_of_kube_apiserver() {
    let authority = Authority::new();
    let dir = tempfile::tempdir().expect("a folder");
    let target = SocketAddr::from(([127, 0, 0, 1], 1));
    let proxy = at_socket(dir.path(), target, &Asked::default());
    let shown = dir.path().join("proxy.sock").display().to_string();
    let absent = dir.path().join("absent.sock").display().to_string();
    let absent_proxy = Arc::new(Tunneler::http_connect_socket(absent.clone()));
    let reading = |host: &str, why: &str| {
        format!("reading HTTP response from CONNECT to {host}:443 via proxy {shown} failed: {why}")
    };
    for (proxy, host, expected) in [
        (
            &proxy,
            "refused.example",
            format!(
                "proxy error from {shown} while dialing refused.example:443, code 403: 403 Forbidden"
            ),
        ),
        (&proxy, "odd.example", reading("odd.example", "malformed HTTP response \"SSH-2.0\"")),
        (&proxy, "gone.example", reading("gone.example", "unexpected EOF")),
        (
            &absent_proxy,
            "node.example",
            format!("dial unix {absent}: connect: no such file or directory"),
        ),
    ] {
        let selector = EgressSelector { cluster: Some(proxy.clone()), ..EgressSelector::default() };
        let egress = Egress::without_services().with_selector(selector);
        let peer = named(&authority, host, Route::Node);
        assert_eq!(answer(&egress, &peer).await, Err(expected), "{host}");
    }
}
