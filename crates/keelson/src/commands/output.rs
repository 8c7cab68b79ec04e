//! Output of commands: a progress line and the result.

use crate::flags::{ResultFormat, SummaryFormat};
use anyhow::{Context, Result};
use keelson_meta::{Map, Value};
use keelson_schema::{json, yaml};
use keelson_store::backup::BackupSummary;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Between two looks at the growing line.
const PROGRESS_PERIOD: Duration = Duration::from_millis(200);

/// A line on a terminal that says how far the work is.
pub struct Progress {
    began: Instant,
    next: Option<Instant>,
    has_shown: bool,
}

impl Progress {
    pub fn start() -> Progress {
        let began = Instant::now();
        let next = std::io::stderr().is_terminal().then(|| began + PROGRESS_PERIOD);
        Progress { began, next, has_shown: false }
    }

    /// Shows what has been done so far, now and then.
    pub fn show(&mut self, so_far: &BackupSummary) {
        if self.next.is_none_or(|next| Instant::now() < next) {
            return;
        }
        self.next = Some(Instant::now() + PROGRESS_PERIOD);
        self.has_shown = true;
        let (objects, bytes) = (so_far.objects, size(so_far.bytes));
        // A line that cannot be shown must not end the work.
        let _ = write!(std::io::stderr(), "\r\x1b[K{objects} objects, {bytes}");
    }

    /// Takes the line away; seconds since the start.
    pub fn end(&self) -> f64 {
        if self.has_shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
        self.began.elapsed().as_secs_f64()
    }
}

/// Bytes for people.
pub fn size(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let mut scaled = bytes as f64;
    let mut unit = "bytes";
    for larger in units {
        if scaled < 1024.0 {
            break;
        }
        (scaled, unit) = (scaled / 1024.0, larger);
    }
    if unit == "bytes" { format!("{bytes} bytes") } else { format!("{scaled:.1} {unit}") }
}

/// The closing line of a backup or a restore.
pub fn closing(
    done: &str,
    path: &str,
    summary: &BackupSummary,
    seconds: f64,
    format: Option<SummaryFormat>,
) -> String {
    let BackupSummary { revision, objects, bytes } = *summary;
    match format {
        None => format!(
            "{done} {objects} objects, {size} at revision {revision} in {seconds:.1} s",
            size = size(bytes)
        ),
        Some(SummaryFormat::Json) => {
            let mut map = Map::default();
            map.insert("file", path);
            map.insert("objects", number(objects));
            map.insert("bytes", number(bytes));
            map.insert("revision", number(revision.0));
            map.insert("seconds", (seconds * 1000.0).round() / 1000.0);
            show(&Value::Object(map), ResultFormat::Json)
        }
    }
}

pub fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The text of a result, without an end of line.
pub fn show(value: &Value, format: ResultFormat) -> String {
    match format {
        ResultFormat::Json => {
            let mut out = vec![];
            json::write_value(value, &mut out);
            String::from_utf8_lossy(&out).into_owned()
        }
        ResultFormat::Yaml => {
            let mut out = String::new();
            yaml::write(value, &mut out);
            out.truncate(out.trim_end().len());
            out
        }
    }
}

pub fn print(text: &str) -> Result<()> {
    writeln!(std::io::stdout(), "{text}").context("write to standard output")
}
