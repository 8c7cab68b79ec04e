//! Label selectors: the query text (`a in (b, c),!d`), the LabelSelector object, matching, and the
//! canonical text. Error texts are those of apimachinery's `labels`.

use crate::names::{is_qualified_name, is_valid_label_value};
use crate::status::quote;
use crate::{ErrorList, FieldError, Map, Path, Str, Value};
use std::fmt;

mod parse;
mod wide;

pub use parse::parse;

use std::sync::Arc;
use wide::Wide;

/// The relation between a label and the values of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // The names are the API's own words.
pub enum Operator {
    In,
    NotIn,
    Equals,
    DoubleEquals,
    NotEquals,
    GreaterThan,
    LessThan,
    Exists,
    DoesNotExist,
}

/// A requirement, which is validated on creation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Requirement {
    key: Str,
    operator: Operator,
    /// Invariant: as many as the operator takes; one integer for `GreaterThan` and `LessThan`.
    values: Vec<Str>,
}

impl Requirement {
    /// Validates key and values; the error contains all faults.
    pub fn new(key: &str, operator: Operator, values: Vec<Str>) -> Result<Self, String> {
        let mut errors = ErrorList::new();
        let key_errors = is_qualified_name(key);
        if !key_errors.is_empty() {
            errors.push(FieldError::invalid(&Path::new("key"), key, &key_errors.join("; ")));
        }
        check_count(operator, &values, &mut errors);
        let path = Path::new("values");
        for (index, value) in values.iter().enumerate() {
            let value_errors = is_valid_label_value(value);
            if !value_errors.is_empty() {
                let item = path.index(index);
                let detail = value_errors.join("; ");
                errors.push(FieldError::invalid(&item.key(key), value.clone(), &detail));
            }
        }
        if errors.is_empty() {
            return Ok(Requirement { key: key.into(), operator, values });
        }
        let mut texts: Vec<String> = errors.iter().map(FieldError::to_string).collect();
        texts.dedup();
        Err(if texts.len() == 1 { texts.remove(0) } else { format!("[{}]", texts.join(", ")) })
    }

    /// Returns the label key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the operator.
    pub fn operator(&self) -> Operator {
        self.operator
    }

    /// Returns the values in their original order.
    pub fn values(&self) -> &[Str] {
        &self.values
    }

    /// Returns whether a label with this value, or its absence, meets the requirement.
    pub fn matches(&self, label: Option<&str>) -> bool {
        let has = |value: &str| self.values.iter().any(|wanted| wanted == value);
        match self.operator {
            Operator::In | Operator::Equals | Operator::DoubleEquals => label.is_some_and(has),
            Operator::NotIn | Operator::NotEquals => !label.is_some_and(has),
            Operator::Exists => label.is_some(),
            Operator::DoesNotExist => label.is_none(),
            Operator::GreaterThan => self.compare(label).is_some_and(|order| order.is_gt()),
            Operator::LessThan => self.compare(label).is_some_and(|order| order.is_lt()),
        }
    }

    /// Returns the only value that meets the requirement, if there is one.
    pub fn required_value(&self) -> Option<&str> {
        let exact =
            matches!(self.operator, Operator::Equals | Operator::DoubleEquals | Operator::In);
        match self.values.as_slice() {
            [value] if exact => Some(value),
            _ => None,
        }
    }

    fn compare(&self, label: Option<&str>) -> Option<std::cmp::Ordering> {
        let wanted: i64 = self.values.first()?.parse().ok()?;
        Some(label?.parse::<i64>().ok()?.cmp(&wanted))
    }
}

fn check_count(operator: Operator, values: &[Str], errors: &mut ErrorList) {
    let path = Path::new("values");
    let words = match operator {
        Operator::In | Operator::NotIn if values.is_empty() => {
            "for 'in', 'notin' operators, values set can't be empty"
        }
        Operator::Equals | Operator::DoubleEquals | Operator::NotEquals if values.len() != 1 => {
            "exact-match compatibility requires one single value"
        }
        Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
            "values set must be empty for exists and does not exist"
        }
        Operator::GreaterThan | Operator::LessThan if values.len() != 1 => {
            "for 'Gt', 'Lt' operators, exactly one value is required"
        }
        _ => "",
    };
    if !words.is_empty() {
        let shown = match values {
            [] => Value::Null,
            some => some.iter().cloned().map(Value::String).collect::<Vec<_>>().into(),
        };
        errors.push(FieldError::invalid(&path, shown, words));
    }
    if matches!(operator, Operator::GreaterThan | Operator::LessThan) {
        for (index, value) in values.iter().enumerate().filter(|(_, v)| v.parse::<i64>().is_err()) {
            let words = "for 'Gt', 'Lt' operators, the value must be an integer";
            errors.push(FieldError::invalid(&path.index(index), value.clone(), words));
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, after) = match self.operator {
            Operator::Exists => return f.write_str(&self.key),
            Operator::DoesNotExist => return write!(f, "!{}", self.key),
            Operator::In => (" in (", ")"),
            Operator::NotIn => (" notin (", ")"),
            Operator::Equals => ("=", ""),
            Operator::DoubleEquals => ("==", ""),
            Operator::NotEquals => ("!=", ""),
            Operator::GreaterThan => (">", ""),
            Operator::LessThan => ("<", ""),
        };
        let mut values: Vec<&str> = self.values.iter().map(Str::as_str).collect();
        values.sort_unstable();
        write!(f, "{}{before}{}{after}", self.key, values.join(","))
    }
}

/// Requirements that must all be met, or the selector that matches nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selector {
    /// Invariant: sorted by key (stable); empty when `nothing`.
    requirements: Vec<Requirement>,
    nothing: bool,
    /// The requirements, prepared for matching if they are many.
    wide: Option<Arc<Wide>>,
}

impl Selector {
    /// Matches every object.
    pub const EVERYTHING: Selector =
        Selector { requirements: Vec::new(), nothing: false, wide: None };

    /// Matches no object.
    pub const NOTHING: Selector = Selector { requirements: Vec::new(), nothing: true, wide: None };

    /// Returns a selector with these requirements.
    pub fn new(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        let wide = Wide::of(&requirements).map(Arc::new);
        Selector { requirements, nothing: false, wide }
    }

    /// Returns a selector for equal labels, without validation (`spec.selector` of a Service).
    pub fn from_labels<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let equals = |(key, value): (&str, &str)| Requirement {
            key: key.into(),
            operator: Operator::Equals,
            values: vec![value.into()],
        };
        Self::new(labels.into_iter().map(equals).collect())
    }

    /// Converts a LabelSelector object; absent or null matches nothing, an empty one everything.
    pub fn from_object(selector: Option<&Value>) -> Result<Self, String> {
        let Some(selector) = selector.and_then(Value::as_object) else {
            return Ok(Selector::NOTHING);
        };
        let mut requirements = vec![];
        let labels = selector.get("matchLabels").and_then(Value::as_object);
        for (key, value) in labels.into_iter().flat_map(Map::iter) {
            let value = value.as_str().unwrap_or_default().into();
            requirements.push(Requirement::new(key, Operator::Equals, vec![value])?);
        }
        let expressions = selector.get("matchExpressions").and_then(Value::as_array);
        for expression in expressions.unwrap_or_default() {
            let word = expression.str_at(&["operator"]).unwrap_or_default();
            let operator = match word {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                _ => return Err(format!("{} is not a valid pod selector operator", quote(word))),
            };
            let values = expression.array_at(&["values"]).iter().filter_map(Value::as_str);
            let key = expression.str_at(&["key"]).unwrap_or_default();
            requirements.push(Requirement::new(key, operator, values.map(Str::from).collect())?);
        }
        Ok(Self::new(requirements))
    }

    /// Returns the requirements, sorted by key.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// Returns whether every object matches.
    pub fn is_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    /// Returns whether no object can match.
    pub fn is_nothing(&self) -> bool {
        self.nothing
    }

    /// Returns whether the labels match; `find` looks up a label.
    #[inline]
    pub fn matches<'a>(&self, find: impl Fn(&str) -> Option<&'a str>) -> bool {
        match &self.wide {
            Some(wide) => wide.matches(find),
            None => self.all_match(find),
        }
    }

    #[inline]
    fn all_match<'a>(&self, find: impl Fn(&str) -> Option<&'a str>) -> bool {
        !self.nothing && self.requirements.iter().all(|r| r.matches(find(&r.key)))
    }

    /// Like [`Selector::matches_labels`], with a faster lookup for a selector of few requirements.
    #[inline]
    pub fn matches_labels_or<'a, I: Iterator<Item = (&'a str, &'a str)>>(
        &self,
        labels: impl Fn() -> I,
        find: impl Fn(&str) -> Option<&'a str>,
    ) -> bool {
        match &self.wide {
            Some(wide) => wide.matches_labels(labels()),
            None => self.all_match(find),
        }
    }

    /// Returns whether the labels of one object match. Costs O(labels), also for many requirements.
    #[inline]
    pub fn matches_labels<'a, I>(&self, labels: I) -> bool
    where
        I: IntoIterator<Item = (&'a str, &'a str)> + Clone,
    {
        if let Some(wide) = &self.wide {
            return wide.matches_labels(labels.into_iter());
        }
        let find = |key: &str| labels.clone().into_iter().find(|(k, _)| *k == key).map(|(_, v)| v);
        self.all_match(find)
    }

    /// Returns whether the labels of an object match.
    pub fn matches_object(&self, obj: &crate::Object) -> bool {
        self.matches(|key| obj.label(key))
    }

    /// Returns the value that the first requirement on the label `key` requires.
    pub fn required_value(&self, key: &str) -> Option<&str> {
        self.requirements.iter().find(|r| r.key == key)?.required_value()
    }
}

impl fmt::Display for Selector {
    /// Formats the canonical text, which [`parse`] accepts; empty for everything and for nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

/// Validates a LabelSelector object in a spec.
pub fn validate_label_selector(selector: Option<&Value>, path: &Path<'_>) -> ErrorList {
    let Some(selector) = selector.filter(|selector| !selector.is_null()) else {
        return ErrorList::new();
    };
    let labels = selector.get("matchLabels").and_then(Value::as_object);
    let mut errors = crate::object_meta::validate_labels(labels, &path.field("matchLabels"));
    let path = path.field("matchExpressions");
    for (index, expression) in selector.array_at(&["matchExpressions"]).iter().enumerate() {
        let path = path.index(index);
        let member = |name| expression.str_at(&[name]).unwrap_or_default();
        let values = expression.array_at(&["values"]);
        let at = path.field("values");
        match member("operator") {
            "In" | "NotIn" if values.is_empty() => {
                let words = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(FieldError::required(&at, words));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let words = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(FieldError::forbidden(&at, words));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                let words = "not a valid selector operator";
                errors.push(FieldError::invalid(&path.field("operator"), other, words));
            }
        }
        for message in is_qualified_name(member("key")) {
            errors.push(FieldError::invalid(&path.field("key"), member("key"), &message));
        }
        errors.extend(label_values(values, &at));
    }
    errors
}

fn label_values(values: &[Value], path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    for (index, value) in values.iter().filter_map(Value::as_str).enumerate() {
        for message in is_valid_label_value(value) {
            errors.push(FieldError::invalid(&path.index(index), value, &message));
        }
    }
    errors
}

/// Returns a LabelSelector object as tables print it: its canonical text, `<none>` or `<error>`.
pub fn format_label_selector(selector: Option<&Value>) -> String {
    match Selector::from_object(selector) {
        Err(_) => "<error>".to_owned(),
        Ok(selector) if selector.requirements.is_empty() => "<none>".to_owned(),
        Ok(selector) => selector.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    fn selects(text: &str, labels: &[(&str, &str)]) -> bool {
        let selector = parse(text).expect("the test's selector is valid");
        selector.matches_labels(labels.iter().copied())
    }

    #[test]
    fn every_operator_matches_as_documented() {
        let labels = &[("a", "1"), ("b", "x"), ("e", "")];
        for yes in [
            "",
            "a",
            "!c",
            "a=1",
            "a==1",
            "a!=2",
            "c!=2",
            "a in (1,2)",
            "a notin (2)",
            "c notin (1)",
            "a>0",
            "a<2",
            "b=x,a",
            "e",
            "e=",
            "e in ()",
            "a notin ()",
        ] {
            assert!(selects(yes, labels), "{yes}");
        }
        for no in [
            "c",
            "!a",
            "a=2",
            "a!=1",
            "a in (2)",
            "a notin (1)",
            "a>1",
            "a<1",
            "b>1",
            "c>1",
            "b=x,c",
            "a=",
            "c=",
            "e notin ()",
        ] {
            assert!(!selects(no, labels), "{no}");
        }
    }

    #[test]
    fn a_label_selector_object_matches() {
        let object = value!({
            "matchLabels": {"b": "x"},
            "matchExpressions": [
                {"key": "a", "operator": "In", "values": ["2", "1"]},
                {"key": "c", "operator": "DoesNotExist"}
            ]
        });
        let selector = Selector::from_object(Some(&object)).expect("the object is valid");
        assert_eq!(selector.to_string(), "a in (1,2),b=x,!c");
        assert!(selector.matches_labels([("a", "1"), ("b", "x")]));
        assert_eq!(selector.required_value("b"), Some("x"));
        assert_eq!(selector.required_value("a"), None);
        assert!(Selector::from_object(None).is_ok_and(|s| s.is_nothing()));
        assert!(Selector::from_object(Some(&value!({}))).is_ok_and(|s| s.is_everything()));
        let bad = value!({"matchExpressions": [{"key": "a", "operator": "Like"}]});
        assert_eq!(
            Selector::from_object(Some(&bad)),
            Err("\"Like\" is not a valid pod selector operator".to_owned())
        );
        let bad = value!({"matchExpressions": [{"key": "a", "operator": "In"}]});
        assert_eq!(
            Selector::from_object(Some(&bad)),
            Err("values: Invalid value: null: for 'in', 'notin' operators, values set can't be \
                 empty"
                .to_owned())
        );
        assert_eq!(format_label_selector(None), "<none>");
    }

    #[test]
    fn errors_of_an_object_name_their_fields() {
        let object = value!({"matchLabels": {"a": "b"}, "matchExpressions": [
            {"key": "a", "operator": "Bad"},
            {"key": "a", "operator": "In"},
            {"key": "a", "operator": "Exists", "values": ["b"]}
        ]});
        let errors = validate_label_selector(Some(&object), &Path::new("spec"));
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "spec.matchExpressions[0].operator: Invalid value: \"Bad\": not a valid selector \
                 operator",
                "spec.matchExpressions[1].values: Required value: must be specified when \
                 `operator` is 'In' or 'NotIn'",
                "spec.matchExpressions[2].values: Forbidden: may not be specified when `operator` \
                 is 'Exists' or 'DoesNotExist'",
            ]
        );
    }
}
