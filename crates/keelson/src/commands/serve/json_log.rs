//! [`JsonLog`]: log lines in the format of `--logging-format=json` (component-base `logs/json`):
//! `ts` in milliseconds since 1970, `caller`, `msg`, `v`, then the fields. Lines of errors have no
//! `v`, and their error is `err`.

use serde_json::Value;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// The format.
pub struct JsonLog;

impl<S, N> FormatEvent<S, N> for JsonLog
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        writeln!(writer, "{}", line(now.as_secs_f64() * 1000.0, event))
    }
}

/// Returns the line of an event at a time in milliseconds.
fn line(milliseconds: f64, event: &Event<'_>) -> String {
    let mut fields = Fields::default();
    event.record(&mut fields);
    let metadata = event.metadata();
    // As upstream: with four digits.
    let milliseconds = (milliseconds * 10_000.0).round() / 10_000.0;
    let mut members: Vec<(String, Value)> = vec![
        ("ts".to_owned(), milliseconds.into()),
        ("caller".to_owned(), caller(metadata).into()),
        ("msg".to_owned(), fields.message.into()),
    ];
    members.extend(verbosity(*metadata.level()).map(|level| ("v".to_owned(), level.into())));
    members.extend(fields.others);
    // A map of serde_json would sort them.
    let members = members.into_iter().map(|(name, value)| format!("{}:{value}", Value::from(name)));
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

/// Returns the verbosity from which on lines of a level are written; `None` for errors.
fn verbosity(level: Level) -> Option<u8> {
    match level {
        Level::ERROR => None,
        Level::WARN => Some(0),
        Level::INFO => Some(1),
        Level::DEBUG => Some(3),
        Level::TRACE => Some(6),
    }
}

/// Returns the crate, the file and the line: `server/request_log.rs:42`.
fn caller(metadata: &Metadata<'_>) -> String {
    let file = metadata.file().unwrap_or_default();
    let name = file.rsplit('/').next().unwrap_or_default();
    let package =
        metadata.target().split("::").next().unwrap_or_default().trim_start_matches("keelson_");
    format!("{package}/{name}:{}", metadata.line().unwrap_or_default())
}

/// The fields of an event in their order.
#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(String, Value)>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: Value) {
        let name = if field.name() == "error" { "err" } else { field.name() };
        self.others.push((name.to_owned(), value));
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        match field.name() {
            "message" => self.message = text,
            _ => self.add(field, text.into()),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            _ => self.add(field, value.into()),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("one writer").extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_have_the_members_of_component_base_in_their_order() {
        let buffer = Buffer::default();
        let written = buffer.clone();
        let logs = tracing_subscriber::fmt()
            .with_max_level(Level::DEBUG)
            .with_writer(move || buffer.clone())
            .event_format(JsonLog)
            .finish();
        tracing::subscriber::with_default(logs, || {
            tracing::debug!(verb = %"GET", "audit-ID" = "a \"b\"", resp = 200, "HTTP");
            tracing::error!(error = %"gone", retry = true, "not stored");
        });
        let text = String::from_utf8(written.0.lock().expect("no writer").clone()).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        let rest = |line: &str| line.split_once(",\"msg\":").map(|(_, rest)| rest.to_owned());
        let request = r#""HTTP","v":3,"verb":"GET","audit-ID":"a \"b\"","resp":200}"#;
        assert_eq!(rest(lines[0]).as_deref(), Some(request));
        let error = r#""not stored","err":"gone","retry":true}"#;
        assert_eq!(rest(lines[1]).as_deref(), Some(error));
        assert!(lines[0].starts_with("{\"ts\":1"), "{text}");
        assert!(lines[0].contains("\"caller\":\"keelson/json_log.rs:"), "{text}");
    }
}
