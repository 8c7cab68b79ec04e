//! Forms of what was found in files: text, JSON, YAML, SARIF, annotations of GitHub.

use super::output;
use crate::flags::{FindingsFormat, ResultFormat};
use keelson_meta::{Map, Value, value};
use keelson_schema::yaml::Place;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The exit code if something was found.
pub const FOUND: u8 = 1;
/// The exit code for input that cannot be read.
pub const UNUSABLE: u8 = 2;

/// Something that was found in a file.
pub struct Found {
    pub file: String,
    pub place: Place,
    /// `error`, `warning` or `advice`.
    pub severity: &'static str,
    /// The rule, or the reason of a status.
    pub rule: String,
    pub message: String,
    /// Further members of the JSON form, in order.
    pub details: Vec<(&'static str, Value)>,
}

/// What was found, and what all of it is about.
pub struct Findings<'a> {
    pub found: &'a [Found],
    /// Rules that were broken, with their explanation.
    pub explanations: BTreeMap<&'a str, String>,
    /// The last line of the text.
    pub summary: String,
    /// Further members of the JSON form, in order.
    pub details: Vec<(&'static str, Value)>,
}

impl Findings<'_> {
    /// Formats the findings, without a final newline.
    pub fn format(&self, format: FindingsFormat) -> String {
        match format {
            FindingsFormat::Text => self.text(),
            FindingsFormat::Json => output::format(&self.value(), ResultFormat::Json),
            FindingsFormat::Yaml => output::format(&self.value(), ResultFormat::Yaml),
            FindingsFormat::Sarif => output::format(&self.sarif(), ResultFormat::Json),
            FindingsFormat::Github => self.github(),
        }
    }

    fn text(&self) -> String {
        let mut out = String::new();
        for Found { file, place, severity, rule, message, .. } in self.found {
            let Place { line, column } = place;
            // Writing to a string does not fail.
            let _ = writeln!(out, "{file}:{line}:{column}: {severity}: {message} [{rule}]");
        }
        if !self.explanations.is_empty() {
            out.push('\n');
        }
        for (rule, explanation) in &self.explanations {
            let _ = writeln!(out, "{rule}: {explanation}");
        }
        if !self.explanations.is_empty() {
            out.push('\n');
        }
        out + &self.summary
    }

    fn value(&self) -> Value {
        let one = |found: &Found| {
            let mut map = Map::default();
            map.insert("file", found.file.as_str());
            map.insert("line", i64::from(found.place.line));
            map.insert("column", i64::from(found.place.column));
            map.insert("severity", found.severity);
            map.insert("rule", found.rule.as_str());
            map.insert("message", found.message.as_str());
            for (name, value) in &found.details {
                map.insert(*name, value.clone());
            }
            Value::Object(map)
        };
        let mut map = Map::default();
        map.insert("findings", self.found.iter().map(one).collect::<Vec<Value>>());
        for (name, value) in &self.details {
            map.insert(*name, value.clone());
        }
        Value::Object(map)
    }

    fn sarif(&self) -> Value {
        let rules: Vec<Value> = self.explanations.iter().map(|(rule, explanation)| {
            value!({"id": (*rule), "fullDescription": {"text": (explanation.as_str())}})
        }).collect();
        let results = self.found.iter().map(|found| {
            let level = if found.severity == "advice" { "note" } else { found.severity };
            value!({
                "ruleId": (found.rule.as_str()),
                "level": (level),
                "message": {"text": (found.message.as_str())},
                "locations": [{"physicalLocation": {
                    "artifactLocation": {"uri": (found.file.as_str())},
                    "region": {
                        "startLine": (i64::from(found.place.line)),
                        "startColumn": (i64::from(found.place.column))
                    }
                }}]
            })
        });
        let results: Vec<Value> = results.collect();
        value!({
            "version": "2.1.0",
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
            "runs": [{
                "tool": {"driver": {
                    "name": "keelson", "version": (env!("CARGO_PKG_VERSION")), "rules": (rules)
                }},
                "results": (results)
            }]
        })
    }

    fn github(&self) -> String {
        let mut out = String::new();
        for Found { file, place, severity, rule, message, .. } in self.found {
            let command = if *severity == "advice" { "notice" } else { severity };
            let Place { line, column } = place;
            let file = escape(file, true);
            let message = escape(message, false);
            let _ = writeln!(
                out,
                "::{command} file={file},line={line},col={column},title={rule}::{message}"
            );
        }
        out + &self.summary
    }
}

/// Escapes a text for a command of a GitHub workflow.
fn escape(text: &str, is_property: bool) -> String {
    let text = text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    if is_property { text.replace(':', "%3A").replace(',', "%2C") } else { text }
}

/// Returns a count with its noun: `1 error`, `2 errors`.
pub fn counted(count: usize, noun: &str) -> String {
    let end = if count == 1 || noun == "advice" { "" } else { "s" };
    format!("{count} {noun}{end}")
}
