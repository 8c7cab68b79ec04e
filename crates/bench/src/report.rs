//! What was measured: a list of figures, as JSON and read from it again. How they are shown: `table.rs`.

use crate::drive::{Errors, Load};
use crate::histogram::Histogram;
use crate::process::megabytes;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::path::Path;

/// One figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    pub profile: String,
    pub what: String,
    pub unit: String,
    /// None: it was not measured.
    pub value: Option<f64>,
    pub kind: Kind,
}

/// What a figure is held against.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Nothing.
    Plain,
    /// What it may be, where that was agreed. The note says why there is no value.
    Budget { budget: Option<f64>, note: String },
    /// The same of another size, such as another number of objects.
    Step(u64),
}

impl Figure {
    /// Whether the budget is kept. Of what happens each second there shall be more, of all else less.
    pub fn is_met(&self) -> Option<bool> {
        let Kind::Budget { budget: Some(budget), .. } = self.kind else { return None };
        let value = self.value?;
        Some(if self.unit.starts_with('/') { value >= budget } else { value <= budget })
    }

    fn json(&self) -> Value {
        let rounded = self.value.map(|value| (value * 1000.0).round() / 1000.0);
        let mut figure = json!({"profile": self.profile, "figure": self.what, "unit": self.unit,
            "value": rounded});
        match &self.kind {
            Kind::Plain => {}
            Kind::Step(step) => figure["step"] = json!(step),
            Kind::Budget { budget, note } => {
                figure["budget"] = json!(budget);
                figure["met"] = json!(self.is_met());
                if !note.is_empty() {
                    figure["note"] = json!(note);
                }
            }
        }
        figure
    }

    fn of_json(value: &Value) -> Figure {
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let kind = match (value["step"].as_u64(), value.get("budget")) {
            (Some(step), _) => Kind::Step(step),
            (None, Some(budget)) => Kind::Budget { budget: budget.as_f64(), note: text("note") },
            (None, None) => Kind::Plain,
        };
        let (profile, what, unit) = (text("profile"), text("figure"), text("unit"));
        Figure { profile, what, unit, value: value["value"].as_f64(), kind }
    }
}

/// All figures of a run, and the promises that did not hold in it.
#[derive(Debug)]
pub struct Report {
    /// Commit, date, machine.
    pub note: String,
    pub figures: Vec<Figure>,
    pub broken: Vec<String>,
}

impl Report {
    /// An empty one. The note says which commit and when; the kind of machine is added, and how busy it
    /// was: other work makes every figure worse.
    pub fn new(note: &str) -> Report {
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let memory = megabytes(&read("/proc/meminfo"), "MemTotal:").unwrap_or(0.0) / 1e3;
        let load = read("/proc/loadavg");
        let load = load.split(' ').next().unwrap_or_default();
        let machine = format!("{cores} cores, {memory:.0} GB, load {load} before");
        let note = if note.is_empty() { machine } else { format!("{note}, {machine}") };
        Report { note, figures: vec![], broken: vec![] }
    }

    /// Adds a figure.
    pub fn add(&mut self, profile: &str, what: &str, unit: &str, value: f64) {
        self.push(profile, what, unit, Some(value), Kind::Plain);
    }

    /// Adds a figure of one size of many.
    pub fn add_step(&mut self, profile: &str, step: usize, what: &str, unit: &str, value: f64) {
        self.push(profile, what, unit, Some(value), Kind::Step(step as u64));
    }

    /// Adds a figure of any kind.
    pub fn push(&mut self, profile: &str, what: &str, unit: &str, value: Option<f64>, kind: Kind) {
        let (profile, what, unit) = (profile.to_owned(), what.to_owned(), unit.to_owned());
        self.figures.push(Figure { profile, what, unit, value, kind });
    }

    /// Adds a rate, its latencies, the time it took on cores, and the errors where there were any.
    pub fn add_load(&mut self, profile: &str, load: &Load) {
        self.add(profile, "rate", "/s", load.rate());
        self.add_latency(profile, &load.latency);
        if let Some(cpu) = load.cpu_each() {
            self.add(profile, "server CPU", "ms", cpu);
        }
        if let Some(cpu) = load.own_each() {
            self.add(profile, "load CPU", "ms", cpu);
        }
        self.add_errors(profile, &load.errors);
    }

    /// Adds latencies.
    pub fn add_latency(&mut self, profile: &str, latency: &Histogram) {
        for (what, share) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
            self.add(profile, what, "ms", latency.quantile(share));
        }
    }

    /// Adds errors by their names.
    pub fn add_errors(&mut self, profile: &str, errors: &Errors) {
        for (name, count) in errors.named() {
            self.add(profile, &format!("error {name}"), "", count as f64);
        }
    }

    /// Reads what [`Report::json`] wrote.
    pub fn load(path: &Path) -> Result<Report> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Report::parse(&text).with_context(|| path.display().to_string())
    }

    fn parse(text: &str) -> Result<Report> {
        let value: Value = serde_json::from_str(text).context("a result as JSON")?;
        let figures = value["figures"].as_array().context("figures")?;
        let note = value["note"].as_str().unwrap_or_default().to_owned();
        Ok(Report { note, figures: figures.iter().map(Figure::of_json).collect(), broken: vec![] })
    }

    /// The result as JSON.
    pub fn json(&self) -> Result<String> {
        let figures: Vec<Value> = self.figures.iter().map(Figure::json).collect();
        let mut text =
            serde_json::to_string_pretty(&json!({"note": self.note, "figures": figures}))?;
        text.push('\n');
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(unit: &str, value: Option<f64>, budget: Option<f64>) -> Figure {
        let kind = Kind::Budget { budget, note: String::new() };
        Figure { profile: "budget".into(), what: "x".into(), unit: unit.into(), value, kind }
    }

    #[test]
    fn rates_are_to_reach_their_budget_and_all_else_to_stay_below() {
        let check = |unit, value, limit, want: Option<bool>| {
            assert_eq!(budget(unit, value, limit).is_met(), want, "{value:?} {limit:?}{unit}");
        };
        check("/s", Some(100.0), Some(100.0), Some(true));
        check("/s", Some(99.0), Some(100.0), Some(false));
        check("ms", Some(100.0), Some(100.0), Some(true));
        check("ms", Some(101.0), Some(100.0), Some(false));
        check("MB", None, Some(100.0), None);
        check("MB", Some(1.0), None, None);
    }

    #[test]
    fn json_gives_back_what_was_written() {
        let mut report = Report::new("commit abc");
        report.add("create", "rate", "/s", 1234.5);
        report.add_step("growth", 1000, "get p50", "ms", 0.125);
        for figure in [budget("ms", Some(1.5), Some(2.0)), budget("kB", Some(1.0), None)] {
            report.figures.push(figure);
        }
        let kind = Kind::Budget { budget: Some(60.0), note: "not yet".into() };
        report.push("budget", "a CRD", "kB", None, kind);
        let text = report.json().expect("JSON");
        let read = Report::parse(&text).expect("a report");
        assert_eq!(read.note, report.note);
        assert_eq!(read.figures, report.figures);
        let value: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(value["figures"][2]["met"], true);
        assert_eq!(value["figures"][4]["met"], Value::Null);
    }
}
