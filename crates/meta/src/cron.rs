//! The five fields of a cron schedule, in the syntax and with the messages of the Go library that
//! Kubernetes uses.

use crate::status::quote;

/// Marks a field that any value fulfils: of the two fields of days, the other one decides then.
pub const ANY: u64 = 1 << 63;

/// The bounds and names of each field.
const FIELDS: [(u32, u32, &[&str]); 5] = [
    (0, 59, &[]),
    (0, 23, &[]),
    (1, 31, &[]),
    (1, 12, &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]),
    (0, 6, &["sun", "mon", "tue", "wed", "thu", "fri", "sat"]),
];

/// Bit sets of the values of each field. [`ANY`] is added for `*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    /// From 0 to 59.
    pub minutes: u64,
    /// From 0 to 23.
    pub hours: u64,
    /// Days of the month, from 1.
    pub days: u64,
    /// From 1 to 12.
    pub months: u64,
    /// Days of the week, from Sunday as 0.
    pub weekdays: u64,
}

impl Fields {
    /// Parses five fields.
    pub fn parse(text: &str) -> Result<Fields, String> {
        let parts: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = parts[..] else {
            let found = parts.len();
            let parts = parts.join(" ");
            return Err(format!("expected exactly 5 fields, found {found}: [{parts}]"));
        };
        Ok(Fields {
            minutes: field(minutes, 0)?,
            hours: field(hours, 1)?,
            days: field(days, 2)?,
            months: field(months, 3)?,
            weekdays: field(weekdays, 4)?,
        })
    }
}

/// Parses the field at a place: ranges that are separated by commas.
fn field(text: &str, place: usize) -> Result<u64, String> {
    let (min, max, words) = FIELDS[place];
    let ranges = text.split(',').filter(|range| !range.is_empty());
    ranges.map(|one| range(one, min, max, words)).try_fold(0, |all, range| Ok(all | range?))
}

/// Parses a range: `*`, `5`, `mon-fri`, `*/15`, `10-20/2`.
fn range(text: &str, min: u32, max: u32, words: &[&str]) -> Result<u64, String> {
    let mut steps = text.split('/');
    let span = steps.next().unwrap_or_default();
    let step = steps.next();
    if steps.next().is_some() {
        return Err(format!("too many slashes: {text}"));
    }
    let mut ends = span.split('-');
    let first = ends.next().unwrap_or_default();
    let last = ends.next();
    let is_any = matches!(first, "*" | "?");
    let (start, mut end) = if is_any {
        (min, max)
    } else {
        let start = number_or_word(first, min, words)?;
        let end = match last {
            None => start,
            Some(last) => number_or_word(last, min, words)?,
        };
        if ends.next().is_some() {
            return Err(format!("too many hyphens: {text}"));
        }
        (start, end)
    };
    let step = match step {
        None => 1,
        Some(step) => number(step)?,
    };
    if text.contains('/') && last.is_none() {
        end = max;
    }
    if start < min {
        return Err(format!("beginning of range ({start}) below minimum ({min}): {text}"));
    }
    if end > max {
        return Err(format!("end of range ({end}) above maximum ({max}): {text}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    let any = if is_any && step == 1 { ANY } else { 0 };
    let step = usize::try_from(step).unwrap_or(usize::MAX);
    Ok((start..=end).step_by(step).fold(any, |bits, at| bits | 1 << at))
}

fn number_or_word(text: &str, min: u32, words: &[&str]) -> Result<u32, String> {
    let lower = text.to_lowercase();
    match words.iter().position(|word| *word == lower) {
        Some(at) => Ok(u32::try_from(at).unwrap_or(0) + min),
        None => number(text),
    }
}

fn number(text: &str) -> Result<u32, String> {
    let parsed: i64 = text.trim_start_matches('+').parse().map_err(|_| {
        format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {}: invalid syntax",
            quote(text)
        )
    })?;
    u32::try_from(parsed).map_err(|_| format!("negative number ({parsed}) not allowed: {text}"))
}
