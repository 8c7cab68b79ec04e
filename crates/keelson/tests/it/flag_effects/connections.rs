//! Flags of TLS, HTTP and the time of requests.

use super::{MAPS, create, serve};
use crate::certificates::authority;
use crate::kill::Server;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keelson_testkit::connection::{authorities, plain};
use keelson_testkit::https_peer::HttpsPeer;
use rcgen::{CertificateParams, KeyPair};
use rustls::crypto::ring::{cipher_suite, default_provider, kx_group};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedCipherSuite,
    SupportedProtocolVersion,
};
use rustls_pki_types::ServerName;
use rustls_pki_types::pem::PemObject;
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest watch with `--min-request-timeout=1` takes two seconds; those of the default take
/// half an hour at least.
const SHORT_WATCH_MAX: Duration = Duration::from_secs(60);

static OLD: [&SupportedProtocolVersion; 1] = [&TLS12];
static NEW: [&SupportedProtocolVersion; 1] = [&TLS13];
static BOTH: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];

/// What a client offers.
struct Offer {
    versions: &'static [&'static SupportedProtocolVersion],
    suites: Vec<SupportedCipherSuite>,
    groups: Vec<&'static dyn rustls::crypto::SupportedKxGroup>,
}

impl Offer {
    fn of(versions: &'static [&'static SupportedProtocolVersion]) -> Offer {
        let all = default_provider();
        Offer { versions, suites: all.cipher_suites, groups: all.kx_groups }
    }

    /// Does a handshake with a host.
    fn shake(
        &self,
        server: &Server,
        host: &str,
        roots: RootCertStore,
    ) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let mut provider = default_provider();
        provider.cipher_suites.clone_from(&self.suites);
        provider.kx_groups.clone_from(&self.groups);
        let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(self.versions)
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let name = ServerName::try_from(host.to_owned()).expect("a name");
        let session = ClientConnection::new(Arc::new(config), name).expect("a session");
        let mut stream = StreamOwned::new(session, plain(server.address())?);
        stream.conn.complete_io(&mut stream.sock)?;
        Ok(stream)
    }
}

fn own_roots(dir: &Path) -> RootCertStore {
    let text = std::fs::read_to_string(dir.join("admin.kubeconfig")).expect("a kubeconfig");
    authorities(&text)
}

/// `--tls-min-version`, `--tls-cipher-suites`, `--tls-curve-preferences` and
/// `--disable-http2-serving`.
#[test]
fn handshakes_outside_of_the_flags_fail() {
    let dir = tempfile::tempdir().expect("a folder");
    let old = || Offer::of(&OLD);
    let chacha = cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256;
    let with_chacha = || Offer { suites: vec![chacha], ..old() };
    let with_x25519 = || Offer { groups: vec![kx_group::X25519], ..Offer::of(&NEW) };
    let with_p384 = || Offer { groups: vec![kx_group::SECP384R1], ..Offer::of(&NEW) };
    let both = || Offer::of(&BOTH);
    let suites = "--tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256";
    for (number, (flag, offers)) in [
        ("--v=0", [(old(), Some("h2")), (with_chacha(), Some("h2")), (with_x25519(), Some("h2"))]),
        ("--tls-min-version=VersionTLS13", [(old(), None), (both(), Some("h2")), (old(), None)]),
        (suites, [(with_chacha(), None), (old(), Some("h2")), (both(), Some("h2"))]),
        (
            "--tls-curve-preferences=24",
            [(with_x25519(), None), (with_p384(), Some("h2")), (both(), Some("h2"))],
        ),
        (
            "--disable-http2-serving",
            [
                (old(), Some("http/1.1")),
                (both(), Some("http/1.1")),
                (with_p384(), Some("http/1.1")),
            ],
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let data = dir.path().join(number.to_string());
        let (server, _) = serve(&data, &[flag]);
        for (place, (offer, protocol)) in offers.into_iter().enumerate() {
            let shaken = offer.shake(&server, "127.0.0.1", own_roots(&data)).ok();
            let got = shaken.and_then(|stream| stream.conn.alpn_protocol().map(<[u8]>::to_vec));
            assert_eq!(got.as_deref(), protocol.map(str::as_bytes), "{flag}, offer {place}");
        }
    }
}

#[test]
fn a_host_of_the_flag_gets_its_own_certificate() {
    let dir = tempfile::tempdir().expect("a folder");
    let (root, issuer) = authority("another authority");
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["b.example.com".to_owned()]).expect("parameters");
    let certificate = params.signed_by(&key, &issuer).expect("a certificate");
    let files = ["crt", "key"].map(|end| dir.path().join(format!("named.{end}")));
    std::fs::write(&files[0], certificate.pem()).expect("a file");
    std::fs::write(&files[1], key.serialize_pem()).expect("a file");
    let [crt, key] = files.map(|file| file.display().to_string());
    let flag = format!("--tls-sni-cert-key={crt},{key}:b.example.com");
    let data = dir.path().join("data");
    let (server, _) = serve(&data, &[&flag]);
    let mut roots = RootCertStore::empty();
    let root = rustls_pki_types::CertificateDer::from_pem_slice(root.as_bytes()).expect("PEM");
    roots.add(root).expect("a root");
    let offer = Offer::of(&NEW);
    offer.shake(&server, "b.example.com", roots.clone()).expect("its certificate");
    assert!(offer.shake(&server, "localhost", roots).is_err());
    offer.shake(&server, "localhost", own_roots(&data)).expect("the certificate of others");
}

/// Returns the maximum of concurrent streams in the first SETTINGS of a server.
fn streams_max(mut stream: impl Read + Write) -> Option<u32> {
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").ok()?;
    stream.flush().ok()?;
    let mut head = [0; 9];
    stream.read_exact(&mut head).ok()?;
    let [first, second, third, kind, ..] = head;
    assert_eq!(kind, 4, "SETTINGS");
    let mut settings = vec![0; u32::from_be_bytes([0, first, second, third]) as usize];
    stream.read_exact(&mut settings).ok()?;
    let setting = settings.chunks_exact(6).find(|setting| setting[..2] == [0, 3])?;
    Some(u32::from_be_bytes(setting[2..].try_into().ok()?))
}

#[test]
fn clients_are_told_the_maximum_of_streams_on_a_connection() {
    let dir = tempfile::tempdir().expect("a folder");
    for (flag, expected) in [("--http2-max-streams-per-connection=7", 7), ("--v=0", 100)] {
        let data = dir.path().join(expected.to_string());
        let (server, _) = serve(&data, &[flag]);
        let offer = Offer::of(&NEW);
        let stream = offer.shake(&server, "127.0.0.1", own_roots(&data)).expect("a handshake");
        assert_eq!(streams_max(stream), Some(expected), "{flag}");
    }
}

/// Sends a GET with more header lines. Returns the head of the response in small letters.
fn head(server: &Server, headers: &str) -> String {
    let mut stream = server.open();
    write!(
        stream,
        "GET {MAPS} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer t\r\nConnection: close\r\n\
         {headers}\r\n"
    )
    .expect("a request");
    let mut text = vec![];
    // The server may close the connection without the end of TLS.
    let _ = stream.read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text);
    text.split("\r\n\r\n").next().unwrap_or_default().to_ascii_lowercase()
}

#[test]
fn pages_of_allowed_origins_may_read_the_responses() {
    let dir = tempfile::tempdir().expect("a folder");
    let flag = r"--cors-allowed-origins=^https://[a-c]\.example$,//other\.example(:|$)";
    let (server, _) = serve(dir.path(), &[flag]);
    for (origin, is_allowed) in [
        ("https://b.example", true),
        ("http://other.example:8080", true),
        ("https://d.example", false),
        ("https://b.example.evil", false),
    ] {
        let head = head(&server, &format!("Origin: {origin}\r\n"));
        assert!(head.starts_with("http/1.1 200"), "{head}");
        let line = format!("access-control-allow-origin: {origin}");
        assert_eq!(head.lines().any(|got| got == line), is_allowed, "{origin}: {head}");
    }
}

#[test]
fn no_flow_is_named_without_priority_and_fairness() {
    let dir = tempfile::tempdir().expect("a folder");
    for flag in [true, false] {
        let fairness = format!("--enable-priority-and-fairness={flag}");
        let (server, _) = serve(&dir.path().join(flag.to_string()), &[&fairness]);
        let head = head(&server, "");
        assert!(head.starts_with("http/1.1 200"), "{head}");
        assert_eq!(head.contains("x-kubernetes-pf-flowschema-uid: "), flag, "{head}");
    }
}

#[test]
fn a_watch_without_a_timeout_ends_soon_after_the_shortest_time_of_the_flag() {
    let dir = tempfile::tempdir().expect("a folder");
    let (_server, api) = serve(dir.path(), &["--min-request-timeout=1"]);
    let began = Instant::now();
    let mut watch = api.watch(&format!("{MAPS}?watch=1&resourceVersion=0")).expect("a watch");
    while watch.next_event().is_ok() {}
    let lasted = began.elapsed();
    assert!((Duration::from_secs(1)..SHORT_WATCH_MAX).contains(&lasted), "{lasted:?}");
}

/// A webhook that never answers holds a request up, until the request's time is over.
#[test]
fn a_request_ends_when_the_time_of_the_flag_is_over() {
    let dir = tempfile::tempdir().expect("a folder");
    let (_server, api) = serve(dir.path(), &["--request-timeout=1s"]);
    let silent = HttpsPeer::start(|_, _| None);
    let hook = json!({"metadata": {"name": "silent"}, "webhooks": [{
        "name": "silent.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 30,
        "clientConfig": {"url": silent.url(), "caBundle": STANDARD.encode(&silent.authority)},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
            "resources": ["configmaps"]}]}]});
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    create(&api, hooks, &hook);
    let began = Instant::now();
    let map = json!({"metadata": {"name": "m"}});
    let refused = api.post(MAPS, &map).expect("an answer");
    let lasted = began.elapsed();
    assert_eq!(refused.code, 504, "{refused:?}");
    // The webhook's own time would be 30 seconds.
    assert!(lasted < Duration::from_secs(25), "{lasted:?}");
}
