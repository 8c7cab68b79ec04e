//! Tests of modes, truncation, lost events and shutdowns, with a log.

use super::*;
use crate::backend::{Batching, LogFile, LogFileOptions, Mode, Truncation};
use crate::encoded::Format;
use crate::encoded::tests::small_event;
use crate::request::RequestUri;
use bytes::Bytes;
use http::HeaderValue;
use keelson_metrics::Exposition;
use rustix::fs::{CWD, mkfifoat};
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// More than a pipe holds.
const PIPE_BYTES: usize = 1 << 20;

fn log(path: &Path) -> LogFile {
    LogFile::open(LogFileOptions {
        path: path.to_owned(),
        format: Format::Json,
        rotate_bytes: 0,
        days_max: 0,
        backups_max: 0,
        compresses: false,
    })
    .expect("a log")
}

fn batching(buffer_events_max: usize, batch_events_max: usize) -> Batching {
    Batching { buffer_events_max, batch_events_max, wait: Duration::ZERO, throttle: None }
}

fn event(number: usize, size: usize) -> Event {
    Event {
        level: Level::Request,
        audit_id: HeaderValue::try_from(format!("e{number}")).expect("an id"),
        request_object: Some(Bytes::from(format!("\"{}\"", "x".repeat(size)))),
        ..small_event()
    }
}

/// Returns an audit of all requests with one backend, and its log.
fn audit(mode: Mode, truncation: Option<Truncation>, folder: &Path) -> (Audit, PathBuf) {
    let path = folder.join("audit.log");
    let metrics: Arc<Metrics> = Arc::default();
    let backend = Backend::log(log(&path), mode, truncation, metrics.clone());
    let backend = backend.expect("a thread");
    let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Request}]\n";
    let policy = Policy::parse(policy).expect("a policy");
    (Audit::new(policy, vec![backend], metrics), path)
}

async fn send(audit: &Audit, event: &Event) -> bool {
    let config = audit.evaluate(&Attributes::default(), None).expect("an audited request");
    match audit.prepare(config, event) {
        Some(prepared) => audit.store(prepared).await.is_ok(),
        None => true,
    }
}

/// Returns the ids in a log, with its notes: `e1`, `e2 truncated`, `e3 lost=2`.
fn logged(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).expect("a log");
    text.lines().map(id_of).collect()
}

fn id_of(line: &str) -> String {
    let parsed = keelson_schema::json::parse(line.as_bytes()).expect("JSON").value;
    let mut out = parsed.str_at(&["auditID"]).expect("an id").to_owned();
    if parsed.str_at(&["annotations", "audit.k8s.io/truncated"]).is_some() {
        assert!(parsed.get("requestObject").is_none());
        out.push_str(" truncated");
    }
    if let Some(lost) = parsed.str_at(&["annotations", "audit.keelson.dev/lost-events"]) {
        out.push_str(&format!(" lost={lost}"));
    }
    out
}

/// Returns the lines of the metrics that are not zero.
fn counted(audit: &Audit) -> Vec<String> {
    let mut out = Exposition::default();
    audit.metrics().write(&mut out);
    let text = out.finish();
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.ends_with(" 0"));
    lines.map(|line| line.trim_start_matches("apiserver_audit_").to_owned()).collect()
}

#[tokio::test]
async fn blocking_events_are_written_when_the_call_returns() {
    let folder = tempfile::tempdir().expect("a folder");
    let (audit, path) = audit(Mode::Blocking, None, folder.path());
    for number in 0..3 {
        assert!(send(&audit, &event(number, 10)).await);
        assert_eq!(logged(&path).len(), number + 1);
    }
    assert_eq!(counted(&audit), ["event_total 3", "level_total{level=\"Request\"} 3"]);
}

#[tokio::test]
async fn a_log_that_fails_ends_requests_in_the_strict_mode_only() {
    let full = Path::new("/dev/full");
    for (mode, goes_on) in [(Mode::Blocking, true), (Mode::BlockingStrict, false)] {
        let metrics: Arc<Metrics> = Arc::default();
        let backend = Backend::log(log(full), mode, None, metrics.clone());
        let backend = backend.expect("a thread");
        let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Request}]\n";
        let audit = Audit::new(Policy::parse(policy).expect("a policy"), vec![backend], metrics);
        assert_eq!(send(&audit, &event(1, 10)).await, goes_on);
        let mut expected = vec![
            "error_total{plugin=\"log\"} 1",
            "event_total 1",
            "level_total{level=\"Request\"} 1",
        ];
        if !goes_on {
            expected.push("requests_rejected_total 1");
        }
        assert_eq!(counted(&audit), expected);
    }
}

#[tokio::test]
async fn large_events_lose_their_objects_and_larger_ones_are_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let limits = Truncation { event_bytes_max: 500, batch_bytes_max: 1000 };
    let (audit, path) = audit(Mode::Blocking, Some(limits), folder.path());
    send(&audit, &event(1, 10)).await;
    send(&audit, &event(2, 500)).await;
    let long = RequestUri::Redacted("x".repeat(500));
    let long = Event { request_uri: long, ..event(3, 10) };
    assert!(send(&audit, &long).await);
    send(&audit, &event(4, 10)).await;
    send(&audit, &event(5, 10)).await;
    assert_eq!(logged(&path), ["e1", "e2 truncated", "e4 lost=1", "e5"]);
    let errors: Vec<String> =
        counted(&audit).into_iter().filter(|line| line.contains("error")).collect();
    assert_eq!(errors, ["error_total{plugin=\"truncate\"} 1"]);
}

#[tokio::test]
async fn a_full_buffer_loses_events_and_the_next_one_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    // The log is a pipe: its writer stands still until somebody reads.
    let path = folder.path().join("audit.log");
    mkfifoat(CWD, &path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).expect("a pipe");
    let mut pipe = OpenOptions::new().read(true).write(true).open(&path).expect("a pipe");
    let (audit, _) = audit(Mode::Batch(batching(2, 1)), None, folder.path());
    assert!(send(&audit, &event(0, PIPE_BYTES)).await);
    let mut first = vec![0];
    pipe.read_exact(&mut first).expect("the begin of the first event");
    for number in 1..6 {
        assert!(send(&audit, &event(number, 10)).await);
    }
    let mut pipe = BufReader::new(pipe);
    let mut next = |begin: Vec<u8>| {
        let mut line = begin;
        pipe.read_until(b'\n', &mut line).expect("a line");
        id_of(&String::from_utf8_lossy(&line))
    };
    assert_eq!([next(first), next(vec![]), next(vec![])], ["e0", "e1", "e2"]);
    assert!(send(&audit, &event(6, 10)).await);
    audit.shutdown().await;
    assert_eq!(next(vec![]), "e6 lost=3");
    assert!(send(&audit, &event(7, 10)).await);
    let errors: Vec<String> =
        counted(&audit).into_iter().filter(|line| line.contains("error")).collect();
    assert_eq!(errors, ["error_total{plugin=\"buffered\"} 4"]);
}

#[tokio::test]
async fn a_line_is_written_when_no_more_come_in_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let waiting = Batching { wait: Duration::from_millis(1), ..batching(100, 7) };
    let (audit, path) = audit(Mode::Batch(waiting), None, folder.path());
    for number in 0..3 {
        send(&audit, &event(number, 10)).await;
        while logged(&path).len() <= number {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(logged(&path), ["e0", "e1", "e2"]);
}

#[tokio::test]
async fn what_waits_is_stored_at_a_shutdown() {
    let folder = tempfile::tempdir().expect("a folder");
    let waiting = Batching {
        wait: Duration::from_secs(3600),
        throttle: Some((0.001, 1)),
        ..batching(100, 7)
    };
    let (audit, path) = audit(Mode::Batch(waiting), None, folder.path());
    for number in 0..40 {
        send(&audit, &event(number, 10)).await;
    }
    audit.shutdown().await;
    let expected: Vec<String> = (0..40).map(|number| format!("e{number}")).collect();
    assert_eq!(logged(&path), expected);
}
