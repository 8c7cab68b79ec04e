//! [`StageQuery`]: the part of jq that keys of Stages use. Paths (`.a.b`, `.["x"]`, `.[0]`, `.[]`,
//! `?`), pipes, `select`, comparisons, `and`, `or`, `not`, `//`, literals, and some functions of
//! one value.

mod reader;

use keelson_meta::Value;
use std::cmp::Ordering;

/// Values that one query makes on its way.
const VALUES_MAX: usize = 10_000;

/// A parsed query.
#[derive(Clone, Debug, PartialEq)]
pub struct StageQuery {
    root: Filter,
}

/// What a query does with a value: it makes none, one or several of it.
#[derive(Clone, Debug, PartialEq)]
enum Filter {
    Identity,
    Literal(Value),
    Field(String),
    Item(i64),
    Items,
    /// An error counts as no value.
    Try(Box<Filter>),
    Pipe(Box<Filter>, Box<Filter>),
    Comma(Box<Filter>, Box<Filter>),
    Alternative(Box<Filter>, Box<Filter>),
    And(Box<Filter>, Box<Filter>),
    Or(Box<Filter>, Box<Filter>),
    Compare(Comparison, Box<Filter>, Box<Filter>),
    Select(Box<Filter>),
    Map(Box<Filter>),
    Any(Box<Filter>),
    All(Box<Filter>),
    /// A function of the value and a text.
    Test(TextTest, Box<Filter>),
    Function(ValueFunction),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Comparison {
    Equal,
    Different,
    Less,
    LessOrEqual,
    More,
    MoreOrEqual,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum TextTest {
    Contains,
    EndsWith,
    Has,
    StartsWith,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum ValueFunction {
    Empty,
    First,
    Keys,
    Last,
    Length,
    Not,
    ToNumber,
    ToString,
    Type,
}

/// The query cannot read the value.
#[derive(Debug, PartialEq)]
struct Mismatch;

type Values = Result<Vec<Value>, Mismatch>;

impl StageQuery {
    /// Parses a query. The error says what is not known.
    pub fn parse(text: &str) -> Result<StageQuery, String> {
        let root = reader::read(text).map_err(|why| format!("query {text:?}: {why}"))?;
        Ok(StageQuery { root })
    }

    /// Returns what the query makes of a value, without nulls. What it cannot read has no values.
    pub fn values(&self, of: &Value) -> Vec<Value> {
        let mut budget = VALUES_MAX;
        let mut values = self.root.run(of, &mut budget).unwrap_or_default();
        values.retain(|value| !value.is_null());
        values
    }
}

impl Filter {
    fn run(&self, of: &Value, budget: &mut usize) -> Values {
        *budget = budget.checked_sub(1).ok_or(Mismatch)?;
        let one = |value: Value| Ok(vec![value]);
        match self {
            Filter::Identity => one(of.clone()),
            Filter::Literal(value) => one(value.clone()),
            Filter::Field(name) => match of {
                Value::Object(map) => one(map.get(name).cloned().unwrap_or_default()),
                Value::Null => one(Value::Null),
                _ => Err(Mismatch),
            },
            Filter::Item(at) => match of {
                Value::Array(items) => one(item(items, *at)),
                Value::Null => one(Value::Null),
                _ => Err(Mismatch),
            },
            Filter::Items => items_of(of),
            Filter::Try(inner) => Ok(inner.run(of, budget).unwrap_or_default()),
            Filter::Pipe(first, second) => each(first.run(of, budget)?, second, budget),
            Filter::Comma(first, second) => {
                let mut values = first.run(of, budget)?;
                values.append(&mut second.run(of, budget)?);
                Ok(values)
            }
            Filter::Alternative(first, second) => {
                let mut values = first.run(of, budget).unwrap_or_default();
                values.retain(is_true);
                if values.is_empty() { second.run(of, budget) } else { Ok(values) }
            }
            Filter::And(left, right) => both(left, right, of, budget, |l, r| l && r),
            Filter::Or(left, right) => both(left, right, of, budget, |l, r| l || r),
            Filter::Compare(comparison, left, right) => {
                let left = left.run(of, budget)?;
                let right = right.run(of, budget)?;
                let pairs = right.iter().flat_map(|right| left.iter().map(move |l| (l, right)));
                Ok(pairs.map(|(l, r)| Value::Bool(comparison.holds(l, r))).take(*budget).collect())
            }
            Filter::Select(condition) => {
                let holds = condition.run(of, budget)?.iter().filter(|one| is_true(one)).count();
                Ok(vec![of.clone(); holds.min(*budget)])
            }
            Filter::Map(inner) => one(Value::Array(each(items_of(of)?, inner, budget)?)),
            Filter::Any(inner) => {
                one(Value::Bool(each(items_of(of)?, inner, budget)?.iter().any(is_true)))
            }
            Filter::All(inner) => {
                one(Value::Bool(each(items_of(of)?, inner, budget)?.iter().all(is_true)))
            }
            Filter::Test(test, argument) => {
                let arguments = argument.run(of, budget)?;
                let tested = arguments.iter().map(|one| test.holds(of, one).map(Value::Bool));
                tested.collect::<Option<Vec<Value>>>().ok_or(Mismatch)
            }
            Filter::Function(function) => function.apply(of),
        }
    }
}

fn each(values: Vec<Value>, filter: &Filter, budget: &mut usize) -> Values {
    let mut all = vec![];
    for value in values {
        all.append(&mut filter.run(&value, budget)?);
    }
    Ok(all)
}

fn both(
    left: &Filter,
    right: &Filter,
    of: &Value,
    budget: &mut usize,
    holds: fn(bool, bool) -> bool,
) -> Values {
    let left = left.run(of, budget)?;
    let right = right.run(of, budget)?;
    let pairs = left.iter().flat_map(|l| right.iter().map(move |r| (is_true(l), is_true(r))));
    Ok(pairs.map(|(l, r)| Value::Bool(holds(l, r))).take(*budget).collect())
}

fn items_of(value: &Value) -> Values {
    match value {
        Value::Array(items) => Ok(items.clone()),
        Value::Object(map) => Ok(map.iter().map(|(_, value)| value.clone()).collect()),
        _ => Err(Mismatch),
    }
}

/// Returns an item of a list; a negative number counts from its end.
fn item(items: &[Value], at: i64) -> Value {
    let from_end = |at: i64| items.len().checked_sub(usize::try_from(at.unsigned_abs()).ok()?);
    let place = if at < 0 { from_end(at) } else { usize::try_from(at).ok() };
    place.and_then(|place| items.get(place)).cloned().unwrap_or_default()
}

/// Whether a value counts as true: it is neither null nor false.
fn is_true(value: &Value) -> bool {
    !matches!(value, Value::Null | Value::Bool(false))
}

impl Comparison {
    fn holds(self, left: &Value, right: &Value) -> bool {
        let order = order(left, right);
        match self {
            Comparison::Equal => order.is_eq(),
            Comparison::Different => order.is_ne(),
            Comparison::Less => order.is_lt(),
            Comparison::LessOrEqual => order.is_le(),
            Comparison::More => order.is_gt(),
            Comparison::MoreOrEqual => order.is_ge(),
        }
    }
}

/// Orders values as jq does: null, false, true, numbers, texts, lists, maps.
fn order(left: &Value, right: &Value) -> Ordering {
    let number = |value: &Value| match value {
        Value::Int(number) => *number as f64,
        Value::Float(number) => *number,
        _ => 0.0,
    };
    let rank = |value: &Value| match value {
        Value::Null => 0,
        Value::Bool(false) => 1,
        Value::Bool(true) => 2,
        Value::Int(_) | Value::Float(_) => 3,
        Value::String(_) | Value::Raw(_) => 4,
        Value::Array(_) => 5,
        Value::Object(_) => 6,
    };
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => left.cmp(right),
        (Value::String(left), Value::String(right)) => left.cmp(right),
        _ if rank(left) == 3 && rank(right) == 3 => number(left).total_cmp(&number(right)),
        _ if rank(left) != rank(right) => rank(left).cmp(&rank(right)),
        // The order of lists and maps does not matter here, only whether they are equal.
        _ if left.clone().sorted() == right.clone().sorted() => Ordering::Equal,
        _ => Ordering::Less,
    }
}

impl TextTest {
    /// `None`: it cannot be asked.
    fn holds(self, of: &Value, argument: &Value) -> Option<bool> {
        match (self, of, argument) {
            (TextTest::Has, Value::Object(map), Value::String(key)) => Some(map.contains_key(key)),
            (TextTest::Has, Value::Array(items), Value::Int(at)) => {
                Some(usize::try_from(*at).is_ok_and(|at| at < items.len()))
            }
            (TextTest::Contains, Value::Array(items), Value::Array(wanted)) => {
                Some(wanted.iter().all(|one| items.contains(one)))
            }
            (test, Value::String(of), Value::String(argument)) => Some(match test {
                TextTest::Contains => of.contains(argument.as_str()),
                TextTest::StartsWith => of.starts_with(argument.as_str()),
                TextTest::EndsWith => of.ends_with(argument.as_str()),
                TextTest::Has => return None,
            }),
            _ => None,
        }
    }
}

impl ValueFunction {
    fn apply(self, of: &Value) -> Values {
        let value = match (self, of) {
            (ValueFunction::Empty, _) => return Ok(vec![]),
            (ValueFunction::Not, of) => Value::Bool(!is_true(of)),
            (ValueFunction::First, Value::Array(items)) => item(items, 0),
            (ValueFunction::Last, Value::Array(items)) => item(items, -1),
            (ValueFunction::First | ValueFunction::Last, Value::Null) => Value::Null,
            (ValueFunction::Keys, Value::Object(map)) => {
                let keys = map.sorted().into_iter();
                Value::Array(keys.map(|(key, _)| Value::String(key.clone())).collect())
            }
            (ValueFunction::Length, of) => {
                let length = match of {
                    Value::Null => 0,
                    Value::String(text) => text.chars().count(),
                    Value::Array(items) => items.len(),
                    Value::Object(map) => map.len(),
                    _ => return Err(Mismatch),
                };
                Value::Int(i64::try_from(length).unwrap_or(i64::MAX))
            }
            (ValueFunction::ToNumber, Value::Int(_) | Value::Float(_)) => of.clone(),
            (ValueFunction::ToNumber, Value::String(text)) => number(text).ok_or(Mismatch)?,
            (ValueFunction::ToString, Value::String(_)) => of.clone(),
            (ValueFunction::ToString, of) => keelson_meta::status::show_json(of).into(),
            (ValueFunction::Type, of) => Value::from(match of {
                Value::Null => "null",
                Value::Bool(_) => "boolean",
                Value::Int(_) | Value::Float(_) => "number",
                Value::String(_) | Value::Raw(_) => "string",
                Value::Array(_) => "array",
                Value::Object(_) => "object",
            }),
            _ => return Err(Mismatch),
        };
        Ok(vec![value])
    }
}

/// Reads a number.
fn number(text: &str) -> Option<Value> {
    let float = || text.parse::<f64>().ok().filter(|number| number.is_finite());
    text.parse::<i64>().ok().map(Value::Int).or_else(|| float().map(Value::Float))
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::status::show_json;
    use keelson_meta::value;

    fn values(query: &str) -> String {
        let object = value!({
            "metadata": {"name": "p", "annotations": {"a.b/c": "5"}, "finalizers": ["x", "y"]},
            "status": {"phase": "Running", "count": 3, "conditions": [
                {"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}]}
        });
        match StageQuery::parse(query) {
            Ok(query) => show_json(&Value::Array(query.values(&object))),
            Err(why) => why,
        }
    }

    #[test]
    fn queries_are_those_of_jq() {
        let check = |query: &str, want: &str| assert_eq!(values(query), want, "{query}");
        check(".status.phase", "[\"Running\"]");
        check(".status.nothing.at.all", "[]");
        check(".metadata.annotations[\"a.b/c\"]", "[\"5\"]");
        check(".metadata.annotations.\"a.b/c\" | tonumber", "[5]");
        check(".status.conditions.[].type", "[\"Ready\",\"Other\"]");
        check(".status.conditions[].none.x", "[]");
        check(".status.conditions.[] | select( .type == \"Ready\" ) | .status", "[\"True\"]");
        check(".status.conditions | map(select(.status != \"True\")) | length", "[1]");
        check(".metadata.finalizers[0], .metadata.finalizers[-1]", "[\"x\",\"y\"]");
        check(".none.[]", "[]");
        check(".status.phase.[]?", "[]");
        check(".none // .metadata.name", "[\"p\"]");
        check(".status.count > 2 and .status.phase == \"Running\"", "[true]");
        check("(.status.count <= 2) or (.none | not)", "[true]");
        check(".metadata | has(\"name\")", "[true]");
        check(".status.conditions | any(.type == \"Ready\")", "[true]");
        check(".status.phase | startswith(\"Run\")", "[true]");
        check(
            "[.status.conditions[].type] | length",
            "query \"[.status.conditions[].type] | length\": unexpected \"[\"",
        );
        check(".a = 1", "query \".a = 1\": unexpected \"=\"");
        check(".a | input", "query \".a | input\": function \"input\" is not known");
        check(".a |", "query \".a |\": it ends too early");
    }

    #[test]
    fn a_query_makes_a_limited_number_of_values() {
        let twice = "(., .) | ".repeat(40) + ".";
        assert_eq!(values(&twice), "[]");
        assert!(values(&"(".repeat(1000)).contains("nested too deeply"));
    }
}
