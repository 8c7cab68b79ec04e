//! Prints a pod template as Go's reflection does:
//! `(v1.PodTemplateSpec){ObjectMeta:(v1.ObjectMeta){...`.

use super::quantities;
use super::types::{Field, GoType, Shape, TYPES};
use keelson_meta::{Map, Value};
use std::fmt::{Result, Write};

const ABSENT: &str = "<nil>";

/// Writes a pod template.
pub(super) fn pod_template(template: &Value, out: &mut impl Write) -> Result {
    typed(0, Some(template), out)
}

/// Writes the name of the type and the value.
fn typed(of: usize, value: Option<&Value>, out: &mut impl Write) -> Result {
    write!(out, "({})", TYPES[of].name)?;
    untyped(of, value, out)
}

/// Writes the value. Items of lists and maps have no type before them.
fn untyped(of: usize, value: Option<&Value>, out: &mut impl Write) -> Result {
    let value = value.filter(|value| !value.is_null());
    let GoType { shape, .. } = &TYPES[of];
    match shape {
        Shape::Pointer(inner) => match value {
            Some(value) => untyped(*inner, Some(value), out),
            None => out.write_str(ABSENT),
        },
        Shape::Struct(fields) => {
            let empty = Map::new();
            struct_fields(fields, value.and_then(Value::as_object).unwrap_or(&empty), out)
        }
        Shape::List(item) => match value.and_then(Value::as_array) {
            Some(items) if !items.is_empty() => list(*item, items, out),
            _ => out.write_str(ABSENT),
        },
        Shape::Map(item) => match value.and_then(Value::as_object) {
            Some(members) if !members.is_empty() => map(*item, members, out),
            _ => out.write_str(ABSENT),
        },
        Shape::Text => out.write_str(value.and_then(Value::as_str).unwrap_or_default()),
        Shape::Flag => write!(out, "{}", value.and_then(Value::as_bool).unwrap_or(false)),
        Shape::Number => write!(out, "{}", value.and_then(Value::as_int).unwrap_or(0)),
        Shape::Quantity => quantities::write(value, out),
        Shape::IntOrString => int_or_string(value, out),
        Shape::Time => out
            .write_str("{Time:(time.Time){wall:(uint64)0 ext:(int64)0 loc:(*time.Location)<nil>}}"),
        Shape::Fields => out.write_str("{Raw:([]uint8)<nil>}"),
    }
}

fn struct_fields(fields: &[Field], members: &Map, out: &mut impl Write) -> Result {
    out.write_char('{')?;
    for (at, field) in fields.iter().enumerate() {
        if at > 0 {
            out.write_char(' ')?;
        }
        write!(out, "{}:", field.go_name)?;
        match field.json_name {
            Some(name) => typed(field.of, members.get(name), out)?,
            None => inline(field.of, members, out)?,
        }
    }
    out.write_char('}')
}

/// Writes a struct whose fields are members of the JSON object around it.
fn inline(of: usize, members: &Map, out: &mut impl Write) -> Result {
    write!(out, "({})", TYPES[of].name)?;
    match &TYPES[of].shape {
        Shape::Struct(fields) => struct_fields(fields, members, out),
        _ => out.write_str(ABSENT),
    }
}

fn list(item: usize, items: &[Value], out: &mut impl Write) -> Result {
    out.write_char('[')?;
    for (at, value) in items.iter().enumerate() {
        if at > 0 {
            out.write_char(' ')?;
        }
        untyped(item, Some(value), out)?;
    }
    out.write_char(']')
}

fn map(item: usize, members: &Map, out: &mut impl Write) -> Result {
    out.write_str("map[")?;
    for (at, (name, value)) in members.sorted().into_iter().enumerate() {
        if at > 0 {
            out.write_char(' ')?;
        }
        write!(out, "{name}:")?;
        untyped(item, Some(value), out)?;
    }
    out.write_char(']')
}

fn int_or_string(value: Option<&Value>, out: &mut impl Write) -> Result {
    let (of, number, text) = match value {
        Some(Value::String(text)) => (1, 0, text.as_str()),
        value => (0, value.and_then(Value::as_int).unwrap_or(0), ""),
    };
    write!(out, "{{Type:(intstr.Type){of} IntVal:(int32){number} StrVal:(string){text}}}")
}
