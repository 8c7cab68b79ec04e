//! Limits of connections that the process is given: by flags, and by the system.

use crate::admission::check_refused;
use keelson::Limits;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Instant;

/// File descriptors limit the connections, and some of them are reserved.
#[test]
fn a_process_with_few_file_descriptors_serves_its_administrator() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut server = Command::new("sh")
        .args(["-c", "ulimit -n 128; exec \"$0\" serve --secure-port=0 --data-dir=\"$1\""])
        .args([env!("CARGO_BIN_EXE_keelson"), &dir.path().display().to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the server starts");
    let mut line = String::new();
    let mut out = BufReader::new(server.stdout.take().expect("its output"));
    out.read_line(&mut line).expect("a line");
    let port = line.split("https://").nth(1).and_then(|rest| rest.split(' ').next());
    let address = port.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{line}"));
    // Half-open connections first, which count like all others.
    let crowd: Vec<TcpStream> = (0..300).filter_map(|_| TcpStream::connect(address).ok()).collect();
    let kubeconfig = dir.path().join("admin.kubeconfig");
    let began = Instant::now();
    let get_namespaces = || {
        keelson_testkit::connection::request_as_admin(&kubeconfig, address, "/api/v1/namespaces")
            .ok()
    };
    // Later connections may replace those that have not finished their handshake.
    let mut response = get_namespaces();
    while response.is_none() && began.elapsed() < Limits::default().handshake_timeout / 2 {
        response = get_namespaces();
    }
    let _ = server.kill();
    let _ = server.wait();
    assert_eq!(response.as_deref(), Some("HTTP/1.1 200 OK"));
    // It must be served before the handshakes of the others time out.
    assert!(began.elapsed() < Limits::default().handshake_timeout / 2);
    drop(crowd);
}

#[test]
fn limit_flag_errors_match_kube_apiserver() {
    let chance = "--goaway-chance can not be less than 0 or greater than 0.02";
    for given in ["--goaway-chance=0.03", "--goaway-chance=-1"] {
        check_refused(&[given], &[chance]);
    }
    for flag in ["--max-requests-inflight", "--max-mutating-requests-inflight"] {
        let why = format!("{flag} can not be negative value");
        check_refused(&[&format!("{flag}=-1")], &[&why]);
    }
}
