//! Tables of custom resources: the columns of `additionalPrinterColumns` (apiextensions
//! `registry/customresource/tableconvertor`).

use super::row::human_age;
use crate::json;
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
    path: Vec<Step>,
}

/// A step of a JSONPath.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Member(Str),
    Index(i64),
    Every,
    /// `[?(@.type=="Ready")]`: the path of a member and its text.
    Where(Vec<Str>, Str),
}

impl CustomColumns {
    /// Reads `additionalPrinterColumns`. The default is one column with the age.
    pub fn read(columns: &[Value]) -> CustomColumns {
        if columns.is_empty() {
            return CustomColumns(vec![CustomColumn {
                name: "Age".into(),
                kind: "date".into(),
                format: Str::default(),
                description: Str::default(),
                priority: 0,
                path: path(".metadata.creationTimestamp"),
            }]);
        }
        let columns = columns.iter().map(|column| {
            let text = |name: &str| column.str_at(&[name]).map(Str::new).unwrap_or_default();
            CustomColumn {
                name: text("name"),
                kind: text("type"),
                format: text("format"),
                description: text("description"),
                priority: column.get("priority").and_then(Value::as_int).unwrap_or(0),
                path: path(&text("jsonPath")),
            }
        });
        CustomColumns(columns.collect())
    }

    /// Returns `columnDefinitions` of the Table.
    pub fn definitions(&self) -> Vec<Value> {
        let name = value!({
            "name": "Name", "type": "string", "format": "name", "description": "", "priority": 0
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
        let others = self.0.iter().map(|column| {
            let (step, rest) = column.path.split_first()?;
            let Step::Member(name) = step else { return None };
            first(obj.root.get(name)?, rest).map(|found| cell(&column.kind, found, now))
        });
        let others = others.map(Option::unwrap_or_default);
        std::iter::once(name).chain(others).collect()
    }
}

/// Formats a value for a column of this type.
fn cell(kind: &str, found: &Value, now: Timestamp) -> Value {
    match (kind, found) {
        ("integer", Value::Int(_)) | ("boolean", Value::Bool(_)) => found.clone(),
        ("integer", Value::Float(number)) => Value::Int(*number as i64),
        ("number", Value::Int(_) | Value::Float(_)) => found.clone(),
        ("string", Value::String(_)) => found.clone(),
        ("string", Value::Null) => Value::from("<nil>"),
        ("string", found) => {
            let mut text = vec![];
            json::write_value(found, &mut text);
            Value::from(String::from_utf8_lossy(&text).into_owned())
        }
        ("date", Value::String(text)) => match Timestamp::parse(text) {
            Ok(time) => Value::from(human_age(time, now)),
            Err(_) => Value::from("<invalid>"),
        },
        _ => Value::Null,
    }
}

/// Returns the first value at a path.
fn first<'v>(value: &'v Value, path: &[Step]) -> Option<&'v Value> {
    let Some((step, rest)) = path.split_first() else { return Some(value) };
    let items = || value.as_array().unwrap_or_default();
    match step {
        Step::Member(name) => first(value.get(name)?, rest),
        Step::Index(index) => {
            let count = i64::try_from(items().len()).ok()?;
            let place = if *index < 0 { count + index } else { *index };
            first(items().get(usize::try_from(place).ok()?)?, rest)
        }
        Step::Every => items().iter().find_map(|item| first(item, rest)),
        Step::Where(members, wanted) => items().iter().find_map(|item| {
            let members: Vec<&str> = members.iter().map(Str::as_str).collect();
            let is_it = item.at(&members).and_then(Value::as_str) == Some(wanted.as_str());
            if is_it { first(item, rest) } else { None }
        }),
    }
}

/// Parses a simple JSONPath: `.a.b`, `['a']`, `[0]`, `[*]`, `[?(@.a=="b")]`. An invalid path
/// matches nothing.
fn path(text: &str) -> Vec<Step> {
    let mut steps = vec![];
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(inside) = rest.strip_prefix('[') {
            let Some(end) = end_of_bracket(inside) else { return nowhere() };
            match bracket(&inside[..end]) {
                Some(step) => steps.push(step),
                None => return nowhere(),
            }
            rest = &inside[end + 1..];
            continue;
        }
        let Some(named) = rest.strip_prefix('.') else { return nowhere() };
        let (name, after) = member(named);
        match name.as_str() {
            "" => {}
            "*" => steps.push(Step::Every),
            _ => steps.push(Step::Member(name)),
        }
        rest = after;
    }
    steps
}

fn nowhere() -> Vec<Step> {
    vec![Step::Index(i64::MAX)]
}

/// Parses a member name, in which a backslash escapes the next character. Returns the name and the
/// rest.
fn member(text: &str) -> (Str, &str) {
    let (mut name, mut chars) = (String::new(), text.char_indices());
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => name.extend(chars.next().map(|(_, c)| c)),
            '.' | '[' => return (Str::from(name), &text[at..]),
            c => name.push(c),
        }
    }
    (Str::from(name), "")
}

fn end_of_bracket(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            (None, ']') => return Some(at),
            _ => {}
        }
    }
    None
}

fn bracket(text: &str) -> Option<Step> {
    let unquoted = |text: &str| {
        let text = text.trim();
        let inner = |quote| text.strip_prefix(quote)?.strip_suffix(quote);
        inner('\'').or_else(|| inner('"')).map(Str::new)
    };
    if text.trim() == "*" {
        return Some(Step::Every);
    }
    if let Some(filter) = text.trim().strip_prefix("?(").and_then(|f| f.strip_suffix(')')) {
        let (left, right) = filter.split_once("==")?;
        let members = left.trim().strip_prefix("@.")?;
        let members = members.split('.').map(Str::new).collect();
        return Some(Step::Where(members, unquoted(right)?));
    }
    if let Some(name) = unquoted(text) {
        return Some(Step::Member(name));
    }
    text.trim().parse().ok().map(Step::Index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_show_values_at_their_paths() {
        let obj = value!({
            "metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"example.com/x": "l"}},
            "spec": {"n": 3, "list": [{"name": "one"}, {"name": "two"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "B", "status": "False"}]}
        });
        let obj = Object::from_value(obj).expect("a map");
        let now = Timestamp::parse("2026-01-01T00:05:00Z").expect("a time");
        let check = |path: &str, kind: &str, want: Value| {
            let column = value!({"name": "C", "type": kind, "jsonPath": path});
            let cells = CustomColumns::read(&[column]).cells(&obj, now);
            assert_eq!(cells, [Value::from("a"), want], "{path}");
        };
        check(".spec.n", "integer", 3.into());
        check(".spec.n", "string", "3".into());
        check(".spec.list[1].name", "string", "two".into());
        check(".spec.list[-1].name", "string", "two".into());
        check(".spec.list[*].name", "string", "one".into());
        check(".spec.list", "string", r#"[{"name":"one"},{"name":"two"}]"#.into());
        check(".spec.absent", "string", Value::Null);
        check(".spec.n", "boolean", Value::Null);
        check(r".metadata.labels.example\.com/x", "string", "l".into());
        check(".metadata.labels['example.com/x']", "string", "l".into());
        check(".metadata.creationTimestamp", "date", "5m".into());
        check(r#".status.conditions[?(@.type=="B")].status"#, "string", "False".into());
        check(".status.conditions[?(@.type=='Ready')].status", "string", "True".into());
        check(".status.conditions[?(@.type=='No')].status", "string", Value::Null);
        check("spec", "string", Value::Null);
        let none = CustomColumns::read(&[]).cells(&obj, now);
        assert_eq!(none, [Value::from("a"), "5m".into()]);
    }
}
