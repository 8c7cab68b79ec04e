//! Conditions and values of Stages, by a query or an expression (CEL) over the object.

use super::query::StageQuery;
use keelson_cel::{Environment, Limits, Program, Type, Version, adapt, to_json};
use keelson_meta::time::GoDuration;
use keelson_meta::{Timestamp, Value};
use std::sync::Arc;

/// The cost of an expression.
const COST_MAX: u64 = 100_000;

/// A value of the object.
#[derive(Clone, Debug)]
pub enum StageExpression {
    Query(StageQuery),
    Cel(Arc<Program>),
}

impl StageExpression {
    pub fn cel(text: &str) -> Result<StageExpression, String> {
        let environment =
            Environment::kubernetes(Version::NEW_EXPRESSIONS).with_variable("self", Type::Dyn);
        let compiled = environment.compile(text).map_err(|error| error.to_string())?;
        Ok(StageExpression::Cel(Arc::new(compiled.program)))
    }

    /// Returns the first value; `None`: there is none, or an expression failed.
    fn first(&self, object: &Value) -> Option<Value> {
        match self {
            StageExpression::Query(query) => query.values(object).into_iter().next(),
            StageExpression::Cel(program) => {
                let variables = [Some(adapt(object, None).ok()?)];
                let outcome = program.evaluate(&variables, &Limits { cost_max: COST_MAX });
                to_json(&outcome.result.ok()?).ok()
            }
        }
    }
}

/// A requirement of a selector.
#[derive(Clone, Debug)]
pub enum Condition {
    In(StageQuery, Vec<String>),
    NotIn(StageQuery, Vec<String>),
    Exists(StageQuery),
    DoesNotExist(StageQuery),
    /// An expression that must be true.
    Holds(StageExpression),
}

impl Condition {
    pub fn matches(&self, object: &Value) -> bool {
        match self {
            Condition::In(query, wanted) => has_any(&query.values(object), wanted),
            Condition::NotIn(query, wanted) => !has_any(&query.values(object), wanted),
            Condition::Exists(query) => !query.values(object).is_empty(),
            Condition::DoesNotExist(query) => query.values(object).is_empty(),
            Condition::Holds(expression) => expression.first(object) == Some(Value::Bool(true)),
        }
    }
}

fn has_any(values: &[Value], wanted: &[String]) -> bool {
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    };
    values.iter().filter_map(text).any(|value| wanted.contains(&value))
}

/// A number that is given, or that the object has.
#[derive(Clone, Debug)]
pub struct NumberSource {
    pub given: i64,
    pub from: Option<StageExpression>,
}

impl NumberSource {
    /// Returns the number; `None`: the object has something else.
    pub fn of(&self, object: &Value) -> Option<i64> {
        match self.from.as_ref().and_then(|from| from.first(object)) {
            Some(Value::String(text)) => text.parse().ok(),
            Some(Value::Float(number)) => Some(number as i64),
            Some(Value::Int(number)) => Some(number),
            _ => Some(self.given),
        }
    }
}

/// A duration that is given, or that the object has: as a duration, or as the time at which it
/// ends.
#[derive(Clone, Debug)]
pub struct DurationSource {
    pub given: Option<GoDuration>,
    pub from: Option<StageExpression>,
}

impl DurationSource {
    pub fn of(&self, object: &Value, now: Timestamp) -> Option<GoDuration> {
        let found = self.from.as_ref().and_then(|from| from.first(object));
        let text = found.as_ref().and_then(Value::as_str).unwrap_or("none");
        if text.is_empty() {
            return None;
        }
        match (Timestamp::parse(text), GoDuration::parse(text)) {
            (Ok(time), _) => Some(time.since(now)),
            (_, Ok(span)) => Some(span),
            _ => self.given,
        }
    }
}
