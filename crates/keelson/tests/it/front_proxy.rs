//! Users in headers of an authenticating proxy.

use crate::certificates::{HOUR, Stream, authority, client, client_files, connect, wait_for};
use crate::http::{POLL_TIMEOUT, Server};
use keelson::{Builder, FrontProxyOptions, Keelson};
use keelson_auth::FrontProxy;
use keelson_egress::{Egress, Identity, Peer, Request, Trust};
use keelson_testkit::connection::{authorities, secure, tls_client};
use rcgen::{Issuer, KeyPair};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const MAP: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

pub fn options(file: &Path, allowed_names: &[&str]) -> FrontProxyOptions {
    let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let headers = FrontProxy {
        allowed_names: list(allowed_names),
        username_headers: list(&["X-Remote-User"]),
        uid_headers: list(&["X-Remote-Uid"]),
        group_headers: list(&["X-Remote-Group"]),
        extra_header_prefixes: list(&["X-Remote-Extra-"]),
    };
    FrontProxyOptions { client_ca_file: file.to_owned(), headers: Arc::new(headers) }
}

fn builder(data: &Path, proxies: &Path, allowed_names: &[&str]) -> Builder {
    Keelson::builder().no_controllers().data_dir(data).with(|builder| {
        builder.authentication.front_proxy = Some(options(proxies, allowed_names));
        builder.serving.certificate_check_interval = Duration::from_millis(20);
    })
}

/// Sends a request, with `{}` as the body of a POST. Returns the status code and the body.
fn send_empty(stream: &mut Stream, method: &str, path: &str, headers: &str) -> (u16, Value) {
    send(stream, method, path, headers, if method == "POST" { "{}" } else { "" })
}

/// Sends a request with headers and a body. Returns the status code and the body.
pub fn send(
    stream: &mut Stream,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> (u16, Value) {
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n{headers}\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("the request goes out");
    let mut head = String::new();
    let mut byte = [0];
    while !head.ends_with("\r\n\r\n") {
        stream.read_exact(&mut byte).expect("an answer");
        head.push(char::from(byte[0]));
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length").then(|| value.parse::<usize>().ok())?
    });
    let mut body = vec![0; length.expect("a length")];
    stream.read_exact(&mut body).expect("a body");
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a code");
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

/// Returns the user that the server sees with these headers, or the status code of the error.
pub fn who(stream: &mut Stream, headers: &str) -> String {
    let (code, body) = send_empty(stream, "POST", REVIEWS, headers);
    let user = &body["status"]["userInfo"];
    match user["username"].as_str() {
        Some(name) => format!("{name} {}", user["groups"]),
        None => code.to_string(),
    }
}

#[test]
fn only_a_proxy_with_an_allowed_certificate_names_users() {
    let data = tempfile::tempdir().expect("a folder");
    let file = data.path().join("proxies.pem");
    let (pem, proxies) = authority("proxies");
    std::fs::write(&file, pem).expect("a file");
    let server = Server::start(builder(data.path(), &file, &["front"]));
    let check = |signer: &Issuer<'_, KeyPair>, name: &str, headers: &str, want: &str| {
        let mut stream = connect(&server, client(signer, name, HOUR));
        assert_eq!(who(&mut stream, headers), want, "{name} {headers}");
    };
    let user = "X-Remote-User: u\r\nX-Remote-Group: g\r\n";
    check(&proxies, "front", user, "u [\"g\",\"system:authenticated\"]");
    // Without a user header the request is not authenticated.
    check(&proxies, "front", "X-Remote-Group: system:masters\r\n", "401");
    check(&proxies, "other", user, "401");
    // Headers of other clients are ignored.
    let own = crate::certificates::own_authority(data.path());
    check(&own, "alice", user, "alice [\"system:masters\",\"system:authenticated\"]");
    let (_, stranger) = authority("proxies");
    check(&stranger, "front", user, "401");
    check(&proxies, "front", "X-Remote-User: \u{ff}\r\n", "\u{ff} [\"system:authenticated\"]");
    server.stop();
}

/// Headers of a user with so many groups.
fn groups(count: usize) -> String {
    let groups = (0..count).map(|number| format!("X-Remote-Group: group-{number}\r\n"));
    format!("X-Remote-User: u\r\n{}", groups.collect::<String>())
}

#[test]
fn a_user_may_have_thousands_of_groups() {
    let data = tempfile::tempdir().expect("a folder");
    let file = data.path().join("proxies.pem");
    let (pem, (certificate, key)) = client_files(data.path(), "front");
    std::fs::write(&file, pem).expect("a file");
    let server = Server::start(builder(data.path(), &file, &["front"]));
    let read = |path: &Path| Arc::<[u8]>::from(std::fs::read(path).expect("a file"));
    let address = server.keelson.address();
    let mut peer = Peer::new(address.ip().to_string(), address.port());
    peer.trust = Trust::Anyone;
    peer.identity = Some(Identity { chain: read(&certificate), key: read(&key) });
    let http2 = Egress::without_services().client(&peer).expect("a client");
    let by_http2 = |count: usize| {
        let mut headers = http::HeaderMap::new();
        for line in groups(count).lines() {
            let (name, value) = line.split_once(": ").expect("a header");
            let name = http::HeaderName::try_from(name).expect("a name");
            headers.append(name, value.parse().expect("a value"));
        }
        headers.insert("content-type", "application/json".parse().expect("a value"));
        let method = http::Method::POST;
        let request = Request { method, path: REVIEWS.to_owned(), headers, body: "{}".into() };
        let deadline = tokio::time::Instant::now() + POLL_TIMEOUT;
        server.block_on(http2.send(&request, 1 << 20, deadline)).expect("an answer")
    };
    let by_http1 = |count: usize| {
        let chain = CertificateDer::from_pem_file(&certificate).expect("a certificate");
        let key = PrivateKeyDer::from_pem_file(&key).expect("a key");
        let mut stream = connect(&server, (chain, key));
        send_empty(&mut stream, "POST", REVIEWS, &groups(count))
    };
    let mut all: Vec<String> = (0..5000).map(|number| format!("group-{number}")).collect();
    all.push("system:authenticated".to_owned());
    let seen = |body: &Value| body["status"]["userInfo"]["groups"].clone();
    for count in [99, 150, 5000] {
        let wanted = json!([&all[..count], &all[5000..]].concat());
        let (code, body) = by_http1(count);
        assert_eq!((code, seen(&body)), (201, wanted.clone()), "HTTP/1: {count}");
        let answer = by_http2(count);
        let body: Value = serde_json::from_slice(&answer.body).expect("JSON");
        assert_eq!((answer.status.as_u16(), seen(&body)), (201, wanted), "HTTP/2: {count}");
    }
    // Beyond the limit of lines, and beyond that of bytes.
    assert_eq!(by_http1_status(&server, &groups(7000)), 431);
    assert_eq!(by_http2(25_000).status.as_u16(), 431);
    server.stop();
}

/// Returns the status of the response to headers, of which the server may read a part only.
fn by_http1_status(server: &Server, headers: &str) -> u16 {
    let request = format!("POST {REVIEWS} HTTP/1.1\r\nHost: h\r\n{headers}\r\n");
    let config = tls_client(authorities(server.keelson.kubeconfig().text()));
    let config = config.with_no_client_auth();
    let mut stream = secure(server.keelson.address(), &Arc::new(config)).expect("a connection");
    let _ = stream.write_all(request.as_bytes());
    let mut line = [0; 12];
    stream.read_exact(&mut line).expect("a status line");
    std::str::from_utf8(&line[9..]).ok().and_then(|code| code.parse().ok()).expect("a status")
}

#[test]
fn a_client_ca_authenticates_proxies_only_with_allowed_names() {
    let data = tempfile::tempdir().expect("a folder");
    let file = data.path().join("ca.pem");
    let (pem, both) = authority("both");
    std::fs::write(&file, pem).expect("a file");
    let other = tempfile::tempdir().expect("a folder");
    let start = |data: &Path, names: &[&str]| {
        builder(data, &file, names)
            .with(|builder| builder.authentication.client_ca_file = Some(file.clone()))
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let refused =
        runtime.block_on(start(other.path(), &[]).start()).err().expect("a refusal").to_string();
    assert!(refused.contains("--requestheader-allowed-names must be specified"), "{refused}");
    let server = Server::start(start(data.path(), &["front"]));
    let who =
        |name: &str| who(&mut connect(&server, client(&both, name, HOUR)), "X-Remote-User: u\r\n");
    assert_eq!(who("front"), "u [\"system:authenticated\"]");
    assert_eq!(who("bob"), "bob [\"system:masters\",\"system:authenticated\"]");
    server.stop();
}

#[test]
fn a_changed_proxy_ca_file_applies_at_once_and_is_published() {
    let data = tempfile::tempdir().expect("a folder");
    let file = data.path().join("proxies.pem");
    let (first, before) = authority("first");
    let (second, after) = authority("second");
    std::fs::write(&file, &first).expect("a file");
    let trust = "cluster-authentication-trust-controller".to_owned();
    let server = Server::start(
        builder(data.path(), &file, &["front"])
            .with(|builder| builder.controllers.selected = vec![trust]),
    );
    let mut old = connect(&server, client(&before, "front", HOUR));
    let mut new = connect(&server, client(&after, "front", HOUR));
    let user = "X-Remote-User: u\r\n";
    let named = "u [\"system:authenticated\"]";
    assert_eq!((who(&mut old, user), who(&mut new, user)), (named.to_owned(), "401".to_owned()));
    // An unreadable file is ignored.
    std::fs::write(&file, "no certificate").expect("a file");
    assert_eq!(who(&mut old, user), named);
    std::fs::write(&file, &second).expect("a file");
    wait_for("401".to_owned(), || who(&mut old, user));
    wait_for(named.to_owned(), || who(&mut new, user));
    let own = crate::certificates::own_authority(data.path());
    let mut admin = connect(&server, client(&own, "admin", HOUR));
    let mut data = Value::Null;
    let tidy = |pem: &str| pem.replace("\r\n", "\n");
    wait_for(true, || {
        data = send_empty(&mut admin, "GET", MAP, "").1["data"].take();
        // Servers that share a store may trust different authorities, so none is removed.
        let bundle = data["requestheader-client-ca-file"].as_str().unwrap_or_default();
        [&first, &second].iter().all(|pem| bundle.contains(tidy(pem).trim()))
    });
    assert_eq!(data["requestheader-allowed-names"], json!("[\"front\"]"));
    assert_eq!(data["requestheader-username-headers"], json!("[\"X-Remote-User\"]"));
    assert_eq!(data["requestheader-uid-headers"], json!("[\"X-Remote-Uid\"]"));
    assert_eq!(data["requestheader-group-headers"], json!("[\"X-Remote-Group\"]"));
    assert_eq!(data["requestheader-extra-headers-prefix"], json!("[\"X-Remote-Extra-\"]"));
    server.stop();
}
