//! Formats a report as text or Markdown: one table of figures with a budget, one for each growth,
//! and one of the rest. Another report can be shown next to it.

use crate::report::{Figure, Kind, Report};
use anyhow::Result;
use clap::ValueEnum;
use std::collections::BTreeSet;

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables for a terminal.
    Table,
    /// JSON.
    Json,
    /// Tables in Markdown.
    Markdown,
}

/// Formats a report. `other` is shown next to it, except in JSON.
pub fn render(report: &Report, form: Format, other: Option<&Report>) -> Result<String> {
    Ok(match form {
        Format::Json => report.json()?,
        Format::Table => plain(report, other),
        Format::Markdown => markdown(report, other),
    })
}

/// A table with a title.
struct Table {
    title: String,
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// Formats tables for a terminal.
fn plain(ours: &Report, other: Option<&Report>) -> String {
    let mut text = format!("{}\n", notes(ours, other));
    for Table { title, head, rows } in grids(ours, other) {
        let width = |column: usize| {
            let cells = rows.iter().chain([&head]).filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        text.push_str(&format!("\n{title}\n"));
        for row in std::iter::once(&head).chain(&rows) {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            let line = cells.collect::<Vec<_>>().join("  ");
            text.push_str(&format!("{}\n", line.trim_end()));
        }
    }
    text
}

/// Formats tables in Markdown, each under a heading with the note of the run.
fn markdown(ours: &Report, other: Option<&Report>) -> String {
    let notes = notes(ours, other);
    let page = grids(ours, other).into_iter().map(|Table { title, head, rows }| {
        let line = |row: &Vec<String>| format!("| {} |\n", row.join(" | "));
        let rule = format!("|{}\n", "---|".repeat(head.len()));
        let rows: String = rows.iter().map(line).collect();
        format!("## {title}\n\n{notes}\n\n{}{rule}{rows}", line(&head))
    });
    page.collect::<Vec<_>>().join("\n")
}

fn notes(ours: &Report, other: Option<&Report>) -> String {
    let other = other.map(|other| format!("; beside it: {}", other.note));
    format!("{}{}", ours.note, other.unwrap_or_default())
}

fn grids(ours: &Report, other: Option<&Report>) -> Vec<Table> {
    let mut grids = vec![];
    grids.extend(budgets(ours, other));
    let mut grown: Vec<&str> = vec![];
    for figure in &ours.figures {
        if matches!(figure.kind, Kind::Step(_)) && !grown.contains(&figure.profile.as_str()) {
            grown.push(&figure.profile);
        }
    }
    grids.extend(grown.into_iter().map(|profile| steps(profile, ours, other)));
    grids.extend(rest(ours, other));
    grids
}

/// Returns the same figure of another run.
fn same<'a>(figure: &Figure, other: Option<&'a Report>) -> Option<&'a Figure> {
    let is_same = |candidate: &&Figure| {
        let step = |kind: &Kind| if let Kind::Step(step) = kind { Some(*step) } else { None };
        candidate.profile == figure.profile
            && candidate.what == figure.what
            && step(&candidate.kind) == step(&figure.kind)
    };
    other?.figures.iter().find(is_same)
}

/// Formats the value of another run, and its ratio to ours.
fn comparison(figure: &Figure, other: Option<&Report>) -> Option<String> {
    let same = same(figure, other)?;
    let share = same
        .value
        .zip(figure.value)
        .map(|(theirs, ours)| theirs / ours)
        .map(|share| format!(" ({share:.2} of ours)"))
        .unwrap_or_default();
    Some(format!("{}{share}", format_figure(same)))
}

fn budgets(ours: &Report, other: Option<&Report>) -> Option<Table> {
    let mut rows = vec![];
    for figure in &ours.figures {
        let Kind::Budget { budget, note } = &figure.kind else { continue };
        let reached = if figure.value.is_some() { format_figure(figure) } else { note.clone() };
        let limit = budget.map_or("-".to_owned(), |budget| number(budget, &figure.unit));
        let met = match figure.is_met() {
            Some(true) => "met",
            Some(false) => "NOT MET",
            None => "-",
        };
        let mut row = vec![figure.what.clone(), reached, limit, met.to_owned()];
        row.extend(other.map(|_| comparison(figure, other).unwrap_or_default()));
        rows.push(row);
    }
    let head = head(&["what", "reached", "budget", "met or not"], other);
    (!rows.is_empty()).then(|| Table { title: "Budgets".to_owned(), head, rows })
}

/// Returns a table with a row for each figure, a column for each size, and the ratio of the last
/// size to the first.
fn steps(profile: &str, ours: &Report, other: Option<&Report>) -> Table {
    let of = |figure: &&Figure| figure.profile == profile && matches!(figure.kind, Kind::Step(_));
    let step = |figure: &Figure| if let Kind::Step(step) = figure.kind { step } else { 0 };
    let figures: Vec<&Figure> = ours.figures.iter().filter(of).collect();
    let sizes: BTreeSet<u64> = figures.iter().map(|figure| step(figure)).collect();
    let mut whats: Vec<&str> = vec![];
    for figure in &figures {
        if !whats.contains(&figure.what.as_str()) {
            whats.push(&figure.what);
        }
    }
    let row = |what: &&str| {
        let row: Vec<&Figure> =
            figures.iter().filter(|figure| figure.what == *what).copied().collect();
        let cell = |size: &u64| {
            let Some(figure) = row.iter().find(|figure| step(figure) == *size) else {
                return String::new();
            };
            let theirs = same(figure, other).map(|same| format!(" ({})", format_figure(same)));
            format!("{}{}", format_figure(figure), theirs.unwrap_or_default())
        };
        let first = row.iter().min_by_key(|figure| step(figure)).and_then(|figure| figure.value);
        let last = row.iter().max_by_key(|figure| step(figure)).and_then(|figure| figure.value);
        let ratio = last.zip(first).map(|(last, first)| format!("{:.2}", last / first));
        let mut cells = vec![what.to_string()];
        cells.extend(sizes.iter().map(cell));
        cells.push(ratio.unwrap_or_default());
        cells
    };
    let mut head = vec!["what".to_owned()];
    head.extend(sizes.iter().map(|size| thousands(*size)));
    head.push("last / first".to_owned());
    Table { title: capitalize(profile), head, rows: whats.iter().map(row).collect() }
}

fn rest(ours: &Report, other: Option<&Report>) -> Option<Table> {
    let mut rows = vec![];
    for figure in ours.figures.iter().filter(|figure| figure.kind == Kind::Plain) {
        let mut row = vec![figure.profile.clone(), figure.what.clone(), format_figure(figure)];
        row.extend(other.map(|_| comparison(figure, other).unwrap_or_default()));
        rows.push(row);
    }
    let head = head(&["profile", "figure", "value"], other);
    (!rows.is_empty()).then(|| Table { title: "Profiles".to_owned(), head, rows })
}

fn head(cells: &[&str], other: Option<&Report>) -> Vec<String> {
    cells.iter().copied().chain(other.map(|_| "beside it")).map(str::to_owned).collect()
}

fn capitalize(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// Formats a value with its unit.
fn format_figure(figure: &Figure) -> String {
    figure.value.map_or("-".to_owned(), |value| number(value, &figure.unit))
}

fn number(value: f64, unit: &str) -> String {
    let number = match value.abs() {
        whole if whole >= 1000.0 => thousands(value.round() as u64),
        below if value.fract() == 0.0 || below >= 100.0 => format!("{value:.0}"),
        below if below >= 10.0 => format!("{value:.1}"),
        below if below >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    };
    let space = if unit.starts_with('/') || unit.is_empty() { "" } else { " " };
    format!("{number}{space}{unit}")
}

/// Formats a number with separators: 1,234,567.
fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (number, digit) in digits.chars().enumerate() {
        if number > 0 && (digits.len() - number).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(note: &str, factor: f64) -> Report {
        let mut report = Report { note: note.to_owned(), figures: vec![], violations: vec![] };
        report.add("create", "rate", "/s", 1000.0 * factor);
        for (size, value) in [(1000, 2.0), (10_000, 3.0)] {
            report.add_step("growth with objects", size, "get p50", "ms", value * factor);
        }
        report.add_step("growth with objects", 1000, "list", "us", 5.0);
        let budget = |budget: Option<f64>, note: &str| Kind::Budget { budget, note: note.into() };
        report.push("budget", "start", "ms", Some(40.0 * factor), budget(Some(50.0), ""));
        report.push("budget", "get", "/s", Some(900.0), budget(Some(40_000.0), ""));
        report.push("budget", "a watch", "kB", Some(12.0), budget(None, ""));
        report.push("budget", "a CRD", "kB", None, budget(Some(60.0), "not yet"));
        report
    }

    #[test]
    fn budgets_come_first_then_growth_then_the_rest() {
        let want = "\
## Budgets

commit a

| what | reached | budget | met or not |
|---|---|---|---|
| start | 40 ms | 50 ms | met |
| get | 900/s | 40,000/s | NOT MET |
| a watch | 12 kB | - | - |
| a CRD | not yet | 60 kB | - |

## Growth with objects

commit a

| what | 1,000 | 10,000 | last / first |
|---|---|---|---|
| get p50 | 2 ms | 3 ms | 1.50 |
| list | 5 us |  | 1.00 |

## Profiles

commit a

| profile | figure | value |
|---|---|---|
| create | rate | 1,000/s |
";
        assert_eq!(markdown(&report("commit a", 1.0), None), want);
    }

    #[test]
    fn another_run_is_shown_next_to_it() {
        let text = markdown(&report("commit a", 1.0), Some(&report("commit b", 2.0)));
        assert!(text.contains("\ncommit a; beside it: commit b\n"), "{text}");
        assert!(text.contains("| start | 40 ms | 50 ms | met | 80 ms (2.00 of ours) |"), "{text}");
        assert!(text.contains("| get p50 | 2 ms (4 ms) | 3 ms (6 ms) | 1.50 |"), "{text}");
        assert!(text.contains("| create | rate | 1,000/s | 2,000/s (2.00 of ours) |"), "{text}");
        assert!(text.contains("| a CRD | not yet | 60 kB | - | - |"), "{text}");
    }

    #[test]
    fn a_terminal_gets_columns() {
        let text = plain(&report("commit a", 1.0), None);
        assert!(text.starts_with("commit a\n\nBudgets\nwhat     reached  budget    met or not\n"));
        assert!(text.contains("\nstart    40 ms    50 ms     met\n"), "{text}");
    }

    #[test]
    fn values_have_three_or_four_significant_digits() {
        let check = |value, unit, want: &str| assert_eq!(number(value, unit), want);
        check(1_234_567.8, "/s", "1,234,568/s");
        check(999.4, "ms", "999 ms");
        check(12.34, "ms", "12.3 ms");
        check(1.0, "x", "1 x");
        check(0.5, "ms", "0.50 ms");
        check(0.0123, "ms", "0.0123 ms");
        check(3.0, "", "3");
    }
}
