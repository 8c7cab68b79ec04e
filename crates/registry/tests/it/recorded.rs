//! Compares responses to generated writes of every kind with those of a kube-apiserver 1.36 in
//! `files/*.transcript`. `cargo xtask record` and `cargo xtask replay` send the same requests to
//! running servers.

use crate::harness::Harness;
use keelson_meta::status::quote;
use keelson_schema::json;
use keelson_testkit::api::Response;
use keelson_testkit::transcript::{Request, Responder, Transcript, replay};
use tokio::runtime::Runtime;

/// A registry without an HTTP server.
struct InProcess {
    runtime: Runtime,
    harness: Harness,
}

impl Responder for InProcess {
    fn send(&mut self, request: &Request<'_>) -> Result<Response, String> {
        let Request { method, path, media_type, body } = *request;
        let asked = self.harness.send_with_warnings(method, path, media_type, body.as_bytes());
        let (code, answer, warnings) = self.runtime.block_on(asked).ok_or("no such path")?;
        let mut text = vec![];
        json::write_value(&answer, &mut text);
        let body = serde_json::from_slice(&text).map_err(|why| why.to_string())?;
        let warnings = warnings.iter().map(|text| format!("299 - {}", quote(text))).collect();
        Ok(Response { code, warnings, body, ..Response::default() })
    }

    /// Warnings about deprecated versions are added by the crate `server`.
    fn compares_warning(&self, warning: &str) -> bool {
        !warning.contains(" is deprecated in ")
    }
}

/// Checks that all responses equal the recorded ones, and their number.
fn check(text: &str, responses: usize) {
    let transcript = Transcript::parse(text).expect("a transcript");
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let harness = runtime.block_on(Harness::open());
    let outcome = replay(&transcript, &mut InProcess { runtime, harness });
    let failures = outcome.failures.iter();
    let failures: Vec<String> =
        failures.map(|failure| format!("line {}: {}", failure.line, failure.text)).collect();
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    assert_eq!(outcome.responses, responses);
}

#[test]
fn causes_of_generated_invalid_objects_match_upstream() {
    check(include_str!("files/refusals.transcript"), 801);
}

#[test]
fn stored_generated_objects_match_upstream() {
    check(include_str!("files/accepted.transcript"), 263);
}

#[test]
fn responses_to_odd_requests_match_upstream() {
    check(include_str!("files/others.transcript"), 339);
}
