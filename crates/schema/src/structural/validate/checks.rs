//! What a schema asks of a value beside its type: `enum`, lengths, patterns, formats, bounds, counts, and the
//! schemas of `allOf`, `anyOf`, `oneOf` and `not` (kube-openapi `pkg/validation/validate`).

use super::{Given, NOWHERE};
use crate::structural::{Checks, Node, Pattern, Type, formats};
use keelson_meta::status::quote;
use keelson_meta::{ErrorList, FieldError, Path, Str, Value};

/// What a value is called.
pub(super) fn type_name(value: Given<'_>) -> &'static str {
    let Given::Other(value) = value else { return "object" };
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

/// The largest whole number that JSON's numbers tell from its neighbours.
const WHOLE_MAX: f64 = 9_007_199_254_740_991.0;

/// Whether a number has no fraction.
fn is_whole(number: f64) -> bool {
    number.fract() == 0.0 && number.abs() <= WHOLE_MAX
}

/// `1` of 1 and of 1.0.
fn shown(number: &Value) -> String {
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

/// Whether one number is less than another; whole ones are compared exactly.
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

/// Whether a quotient is taken for a whole number, as JSON has them: large ones need not be quite.
fn is_nearly_whole(number: f64) -> bool {
    const LARGEST: f64 = 9_007_199_254_740_991.0;
    let whole = number.trunc();
    let difference = (number - whole).abs();
    let is_near = whole != 0.0 && difference / (number.abs() + whole.abs()) < 1e-9;
    number.abs() <= LARGEST && (number == whole || is_near)
}

/// A number as it was compared with a bound: one that is no number of the schema's type is compared as any number.
fn compared(value: &Value, is_comparable: bool) -> Value {
    match number(value) {
        Some(number) if !is_comparable => Value::Float(number),
        _ => value.clone(),
    }
}

impl Checks {
    /// Whether a value is one of `enum`.
    pub(super) fn of_enumeration(&self, value: Given<'_>, path: &Path<'_>, errors: &mut ErrorList) {
        let is_same = |known: &Value| match (known, value) {
            (Value::Null, _) => false,
            (
                Value::Int(_) | Value::Float(_),
                Given::Other(value @ (Value::Int(_) | Value::Float(_))),
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
                other => shown(other),
            })
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        errors.push(FieldError::not_supported(path, value.to_value().sorted(), &words));
    }

    /// Length, pattern and format of a text. Counts one when its format is known.
    pub(super) fn of_text(&self, text: &Str, path: &Path<'_>, errors: &mut ErrorList) -> u32 {
        let length = text.chars().count() as u64;
        let invalid = |why: String| {
            let why = format!("{path} in body {why}");
            FieldError::invalid(path, Value::String(text.clone()), &why)
        };
        // Of these, upstream tells the first.
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

    /// Range, factor and bounds of a number.
    pub(super) fn of_number(
        &self,
        node: &Node,
        value: &Value,
        path: &Path<'_>,
        errors: &mut ErrorList,
    ) {
        self.of_range(node, value, path, errors);
        let Some(numbers) = &self.numbers else { return };
        if let Some(of) = &numbers.multiple_of {
            let is_comparable = self.is_in_range(node, of);
            let of = self.bound(node, value, ("MultipleOf value", of), path, errors);
            if !is_less(&Value::Int(0), &of) {
                let shown = shown(&of);
                let why =
                    format!("factor MultipleOf declared for {path} must be positive: {shown}");
                errors.push(FieldError::invalid(path, of, &why));
            } else if !is_multiple(value, &of) {
                let why = format!("{path} in body should be a multiple of {}", shown(&of));
                errors.push(FieldError::invalid(path, compared(value, is_comparable), &why));
            }
        }
        let bounds = [
            ("Minimum boundary value", "greater", &numbers.minimum),
            ("Maximum boundary value", "less", &numbers.maximum),
        ];
        for (what, side, bound) in bounds {
            let Some((bound, is_outside)) = bound else { continue };
            let is_comparable = self.is_in_range(node, bound);
            let bound = self.bound(node, value, (what, bound), path, errors);
            let is_beyond = match side {
                "less" => is_less(&bound, value),
                _ => is_less(value, &bound),
            };
            let is_equal = !is_less(&bound, value) && !is_less(value, &bound);
            if is_beyond || (*is_outside && is_equal) {
                let or = if *is_outside { "" } else { " or equal to" };
                let bound = shown(&bound);
                let why = format!("{path} in body should be {side} than{or} {bound}");
                errors.push(FieldError::invalid(path, compared(value, is_comparable), &why));
            }
        }
    }

    /// A bound as a value is compared with it: of one that is of the schema's type, a whole number is compared
    /// with the whole part. One that is of another type is a fault.
    fn bound(
        &self,
        node: &Node,
        value: &Value,
        (what, bound): (&str, &Value),
        path: &Path<'_>,
        errors: &mut ErrorList,
    ) -> Value {
        let fits = self.is_in_range(node, bound);
        if !fits {
            let of = self.range_name(node);
            let why = format!("{what} must be of type {of} in {path}");
            errors.push(FieldError::invalid(&NOWHERE, "", &why));
        }
        match (value, bound) {
            (Value::Int(_), Value::Float(number)) if fits => Value::Int(*number as i64),
            _ => bound.clone(),
        }
    }

    /// Whether a number is one of its type and format.
    pub(super) fn of_range(
        &self,
        node: &Node,
        value: &Value,
        path: &Path<'_>,
        errors: &mut ErrorList,
    ) {
        if !self.is_in_range(node, value) {
            let of = self.range_name(node);
            let why = format!("Checked value must be of type {of} in {path}");
            errors.push(FieldError::invalid(&NOWHERE, "", &why));
        }
    }

    /// The format of a number: one that is unknown, or of another type, is none.
    fn format_of_number(&self) -> &str {
        self.format.as_deref().filter(|_| self.format_counts).unwrap_or_default()
    }

    fn is_in_range(&self, node: &Node, value: &Value) -> bool {
        let format = self.format_of_number();
        if node.kind != Some(Type::Integer) {
            let is_single = matches!(format, "float" | "float32");
            return !is_single
                || number(value).is_none_or(|number| number.abs() <= f32::MAX.into());
        }
        let whole = match value {
            Value::Int(number) => Some(*number),
            Value::Float(number) if is_whole(*number) => Some(*number as i64),
            _ => None,
        };
        match format {
            "int32" => whole.is_some_and(|number| i32::try_from(number).is_ok()),
            "uint32" => whole.is_some_and(|number| u32::try_from(number).is_ok()),
            "uint64" => whole.is_some_and(|number| number >= 0),
            _ => whole.is_some(),
        }
    }

    /// The type of numbers, with its format.
    fn range_name(&self, node: &Node) -> String {
        let kind = node.kind.map_or("number", Type::name);
        match self.format_of_number() {
            "" => format!("{kind} (default format)"),
            format => format!("{kind} with format {format}"),
        }
    }

    /// The number of items or members.
    pub(super) fn of_count(
        &self,
        count: usize,
        (what, least, most): (&str, Option<u64>, Option<u64>),
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

    /// `anyOf`, `oneOf`, `allOf` and `not`. Returns the counts ([`Node::value`]) of the schemas whose faults, or
    /// success, decided.
    pub(super) fn of_schemas(
        &self,
        value: Given<'_>,
        path: &Path<'_>,
        errors: &mut ErrorList,
    ) -> u32 {
        let nowhere = |why: String| {
            let why = format!("\"{path}\" {why}");
            FieldError::invalid(&NOWHERE, "", &why)
        };
        let Some(combined) = &self.combined else { return 0 };
        let mut count = 0;
        if !combined.any_of.is_empty() {
            let tried = Tried::of(&combined.any_of, value, path, true);
            if tried.valid == 0 {
                errors.push(nowhere("must validate at least one schema (anyOf)".to_owned()));
            }
            count += tried.conclude(errors);
        }
        if !combined.one_of.is_empty() {
            let tried = Tried::of(&combined.one_of, value, path, false);
            let found = match tried.valid {
                0 => "Found none valid".to_owned(),
                valid => format!("Found {valid} valid alternatives"),
            };
            if tried.valid != 1 {
                let words = "must validate one and only one schema (oneOf)";
                errors.push(nowhere(format!("{words}. {found}")));
            }
            if tried.valid < 2 {
                count += tried.conclude(errors);
            }
        }
        if !combined.all_of.is_empty() {
            let mut valid = 0;
            for node in &combined.all_of {
                let mut found = ErrorList::new();
                count += node.given(value, None, path, &mut found);
                valid += usize::from(found.is_empty());
                errors.extend(found);
            }
            if valid < combined.all_of.len() {
                let none = if valid == 0 { ". None validated" } else { "" };
                errors.push(nowhere(format!("must validate all the schemas (allOf){none}")));
            }
        }
        if let Some(not) = &combined.not {
            let mut found = ErrorList::new();
            not.given(value, None, path, &mut found);
            if found.is_empty() {
                errors.push(nowhere("must not validate the schema (not)".to_owned()));
            }
        }
        count
    }
}

/// What became of the alternatives of an `anyOf` or `oneOf`.
#[derive(Default)]
struct Tried {
    /// How many of them took the value.
    valid: usize,
    /// The count of the first that took it.
    first: u32,
    /// The faults of the one that took most of it, with its count; of equal ones the first.
    best: Option<(u32, ErrorList)>,
}

impl Tried {
    fn of(nodes: &[Node], value: Given<'_>, path: &Path<'_>, is_one_enough: bool) -> Tried {
        let mut tried = Tried::default();
        for node in nodes {
            let mut found = ErrorList::new();
            let count = node.given(value, None, path, &mut found);
            if found.is_empty() {
                if tried.valid == 0 {
                    tried.first = count;
                }
                tried.valid += 1;
                tried.best = None;
                if is_one_enough {
                    break;
                }
            } else if tried.valid == 0 && tried.best.as_ref().is_none_or(|(best, _)| count > *best)
            {
                tried.best = Some((count, found));
            }
        }
        tried
    }

    /// Adds the faults to report, if any, and returns the count.
    fn conclude(self, errors: &mut ErrorList) -> u32 {
        let Some((count, found)) = self.best else { return self.first };
        errors.extend(found);
        count
    }
}
