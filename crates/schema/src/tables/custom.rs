//! Tables of custom resources: the columns of `additionalPrinterColumns` (apiextensions
//! `registry/customresource/tableconvertor`).

use super::column::OBJECT_META;
use super::description_of;
use super::json_path::{self, JsonPath};
use super::row::human_age;
use keelson_meta::{Object, Str, Timestamp, Value, value};

/// The columns of one version of a custom resource, after the name column.
#[derive(Clone, Debug, Default)]
pub struct CustomColumns(Vec<CustomColumn>);

#[derive(Clone, Debug)]
struct CustomColumn {
    name: Str,
    kind: Str,
    format: Str,
    description: Str,
    priority: i64,
    path: JsonPath,
}

impl CustomColumn {
    fn read(column: &Value) -> Option<CustomColumn> {
        let text = |name: &str| column.str_at(&[name]).map(Str::new).unwrap_or_default();
        let path = text("jsonPath");
        let mut description = text("description");
        if description.is_empty() {
            description =
                format!("Custom resource definition column (in JSONPath format): {path}").into();
        }
        Some(CustomColumn {
            name: text("name"),
            kind: text("type"),
            format: text("format"),
            description,
            priority: column.get("priority").and_then(Value::as_int).unwrap_or(0),
            path: JsonPath::parse(&path)?,
        })
    }
}

impl CustomColumns {
    /// Reads `additionalPrinterColumns`. As upstream, a path that cannot be parsed ends the
    /// columns. The default is one column with the age.
    pub fn read(columns: &[Value]) -> CustomColumns {
        if columns.is_empty() {
            let description = description_of(OBJECT_META, "creationTimestamp").unwrap_or_default();
            let age = value!({
                "name": "Age",
                "type": "date",
                "description": description,
                "jsonPath": ".metadata.creationTimestamp"
            });
            return CustomColumns(CustomColumn::read(&age).into_iter().collect());
        }
        CustomColumns(columns.iter().map_while(CustomColumn::read).collect())
    }

    /// Returns `columnDefinitions` of the Table.
    pub fn definitions(&self) -> Vec<Value> {
        let description = description_of(OBJECT_META, "name").unwrap_or_default();
        let name = value!({
            "name": "Name", "type": "string", "format": "name", "description": description,
            "priority": 0
        });
        let others = self.0.iter().map(|column| {
            value!({
                "name": (column.name.clone()), "type": (column.kind.clone()),
                "format": (column.format.clone()), "description": (column.description.clone()),
                "priority": (column.priority)
            })
        });
        std::iter::once(name).chain(others).collect()
    }

    /// Returns the cells of an object's row. Ages are relative to `now`.
    pub fn cells(&self, obj: &Object, now: Timestamp) -> Vec<Value> {
        let name = Value::from(obj.name());
        let others = self
            .0
            .iter()
            .map(|column| Some(cell(&column.kind, &*column.path.first(&obj.root)?, now)))
            .map(Option::unwrap_or_default);
        std::iter::once(name).chain(others).collect()
    }
}

/// Formats a value for a column of this type.
fn cell(kind: &str, found: &Value, now: Timestamp) -> Value {
    match (kind, found) {
        ("integer", Value::Int(_)) | ("boolean", Value::Bool(_)) => found.clone(),
        ("integer", Value::Float(number)) => Value::Int(*number as i64),
        ("number", Value::Float(_)) => found.clone(),
        // As upstream, every number of the column is a float.
        ("number", Value::Int(number)) => Value::Float(*number as f64),
        ("string", Value::String(_)) => found.clone(),
        ("string", found) => {
            let mut text = String::new();
            json_path::print(found, &mut text);
            Value::from(text)
        }
        ("date", Value::String(text)) if matches!(text.as_str(), "" | "null") => {
            Value::from("<unknown>")
        }
        ("date", Value::String(text)) => match Timestamp::parse(text) {
            Ok(time) => Value::from(human_age(time, now)),
            Err(_) => Value::from("<invalid>"),
        },
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use keelson_meta::status::show_json;

    const NOW: &str = "2026-01-01T00:05:00Z";

    fn cells(obj: &Object, columns: &[Value]) -> Vec<Value> {
        let now = Timestamp::parse(NOW).expect("a time");
        CustomColumns::read(columns).cells(obj, now)
    }

    /// Each line was recorded from a kube-apiserver 1.36.3: a column before one of the kind, and
    /// the cells after the name. A path that cannot be parsed ends the columns.
    #[test]
    fn columns_show_what_a_kube_apiserver_shows() {
        let mut lines = include_str!("printer-columns.jsonl")
            .lines()
            .map(|line| json::parse(line.as_bytes()).expect("a line of JSON").value);
        let obj = lines.next().and_then(|line| line.get("object").cloned());
        let obj = Object::from_value(obj.expect("the object")).expect("a map");
        let mut count = 0;
        for line in lines {
            let text = |name: &str| line.str_at(&[name]).expect("a text").to_owned();
            let path = text("jsonPath");
            let kind = text("type");
            let column = value!({"name": "C", "type": (kind.clone()), "jsonPath": (path.clone())});
            let last = value!({"name": "K", "type": "string", "jsonPath": ".kind"});
            let shown = cells(&obj, &[column, last]);
            let sent = |cells: &[Value]| show_json(&Value::Array(cells.to_vec()));
            assert_eq!(sent(&shown[1..]), sent(line.array_at(&["cells"])), "{path} as {kind}");
            count += 1;
        }
        assert!(count > 90, "only {count} columns");
    }

    #[test]
    fn dates_are_ages() {
        let obj = value!({
            "metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "all": {"a": 1, "b": 2}
        });
        let obj = Object::from_value(obj).expect("a map");
        assert_eq!(cells(&obj, &[]), [Value::from("a"), "5m".into()]);
        let members = value!({"name": "C", "type": "integer", "jsonPath": ".all.*"});
        assert_eq!(cells(&obj, &[members]), [Value::from("a"), 1.into()], "the first member");
    }
}
