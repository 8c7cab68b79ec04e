//! What was measured: a list of figures, as a table, as JSON, or as Markdown beside somebody else's.

use crate::histogram::Histogram;
use anyhow::{Context, Result};
use clap::ValueEnum;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;

/// How a result is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// For people.
    Table,
    /// For programs.
    Json,
    /// For a page.
    Markdown,
}

/// One figure.
#[derive(Debug)]
struct Figure {
    profile: String,
    what: String,
    unit: String,
    value: f64,
}

/// All figures of a run.
#[derive(Debug)]
pub struct Report {
    note: String,
    figures: Vec<Figure>,
}

impl Report {
    /// An empty one. The note says which commit and when; the kind of machine is added, and how busy it
    /// was: other work makes every figure worse.
    pub fn new(note: &str) -> Report {
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let total = info.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kib = total.and_then(|text| text.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        let machine = format!("{cores} cores, {} GB", kib.unwrap_or(0).div_ceil(1 << 20));
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').next().unwrap_or_default();
        let machine = format!("{machine}, load {load} before");
        let note = if note.is_empty() { machine } else { format!("{note}, {machine}") };
        Report { note, figures: vec![] }
    }

    /// Adds a figure.
    pub fn add(&mut self, profile: &str, what: &str, unit: &str, value: f64) {
        let (profile, what, unit) = (profile.to_owned(), what.to_owned(), unit.to_owned());
        self.figures.push(Figure { profile, what, unit, value });
    }

    /// Adds a rate, its latencies, and the errors where there were any.
    pub fn add_load(&mut self, profile: &str, rate: f64, latency: &Histogram, errors: u64) {
        self.add(profile, "rate", "/s", rate);
        for (what, share) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
            self.add(profile, what, "ms", latency.quantile(share));
        }
        if errors > 0 {
            self.add(profile, "errors", "", errors as f64);
        }
    }

    /// Reads what [`Form::Json`] wrote.
    pub fn load(path: &Path) -> Result<Report> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let value: Value = serde_json::from_str(&text).context("a result as JSON")?;
        let text = |of: &Value, name: &str| of[name].as_str().unwrap_or_default().to_owned();
        let figures = value["figures"].as_array().context("figures")?.iter().map(|figure| Figure {
            profile: text(figure, "profile"),
            what: text(figure, "figure"),
            unit: text(figure, "unit"),
            value: figure["value"].as_f64().unwrap_or(f64::NAN),
        });
        Ok(Report { note: text(&value, "note"), figures: figures.collect() })
    }

    /// The result as text; with another one beside it, except in JSON.
    pub fn written(&self, form: Form, other: Option<&Report>) -> Result<String> {
        match form {
            Form::Json => self.json(),
            Form::Table => self.rows(other, |cells| {
                let [profile, what, ours, other] = cells;
                format!("{profile:<34} {what:<8} {ours:>14} {other}").trim_end().to_owned()
            }),
            Form::Markdown => {
                let page = self.rows(other, |cells| format!("| {} |", cells.join(" | ")))?;
                let (title, rows) = page.split_once('\n').unwrap_or_default();
                Ok(format!("{title}\n|---|---|---|---|\n{rows}"))
            }
        }
    }

    fn json(&self) -> Result<String> {
        let figures = self.figures.iter().map(|figure| {
            let rounded = (figure.value * 1000.0).round() / 1000.0;
            json!({"profile": figure.profile, "figure": figure.what, "unit": figure.unit,
                "value": rounded})
        });
        let figures: Vec<Value> = figures.collect();
        let mut text =
            serde_json::to_string_pretty(&json!({"note": self.note, "figures": figures}))?;
        text.push('\n');
        Ok(text)
    }

    fn rows(&self, other: Option<&Report>, row: impl Fn([&str; 4]) -> String) -> Result<String> {
        let mut text = String::new();
        let note = other.map_or("", |other| &other.note);
        writeln!(text, "{}", row(["profile", "figure", &self.note, note]))?;
        for figure in &self.figures {
            let same = other.and_then(|other| {
                other.figures.iter().find(|f| f.profile == figure.profile && f.what == figure.what)
            });
            let beside = same
                .map(|same| format!("{} ({:.2} of ours)", shown(same), same.value / figure.value));
            let cells =
                [&figure.profile, &figure.what, &shown(figure), &beside.unwrap_or_default()];
            writeln!(text, "{}", row(cells.map(String::as_str)))?;
        }
        Ok(text)
    }
}

/// A value with its unit, as precise as it is worth.
fn shown(figure: &Figure) -> String {
    let value = figure.value;
    let number = match value.abs() {
        below if below < 10.0 && value.fract() != 0.0 => format!("{value:.2}"),
        below if below < 100.0 && value.fract() != 0.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    };
    let space = if figure.unit.starts_with('/') || figure.unit.is_empty() { "" } else { " " };
    format!("{number}{space}{}", figure.unit)
}
