//! Patches. An input is a JSON text with an object, a patch and the index of a schema. All types of
//! patches are applied.

use super::{Target, hash_outcome};
use crate::objects::schemas;
use keelson_apply::fields::FieldSet;
use keelson_apply::{json_patch, merge_patch, strategic, typed};
use keelson_meta::Value;
use keelson_schema::{Schema, decode, json};

pub const PATCH: Target = Target {
    name: "patch",
    seeds: || {
        let texts = [
            &include_bytes!("../../corpus/patches/json.json")[..],
            include_bytes!("../../corpus/patches/merge.json"),
            include_bytes!("../../corpus/patches/strategic.json"),
            include_bytes!("../../corpus/patches/apply.json"),
            include_bytes!("../../corpus/patches/fields.json"),
        ];
        texts.iter().map(|text| text.to_vec()).collect()
    },
    dictionary: &[
        b"{\"op\":\"add\",\"path\":\"/a/-\",\"value\":1}",
        b"\"op\":\"move\",\"from\":\"/a\"",
        b"\"op\":\"copy\"",
        b"\"op\":\"test\"",
        b"\"op\":\"remove\"",
        b"~0",
        b"~1",
        b"/-1",
        b"/0",
        b"\"$patch\":\"replace\"",
        b"\"$patch\":\"delete\"",
        b"\"$patch\":\"merge\"",
        b"\"$retainKeys\":[\"name\"]",
        b"\"$setElementOrder/containers\":[{\"name\":\"a\"}]",
        b"\"$deleteFromPrimitiveList/finalizers\":[\"a\"]",
        b"\"f:a\":{}",
        b"\"k:{\\\"name\\\":\\\"a\\\"}\":{\".\":{}}",
        b"\"v:1\":{}",
        b"\"i:0\":{}",
        b"null",
        b"[]",
        b"{}",
    ],
    attempt,
};

fn attempt(input: &[u8]) -> Result<u64, String> {
    let Ok(parsed) = json::parse(input) else { return Ok(0) };
    let member = |name: &str| parsed.value.get(name).cloned().unwrap_or_default();
    let doc = member("doc");
    let patch = member("patch");
    let index = usize::try_from(member("schema").as_int().unwrap_or_default()).unwrap_or_default();
    let schema = &schemas()[index % schemas().len()];
    let outcomes = [
        describe(json_patch::apply(doc.clone(), &patch)),
        describe(merge_patch::apply(doc.clone(), &patch)),
        describe(strategic::apply(schema, doc.clone(), patch.clone())),
        check_field_set(&patch)?,
        check_merge(schema, doc, &patch)?,
    ];
    Ok(outcomes.iter().fold(0, |all: u64, outcome| all.rotate_left(7) ^ hash_outcome(outcome)))
}

/// Returns the type of the patched value, or the error.
fn describe(result: Result<Value, impl std::fmt::Display>) -> String {
    match result {
        Ok(value) => {
            // Checks that the value can be encoded.
            let mut text = vec![];
            json::write_value(&value, &mut text);
            value.type_name().to_owned()
        }
        Err(error) => error.to_string(),
    }
}

/// Checks that a set of fields is unchanged when it is encoded and decoded again. Returns the
/// outcome.
fn check_field_set(tree: &Value) -> Result<String, String> {
    let set = match FieldSet::decode(tree) {
        Ok(set) => set,
        Err(error) => return Ok(error.to_string()),
    };
    let encoded = set.encode();
    match FieldSet::decode(&encoded) {
        Ok(decoded) if decoded == set => Ok("a set".to_owned()),
        decoded => Err(format!("{set:?} became {decoded:?} as {encoded:?}")),
    }
}

/// Checks that merging an apply configuration a second time changes nothing. Returns the outcome.
fn check_merge(schema: &Schema, live: Value, config: &Value) -> Result<String, String> {
    let Value::Object(config_root) = config else { return Ok("no map".to_owned()) };
    let live = match decode::canonicalize(schema, live) {
        Ok(decoded) => decoded.object,
        Err(message) => return Ok(message),
    };
    if let Err(errors) = typed::validate(schema, config) {
        return Ok(errors.to_string());
    }
    let once = match typed::merge(schema, &live.root, config_root) {
        Ok(once) => once,
        Err(errors) => return Ok(errors.to_string()),
    };
    match typed::merge(schema, &once, config_root) {
        Ok(twice) if twice == once => Ok("merged".to_owned()),
        twice => Err(format!("merged once {once:?} and twice {twice:?}")),
    }
}
