//! The decoders. An object that they accept can be encoded, and decoding it again gives the same
//! object.

use super::{Target, difference, hash_outcome};
use crate::objects::{encode, schemas, seeds};
use keelson_meta::{Object, Value};
use keelson_schema::decode::{self, Decoded, Format};
use keelson_schema::{Schema, json, yaml};

const FORMATS: [Format; 4] = [Format::Json, Format::Yaml, Format::Protobuf, Format::Cbor];

/// Members of the objects of the corpus, and tokens of JSON.
const JSON_DICTIONARY: &[&[u8]] = &[
    b"null",
    b"true",
    b"[]",
    b"{}",
    b"[[",
    b"{\"a\":",
    b"\\ud800",
    b"\\u0000",
    b"\\u2028",
    b"1e-7",
    b"\"metadata\":",
    b"\"spec\":",
    b"\"status\":",
    b"\"kind\":\"Pod\",",
    b"\"apiVersion\":\"v1\",",
    b"\"items\":[",
    b"\"managedFields\":[{",
    b"\"fieldsV1\":{\"f:a\":{}}",
    b"\xef\xbb\xbf",
    b"\xe2\x80\xa8",
];

pub const JSON: Target = Target {
    name: "json",
    seeds: || seeds(Format::Json),
    dictionary: JSON_DICTIONARY,
    attempt: |input| {
        let Some((schema, body)) = split(input) else { return Ok(0) };
        let outcome = attempt(schema, body, Format::Json)?;
        // Decoding directly must give the same object as parsing and then canonicalizing.
        if let Ok(direct) = decode(schema, body, Format::Json)
            && let Ok(parsed) = json::parse(body)
            && let Ok(canonical) = decode::canonicalize(schema, parsed.value)
            && let [direct, canonical] =
                [direct.object, canonical.object].map(|obj| json::parse_raw(obj.into_value()))
            && direct != canonical
        {
            let text = |obj: &Value| format!("{obj:?}");
            let differences = difference(&text(&direct), &text(&canonical));
            return Err(format!("decode and canonicalize differ: {differences}"));
        }
        Ok(outcome)
    },
};

pub const YAML: Target = Target {
    name: "yaml",
    seeds: || {
        let texts = [
            &include_bytes!("../../corpus/yaml/scalars.yaml")[..],
            include_bytes!("../../corpus/yaml/aliases.yaml"),
            include_bytes!("../../corpus/yaml/blocks.yaml"),
        ];
        // 2 is the index of the schema of Secret.
        let texts = texts.into_iter().map(|text| [&[2], text].concat());
        seeds(Format::Yaml).into_iter().chain(texts).collect()
    },
    dictionary: &[
        b"- ",
        b": ",
        b"&a ",
        b"*a",
        b"<<: *a",
        b"|\n  ",
        b">-\n  ",
        b"!!str ",
        b"!!binary ",
        b"!!int ",
        b"%TAG ! a:\n",
        b"|2-\n   ",
        b">+\n ",
        b"? ",
        b"\\\n",
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b"~",
        b"---\n",
        b"...\n",
        b"%YAML 1.1\n",
        b"\t",
        b"\r\n",
        b"[",
        b"{",
        b"'",
        b"\"",
        b"# ",
        b"0o17",
        b"0x1f",
        b".nan",
        b".inf",
        b"yes",
        b"2001-01-01",
        b"1_000",
        b"190:20:30",
        b"\xc2\x85",
        b"\xe2\x80\xa8",
        b"\0",
    ],
    attempt: |input| {
        let Some((schema, body)) = split(input) else { return Ok(0) };
        if let Ok(parsed) = yaml::parse(body) {
            // A text that begins with a brace may be read as JSON; one with a line break is not.
            let scanned = yaml::parse([b"\n", body].concat()).map(|parsed| parsed.value);
            if body.first() == Some(&b'{') && scanned.as_ref() != Ok(&parsed.value) {
                let values = [format!("Ok({:?})", parsed.value), format!("{scanned:?}")];
                return Err(format!("JSON: {}", difference(&values[0], &values[1])));
            }
            let mut written = String::new();
            yaml::write(&parsed.value, &mut written);
            let reparsed = yaml::parse(&written).map(|parsed| parsed.value);
            if reparsed.as_ref() != Ok(&parsed.value) {
                let differences =
                    difference(&format!("Ok({:?})", parsed.value), &format!("{reparsed:?}"));
                return Err(format!("{differences}\nas\n{written}"));
            }
        }
        attempt(schema, body, Format::Yaml)
    },
};

pub const PROTOBUF: Target = Target {
    name: "protobuf",
    seeds: || seeds(Format::Protobuf),
    dictionary: &[
        b"k8s\0",
        b"\x0a",
        b"\x12",
        b"\x1a\0\"\0",
        b"\x08\x01",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\xff\xff\xff\xff\x0f",
        b"\x0b",
        b"\x0c",
        b"\x0d",
        b"\x09",
        b"\x0f",
        b"\0",
        b"\x0a\0",
        b"{\"a\":1}",
    ],
    attempt: |input| match split(input) {
        Some((schema, body)) => attempt(schema, body, Format::Protobuf),
        None => Ok(0),
    },
};

pub const CBOR: Target = Target {
    name: "cbor",
    seeds: || seeds(Format::Cbor),
    dictionary: &[
        b"\xd9\xd9\xf7",
        b"\x9f",
        b"\xbf",
        b"\xff",
        b"\x5f",
        b"\x7f",
        b"\xf6",
        b"\xf7",
        b"\xf4",
        b"\xf9\x7e\0",
        b"\xfa\x7f\x80\0\0",
        b"\xc0",
        b"\xc1",
        b"\xc2",
        b"\xd6",
        b"\xd5",
        b"\xd7",
        b"\x81",
        b"\xa1",
        b"\x41",
        b"\x1b\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x3b\x80\0\0\0\0\0\0\0",
        b"\x9b\0\0\0\xff\0\0\0\0",
    ],
    attempt: |input| match split(input) {
        Some((schema, body)) => attempt(schema, body, Format::Cbor),
        None => Ok(0),
    },
};

/// Splits an input into the schema, whose index is the first byte, and the body.
fn split(input: &[u8]) -> Option<(&'static Schema, &[u8])> {
    let (index, body) = input.split_first()?;
    let schemas = schemas();
    Some((&schemas[usize::from(*index) % schemas.len()], body))
}

fn decode(schema: &Schema, body: &[u8], format: Format) -> Result<Decoded, String> {
    decode::decode(schema, body, format, &|gvk| gvk == &schema.gvk)
        .map_err(|error| error.message.to_string())
}

fn attempt(schema: &Schema, body: &[u8], format: Format) -> Result<u64, String> {
    let decoded = match decode(schema, body, format) {
        Ok(decoded) => decoded,
        Err(message) => return Ok(hash_outcome(&message)),
    };
    for to in FORMATS {
        let encoded = encode(schema, &decoded.object, to);
        // Other formats than JSON and the original one may be unable to represent the object.
        if to != format && to != Format::Json {
            continue;
        }
        let encoded = encoded?;
        let second = decode(schema, &encoded, to)?;
        // The first object may lack members that are always written, so the bytes are compared.
        let reencoded = encode(schema, &second.object, to)?;
        if reencoded != encoded || !second.strict_errors.is_empty() {
            let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
            let differences = difference(&text(&encoded), &text(&reencoded));
            return Err(format!("{to:?}: {:?} {differences}", second.strict_errors));
        }
        let third = decode(schema, &reencoded, to)?.object;
        if third != second.object {
            let text = |obj: &Object| format!("{obj:?}");
            return Err(format!("{to:?}: {}", difference(&text(&second.object), &text(&third))));
        }
    }
    Ok(hash_shape(schema, &decoded))
}

/// Returns a hash that distinguishes objects of different kinds and sizes, but not by their
/// content.
fn hash_shape(schema: &Schema, decoded: &Decoded) -> u64 {
    let strict = decoded.strict_errors.len().min(3);
    let size = member_count(&decoded.object).ilog2();
    hash_outcome(&format!("{}{}{}", schema.gvk.kind, "s".repeat(strict), "x".repeat(size as usize)))
}

/// Returns the number of members of an object, at all depths, plus 1.
fn member_count(obj: &Object) -> usize {
    fn count(value: &Value) -> usize {
        match value {
            Value::Array(items) => items.iter().map(count).sum::<usize>() + 1,
            Value::Object(map) => map.iter().map(|(_, value)| count(value)).sum::<usize>() + 1,
            _ => 1,
        }
    }
    obj.root.iter().map(|(_, value)| count(value)).sum::<usize>() + 1
}
