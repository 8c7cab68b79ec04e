//! The objects that are the seeds of the decoders' targets, and their schemas.

use keelson_meta::{GroupVersion, Object};
use keelson_schema::catalogue::Catalogue;
use keelson_schema::decode::{self, Format};
use keelson_schema::{Schema, cbor, json, proto, yaml};
use std::sync::OnceLock;

/// Objects with all shapes of fields.
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

/// Returns the schemas of [`OBJECTS`], in the same order.
pub fn schemas() -> &'static [Schema] {
    static SCHEMAS: OnceLock<Vec<Schema>> = OnceLock::new();
    SCHEMAS.get_or_init(|| OBJECTS.iter().map(|text| schema(text)).collect())
}

fn schema(text: &str) -> Schema {
    let value = json::parse(text.as_bytes()).expect("an object of the corpus").value;
    let field = |name: &str| value.str_at(&[name]).expect("kind and apiVersion").to_owned();
    let group_version = GroupVersion::parse(&field("apiVersion")).expect("a group version");
    let gvk = group_version.kind(field("kind"));
    Catalogue::shared().schema_or_unserved(&gvk).expect("a kind of the catalogue")
}

/// Returns the objects in an encoding. The first byte of each is the index of its schema.
pub fn seeds(format: Format) -> Vec<Vec<u8>> {
    let bodies = OBJECTS.iter().zip(schemas()).zip(0..).map(|((text, schema), index)| {
        let decoded = decode::decode(schema, text.as_bytes(), Format::Json, &|_| true);
        let object = decoded.expect("an object of the corpus").object;
        let body = encode(schema, &object, format).expect("an object of the corpus");
        [&[index], &body[..]].concat()
    });
    bodies.collect()
}

/// Encodes an object. The error is the reason why the encoding cannot represent it.
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
