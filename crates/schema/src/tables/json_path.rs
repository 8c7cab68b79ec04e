//! The JSONPath of printer columns, as client-go's `util/jsonpath` reads it: members, indexes,
//! slices, unions, filters, `*` and `..`.

use keelson_meta::status::float;
use keelson_meta::{Map, Str, Value};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::slice;

mod parser;

/// Most values that a step may find. No column shows more than the first one.
const FOUND_MAX: usize = 10_000;

/// A parsed path.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct JsonPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Member(Str),
    /// `*`
    Every,
    /// `..`
    Descend,
    Slice(Slice),
    /// `[0,'a']`: what each of the paths finds.
    Union(Vec<Vec<Step>>),
    Filter(Filter),
    /// A literal.
    Literal(Value),
    /// A word without a meaning: the path finds nothing.
    Word,
}

/// `[from:to:step]`; `[at]` is `[at:at+1]`.
#[derive(Clone, Debug, PartialEq)]
struct Slice {
    from: Option<i64>,
    to: Option<i64>,
    step: Option<i64>,
    is_index: bool,
}

/// `[?(left operator right)]`; `[?(left)]` asks whether the left side finds anything.
#[derive(Clone, Debug, PartialEq)]
struct Filter {
    left: Vec<Step>,
    comparison: Option<(Operator, Vec<Step>)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operator {
    Less,
    LessOrEqual,
    Equal,
    NotEqual,
    GreaterOrEqual,
    Greater,
    Unknown,
}

/// The path or the values do not fit together; upstream's error, whose text nobody sees.
#[derive(Debug)]
struct Mismatch;

impl JsonPath {
    /// Returns `None` for a text that upstream cannot parse.
    pub fn parse(text: &str) -> Option<JsonPath> {
        parser::steps(text).ok().map(JsonPath)
    }

    /// Returns the first value at the path.
    pub fn first<'v>(&self, root: &'v Map) -> Option<Cow<'v, Value>> {
        let found = match self.0.split_first()? {
            // Nearly every path; the others need the root as a value.
            (Step::Member(name), rest) => find(vec![Cow::Borrowed(root.get(name)?)], rest),
            (first, rest) => {
                let root = Cow::Owned(Value::Object(root.clone()));
                find(vec![root], slice::from_ref(first)).and_then(|found| find(found, rest))
            }
        };
        found.ok()?.into_iter().next()
    }
}

type Found<'v> = Vec<Cow<'v, Value>>;

fn find<'v>(start: Found<'v>, steps: &[Step]) -> Result<Found<'v>, Mismatch> {
    let mut found = start;
    for step in steps {
        found = match step {
            Step::Member(name) => found.iter().filter_map(|value| member(value, name)).collect(),
            Step::Every => found.iter().flat_map(children).collect(),
            Step::Descend => descend(found),
            Step::Slice(slice) => {
                let mut all = vec![];
                for value in found.iter().filter(|value| !value.is_null()) {
                    all.extend(slice.of(value)?);
                }
                all
            }
            Step::Union(paths) => {
                let mut all = vec![];
                for path in paths {
                    all.extend(find(found.clone(), path)?);
                }
                all
            }
            Step::Filter(filter) => {
                let mut all = vec![];
                for value in &found {
                    all.extend(filter.of(value)?);
                }
                all
            }
            Step::Word => return Err(Mismatch),
            Step::Literal(value) => {
                let literals = found.iter().map(|_| Cow::Owned(value.clone()));
                literals.collect()
            }
        };
        found.truncate(FOUND_MAX);
    }
    Ok(found)
}

fn member<'v>(value: &Cow<'v, Value>, name: &str) -> Option<Cow<'v, Value>> {
    match value {
        Cow::Borrowed(value) => value.get(name).map(Cow::Borrowed),
        Cow::Owned(value) => value.get(name).map(|found| Cow::Owned(found.clone())),
    }
}

/// Returns the members of a map or the items of a list. Go takes a text as a list of bytes.
fn children<'v>(value: &Cow<'v, Value>) -> Found<'v> {
    fn of(value: &Value) -> Vec<&Value> {
        match value {
            Value::Object(map) => map.iter().map(|(_, item)| item).collect(),
            Value::Array(items) => items.iter().collect(),
            _ => vec![],
        }
    }
    if let Value::String(text) = &**value {
        let bytes = text.bytes().take(FOUND_MAX);
        return bytes.map(|byte| Cow::Owned(Value::Int(byte.into()))).collect();
    }
    match value {
        Cow::Borrowed(value) => of(value).into_iter().map(Cow::Borrowed).collect(),
        Cow::Owned(value) => of(value).into_iter().cloned().map(Cow::Owned).collect(),
    }
}

/// Returns the values and all that have children below them, parents first.
fn descend(start: Found<'_>) -> Found<'_> {
    let mut all = vec![];
    let mut left: Found<'_> = start.into_iter().rev().collect();
    while let Some(value) = left.pop() {
        let below = children(&value);
        if below.is_empty() {
            continue;
        }
        left.extend(below.into_iter().rev());
        all.push(value);
        if all.len() >= FOUND_MAX {
            break;
        }
    }
    all
}

/// Returns the items of a list.
fn items<'v>(value: &Cow<'v, Value>) -> Result<Found<'v>, Mismatch> {
    match &**value {
        Value::Array(_) => Ok(children(value)),
        _ => Err(Mismatch),
    }
}

impl Slice {
    fn of<'v>(&self, value: &Cow<'v, Value>) -> Result<Found<'v>, Mismatch> {
        let items = items(value)?;
        let count = i64::try_from(items.len()).map_err(|_| Mismatch)?;
        let from_end = |at: i64| if at < 0 { at.saturating_add(count) } else { at };
        let from = from_end(self.from.unwrap_or(0));
        let to = match self.to {
            None => count,
            // The item after -1 is the end.
            Some(0) if self.is_index => count,
            Some(to) => from_end(to),
        };
        if from == to {
            return Ok(vec![]);
        }
        if from < 0 || from >= count || to < 0 || to > count || from > to {
            return Err(Mismatch);
        }
        let step = match self.step {
            None => 1,
            Some(step) => usize::try_from(step).ok().filter(|step| *step > 0).ok_or(Mismatch)?,
        };
        let place = |at: i64| usize::try_from(at).map_err(|_| Mismatch);
        let between = items.into_iter().take(place(to)?).skip(place(from)?);
        Ok(between.step_by(step).collect())
    }
}

impl Filter {
    fn of<'v>(&self, value: &Cow<'v, Value>) -> Result<Found<'v>, Mismatch> {
        let mut passed = vec![];
        for item in items(value)? {
            if self.passes(&item)? {
                passed.push(item);
            }
        }
        Ok(passed)
    }

    fn passes(&self, item: &Value) -> Result<bool, Mismatch> {
        let lefts = find(vec![Cow::Borrowed(item)], &self.left);
        let Some((operator, right)) = &self.comparison else {
            return Ok(lefts.is_ok_and(|found| !found.is_empty()));
        };
        let lefts = lefts?;
        let rights = find(vec![Cow::Borrowed(item)], right)?;
        match (lefts.as_slice(), rights.as_slice()) {
            ([], _) => Ok(false),
            ([_], []) => Ok(false),
            ([left], [right]) => operator.holds(left, right),
            _ => Err(Mismatch),
        }
    }
}

impl Operator {
    /// Compares scalars of one type, as Go's templates do: an integer is no float.
    fn holds(self, left: &Value, right: &Value) -> Result<bool, Mismatch> {
        let order = match (left, right) {
            (Value::Int(left), Value::Int(right)) => left.cmp(right),
            (Value::Float(left), Value::Float(right)) => left.partial_cmp(right).ok_or(Mismatch)?,
            (Value::String(left), Value::String(right)) => left.as_bytes().cmp(right.as_bytes()),
            (Value::Bool(left), Value::Bool(right)) => {
                if !matches!(self, Operator::Equal | Operator::NotEqual) {
                    return Err(Mismatch);
                }
                left.cmp(right)
            }
            _ => return Err(Mismatch),
        };
        Ok(match self {
            Operator::Less => order == Ordering::Less,
            Operator::LessOrEqual => order != Ordering::Greater,
            Operator::Equal => order == Ordering::Equal,
            Operator::NotEqual => order != Ordering::Equal,
            Operator::GreaterOrEqual => order != Ordering::Less,
            Operator::Greater => order == Ordering::Greater,
            Operator::Unknown => return Err(Mismatch),
        })
    }
}

/// Formats a value as client-go prints it.
pub(super) fn print(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("<no value>"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Int(number) => out.push_str(&number.to_string()),
        Value::Float(number) => out.push_str(&float(*number)),
        Value::String(text) => out.push_str(text),
        Value::Array(_) | Value::Object(_) | Value::Raw(_) => go_json(value, out),
    }
}

/// Appends JSON as Go's `encoding/json` writes maps: keys are sorted, and `<`, `>` and `&` escaped.
fn go_json(value: &Value, out: &mut String) {
    match value {
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                go_json(item, out);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push('{');
            for (at, (name, item)) in map.sorted().into_iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                escaped(&Value::String(name.clone()), out);
                out.push(':');
                go_json(item, out);
            }
            out.push('}');
        }
        scalar => escaped(scalar, out),
    }
}

fn escaped(scalar: &Value, out: &mut String) {
    let mut text = vec![];
    crate::json::write_value(scalar, &mut text);
    for c in String::from_utf8_lossy(&text).chars() {
        match c {
            '<' | '>' | '&' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
}
