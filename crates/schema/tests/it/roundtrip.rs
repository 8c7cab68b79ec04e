//! Recorded objects of each kind, with all fields set, in kube-apiserver's JSON, YAML and protobuf:
//! every encoding decodes to the same object, which encodes to the same bytes. CBOR round-trips
//! too.

use keelson_meta::{GroupVersion, GroupVersionKind, Object, Value, value};
use keelson_schema::catalogue::Catalogue;
use keelson_schema::decode::{self, Format};
use keelson_schema::{Schema, cbor, json, proto, yaml};
use keelson_testkit::prerequisites::reference_data;
use std::path::Path;

/// Parses `apps.v1.Deployment`, `storage.k8s.io.v1beta1.CSINode`, `core.v1.Pod`.
fn kind(stem: &str) -> GroupVersionKind {
    let (rest, kind) = stem.rsplit_once('.').expect("group.version.kind");
    let (group, version) = rest.rsplit_once('.').expect("group.version");
    GroupVersion::new(if group == "core" { "" } else { group }, version).kind(kind)
}

const FORMATS: [(Format, &str); 3] =
    [(Format::Json, "json"), (Format::Yaml, "yaml"), (Format::Protobuf, "pb")];

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
        Format::Cbor => cbor::encode(schema, obj, &mut out),
        Format::Protobuf => proto::encode(schema, obj, &mut out).expect("the object fits"),
    }
    out
}

/// Removes white space between JSON tokens; leaves other formats unchanged.
fn compact(bytes: &[u8], format: Format) -> Vec<u8> {
    if format != Format::Json {
        return bytes.to_vec();
    }
    let mut out = vec![];
    let mut in_string = false;
    let mut escaped = false;
    for byte in bytes {
        if in_string || !byte.is_ascii_whitespace() {
            out.push(*byte);
        }
        match byte {
            b'"' if !escaped => in_string = !in_string,
            _ => {}
        }
        escaped = in_string && *byte == b'\\' && !escaped;
    }
    out
}

/// Parses raw values: YAML and CBOR do not keep their text.
fn parse_raw(obj: Object) -> Object {
    Object::from_value(json::parse_raw(obj.into_value())).expect("a map")
}

/// Returns the number of recorded bodies of an object, or the first error.
fn check(folder: &Path, stem: &str, schema: &Schema) -> Result<usize, String> {
    let mut bodies = vec![];
    for (format, extension) in FORMATS {
        let body = std::fs::read(folder.join(format!("{stem}.{extension}")))
            .map_err(|e| format!("{extension}: {e}"))?;
        let decoded = decode::decode(schema, &body, format, &|_| true)
            .map_err(|status| format!("{extension}: {status:?}"))?;
        if !decoded.strict_errors.is_empty() {
            return Err(format!("{extension}: {:?}", decoded.strict_errors));
        }
        bodies.push((format, extension, body, parse_raw(decoded.object)));
    }
    let stored = encode(schema, &bodies[0].3, Format::Json);
    let parsed = json::parse(&stored).map_err(|e| e.to_string())?.value;
    // Null map values are tested with the parser.
    let read = json::read_stored(schema, &stored).map(Value::Object).map(json::parse_raw);
    if read.is_some_and(|root| root != parsed) {
        return Err("read by its schema it is not what parsing gives".to_owned());
    }
    // There is no recorded CBOR: the encoding of the JSON body takes its place.
    let body = encode(schema, &bodies[0].3, Format::Cbor);
    let decoded = decode::decode(schema, &body, Format::Cbor, &|_| true)
        .map_err(|status| format!("cbor: {status:?}"))?;
    bodies.push((Format::Cbor, "cbor", body, parse_raw(decoded.object)));
    for (_, from, _, obj) in &bodies {
        for (format, to, body, other) in &bodies {
            if obj != other {
                let differs = difference(schema, obj, other);
                return Err(format!("{from} and {to} differ: {differs}"));
            }
            let written = compact(&encode(schema, obj, *format), *format);
            let body = compact(body, *format);
            if written != body {
                let at = written.iter().zip(&body).take_while(|(a, b)| a == b).count();
                let shown = |bytes: &[u8]| {
                    let from = at.saturating_sub(60);
                    String::from_utf8_lossy(&bytes[from..bytes.len().min(at + 60)]).into_owned()
                };
                return Err(format!(
                    "{from} to {to} at {at}:\n  got  {:?}\n  want {:?}",
                    shown(&written),
                    shown(&body)
                ));
            }
        }
    }
    Ok(FORMATS.len())
}

/// Same as [`check`] for a watch frame, which is not an object: its encodings do not contain its
/// kind.
fn check_frame(folder: &Path, stem: &str, schema: &Schema) -> Result<usize, String> {
    let read = |extension: &str| {
        std::fs::read(folder.join(format!("{stem}.{extension}"))).map_err(|e| e.to_string())
    };
    let json = decode::read_value(&read("json")?, Format::Json)?;
    let yaml = decode::read_value(&read("yaml")?, Format::Yaml)?;
    let body = read("pb")?;
    let message = proto::decode_envelope(&body).map_err(|e| e.to_string())?.raw;
    let obj = proto::decode_message(schema, message).map_err(|e| e.to_string())?;
    let mut obj = parse_raw(obj);
    for member in ["kind", "apiVersion"] {
        obj.root.remove(member);
    }
    if obj.root != json.as_object().cloned().unwrap_or_default() || json != yaml {
        return Err(format!("the forms differ: {obj:?}\n{json:?}\n{yaml:?}"));
    }
    let mut object = vec![];
    let mut frame = vec![];
    json::write_value(obj.get("object").unwrap_or(&Value::Null), &mut object);
    proto::encode_watch_frame(obj.str_at(&["type"]), &object, &mut frame);
    // The length precedes the message.
    if frame[4..] != *message {
        return Err(format!("got {frame:?}, want {message:?}"));
    }
    Ok(FORMATS.len())
}

fn difference(schema: &Schema, left: &Object, right: &Object) -> String {
    let left = encode(schema, left, Format::Json);
    let right = encode(schema, right, Format::Json);
    let at = left.iter().zip(&right).take_while(|(a, b)| a == b).count();
    let shown = |bytes: &[u8]| {
        let from = at.saturating_sub(60);
        String::from_utf8_lossy(&bytes[from..bytes.len().min(at + 60)]).into_owned()
    };
    format!("\n  {}\n  {}", shown(&left), shown(&right))
}

#[test]
fn stored_objects_keep_members_that_go_omits() {
    let text = br#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"","creationTimestamp":null},
        "spec":{"containers":[{"name":"a","image":"","resources":{},"args":[]}],"nodeName":""},
        "status":{"conditions":[{"type":"Ready","status":"True","lastProbeTime":null}]}}"#;
    let schema = Catalogue::shared().schema_or_unserved(&kind("core.v1.Pod")).expect("built in");
    let parsed = json::parse(text).expect("JSON").value;
    assert_eq!(json::read_stored(&schema, text).map(Value::Object), Some(parsed));
    assert_eq!(json::read_stored(&schema, br#"{"kind":"Pod","apiVersion":"v1","no":1}"#), None);
}

#[test]
fn compact_managed_fields_stay_text() {
    let schema = Catalogue::shared().schema_or_unserved(&kind("core.v1.Pod")).expect("built in");
    let fields = |text: &str| {
        let text = format!(r#"{{"metadata":{{"managedFields":[{{"fieldsV1":{text}}}]}}}}"#);
        let root = json::read_stored(&schema, text.as_bytes()).expect("an object");
        let metadata = root.get("metadata").expect("metadata");
        metadata.array_at(&["managedFields"])[0].get("fieldsV1").expect("fields").clone()
    };
    let usual = r#"{"f:a":{".":{},"k:{\"n\":1}":{}}}"#;
    assert_eq!(fields(usual), Value::Raw(usual.into()));
    assert_eq!(fields(r#"{"f:a": {}}"#), value!({"f:a": {}}));
    assert_eq!(fields(r#"{"f:a":1}"#), value!({"f:a": 1}));
    let of = |fields: Value| {
        let obj = value!({"metadata": {"managedFields": [{"fieldsV1": (fields)}]}});
        Object::from_value(obj).expect("a map")
    };
    let text = of(Value::Raw(usual.into()));
    let tree = of(json::parse_raw(fields(usual)));
    for format in [Format::Json, Format::Yaml, Format::Protobuf, Format::Cbor] {
        assert_eq!(encode(&schema, &text, format), encode(&schema, &tree, format), "{format:?}");
    }
}

#[test]
fn recorded_objects_round_trip_in_every_encoding() {
    let Some(folder) = reference_data("reference/roundtrip") else { return };
    let mut stems: Vec<String> = std::fs::read_dir(&folder)
        .expect("the folder was there")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".json").map(str::to_owned))
        .collect();
    stems.sort();
    let mut good = 0;
    let mut faults = vec![];
    for stem in &stems {
        let check = if stem.ends_with(".WatchEvent") { check_frame } else { check };
        let schema = Catalogue::shared().schema_or_unserved(&kind(stem));
        match schema.ok_or("no schema".to_owned()).and_then(|schema| check(&folder, stem, &schema))
        {
            Ok(count) => good += count,
            Err(fault) => faults.push(format!("{stem}: {fault}")),
        }
    }
    let all = stems.len() * FORMATS.len();
    println!("{good} of {all} bodies of {} kinds", stems.len());
    assert!(faults.is_empty(), "{good} of {all}\n{}", faults.join("\n"));
    assert_eq!((good, stems.len()), (all, 185));
}

#[test]
fn raw_extension_text_survives_protobuf() {
    let schema = Catalogue::shared()
        .schema_or_unserved(&kind("apps.v1.ControllerRevision"))
        .expect("built in");
    let data = r#"{ "b": 1.0, "a":"\u0041\/" }"#;
    let body = format!(r#"{{"kind":"ControllerRevision","apiVersion":"apps/v1","data":{data}}}"#);
    let decode = |body: &[u8], format| {
        decode::decode(&schema, body, format, &|_| true).expect("a revision").object
    };
    let obj = decode(body.as_bytes(), Format::Json);
    assert_eq!(obj.get("data"), Some(&Value::Raw(data.into())));
    let back = decode(&encode(&schema, &obj, Format::Protobuf), Format::Protobuf);
    assert_eq!(back.get("data"), obj.get("data"));
    let shown = String::from_utf8(encode(&schema, &obj, Format::Json)).expect("UTF-8");
    assert!(shown.contains(r#""data":{"b":1.0,"a":"\u0041\/"}"#), "{shown}");
    let sorted = decode(&encode(&schema, &obj, Format::Yaml), Format::Yaml);
    assert_eq!(sorted.get("data"), Some(&Value::Raw(r#"{"a":"A/","b":1}"#.into())));
}
