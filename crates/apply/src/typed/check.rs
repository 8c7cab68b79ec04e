//! Whether a value fits its schema, in the words of upstream's refusals.

use super::element::element;
use super::{Kind, Misfit, Misfits, Scalar, allows_unknown};
use crate::fields::Element;
use crate::go_fmt;
use keelson_meta::{Map, Value};
use keelson_schema::types::ListShape;
use keelson_schema::{ListKind, Schema, Shape, Struct, Types};

/// Misfits that are collected; the rest of a hopeless body is not looked at.
const MISFITS_MAX: usize = 100;

/// Checks a client's configuration: types, unknown fields, items that stand twice.
pub fn check(schema: &Schema, value: &Value) -> Result<(), Misfits> {
    let found = misfits(schema, value);
    if found.is_empty() {
        return Ok(());
    }
    // Which are told depends on the order of members; upstream has sorted them.
    Err(Misfits(misfits(schema, &value.clone().sorted())))
}

fn misfits(schema: &Schema, value: &Value) -> Vec<Misfit> {
    let mut walk = Walk { types: &schema.types, path: vec![], misfits: vec![] };
    match value {
        Value::Object(map) => walk.members(schema.root(), map),
        Value::Null => {}
        other => walk.report(format!("expected map, got {}", wrapped(other))),
    }
    walk.misfits
}

struct Walk<'t> {
    types: &'t Types,
    path: Vec<Element>,
    misfits: Vec<Misfit>,
}

impl<'t> Walk<'t> {
    fn report(&mut self, message: String) {
        if self.misfits.len() < MISFITS_MAX {
            let path: Vec<&Element> = self.path.iter().collect();
            self.misfits.push(Misfit { path: crate::fields::path_text(&path), message });
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
                None if allows_unknown(of) => {}
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
                self.report(format!("expected map, got {}", wrapped(other)));
            }
            (Shape::List(list), Value::Array(items)) => self.items(list, items),
            (Shape::List(_), other) => {
                self.report(format!("expected list, got {}", wrapped(other)));
            }
            (shape, value) => {
                if let Kind::Scalar(scalar) = Kind::of(self.types, shape)
                    && let Some(message) = misfit(scalar, value)
                {
                    self.report(message);
                }
            }
        }
    }

    fn items(&mut self, list: &'t ListShape, items: &[Value]) {
        let (steps, fault) = self.steps(list, items);
        let is_repeated = repeated(&steps);
        for ((item, step), is_repeated) in items.iter().zip(steps).zip(is_repeated) {
            if is_repeated && list.kind != ListKind::Atomic {
                self.report(format!("duplicate entries for key {step}"));
            }
            self.path.push(step);
            self.value(&list.item, item);
            self.path.pop();
        }
        if let Some(message) = fault {
            self.report(message);
        }
    }

    /// What leads to the items, up to the first that cannot be told apart, and why it cannot.
    fn steps(&self, list: &ListShape, items: &[Value]) -> (Vec<Element>, Option<String>) {
        let mut steps = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            match &list.kind {
                // A list has fewer than 2^63 items.
                ListKind::Atomic => steps.push(Element::Index(i as i64)),
                _ => match element(self.types, list, item) {
                    Ok(step) => steps.push(step),
                    Err(message) => return (steps, Some(format!("element {i}: {message}"))),
                },
            }
        }
        (steps, None)
    }
}

/// For each element, whether an equal one stands before it.
fn repeated(elements: &[Element]) -> Vec<bool> {
    let mut order: Vec<usize> = (0..elements.len()).collect();
    order.sort_by(|a, b| elements[*a].cmp(&elements[*b]));
    let mut is_repeated = vec![false; elements.len()];
    for pair in order.windows(2) {
        is_repeated[pair[1]] = elements[pair[0]] == elements[pair[1]];
    }
    is_repeated
}

/// Why a value is no scalar of its type.
fn misfit(scalar: Scalar, value: &Value) -> Option<String> {
    match (scalar, value) {
        (Scalar::String, Value::String(_))
        | (Scalar::Numeric, Value::Int(_) | Value::Float(_))
        | (Scalar::Boolean, Value::Bool(_)) => None,
        (Scalar::Any, Value::Array(_) | Value::Object(_)) => {
            Some(format!("expected any scalar, got {}", wrapped(value)))
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
        (Scalar::Boolean, _) => Some(format!("expected boolean, got {}", wrapped(value))),
    }
}

/// Upstream shows the box that its values are in.
fn wrapped(value: &Value) -> String {
    format!("&{{{}}}", go_fmt::plain(value))
}
