//! [`Exposition`]: metrics in the text format of Prometheus (`text/plain; version=0.0.4`).

use crate::Histogram;
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

/// The text of several metric families.
#[derive(Debug, Default)]
pub struct Exposition {
    families: Vec<(&'static str, String)>,
}

impl Exposition {
    /// Starts a family. A family without samples is left out.
    pub fn family(&mut self, description: &'static Description) -> FamilyText<'_> {
        FamilyText { exposition: self, description, text: String::new() }
    }

    /// Returns the text, with the families sorted by name.
    pub fn finish(mut self) -> String {
        self.families.sort_by_key(|(name, _)| *name);
        self.families.into_iter().map(|(_, text)| text).collect()
    }
}

/// The text of a family. Dropping it adds the text to the [`Exposition`].
#[derive(Debug)]
pub struct FamilyText<'a> {
    exposition: &'a mut Exposition,
    description: &'static Description,
    text: String,
}

impl FamilyText<'_> {
    /// Writes the value of a counter or gauge.
    pub fn value(&mut self, labels: &[&str], value: f64) {
        self.sample("", labels, None, value);
    }

    /// Writes a histogram.
    pub fn histogram(&mut self, labels: &[&str], histogram: &Histogram) {
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

impl Drop for FamilyText<'_> {
    fn drop(&mut self) {
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

/// Formats a number as Prometheus' Go client does, by `strconv.FormatFloat(f, 'g', -1, 64)`: with an exponent from a
/// million on, and below 0.0001.
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
}
