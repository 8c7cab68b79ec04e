//! [`Row`]: the object of a table row, and formats that many kinds share.

use keelson_meta::time::{GoDuration, human_duration};
use keelson_meta::{Map, Object, Quantity, Timestamp, Value};

pub(super) const NONE: &str = "<none>";
pub(super) const UNKNOWN: &str = "<unknown>";
pub(super) const UNSET: &str = "<unset>";

/// Maximum number of items in a cell; the rest is counted.
const LISTED_ITEMS_MAX: usize = 3;

/// An object and the current time.
pub(super) struct Row<'a> {
    pub(super) obj: &'a Object,
    pub(super) now: Timestamp,
}

impl<'a> Row<'a> {
    pub(super) fn name(&self) -> Value {
        self.obj.name().into()
    }

    pub(super) fn age(&self) -> Value {
        self.since(self.obj.creation_timestamp()).into()
    }

    pub(super) fn created_at(&self) -> String {
        let zero = "0001-01-01T00:00:00Z";
        Timestamp::parse(self.obj.creation_timestamp())
            .map_or_else(|_| zero.to_owned(), |time| time.to_string())
    }

    /// Returns the time since a timestamp.
    pub(super) fn since(&self, time: &str) -> String {
        match Timestamp::parse(time) {
            Ok(time) => human_duration(self.now.since(time)),
            Err(_) => UNKNOWN.to_owned(),
        }
    }

    pub(super) fn str(&self, path: &[&str]) -> &'a str {
        self.obj.str_at(path)
    }

    pub(super) fn text(&self, path: &[&str]) -> Value {
        self.str(path).into()
    }

    /// Returns the text, or `missing` if it is empty.
    pub(super) fn text_or(&self, path: &[&str], missing: &'static str) -> Value {
        Some(self.str(path)).filter(|text| !text.is_empty()).unwrap_or(missing).into()
    }

    /// Returns the text, or `missing` if it is absent. An empty text is kept.
    pub(super) fn present_or(&self, path: &[&str], missing: &'static str) -> Value {
        self.obj.at(path).and_then(Value::as_str).unwrap_or(missing).into()
    }

    pub(super) fn number(&self, path: &[&str]) -> i64 {
        self.obj.int_at(path).unwrap_or(0)
    }

    pub(super) fn int(&self, path: &[&str]) -> Value {
        self.number(path).into()
    }

    pub(super) fn flag(&self, path: &[&str]) -> Option<bool> {
        self.obj.at(path).and_then(Value::as_bool)
    }

    pub(super) fn array(&self, path: &[&str]) -> &'a [Value] {
        self.obj.array_at(path)
    }

    pub(super) fn count(&self, path: &[&str]) -> Value {
        count(self.array(path).len())
    }

    pub(super) fn entries(&self, path: &[&str]) -> usize {
        self.obj.at(path).and_then(Value::as_object).map_or(0, Map::len)
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.obj.deletion_timestamp().is_some()
    }

    /// Formats a string map as `a=b,c=d`, sorted.
    pub(super) fn labels(&self, path: &[&str]) -> Value {
        let Some(map) = self.obj.at(path).and_then(Value::as_object).filter(|m| !m.is_empty())
        else {
            return NONE.into();
        };
        let pairs = map.sorted().into_iter();
        let parts = pairs.map(|(key, value)| format!("{key}={}", text(value))).collect::<Vec<_>>();
        parts.join(",").into()
    }

    /// Formats a LabelSelector.
    pub(super) fn selector(&self, path: &[&str]) -> Value {
        keelson_meta::selector::format_label_selector(self.obj.at(path)).into()
    }

    /// Returns the names and images of a list of containers.
    pub(super) fn containers(&self, path: &[&str]) -> [Value; 2] {
        let containers = self.array(path);
        [join(members(containers, "name")).into(), join(members(containers, "image")).into()]
    }

    /// Formats a quantity; an absent one is zero.
    pub(super) fn quantity(&self, path: &[&str]) -> Value {
        self.obj.at(path).map_or_else(|| "0".to_owned(), quantity).into()
    }

    /// Whether an annotation is `true`.
    pub(super) fn annotation_is_true(&self, annotation: &str) -> bool {
        self.obj.annotation(annotation) == Some("true")
    }
}

/// Returns the text of a value; empty if it is none.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns a text field of each list item.
pub(super) fn members<'a>(
    items: &'a [Value],
    name: &'a str,
) -> impl Iterator<Item = &'a str> + use<'a> {
    items.iter().map(move |item| item.str_at(&[name]).unwrap_or_default())
}

pub(super) fn count(number: usize) -> Value {
    Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

pub(super) fn join<'a>(parts: impl Iterator<Item = &'a str>) -> String {
    parts.collect::<Vec<_>>().join(",")
}

/// Returns the canonical form of a quantity.
pub(super) fn quantity(value: &Value) -> String {
    match value {
        Value::String(text) => text.parse::<Quantity>().map_or(text.to_string(), |q| q.to_string()),
        Value::Int(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        _ => "0".to_owned(),
    }
}

/// Returns the first condition of a type.
pub(super) fn condition<'a>(conditions: &'a [Value], kind: &str) -> Option<&'a Value> {
    conditions.iter().find(|condition| condition.str_at(&["type"]) == Some(kind))
}

/// Whether the first condition of a type is true.
pub(super) fn is_true(conditions: &[Value], kind: &str) -> bool {
    condition(conditions, kind).and_then(|c| c.str_at(&["status"])) == Some("True")
}

/// Formats the first three items and the number of the rest; `<unset>` if the result is empty.
pub(super) fn first_items(items: &[String]) -> String {
    let listed = items[..items.len().min(LISTED_ITEMS_MAX)].join(",");
    match items.len().saturating_sub(LISTED_ITEMS_MAX) {
        0 if listed.is_empty() => UNSET.to_owned(),
        0 => listed,
        more => format!("{listed} + {more} more..."),
    }
}

/// Formats seconds as kubectl formats an age.
pub(super) fn human_seconds(seconds: i64) -> String {
    human_duration(GoDuration::from_seconds(seconds))
}

/// Formats the time since a timestamp as kubectl does.
pub(super) fn human_age(time: Timestamp, now: Timestamp) -> String {
    human_duration(now.since(time))
}
