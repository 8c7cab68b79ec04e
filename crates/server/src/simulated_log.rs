//! Logs of containers on simulated nodes, with the options of a kubelet's.

use crate::app::App;
use crate::body::ChunkStream;
use crate::outcome::{Outcome, Stream};
use crate::request_head::RequestHead;
use crate::websocket::Framing;
use bytes::Bytes;
use keelson_auth::Permit;
use keelson_meta::field_selector::FieldSelector;
use keelson_meta::time::GoDuration;
use keelson_meta::{Failure, Timestamp};
use keelson_registry::hooks::{SimulatedContainer, SimulatedLog, SimulatedNodes};
use keelson_registry::options::{LogOptions, WatchOptions};
use keelson_registry::{EventKind, Registry, Target, WatchEvent, WatchRefusal, WatchSession};
use keelson_resources::Kind;
use std::fmt::Write;
use std::sync::Arc;

/// Answers with the log of a container of the pod `target`.
pub(crate) async fn run(
    app: &Arc<App>,
    head: &RequestHead,
    target: &Target,
    container: SimulatedContainer,
    options: &LogOptions,
) -> Result<Outcome, Failure> {
    let Some(nodes) = app.registry.options.simulated_nodes.clone() else {
        return Err(keelson_meta::Status::internal("no node is simulated"));
    };
    // The watch begins before the log is read: no change of the pod is missed.
    let changes = match options.follow && !options.previous {
        true => Some(watch(&app.registry, target).await?),
        false => None,
    };
    let log = nodes.log(&container.pod, &container.name, options.previous)?;
    let mut told = Told::new(options, app.registry.clock.now());
    let beginning = told.text(&log);
    let kind = target.kind.clone();
    let follower = changes.filter(|_| !log.is_over).map(|changes| Follower {
        changes,
        kind,
        nodes,
        container,
    });
    let peer = head.peer.clone();
    let chunks = ChunkStream::new(|slot| async move {
        if !beginning.is_empty() {
            slot.put(Bytes::from(beginning)).await;
        }
        let Some(mut follower) = follower else { return };
        loop {
            let log = tokio::select! {
                log = follower.next() => log,
                () = peer.closed() => None,
            };
            let Some(log) = log else { return };
            let text = told.text(&log);
            if !text.is_empty() {
                slot.put(Bytes::from(text)).await;
            }
            if log.is_over || told.is_full() {
                return;
            }
        }
    });
    let framing = head.is_websocket().then_some(Framing::Bytes);
    Ok(Outcome::Stream(Stream { media_type: "text/plain", chunks, framing }))
}

async fn watch(registry: &Arc<Registry>, target: &Target) -> Result<WatchSession, Failure> {
    let permit = Permit::internal("system:apiserver");
    let fields = FieldSelector::parse(&format!("metadata.name={}", target.name));
    let target = Target::of(&target.kind, &target.namespace, "");
    let options = WatchOptions { fields: fields.unwrap_or_default(), ..WatchOptions::default() };
    registry.watch(&permit, &target, &options).await.map_err(WatchRefusal::into_failure)
}

/// Follows the log of a container while its pod exists.
struct Follower {
    changes: WatchSession,
    kind: Arc<Kind>,
    nodes: Arc<dyn SimulatedNodes>,
    container: SimulatedContainer,
}

impl Follower {
    /// Waits for a change of the pod, and returns the log after it; `None`: there is no pod any
    /// more.
    async fn next(&mut self) -> Option<SimulatedLog> {
        loop {
            let mut events: Vec<WatchEvent> = vec![];
            self.changes.take(&mut events).ok()?;
            let Some(last) = events.last() else {
                self.changes.changed().await.ok()?;
                continue;
            };
            let pod = self.kind.decode(&last.entry).ok()?;
            if last.kind == EventKind::Deleted || pod.uid() != self.container.pod.uid() {
                return None;
            }
            if let Ok(log) = self.nodes.log(&pod, &self.container.name, false) {
                return Some(log);
            }
        }
    }
}

/// Which lines of a log were told, and which are.
struct Told {
    /// Lines before it are left out.
    since: Option<Timestamp>,
    has_times: bool,
    /// The number of lines at the end that the first text has; `None`: all.
    tail: Option<usize>,
    bytes_left: Option<usize>,
    /// The lines that were looked at.
    lines: usize,
}

impl Told {
    fn new(options: &LogOptions, now: Timestamp) -> Told {
        let size = |number: i64| usize::try_from(number).unwrap_or(0);
        let seconds = options.since_seconds.map(GoDuration::from_seconds);
        let ago = seconds.map(|span| now.plus(GoDuration(span.0.saturating_neg())));
        let time = options.since_time.as_deref().and_then(|time| Timestamp::parse(time).ok());
        Told {
            since: ago.or(time),
            has_times: options.timestamps,
            tail: options.tail_lines.map(size),
            bytes_left: options.limit_bytes.map(size),
            lines: 0,
        }
    }

    /// Whether the limit is reached.
    fn is_full(&self) -> bool {
        self.bytes_left == Some(0)
    }

    /// Returns the text of the lines that were not told yet.
    fn text(&mut self, log: &SimulatedLog) -> String {
        let new = log.lines.get(self.lines..).unwrap_or_default();
        self.lines = self.lines.max(log.lines.len());
        let wanted =
            |(time, _): &&(Timestamp, String)| self.since.is_none_or(|since| *time >= since);
        let new: Vec<_> = new.iter().filter(wanted).collect();
        let skipped = self.tail.take().map_or(0, |tail| new.len().saturating_sub(tail));
        let mut text = String::new();
        for (time, line) in &new[skipped..] {
            // Writing to a string does not fail.
            let _ = match self.has_times {
                true => writeln!(text, "{} {line}", nano_text(*time)),
                false => writeln!(text, "{line}"),
            };
        }
        if let Some(left) = &mut self.bytes_left {
            let end = (0..=text.len().min(*left)).rev().find(|at| text.is_char_boundary(*at));
            text.truncate(end.unwrap_or(0));
            *left = if text.len() < *left { *left - text.len() } else { 0 };
        }
        text
    }
}

/// Returns a time as kubelets write it before a line.
fn nano_text(time: Timestamp) -> String {
    let text = time.text();
    format!("{}.{:09}Z", text.trim_end_matches('Z'), time.nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(lines: usize) -> SimulatedLog {
        let line = |number| {
            let time = format!("2026-01-01T00:00:0{number}Z");
            (Timestamp::parse(&time).expect("a time"), format!("line {number}"))
        };
        SimulatedLog { lines: (0..lines).map(line).collect(), is_over: false }
    }

    #[test]
    fn options_choose_lines_as_those_of_a_kubelet() {
        let check = |options: LogOptions, want: &str| {
            let now = Timestamp::parse("2026-01-01T00:00:04Z").expect("a time");
            let mut told = Told::new(&options, now);
            let first = told.text(&log(3));
            let next = told.text(&log(4));
            assert_eq!(format!("{first}|{next}"), want, "{options:?}");
        };
        let all = LogOptions::default;
        check(all(), "line 0\nline 1\nline 2\n|line 3\n");
        check(LogOptions { tail_lines: Some(1), ..all() }, "line 2\n|line 3\n");
        check(LogOptions { tail_lines: Some(0), ..all() }, "|line 3\n");
        check(LogOptions { since_seconds: Some(2), ..all() }, "line 2\n|line 3\n");
        let since = Some("2026-01-01T00:00:01Z".into());
        check(LogOptions { since_time: since, ..all() }, "line 1\nline 2\n|line 3\n");
        check(LogOptions { limit_bytes: Some(9), ..all() }, "line 0\nli|");
        check(LogOptions { limit_bytes: Some(25), ..all() }, "line 0\nline 1\nline 2\n|line");
        let timed = LogOptions { timestamps: true, tail_lines: Some(0), ..all() };
        check(timed, "|2026-01-01T00:00:03.000000000Z line 3\n");
    }
}
