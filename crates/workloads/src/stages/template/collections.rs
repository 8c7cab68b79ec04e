//! Functions of templates on lists and maps.

use super::arguments::{Arguments, Table, int_of, is_equal, is_true, order};
use super::printf::{go_type, shown};
use keelson_meta::{Map, Value};
use std::cmp::Ordering;

pub const TABLE: Table = &[
    ("index", index),
    ("slice", |given| {
        let from = given.all.get(1).map_or(0, int_of);
        let part = |length: usize| {
            let to = given.all.get(2).map_or(length, |to| usize::try_from(int_of(to)).unwrap_or(0));
            usize::try_from(from).unwrap_or(usize::MAX)..to
        };
        let part = match given.at(0)? {
            Value::String(text) => text.get(part(text.len())).map(Value::from),
            Value::Array(items) => {
                items.get(part(items.len())).map(|some| Value::Array(some.into()))
            }
            other => return Err(format!("a {} has no parts", go_type(other))),
        };
        part.ok_or_else(|| "the range is not in the value".to_owned())
    }),
    ("list", |given| Ok(Value::Array(given.all.clone()))),
    ("tuple", |given| Ok(Value::Array(given.all.clone()))),
    ("first", |given| Ok(given.list(0)?.first().cloned().unwrap_or_default())),
    ("last", |given| Ok(given.list(0)?.last().cloned().unwrap_or_default())),
    ("rest", |given| Ok(Value::Array(given.list(0)?.iter().skip(1).cloned().collect()))),
    ("initial", |given| {
        let items = given.list(0)?;
        Ok(Value::Array(items[..items.len().saturating_sub(1)].to_vec()))
    }),
    ("append", |given| Ok(Value::Array([given.list(0)?, &[given.at(1)?.clone()]].concat()))),
    ("prepend", |given| Ok(Value::Array([&[given.at(1)?.clone()], given.list(0)?].concat()))),
    ("concat", |given| {
        let lists = (0..given.all.len()).map(|at| given.list(at)).collect::<Result<Vec<_>, _>>()?;
        Ok(Value::Array(lists.concat()))
    }),
    ("reverse", |given| Ok(Value::Array(given.list(0)?.iter().rev().cloned().collect()))),
    ("has", |given| {
        let wanted = given.at(0)?;
        Ok(Value::Bool(given.list(1)?.iter().any(|item| is_equal(item, wanted))))
    }),
    ("without", |given| {
        let without = &given.all[1..];
        let kept =
            given.list(0)?.iter().filter(|item| !without.iter().any(|no| is_equal(item, no)));
        Ok(Value::Array(kept.cloned().collect()))
    }),
    ("uniq", |given| {
        let mut kept: Vec<Value> = vec![];
        for item in given.list(0)?.iter().take(ITEMS_MAX) {
            if !kept.iter().any(|known| is_equal(known, item)) {
                kept.push(item.clone());
            }
        }
        Ok(Value::Array(kept))
    }),
    ("compact", |given| {
        let kept = given.list(0)?.iter().filter(|item| is_true(item));
        Ok(Value::Array(kept.cloned().collect()))
    }),
    ("sortAlpha", |given| {
        let mut items: Vec<Value> =
            given.list(0)?.iter().map(|item| Value::from(shown(item))).collect();
        items.sort_by(|left, right| order(left, right).unwrap_or(Ordering::Equal));
        Ok(Value::Array(items))
    }),
    ("toStrings", |given| {
        Ok(Value::Array(given.list(0)?.iter().map(|item| Value::from(shown(item))).collect()))
    }),
    ("dict", |given| {
        let pairs = given.all.chunks(2);
        let entry =
            |pair: &[Value]| (shown(&pair[0]).into(), pair.get(1).cloned().unwrap_or_default());
        Ok(Value::Object(pairs.map(entry).collect()))
    }),
    ("get", |given| Ok(given.map(0)?.get(given.text(1)?).cloned().unwrap_or_else(|| "".into()))),
    ("hasKey", |given| Ok(Value::Bool(given.map(0)?.contains_key(given.text(1)?)))),
    ("dig", |given| {
        let count = given.all.len().checked_sub(2).ok_or("it needs keys, a default and a map")?;
        let mut found = given.at(count + 1)?;
        for place in 0..count {
            match found.get(given.text(place)?) {
                Some(inner) => found = inner,
                None => return given.at(count).cloned(),
            }
        }
        Ok(found.clone())
    }),
    ("keys", |given| {
        let map = given.map(0)?;
        Ok(Value::Array(map.sorted().into_iter().map(|(key, _)| key.clone().into()).collect()))
    }),
    ("values", |given| {
        let map = given.map(0)?;
        Ok(Value::Array(map.sorted().into_iter().map(|(_, value)| value.clone()).collect()))
    }),
    // Unlike those of sprig, these return a new map and leave the first one alone.
    ("set", |given| {
        let mut map = given.map(0)?;
        map.insert(given.text(1)?, given.at(2)?.clone());
        Ok(Value::Object(map))
    }),
    ("unset", |given| {
        let mut map = given.map(0)?;
        map.remove(given.text(1)?);
        Ok(Value::Object(map))
    }),
    ("pick", |given| chosen(given, true)),
    ("omit", |given| chosen(given, false)),
    ("merge", |given| {
        let mut merged = given.map(0)?;
        for place in 1..given.all.len() {
            for (key, value) in given.map(place)?.iter() {
                if !merged.contains_key(key) {
                    merged.insert(key.clone(), value.clone());
                }
            }
        }
        Ok(Value::Object(merged))
    }),
];

/// Items of a list that are compared with each other.
const ITEMS_MAX: usize = 1_000;

fn index(given: &Arguments<'_>) -> Result<Value, String> {
    let mut found = given.at(0)?.clone();
    for key in &given.all[1..] {
        found = match (&found, key) {
            (Value::Object(map), key) => {
                map.get(key.as_str().ok_or("the key of a map is no string")?).cloned()
            }
            (Value::Array(items), key) => {
                let place = usize::try_from(key.as_int().ok_or("the index is no number")?);
                let item = place.ok().and_then(|place| items.get(place)).cloned();
                Some(item.ok_or_else(|| format!("the list has no item {}", shown(key)))?)
            }
            // Upstream's own Stages read lists that are absent.
            (Value::Null, _) => None,
            (other, _) => return Err(format!("a {} has no items", go_type(other))),
        }
        .unwrap_or_default();
    }
    Ok(found)
}

fn chosen(given: &Arguments<'_>, keeps: bool) -> Result<Value, String> {
    let named = |key: &str| given.all[1..].iter().any(|one| one.as_str() == Some(key));
    let mut map: Map = given.map(0)?;
    map.retain(|key, _| named(key) == keeps);
    Ok(Value::Object(map))
}
