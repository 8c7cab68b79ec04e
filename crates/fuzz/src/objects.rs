//! The kinds that the decoders are tried with, and the objects that runs begin with.

use keelson_meta::{GroupVersion, Object};
use keelson_schema::catalogue::Catalogue;
use keelson_schema::decode::{self, Format};
use keelson_schema::{Schema, cbor, json, proto, yaml};
use std::sync::OnceLock;

/// Objects that run the gamut of shapes.
const OBJECTS: [&str; 10] = [
    include_str!("../corpus/objects/pod.json"),
    include_str!("../corpus/objects/deployment.json"),
    include_str!("../corpus/objects/secret.json"),
    include_str!("../corpus/objects/event.json"),
    include_str!("../corpus/objects/quota.json"),
    include_str!("../corpus/objects/definition.json"),
    include_str!("../corpus/objects/revision.json"),
    include_str!("../corpus/objects/policy.json"),
    include_str!("../corpus/objects/autoscaler.json"),
    include_str!("../corpus/objects/options.json"),
];

/// The types of [`OBJECTS`], in their order.
pub fn schemas() -> &'static [Schema] {
    static SCHEMAS: OnceLock<Vec<Schema>> = OnceLock::new();
    SCHEMAS.get_or_init(|| OBJECTS.iter().map(|text| schema(text)).collect())
}

fn schema(text: &str) -> Schema {
    let value = json::parse(text.as_bytes()).expect("an object of the corpus").value;
    let word = |name: &str| value.str_at(&[name]).expect("kind and apiVersion").to_owned();
    let gvk = GroupVersion::parse(&word("apiVersion")).expect("a group version").kind(word("kind"));
    Catalogue::shared().schema_or_unserved(&gvk).expect("a kind that there is")
}

/// The objects in an encoding, each behind the place of its schema.
pub fn seeds(format: Format) -> Vec<Vec<u8>> {
    let bodies = OBJECTS.iter().zip(schemas()).zip(0..).map(|((text, schema), place)| {
        let read = decode::decode(schema, text.as_bytes(), Format::Json, &|_| true);
        let object = read.expect("an object of the corpus").object;
        let body = encode(schema, &object, format).expect("an object of the corpus");
        [&[place], &body[..]].concat()
    });
    bodies.collect()
}

/// An object in an encoding, or why it has no place there.
pub fn encode(schema: &Schema, obj: &Object, format: Format) -> Result<Vec<u8>, String> {
    let mut out = vec![];
    match format {
        Format::Json => drop(json::encode(schema, obj, &mut out)),
        Format::Yaml => {
            json::encode(schema, obj, &mut out);
            let value = json::parse(&out).map_err(|error| error.to_string())?.value;
            let mut text = String::new();
            yaml::write(&value, &mut text);
            out = text.into_bytes();
        }
        Format::Protobuf => {
            proto::encode(schema, obj, &mut out).map_err(|error| error.to_string())?;
        }
        Format::Cbor => cbor::encode(schema, obj, &mut out),
    }
    Ok(out)
}
