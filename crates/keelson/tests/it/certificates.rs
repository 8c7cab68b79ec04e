//! Client and serving certificates of a running server: expiry, changes of their files, and
//! untrusted authorities.

use crate::http::{POLL_TIMEOUT, Server};
use keelson::Keelson;
use keelson_testkit::connection::{authorities, secure, tls_client};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use rustls::client::ResolvesClientCert;
use rustls::sign::CertifiedKey;
use rustls::{ClientConnection, SignatureScheme, StreamOwned};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use time::OffsetDateTime;

pub type Stream = StreamOwned<ClientConnection, TcpStream>;

/// Returns another CA certificate in PEM.
pub fn authority(name: &str) -> (String, Issuer<'static, KeyPair>) {
    let mut params = CertificateParams::new(vec![]).expect("parameters");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().expect("a key");
    let pem = params.self_signed(&key).expect("a certificate").pem();
    (pem, Issuer::new(params, key))
}

/// Returns the CA of a server with this data directory.
pub fn own_authority(data: &Path) -> Issuer<'static, KeyPair> {
    let read = |name: &str| std::fs::read_to_string(data.join("pki").join(name)).expect("a file");
    let key = KeyPair::from_pem(&read("ca.key")).expect("a key");
    Issuer::from_ca_cert_pem(&read("ca.crt"), key).expect("an authority")
}

/// Returns a client certificate of `system:masters` with a lifetime.
pub fn client(
    authority: &Issuer<'_, KeyPair>,
    name: &str,
    lasts: Duration,
) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(vec![]).expect("parameters");
    params.distinguished_name.push(DnType::CommonName, name);
    params.distinguished_name.push(DnType::OrganizationName, "system:masters");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.not_before = OffsetDateTime::now_utc() - Duration::from_secs(60);
    params.not_after = OffsetDateTime::now_utc() + lasts;
    let signed = params.signed_by(&key, authority).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).expect("a key");
    (signed.der().clone(), key)
}

/// Writes a client certificate and its key. Returns the PEM of its authority, and the two files.
pub fn client_files(dir: &Path, name: &str) -> (String, (PathBuf, PathBuf)) {
    let (authority_pem, authority) = authority("clients");
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = params.signed_by(&key, &authority).expect("a certificate");
    let files = (dir.join("client.crt"), dir.join("client.key"));
    std::fs::write(&files.0, certificate.pem()).expect("written");
    std::fs::write(&files.1, key.serialize_pem()).expect("written");
    (authority_pem, files)
}

pub fn connect(
    server: &Server,
    identity: (CertificateDer<'static>, PrivateKeyDer<'static>),
) -> Stream {
    let (certificate, key) = identity;
    let config = tls_client(authorities(server.keelson.kubeconfig().text()))
        .with_client_auth_cert(vec![certificate], key)
        .expect("a client");
    secure(server.keelson.address(), &Arc::new(config)).expect("a connection")
}

/// Sends a GET over an open connection and returns the status code.
fn get_status(stream: &mut Stream) -> u16 {
    let request = "GET /api/v1/namespaces/default HTTP/1.1\r\nHost: h\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("the request goes out");
    let mut text = String::new();
    let mut byte = [0];
    while !text.ends_with("\r\n\r\n") {
        stream.read_exact(&mut byte).expect("an answer");
        text.push(char::from(byte[0]));
    }
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length").then(|| value.parse::<usize>().ok())?
    });
    let mut body = vec![0; length.expect("a length")];
    stream.read_exact(&mut body).expect("a body");
    text.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a code")
}

/// Calls a function until it returns the wanted value.
pub fn wait_for<T: PartialEq + std::fmt::Debug>(wanted: T, mut get: impl FnMut() -> T) {
    let deadline = Instant::now() + POLL_TIMEOUT;
    loop {
        let got = get();
        if got == wanted {
            return;
        }
        assert!(Instant::now() < deadline, "still {got:?}, not {wanted:?}");
        std::thread::yield_now();
    }
}

fn start(data: &Path, client_ca_file: Option<&Path>) -> Server {
    Server::start(Keelson::builder().no_controllers().data_dir(data).with(|builder| {
        builder.authentication.client_ca_file = client_ca_file.map(Path::to_owned);
        builder.serving.certificate_check_interval = Duration::from_millis(20);
    }))
}

pub const HOUR: Duration = Duration::from_secs(3_600);

#[test]
fn an_expired_certificate_is_rejected_on_an_open_connection() {
    let data = tempfile::tempdir().expect("a folder");
    let server = start(data.path(), None);
    let short = client(&own_authority(data.path()), "short", Duration::from_secs(3));
    let mut stream = connect(&server, short);
    assert_eq!(get_status(&mut stream), 200);
    wait_for(401, || get_status(&mut stream));
    server.stop();
}

#[test]
fn a_client_ca_file_replaces_the_own_authority_except_for_the_administrator() {
    let data = tempfile::tempdir().expect("a folder");
    let file = data.path().join("clients.pem");
    let (pem, given) = authority("given");
    std::fs::write(&file, pem).expect("a file");
    let server = start(data.path(), Some(&file));
    let own = own_authority(data.path());
    let code = |authority: &Issuer<'_, KeyPair>, name: &str| {
        get_status(&mut connect(&server, client(authority, name, HOUR)))
    };
    assert_eq!(code(&given, "somebody"), 200);
    assert_eq!(code(&own, "somebody"), 401);
    assert_eq!(code(&own, "kubernetes-admin"), 200);
    server.stop();
}

#[test]
fn a_changed_client_ca_file_applies_to_open_connections() {
    let data = tempfile::tempdir().expect("a folder");
    let file = data.path().join("clients.pem");
    let (first, before) = authority("first");
    let (second, after) = authority("second");
    std::fs::write(&file, first).expect("a file");
    let server = start(data.path(), Some(&file));
    let mut old = connect(&server, client(&before, "a", HOUR));
    let mut new = connect(&server, client(&after, "b", HOUR));
    assert_eq!((get_status(&mut old), get_status(&mut new)), (200, 401));
    // An unreadable file is ignored.
    std::fs::write(&file, "no certificate").expect("a file");
    assert_eq!(get_status(&mut old), 200);
    std::fs::write(&file, second).expect("a file");
    wait_for(401, || get_status(&mut old));
    wait_for(200, || get_status(&mut new));
    server.stop();
}

/// Notes the authorities that a server names in handshakes, and presents no certificate.
#[derive(Debug, Default)]
struct Noted(Mutex<Vec<Vec<u8>>>);

impl ResolvesClientCert for Noted {
    fn resolve(&self, names: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        *self.0.lock().expect("a lock") = names.iter().map(|name| name.to_vec()).collect();
        None
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Clients with several certificates choose by these names; a browser asks for one of them.
#[test]
fn handshakes_name_the_authorities_of_client_certificates() {
    let data = tempfile::tempdir().expect("a folder");
    let file = data.path().join("clients.pem");
    let (first, _) = authority("first");
    let (second, _) = authority("second");
    std::fs::write(&file, first).expect("a file");
    let server = start(data.path(), Some(&file));
    let named = |name: &str| {
        let noted = Arc::new(Noted::default());
        let config = tls_client(authorities(server.keelson.kubeconfig().text()))
            .with_client_cert_resolver(noted.clone());
        let mut stream = secure(server.keelson.address(), &Arc::new(config)).expect("a connection");
        stream.conn.complete_io(&mut stream.sock).expect("a handshake");
        let names = noted.0.lock().expect("a lock");
        let has = |name: &str| {
            names.iter().any(|one| one.windows(name.len()).any(|part| part == name.as_bytes()))
        };
        // Also that of the administrator's certificate, which its own client chooses by.
        (has(name), has("keelson"), names.len())
    };
    assert_eq!(named("first"), (true, true, 2));
    std::fs::write(&file, second).expect("a file");
    wait_for((true, true, 2), || named("second"));
    assert_eq!(named("first"), (false, true, 2));
    server.stop();
}

#[test]
fn serving_certificates_are_reloaded_when_their_files_change() {
    let data = tempfile::tempdir().expect("a folder");
    let server = start(data.path(), None);
    let shown = || {
        let config = tls_client(authorities(server.keelson.kubeconfig().text()));
        let config = Arc::new(config.with_no_client_auth());
        let mut stream = secure(server.keelson.address(), &config).expect("a connection");
        stream.conn.complete_io(&mut stream.sock).expect("a handshake");
        stream.conn.peer_certificates().expect("a certificate")[0].clone().into_owned()
    };
    let before = shown();
    // As if it had been lost: a new one is created and served.
    std::fs::remove_file(data.path().join("pki/serving.crt")).expect("it was there");
    let deadline = Instant::now() + POLL_TIMEOUT;
    while shown() == before {
        assert!(Instant::now() < deadline, "the old certificate is still shown");
    }
    assert!(data.path().join("pki/serving.crt").exists());
    server.stop();
}

#[test]
fn directories_readable_by_others_are_made_private() {
    use std::os::unix::fs::PermissionsExt;
    let data = tempfile::tempdir().expect("a folder");
    for name in ["pki", "store"] {
        let dir = data.path().join(name);
        std::fs::create_dir(&dir).expect("a folder");
        std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).expect("a mode");
    }
    start(data.path(), None).stop();
    let records = data.path().join("store/records.redb");
    std::fs::set_permissions(&records, PermissionsExt::from_mode(0o644)).expect("a mode");
    start(data.path(), None).stop();
    let mode = |name: &str| {
        let found = std::fs::metadata(data.path().join(name)).expect("it is there");
        found.permissions().mode() & 0o777
    };
    assert_eq!((mode("pki"), mode("store")), (0o700, 0o700));
    assert_eq!((mode("pki/ca.key"), mode("store/records.redb")), (0o600, 0o600));
}
