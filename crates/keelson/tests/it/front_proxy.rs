//! Users in headers of an authenticating proxy.

use crate::certificates::{HOUR, Stream, authority, client, connect, wait_for};
use crate::http::Server;
use keelson::{Builder, FrontProxyOptions, Keelson};
use keelson_auth::FrontProxy;
use rcgen::{Issuer, KeyPair};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

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
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let (code, body) = send_empty(stream, "POST", path, headers);
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
    assert!(refused.contains("--requestheader-allowed-names must say"), "{refused}");
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
