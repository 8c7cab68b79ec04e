//! Parses a protobuf FileDescriptorSet: messages and their fields in order. The rest is skipped.

use anyhow::{Result, bail};
use std::collections::HashMap;

/// One field of a message.
#[derive(Clone, Debug, Default)]
pub struct ProtoField {
    /// JSON name.
    pub name: String,
    /// Field number.
    pub number: u64,
    /// Whether the field is a list or a map: `FieldDescriptorProto.Label` is 3.
    pub repeated: bool,
    /// `FieldDescriptorProto.Type`: 1 double, 3 int64, 5 int32, 8 bool, 9 string, 11 message, 12
    /// bytes.
    pub kind: u64,
    /// Full name of the message type, without the leading dot.
    pub type_name: String,
}

/// Full name of a message to its fields, in the order of declaration.
pub type Messages = HashMap<String, Vec<ProtoField>>;

/// Parses a descriptor set.
pub fn parse(bytes: &[u8]) -> Result<Messages> {
    let mut messages = Messages::new();
    for (number, file) in fields(bytes)? {
        let (1, Field::Bytes(file)) = (number, file) else { continue };
        let mut package = String::new();
        let mut found = vec![];
        for (number, field) in fields(file)? {
            match (number, field) {
                (2, Field::Bytes(name)) => package = text(name),
                (4, Field::Bytes(message)) => found.push(message),
                _ => {}
            }
        }
        for message in found {
            read_message(&package, message, &mut messages)?;
        }
    }
    Ok(messages)
}

fn read_message(package: &str, bytes: &[u8], out: &mut Messages) -> Result<()> {
    let mut name = String::new();
    let mut found = vec![];
    let mut nested = vec![];
    for (number, field) in fields(bytes)? {
        match (number, field) {
            (1, Field::Bytes(text_bytes)) => name = text(text_bytes),
            (2, Field::Bytes(field)) => found.push(read_field(field)?),
            (3, Field::Bytes(message)) => nested.push(message),
            _ => {}
        }
    }
    let full = format!("{package}.{name}");
    for message in nested {
        read_message(&full, message, out)?;
    }
    out.insert(full, found);
    Ok(())
}

fn read_field(bytes: &[u8]) -> Result<ProtoField> {
    let mut out = ProtoField::default();
    for (number, field) in fields(bytes)? {
        match (number, field) {
            (1, Field::Bytes(name)) => out.name = text(name),
            (3, Field::Number(number)) => out.number = number,
            (4, Field::Number(label)) => out.repeated = label == 3,
            (5, Field::Number(kind)) => out.kind = kind,
            (6, Field::Bytes(name)) => {
                out.type_name = text(name).trim_start_matches('.').to_owned()
            }
            _ => {}
        }
    }
    Ok(out)
}

enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the fields of an encoded message: number and content.
fn fields(mut bytes: &[u8]) -> Result<Vec<(u64, Field<'_>)>> {
    let mut out = vec![];
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)?),
            1 => Field::Bytes(take(&mut bytes, 8)?),
            2 => {
                let length = usize::try_from(varint(&mut bytes)?)?;
                Field::Bytes(take(&mut bytes, length)?)
            }
            5 => Field::Bytes(take(&mut bytes, 4)?),
            other => bail!("wire type {other} in the descriptor set"),
        };
        out.push((key >> 3, field));
    }
    Ok(out)
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Result<&'a [u8]> {
    let Some((head, rest)) = bytes.split_at_checked(length) else {
        bail!("the descriptor set is cut off");
    };
    *bytes = rest;
    Ok(head)
}

fn varint(bytes: &mut &[u8]) -> Result<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(bytes, 1)?[0];
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    bail!("a number in the descriptor set is too long")
}
