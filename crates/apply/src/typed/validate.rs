//! Validates an apply configuration against its schema. The messages are upstream's.

use super::element::element;
use super::{MergeKind, Scalar, ValidationError, ValidationErrors, allows_unknown};
use crate::fields::Element;
use crate::go_fmt;
use keelson_meta::{Map, Value};
use keelson_schema::types::ListShape;
use keelson_schema::{ListKind, Schema, Shape, Struct, Types};

/// Errors that are collected from one object.
const ERRORS_MAX: usize = 100;

/// Validates a client's configuration: types, unknown fields and duplicate list items.
pub fn validate(schema: &Schema, value: &Value) -> Result<(), ValidationErrors> {
    if errors(schema, value).is_empty() {
        return Ok(());
    }
    // Upstream visits members in sorted order, which decides the reported errors.
    Err(ValidationErrors(errors(schema, &value.clone().sorted())))
}

/// Returns whether all values have the types of their fields. Unknown fields and duplicate items do
/// not count.
pub fn has_types(schema: &Schema, object: &Map) -> bool {
    let mut walk = Walk { types: &schema.types, path: vec![], errors: vec![], types_only: true };
    walk.members(schema.root(), object);
    walk.errors.is_empty()
}

/// Validates the types of a stored object. A custom resource that was stored in another version, or
/// before its schema changed, may have others.
pub fn validate_types(schema: &Schema, object: &Map) -> Result<(), ValidationErrors> {
    if has_types(schema, object) {
        return Ok(());
    }
    let sorted = Value::Object(object.clone()).sorted();
    let mut walk = Walk { types: &schema.types, path: vec![], errors: vec![], types_only: true };
    walk.members(schema.root(), sorted.as_object().unwrap_or(object));
    Err(ValidationErrors(walk.errors))
}

fn errors(schema: &Schema, value: &Value) -> Vec<ValidationError> {
    let mut walk = Walk { types: &schema.types, path: vec![], errors: vec![], types_only: false };
    match value {
        Value::Object(map) => walk.members(schema.root(), map),
        Value::Null => {}
        other => walk.report(format!("expected map, got {}", go_value(other))),
    }
    walk.errors
}

struct Walk<'t> {
    types: &'t Types,
    path: Vec<Element>,
    errors: Vec<ValidationError>,
    /// Whether unknown fields, duplicate items and missing keys are no errors.
    types_only: bool,
}

impl<'t> Walk<'t> {
    fn report(&mut self, message: String) {
        if self.errors.len() < ERRORS_MAX {
            let path: Vec<&Element> = self.path.iter().collect();
            self.errors.push(ValidationError { path: crate::fields::path_text(&path), message });
        }
    }

    fn members(&mut self, of: &'t Struct, map: &Map) {
        for (name, value) in map.iter() {
            match of.field(name) {
                Some(field) => {
                    self.path.push(Element::Field(field.name.clone()));
                    self.value(&field.shape, value);
                    self.path.pop();
                }
                None if self.types_only || allows_unknown(of) => {}
                None => {
                    self.path.push(Element::Field(name.clone()));
                    self.report("field not declared in schema".to_owned());
                    self.path.pop();
                    return;
                }
            }
        }
    }

    fn value(&mut self, shape: &'t Shape, value: &Value) {
        match (shape, value) {
            (_, Value::Null) => {}
            (Shape::Struct(id), Value::Object(map)) => self.members(self.types.get(*id), map),
            (Shape::Map(of), Value::Object(map)) => {
                for (key, item) in map.iter() {
                    self.path.push(Element::Field(key.clone()));
                    self.value(&of.value, item);
                    self.path.pop();
                }
            }
            (Shape::FieldsV1, Value::Object(_) | Value::Raw(_)) => {}
            (Shape::Struct(_) | Shape::Map(_) | Shape::FieldsV1, other) => {
                self.report(format!("expected map, got {}", go_value(other)));
            }
            (Shape::List(list), Value::Array(items)) => self.items(list, items),
            (Shape::List(_), other) => {
                self.report(format!("expected list, got {}", go_value(other)));
            }
            (shape, value) => {
                if let MergeKind::Scalar(scalar) = MergeKind::of(self.types, shape)
                    && let Some(message) = scalar_error(scalar, value)
                {
                    self.report(message);
                }
            }
        }
    }

    fn items(&mut self, list: &'t ListShape, items: &[Value]) {
        let (elements, error) = self.elements(list, items);
        let is_duplicate = duplicates(&elements);
        for ((item, element), is_duplicate) in items.iter().zip(elements).zip(is_duplicate) {
            if is_duplicate && !self.types_only && list.kind != ListKind::Atomic {
                self.report(format!("duplicate entries for key {element}"));
            }
            self.path.push(element);
            self.value(&list.item, item);
            self.path.pop();
        }
        if let Some(message) = error.filter(|_| !self.types_only) {
            self.report(message);
        }
    }

    /// Returns the path elements of the items, up to the first invalid one, and its error.
    fn elements(&self, list: &ListShape, items: &[Value]) -> (Vec<Element>, Option<String>) {
        let mut elements = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            match &list.kind {
                // A list has fewer than 2^63 items.
                ListKind::Atomic => elements.push(Element::Index(i as i64)),
                _ => match element(self.types, list, item) {
                    Ok(element) => elements.push(element),
                    Err(message) => return (elements, Some(format!("element {i}: {message}"))),
                },
            }
        }
        (elements, None)
    }
}

/// Returns for each element whether an equal one comes before it.
fn duplicates(elements: &[Element]) -> Vec<bool> {
    let mut order: Vec<usize> = (0..elements.len()).collect();
    order.sort_by(|a, b| elements[*a].cmp(&elements[*b]));
    let mut is_duplicate = vec![false; elements.len()];
    for pair in order.windows(2) {
        is_duplicate[pair[1]] = elements[pair[0]] == elements[pair[1]];
    }
    is_duplicate
}

/// Returns why a value is not a scalar of this type.
fn scalar_error(scalar: Scalar, value: &Value) -> Option<String> {
    match (scalar, value) {
        (Scalar::String, Value::String(_))
        | (Scalar::Numeric, Value::Int(_) | Value::Float(_))
        | (Scalar::Boolean, Value::Bool(_)) => None,
        (Scalar::Any, Value::Array(_) | Value::Object(_)) => {
            Some(format!("expected any scalar, got {}", go_value(value)))
        }
        (Scalar::Any, _) => None,
        (Scalar::String, _) => {
            let shown = go_fmt::syntax(value);
            Some(format!("expected string, got &value.valueUnstructured{{Value:{shown}}}"))
        }
        (Scalar::Numeric, _) => {
            let got = go_fmt::type_name(value);
            Some(format!("expected numeric (int or float), got {got}"))
        }
        (Scalar::Boolean, _) => Some(format!("expected boolean, got {}", go_value(value))),
    }
}

/// Formats a value as Go's `%v` of upstream's wrapper struct.
fn go_value(value: &Value) -> String {
    format!("&{{{}}}", go_fmt::plain(value))
}
