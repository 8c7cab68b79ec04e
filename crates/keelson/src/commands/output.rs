//! Output of commands: the progress line and the result.

use crate::flags::{ResultFormat, SummaryFormat};
use anyhow::{Context, Result};
use keelson_meta::{Map, Value};
use keelson_schema::{json, yaml};
use keelson_store::backup::BackupSummary;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Interval between two updates of the progress line.
const PROGRESS_PERIOD: Duration = Duration::from_millis(200);

/// A progress line on a terminal.
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

    /// Updates the line, at most once per period.
    pub fn show(&mut self, so_far: &BackupSummary) {
        if self.next.is_none_or(|next| Instant::now() < next) {
            return;
        }
        self.next = Some(Instant::now() + PROGRESS_PERIOD);
        self.has_shown = true;
        let objects = so_far.objects;
        let bytes = size(so_far.bytes);
        // A failure to show progress must not end the command.
        let _ = write!(std::io::stderr(), "\r\x1b[K{objects} objects, {bytes}");
    }

    /// Removes the line, and returns the seconds since the start.
    pub fn end(&self) -> f64 {
        if self.has_shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
        self.began.elapsed().as_secs_f64()
    }
}

/// Formats a number of bytes for people: `1.5 MiB`.
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

/// Formats the summary of a backup or a restore. `done` is the verb: `backed up`.
pub fn summary(
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
            self::format(&Value::Object(map), ResultFormat::Json)
        }
    }
}

/// Converts a count to the integer type of values.
pub fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Formats a result, without a final newline.
pub fn format(value: &Value, format: ResultFormat) -> String {
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
