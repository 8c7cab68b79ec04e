//! Encodes the v2 document as protobuf (gnostic's `openapi.v2.Document`): the JSON form is
//! converted by a description of the messages.

use crate::json::write_value;
use keelson_meta::{Str, Value};

/// A message: maps members of a JSON object to fields.
pub(super) struct Message {
    fields: &'static [(&'static str, u32, Form)],
    /// The field for members whose names begin with `x-`; 0: none.
    extensions: u32,
}

/// How a value is encoded.
enum Form {
    /// A string or boolean, or a list of them.
    Plain,
    /// `Any`, which holds JSON as YAML, or a list of them.
    Any,
    /// A message, or a list of them.
    Message(&'static Message),
    /// A message with a repeated field of name and value pairs.
    Named(u32, &'static Message),
    /// A list of parameters, each a reference or one of several messages.
    Parameters,
}
use Form::{Any, Named, Parameters, Plain};

/// A wrapper message with one field for the whole value.
macro_rules! wrap {
    ($number:literal, $form:expr) => {{
        static WRAP: Message = Message { fields: &[("", $number, $form)], extensions: 0 };
        &WRAP
    }};
}

macro_rules! message {
    ($extensions:literal, $($name:literal $number:literal $form:expr),* $(,)?) => {
        Message { fields: &[$(($name, $number, $form)),*], extensions: $extensions }
    };
}

/// The fields of the document.
pub(super) const SWAGGER: u32 = 1;
pub(super) const INFO: u32 = 2;
pub(super) const PATHS: u32 = 8;
pub(super) const DEFINITIONS: u32 = 9;
pub(super) const PARAMETERS: u32 = 10;
const SECURITY: u32 = 12;
const SECURITY_DEFINITIONS: u32 = 13;

pub(super) static INFO_MESSAGE: Message = message!(7, "title" 1 Plain, "version" 2 Plain);

pub(super) static SCHEMA: Message = message!(31,
    "$ref" 1 Plain,
    "format" 2 Plain,
    "title" 3 Plain,
    "description" 4 Plain,
    "default" 5 Any,
    "required" 19 Plain,
    "enum" 20 Any,
    "additionalProperties" 21 Form::Message(wrap!(1, Form::Message(&SCHEMA))),
    "type" 22 Form::Message(wrap!(1, Plain)),
    "items" 23 Form::Message(wrap!(1, Form::Message(&SCHEMA))),
    "properties" 25 Named(1, &SCHEMA),
);

pub(super) static PATH_ITEM: Message = message!(10,
    "get" 2 Form::Message(&OPERATION),
    "put" 3 Form::Message(&OPERATION),
    "post" 4 Form::Message(&OPERATION),
    "delete" 5 Form::Message(&OPERATION),
    "options" 6 Form::Message(&OPERATION),
    "head" 7 Form::Message(&OPERATION),
    "patch" 8 Form::Message(&OPERATION),
    "parameters" 9 Parameters,
);

static OPERATION: Message = message!(13,
    "tags" 1 Plain,
    "description" 3 Plain,
    "operationId" 5 Plain,
    "produces" 6 Plain,
    "consumes" 7 Plain,
    "parameters" 8 Parameters,
    "responses" 9 Named(1, wrap!(1, Form::Message(&RESPONSE))),
    "schemes" 10 Plain,
);

static RESPONSE: Message = message!(5,
    "description" 1 Plain,
    "schema" 2 Form::Message(wrap!(1, Form::Message(&SCHEMA))),
);

static REFERENCE: Message = message!(0, "$ref" 1 Plain, "description" 2 Plain);

static BODY: Message = message!(6,
    "description" 1 Plain,
    "name" 2 Plain,
    "in" 3 Plain,
    "required" 4 Plain,
    "schema" 5 Form::Message(&SCHEMA),
);

static IN_QUERY: Message = message!(23,
    "required" 1 Plain,
    "in" 2 Plain,
    "description" 3 Plain,
    "name" 4 Plain,
    "type" 6 Plain,
    "format" 7 Plain,
    "uniqueItems" 20 Plain,
);

static IN_PATH: Message = message!(22,
    "required" 1 Plain,
    "in" 2 Plain,
    "description" 3 Plain,
    "name" 4 Plain,
    "type" 5 Plain,
    "format" 6 Plain,
    "uniqueItems" 19 Plain,
);

static API_KEY: Message = message!(5,
    "type" 1 Plain,
    "name" 2 Plain,
    "in" 3 Plain,
    "description" 4 Plain,
);

/// Returns the message of a parameter that is not a reference.
pub(super) fn parameter_message(of: &Value) -> &'static Message {
    match of.str_at(&["in"]) {
        Some("body") => wrap!(1, Form::Message(&BODY)),
        Some("path") => wrap!(2, Form::Message(wrap!(4, Form::Message(&IN_PATH)))),
        _ => wrap!(2, Form::Message(wrap!(3, Form::Message(&IN_QUERY)))),
    }
}

/// Appends a field with a message.
pub(super) fn write_message(number: u32, of: &'static Message, value: &Value, out: &mut Vec<u8>) {
    write_delimited(number, out, |out| members(of, value, out));
}

/// Appends a field with a pair of a name and a message.
pub(super) fn write_named(
    number: u32,
    name: &str,
    of: &'static Message,
    value: &Value,
    out: &mut Vec<u8>,
) {
    write_delimited(number, out, |out| {
        write_bytes(1, name.as_bytes(), out);
        write_message(2, of, value, out);
    });
}

/// Appends the security requirement and definitions: an API key of this name, defined by the
/// members of `definitions`.
pub(super) fn write_security(name: &str, definitions: &Value, out: &mut Vec<u8>) {
    write_delimited(SECURITY, out, |out| {
        // The pair of the name and an empty list of scopes.
        write_delimited(1, out, |out| {
            write_bytes(1, name.as_bytes(), out);
            write_bytes(2, b"", out);
        });
    });
    let scheme = wrap!(2, Form::Message(&API_KEY));
    write_delimited(SECURITY_DEFINITIONS, out, |out| {
        for (name, scheme_value) in definitions.as_object().into_iter().flat_map(|map| map.iter()) {
            write_named(1, name, scheme, scheme_value, out);
        }
    });
}

/// Appends a field of bytes or text.
pub(super) fn write_bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    write_key(number, 2, out);
    write_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Appends a length-delimited field whose content `write` appends. Inserting the length moves the
/// content, which is small except in the outermost fields.
fn write_delimited(number: u32, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    write_key(number, 2, out);
    let start = out.len();
    write(out);
    let mut length = vec![];
    write_varint((out.len() - start) as u64, &mut length);
    out.splice(start..start, length);
}

fn members(of: &'static Message, value: &Value, out: &mut Vec<u8>) {
    if let [("", number, form)] = of.fields {
        return field(*number, form, value, out);
    }
    for (name, value) in value.as_object().into_iter().flat_map(|map| map.iter()) {
        if let Some((_, number, form)) = of.fields.iter().find(|(known, ..)| known == name) {
            field(*number, form, value, out);
        } else if of.extensions != 0 && name.starts_with("x-") {
            extension(of.extensions, name, value, out);
        }
    }
}

fn field(number: u32, form: &'static Form, value: &Value, out: &mut Vec<u8>) {
    match (form, value) {
        (Plain | Any | Form::Message(_), Value::Array(items)) => {
            for item in items {
                field(number, form, item, out);
            }
        }
        (Plain, Value::String(text)) => write_bytes(number, text.as_bytes(), out),
        (Plain, value) => {
            if value.as_bool() == Some(true) {
                write_key(number, 0, out);
                out.push(1);
            }
        }
        (Any, value) => write_delimited(number, out, |out| any(value, out)),
        (Form::Message(of), value) => write_message(number, of, value, out),
        (Named(inner, of), value) => write_delimited(number, out, |out| {
            for (name, value) in value.as_object().into_iter().flat_map(|map| map.iter()) {
                write_named(*inner, name, of, value, out);
            }
        }),
        (Parameters, value) => {
            for item in value.as_array().unwrap_or_default() {
                write_delimited(number, out, |out| match item.get("$ref") {
                    Some(_) => write_message(2, &REFERENCE, item, out),
                    None => write_message(1, parameter_message(item), item, out),
                });
            }
        }
    }
}

fn any(value: &Value, out: &mut Vec<u8>) {
    let mut json = vec![];
    write_value(value, &mut json);
    write_bytes(2, &json, out);
}

fn extension(number: u32, name: &Str, value: &Value, out: &mut Vec<u8>) {
    write_delimited(number, out, |out| {
        write_bytes(1, name.as_bytes(), out);
        write_delimited(2, out, |out| any(value, out));
    });
}

fn write_key(number: u32, wire_type: u64, out: &mut Vec<u8>) {
    write_varint(u64::from(number) << 3 | wire_type, out);
}

fn write_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}
