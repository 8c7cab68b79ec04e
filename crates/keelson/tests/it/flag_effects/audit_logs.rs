//! Flags of the audit log and of its webhook.

use super::{MAPS, create, serve};
use crate::authorization_webhooks::Hook;
use crate::http::POLL_TIMEOUT;
use keelson_testkit::api::Api;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Four events of requests with objects of this size are larger than a file of one MiB.
const VALUE_BYTES: usize = 300_000;
/// A file that was rotated in 2020.
const OLD: &str = "audit-2020-01-01T00-00-00.000.log";

/// Writes a policy of a level for ConfigMaps. Returns the flag that names it.
fn policy(dir: &Path, level: &str) -> String {
    let path = dir.join(format!("{level}.yaml"));
    let text = format!(
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n\
         - {{level: {level}, resources: [{{group: \"\", resources: [configmaps]}}]}}\n"
    );
    std::fs::write(&path, text).expect("a file");
    format!("--audit-policy-file={}", path.display())
}

/// Sends requests with large objects until the names of the rotated files are as expected.
fn rotate_until(api: &Api, dir: &Path, holds: impl Fn(&[String]) -> bool) {
    let value = "v".repeat(VALUE_BYTES);
    let map = json!({"metadata": {"generateName": "m-"}, "data": {"k": value}});
    let held = keelson_testkit::poll(POLL_TIMEOUT, || {
        create(api, MAPS, &map);
        let entries = std::fs::read_dir(dir).expect("a folder");
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let names: Vec<String> = names.filter(|name| name.starts_with("audit-")).collect();
        holds(&names).then_some(())
    });
    assert_eq!(held, Some(()), "rotated files");
}

/// `--audit-log-maxsize`, `-maxage`, `-maxbackup` and `-compress`.
#[test]
fn rotated_audit_logs_are_as_large_as_old_and_as_many_as_the_flags_allow() {
    let dir = tempfile::tempdir().expect("a folder");
    let policy = policy(dir.path(), "Request");
    let start = |name: &str, more: &[&str]| {
        let logs = dir.path().join(name);
        std::fs::create_dir(&logs).expect("a folder");
        std::fs::write(logs.join(OLD), "").expect("a file");
        let log = format!("--audit-log-path={}", logs.join("audit.log").display());
        let flags = [&[&*policy, &*log, "--audit-log-maxsize=1"], more].concat();
        let (server, api) = serve(&dir.path().join(format!("data of {name}")), &flags);
        (server, api, logs)
    };
    let (_server, api, logs) =
        start("few", &["--audit-log-maxbackup=1", "--audit-log-maxage=0", "--audit-log-compress"]);
    rotate_until(
        &api,
        &logs,
        |names| matches!(names, [one] if one.ends_with(".log.gz") && !one.starts_with(OLD)),
    );
    let (_server, api, logs) = start("young", &["--audit-log-maxbackup=0", "--audit-log-maxage=1"]);
    let is_plain = |name: &String| name.ends_with(".log") && name != OLD;
    rotate_until(&api, &logs, |names| names.len() >= 3 && names.iter().all(is_plain));
    let (_server, api, logs) = start("all", &["--audit-log-maxbackup=0", "--audit-log-maxage=0"]);
    rotate_until(&api, &logs, |names| names.len() >= 4);
    assert!(logs.join(OLD).is_file(), "it is kept");
}

/// Creates ConfigMaps. `value` is what is in them.
fn write(api: &Api, count: usize, value: &str) {
    for _ in 0..count {
        create(api, MAPS, &json!({"metadata": {"generateName": "m-"}, "data": {"k": value}}));
    }
}

/// Returns the events of the requests that a webhook has got, for each request.
fn batches(hook: &Hook) -> Vec<Vec<Value>> {
    let bodies = hook.take().into_iter().map(|(_, body)| body);
    bodies.map(|body| body["items"].as_array().cloned().unwrap_or_default()).collect()
}

fn webhook() -> (Hook, String) {
    let hook = Hook::start(|_, _| Some((200, json!({}))));
    let file = format!("--audit-webhook-config-file={}", hook.kubeconfig("events").display());
    (hook, file)
}

/// `--audit-webhook-config-file`, `-mode`, `-batch-max-size`, `-batch-max-wait` and
/// `-batch-throttle-enable`.
#[test]
fn a_webhook_gets_the_batches_of_its_flags() {
    let dir = tempfile::tempdir().expect("a folder");
    let policy = policy(dir.path(), "Metadata");
    let (hook, file) = webhook();
    let batch = [
        "--audit-webhook-batch-max-size=3",
        "--audit-webhook-batch-max-wait=1h",
        "--audit-webhook-batch-throttle-enable=false",
    ];
    let (_server, api) =
        serve(&dir.path().join("batch"), &[&[&*policy, &*file], &batch[..]].concat());
    write(&api, 7, "v");
    let mut got = vec![];
    keelson_testkit::poll(POLL_TIMEOUT, || {
        got.extend(batches(&hook));
        (got.len() >= 2).then_some(())
    });
    // The seventh event waits for others.
    assert_eq!(got.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3]);
    let blocking = [&*policy, &*file, "--audit-webhook-mode=blocking-strict"];
    let (_server, api) = serve(&dir.path().join("blocking"), &blocking);
    for _ in 0..2 {
        write(&api, 1, "v");
        // Who waits for the response waits for the event.
        assert_eq!(batches(&hook).iter().map(Vec::len).collect::<Vec<_>>(), [1]);
    }
}

/// `--audit-webhook-truncate-enabled` and `-truncate-max-event-size`, and those of the log.
#[test]
fn events_larger_than_the_flags_allow_lose_their_objects() {
    let dir = tempfile::tempdir().expect("a folder");
    let policy = policy(dir.path(), "Request");
    let (hook, file) = webhook();
    let log = dir.path().join("audit.log");
    let log_flag = format!("--audit-log-path={}", log.display());
    let common = [
        &*policy,
        &*file,
        &*log_flag,
        "--audit-webhook-mode=blocking",
        "--audit-log-mode=blocking",
    ];
    let limits = |whose: &str, is_on: bool| {
        [
            format!("--audit-{whose}-truncate-enabled={is_on}"),
            format!("--audit-{whose}-truncate-max-event-size=4000"),
            format!("--audit-{whose}-truncate-max-batch-size=100000"),
        ]
    };
    for (name, of_webhook, of_log) in [("webhook", true, false), ("log", false, true)] {
        let more = [limits("webhook", of_webhook), limits("log", of_log)].concat();
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        let (_server, api) = serve(&dir.path().join(name), &[&common[..], &more].concat());
        write(&api, 1, &"v".repeat(5000));
        let sent = keelson_testkit::poll(POLL_TIMEOUT, || batches(&hook).pop()?.pop());
        let logged = keelson_testkit::poll(POLL_TIMEOUT, || last_event(&log));
        for (event, is_cut) in [(sent, of_webhook), (logged, of_log)] {
            let event = event.expect("an event");
            let mark = event["annotations"]["audit.k8s.io/truncated"] == "true";
            let has_object = event.get("requestObject").is_some();
            assert_eq!((mark, has_object), (is_cut, !is_cut), "{name}: {event}");
        }
        std::fs::remove_file(&log).expect("removed");
    }
}

/// Returns the last event of a log once its line is whole.
fn last_event(log: &PathBuf) -> Option<Value> {
    let text = std::fs::read_to_string(log).ok()?;
    let line = text.strip_suffix('\n')?.lines().next_back()?;
    serde_json::from_str(line).ok()
}
