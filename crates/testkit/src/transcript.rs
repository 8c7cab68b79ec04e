//! Transcripts: text files with requests and the recorded responses of a server. [`record`] writes
//! the responses of a server into a transcript; [`replay`] compares those of another server with
//! them.
//!
//! A file has a head of lines that begin with `#`, and cases that are separated by empty lines. A
//! case is a sequence of requests, each with its body on the next line:
//!
//! ```text
//! # Widgets that are refused.
//!
//! ensure POST /api/v1/namespaces
//! {"metadata":{"name":"n"}}
//!
//! first POST /api/v1/namespaces/n/configmaps
//! {"metadata":{"name":"a"}}
//! send PUT /api/v1/namespaces/n/configmaps/a?dryRun=All
//! {"metadata":{"name":"a","resourceVersion":"{stored}"},"immutable":1}
//! got 400
//! warning 299 - "what a Warning header says"
//! {"kind":"Status","message":"...","code":400}
//! last DELETE /api/v1/namespaces/n/configmaps/a
//! ```
//!
//! - `ensure` must succeed or conflict with an existing object (409), `first` must succeed, `last`
//!   cleans up. Only the response to `send` is recorded and compared.
//! - APPLY, MERGE, STRATEGIC and JSON are a PATCH with that media type.
//! - A second `got` is an alternative response: which of several errors a kube-apiserver reports
//!   may vary, because Go maps are unordered. Requests with `dryRun=All` are recorded several times
//!   to find alternatives.
//! - `{stored}` in a body is replaced by the last resourceVersion in a response of the case.
//! - Responses are stored in [normal form](normal). With the head line `#! any order`, the causes
//!   of a `Status` are sorted, and its message, which joins them, is left out.

pub mod differences;
pub mod normal;

use crate::api::Response;
use differences::differences;
use std::fmt::Write;

/// Responds to requests: a server, or a part of one in the process of a test.
pub trait Responder {
    /// Sends a request. The error is the message when there is no response.
    fn send(&mut self, request: &Request<'_>) -> Result<Response, String>;

    /// Returns whether a warning is compared; false for warnings that this part of a server never
    /// returns.
    fn compares_warning(&self, _warning: &str) -> bool {
        true
    }
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The HTTP method.
    pub method: &'a str,
    /// Path and query.
    pub path: &'a str,
    /// The media type of the body.
    pub media_type: &'static str,
    /// The body, or empty.
    pub body: &'a str,
}

/// The keyword of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Ensure,
    First,
    Send,
    Last,
}

const ROLES: [(&str, Role); 4] =
    [("ensure", Role::Ensure), ("first", Role::First), ("send", Role::Send), ("last", Role::Last)];

/// How often a dry run is sent to record its alternative responses. Go starts the iteration of a
/// small map at one of eight entries, so one in five thousand alternatives is missed.
const TRIES: usize = 64;
/// How often a dry run is sent that succeeds; it rarely has alternatives.
const TRIES_ON_SUCCESS: usize = 4;

/// Placeholder for the last resourceVersion.
const STORED: &str = "{stored}";

#[derive(Clone, Debug)]
struct Step {
    /// The line in the file, from 1.
    line: usize,
    role: Role,
    verb: String,
    path: String,
    body: String,
    /// The recorded alternative responses.
    want: Vec<Response>,
}

/// A file of cases.
#[derive(Clone, Debug, Default)]
pub struct Transcript {
    head: Vec<String>,
    cases: Vec<Vec<Step>>,
}

/// A request that failed, or whose response differs from the recorded one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The line of the request.
    pub line: usize,
    /// The request, and a line for each difference.
    pub text: String,
}

/// The result of a recording or a replay.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Number of responses that were recorded or compared.
    pub responses: usize,
    /// Failed requests and different responses.
    pub failures: Vec<Failure>,
}

impl Transcript {
    /// Parses a file. The error names the line.
    pub fn parse(text: &str) -> Result<Transcript, String> {
        let mut transcript = Transcript::default();
        let mut case: Vec<Step> = vec![];
        for (index, line) in text.lines().enumerate() {
            let line_number = index + 1;
            let error = |why: &str| format!("line {line_number}: {why}");
            if line.starts_with('#') && transcript.cases.is_empty() && case.is_empty() {
                transcript.head.push(line.to_owned());
            } else if line.is_empty() {
                transcript.cases.extend((!case.is_empty()).then(|| std::mem::take(&mut case)));
            } else if let Some(step) = Step::parse(line, line_number) {
                case.push(step.map_err(|why| error(&why))?);
            } else {
                let step = case.last_mut().ok_or_else(|| error("no request stands before it"))?;
                step.add_line(line).map_err(|why| error(&why))?;
            }
        }
        transcript.cases.extend((!case.is_empty()).then_some(case));
        Ok(transcript)
    }

    /// Returns the text of the file.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out: String = self.head.iter().map(|line| format!("{line}\n")).collect();
        for (index, case) in self.cases.iter().enumerate() {
            out.push_str(if index == 0 && self.head.is_empty() { "" } else { "\n" });
            case.iter().for_each(|step| step.write(&mut out));
        }
        out
    }

    fn is_any_order(&self) -> bool {
        self.head.iter().any(|line| line == "#! any order")
    }
}

impl Step {
    /// Parses the first line of a request; `None` if it is another line.
    fn parse(line: &str, number: usize) -> Option<Result<Step, String>> {
        let (word, rest) = line.split_once(' ')?;
        let (_, role) = ROLES.into_iter().find(|(name, _)| *name == word)?;
        let Some((verb, path)) = rest.split_once(' ') else {
            return Some(Err("a request is a verb and a path".to_owned()));
        };
        let verb = verb.to_owned();
        let path = path.to_owned();
        Some(Ok(Step { line: number, role, verb, path, body: String::new(), want: vec![] }))
    }

    /// Adds a line with the body or a part of the response.
    fn add_line(&mut self, line: &str) -> Result<(), String> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match (word, self.want.last_mut()) {
            ("got", _) if self.role == Role::Send => {
                let code = rest.parse().map_err(|_| "got no status code".to_owned())?;
                self.want.push(Response { code, ..Response::default() });
            }
            ("warning", Some(want)) => want.warnings.push(rest.to_owned()),
            (_, Some(want)) if want.body.is_null() => {
                want.body = serde_json::from_str(line).map_err(|why| why.to_string())?;
            }
            (_, None) if self.body.is_empty() => line.clone_into(&mut self.body),
            _ => return Err("neither a request, its body nor its answer".to_owned()),
        }
        Ok(())
    }

    fn write(&self, out: &mut String) {
        let (word, _) = ROLES.into_iter().find(|(_, role)| *role == self.role).unwrap_or(ROLES[0]);
        let mut put = |line: std::fmt::Arguments<'_>| {
            let _ = out.write_fmt(format_args!("{line}\n"));
        };
        put(format_args!("{word} {} {}", self.verb, self.path));
        if !self.body.is_empty() {
            put(format_args!("{}", self.body));
        }
        for want in &self.want {
            put(format_args!("got {}", want.code));
            want.warnings.iter().for_each(|warning| put(format_args!("warning {warning}")));
            if !want.body.is_null() {
                put(format_args!("{}", want.body));
            }
        }
    }

    /// Sends the request; updates `stored`, the last resourceVersion.
    fn send(&self, server: &mut dyn Responder, stored: &mut String) -> Result<Response, String> {
        let (method, media_type) = match self.verb.as_str() {
            "APPLY" => ("PATCH", "application/apply-patch+yaml"),
            "MERGE" => ("PATCH", "application/merge-patch+json"),
            "STRATEGIC" => ("PATCH", "application/strategic-merge-patch+json"),
            "JSON" => ("PATCH", "application/json-patch+json"),
            method => (method, "application/json"),
        };
        let body = self.body.replace(STORED, stored);
        let request = Request { method, path: &self.path, media_type, body: &body };
        let response = server.send(&request)?;
        if let Some(version) = response.body["metadata"]["resourceVersion"].as_str() {
            version.clone_into(stored);
        }
        let is_expected = match self.role {
            Role::Ensure => (200..300).contains(&response.code) || response.code == 409,
            Role::First => (200..300).contains(&response.code),
            Role::Send | Role::Last => true,
        };
        if is_expected {
            return Ok(response);
        }
        Err(format!("preparation failed with {}: {}", response.code, response.body["message"]))
    }
}

/// Sends all requests to a server and replaces the recorded responses. With failures, the
/// transcript is incomplete.
pub fn record(transcript: &mut Transcript, server: &mut dyn Responder) -> Outcome {
    let is_any_order = transcript.is_any_order();
    let mut outcome = Outcome::default();
    for case in &mut transcript.cases {
        case.iter_mut().for_each(|step| step.want.clear());
        run_case(case, server, &mut outcome, |step, stored, sent, server| {
            for count in 1.. {
                let got = normal::normalize(step.send(server, stored)?, sent, is_any_order);
                let tries = if got.code < 400 { TRIES_ON_SUCCESS } else { TRIES };
                if !step.want.contains(&got) {
                    step.want.push(got);
                }
                if count >= tries || !step.path.contains("dryRun=All") {
                    break;
                }
            }
            step.want.sort_by_key(|want| (want.code, want.body.to_string()));
            Ok(vec![])
        });
    }
    outcome
}

/// Sends all requests to a server and compares the responses with the recorded ones.
pub fn replay(transcript: &Transcript, server: &mut dyn Responder) -> Outcome {
    let is_any_order = transcript.is_any_order();
    let mut outcome = Outcome::default();
    for case in &transcript.cases {
        run_case(&mut case.clone(), server, &mut outcome, |step, stored, sent, server| {
            let mut got = normal::normalize(step.send(server, stored)?, sent, is_any_order);
            got.warnings.retain(|warning| server.compares_warning(warning));
            let found = step.want.iter().map(|want| {
                let mut want = want.clone();
                want.warnings.retain(|warning| server.compares_warning(warning));
                differences(&want, &got)
            });
            found.min_by_key(Vec::len).ok_or_else(|| "no response is recorded".to_owned())
        });
    }
    outcome
}

/// Sends the requests of a case. `send` requests are sent by the closure, which returns the
/// differences; its arguments are the step, the last resourceVersion, the text of all requests, and
/// the server.
fn run_case(
    case: &mut [Step],
    server: &mut dyn Responder,
    outcome: &mut Outcome,
    send_and_check: impl Fn(
        &mut Step,
        &mut String,
        &str,
        &mut dyn Responder,
    ) -> Result<Vec<String>, String>,
) {
    let sent: String = case.iter().map(|step| format!("{} {}\n", step.path, step.body)).collect();
    let mut stored = String::new();
    let mut is_ready = true;
    for step in case {
        // After a failed preparation, only cleaning up makes sense.
        if !is_ready && step.role != Role::Last {
            continue;
        }
        let result = match step.role {
            Role::Send => send_and_check(step, &mut stored, &sent, server),
            Role::Last => {
                // The object may be deleted already.
                let _ = step.send(server, &mut stored);
                Ok(vec![])
            }
            Role::Ensure | Role::First => step.send(server, &mut stored).map(|_| vec![]),
        };
        outcome.responses += usize::from(step.role == Role::Send);
        let differences = result.unwrap_or_else(|why| {
            is_ready = false;
            vec![why]
        });
        if !differences.is_empty() {
            let request = format!("{} {} {}", step.verb, step.path, step.body);
            let text = format!("{request}\n  {}", differences.join("\n  "));
            outcome.failures.push(Failure { line: step.line, text });
        }
    }
}

#[cfg(test)]
mod tests;
