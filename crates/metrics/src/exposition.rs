//! [`Exposition`]: metrics in the text format of Prometheus (`text/plain; version=0.0.4`).

use crate::Histogram;
use crate::selection::{AllowedLabels, EVERYTHING, MetricsSelection};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The types of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricType {
    /// Only increases.
    Counter,
    /// Increases and decreases.
    Gauge,
    /// Buckets, a sum and a count.
    Histogram,
}

impl MetricType {
    fn name(self) -> &'static str {
        match self {
            MetricType::Counter => "counter",
            MetricType::Gauge => "gauge",
            MetricType::Histogram => "histogram",
        }
    }
}

/// The name, help text, type and labels of a metric.
#[derive(Debug)]
pub struct Description {
    /// The full name, for example `apiserver_request_total`.
    pub name: &'static str,
    /// The help text, in one sentence.
    pub help: &'static str,
    /// The type.
    pub metric_type: MetricType,
    /// The names of the labels, in alphabetical order.
    pub labels: &'static [&'static str],
}

impl Description {
    /// Describes a counter.
    pub const fn counter(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
    ) -> Description {
        Description { name, help, metric_type: MetricType::Counter, labels }
    }

    /// Describes a gauge.
    pub const fn gauge(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
    ) -> Description {
        Description { name, help, metric_type: MetricType::Gauge, labels }
    }

    /// Describes a histogram.
    pub const fn histogram(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
    ) -> Description {
        Description { name, help, metric_type: MetricType::Histogram, labels }
    }

    /// Returns the stability level at the start of the help text (`ALPHA` of `[ALPHA] ...`), and
    /// the version since which the metric is deprecated, or an empty text. `None`: the metric has
    /// no level.
    fn stability(&self) -> Option<(&'static str, &'static str)> {
        let (level, rest) = self.help.strip_prefix('[')?.split_once(']')?;
        let deprecated = rest.trim_start().strip_prefix("(Deprecated since ");
        let version = deprecated.and_then(|rest| rest.split_once(')')).map(|(version, _)| version);
        Some((level, version.unwrap_or_default()))
    }
}

/// The text of several metric families.
#[derive(Debug)]
pub struct Exposition<'s> {
    selection: &'s MetricsSelection,
    families: Vec<(&'static str, String)>,
    /// Stability level and version of deprecation of all families, with or without samples.
    registered: BTreeMap<(&'static str, &'static str), u64>,
    hidden: u64,
}

impl Default for Exposition<'static> {
    fn default() -> Exposition<'static> {
        Exposition::new(&EVERYTHING)
    }
}

impl<'s> Exposition<'s> {
    /// Starts a text with what is selected.
    pub fn new(selection: &'s MetricsSelection) -> Exposition<'s> {
        Exposition { selection, families: vec![], registered: BTreeMap::new(), hidden: 0 }
    }

    /// Starts a family. A family without samples is left out.
    pub fn family(&mut self, description: &'static Description) -> FamilyText<'_, 's> {
        let is_selected = !self.selection.disabled.contains(description.name);
        if let Some(stability) = description.stability().filter(|_| is_selected) {
            *self.registered.entry(stability).or_default() += 1;
        }
        self.start(description, is_selected)
    }

    /// Starts a family that is left out unless `--show-hidden-metrics-for-version` asks for it.
    pub fn hidden_family(&mut self, description: &'static Description) -> FamilyText<'_, 's> {
        if self.selection.shows_hidden {
            return self.family(description);
        }
        self.hidden += 1;
        self.start(description, false)
    }

    fn start(
        &mut self,
        description: &'static Description,
        is_selected: bool,
    ) -> FamilyText<'_, 's> {
        let allowed = self.selection.allowed.get(description.name);
        let merged = BTreeMap::new();
        let text = String::new();
        FamilyText { exposition: self, description, is_selected, allowed, merged, text }
    }

    /// Appends the metrics about metrics: how many there are, and what the selection left out.
    pub fn write_about(&mut self) {
        // The four of this function are metrics too.
        *self.registered.entry(("BETA", "")).or_default() += 3;
        *self.registered.entry(("ALPHA", "")).or_default() += 1;
        let registered = self.registered.clone();
        let mut text = self.start(&REGISTERED, true);
        for ((level, deprecated), count) in registered {
            text.value(&[deprecated, level], count as f64);
        }
        drop(text);
        let counts = [
            (&HIDDEN, self.hidden),
            (&DISABLED, self.selection.disabled.len() as u64),
            (&UNEXPECTED, self.selection.unexpected.get()),
        ];
        for (description, count) in counts {
            self.start(description, true).value(&[], count as f64);
        }
    }

    /// Returns the text, with the families sorted by name.
    pub fn finish(mut self) -> String {
        self.families.sort_by_key(|(name, _)| *name);
        self.families.into_iter().map(|(_, text)| text).collect()
    }
}

static REGISTERED: Description = Description::counter(
    "registered_metrics_total",
    "[BETA] Metrics by stability level and by the version since which they are deprecated.",
    &["deprecated_version", "stability_level"],
);

static HIDDEN: Description = Description::counter(
    "hidden_metrics_total",
    "[BETA] Metrics that are hidden, because they have been deprecated for long.",
    &[],
);

static DISABLED: Description =
    Description::counter("disabled_metrics_total", "[BETA] Metrics that a flag disables.", &[]);

static UNEXPECTED: Description = Description::counter(
    "cardinality_enforcement_unexpected_categorizations_total",
    "[ALPHA] Series that were served with a label value `unexpected`, because of the allowed values.",
    &[],
);

/// The samples of series whose labels have become equal.
#[derive(Debug)]
enum Merged {
    Value(f64),
    Histogram(Histogram),
}

/// The text of a family. Dropping it adds the text to the [`Exposition`].
#[derive(Debug)]
pub struct FamilyText<'a, 's> {
    exposition: &'a mut Exposition<'s>,
    description: &'static Description,
    is_selected: bool,
    /// Allowed values by label; `None`: all values of all labels.
    allowed: Option<&'s AllowedLabels>,
    /// Series of a family with allowed values, by their labels.
    merged: BTreeMap<Vec<String>, Merged>,
    text: String,
}

impl FamilyText<'_, '_> {
    /// Writes the value of a counter or gauge.
    pub fn value(&mut self, labels: &[&str], value: f64) {
        if !self.is_selected {
            return;
        }
        let Some(key) = self.constrained(labels) else {
            return self.sample("", labels, None, value);
        };
        match self.merged.entry(key).or_insert(Merged::Value(0.0)) {
            Merged::Value(sum) => *sum += value,
            Merged::Histogram(_) => {}
        }
    }

    /// Writes a histogram.
    pub fn histogram(&mut self, labels: &[&str], histogram: &Histogram) {
        if !self.is_selected {
            return;
        }
        let Some(key) = self.constrained(labels) else {
            return self.write_histogram(labels, histogram);
        };
        let sum = match self.merged.remove(&key) {
            Some(Merged::Histogram(known)) => known.plus(histogram),
            Some(Merged::Value(_)) | None => histogram.plus(&histogram.empty()),
        };
        self.merged.insert(key, Merged::Histogram(sum));
    }

    /// Returns the labels with `unexpected` for values that are not allowed; `None` if all values
    /// are allowed.
    fn constrained(&self, values: &[&str]) -> Option<Vec<String>> {
        let allowed = self.allowed?;
        let mut is_changed = false;
        let constrained = self
            .description
            .labels
            .iter()
            .zip(values)
            .map(|(label, value)| {
                let is_allowed = allowed.get(*label).is_none_or(|known| known.contains(*value));
                is_changed |= !is_allowed;
                if is_allowed { (*value).to_owned() } else { "unexpected".to_owned() }
            })
            .collect();
        if is_changed {
            self.exposition.selection.unexpected.increment();
        }
        Some(constrained)
    }

    fn write_histogram(&mut self, labels: &[&str], histogram: &Histogram) {
        let mut total = 0;
        for (bound, count) in histogram.cumulative() {
            self.sample("_bucket", labels, Some(bound), count as f64);
            total = count;
        }
        self.sample("_sum", labels, None, histogram.sum());
        self.sample("_count", labels, None, total as f64);
    }

    fn sample(&mut self, suffix: &str, values: &[&str], bound: Option<f64>, value: f64) {
        let Description { name, help, metric_type, labels } = self.description;
        debug_assert_eq!(labels.len(), values.len(), "{name}");
        let text = &mut self.text;
        if text.is_empty() {
            let kind = metric_type.name();
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        }
        text.push_str(name);
        text.push_str(suffix);
        let mut opening = '{';
        for (label, value) in labels.iter().zip(values) {
            text.push(opening);
            opening = ',';
            let _ = write!(text, "{label}=\"");
            escape(value, text);
            text.push('"');
        }
        if let Some(bound) = bound {
            let _ = write!(text, "{opening}le=\"{}\"", number(bound));
            opening = ',';
        }
        if opening == ',' {
            text.push('}');
        }
        let _ = writeln!(text, " {}", number(value));
    }
}

impl Drop for FamilyText<'_, '_> {
    fn drop(&mut self) {
        for (labels, merged) in std::mem::take(&mut self.merged) {
            let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
            match merged {
                Merged::Value(value) => self.sample("", &labels, None, value),
                Merged::Histogram(histogram) => self.write_histogram(&labels, &histogram),
            }
        }
        if !self.text.is_empty() {
            self.exposition.families.push((self.description.name, std::mem::take(&mut self.text)));
        }
    }
}

fn escape(value: &str, text: &mut String) {
    for char in value.chars() {
        match char {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
}

/// Formats a number as Prometheus' Go client does, by `strconv.FormatFloat(f, 'g', -1, 64)`: with
/// an exponent from a million on, and below 0.0001.
fn number(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        Ok(exponent) if (-4..6).contains(&exponent) => value.to_string(),
        Ok(exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        Err(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bounds, Unit};

    #[test]
    fn numbers_are_written_as_by_go() {
        let cases = [
            (0.0, "0"),
            (1.0, "1"),
            (524_288.0, "524288"),
            (1e6, "1e+06"),
            (1_050_000.0, "1.05e+06"),
            (306_376_704.0, "3.06376704e+08"),
            (0.005, "0.005"),
            (0.0001, "0.0001"),
            (0.000_031_807, "3.1807e-05"),
            (-1.0, "-1"),
            (f64::INFINITY, "+Inf"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
    }

    static SIZES: Description = Description {
        name: "sizes",
        help: "Sizes.",
        metric_type: MetricType::Histogram,
        labels: &["of"],
    };
    static COUNT: Description = Description {
        name: "count",
        help: "Counts.",
        metric_type: MetricType::Counter,
        labels: &[],
    };
    static NONE: Description =
        Description { name: "none", help: "None.", metric_type: MetricType::Gauge, labels: &[] };

    #[test]
    fn families_are_sorted_by_name() {
        static BOUNDS: Bounds = Bounds { unit: Unit::Amount, upper: &[1000.0, 1e6] };
        let histogram = Histogram::new(&BOUNDS);
        histogram.observe(1001);
        let mut out = Exposition::default();
        out.family(&SIZES).histogram(&["a \"b\"\\\n"], &histogram);
        out.family(&NONE);
        out.family(&COUNT).value(&[], 3.0);
        let want = r#"# HELP count Counts.
# TYPE count counter
count 3
# HELP sizes Sizes.
# TYPE sizes histogram
sizes_bucket{of="a \"b\"\\\n",le="1000"} 0
sizes_bucket{of="a \"b\"\\\n",le="1e+06"} 1
sizes_bucket{of="a \"b\"\\\n",le="+Inf"} 1
sizes_sum{of="a \"b\"\\\n"} 1001
sizes_count{of="a \"b\"\\\n"} 1
"#;
        assert_eq!(out.finish(), want);
    }

    #[test]
    fn a_selection_disables_families_and_merges_series() {
        static BOUNDS: Bounds = Bounds { unit: Unit::Amount, upper: &[10.0] };
        static HITS: Description =
            Description::counter("hits", "[STABLE] Hits.", &["code", "verb"]);
        static OLD: Description = Description::gauge("old", "[ALPHA] Old.", &[]);
        let mut selection = MetricsSelection::default();
        selection.disable("count");
        selection.allow("hits", "code", ["200"]);
        selection.allow("sizes", "of", ["a"]);
        let mut out = Exposition::new(&selection);
        out.family(&COUNT).value(&[], 3.0);
        let mut hits = out.family(&HITS);
        for (code, count) in [("200", 1.0), ("201", 2.0), ("404", 3.0)] {
            hits.value(&[code, "GET"], count);
        }
        drop(hits);
        let mut sizes = out.family(&SIZES);
        for (of, amount) in [("a", 1), ("b", 2), ("c", 20)] {
            let histogram = Histogram::new(&BOUNDS);
            histogram.observe(amount);
            sizes.histogram(&[of], &histogram);
        }
        drop(sizes);
        out.hidden_family(&OLD).value(&[], 1.0);
        out.write_about();
        let text = out.finish();
        for line in [
            "hits{code=\"200\",verb=\"GET\"} 1",
            "hits{code=\"unexpected\",verb=\"GET\"} 5",
            "sizes_count{of=\"a\"} 1",
            "sizes_bucket{of=\"unexpected\",le=\"10\"} 1",
            "sizes_sum{of=\"unexpected\"} 22",
            "disabled_metrics_total 1",
            "hidden_metrics_total 1",
            "cardinality_enforcement_unexpected_categorizations_total 4",
            "registered_metrics_total{deprecated_version=\"\",stability_level=\"STABLE\"} 1",
        ] {
            assert!(text.lines().any(|known| known == line), "{line}\n{text}");
        }
        assert!(!text.contains("\ncount ") && !text.contains("old"), "{text}");
        selection = MetricsSelection::default();
        selection.show_hidden();
        let mut out = Exposition::new(&selection);
        out.hidden_family(&OLD).value(&[], 1.0);
        assert!(out.finish().contains("\nold 1"));
    }
}
