//! What must not stand in the log, however much is logged (CVE-2019-11250, CVE-2020-8564 to 8566).

use crate::connection::{authorities, secure, tls_client};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Stands in everything that is secret here.
const PLANTED: &str = "planted";
/// The same in base64, as the data of Secrets is written.
const PLANTED_BASE64: &str = "cGxhbnRlZ";

/// Requests with secrets in every place where clients put them.
fn requests() -> Vec<String> {
    let secrets = "/api/v1/namespaces/default/secrets";
    let send = |line: &str, headers: &str, body: &str| {
        let length = body.len();
        format!(
            "{line} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{headers}Content-Type: \
             application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
    };
    let admin = "Authorization: Bearer planted-token\r\n";
    let secret = r#"{"metadata":{"name":"s"},"stringData":{"password":"planted-password"}}"#;
    let broken = r#"{"metadata":{"name":"s"},"stringData":{"password":"planted-password"#;
    let wrong = r#"{"metadata":{"name":"s","labels":{"a":7}},"data":{"p":"planted?"}}"#;
    let protocol = "Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.cGxhbnRlZA\r\n";
    vec![
        send(&format!("POST {secrets}"), admin, secret),
        send(&format!("GET {secrets}/s"), admin, ""),
        send(&format!("POST {secrets}"), admin, broken),
        send(&format!("POST {secrets}"), admin, wrong),
        send(&format!("PUT {secrets}/s"), admin, secret),
        send(&format!("GET {secrets}"), "Authorization: Bearer planted-wrong-token\r\n", ""),
        send(&format!("GET {secrets}"), "Authorization: Basic planted\r\n", ""),
        send(&format!("GET {secrets}"), "Authorization: Bearer planted-\u{fc}\r\n", ""),
        send(&format!("GET {secrets}"), protocol, ""),
        send(&format!("DELETE {secrets}/s"), admin, ""),
    ]
}

#[test]
fn no_secret_reaches_the_log_at_the_highest_verbosity() {
    let dir = tempfile::tempdir().expect("a folder");
    let tokens = dir.path().join("tokens.csv");
    std::fs::write(&tokens, "planted-token,admin,u,\"system:masters\"\n").expect("a token file");
    let mut child = Command::new(env!("CARGO_BIN_EXE_keelson"))
        .args(["serve", "-v=6", "--secure-port=0", "--bind-address=127.0.0.1", "--data-dir"])
        .arg(dir.path())
        .arg("--token-auth-file")
        .arg(tokens)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the server starts");
    let mut stderr = child.stderr.take().expect("a log");
    let log = std::thread::spawn(move || {
        let mut log = vec![];
        stderr.read_to_end(&mut log).map(|_| log)
    });
    let banner = BufReader::new(child.stdout.take().expect("a banner")).lines();
    let address: SocketAddr = banner
        .map_while(Result::ok)
        .find_map(|line| line.split_once("https://")?.1.split(' ').next()?.parse().ok())
        .expect("the banner says where");
    let kubeconfig = std::fs::read_to_string(dir.path().join("admin.kubeconfig"));
    let roots = authorities(&kubeconfig.expect("a kubeconfig"));
    let tls = Arc::new(tls_client(roots).with_no_client_auth());
    let codes = requests().into_iter().map(|request| {
        let mut stream = secure(address, &tls).expect("a connection");
        stream.write_all(request.as_bytes()).expect("the request goes out");
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).expect("an answer");
        line.split(' ').nth(1).unwrap_or_default().to_owned()
    });
    let codes: Vec<String> = codes.collect();
    assert_eq!(codes, ["201", "200", "400", "400", "200", "401", "403", "401", "401", "200"]);
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    let log = log.join().expect("the thread ends").expect("the log can be read");
    let log = String::from_utf8_lossy(&log);
    assert!(log.contains("TRACE") || log.contains("DEBUG"), "nothing was logged: {log}");
    for line in log.lines() {
        assert!(!line.contains(PLANTED) && !line.contains(PLANTED_BASE64), "{line}");
    }
}
