//! Generated objects of every kind round-trip in every encoding, and truncated or modified bytes
//! are rejected without a panic.

use crate::generate::Generator;
use keelson_meta::{GroupVersionKind, Object, Value};
use keelson_schema::catalogue::Catalogue;
use keelson_schema::decode::{self, Format};
use keelson_schema::{Schema, cbor, json, proto, yaml};

const FORMATS: [Format; 4] = [Format::Json, Format::Yaml, Format::Protobuf, Format::Cbor];

/// Number of objects of each kind.
const OBJECTS_PER_KIND: u64 = 8;
/// Number of modifications of each encoded object.
const CHANGES_PER_BODY: usize = 6;

fn encode(schema: &Schema, obj: &Object, format: Format) -> Vec<u8> {
    let mut out = vec![];
    match format {
        Format::Json => drop(json::encode(schema, obj, &mut out)),
        Format::Yaml => {
            json::encode(schema, obj, &mut out);
            let value = json::parse(&out).expect("what was written is JSON").value;
            let mut text = String::new();
            yaml::write(&value, &mut text);
            out = text.into_bytes();
        }
        Format::Protobuf => proto::encode(schema, obj, &mut out).expect("the object fits"),
        Format::Cbor => cbor::encode(schema, obj, &mut out),
    }
    out
}

fn read(schema: &Schema, body: &[u8], format: Format) -> Result<Object, String> {
    match decode::decode(schema, body, format, &|_| true) {
        Ok(decoded) if decoded.strict_errors.is_empty() => Ok(parse_raw(decoded.object)),
        Ok(decoded) => Err(format!("{:?}", decoded.strict_errors)),
        Err(refusal) => Err(format!("{refusal:?}")),
    }
}

/// Parses raw values: YAML and CBOR do not keep their text.
fn parse_raw(obj: Object) -> Object {
    Object::from_value(json::parse_raw(obj.into_value())).expect("a map")
}

/// Returns the schemas of all kinds, in a fixed order.
fn schemas() -> Vec<Schema> {
    let catalogue = Catalogue::shared();
    let mut kinds: Vec<_> = catalogue.all_kinds().cloned().collect();
    kinds.sort();
    // A watch event is not an object, and a table has no protobuf.
    kinds.retain(|gvk| gvk.kind != "WatchEvent" && gvk.kind != "Table");
    kinds.iter().filter_map(|gvk| catalogue.schema_or_unserved(gvk)).collect()
}

/// Generates an object in the form that JSON decoding returns, including fields that are always
/// encoded.
fn object(schema: &Schema, seed: u64) -> Object {
    let value = Generator::new(seed).object(schema);
    let decoded = decode::canonicalize(schema, value)
        .unwrap_or_else(|why| panic!("{} seed {seed}: {why}", schema.gvk.kind));
    let body = encode(schema, &decoded.object, Format::Json);
    read(schema, &body, Format::Json)
        .unwrap_or_else(|why| panic!("{} seed {seed}: {why}", schema.gvk.kind))
}

#[test]
fn generated_objects_round_trip_in_every_encoding() {
    let mut count = 0;
    for schema in schemas() {
        for seed in 0..OBJECTS_PER_KIND {
            let obj = object(&schema, seed);
            for format in FORMATS {
                let body = encode(&schema, &obj, format);
                let back = read(&schema, &body, format);
                if back.as_ref() != Ok(&obj) {
                    let shown = |obj: &Object| {
                        String::from_utf8_lossy(&encode(&schema, obj, Format::Json)).into_owned()
                    };
                    panic!(
                        "{:?} seed {seed} {format:?}\n in  {}\n out {:?}",
                        schema.gvk,
                        shown(&obj),
                        back.as_ref().map(shown)
                    );
                }
                assert_eq!(encode(&schema, &back.expect("equal"), format), body);
                count += 1;
            }
        }
    }
    println!("{count} bodies");
}

/// Decodes a JSON body by parsing and canonicalizing. Returns `None` if it is rejected.
fn long_way(schema: &Schema, body: &[u8]) -> Option<Object> {
    let value = json::parse(body).ok()?.value;
    decode::canonicalize(schema, value).ok().map(|decoded| parse_raw(decoded.object))
}

/// Returns the value with the members of every map in reverse order.
fn reversed(value: &Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.iter().map(reversed).collect()),
        Value::Object(map) => {
            let entries = map.iter().rev().map(|(key, value)| (key.clone(), reversed(value)));
            Value::Object(entries.collect())
        }
        other => other.clone(),
    }
}

#[test]
fn json_fast_path_agrees_with_the_slow_path() {
    for schema in schemas() {
        for seed in 0..OBJECTS_PER_KIND {
            // Not in canonical form: zero values, empty lists and arbitrary numbers.
            let value = Generator::new(seed).object(&schema);
            for value in [reversed(&value), value] {
                let mut body = b" ".to_vec();
                json::write_value(&value, &mut body);
                let short = read(&schema, &body, Format::Json).ok();
                assert!(short.is_some());
                assert_eq!(short, long_way(&schema, &body), "{:?} seed {seed}", schema.gvk);
                let text = |obj: &Option<Object>| {
                    obj.as_ref().map(|obj| encode(&schema, obj, Format::Json))
                };
                assert_eq!(text(&short), text(&long_way(&schema, &body)));
            }
        }
    }
}

#[test]
fn json_fast_path_rejects_what_it_cannot_decode() {
    let schema =
        Catalogue::shared().schema(&GroupVersionKind::new("", "v1", "Pod")).expect("a Pod");
    // Digits, and whether a Pod accepts them as a number.
    let mut bodies: Vec<(String, bool)> = [
        ("0", true),
        ("7", true),
        ("123456789012", true),
        ("-5", true),
        ("12 ", true),
        ("1e1", false),
    ]
    .into_iter()
    .chain([("", false), ("01", false), ("1.5", false), ("-", false), ("1x", false)])
    .chain([("tru", false), ("\"1\"", false)])
    .map(|(digits, is_read)| {
        (format!("{{\"spec\":{{\"activeDeadlineSeconds\":{digits}}}}}"), is_read)
    })
    .collect();
    let members = ["\"nodeName\":\"a\"", "\"hostname\":\"b\"", "\"hostNetwork\":true"];
    let odd = ["\"n\\u006fdeName\":\"c\"", "\"hostname\":\"\\u0064\"", "\"hostNetwork\":tru"];
    for a in members.iter().chain(&odd) {
        for b in members {
            for c in members.iter().chain(&odd) {
                let is_read = [a, c].iter().all(|member| !member.ends_with("tru"));
                bodies.push((format!("{{\"spec\":{{{a},{b} ,{c}}}}}"), is_read));
            }
        }
    }
    for (body, is_read) in bodies {
        let got = decode::decode(&schema, body.as_bytes(), Format::Json, &|_| true).ok();
        assert_eq!(got.is_some(), is_read, "{body}");
        assert_eq!(got.map(|decoded| decoded.object), long_way(&schema, body.as_bytes()), "{body}");
    }
}

#[test]
fn truncated_and_modified_bodies_are_handled() {
    for (kind, schema) in schemas().iter().enumerate().step_by(3) {
        let mut random = Generator::new(kind as u64);
        let obj = object(schema, kind as u64);
        for format in FORMATS {
            let body = encode(schema, &obj, format);
            for _ in 0..CHANGES_PER_BODY {
                let mut body = body.clone();
                let at = random.below(body.len());
                if random.below(3) == 0 {
                    body.truncate(at);
                } else {
                    body[at] = random.below(256) as u8;
                    let at = random.below(body.len());
                    body[at] ^= 1 << random.below(8);
                }
                if format == Format::Json
                    && let Ok(short) = read(schema, &body, format)
                {
                    assert_eq!(Some(short), long_way(schema, &body));
                }
                // A body that still decodes can be encoded.
                if let Ok(changed) = read(schema, &body, format) {
                    for format in FORMATS {
                        encode(schema, &changed, format);
                    }
                }
            }
        }
    }
}
