//! The decoders: what they take can be written, and is the same when it is read again.

use super::{Target, answer, difference};
use crate::objects::{encode, schemas, seeds};
use keelson_meta::{Object, Value};
use keelson_schema::decode::{self, Decoded, Format};
use keelson_schema::{Schema, json, yaml};

const FORMATS: [Format; 4] = [Format::Json, Format::Yaml, Format::Protobuf, Format::Cbor];

/// Members of the objects of the corpus, and what is special to JSON.
const JSON_WORDS: &[&[u8]] = &[
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
    words: JSON_WORDS,
    attempt: |input| {
        let Some((schema, body)) = split(input) else { return Ok(0) };
        let got = attempt(schema, body, Format::Json)?;
        // The short way to read JSON must be the long way.
        if let Ok(short) = decoded(schema, body, Format::Json)
            && let Ok(parsed) = json::parse(body)
            && let Ok(long) = decode::canonicalize(schema, parsed.value)
            && let [short, long] =
                [short.object, long.object].map(|obj| json::parse_raw(obj.into_value()))
            && short != long
        {
            let text = |obj: &Value| format!("{obj:?}");
            let differs = difference(&text(&short), &text(&long));
            return Err(format!("not the long way: {differs}"));
        }
        Ok(got)
    },
};

pub const YAML: Target = Target {
    name: "yaml",
    seeds: || {
        let odd = [
            &include_bytes!("../../corpus/yaml/scalars.yaml")[..],
            include_bytes!("../../corpus/yaml/aliases.yaml"),
            include_bytes!("../../corpus/yaml/blocks.yaml"),
        ];
        let odd = odd.into_iter().map(|text| [&[2], text].concat());
        seeds(Format::Yaml).into_iter().chain(odd).collect()
    },
    words: &[
        b"- ",
        b": ",
        b"? ",
        b"&a ",
        b"*a",
        b"<<: *a",
        b"|\n  ",
        b">-\n  ",
        b"!!str ",
        b"!!binary ",
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
        if let Ok(text) = std::str::from_utf8(body)
            && let Ok(parsed) = yaml::parse(text)
        {
            let mut again = String::new();
            yaml::write(&parsed.value, &mut again);
            let back = yaml::parse(&again).map(|parsed| parsed.value);
            if back.as_ref() != Ok(&parsed.value) {
                let differs = difference(&format!("Ok({:?})", parsed.value), &format!("{back:?}"));
                return Err(format!("{differs}\nas\n{again}"));
            }
        }
        attempt(schema, body, Format::Yaml)
    },
};

pub const PROTOBUF: Target = Target {
    name: "protobuf",
    seeds: || seeds(Format::Protobuf),
    words: &[
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
    words: &[
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

/// The schema that the first byte of an input names, and the body behind it.
fn split(input: &[u8]) -> Option<(&'static Schema, &[u8])> {
    let (place, body) = input.split_first()?;
    let schemas = schemas();
    Some((&schemas[usize::from(*place) % schemas.len()], body))
}

fn decoded(schema: &Schema, body: &[u8], format: Format) -> Result<Decoded, String> {
    decode::decode(schema, body, format, &|gvk| gvk == &schema.gvk)
        .map_err(|refusal| refusal.message.to_string())
}

fn attempt(schema: &Schema, body: &[u8], format: Format) -> Result<u64, String> {
    let taken = match decoded(schema, body, format) {
        Ok(taken) => taken,
        Err(why) => return Ok(answer(&why)),
    };
    for to in FORMATS {
        let written = encode(schema, &taken.object, to);
        // Not all that one form can say has a place in another one.
        if to != format && to != Format::Json {
            continue;
        }
        let written = written?;
        let back = decoded(schema, &written, to)?;
        // What was read may lack members that are always written, so the bytes are compared.
        let again = encode(schema, &back.object, to)?;
        if again != written || !back.strict_errors.is_empty() {
            let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
            let differs = difference(&text(&written), &text(&again));
            return Err(format!("{to:?}: {:?} {differs}", back.strict_errors));
        }
        let once_more = decoded(schema, &again, to)?.object;
        if once_more != back.object {
            let text = |obj: &Object| format!("{obj:?}");
            return Err(format!("{to:?}: {}", difference(&text(&back.object), &text(&once_more))));
        }
    }
    Ok(shape(schema, &taken))
}

/// A number that tells objects of another shape apart, but not each from each.
fn shape(schema: &Schema, taken: &Decoded) -> u64 {
    let strict = taken.strict_errors.len().min(3);
    let size = members(&taken.object).ilog2();
    answer(&format!("{}{}{}", schema.gvk.kind, "s".repeat(strict), "x".repeat(size as usize)))
}

/// One more than the members of an object, at all depths.
fn members(obj: &Object) -> usize {
    fn count(value: &Value) -> usize {
        match value {
            Value::Array(items) => items.iter().map(count).sum::<usize>() + 1,
            Value::Object(map) => map.iter().map(|(_, value)| count(value)).sum::<usize>() + 1,
            _ => 1,
        }
    }
    obj.root.iter().map(|(_, value)| count(value)).sum::<usize>() + 1
}
