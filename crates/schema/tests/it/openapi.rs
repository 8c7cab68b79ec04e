//! The documents are those of a server with every version on, but for the texts of descriptions.

use keelson_schema::catalogue::Catalogue;
use keelson_schema::openapi::OpenApi;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

/// Where documents of a running server lie, if they are there.
fn reference() -> Option<PathBuf> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
    let shared = std::env::var("KEELSON_SHARED").unwrap_or_else(|_| "../shared".to_owned());
    let folder = PathBuf::from(root).join(shared).join("reference");
    if !folder.is_dir() {
        println!("skipped: {} is not there (KEELSON_SHARED names its parent)", folder.display());
        return None;
    }
    Some(folder)
}

fn everything(_: &str, _: &str, _: &str) -> bool {
    true
}

/// Takes out descriptions: their words are our own.
fn without_texts(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|name, value| !(name == "description" && value.is_string()));
            map.values_mut().for_each(without_texts);
        }
        Value::Array(items) => items.iter_mut().for_each(without_texts),
        _ => {}
    }
}

fn differences(place: &str, want: &Value, got: &Value, out: &mut Vec<String>) {
    match (want, got) {
        (Value::Object(want), Value::Object(got)) => {
            let names: BTreeSet<&String> = want.keys().chain(got.keys()).collect();
            for name in names {
                let place = format!("{place}>{name}");
                match (want.get(name), got.get(name)) {
                    (Some(want), Some(got)) => differences(&place, want, got, out),
                    (Some(want), None) => out.push(format!("{place}: missing {want}")),
                    (None, got) => out.push(format!("{place}: too much {got:?}")),
                }
            }
        }
        (Value::Array(want), Value::Array(got)) if want.len() == got.len() => {
            for (i, (want, got)) in want.iter().zip(got).enumerate() {
                differences(&format!("{place}>{i}"), want, got, out);
            }
        }
        _ if want == got => {}
        _ => out.push(format!("{place}: want {want}, got {got}")),
    }
}

/// Compares, prints the number and the first differences.
fn compare(name: &str, want: &[u8], got: &[u8]) -> usize {
    let mut want: Value = serde_json::from_slice(want).expect("the reference is JSON");
    let mut got: Value = serde_json::from_slice(got).expect("the document is JSON");
    without_texts(&mut want);
    without_texts(&mut got);
    let mut out = vec![];
    differences("", &want, &got, &mut out);
    println!("{name}: {} differences", out.len());
    for difference in out.iter().take(20) {
        println!("    {}", difference.chars().take(400).collect::<String>());
    }
    out.len()
}

#[test]
fn v3_documents_are_those_of_a_server() {
    let Some(folder) = reference() else { return };
    let openapi = OpenApi::new(Catalogue::shared(), &everything);
    let mut names = BTreeSet::new();
    let mut total = 0;
    for entry in fs::read_dir(folder.join("openapi-v3")).expect("the folder is readable") {
        let path = entry.expect("the entry is readable").path();
        let file = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
        let name = file.trim_end_matches(".json").replace("__", "/");
        let got = openapi.v3_document(&name).unwrap_or_else(|| panic!("no document {name}"));
        total += compare(&name, &fs::read(&path).expect("the file is readable"), &got);
        names.insert(name);
    }
    assert_eq!(openapi.v3_paths().into_iter().collect::<BTreeSet<_>>(), names);
    assert_eq!(total, 0);
}
