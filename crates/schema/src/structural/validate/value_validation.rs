//! Validates the constraints of a schema besides the type: `enum`, lengths, patterns, formats,
//! bounds, counts, `allOf`, `anyOf`, `oneOf` and `not` (kube-openapi `pkg/validation/validate`).

use super::{NO_FIELD, ValueRef};
use crate::structural::{Node, Pattern, Type, ValueValidation, formats};
use keelson_meta::status::quote;
use keelson_meta::{ErrorList, FieldError, Path, Str, Value};

/// Returns the type name of a value, as errors show it.
pub(super) fn type_name(value: ValueRef<'_>) -> &'static str {
    let ValueRef::Other(value) = value else { return "object" };
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Int(_) => "integer",
        Value::Float(number) if is_whole(*number) => "integer",
        Value::Float(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        _ => "object",
    }
}

/// The largest integer that a JSON number distinguishes from its neighbors.
const WHOLE_MAX: f64 = 9_007_199_254_740_991.0;

/// The first float beyond the integers of 64 bits.
const INT64_MAX: f64 = 9_223_372_036_854_775_808.0;

/// Whether a number is an integer.
fn is_whole(number: f64) -> bool {
    number.fract() == 0.0 && number.abs() <= WHOLE_MAX
}

/// Formats a number; both 1 and 1.0 are `1`.
fn number_text(number: &Value) -> String {
    match number {
        Value::Float(number) if is_whole(*number) => (*number as i64).to_string(),
        other => keelson_meta::status::show(other),
    }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Int(number) => Some(*number as f64),
        Value::Float(number) => Some(*number),
        _ => None,
    }
}

/// Whether `one < other`. Integers are compared exactly.
fn is_less(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Int(one), Value::Int(other)) => one < other,
        _ => number(one).zip(number(other)).is_some_and(|(one, other)| one < other),
    }
}

fn is_multiple(value: &Value, of: &Value) -> bool {
    match (value, of) {
        (Value::Int(value), Value::Int(of)) => *of == 0 || value % of == 0,
        _ => {
            let Some((value, of)) = number(value).zip(number(of)) else { return true };
            let times = if of < 1.0 { 1.0 / of * value } else { value / of };
            of == 0.0 || is_nearly_whole(times)
        }
    }
}

/// Whether a quotient counts as an integer; upstream tolerates rounding errors.
fn is_nearly_whole(number: f64) -> bool {
    const LARGEST: f64 = 9_007_199_254_740_991.0;
    let whole = number.trunc();
    let difference = (number - whole).abs();
    let is_near = whole != 0.0 && difference / (number.abs() + whole.abs()) < 1e-9;
    number.abs() <= LARGEST && (number == whole || is_near)
}

/// Returns the value as errors show it: as a float, if the bound does not match the type of the
/// schema.
fn reported_value(value: &Value, is_comparable: bool) -> Value {
    match number(value) {
        Some(number) if !is_comparable => Value::Float(number),
        _ => value.clone(),
    }
}

impl ValueValidation {
    /// Validates `enum`.
    pub(super) fn validate_enum(
        &self,
        value: ValueRef<'_>,
        path: &Path<'_>,
        errors: &mut ErrorList,
    ) {
        let is_same = |known: &Value| match (known, value) {
            (Value::Null, _) => false,
            (
                Value::Int(_) | Value::Float(_),
                ValueRef::Other(value @ (Value::Int(_) | Value::Float(_))),
            ) => !is_less(known, value) && !is_less(value, known),
            _ => value.is(known),
        };
        if self.enumeration.is_empty() || self.enumeration.iter().any(is_same) {
            return;
        }
        let words: Vec<String> = self
            .enumeration
            .iter()
            .map(|value| match value {
                Value::String(text) => text.to_string(),
                other => number_text(other),
            })
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        errors.push(FieldError::not_supported(path, value.to_value().sorted(), &words));
    }

    /// Validates length, pattern and format of a string. Counts one if its format is known.
    pub(super) fn validate_string(
        &self,
        text: &Str,
        path: &Path<'_>,
        errors: &mut ErrorList,
    ) -> u32 {
        let length = text.chars().count() as u64;
        let invalid = |why: String| {
            let why = format!("{path} in body {why}");
            FieldError::invalid(path, Value::String(text.clone()), &why)
        };
        // Upstream reports only the first of these errors.
        if let Some(most) = self.max_length.filter(|most| length > *most) {
            errors.push(FieldError::too_long(path, usize::try_from(most).unwrap_or(usize::MAX)));
        } else if let Some(least) = self.min_length.filter(|least| length < *least) {
            errors.push(invalid(format!("should be at least {least} chars long")));
        } else if let Some(Pattern { text: pattern, .. }) =
            self.pattern.as_deref().filter(|pattern| !pattern.is_match(text))
        {
            errors.push(invalid(format!("should match '{pattern}'")));
        }
        let Some(format) = self.format.as_deref() else { return 0 };
        let Some(fits) = formats::has(format, text) else { return 0 };
        if !fits {
            let why = format!("{path} in body must be of type {format}: {}", quote(text));
            errors.push(FieldError::type_invalid(path, Value::String(text.clone()), &why));
        }
        1
    }

    /// Validates format, `multipleOf`, `minimum` and `maximum` of a number.
    pub(super) fn validate_number(
        &self,
        node: &Node,
        value: &Value,
        path: &Path<'_>,
        errors: &mut ErrorList,
    ) {
        self.validate_number_format(node, value, path, errors);
        let Some(numbers) = &self.numbers else { return };
        if let Some(of) = &numbers.multiple_of {
            let is_comparable = self.matches_number_format(node, of);
            let of = self.bound(node, value, "MultipleOf value", of, path, errors);
            if !is_less(&Value::Int(0), &of) {
                let number_text = number_text(&of);
                let why = format!(
                    "factor MultipleOf declared for {path} must be positive: {number_text}"
                );
                errors.push(FieldError::invalid(path, of, &why));
            } else if !is_multiple(value, &of) {
                let why = format!("{path} in body should be a multiple of {}", number_text(&of));
                errors.push(FieldError::invalid(path, reported_value(value, is_comparable), &why));
            }
        }
        let bounds = [
            ("Minimum boundary value", "greater", &numbers.minimum),
            ("Maximum boundary value", "less", &numbers.maximum),
        ];
        for (what, side, bound) in bounds {
            let Some((bound, is_outside)) = bound else { continue };
            let is_comparable = self.matches_number_format(node, bound);
            let bound = self.bound(node, value, what, bound, path, errors);
            let is_beyond = match side {
                "less" => is_less(&bound, value),
                _ => is_less(value, &bound),
            };
            let is_equal = !is_less(&bound, value) && !is_less(value, &bound);
            if is_beyond || (*is_outside && is_equal) {
                let or = if *is_outside { "" } else { " or equal to" };
                let bound = number_text(&bound);
                let why = format!("{path} in body should be {side} than{or} {bound}");
                errors.push(FieldError::invalid(path, reported_value(value, is_comparable), &why));
            }
        }
    }

    /// Returns the bound to compare with: an integer is compared with the truncated bound. Reports
    /// a bound that does not match the type of the schema.
    fn bound(
        &self,
        node: &Node,
        value: &Value,
        what: &str,
        bound: &Value,
        path: &Path<'_>,
        errors: &mut ErrorList,
    ) -> Value {
        let fits = self.matches_number_format(node, bound);
        if !fits {
            let of = self.number_type_name(node);
            let why = format!("{what} must be of type {of} in {path}");
            errors.push(FieldError::invalid(&NO_FIELD, "", &why));
        }
        match (value, bound) {
            (Value::Int(_), Value::Float(number)) if fits => Value::Int(*number as i64),
            _ => bound.clone(),
        }
    }

    /// Validates that a number is in the range of its type and format.
    pub(super) fn validate_number_format(
        &self,
        node: &Node,
        value: &Value,
        path: &Path<'_>,
        errors: &mut ErrorList,
    ) {
        if !self.matches_number_format(node, value) {
            let of = self.number_type_name(node);
            let why = format!("Checked value must be of type {of} in {path}");
            errors.push(FieldError::invalid(&NO_FIELD, "", &why));
        }
    }

    /// Returns the format of numbers; empty if it is unknown or of another type.
    fn number_format(&self) -> &str {
        self.format.as_deref().filter(|_| self.format_applies).unwrap_or_default()
    }

    fn matches_number_format(&self, node: &Node, value: &Value) -> bool {
        let format = self.number_format();
        if node.kind != Some(Type::Integer) {
            let is_single = matches!(format, "float" | "float32");
            return !is_single
                || number(value).is_none_or(|number| number.abs() <= f32::MAX.into());
        }
        let whole = match value {
            Value::Int(number) => Some(*number),
            Value::Float(number) if number.fract() == 0.0 && number.abs() < INT64_MAX => {
                Some(*number as i64)
            }
            _ => None,
        };
        match format {
            "int32" => whole.is_some_and(|number| i32::try_from(number).is_ok()),
            "uint32" => whole.is_some_and(|number| u32::try_from(number).is_ok()),
            "uint64" => whole.is_some_and(|number| number >= 0),
            _ => whole.is_some(),
        }
    }

    /// Returns the type and format of numbers, as errors show them.
    fn number_type_name(&self, node: &Node) -> String {
        let kind = node.kind.map_or("number", Type::name);
        match self.number_format() {
            "" => format!("{kind} (default format)"),
            format => format!("{kind} with format {format}"),
        }
    }

    /// Validates the number of items or properties.
    pub(super) fn validate_count(
        &self,
        count: usize,
        what: &str,
        least: Option<u64>,
        most: Option<u64>,
        path: &Path<'_>,
        errors: &mut ErrorList,
    ) {
        if let Some(least) = least.filter(|least| (count as u64) < *least) {
            let why = format!("{path} in body should have at least {least} {what}");
            let count = Value::Int(i64::try_from(count).unwrap_or(i64::MAX));
            errors.push(FieldError::invalid(path, count, &why));
        }
        if let Some(most) = most.filter(|most| count as u64 > *most) {
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            errors.push(FieldError::too_many(path, count, most));
        }
    }

    /// Validates `anyOf`, `oneOf`, `allOf` and `not`. Returns the match counts
    /// ([`Node::validate_if_changed`]) of the schemas that determined the result.
    pub(super) fn validate_combinators(
        &self,
        value: ValueRef<'_>,
        path: &Path<'_>,
        errors: &mut ErrorList,
    ) -> u32 {
        let no_field = |why: String| {
            let why = format!("\"{path}\" {why}");
            FieldError::invalid(&NO_FIELD, "", &why)
        };
        let Some(combinators) = &self.combinators else { return 0 };
        let mut count = 0;
        if !combinators.any_of.is_empty() {
            let alternatives = Alternatives::of(&combinators.any_of, value, path, true);
            if alternatives.valid == 0 {
                errors.push(no_field("must validate at least one schema (anyOf)".to_owned()));
            }
            count += alternatives.report(errors);
        }
        if !combinators.one_of.is_empty() {
            let alternatives = Alternatives::of(&combinators.one_of, value, path, false);
            let found = match alternatives.valid {
                0 => "Found none valid".to_owned(),
                valid => format!("Found {valid} valid alternatives"),
            };
            if alternatives.valid != 1 {
                let words = "must validate one and only one schema (oneOf)";
                errors.push(no_field(format!("{words}. {found}")));
            }
            if alternatives.valid < 2 {
                count += alternatives.report(errors);
            }
        }
        if !combinators.all_of.is_empty() {
            let mut valid = 0;
            for node in &combinators.all_of {
                let mut found = ErrorList::new();
                count += node.validate_value(value, None, path, &mut found);
                valid += usize::from(found.is_empty());
                errors.extend(found);
            }
            if valid < combinators.all_of.len() {
                let none = if valid == 0 { ". None validated" } else { "" };
                errors.push(no_field(format!("must validate all the schemas (allOf){none}")));
            }
        }
        if let Some(not) = &combinators.not {
            let mut found = ErrorList::new();
            not.validate_value(value, None, path, &mut found);
            if found.is_empty() {
                errors.push(no_field("must not validate the schema (not)".to_owned()));
            }
        }
        count
    }
}

/// The results of the alternatives of an `anyOf` or `oneOf`.
#[derive(Default)]
struct Alternatives {
    /// Number of alternatives that accept the value.
    valid: usize,
    /// The match count of the first one that accepts it.
    first: u32,
    /// The highest match count of a failed alternative and its errors; of equal counts the first.
    best: Option<(u32, ErrorList)>,
}

impl Alternatives {
    fn of(
        nodes: &[Node],
        value: ValueRef<'_>,
        path: &Path<'_>,
        is_one_enough: bool,
    ) -> Alternatives {
        let mut alternatives = Alternatives::default();
        for node in nodes {
            let mut found = ErrorList::new();
            let count = node.validate_value(value, None, path, &mut found);
            if found.is_empty() {
                if alternatives.valid == 0 {
                    alternatives.first = count;
                }
                alternatives.valid += 1;
                alternatives.best = None;
                if is_one_enough {
                    break;
                }
            } else if alternatives.valid == 0
                && alternatives.best.as_ref().is_none_or(|(best, _)| count > *best)
            {
                alternatives.best = Some((count, found));
            }
        }
        alternatives
    }

    /// Adds the errors to report, if any, and returns the match count.
    fn report(self, errors: &mut ErrorList) -> u32 {
        let Some((count, found)) = self.best else { return self.first };
        errors.extend(found);
        count
    }
}
