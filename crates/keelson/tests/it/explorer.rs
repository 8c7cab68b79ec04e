//! The explorer beside the API: its files are served without credentials, and only if that is
//! wanted.

use crate::http::{Client, Server};
use keelson::Keelson;
use serde_json::json;
use std::io::Read;

/// Sends a request without credentials and returns the whole response in lower case.
fn anonymous(client: &Client, line: &str) -> String {
    let request = format!("{line} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let mut text = vec![];
    client.write(request.as_bytes()).read_to_end(&mut text).expect("a response");
    String::from_utf8_lossy(&text).to_ascii_lowercase()
}

#[test]
fn the_explorer_is_served_only_if_wanted() {
    let bare = || Keelson::builder().in_memory().no_controllers();
    let index = |client: &Client| client.get("/").body["paths"].to_string();

    let server = Server::start_plain(bare().explorer());
    let client = server.client();
    let page = anonymous(&client, "GET /ui/");
    assert!(page.starts_with("http/1.1 200 ok\r\n"), "{page}");
    assert!(page.contains("\r\ncontent-security-policy: default-src 'none'; "), "{page}");
    assert!(page.contains("<!doctype html>"), "{page}");
    let script = anonymous(&client, "GET /ui/js/main.js");
    assert!(script.contains("\r\ncontent-type: text/javascript; charset=utf-8\r\n"), "{script}");
    assert!(anonymous(&client, "GET /ui/none").starts_with("http/1.1 404 "));
    assert!(anonymous(&client, "POST /ui/").starts_with("http/1.1 405 "));
    // Only the files: the API wants credentials as before.
    assert!(anonymous(&client, "GET /api/v1/secrets").starts_with("http/1.1 403 "));
    assert!(index(&client).contains("\"/ui/\""));
    // The playground reads nothing, but it computes: it wants a right.
    assert!(anonymous(&client, "POST /keelson/cel").starts_with("http/1.1 403 "));
    let asked = json!({"expression": "object.a + 1", "object": {"a": 1}});
    let evaluated = client.call("POST", "/keelson/cel", "application/json", Some(&asked));
    assert_eq!((evaluated.status, &evaluated.body["value"]), (200, &json!(2)), "{evaluated:?}");
    let empty = client.call("POST", "/keelson/cel", "application/json", Some(&json!({})));
    assert_eq!((empty.status, &empty.body["reason"]), (400, &json!("BadRequest")), "{empty:?}");
    server.stop();

    let server = Server::start_plain(bare());
    let client = server.client();
    assert!(anonymous(&client, "GET /ui/").starts_with("http/1.1 403 "));
    assert_eq!(client.get("/ui/").status, 404);
    let absent = client.call("POST", "/keelson/cel", "application/json", Some(&asked));
    assert_eq!(absent.status, 404, "{absent:?}");
    assert!(!index(&client).contains("/ui/"));
    server.stop();
}
