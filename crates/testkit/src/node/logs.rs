//! Logs of containers, in memory, and `/containerLogs` with all its options.

use super::http::{Connection, Request};
use crate::kubelet::now;
use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;

/// The logs of all containers.
pub(super) struct Logs {
    containers: Mutex<HashMap<String, Log>>,
    /// Changes with each line and each end.
    changed: watch::Sender<()>,
}

/// The log of a container.
#[derive(Clone, Default)]
struct Log {
    current: Vec<Line>,
    previous: Option<Vec<Line>>,
    restarts: usize,
}

#[derive(Clone)]
struct Line {
    at: Duration,
    /// `at` as it is printed.
    time: String,
    is_stderr: bool,
    text: String,
}

impl Default for Logs {
    fn default() -> Logs {
        Logs { containers: Mutex::default(), changed: watch::Sender::new(()) }
    }
}

impl Logs {
    /// Adds a line to the log of `NS/POD/CONTAINER`.
    pub fn add(&self, container: &str, stream: &str, text: &str) {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let is_stderr = stream == "stderr";
        let line = Line { at, time: now(), is_stderr, text: text.to_owned() };
        self.change(container, |log| log.current.push(line));
    }

    /// Makes the log of a container the previous one.
    pub fn end(&self, container: &str) {
        self.change(container, |log| {
            log.previous = Some(std::mem::take(&mut log.current));
            log.restarts += 1;
        });
    }

    fn change(&self, container: &str, change: impl FnOnce(&mut Log)) {
        let mut containers = self.containers.lock().unwrap_or_else(PoisonError::into_inner);
        change(containers.entry(container.to_owned()).or_default());
        self.changed.send_replace(());
    }

    fn log(&self, container: &str) -> Log {
        let containers = self.containers.lock().unwrap_or_else(PoisonError::into_inner);
        containers.get(container).cloned().unwrap_or_default()
    }

    /// Answers a request for the log of `NS/POD/CONTAINER`.
    pub async fn serve(
        &self,
        connection: &mut Connection,
        request: &Request,
        container: &str,
    ) -> io::Result<()> {
        let Some(options) = LogOptions::parse(request) else {
            return connection.respond_error("422 Unprocessable Entity", "Invalid request.").await;
        };
        let mut changed = self.changed.subscribe();
        let log = self.log(container);
        let lines = match (options.previous, log.previous) {
            (false, _) => log.current,
            (true, Some(previous)) => previous,
            (true, None) => {
                let name = container.rsplit('/').next().unwrap_or_default();
                let text = format!("previous terminated container {name:?} not found");
                return connection.respond_error("400 Bad Request", &text).await;
            }
        };
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\n\
                    Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
        connection.stream.write_all(head.as_bytes()).await?;
        let mut remaining = options.limit_bytes;
        let selected: Vec<&Line> = lines.iter().filter(|line| options.selects(line)).collect();
        let first = options.tail_lines.map_or(0, |tail| selected.len().saturating_sub(tail));
        for line in &selected[first..] {
            options.write(connection, line, &mut remaining).await?;
        }
        let mut written = lines.len();
        while options.follow && !options.previous && remaining > 0 {
            connection.stream.flush().await?;
            if changed.changed().await.is_err() {
                break;
            }
            let next = self.log(container);
            let has_ended = next.restarts != log.restarts;
            let lines = if has_ended { next.previous.unwrap_or_default() } else { next.current };
            for line in lines.iter().skip(written).filter(|line| options.selects(line)) {
                options.write(connection, line, &mut remaining).await?;
            }
            written = lines.len();
            if has_ended {
                break;
            }
        }
        connection.stream.write_all(b"0\r\n\r\n").await?;
        connection.stream.shutdown().await
    }
}

/// The options of `/containerLogs`.
struct LogOptions {
    follow: bool,
    previous: bool,
    timestamps: bool,
    tail_lines: Option<usize>,
    limit_bytes: usize,
    /// The time since 1970 from which on lines are sent.
    since: Duration,
    stdout: bool,
    stderr: bool,
}

impl LogOptions {
    fn parse(request: &Request) -> Option<LogOptions> {
        let flag = |name| matches!(request.parameter(name), "true" | "1");
        let number = |name| match request.parameter(name) {
            "" => Some(None),
            text => text.parse::<usize>().ok().map(Some),
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let since = match (number("sinceSeconds")?, request.parameter("sinceTime")) {
            (Some(seconds), _) => now.saturating_sub(Duration::from_secs(seconds as u64)),
            (None, "") => Duration::ZERO,
            (None, time) => parse_time(time)?,
        };
        let (stdout, stderr) = match request.parameter("stream") {
            "" | "All" => (true, true),
            "Stdout" => (true, false),
            "Stderr" => (false, true),
            _ => return None,
        };
        Some(LogOptions {
            follow: flag("follow"),
            previous: flag("previous"),
            timestamps: flag("timestamps"),
            tail_lines: number("tailLines")?,
            limit_bytes: number("limitBytes")?.unwrap_or(usize::MAX),
            since,
            stdout,
            stderr,
        })
    }

    fn selects(&self, line: &Line) -> bool {
        let is_selected = if line.is_stderr { self.stderr } else { self.stdout };
        is_selected && line.at >= self.since
    }

    async fn write(
        &self,
        connection: &mut Connection,
        line: &Line,
        remaining: &mut usize,
    ) -> io::Result<()> {
        let mut text = match self.timestamps {
            true => format!("{} {}\n", line.time, line.text),
            false => format!("{}\n", line.text),
        };
        cut(&mut text, *remaining);
        *remaining -= text.len();
        if text.is_empty() {
            return Ok(());
        }
        let chunk = format!("{:x}\r\n{text}\r\n", text.len());
        connection.stream.write_all(chunk.as_bytes()).await
    }
}

/// Cuts a text without breaking a character.
fn cut(text: &mut String, length: usize) {
    let mut end = length.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}

/// Returns the time since 1970 of a text such as `2026-01-02T03:04:05.5Z`.
fn parse_time(text: &str) -> Option<Duration> {
    let text = text.strip_suffix('Z')?;
    let (date, time) = text.split_once('T')?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let numbers = |text: &str, separator| -> Option<[u64; 3]> {
        let parts: Option<Vec<u64>> = text.split(separator).map(|part| part.parse().ok()).collect();
        parts?.try_into().ok()
    };
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time, ':')?;
    // In years that begin in March, the leap day is the last day.
    let (year, month) =
        if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
    let days = days.checked_sub(719_469)?;
    let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second;
    let nanos = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    Some(Duration::new(seconds, nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_parsed() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", Some(Duration::ZERO)),
            ("2024-02-29T12:00:00.25Z", Some(Duration::from_millis(1_709_208_000_250))),
            ("2026-11-26T19:31:47Z", Some(Duration::from_secs(1_795_721_507))),
            ("2026-11-26", None),
        ] {
            assert_eq!(parse_time(text), expected, "{text}");
        }
    }
}
