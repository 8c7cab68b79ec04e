//! [`Report`]: the measured figures, and their JSON form. `table.rs` formats them as tables.

use crate::drive::{Errors, Load};
use crate::histogram::Histogram;
use crate::process::megabytes;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::path::Path;

/// One measured value.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    pub profile: String,
    pub what: String,
    pub unit: String,
    /// `None`: not measured.
    pub value: Option<f64>,
    pub kind: Kind,
}

/// What a figure is compared to.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Nothing.
    Plain,
    /// Its limit, if there is one. The note is the reason when there is no value.
    Budget { budget: Option<f64>, note: String },
    /// The same figure at other sizes. Holds the size, such as the number of objects.
    Step(u64),
}

impl Figure {
    /// Whether the budget is met. It is a minimum for rates, and a maximum for everything else.
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

    fn from_json(value: &Value) -> Figure {
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let kind = match (value["step"].as_u64(), value.get("budget")) {
            (Some(step), _) => Kind::Step(step),
            (None, Some(budget)) => Kind::Budget { budget: budget.as_f64(), note: text("note") },
            (None, None) => Kind::Plain,
        };
        let profile = text("profile");
        let what = text("figure");
        let unit = text("unit");
        Figure { profile, what, unit, value: value["value"].as_f64(), kind }
    }
}

/// All figures of a run.
#[derive(Debug)]
pub struct Report {
    /// Commit, date, machine.
    pub note: String,
    pub figures: Vec<Figure>,
    /// Promises that did not hold; they make the run fail.
    pub violations: Vec<String>,
}

impl Report {
    /// Returns an empty report. The kind of machine and its current load average are added to the
    /// note.
    pub fn new(note: &str) -> Report {
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let memory = megabytes(&read("/proc/meminfo"), "MemTotal:").unwrap_or(0.0) / 1e3;
        let loads = read("/proc/loadavg");
        let load = loads.split(' ').next().unwrap_or_default();
        let machine = format!("{cores} cores, {memory:.0} GB, load {load} before");
        let note = if note.is_empty() { machine } else { format!("{note}, {machine}") };
        Report { note, figures: vec![], violations: vec![] }
    }

    /// Adds a figure.
    pub fn add(&mut self, profile: &str, what: &str, unit: &str, value: f64) {
        self.push(profile, what, unit, Some(value), Kind::Plain);
    }

    /// Adds a figure at one of several sizes.
    pub fn add_step(&mut self, profile: &str, step: usize, what: &str, unit: &str, value: f64) {
        self.push(profile, what, unit, Some(value), Kind::Step(step as u64));
    }

    /// Adds a figure of any kind.
    pub fn push(&mut self, profile: &str, what: &str, unit: &str, value: Option<f64>, kind: Kind) {
        let profile = profile.to_owned();
        let what = what.to_owned();
        let unit = unit.to_owned();
        self.figures.push(Figure { profile, what, unit, value, kind });
    }

    /// Adds the rate, latencies, CPU times and errors of a load.
    pub fn add_load(&mut self, profile: &str, load: &Load) {
        self.add(profile, "rate", "/s", load.rate());
        self.add_latency(profile, &load.latency);
        if let Some(cpu) = load.server_cpu_ms() {
            self.add(profile, "server CPU", "ms", cpu);
        }
        if let Some(cpu) = load.client_cpu_ms() {
            self.add(profile, "load CPU", "ms", cpu);
        }
        self.add_errors(profile, &load.errors);
    }

    /// Adds quantiles of latencies.
    pub fn add_latency(&mut self, profile: &str, latency: &Histogram) {
        for (what, share) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
            self.add(profile, what, "ms", latency.quantile(share));
        }
    }

    /// Adds the counts of errors.
    pub fn add_errors(&mut self, profile: &str, errors: &Errors) {
        for (name, count) in errors.named() {
            self.add(profile, &format!("error {name}"), "", count as f64);
        }
    }

    /// Reads the JSON of [`Report::json`].
    pub fn load(path: &Path) -> Result<Report> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Report::parse(&text).with_context(|| path.display().to_string())
    }

    fn parse(text: &str) -> Result<Report> {
        let value: Value = serde_json::from_str(text).context("a result as JSON")?;
        let figures = value["figures"].as_array().context("figures")?;
        let note = value["note"].as_str().unwrap_or_default().to_owned();
        Ok(Report {
            note,
            figures: figures.iter().map(Figure::from_json).collect(),
            violations: vec![],
        })
    }

    /// Returns the report as JSON.
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
    fn a_budget_is_a_minimum_for_rates_and_else_a_maximum() {
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
    fn json_round_trips() {
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
