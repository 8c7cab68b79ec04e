//! Malformed TLS, old TLS versions, and certificates of an unknown authority.

use crate::world::{Options, Server};
use keelson_server::Limits;
use keelson_testkit::connection::{secure, tls_client};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

/// A TLS 1.0 client's first message: version 3.1, one cipher suite, no extension.
fn old_hello(minor: u8) -> Vec<u8> {
    let mut body = vec![3, minor];
    body.extend_from_slice(&[7; 32]);
    body.extend_from_slice(&[0, 0, 2, 0xc0, 0x13, 1, 0]);
    let mut bytes = vec![0x16, 3, 1, 0, body.len() as u8 + 4, 1, 0, 0, body.len() as u8];
    bytes.extend_from_slice(&body);
    bytes
}

fn start() -> Server {
    let limits = Limits { handshake_timeout: Duration::from_millis(100), ..Limits::default() };
    let options = Options::default().token("t", "admin").with(|options| options.limits = limits);
    Server::start(options)
}

/// Returns what the server sends in response to bytes before it closes the connection.
fn reply(server: &Server, bytes: &[u8]) -> Vec<u8> {
    let mut answer = vec![];
    let _ = server.client().write(bytes).read_to_end(&mut answer);
    answer
}

#[test]
fn plain_http_on_the_tls_port_gets_400() {
    let server = start();
    let want = "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
    for line in ["GET / HTTP/1.1", "POST /api HTTP/1.1", "HEAD / HTTP/1.1", "PUT / HTTP/1.1"] {
        let got = reply(&server, format!("{line}\r\nHost: h\r\n\r\n").as_bytes());
        assert_eq!(String::from_utf8_lossy(&got), want, "{line}");
    }
    server.stop();
}

#[test]
fn invalid_and_old_tls_hellos_get_no_response() {
    let server = start();
    assert_eq!(reply(&server, b"\0\x01garbage that is long enough"), b"");
    assert_eq!(reply(&server, b"x"), b"");
    assert_eq!(reply(&server, b""), b"");
    assert_eq!(reply(&server, &[0x16, 3, 1]), b"");
    for minor in [1, 2] {
        // An alert of level fatal: handshake failure, or protocol version.
        let alert = reply(&server, &old_hello(minor));
        assert!(matches!(alert[..], [0x15, _, _, 0, 2, 2, 40 | 70]), "3.{minor}: {alert:?}");
    }
    server.stop();
}

/// Returns a client certificate signed by `authority`, and its key.
fn certificate(
    authority: &rcgen::Issuer<'_, rcgen::KeyPair>,
) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(vec![]).expect("parameters");
    params.distinguished_name.push(rcgen::DnType::CommonName, "mallory");
    params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:masters");
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let signed = params.signed_by(&key, authority).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).expect("a key");
    (signed.der().clone(), key)
}

/// Returns the status line of a GET with a client certificate and a header.
fn status_line(
    server: &Server,
    certificate: &CertificateDer<'static>,
    key: &PrivateKeyDer<'static>,
    header: &str,
) -> String {
    let config = tls_client(server.roots())
        .with_client_auth_cert(vec![certificate.clone()], key.clone_key())
        .expect("a client");
    let mut stream = secure(server.address(), &Arc::new(config)).expect("a connection");
    let text =
        format!("GET /api/v1/namespaces HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{header}\r\n");
    stream.write_all(text.as_bytes()).expect("the request goes out");
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn a_certificate_of_an_unknown_authority_gets_401_after_the_handshake() {
    let server = start();
    let mut params = rcgen::CertificateParams::new(vec![]).expect("parameters");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().expect("a key");
    let authority = rcgen::Issuer::new(params, key);
    let (certificate, key) = certificate(&authority);
    assert_eq!(status_line(&server, &certificate, &key, ""), "HTTP/1.1 401 Unauthorized");
    // A valid token is accepted nevertheless, as upstream.
    let token = "Authorization: Bearer t\r\n";
    assert_eq!(status_line(&server, &certificate, &key, token), "HTTP/1.1 200 OK");
    let wrong = "Authorization: Bearer wrong\r\n";
    assert_eq!(status_line(&server, &certificate, &key, wrong), "HTTP/1.1 401 Unauthorized");
    server.stop();
}

/// Opens a TLS connection for an ALPN protocol and sends `bytes`. In this version of TLS the client
/// has received the server's last handshake message when it sends them.
fn connected(server: &Server, protocol: &str, bytes: &[u8]) -> impl Read + use<> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12])
        .expect("a version")
        .with_root_certificates(server.roots())
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let mut stream = secure(server.address(), &Arc::new(config)).expect("a connection");
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).expect("a handshake");
    }
    stream.write_all(bytes).expect("it goes out");
    stream
}

/// Reads to the end; an end without `close_notify` is an error.
fn check_end(mut stream: impl Read, protocol: &str, bytes: &[u8]) {
    let end = stream.read_to_end(&mut vec![]);
    assert!(end.is_ok(), "{protocol} {}: {end:?}", bytes.escape_ascii());
}

#[test]
fn an_idle_client_gets_close_notify() {
    let limits = Limits { header_timeout: Duration::from_secs(1), ..Limits::default() };
    let server = Server::start(Options::default().with(|options| options.limits = limits));
    let http2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let begins: [(&str, &[u8]); 5] =
        [("http/1.1", b""), ("http/1.1", b"G"), ("http/1.1", b"GET /"), ("h2", b""), ("h2", http2)];
    let streams = begins.map(|(protocol, bytes)| connected(&server, protocol, bytes));
    for (stream, (protocol, bytes)) in streams.into_iter().zip(begins) {
        check_end(stream, protocol, bytes);
    }
    server.stop();
}

#[test]
fn an_idle_client_gets_close_notify_when_the_server_stops() {
    let limits = Limits { drain_timeout: Duration::from_millis(50), ..Limits::default() };
    let server = Server::start(Options::default().with(|options| options.limits = limits));
    let protocols = ["http/1.1", "h2"];
    let streams = protocols.map(|protocol| connected(&server, protocol, b""));
    server.stop();
    for (stream, protocol) in streams.into_iter().zip(protocols) {
        check_end(stream, protocol, b"");
    }
}
