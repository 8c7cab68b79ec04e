//! The functions of Go and of KWOK, and the conditions of sprig.

use super::arguments::{Arguments, Table, is_equal, is_true, order};
use super::printf::{go_type, printf, shown};
use crate::healthy_node::CONDITIONS;
use keelson_meta::status::{quote, show_json};
use keelson_meta::time::GoDuration;
use keelson_meta::{Str, Timestamp, Value, value};
use keelson_schema::yaml;
use std::cmp::Ordering;

pub const TABLE: Table = &[
    // Go
    ("and", last),
    ("or", last),
    ("not", |given| Ok(Value::Bool(!is_true(given.at(0)?)))),
    ("eq", |given| {
        let first = given.at(0)?;
        given.at(1)?;
        Ok(Value::Bool(given.all[1..].iter().any(|other| is_equal(first, other))))
    }),
    ("ne", |given| Ok(Value::Bool(!is_equal(given.at(0)?, given.at(1)?)))),
    ("lt", |given| compared(given, Ordering::is_lt)),
    ("le", |given| compared(given, Ordering::is_le)),
    ("gt", |given| compared(given, Ordering::is_gt)),
    ("ge", |given| compared(given, Ordering::is_ge)),
    ("len", length),
    ("print", |given| {
        // Blanks stand between two values that are no texts.
        let mut text = String::new();
        for (at, value) in given.all.iter().enumerate() {
            let before = at.checked_sub(1).map(|at| &given.all[at]);
            if before.is_some_and(|before| before.as_str().is_none() && value.as_str().is_none()) {
                text.push(' ');
            }
            text.push_str(&shown(value));
        }
        Ok(text.into())
    }),
    ("println", |given| {
        let words: Vec<String> = given.all.iter().map(shown).collect();
        Ok(format!("{}\n", words.join(" ")).into())
    }),
    ("printf", |given| Ok(printf(given.text(0)?, &given.all[1..])?.into())),
    // KWOK
    ("Quote", |given| {
        Ok(match given.at(0)? {
            text @ Value::String(_) => show_json(text),
            other => quote(&show_json(other)),
        }
        .into())
    }),
    ("Now", |given| Ok(nano(given.facts.now))),
    ("StartTime", |given| Ok(nano(given.facts.started))),
    ("Version", |_| Ok(env!("CARGO_PKG_VERSION").into())),
    ("YAML", as_yaml),
    ("NodeConditions", |_| Ok(node_conditions())),
    ("NodeName", |given| Ok(given.facts.node.clone().into())),
    ("NodePort", |_| Ok(Value::Int(10_250))),
    ("NodeIP", |given| Ok(first(&given.facts.node_ips))),
    ("NodeIPWith", |given| Ok(first(node_ips(given)?))),
    ("NodeIPsWith", |given| Ok(list(node_ips(given)?))),
    ("PodIP", |given| Ok(first(&given.facts.pod_ips))),
    ("PodIPWith", |given| Ok(first(pod_ips(given)?))),
    ("PodIPsWith", |given| Ok(list(pod_ips(given)?))),
    // sprig
    ("default", |given| {
        let value = given.at(1).unwrap_or(&Value::Null);
        Ok(if is_true(value) { value } else { given.at(0)? }.clone())
    }),
    ("empty", |given| Ok(Value::Bool(!is_true(given.at(0)?)))),
    ("coalesce", |given| {
        Ok(given.all.iter().find(|value| is_true(value)).cloned().unwrap_or_default())
    }),
    ("ternary", |given| {
        let condition = given.at(2)?.as_bool().ok_or("the condition is no bool")?;
        Ok(given.at(if condition { 0 } else { 1 })?.clone())
    }),
    ("all", |given| Ok(Value::Bool(given.all.iter().all(is_true)))),
    ("any", |given| Ok(Value::Bool(given.all.iter().any(is_true)))),
    ("fail", |given| Err(given.text(0)?.to_owned())),
    ("kindOf", |given| Ok(kind_of(given.at(0)?).into())),
    ("kindIs", |given| Ok(Value::Bool(kind_of(given.at(1)?) == given.text(0)?))),
    ("typeOf", |given| Ok(go_type(given.at(0)?).into())),
    ("typeIs", |given| Ok(Value::Bool(go_type(given.at(1)?) == given.text(0)?))),
    ("now", |given| Ok(nano(given.facts.now))),
    ("unixEpoch", |given| Ok(time(given.at(0)?)?.seconds.to_string().into())),
    ("ago", |given| {
        let span = given.facts.now.since(time(given.at(0)?)?);
        Ok(GoDuration::from_seconds(span.seconds()).to_string().into())
    }),
    ("dateModify", |given| {
        let span = GoDuration::parse(given.text(0)?)?;
        Ok(nano(time(given.at(1)?)?.plus(span)))
    }),
    ("duration", |given| Ok(GoDuration::from_seconds(given.int(0)?).to_string().into())),
];

/// `and` and `or` evaluate their arguments themselves; this only gives them their names.
fn last(given: &Arguments<'_>) -> Result<Value, String> {
    Ok(given.all.last().cloned().unwrap_or_default())
}

fn compared(given: &Arguments<'_>, holds: fn(Ordering) -> bool) -> Result<Value, String> {
    let left = given.at(0)?;
    let right = given.at(1)?;
    let order = order(left, right)
        .ok_or_else(|| format!("{} and {} cannot be compared", go_type(left), go_type(right)))?;
    Ok(Value::Bool(holds(order)))
}

fn length(given: &Arguments<'_>) -> Result<Value, String> {
    let count = match given.at(0)? {
        Value::String(text) => text.len(),
        Value::Array(items) => items.len(),
        Value::Object(map) => map.len(),
        Value::Null => 0,
        other => return Err(format!("a {} has no length", go_type(other))),
    };
    Ok(Value::Int(i64::try_from(count).unwrap_or(i64::MAX)))
}

/// Returns a time with fractions of seconds, as Go's `RFC3339Nano`.
fn nano(time: Timestamp) -> Value {
    let text = time.text();
    if time.nanos == 0 {
        return text.into();
    }
    let fraction = format!("{:09}", time.nanos);
    format!("{}.{}Z", text.trim_end_matches('Z'), fraction.trim_end_matches('0')).into()
}

fn time(value: &Value) -> Result<Timestamp, String> {
    match value {
        Value::Int(seconds) => Ok(Timestamp::new(*seconds, 0)),
        other => Timestamp::parse(other.as_str().unwrap_or_default()),
    }
}

/// Returns a value as YAML; with a number, on lines of its own that are indented by as many levels.
fn as_yaml(given: &Arguments<'_>) -> Result<Value, String> {
    let mut text = String::new();
    yaml::write(&given.at(0)?.clone().sorted(), &mut text);
    let levels = if given.all.len() > 1 { given.count(1, 64)? } else { 0 };
    if levels > 0 {
        text = format!("\n{text}").replace('\n', &format!("\n{}", "  ".repeat(levels)));
    }
    Ok(text.into())
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
        other => go_type(other),
    }
}

fn first(addresses: &[Str]) -> Value {
    addresses.first().cloned().unwrap_or_default().into()
}

fn list(addresses: &[Str]) -> Value {
    Value::Array(addresses.iter().cloned().map(Value::String).collect())
}

/// Returns the addresses of the node that the first argument names.
fn node_ips<'a>(given: &'a Arguments<'_>) -> Result<&'a [Str], String> {
    Ok(if given.text(0)? == given.facts.node { &given.facts.node_ips } else { &[] })
}

/// Returns the addresses of the pod; those of its node, if it uses its network.
fn pod_ips<'a>(given: &'a Arguments<'_>) -> Result<&'a [Str], String> {
    let uses_host = given.at(1)?.as_bool() == Some(true);
    if uses_host { node_ips(given) } else { Ok(&given.facts.pod_ips) }
}

/// The conditions of a healthy node.
fn node_conditions() -> Value {
    let network =
        ("NetworkUnavailable", "False", "RouteCreated", "RouteController created a route");
    let (ready, others): (Vec<_>, Vec<_>) =
        CONDITIONS.into_iter().chain([network]).partition(|(name, ..)| *name == "Ready");
    let conditions = ready.into_iter().chain(others).map(|(name, status, reason, message)| {
        value!({"type": name, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": null, "lastTransitionTime": null})
    });
    Value::Array(conditions.collect())
}
