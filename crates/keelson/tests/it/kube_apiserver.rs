//! The program under the names kube-apiserver and etcd, and what flags of kube-apiserver change:
//! TLS, headers for browsers, privileged pods, the stop.

use crate::http::{POLL_TIMEOUT, Server as InProcess, without_controllers};
use crate::kill::Server;
use keelson::{BrowserOptions, CrossOrigins, NamedCertificate, TlsOptions};
use keelson_testkit::api::AnyCertificate;
use keelson_testkit::connection::{Connection, plain, secure, tls_client};
use rcgen::{CertificateParams, KeyPair};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Watches that are open at a stop.
const WATCHES: usize = 1000;
/// Most seconds that a stop with these watches may take on a busy machine.
const STOP_SECONDS_MAX: f64 = 5.0;

/// Writes a self-signed certificate for names, and its key. Returns the certificate.
fn certificate(dir: &Path, file: &str, names: &[&str]) -> String {
    let key = KeyPair::generate().expect("a key");
    let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let params = CertificateParams::new(names).expect("names");
    let certificate = params.self_signed(&key).expect("a certificate").pem();
    std::fs::write(dir.join(format!("{file}.crt")), &certificate).expect("a file");
    std::fs::write(dir.join(format!("{file}.key")), key.serialize_pem()).expect("a file");
    certificate
}

/// Returns a configuration that trusts a certificate.
fn trusting(certificate: &str) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(certificate.as_bytes()).expect("PEM"))
        .expect("a root");
    Arc::new(tls_client(roots).with_no_client_auth())
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

/// A process that is killed when it is dropped.
struct Process(Child);

impl Process {
    fn start(program: &Path, arguments: &[String]) -> Process {
        let child = Command::new(program).args(arguments).stdin(Stdio::null()).spawn();
        Process(child.expect("the program starts"))
    }

    /// Sends SIGTERM. Returns the exit status.
    fn terminate(mut self) -> Option<i32> {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").arg(&pid).status().expect("kill runs").success());
        self.0.wait().expect("it ends").code()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The programs that envtest starts, with the files that it lays down.
struct Environment {
    assets: PathBuf,
    dir: PathBuf,
    serving: String,
    etcd_port: u16,
}

impl Environment {
    fn new(dir: &Path) -> Environment {
        let assets = dir.join("assets");
        let made = Command::new(env!("CARGO_BIN_EXE_keelson"))
            .arg("envtest")
            .arg(&assets)
            .output()
            .expect("the command runs");
        let said = String::from_utf8_lossy(&made.stdout).into_owned();
        assert!(said.starts_with("export KUBEBUILDER_ASSETS="), "{said}");
        certificate(dir, "sa-signer", &["sa"]);
        certificate(dir, "client-cert-auth-ca", &["ca"]);
        let serving = certificate(dir, "apiserver", &["localhost", "127.0.0.1"]);
        std::fs::write(dir.join("tokens.csv"), "t,admin,u,\"system:masters\"\n").expect("a file");
        let etcd_port = free_port();
        Environment { assets, dir: dir.to_owned(), serving, etcd_port }
    }

    fn start_etcd(&self) -> Process {
        let url = format!("http://127.0.0.1:{}", self.etcd_port);
        let etcd = Process::start(
            &self.assets.join("etcd"),
            &[
                format!("--advertise-client-urls={url}"),
                format!("--data-dir={}", self.dir.join("etcd").display()),
                format!("--listen-client-urls={url}"),
                "--listen-peer-urls=http://localhost:0".to_owned(),
                "--unsafe-no-fsync=true".to_owned(),
            ],
        );
        let address = SocketAddr::from(([127, 0, 0, 1], self.etcd_port));
        let healthy = keelson_testkit::poll(POLL_TIMEOUT, || {
            let mut stream = TcpStream::connect(address).ok()?;
            // Else the answer ends when the connection has been idle for ten seconds.
            write!(stream, "GET /health HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).ok()?;
            answer.ends_with("{\"health\":\"true\",\"reason\":\"\"}").then_some(())
        });
        assert!(healthy.is_some(), "etcd is not healthy");
        etcd
    }

    /// Starts kube-apiserver as envtest does. Returns it and a connection.
    fn start_api_server(&self) -> (Process, Connection) {
        let port = free_port();
        let dir = self.dir.display();
        let server = Process::start(
            &self.assets.join("kube-apiserver"),
            &[
                "--allow-privileged=true".to_owned(),
                "--authorization-mode=RBAC".to_owned(),
                "--bind-address=127.0.0.1".to_owned(),
                format!("--cert-dir={dir}"),
                format!("--client-ca-file={dir}/client-cert-auth-ca.crt"),
                "--disable-admission-plugins=ServiceAccount".to_owned(),
                format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port),
                format!("--secure-port={port}"),
                format!("--service-account-issuer=https://127.0.0.1:{port}/"),
                format!("--service-account-key-file={dir}/sa-signer.crt"),
                format!("--service-account-signing-key-file={dir}/sa-signer.key"),
                "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
                format!("--token-auth-file={dir}/tokens.csv"),
            ],
        );
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        // The certificate in the folder is used: no other is trusted.
        let trust = trusting(&self.serving);
        let connect = || Some(Connection::over(secure(address, &trust).ok()?));
        let is_healthy = || (connect()?.status("/healthz").ok()? == 200).then_some(());
        assert!(keelson_testkit::poll(POLL_TIMEOUT, is_healthy).is_some(), "it does not start");
        (server, connect().expect("a connection"))
    }
}

#[test]
fn envtests_command_lines_start_a_server_that_keeps_its_objects() {
    let dir = tempfile::tempdir().expect("a folder");
    let environment = Environment::new(dir.path());
    let etcd = environment.start_etcd();
    let (server, mut connection) = environment.start_api_server();
    let map = json!({"metadata": {"name": "kept"}});
    let (code, made) =
        connection.call("POST", MAPS, "application/json", Some(&map)).expect("an answer");
    assert_eq!(code, 201, "{made}");
    let token = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let account = json!({"metadata": {"name": "default"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    // A control loop may have made it.
    connection.call("POST", accounts, "application/json", Some(&account)).expect("an answer");
    let request = json!({"spec": {"expirationSeconds": 3600}});
    let (code, issued) =
        connection.call("POST", token, "application/json", Some(&request)).expect("an answer");
    assert_eq!(code, 201, "{issued}");
    assert_eq!(server.terminate(), Some(0));
    let (server, connection) = environment.start_api_server();
    assert_eq!(connection.status(&format!("{MAPS}/kept")).expect("an answer"), 200);
    assert_eq!(server.terminate(), Some(0));
    assert_eq!(etcd.terminate(), Some(0));
    // The API server waits for etcd.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| environment.start_api_server());
        let etcd = environment.start_etcd();
        let (server, connection) = waiting.join().expect("it starts");
        assert_eq!(connection.status(&format!("{MAPS}/kept")).expect("an answer"), 200);
        assert_eq!(server.terminate(), Some(0));
        assert_eq!(etcd.terminate(), Some(0));
    });
}

#[test]
fn wrong_command_lines_end_with_the_status_and_words_of_kube_apiserver() {
    for (arguments, status, said) in [
        (&["--nope"][..], 1, "Error: unknown flag: --nope\n"),
        (&["word"], 1, "Error: \"kube-apiserver\" does not take any arguments, got [\"word\"]\n"),
        (
            &["--kubelet-port=x"],
            1,
            "Error: invalid argument \"x\" for \"--kubelet-port\" flag: strconv.ParseUint: parsing \
             \"x\": invalid syntax\n",
        ),
        (
            &["--logging-format=x"],
            1,
            "\"command failed\" err=\"format: Invalid value: \\\"x\\\": Unsupported log format\"\n",
        ),
        (
            &["--version=v1.37.0-mine"],
            1,
            "Error: invalid argument \"v1.37.0-mine\" for \"--version\" flag: version \
             \"v1.37.0-mine\" must match major/minor/patch of default version \"v1.36.2\"\n",
        ),
        (&["--version"], 0, ""),
        (&["--help"], 0, ""),
    ] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_keelson"));
        let output = program.arg("kube-apiserver").args(arguments).output().expect("it runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*stderr), (Some(status), said), "{arguments:?}");
        assert_eq!(output.stdout.is_empty(), status == 1, "{arguments:?}");
    }
}

/// Sends a request without TLS. Returns the response.
fn raw(address: SocketAddr, line: &str, headers: &str) -> String {
    let mut stream = plain(address).expect("a connection");
    write!(stream, "{line} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{headers}\r\n")
        .expect("a request");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    response
}

#[test]
fn browsers_get_their_headers() {
    let origins = CrossOrigins::new(&["//example\\.com(:|$)".to_owned()]).expect("an expression");
    let transport_security = Some("max-age=1; preload".to_owned());
    let browsers = BrowserOptions { origins, transport_security };
    let server = InProcess::start_plain(
        without_controllers().with(|builder| builder.serving.browsers = browsers),
    );
    let address = server.client().address;
    let allowed = "Origin: https://example.com\r\n";
    let other = "Origin: https://example.com.evil.test\r\n";
    // Without credentials: the browser asks before it sends them.
    let asked = raw(address, &format!("OPTIONS {MAPS}"), allowed);
    assert!(asked.starts_with("HTTP/1.1 204 "), "{asked}");
    let answered = raw(address, "GET /version", allowed);
    for response in [&asked, &answered] {
        for header in [
            "access-control-allow-origin: https://example.com\r\n",
            "access-control-allow-credentials: true\r\n",
            "access-control-expose-headers: Date\r\n",
            "strict-transport-security: max-age=1; preload\r\n",
        ] {
            assert!(response.contains(header), "{header}: {response}");
        }
    }
    let refused = raw(address, "GET /version", other);
    assert!(!refused.contains("access-control-allow-origin"), "{refused}");
    assert!(refused.contains("strict-transport-security"), "{refused}");
    server.stop();
}

/// `--version=v1.36.2-mine`, by which a distribution names its builds.
#[test]
fn the_version_is_reported_under_another_name() {
    let server = InProcess::start_plain(
        without_controllers()
            .with(|builder| builder.serving.reported_version = "v1.36.2-mine".into()),
    );
    let client = server.client();
    let version = client.get("/version").body;
    assert_eq!((&version["gitVersion"], &version["minor"]), (&json!("v1.36.2-mine"), &json!("36")));
    server.stop();
}

#[test]
fn the_external_host_name_is_in_the_url_of_the_token_keys() {
    let server = InProcess::start_plain(without_controllers().with(|builder| {
        builder.serving.external_host = Some("api.example.com".to_owned());
    }));
    let document = server.client().get("/.well-known/openid-configuration").body;
    let url = document["jwks_uri"].as_str().unwrap_or_default();
    assert!(url.starts_with("https://api.example.com:"), "{document}");
    server.stop();
}

#[test]
fn privileged_containers_are_forbidden_without_the_flag() {
    let server = InProcess::start_plain(
        without_controllers().with(|builder| builder.apis.allows_privileged = false),
    );
    let pod = |is_privileged: bool| {
        json!({"metadata": {"generateName": "p-"}, "spec": {"containers": [{
            "name": "c", "image": "i", "securityContext": {"privileged": is_privileged}
        }]}})
    };
    let client = server.client();
    let pods = "/api/v1/namespaces/default/pods";
    assert_eq!(client.post(pods, &pod(false)).status, 201);
    let refused = client.post(pods, &pod(true));
    let message = refused.body["message"].as_str().unwrap_or_default();
    let words =
        "spec.containers[0].securityContext.privileged: Forbidden: disallowed by cluster policy";
    assert!(refused.status == 422 && message.contains(words), "{refused:?}");
    server.stop();
}

/// Does a handshake for a host. Returns the certificate that the server presents and the protocol.
fn presented(
    address: SocketAddr,
    host: &str,
    mut config: ClientConfig,
) -> std::io::Result<(Vec<u8>, Option<Vec<u8>>)> {
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let name = ServerName::try_from(host.to_owned()).expect("a name");
    let session = ClientConnection::new(Arc::new(config), name).expect("a session");
    let mut stream = StreamOwned::new(session, plain(address)?);
    stream.conn.complete_io(&mut stream.sock)?;
    let certificate = stream
        .conn
        .peer_certificates()
        .and_then(|chain| chain.first())
        .map(|leaf| leaf.to_vec())
        .unwrap_or_default();
    Ok((certificate, stream.conn.alpn_protocol().map(<[u8]>::to_vec)))
}

#[test]
fn each_host_gets_its_certificate() {
    let dir = tempfile::tempdir().expect("a folder");
    let files = ["default", "wide", "exact", "own"];
    let names = [&["default.test"][..], &["wide.test"], &["exact.test"], &["own.test"]];
    let written = files.into_iter().zip(names).map(|(file, names)| {
        let text = certificate(dir.path(), file, names);
        let der = CertificateDer::from_pem_slice(text.as_bytes()).expect("PEM");
        (der.to_vec(), text)
    });
    let [default, wide, exact, own] =
        <[_; 4]>::try_from(written.collect::<Vec<_>>()).expect("four");
    let path = |file: &str, kind: &str| dir.path().join(format!("{file}.{kind}"));
    let named = |file: &str, names: &[&str]| NamedCertificate {
        certificate: path(file, "crt"),
        key: path(file, "key"),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
    };
    let builder = without_controllers().with(|builder| {
        builder.serving.tls_files = Some((path("default", "crt"), path("default", "key")));
        builder.serving.named_certificates = vec![
            named("wide", &["*.example.com"]),
            named("exact", &["a.example.com"]),
            named("own", &[]),
        ];
    });
    let server = InProcess::start(builder);
    let mut roots = RootCertStore::empty();
    for (der, _) in [&default, &wide, &exact, &own] {
        roots.add(der.clone().into()).expect("a root");
    }
    for (host, expected) in [
        ("b.example.com", &wide),
        ("A.example.com", &exact),
        ("own.test", &own),
        ("other.test", &default),
        ("a.b.example.com", &default),
    ] {
        // The name need not fit the certificate: only what is presented counts.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("versions")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
            .with_no_client_auth();
        let (got, _) = presented(server.client().address, host, config).expect("a handshake");
        assert_eq!(got, expected.0, "{host}");
    }
    server.stop();
}

#[test]
fn versions_and_protocols_can_be_restricted() {
    let dir = tempfile::tempdir().expect("a folder");
    let serving = certificate(dir.path(), "serving", &["serving.test"]);
    let mut tls_options = TlsOptions::new("VersionTLS13", &[], &[]).expect("options");
    tls_options.is_http1_only = true;
    let files = (dir.path().join("serving.crt"), dir.path().join("serving.key"));
    let builder = without_controllers().with(|builder| {
        builder.serving.tls_options = tls_options;
        builder.serving.tls_files = Some(files);
    });
    let server = InProcess::start(builder);
    let address = server.client().address;
    let config = |versions: &[&'static rustls::SupportedProtocolVersion]| {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from_pem_slice(serving.as_bytes()).expect("PEM");
        roots.add(root).expect("a root");
        ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth()
    };
    let old = presented(address, "serving.test", config(&[&rustls::version::TLS12]));
    assert!(old.is_err(), "TLS 1.2 is accepted");
    let new = presented(address, "serving.test", config(&[&rustls::version::TLS13]));
    assert_eq!(new.expect("a handshake").1.as_deref(), Some(&b"http/1.1"[..]));
    server.stop();
}

/// Sends a request whose body never ends, and waits until the server has begun it.
fn unfinished(server: &Server) -> impl Read + Write + use<> {
    let mut stream = server.open();
    let head = format!(
        "POST {MAPS} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer t\r\nContent-Type: \
         application/json\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("a request");
    stream.flush().expect("a request");
    let mut line = String::new();
    BufReader::new(&mut stream).read_line(&mut line).expect("a line");
    assert_eq!(line, "HTTP/1.1 100 Continue\r\n");
    stream
}

#[test]
fn requests_during_a_stop_are_told_to_try_again() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut server = Server::start_with_flags(dir.path(), &["--shutdown-send-retry-after"]);
    let _unfinished = unfinished(&server);
    server.signal("TERM");
    let refused = keelson_testkit::poll(POLL_TIMEOUT, || {
        let mut stream = server.open();
        write!(stream, "GET /version HTTP/1.1\r\nHost: h\r\n\r\n").ok()?;
        let mut response = String::new();
        // An end without close_notify is an error; the bytes before it are valid.
        let _ = stream.read_to_string(&mut response);
        response.starts_with("HTTP/1.1 429 ").then_some(response)
    });
    let refused = refused.expect("a refusal");
    assert!(refused.contains("retry-after: 5\r\n"), "{refused}");
    assert!(refused.contains("connection: close\r\n"), "{refused}");
    server.signal("TERM");
    assert_eq!(server.exit_status(), Some(1));
}

#[test]
fn during_the_delay_of_a_stop_requests_are_served_and_readyz_fails() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut server = Server::start_with_flags(dir.path(), &["--shutdown-delay-duration=1h"]);
    assert_eq!(server.connect().status("/readyz").expect("an answer"), 200);
    server.signal("TERM");
    let is_unready = || {
        let status = server.connect().status("/readyz").ok()?;
        (status == 500).then_some(())
    };
    assert!(keelson_testkit::poll(POLL_TIMEOUT, is_unready).is_some(), "it stays ready");
    assert_eq!(server.connect().status("/livez").expect("an answer"), 200);
    assert_eq!(server.connect().status(MAPS).expect("an answer"), 200);
    server.signal("TERM");
    assert_eq!(server.exit_status(), Some(1));
}

#[test]
fn a_thousand_watches_do_not_delay_a_stop() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut server = Server::start(dir.path());
    let watches: Vec<_> = (0..WATCHES)
        .map(|_| server.connect().watch(&format!("{MAPS}?watch=1")).expect("a watch"))
        .collect();
    // Idle connections, too.
    let idle: Vec<_> = (0..10).map(|_| server.open()).collect();
    let begun = Instant::now();
    server.signal("TERM");
    assert_eq!(server.exit_status(), Some(0));
    let took = begun.elapsed();
    println!("a stop with {WATCHES} watches took {} ms", took.as_millis());
    assert!(took.as_secs_f64() < STOP_SECONDS_MAX, "{took:?}");
    drop((watches, idle));
}
