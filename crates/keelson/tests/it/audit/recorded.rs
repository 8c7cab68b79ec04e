//! Compares the audit events of generated requests with those that a kube-apiserver 1.36 made.
//!
//! To record them: start a kube-apiserver with `--audit-policy-file` of one of the policies in
//! `files/audit` and with `--audit-log-path`, and run the test of that policy with
//! `KEELSON_RECORD_AUDIT=https://ADDRESS:PORT,LOG`. It must know the tokens `admintoken` (in
//! system:masters) and `alicetoken` (in devs).

use super::requests::{self, Request};
use crate::http::{POLL_TIMEOUT, Server, without_controllers};
use keelson::{
    AuditFormat, AuditLogFileOptions, AuditLogOptions, AuditMode, AuditOptions, AuditPolicyFile,
};
use keelson_auth::{AUTHENTICATED, MASTERS, TokenFile, User};
use keelson_testkit::api::Api;
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

const RECORD: &str = "KEELSON_RECORD_AUDIT";

#[test]
fn events_of_everything_are_those_of_kube_apiserver() {
    check("all");
}

#[test]
fn events_of_metadata_are_those_of_kube_apiserver() {
    check("metadata");
}

#[test]
fn events_of_several_levels_are_those_of_kube_apiserver() {
    check("mixed");
}

#[test]
fn events_of_single_names_and_groups_are_those_of_kube_apiserver() {
    check("names");
}

#[test]
fn events_of_denied_requests_are_those_of_kube_apiserver() {
    check("denied");
}

fn files() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/files/audit")
}

/// Returns the options of an audit with a log, in the mode blocking.
pub fn log_to(policy: &Path, log: &Path) -> AuditOptions {
    let file = AuditLogFileOptions {
        path: log.to_owned(),
        format: AuditFormat::Json,
        rotate_bytes: 0,
        days_max: 0,
        backups_max: 0,
        compresses: false,
    };
    AuditOptions {
        policy: AuditPolicyFile::read(policy).expect("a policy"),
        log: Some(AuditLogOptions { file, mode: AuditMode::Blocking, truncation: None }),
        webhook: None,
    }
}

fn start(policy: &str, log: &Path) -> Server {
    let mut tokens = TokenFile::default();
    let user = |name: &str, group: &'static str| {
        let uid = format!("{name}-uid").into();
        User { name: name.into(), uid, ..User::default() }
            .with_group(group)
            .with_group(AUTHENTICATED)
    };
    tokens.insert("admintoken", user("admin", MASTERS));
    tokens.insert("alicetoken", user("alice", "devs"));
    let mut builder = without_controllers();
    builder.authentication.tokens = tokens;
    builder.recording.audit = Some(log_to(&files().join(format!("{policy}.yaml")), log));
    Server::start(builder)
}

/// Sends the requests under a policy, and compares or records the events.
fn check(policy: &str) {
    let file = files().join(format!("{policy}.txt"));
    let all = requests::all();
    if let Ok(given) = std::env::var(RECORD) {
        let (url, log) = given.split_once(',').expect("URL,LOG");
        let address = url.strip_prefix("https://").expect("https://ADDRESS:PORT");
        send(
            &Api::unchecked(address.parse().expect("ADDRESS:PORT"), None).expect("a client"),
            &all,
        );
        let lines = read(Path::new(log), &all, usize::MAX);
        return std::fs::write(file, lines.join("\n") + "\n").expect("a recording");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("audit.log");
    let server = start(policy, &log);
    send(&Api::unchecked(server.keelson.address(), None).expect("a client"), &all);
    let recording = std::fs::read_to_string(file).expect("a recording");
    let recorded: Vec<&str> = recording.lines().collect();
    let lines = read(&log, &all, recorded.len());
    server.stop();
    let differing = lines.iter().zip(&recorded).filter(|(have, want)| *have != *want);
    let faults: Vec<String> =
        differing.map(|(have, want)| format!("have {have}\nwant {want}")).collect();
    let count = faults.len();
    assert!(faults.is_empty(), "{count} of {} differ:\n{}", lines.len(), faults.join("\n\n"));
    assert_eq!(lines.len(), recorded.len());
}

fn send(api: &Api, all: &[Request]) {
    for Request { id, method, path, headers, body } in all {
        let sent = api.send_with(method, path, headers, body);
        sent.unwrap_or_else(|why| panic!("{id} {method} {path}: {why}"));
    }
}

/// Returns the events of the requests, in their order, when there are so many, or no more come.
fn read(log: &Path, all: &[Request], expected: usize) -> Vec<String> {
    let places: HashMap<&str, usize> =
        all.iter().map(|request| request.id.as_str()).zip(0..).collect();
    let until = Instant::now() + if expected == usize::MAX { QUIET } else { POLL_TIMEOUT };
    loop {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let events = text
            .lines()
            .filter(|_| text.ends_with('\n'))
            .map(|line| serde_json::from_str(line).expect("an event"));
        let mut found: Vec<(usize, Value)> = events
            .filter_map(|event: Value| Some((*places.get(event["auditID"].as_str()?)?, event)))
            .collect();
        if found.len() >= expected || Instant::now() > until {
            found.sort_by_key(|(place, _)| *place);
            return found.into_iter().map(|(_, event)| normalized(event).to_string()).collect();
        }
        std::thread::yield_now();
    }
}

/// Time after which a recorded log has the last event.
const QUIET: std::time::Duration = std::time::Duration::from_secs(3);

/// Replaces what differs between servers: times, uids, revisions and generated names.
fn normalized(mut event: Value) -> Value {
    if let Some(annotations) = event["annotations"].as_object_mut() {
        annotations.retain(|key, _| !key.starts_with("apiserver.latency.k8s.io/"));
        if let Some(issued) =
            annotations.get_mut("authentication.kubernetes.io/issued-credential-id")
        {
            let is_uid = issued.as_str().is_some_and(|text| text.starts_with("JTI="));
            *issued = Value::from(if is_uid { "(JTI)" } else { "no JTI" });
        }
    }
    replace(&mut event);
    event
}

fn replace(value: &mut Value) {
    const TIMES: [&str; 7] = [
        "requestReceivedTimestamp",
        "stageTimestamp",
        "creationTimestamp",
        "deletionTimestamp",
        "expirationTimestamp",
        "lastTransitionTime",
        "time",
    ];
    match value {
        Value::Array(items) => items.iter_mut().for_each(replace),
        Value::Object(members) => {
            for (name, member) in members {
                let is_uid = name == "uid" && member.as_str().is_some_and(|text| text.len() == 36);
                if is_uid
                    || name == "resourceVersion"
                    || name == "token"
                    || TIMES.contains(&name.as_str())
                {
                    *member = Value::from(format!("({name})"));
                } else {
                    replace(member);
                }
            }
        }
        _ => {}
    }
}
