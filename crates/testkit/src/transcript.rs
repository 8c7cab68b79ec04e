//! Transcripts: requests in a text file, and beside each what a server answered. [`record`] asks a server and writes
//! the answers, [`replay`] asks another and tells the differences.
//!
//! A file has a head of lines that begin with `#`, then cases with an empty line between them. A case is a row of
//! requests, each with its body on a line of its own:
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
//! - `ensure` must succeed or find what it makes (409), `first` must succeed, `last` cleans up: of these no answer is
//!   kept. The answer to `send` is what the case is about.
//! - APPLY, MERGE, STRATEGIC and JSON are a PATCH with the media type of that name.
//! - A second `got` is an answer that was given as well: which of several faults is told may be chance, as Go's maps have
//!   no order. A recorder sends requests with `dryRun=All` several times to see.
//! - `{stored}` in a body is the resourceVersion of the last answer of the case that had one.
//! - Answers are kept in [the normal form](normal). A head line `#! any order` says that causes of refusals come in any
//!   order: then they are sorted, and the message that joins them is left out.

pub mod differences;
pub mod normal;

use differences::differences;
use serde_json::Value;
use std::fmt::Write;

/// Who answers requests: a server, or a part of one in the process of a test.
pub trait Answers {
    /// What a request is answered.
    fn ask(&mut self, request: &Request<'_>) -> Result<Reply, String>;

    /// Whether a warning is one that it would give; others are not compared.
    fn gives_warning(&self, _warning: &str) -> bool {
        true
    }
}

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// POST, PATCH and so on.
    pub method: &'a str,
    /// With the query.
    pub path: &'a str,
    /// Of the body.
    pub media_type: &'static str,
    /// Empty: none.
    pub body: &'a str,
}

/// What came back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// Status code.
    pub code: u16,
    /// The values of Warning headers.
    pub warnings: Vec<String>,
    /// Null where it is no JSON.
    pub body: Value,
}

/// What is done with the answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Ensure,
    First,
    Send,
    Last,
}

const ROLES: [(&str, Role); 4] =
    [("ensure", Role::Ensure), ("first", Role::First), ("send", Role::Send), ("last", Role::Last)];

/// How often a request that changes nothing is sent when it is recorded. Go begins at one of eight places of a small
/// map: what is told only from there is missed by one in five thousand.
const TRIES: usize = 64;
/// The same of one that is not refused: of faults there is no choice.
const TRIES_TAKEN: usize = 4;

/// Stands for the version under which an object was stored.
const STORED: &str = "{stored}";

#[derive(Clone, Debug)]
struct Step {
    /// Its line in the file, from 1.
    line: usize,
    role: Role,
    verb: String,
    path: String,
    body: String,
    /// The answers that were given, one of them each time.
    want: Vec<Reply>,
}

/// A file of cases.
#[derive(Clone, Debug, Default)]
pub struct Transcript {
    head: Vec<String>,
    cases: Vec<Vec<Step>>,
}

/// An answer that is not the recorded one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The line of the request.
    pub line: usize,
    /// Request, then one line for each difference.
    pub text: String,
}

/// What came of a replay.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// How many answers were compared.
    pub answers: usize,
    /// Those that differ.
    pub faults: Vec<Fault>,
}

impl Transcript {
    /// Reads a file.
    pub fn parse(text: &str) -> Result<Transcript, String> {
        let mut read = Transcript::default();
        let mut case: Vec<Step> = vec![];
        for (index, line) in text.lines().enumerate() {
            let line_number = index + 1;
            let fault = |why: &str| format!("line {line_number}: {why}");
            if line.starts_with('#') && read.cases.is_empty() && case.is_empty() {
                read.head.push(line.to_owned());
            } else if line.is_empty() {
                read.cases.extend((!case.is_empty()).then(|| std::mem::take(&mut case)));
            } else if let Some(step) = Step::parse(line, line_number) {
                case.push(step.map_err(|why| fault(&why))?);
            } else {
                let step = case.last_mut().ok_or_else(|| fault("no request stands before it"))?;
                step.take(line).map_err(|why| fault(&why))?;
            }
        }
        read.cases.extend((!case.is_empty()).then_some(case));
        Ok(read)
    }

    /// The file: what [`Transcript::parse`] has read, to the byte.
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
    /// A line that begins a request.
    fn parse(line: &str, number: usize) -> Option<Result<Step, String>> {
        let (word, rest) = line.split_once(' ')?;
        let (_, role) = ROLES.into_iter().find(|(name, _)| *name == word)?;
        let Some((verb, path)) = rest.split_once(' ') else {
            return Some(Err("a request is a verb and a path".to_owned()));
        };
        let (verb, path) = (verb.to_owned(), path.to_owned());
        Some(Ok(Step { line: number, role, verb, path, body: String::new(), want: vec![] }))
    }

    /// Takes a line that belongs to it: its body, or a part of the answer.
    fn take(&mut self, line: &str) -> Result<(), String> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match (word, self.want.last_mut()) {
            ("got", _) if self.role == Role::Send => {
                let code = rest.parse().map_err(|_| "got no status code".to_owned())?;
                self.want.push(Reply { code, ..Reply::default() });
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

    /// Sends it, with the version that is stored.
    fn ask(&self, server: &mut dyn Answers, stored: &mut String) -> Result<Reply, String> {
        let (method, media_type) = match self.verb.as_str() {
            "APPLY" => ("PATCH", "application/apply-patch+yaml"),
            "MERGE" => ("PATCH", "application/merge-patch+json"),
            "STRATEGIC" => ("PATCH", "application/strategic-merge-patch+json"),
            "JSON" => ("PATCH", "application/json-patch+json"),
            method => (method, "application/json"),
        };
        let body = self.body.replace(STORED, stored);
        let reply = server.ask(&Request { method, path: &self.path, media_type, body: &body })?;
        if let Some(version) = reply.body["metadata"]["resourceVersion"].as_str() {
            version.clone_into(stored);
        }
        let is_ready = match self.role {
            Role::Ensure => (200..300).contains(&reply.code) || reply.code == 409,
            Role::First => (200..300).contains(&reply.code),
            Role::Send | Role::Last => true,
        };
        if is_ready {
            return Ok(reply);
        }
        Err(format!("what goes before was answered {}: {}", reply.code, reply.body["message"]))
    }
}

/// Asks a server all requests, and keeps what it answers. What goes wrong is told by line; the transcript is then no
/// recording of the server.
pub fn record(transcript: &mut Transcript, server: &mut dyn Answers) -> Outcome {
    let is_any_order = transcript.is_any_order();
    let mut outcome = Outcome::default();
    for case in &mut transcript.cases {
        case.iter_mut().for_each(|step| step.want.clear());
        walk(case, server, &mut outcome, |step, stored, sent, server| {
            for tried in 1.. {
                let got = normal::normal(step.ask(server, stored)?, sent, is_any_order);
                let tries = if got.code < 400 { TRIES_TAKEN } else { TRIES };
                if !step.want.contains(&got) {
                    step.want.push(got);
                }
                if tried >= tries || !step.path.contains("dryRun=All") {
                    break;
                }
            }
            step.want.sort_by_key(|want| (want.code, want.body.to_string()));
            Ok(vec![])
        });
    }
    outcome
}

/// Asks a server all requests, and compares what it answers.
pub fn replay(transcript: &Transcript, server: &mut dyn Answers) -> Outcome {
    let is_any_order = transcript.is_any_order();
    let mut outcome = Outcome::default();
    for case in &transcript.cases {
        walk(&mut case.clone(), server, &mut outcome, |step, stored, sent, server| {
            let mut got = normal::normal(step.ask(server, stored)?, sent, is_any_order);
            got.warnings.retain(|warning| server.gives_warning(warning));
            let found = step.want.iter().map(|want| {
                let mut want = want.clone();
                want.warnings.retain(|warning| server.gives_warning(warning));
                differences(&want, &got)
            });
            found.min_by_key(Vec::len).ok_or_else(|| "no answer is recorded".to_owned())
        });
    }
    outcome
}

/// Sends the requests of a case. `judge` sends those whose answers count: it is handed the version that is stored
/// and the texts of all requests.
fn walk(
    case: &mut [Step],
    server: &mut dyn Answers,
    outcome: &mut Outcome,
    judge: impl Fn(&mut Step, &mut String, &str, &mut dyn Answers) -> Result<Vec<String>, String>,
) {
    let sent: String = case.iter().map(|step| format!("{} {}\n", step.path, step.body)).collect();
    let (mut stored, mut is_ready) = (String::new(), true);
    for step in case {
        // Without what goes before, only cleaning up has a sense.
        if !is_ready && step.role != Role::Last {
            continue;
        }
        let asked = match step.role {
            Role::Send => judge(step, &mut stored, &sent, server),
            Role::Last => {
                // What is gone already needs no cleaning up.
                let _ = step.ask(server, &mut stored);
                Ok(vec![])
            }
            Role::Ensure | Role::First => step.ask(server, &mut stored).map(|_| vec![]),
        };
        outcome.answers += usize::from(step.role == Role::Send);
        let faults = asked.unwrap_or_else(|why| {
            is_ready = false;
            vec![why]
        });
        if !faults.is_empty() {
            let request = format!("{} {} {}", step.verb, step.path, step.body);
            let text = format!("{request}\n  {}", faults.join("\n  "));
            outcome.faults.push(Fault { line: step.line, text });
        }
    }
}

#[cfg(test)]
mod tests;
