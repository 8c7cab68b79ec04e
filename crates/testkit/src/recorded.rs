//! Requests whose responses are compared with those that a kube-apiserver 1.36 gave.
//!
//! `KEELSON_RECORD=https://ADDRESS:PORT,TOKEN` sends the requests to a kube-apiserver instead, as
//! the administrator (`system:masters`) with that token, and writes its responses to the files.

use crate::api::{Api, Response};
use crate::http::POLL_TIMEOUT;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The token of the administrator `admin` with the uid `admin-uid`, in `system:masters`.
pub const TOKEN: &str = "admintoken";

/// The server that requests are sent to.
pub struct Recorded {
    api: Api,
    /// The folder of the recordings.
    files: PathBuf,
    /// Stops the server of the test; `None`: a kube-apiserver is being recorded.
    stop: Option<Stop>,
}

/// Stops a server.
pub type Stop = Box<dyn FnOnce()>;

impl Recorded {
    /// Starts a server over TLS that knows [`TOKEN`], or connects to the kube-apiserver to be
    /// recorded. `files` is the folder of the recordings.
    pub fn start(files: &Path, start: impl FnOnce() -> (SocketAddr, Stop)) -> Recorded {
        let files = files.to_owned();
        if let Ok(given) = std::env::var("KEELSON_RECORD") {
            let (url, token) = given.split_once(',').expect("URL,TOKEN");
            let address = url.strip_prefix("https://").expect("https://ADDRESS:PORT");
            let address = address.parse().expect("ADDRESS:PORT");
            let api = Api::unchecked(address, Some(token.to_owned())).expect("a client");
            return Recorded { api, files, stop: None };
        }
        let (address, stop) = start();
        let api = Api::unchecked(address, Some(TOKEN.to_owned())).expect("a client");
        Recorded { api, files, stop: Some(stop) }
    }

    /// Sends a request.
    pub fn send(&self, method: &str, path: &str, media: &str, body: &str) -> Response {
        let response = self.api.send_text(method, path, media, body);
        response.unwrap_or_else(|why| panic!("{method} {path} {body}: {why}"))
    }

    /// Sends a request with more header lines.
    pub fn send_with(&self, method: &str, path: &str, headers: &str, body: &str) -> Response {
        let response = self.api.send_with(method, path, headers, body);
        response.unwrap_or_else(|why| panic!("{method} {path} {body}: {why}"))
    }

    /// Sends a request that prepares a case: it may fail because the object exists, or does not.
    pub fn prepare(&self, method: &str, path: &str, body: &Value) {
        let media = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let response = self.send(method, path, media, &body);
        let is_prepared = response.is_ok() || matches!(response.code, 404 | 409);
        assert!(is_prepared, "{method} {path} {body}: {response:?}");
    }

    /// Waits until a collection of custom resources is served.
    pub fn wait_until_served(&self, path: &str) {
        self.wait_until(path, |_| true);
    }

    /// Waits until an object or a list is served and as wanted.
    pub fn wait_until(&self, path: &str, is_as_wanted: impl Fn(&Value) -> bool) {
        let until = Instant::now() + POLL_TIMEOUT;
        loop {
            let response = self.send("GET", path, "application/json", "");
            if response.is_ok() && is_as_wanted(&response.body) {
                return;
            }
            assert!(Instant::now() < until, "{path}: {response:?}");
            std::thread::yield_now();
        }
    }

    /// Defines the resource `widgets` of a group, with status and scale, and creates the widget `o`
    /// of one replica in a namespace.
    pub fn define_widgets(&self, group: &str, namespace: &str) {
        let definition = json!({"metadata": {"name": format!("widgets.{group}")}, "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.replicas",
                    "statusReplicasPath": ".status.replicas"}},
                "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        self.prepare("POST", definitions, &definition);
        let widgets = format!("/apis/{group}/v1/namespaces/{namespace}/widgets");
        self.wait_until_served(&widgets);
        let widget = json!({"apiVersion": format!("{group}/v1"), "kind": "Widget",
            "metadata": {"name": "o"}, "spec": {"replicas": 1}});
        self.prepare("POST", &widgets, &widget);
    }

    /// Compares the lines with a file, or writes the file. Ends the server.
    #[track_caller]
    pub fn end(self, file: &str, lines: &[String]) {
        let path = self.files.join(file);
        let Some(stop) = self.stop else {
            return std::fs::write(path, lines.join("\n") + "\n").expect("a recording");
        };
        stop();
        let recording = std::fs::read_to_string(path).expect("a recording");
        let recorded: Vec<&str> = recording.lines().collect();
        let differs = |(have, want): &(&String, &&str)| have.as_str() != **want;
        let pairs = lines.iter().zip(&recorded).filter(differs);
        let faults: Vec<String> =
            pairs.map(|(have, want)| format!("have {have}\nwant {want}")).collect();
        let count = faults.len();
        let of = lines.len();
        assert!(faults.is_empty(), "{count} of {of} in {file} differ:\n{}", faults.join("\n\n"));
        assert_eq!(recorded.len(), lines.len(), "cases in {file}");
    }
}

/// Returns code, reason, message and causes of a response as one line, without what differs between
/// servers: uids, revisions, and places in the source of a kube-apiserver.
pub fn outcome(response: &Response) -> String {
    let mut status = &response.body;
    if status["type"] == "ERROR" {
        status = &status["object"];
    }
    if status["kind"] != "Status" || status["status"] == "Success" {
        return response.code.to_string();
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let causes: Vec<String> = status["details"]["causes"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|cause| format!("{}={}", text(&cause["field"]), text(&cause["reason"])))
        .collect();
    let line = format!(
        "{} {} {:?} [{}]",
        response.code,
        text(&status["reason"]),
        text(&status["message"]),
        causes.join(",")
    );
    without_source(&without_generated(&line))
}

/// Replaces uids, and the revisions after the words that precede them in messages.
pub fn without_generated(line: &str) -> String {
    const WORDS: [&str; 3] = ["current: ", "in record (", "in object meta: "];
    let is_uid = |text: &str| {
        text.len() >= 36
            && text.bytes().take(36).enumerate().all(|(at, byte)| match at {
                8 | 13 | 18 | 23 => byte == b'-',
                _ => byte.is_ascii_hexdigit(),
            })
    };
    let mut out = String::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        if is_uid(rest) {
            out.push_str("<uid>");
            rest = &rest[36..];
        } else if first.is_ascii_digit() && WORDS.iter().any(|word| out.ends_with(word)) {
            out.push_str("<version>");
            rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        } else {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    out
}

/// Replaces the name of a scheme, which is a place in the source.
fn without_source(line: &str) -> String {
    const SCHEME: &str = "in scheme \\\"";
    let Some((before, after)) = line.split_once(SCHEME) else { return line.to_owned() };
    let after = after.split_once("\\\"").map_or("", |(_, after)| after);
    format!("{before}in scheme <source>{after}")
}
