//! Admission webhooks over the whole server: scripted webhooks, and kube-apiserver's answers to the same.
//!
//! The answers in `files/webhooks.txt` and `files/webhook_cases.txt` were recorded from a kube-apiserver
//! 1.36 (`--disable-admission-plugins=ServiceAccount`, and the token `admintoken` of an administrator
//! `admin` with the uid `admin-uid` in `system:masters`) by these tests themselves, with its URL in
//! `KEELSON_WEBHOOKS_RECORD`.

mod api;
mod cases;
mod runner;
mod scripted;

use api::Api;
use runner::run;
use scripted::Webhook;
use std::path::{Path, PathBuf};

fn recordings(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/files").join(name)
}

/// The API under test, and whether its answers are to be recorded.
fn api() -> (Api, bool) {
    match std::env::var("KEELSON_WEBHOOKS_RECORD") {
        Ok(url) => (Api::Recorded(url), true),
        Err(_) => (Api::start(), false),
    }
}

/// Each line of a recording, made anew or compared.
fn hold(file: &str, lines: &[String], is_recording: bool) {
    let path = recordings(file);
    if is_recording {
        return std::fs::write(path, lines.join("\n") + "\n").expect("a recording");
    }
    let recorded = std::fs::read_to_string(path).expect("a recording");
    let recorded: Vec<&str> = recorded.lines().collect();
    assert_eq!(recorded.len(), lines.len(), "cases of {file}");
    let differs = |(have, want): &(&String, &&str)| have.as_str() != **want;
    let faults: Vec<String> = lines
        .iter()
        .zip(&recorded)
        .filter(differs)
        .map(|(have, want)| format!("have {have}\nwant {want}"))
        .collect();
    let (count, of) = (faults.len(), lines.len());
    assert!(faults.is_empty(), "{count} of {of} differ:\n{}", faults.join("\n\n"));
}

#[test]
fn webhooks_are_called_and_believed_as_by_kube_apiserver() {
    let (api, is_recording) = api();
    let hook = Webhook::start("h2", &["127.0.0.1"]);
    let started = std::time::SystemTime::now();
    let stamp = started.duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let mut lines = vec![];
    for (index, case) in cases::all().iter().enumerate() {
        let seen = run(&api, &hook, case, &format!("case-{stamp}-{index}"));
        lines.extend(seen.iter().map(|seen| format!("{}: {seen}", case.name)));
    }
    hold("webhooks.txt", &lines, is_recording);
    api.stop();
}
