//! Transcripts of a server that echoes requests.

use super::{Request, Responder, Transcript, record, replay};
use crate::api::Response;
use serde_json::{Value, json};

const TEXT: &str = r##"# Two cases.

ensure POST /ns
{"metadata":{"name":"n"}}

first POST /a
{"z":1,"a":2}
send MERGE /a/x?dryRun=All
{"at":"2020-01-01T00:00:00Z","version":"{stored}"}
got 200
warning 299 - "w"
{"kind":"A","metadata":{"name":"x-<name>","generateName":"x-","resourceVersion":"<version>"}}
last DELETE /a/x
"##;

/// Responds with parts of the request.
struct Echo {
    serial: u64,
    requests: Vec<String>,
}

impl Responder for Echo {
    fn send(&mut self, request: &Request<'_>) -> Result<Response, String> {
        self.serial += 1;
        self.requests.push(format!("{} {} {}", request.method, request.path, request.body));
        let serial = self.serial;
        let sent: Value = serde_json::from_str(request.body).unwrap_or_default();
        let body = json!({
            "kind": "A", "sent": sent["at"], "own": "2026-11-23T20:00:00.25Z",
            "ref": format!("uid 00000000-0000-4000-8000-{serial:012} of x-abc{:02}", serial % 100),
            "metadata": {"name": format!("x-abc{:02}", serial % 100), "generateName": "x-",
                "resourceVersion": serial.to_string(), "uid": "u", "managedFields": [
                {"manager": "b", "time": "t"}, {"manager": "a"}]},
        });
        Ok(Response {
            code: 200,
            warnings: vec!["299 - \"w\"".to_owned()],
            body,
            ..Response::default()
        })
    }
}

fn echo(serial: u64) -> Echo {
    Echo { serial, requests: vec![] }
}

#[test]
fn a_transcript_round_trips() {
    let mut transcript = Transcript::parse(TEXT).expect("a transcript");
    // Members of responses are sorted, those of requests are not.
    let written = transcript.to_text();
    assert!(written.contains("{\"z\":1,\"a\":2}"), "{written}");
    assert_eq!(Transcript::parse(&written).expect("a transcript").to_text(), written);
    transcript.head.clear();
    assert!(transcript.to_text().starts_with("ensure"));
}

#[test]
fn two_recordings_are_identical_and_replay_without_failures() {
    let mut one = Transcript::parse(TEXT).expect("a transcript");
    let mut other = one.clone();
    let mut server = echo(7);
    assert_eq!(record(&mut one, &mut server).responses, 1);
    assert!(server.requests[2].ends_with("\"version\":\"9\"}"), "{:?}", server.requests);
    assert_eq!(server.requests.len(), 3 + super::TRIES_ON_SUCCESS, "{:?}", server.requests);
    record(&mut other, &mut echo(31));
    assert_eq!(one.to_text(), other.to_text());
    for part in [
        r#""sent":"2020-01-01T00:00:00Z""#,
        r#""own":"<time>""#,
        r#""ref":"uid <uid> of x-<name>""#,
        r#""managedFields":[{"manager":"a"},{"manager":"b","time":"<time>"}]"#,
    ] {
        assert!(one.to_text().contains(part), "{}", one.to_text());
    }
    let outcome = replay(&one, &mut echo(50));
    assert_eq!((outcome.responses, outcome.failures), (1, vec![]));
}

#[test]
fn a_difference_names_its_line_and_member() {
    let transcript = Transcript::parse(TEXT).expect("a transcript");
    let outcome = replay(&transcript, &mut echo(7));
    let failure = &outcome.failures[0];
    assert_eq!(failure.line, 8);
    assert!(failure.text.contains(".own: unexpected \"<time>\""), "{}", failure.text);
}

#[test]
fn parse_errors_name_the_line() {
    let check = |text: &str, want: &str| {
        assert_eq!(Transcript::parse(text).err().as_deref(), Some(want), "{text}");
    };
    check("{}", "line 1: no request stands before it");
    check("send POST", "line 1: a request is a verb and a path");
    check("send POST /a\n{}\ngot x", "line 3: got no status code");
    check("last POST /a\n{}\ngot 200", "line 3: neither a request, its body nor its answer");
}
