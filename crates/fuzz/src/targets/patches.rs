//! Patches: an object and a change of it, in one JSON text.

use super::{Target, answer};
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
    words: &[
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
    let of = |name: &str| parsed.value.get(name).cloned().unwrap_or_default();
    let (doc, patch) = (of("doc"), of("patch"));
    let place = usize::try_from(of("schema").as_int().unwrap_or_default()).unwrap_or_default();
    let schema = &schemas()[place % schemas().len()];
    let words = [
        changed(json_patch::apply(doc.clone(), &patch)),
        changed(merge_patch::apply(doc.clone(), &patch)),
        changed(strategic::apply(schema, doc.clone(), patch.clone())),
        fields(&patch)?,
        merged(schema, doc, &patch)?,
    ];
    Ok(words.iter().fold(0, |all: u64, word| all.rotate_left(7) ^ answer(word)))
}

/// What a patch did, in a few words.
fn changed(result: Result<Value, impl std::fmt::Display>) -> String {
    match result {
        Ok(value) => {
            // What comes out can be written.
            let mut text = vec![];
            json::write_value(&value, &mut text);
            value.type_name().to_owned()
        }
        Err(error) => error.to_string(),
    }
}

/// A set of fields is the same when it was written and read again.
fn fields(tree: &Value) -> Result<String, String> {
    let set = match FieldSet::decode(tree) {
        Ok(set) => set,
        Err(error) => return Ok(error.to_string()),
    };
    let written = set.encode();
    match FieldSet::decode(&written) {
        Ok(back) if back == set => Ok("a set".to_owned()),
        back => Err(format!("{set:?} became {back:?} as {written:?}")),
    }
}

/// A configuration that is merged twice changes nothing the second time.
fn merged(schema: &Schema, live: Value, config: &Value) -> Result<String, String> {
    let Value::Object(config_root) = config else { return Ok("no map".to_owned()) };
    let live = match decode::canonicalize(schema, live) {
        Ok(decoded) => decoded.object,
        Err(why) => return Ok(why),
    };
    if let Err(misfits) = typed::check(schema, config) {
        return Ok(misfits.to_string());
    }
    let once = match typed::merge(schema, &live.root, config_root) {
        Ok(once) => once,
        Err(misfits) => return Ok(misfits.to_string()),
    };
    match typed::merge(schema, &once, config_root) {
        Ok(twice) if twice == once => Ok("merged".to_owned()),
        twice => Err(format!("merged once {once:?} and twice {twice:?}")),
    }
}
