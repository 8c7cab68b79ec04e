//! Integers, floating point and units.

use super::{CONVENTIONS_PRIMITIVE, CONVENTIONS_UNITS};
use crate::definition::{Field, Part, Version};
use crate::finding::{Check, Report, Rule, Severity};
use crate::words;
use keelson_meta::Value;

pub static INTEGER_FORMAT: Rule = Rule {
    id: "integer-format",
    severity: Severity::Error,
    section: CONVENTIONS_PRIMITIVE,
    summary: "An integer is an int32 or an int64.",
    advice: "Add `format: int32` (Go: int32), or int64 where it does not suffice. Without it, clients in other \
             languages must guess the width.",
    check: Check::Field(integer_format),
};

pub static INTEGER_BOUNDS: Rule = Rule {
    id: "integer-bounds",
    severity: Severity::Warning,
    section: CONVENTIONS_PRIMITIVE,
    summary: "Numbers in the spec have bounds.",
    advice: "Add `minimum`, and `maximum` where too large a number does harm. A rule in CEL about the field also does.",
    check: Check::Field(integer_bounds),
};

pub static INT64_RANGE: Rule = Rule {
    id: "int64-range",
    severity: Severity::Error,
    section: CONVENTIONS_PRIMITIVE,
    summary: "Integers are greater than -2^53 and less than 2^53.",
    advice: "JavaScript and other languages read JSON numbers as floating point. Use a string for larger numbers.",
    check: Check::Field(int64_range),
};

pub static FLOATING_POINT: Rule = Rule {
    id: "floating-point",
    severity: Severity::Error,
    section: CONVENTIONS_PRIMITIVE,
    summary: "The spec has no floating point numbers.",
    advice: "They change when they are decoded and encoded again. Use an integer of a smaller unit (percent, milli), \
             or a quantity.",
    check: Check::Field(floating_point),
};

pub static UNIT: Rule = Rule {
    id: "unit-missing",
    severity: Severity::Error,
    section: CONVENTIONS_UNITS,
    summary: "The unit of a number is in its name or in its value.",
    advice: "Add it to the name (timeoutSeconds), or use a quantity.",
    check: Check::Field(unit),
};

/// The first integer that floating point numbers of 64 bits no longer tell from the next one.
const INTEGERS_END: f64 = 9_007_199_254_740_992.0;
/// Bounds of int32.
const INT32: std::ops::RangeInclusive<f64> = -2_147_483_648.0..=2_147_483_647.0;
/// Words for amounts that have a unit.
const MEASURED: [&str; 9] =
    ["timeout", "interval", "duration", "period", "ttl", "delay", "latency", "bandwidth", "memory"];

fn number(value: Option<&Value>) -> Option<f64> {
    match value? {
        Value::Int(number) => Some(*number as f64),
        Value::Float(number) => Some(*number),
        _ => None,
    }
}

fn bounds(field: &Field<'_>) -> (Option<f64>, Option<f64>) {
    (number(field.schema.get("minimum")), number(field.schema.get("maximum")))
}

fn integer_format(version: &Version<'_>, field: &Field<'_>, report: &mut Report) {
    if field.kind() != "integer" || matches!(field.text("format"), "int32" | "int64") {
        return;
    }
    // Bounds tell the width as well.
    if let (Some(minimum), Some(maximum)) = bounds(field)
        && INT32.contains(&minimum)
        && INT32.contains(&maximum)
    {
        return;
    }
    match field.text("format") {
        "" => report.field(version, field, "type", "the integer has no format: int32 or int64"),
        other => {
            let message = format!("the integer has the format {other:?}, not int32 or int64");
            report.field(version, field, "format", message);
        }
    }
}

fn integer_bounds(version: &Version<'_>, field: &Field<'_>, report: &mut Report) {
    let is_bounded = bounds(field) != (None, None)
        || ["enum", "oneOf", "anyOf", "allOf", "not"].iter().any(|name| field.has(name));
    let is_counted = field.kind() == "integer" && field.part == Part::Spec;
    if is_counted && !is_bounded && !version.has_rule_about(field) {
        report.field(version, field, "type", "the integer has neither minimum nor maximum");
    }
}

fn int64_range(version: &Version<'_>, field: &Field<'_>, report: &mut Report) {
    if field.kind() != "integer" {
        return;
    }
    let (minimum, maximum) = bounds(field);
    for (name, bound) in [("minimum", minimum), ("maximum", maximum)] {
        if bound.is_some_and(|bound| bound.abs() >= INTEGERS_END) {
            report.field(version, field, name, format!("the {name} is beyond 2^53"));
        }
    }
}

fn floating_point(version: &Version<'_>, field: &Field<'_>, report: &mut Report) {
    if field.kind() == "number" && field.part == Part::Spec {
        report.field(version, field, "type", "is a floating point number");
    }
}

fn unit(version: &Version<'_>, field: &Field<'_>, report: &mut Report) {
    if !field.is_named() || !matches!(field.kind(), "integer" | "number") {
        return;
    }
    let last = words::last(field.name);
    if MEASURED.contains(&last.as_str()) {
        let unit = match last.as_str() {
            "memory" => "Bytes",
            "bandwidth" => "BitsPerSecond",
            _ => "Seconds",
        };
        let message = format!(
            "the name does not tell the unit, as {:?} would",
            format!("{}{unit}", field.name)
        );
        report.field(version, field, "", message);
    }
}
