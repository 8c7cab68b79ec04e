//! What SIGTERM does to a server process, and a second one.

use crate::kill::Server;
use std::io::{BufRead, BufReader, Write};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[test]
fn a_second_sigterm_ends_the_server_at_once_and_frees_its_data() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut server = Server::start(dir.path());
    let map = serde_json::json!({"metadata": {"name": "kept"}});
    let (code, _) =
        server.connect().call("POST", MAPS, "application/json", Some(&map)).expect("an answer");
    assert_eq!(code, 201);
    // A request in flight, for which the server waits: its body never ends.
    let mut unfinished = server.open();
    let head = format!(
        "POST {MAPS} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer t\r\n\
         Content-Type: application/json\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n"
    );
    unfinished.write_all(head.as_bytes()).expect("a request");
    unfinished.flush().expect("a request");
    let mut line = String::new();
    BufReader::new(&mut unfinished).read_line(&mut line).expect("a line");
    assert_eq!(line, "HTTP/1.1 100 Continue\r\n");
    let mut watch = server.connect().watch(&format!("{MAPS}?watch=1")).expect("a watch");
    assert_eq!(watch.next().expect("an event")["object"]["metadata"]["name"], "kept");
    server.signal("TERM");
    // The stop has begun when the watch ends.
    assert!(watch.next().is_err());
    server.signal("TERM");
    assert_eq!(server.exit_status(), Some(1));
    let restarted = Server::start(dir.path());
    let status = restarted.connect().status(&format!("{MAPS}/kept")).expect("an answer");
    assert_eq!(status, 200);
}

#[test]
fn sigterm_ends_an_idle_server_without_an_error() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut server = Server::start(dir.path());
    server.signal("TERM");
    assert_eq!(server.exit_status(), Some(0));
}
