//! Compares documents with those of kube-apiserver with every version enabled, except for
//! descriptions.

use keelson_schema::catalogue::Catalogue;
use keelson_schema::openapi::OpenApi;
use keelson_testkit::prerequisites::reference_data;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

type IsServed = dyn Fn(&str, &str, &str) -> bool;

/// All resources that kube-apiserver with default feature gates can serve.
fn everything(group: &str, version: &str, resource: &str) -> bool {
    let groups = Catalogue::shared().groups.iter().filter(|known| known.name == group);
    let versions = groups.flat_map(|group| &group.versions).filter(|known| known.name == version);
    let mut resources = versions.flat_map(|version| &version.resources);
    resources.any(|known| known.name == resource && known.gate.is_none())
}

/// Removes descriptions, which are our own.
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

/// Removes the zero values of list items and map values, and the `allOf` that holds a reference
/// beside one: the build that was recorded left them out. See
/// `items_of_lists_and_maps_say_their_zero_value`.
fn without_item_defaults(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for name in ["items", "additionalProperties"] {
                // A property may have such a name; its schema has a description.
                let Some(Value::Object(item)) = map.get_mut(name) else { continue };
                item.remove("default");
                if let Some([Value::Object(only)]) =
                    item.get("allOf").and_then(Value::as_array).map(Vec::as_slice)
                {
                    *item = only.clone();
                }
            }
            map.values_mut().for_each(without_item_defaults);
        }
        Value::Array(items) => items.iter_mut().for_each(without_item_defaults),
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

/// Compares two documents and prints the number of differences and the first ones.
fn compare(name: &str, want: &[u8], got: &[u8]) -> usize {
    let [want, got] = [want, got].map(|text| {
        let mut document: Value = serde_json::from_slice(text).expect("a document is JSON");
        without_texts(&mut document);
        without_item_defaults(&mut document);
        document
    });
    let mut out = vec![];
    differences("", &want, &got, &mut out);
    println!("{name}: {} differences", out.len());
    for difference in out.iter().take(20) {
        println!("    {}", difference.chars().take(400).collect::<String>());
    }
    out.len()
}

#[test]
fn v3_documents_match_kube_apiserver() {
    let Some(folder) = reference_data("reference") else { return };
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

#[test]
fn v2_document_matches_kube_apiserver() {
    let Some(folder) = reference_data("reference") else { return };
    let openapi = OpenApi::new(Catalogue::shared(), &everything);
    let want = fs::read(folder.join("openapi-v2.json")).expect("the file is readable");
    assert_eq!(compare("v2", &want, &openapi.v2_document()), 0);
}

/// As the OpenAPI documents of Kubernetes 1.36 (api/openapi-spec/v3 in its source).
#[test]
fn items_of_lists_and_maps_say_their_zero_value() {
    let openapi = OpenApi::new(Catalogue::shared(), &everything);
    let document = openapi.v3_document("api/v1").expect("the core group");
    let document: Value = serde_json::from_slice(&document).expect("the document is JSON");
    let property = |of: &str| {
        let (name, member) = of.split_once(' ').expect("a type and a member");
        let schemas = &document["components"]["schemas"];
        schemas[format!("io.k8s.api.core.v1.{name}")]["properties"][member].clone()
    };
    let reference = |name: &str| json!({"$ref": format!("#/components/schemas/io.k8s.{name}")});
    let of_pods = json!({"allOf": [reference("api.core.v1.Pod")], "default": {}});
    for (of, keyword, want) in [
        ("Container args", "items", json!({"type": "string", "default": ""})),
        ("PodList items", "items", of_pods),
        (
            "PodSecurityContext supplementalGroups",
            "items",
            json!({"type": "integer", "format": "int64", "default": 0}),
        ),
        ("ConfigMap data", "additionalProperties", json!({"type": "string", "default": ""})),
        // Types with a schema of their own making, and bytes, have none.
        (
            "ConfigMap binaryData",
            "additionalProperties",
            json!({"type": "string", "format": "byte"}),
        ),
        (
            "ResourceRequirements limits",
            "additionalProperties",
            reference("apimachinery.pkg.api.resource.Quantity"),
        ),
    ] {
        assert_eq!(property(of)[keyword], want, "{of}");
    }
}

/// Paths that have a description in `want` and none in `got`.
fn undescribed(place: &str, want: &Value, got: &Value, out: &mut Vec<String>) {
    if want["description"].is_string() && !got["description"].is_string() {
        out.push(place.to_owned());
    }
    let members = want.as_object().into_iter().flatten();
    let items = want.as_array().into_iter().flatten().enumerate();
    for (name, want) in members {
        undescribed(&format!("{place}>{name}"), want, &got[name], out);
    }
    for (i, want) in items {
        undescribed(&format!("{place}>{i}"), want, &got[i], out);
    }
}

#[test]
fn what_kube_apiserver_describes_has_a_description() {
    let Some(folder) = reference_data("reference") else { return };
    let openapi = OpenApi::new(Catalogue::shared(), &everything);
    let want = fs::read(folder.join("openapi-v2.json")).expect("the file is readable");
    let want: Value = serde_json::from_slice(&want).expect("the reference is JSON");
    let got: Value = serde_json::from_slice(&openapi.v2_document()).expect("the document is JSON");
    let mut missing = vec![];
    undescribed("", &want, &got, &mut missing);
    println!("{} descriptions missing", missing.len());
    assert_eq!(missing, Vec::<String>::new());
}

/// Only apps/v1 without daemon sets.
fn some(group: &str, version: &str, resource: &str) -> bool {
    group == "apps" && version == "v1" && resource != "daemonsets"
}

#[test]
fn only_what_is_served_is_shown() {
    let openapi = OpenApi::new(Catalogue::shared(), &some);
    let paths = openapi.v3_paths();
    let in_groups: Vec<&str> =
        paths.iter().map(String::as_str).filter(|path| path.starts_with("api")).collect();
    assert_eq!(in_groups, ["apis", "apis/apps", "apis/apps/v1"]);
    assert!(openapi.v3_document("apis/batch/v1").is_none());
    assert!(openapi.v3_document("apis/batch").is_none());
    let document = openapi.v3_document("apis/apps/v1").expect("apps/v1 is served");
    let document: Value = serde_json::from_slice(&document).expect("the document is JSON");
    let paths = document["paths"].as_object().expect("paths are an object");
    assert!(paths.contains_key("/apis/apps/v1/deployments"));
    assert!(!paths.contains_key("/apis/apps/v1/daemonsets"));
    assert!(document["components"]["schemas"]["io.k8s.api.apps.v1.DaemonSet"].is_null());
    let v2: Value = serde_json::from_slice(&openapi.v2_document()).expect("the document is JSON");
    assert!(v2["parameters"]["command-Py3eQybp"].is_null());
    assert!(v2["definitions"]["io.k8s.api.apps.v1.Deployment"].is_object());
}

#[test]
fn the_index_names_each_document_and_a_hash_of_what_is_served() {
    let index = |is_served: &IsServed| {
        let openapi = OpenApi::new(Catalogue::shared(), is_served);
        let documents: BTreeMap<_, _> = openapi.v3_hashes(|_| true).into_iter().collect();
        let index = OpenApi::v3_index(&documents);
        let index: Value = serde_json::from_slice(&index).expect("the index is JSON");
        let url = &index["paths"]["apis/apps/v1"]["serverRelativeURL"];
        url.as_str().expect("the url is text").to_owned()
    };
    let all = index(&everything);
    let few = index(&some);
    let hash = all.strip_prefix("/openapi/v3/apis/apps/v1?hash=").expect("the url has a hash");
    assert!(hash.len() == 128 && hash.bytes().all(|b| b"0123456789ABCDEF".contains(&b)), "{hash}");
    assert_eq!(all, index(&everything));
    assert_ne!(all, few);
}

#[test]
fn the_protobuf_form_has_the_same_paths_and_definitions() {
    let openapi = OpenApi::new(Catalogue::shared(), &everything);
    let json: Value = serde_json::from_slice(&openapi.v2_document()).expect("it is JSON");
    let document = openapi.v2_document_protobuf();
    let parts = fields(&document);
    let part = |number| parts.iter().find(|(n, _)| *n == number).expect("the part is there").1;
    for (name, at, inner) in [("paths", 8, 2), ("definitions", 9, 1), ("parameters", 10, 1)] {
        let named = fields(part(at)).into_iter().map(|(number, pair)| {
            assert_eq!(number, inner);
            String::from_utf8_lossy(fields(pair)[0].1).into_owned()
        });
        let want = json[name].as_object().expect("the part is an object");
        assert_eq!(named.collect::<BTreeSet<_>>(), want.keys().cloned().collect());
    }
}

/// Returns numbers and contents of the length-delimited fields of a message.
fn fields(mut message: &[u8]) -> Vec<(u64, &[u8])> {
    let mut out = vec![];
    while !message.is_empty() {
        let key = varint(&mut message);
        let number = varint(&mut message);
        if key & 7 == 2 {
            let length = usize::try_from(number).expect("a length fits");
            let (content, rest) = message.split_at(length);
            out.push((key >> 3, content));
            message = rest;
        }
    }
    out
}

fn varint(message: &mut &[u8]) -> u64 {
    let end = message.iter().position(|byte| *byte < 0x80).expect("the number ends") + 1;
    let (number, rest) = message.split_at(end);
    *message = rest;
    number.iter().rev().fold(0, |sum, byte| sum << 7 | u64::from(byte & 0x7f))
}
