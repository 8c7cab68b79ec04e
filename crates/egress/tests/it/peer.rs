//! Test peers on this host and the CAs that sign their certificates.

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use keelson_egress::Trust;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use rustls::ServerConfig;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// A CA.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// The fields of a certificate.
pub struct Certificate {
    /// Names and addresses.
    pub names: Vec<String>,
    /// The years in which its validity begins and ends.
    pub years: (i32, i32),
    /// Whether it is a client certificate.
    pub is_client: bool,
    /// Whether it is a CA certificate.
    pub is_authority: bool,
}

impl Default for Certificate {
    fn default() -> Self {
        let names = ["127.0.0.1", "localhost"].map(str::to_owned).to_vec();
        Certificate { names, years: (2000, 2100), is_client: false, is_authority: false }
    }
}

/// A certificate and its key.
pub struct Issued(CertificateDer<'static>, PrivateKeyDer<'static>);

impl Authority {
    /// Returns a new CA.
    pub fn new() -> Authority {
        Authority::named("test")
    }

    /// Returns a new CA with a name.
    pub fn named(name: &str) -> Authority {
        let mut params = CertificateParams::new(vec![]).expect("no names");
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Authority(CertifiedIssuer::self_signed(params, key).expect("a certificate"))
    }

    /// Returns a self-signed CA certificate for a server, and the trust in it.
    pub fn serving() -> (Issued, Trust) {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let signed = params.self_signed(&key).expect("a certificate");
        let trust = Trust::Bundle(signed.pem().into_bytes().into());
        (
            Issued(
                signed.der().clone(),
                PrivateKeyDer::try_from(key.serialize_der()).expect("a key"),
            ),
            trust,
        )
    }

    /// Returns the trust in this CA only.
    pub fn trust(&self) -> Trust {
        Trust::Bundle(self.0.pem().into_bytes().into())
    }

    /// Signs a certificate.
    pub fn issue(&self, certificate: &Certificate) -> Issued {
        let mut params = CertificateParams::new(certificate.names.clone()).expect("names");
        params.distinguished_name.push(rcgen::DnType::CommonName, "leaf");
        params.not_before = rcgen::date_time_ymd(certificate.years.0, 1, 1);
        params.not_after = rcgen::date_time_ymd(certificate.years.1, 1, 1);
        let usage = if certificate.is_client {
            ExtendedKeyUsagePurpose::ClientAuth
        } else {
            ExtendedKeyUsagePurpose::ServerAuth
        };
        params.extended_key_usages = vec![usage];
        if certificate.is_authority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        let key = KeyPair::generate().expect("a key");
        let signed = params.signed_by(&key, &self.0).expect("a certificate");
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        Issued(signed.der().clone(), key)
    }
}

#[derive(Default)]
struct Counters {
    connections: AtomicUsize,
    requests: AtomicUsize,
    hosts: Mutex<Vec<String>>,
}

/// A server whose response depends on the path of the request.
pub struct TestPeer {
    /// The listening address.
    pub address: SocketAddr,
    counters: Arc<Counters>,
}

impl TestPeer {
    /// Starts a server for one protocol.
    pub async fn start(issued: &Issued, alpn: &str) -> TestPeer {
        let acceptor = acceptor(issued, alpn);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let counters = Arc::new(Counters::default());
        let peer = TestPeer { address, counters: counters.clone() };
        let is_http2 = alpn == "h2";
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                let counters = counters.clone();
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    counters.connections.fetch_add(1, Ordering::SeqCst);
                    serve(stream, counters, is_http2).await;
                });
            }
        });
        peer
    }

    /// Returns the number of connections so far.
    pub fn connections(&self) -> usize {
        self.counters.connections.load(Ordering::SeqCst)
    }

    /// Returns the number of requests so far.
    pub fn requests(&self) -> usize {
        self.counters.requests.load(Ordering::SeqCst)
    }

    /// Returns the distinct hosts of the requests.
    pub fn hosts(&self) -> Vec<String> {
        let mut hosts = self.counters.hosts.lock().expect("a lock").clone();
        hosts.dedup();
        hosts
    }
}

/// Returns what accepts TLS with a certificate.
pub fn acceptor(Issued(chain, key): &Issued, alpn: &str) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![chain.clone()], key.clone_key())
        .expect("a certificate");
    if !alpn.is_empty() {
        config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    }
    TlsAcceptor::from(Arc::new(config))
}

async fn serve(stream: TlsStream<TcpStream>, counters: Arc<Counters>, is_http2: bool) {
    // Notified when the connection is to be closed after the response.
    let last = Arc::new(Notify::new());
    let answers = service_fn({
        let last = last.clone();
        move |request| answer(request, counters.clone(), last.clone())
    });
    let io = TokioIo::new(stream);
    if is_http2 {
        let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let mut connection = std::pin::pin!(builder.serve_connection(io, answers));
        tokio::select! {
            _ = &mut connection => return,
            () = last.notified() => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
    } else {
        let builder = hyper::server::conn::http1::Builder::new();
        let mut connection = std::pin::pin!(builder.serve_connection(io, answers));
        tokio::select! {
            _ = &mut connection => return,
            () = last.notified() => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
    }
}

type Answer = Response<BoxBody<Bytes, std::io::Error>>;

async fn answer(
    request: Request<Incoming>,
    counters: Arc<Counters>,
    last: Arc<Notify>,
) -> Result<Answer, std::io::Error> {
    counters.requests.fetch_add(1, Ordering::SeqCst);
    let host = request.uri().authority().map(|authority| authority.to_string());
    let header = |name: &str| {
        let value = request.headers().get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    counters.hosts.lock().expect("a lock").push(host.unwrap_or_else(|| header("host")));
    let authorization = header("authorization");
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.map_err(std::io::Error::other)?.to_bytes();
    let whole = |bytes: Bytes| Full::new(bytes).map_err(|never: Infallible| match never {}).boxed();
    let mut response = Response::new(whole(body));
    match path.as_str() {
        "/authorization" => *response.body_mut() = whole(authorization.into()),
        "/redirect" => {
            *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
            let to = http::HeaderValue::from_static("/echo");
            response.headers_mut().insert("location", to);
        }
        "/slow" => std::future::pending::<()>().await,
        "/slow-body" => *response.body_mut() = StallingBody::new(1, false).boxed(),
        "/cut" => *response.body_mut() = StallingBody::new(1, true).boxed(),
        "/huge" => *response.body_mut() = whole(vec![b'x'; 2 << 20].into()),
        "/long" => *response.body_mut() = whole(vec![b'x'; 70_000].into()),
        "/slow-long-body" => *response.body_mut() = StallingBody::new(70_000, false).boxed(),
        "/large" => *response.body_mut() = whole(vec![b'x'; 200_000].into()),
        "/large-head" => {
            let value = http::HeaderValue::from_str(&"x".repeat(600_000)).expect("a header");
            response.headers_mut().insert("x-large", value);
        }
        "/last" => last.notify_one(),
        "/close" => return Err(std::io::Error::other("closed")),
        _ => {}
    }
    Ok(response)
}

/// A body that sends some data, then fails or stalls.
struct StallingBody {
    begin: usize,
    polls: u32,
    ends: bool,
}

impl StallingBody {
    /// `begin`: bytes that are sent.
    fn new(begin: usize, ends: bool) -> StallingBody {
        StallingBody { begin, polls: 0, ends }
    }
}

impl Body for StallingBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        self.polls += 1;
        match self.polls {
            1 => return Poll::Ready(Some(Ok(Frame::data(vec![b'{'; self.begin].into())))),
            // Pending lets hyper flush what was sent.
            2 => context.waker().wake_by_ref(),
            _ if self.ends => return Poll::Ready(Some(Err(std::io::Error::other("cut")))),
            _ => {}
        }
        Poll::Pending
    }
}

/// Returns an address without a listener.
pub async fn free_port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    listener.local_addr().expect("an address")
}

/// Starts a peer that sends this text to every connection and closes.
pub async fn start_with_text(text: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(text).await;
        }
    });
    address
}

/// Starts a peer that answers every request with this text over TLS and closes without
/// close_notify.
pub async fn start_truncating(issued: &Issued, text: &'static [u8]) -> SocketAddr {
    let acceptor = acceptor(issued, "http/1.1");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut request = vec![];
            while !request.ends_with(b"ping")
                && stream.read_buf(&mut request).await.is_ok_and(|count| count > 0)
            {}
            let _ = stream.write_all(text).await;
            let _ = stream.flush().await;
            // TCP is closed in order, TLS is not.
            let _ = stream.get_mut().0.shutdown().await;
        }
    });
    address
}

/// Starts a peer that answers one request of each connection. It sends `beginning` for the second
/// one, and closes. Returns its address, and how many requests came.
pub async fn start_forgetful(
    issued: &Issued,
    beginning: &'static [u8],
) -> (SocketAddr, Arc<AtomicUsize>) {
    let acceptor = acceptor(issued, "http/1.1");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let requests = Arc::new(AtomicUsize::new(0));
    let counter = requests.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let counter = counter.clone();
            tokio::spawn(async move {
                for answer in [&b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"[..], beginning] {
                    let mut request = vec![];
                    while !(request.ends_with(b"\r\n\r\n") || request.ends_with(b"ping")) {
                        match stream.read_buf(&mut request).await {
                            Ok(count) if count > 0 => {}
                            _ => return,
                        }
                    }
                    counter.fetch_add(1, Ordering::SeqCst);
                    let _ = stream.write_all(answer).await;
                    let _ = stream.flush().await;
                }
                let _ = stream.shutdown().await;
            });
        }
    });
    (address, requests)
}
