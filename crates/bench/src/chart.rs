//! The picture of two results side by side, as SVG: bars of both servers for the figures that
//! people ask about, each row with a scale of its own.

use crate::report::Report;
use anyhow::{Context, Result};
use std::fmt::Write as _;

/// The names of both servers.
const NAMES: [&str; 2] = ["Keelson", "kube-apiserver"];
const WIDTH: f64 = 760.0;
/// Where the bars begin, and the length of the longest.
const BARS_LEFT: f64 = 250.0;
const BAR_MAX: f64 = 330.0;
const BAR_HEIGHT: f64 = 13.0;
const ROW_HEIGHT: f64 = 46.0;
const HEAD_HEIGHT: f64 = 40.0;
const STYLE: &str = "\
text { font: 13px system-ui, sans-serif; fill: #24292f } \
.quiet { fill: #656d76 } .ours { fill: #0969da } .theirs { fill: #afb8c1 } .ratio { font-weight: 600 } \
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .quiet { fill: #9198a1 } \
.ours { fill: #4493f8 } .theirs { fill: #59636e } }";

/// One row of the picture.
struct Row {
    label: &'static str,
    /// The beginning of the profile's name, and the figure.
    profile: &'static str,
    figure: &'static str,
    unit: &'static str,
    /// Whether more is better.
    is_rate: bool,
}

const fn row(
    label: &'static str,
    profile: &'static str,
    figure: &'static str,
    unit: &'static str,
    is_rate: bool,
) -> Row {
    Row { label, profile, figure, unit, is_rate }
}

const ROWS: [Row; 8] = [
    row("start until ready", "start,", "ready p50", "ms", false),
    row("memory, idle", "start,", "RSS", "MB", false),
    row("create ConfigMaps", "create,", "rate", "/s", true),
    row("get ConfigMaps", "get,", "rate", "/s", true),
    row("patch ConfigMaps", "patch,", "rate", "/s", true),
    row("server-side apply", "apply,", "rate", "/s", true),
    row("list 5,000 ConfigMaps", "list 5000 whole, JSON, consistent", "p50", "ms", false),
    row("CPU of a watch event", "watch,", "server CPU per event", "us", false),
];

/// Draws the figures that both results have.
pub fn draw(ours: &Report, theirs: &Report) -> Result<String> {
    let mut rows = vec![];
    for row in &ROWS {
        if let (Some(our), Some(their)) = (row.value(ours), row.value(theirs)) {
            rows.push((row, [our, their]));
        }
    }
    anyhow::ensure!(!rows.is_empty(), "the results have no figure in common");
    let height = HEAD_HEIGHT + ROW_HEIGHT * rows.len() as f64 + 24.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\" aria-label=\"Keelson beside kube-apiserver\">\n\
         <style>{STYLE}</style>\n"
    );
    for (name, class, left) in
        [(NAMES[0], "ours", BARS_LEFT), (NAMES[1], "theirs", BARS_LEFT + 110.0)]
    {
        writeln!(
            out,
            "<rect class=\"{class}\" x=\"{left}\" y=\"10\" width=\"12\" height=\"12\" rx=\"2\"/>\
             <text x=\"{}\" y=\"21\">{name}</text>",
            left + 18.0
        )
        .context("format")?;
    }
    for (at, (row, values)) in rows.iter().enumerate() {
        row.draw(*values, HEAD_HEIGHT + ROW_HEIGHT * at as f64, &mut out)?;
    }
    let note = escaped(&ours.note);
    writeln!(out, "<text class=\"quiet\" x=\"10\" y=\"{}\">{note}</text>\n</svg>", height - 8.0)
        .context("format")?;
    Ok(out)
}

impl Row {
    fn value(&self, report: &Report) -> Option<f64> {
        let mut figures = report.figures.iter();
        let found = figures
            .find(|figure| figure.what == self.figure && figure.profile.starts_with(self.profile));
        found?.value.filter(|value| *value > 0.0)
    }

    fn draw(&self, values: [f64; 2], top: f64, out: &mut String) -> Result<()> {
        let [ours, theirs] = values;
        let ratio = if self.is_rate { ours / theirs } else { theirs / ours };
        let longest = ours.max(theirs);
        writeln!(out, "<text x=\"10\" y=\"{}\">{}</text>", top + 19.0, self.label)
            .context("format")?;
        for (value, class, y) in [(ours, "ours", top), (theirs, "theirs", top + BAR_HEIGHT + 3.0)] {
            let length = (value / longest * BAR_MAX).max(1.0);
            writeln!(
                out,
                "<rect class=\"{class}\" x=\"{BARS_LEFT}\" y=\"{y}\" width=\"{length:.1}\" \
                 height=\"{BAR_HEIGHT}\" rx=\"2\"/><text class=\"quiet\" x=\"{:.1}\" y=\"{}\">{}</text>",
                BARS_LEFT + length + 6.0,
                y + 11.0,
                self.shown(value)
            )
            .context("format")?;
        }
        let side = if self.is_rate { "more" } else { "less" };
        writeln!(
            out,
            "<text class=\"ratio\" text-anchor=\"end\" x=\"{}\" y=\"{}\">{}x {side}</text>",
            WIDTH - 10.0,
            top + 19.0,
            rounded(ratio)
        )
        .context("format")
    }

    fn shown(&self, value: f64) -> String {
        match self.unit {
            "/s" => format!("{} a second", rounded(value)),
            unit => format!("{} {unit}", rounded(value)),
        }
    }
}

/// Two digits that say something, with commas between thousands.
fn rounded(value: f64) -> String {
    if value < 10.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(create: f64, list: f64) -> Report {
        let mut report = Report::new("commit <a>");
        report.add("create, 16 connections, 1024 B", "rate", "/s", create);
        report.add("list 5000 whole, JSON, consistent", "p50", "ms", list);
        report
    }

    #[test]
    fn bars_have_the_ratio_of_the_values() {
        let drawn = draw(&report(12_000.0, 10.0), &report(2_000.0, 150.0)).expect("a picture");
        for part in [
            "width=\"330.0\"",
            "width=\"55.0\"",
            "width=\"22.0\"",
            "12,000 a second",
            "6.0x more",
            "15x less",
            "150 ms",
            "commit &lt;a>",
        ] {
            assert!(drawn.contains(part), "{part} in {drawn}");
        }
        assert_eq!(drawn.matches("<rect class=\"ours\"").count(), 3);
    }

    #[test]
    fn results_without_a_common_figure_have_no_picture() {
        assert!(draw(&report(1.0, 1.0), &Report::new("")).is_err());
    }
}
