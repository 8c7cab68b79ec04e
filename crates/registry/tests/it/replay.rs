//! Replays requests recorded from the reference, and counts the equal responses.

use crate::compare;
use crate::harness::{self, Harness};
use bytes::Bytes;
use keelson_meta::{Features, Value, value};
use keelson_records::Record;
use keelson_resources::EtcdCodec;
use keelson_schema::json;
use keelson_testkit::prerequisites::reference_data;
use keelson_testkit::transcript::normal::without_values;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// Minimum number of equal responses; only increased.
const ALIKE_MIN: usize = 1098;

const FOLDERS: &[&str] = &["kinds", "rest/kinds", "ext"];

/// Kinds whose rules are in other crates.
const SKIPPED: &[&str] = &["customresourcedefinitions", "apiservices"];

#[derive(Default)]
struct Score {
    alike: usize,
    all: usize,
    lines: Vec<String>,
    kinds: BTreeMap<String, (usize, usize)>,
}

#[tokio::test]
#[allow(clippy::print_stdout)]
async fn recorded_requests_get_the_recorded_responses() {
    let Some(root) = reference_data("conformance/transcripts") else { return };
    let only = std::env::var("KEELSON_ONLY").unwrap_or_default();
    let mut files = vec![];
    for folder in FOLDERS {
        json_files(&root.join(folder), &mut files);
    }
    files.sort();
    let harness = Harness::open().await;
    let mut score = Score::default();
    for (index, file) in files.iter().enumerate() {
        if file.to_string_lossy().contains(&only) {
            replay(&harness, file, index, &mut score).await;
        }
    }
    for line in &score.lines {
        println!("{line}");
    }
    for (kind, (alike, all)) in &score.kinds {
        println!("{kind}: {alike} of {all}");
    }
    println!("{} of {}", score.alike, score.all);
    recorded_objects_round_trip_through_storage(&harness).await;
    let complete = only.is_empty() && score.all > 0;
    assert!(!complete || score.alike >= ALIKE_MIN, "{} of {}", score.alike, score.all);
}

/// Each stored record of the replay is converted to kube-apiserver's format
/// and back, and must be unchanged, so that servers that share an etcd return the same.
async fn recorded_objects_round_trip_through_storage(harness: &Harness) {
    let form = EtcdCodec::new(&[], Features::default());
    let store = &harness.registry.store;
    let mut watch = store.watch(Bytes::new(), store.floor()).expect("the history is there");
    let mut through = store.floor();
    let mut other = vec![];
    while through < store.revision() {
        let batch = watch.next().await.expect("the history goes on");
        through = batch.through;
        for event in batch.events {
            let Some(record) = event.value else { continue };
            let key = String::from_utf8_lossy(&event.key).into_owned();
            let stored = form.encode(&event.key, &record);
            let back = form.decode(&event.key, stored.unwrap_or_else(|e| panic!("{key}: {e}")));
            // Definitions are stored without their defaults yet.
            if back != record && !key.contains("/customresourcedefinitions/") {
                let text = |record: &Bytes| {
                    let json = Record::json_of(record).map(String::from_utf8_lossy);
                    json.map_or_else(|why| why.into_owned(), |json| json.into_owned())
                };
                other.push(format!("{key}\n  {}\n  {}", text(&record), text(&back)));
            }
        }
    }
    assert!(other.is_empty(), "{} differ:\n{}", other.len(), other.join("\n"));
}

fn json_files(folder: &Path, out: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            json_files(&path, out);
        } else if path.extension().is_some_and(|ending| ending == "json") {
            out.push(path);
        }
    }
}

async fn replay(harness: &Harness, file: &Path, index: usize, score: &mut Score) {
    let text = std::fs::read(file).expect("the recording can be read");
    let scenario = json::parse(&text).expect("a recording is JSON").value;
    let namespace = format!("t{index:010}");
    let body = format!(r#"{{"metadata":{{"name":"{namespace}"}}}}"#);
    harness.send("POST", "/api/v1/namespaces", "", body.as_bytes()).await;
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    harness.send("POST", &path, "", br#"{"metadata":{"name":"default"}}"#).await;
    let mut known: HashMap<String, Value> = HashMap::new();
    known.insert("ns".into(), namespace.as_str().into());
    let name = scenario.str_at(&["name"]).unwrap_or_default().to_owned();
    let answers = scenario.array_at(&["answers"]);
    for (number, (step, want)) in scenario.array_at(&["steps"]).iter().zip(answers).enumerate() {
        let request = Request::new(step, &known);
        let Request { method, path, media_type, body } = &request;
        let Some((code, got)) = harness.send(method, path, media_type, body).await else {
            continue;
        };
        if let Some(id) = step.str_at(&["id"]) {
            known.insert(id.to_owned(), got.clone());
        }
        let resource = harness
            .place(path.split('?').next().unwrap_or_default())
            .map(|p| p.target.gvr().resource.to_string())
            .unwrap_or_default();
        let answer = Answer { code, body: renamed(&got, &namespace) };
        let lines = judge(step, want, &request, &resource, answer);
        let Some(lines) = lines else { continue };
        let kind = score.kinds.entry(resource).or_default();
        kind.1 += 1;
        score.all += 1;
        if lines.is_empty() {
            kind.0 += 1;
            score.alike += 1;
        } else {
            score.lines.push(format!("{name}#{number} {method} {path}"));
            score.lines.extend(lines.into_iter().map(|line| format!("    {line}")));
        }
    }
}

/// A response of this server, with its namespace replaced by that of the recordings.
struct Answer {
    code: u16,
    body: Value,
}

/// Returns the differences of a response; `None` if it is not compared.
fn judge(
    step: &Value,
    want: &Value,
    request: &Request,
    resource: &str,
    answer: Answer,
) -> Option<Vec<String>> {
    let status = want.int_at(&["status"])?;
    let writes = matches!(request.method.as_str(), "POST" | "PUT" | "PATCH");
    if !writes || !matches!(status, 200 | 201 | 422) || SKIPPED.contains(&resource) {
        return None;
    }
    // Authorization and warnings about fields are not part of this test.
    if step.get("user").is_some() || request.path.contains("fieldValidation") {
        return None;
    }
    let Answer { code, body: mut got } = answer;
    let mut want = want.clone();
    for path in step.array_at(&["ignore"]).iter().filter_map(Value::as_str) {
        let parts: Vec<&str> = path.split('.').collect();
        drop_at(&mut got, &parts);
        if let Some(body) = want.as_object_mut().and_then(|map| map.get_mut("body")) {
            drop_at(body, &parts);
        }
    }
    if i64::from(code) != status {
        let mut lines = vec![format!("want {status} got {code}")];
        lines.extend(harness::causes(&got));
        lines.extend(harness::causes(want.get("body")?).iter().map(|line| format!("want {line}")));
        return Some(lines);
    }
    let mut lines = vec![];
    if step.str_at(&["only"]) == Some("status") {
        return Some(lines);
    }
    let mut body = want.get("body")?.clone();
    if let Some(picks) = step.get("pick") {
        for pick in picks.as_array()?.iter().filter_map(Value::as_str) {
            let parts: Vec<&str> = pick.split('.').collect();
            if !is_ours(&parts, resource) {
                continue;
            }
            let found = lookup(&got, &parts).cloned().unwrap_or_default();
            let wanted = body.get(pick).cloned().unwrap_or_default();
            compare::differences(&wanted, &found, pick, &mut lines);
        }
        return Some(lines);
    }
    if status == 422 {
        let want = harness::causes(&body);
        let got = harness::causes(&got);
        compare_causes(&want, &got, &mut lines);
        return Some(lines);
    }
    compare::strip(&mut body);
    compare::strip(&mut got);
    compare::differences(&body, &got, "", &mut lines);
    Some(lines)
}

fn compare_causes(want: &[String], got: &[String], lines: &mut Vec<String>) {
    let same = |a: &String, b: &String| compare::matches(&without_values(a), &without_values(b));
    if want.len() == got.len() && want.iter().zip(got).all(|(a, b)| same(a, b)) {
        return;
    }
    let before = lines.len();
    for line in want.iter().filter(|a| !got.iter().any(|b| same(a, b))) {
        lines.push(format!("- {}", line.replace('\n', "\\n")));
    }
    for line in got.iter().filter(|b| !want.iter().any(|a| same(a, b))) {
        lines.push(format!("+ {}", line.replace('\n', "\\n")));
    }
    if lines.len() == before {
        lines.push("other order or count:".into());
        lines.extend(want.iter().map(|line| format!("want {line}")));
        lines.extend(got.iter().map(|line| format!("got  {line}")));
    }
}

/// Returns whether a field is set by this crate and not by admission or services.
fn is_ours(parts: &[&str], resource: &str) -> bool {
    !matches!(
        (resource, parts),
        (_, ["metadata", "managedFields", ..] | ["metadata", "resourceVersion" | "uid"])
            | ("services", ["spec", "clusterIP" | "clusterIPs" | "ipFamilies", ..])
            | ("services", ["spec", "ipFamilyPolicy" | "healthCheckNodePort"] | ["spec"])
            | ("services", ["spec", "ports", ..])
            | ("pods", ["spec", "tolerations" | "priority" | "preemptionPolicy", ..])
            | ("pods", ["spec", "serviceAccountName" | "serviceAccount"] | ["spec"])
    )
}

fn lookup<'v>(value: &'v Value, parts: &[&str]) -> Option<&'v Value> {
    parts.iter().try_fold(value, |value, part| match value {
        Value::Array(items) => items.get(part.parse::<usize>().ok()?),
        _ => value.get(part),
    })
}

fn drop_at(value: &mut Value, parts: &[&str]) {
    let Some((first, rest)) = parts.split_first() else { return };
    match value {
        Value::Object(map) if rest.is_empty() => {
            map.remove(first);
        }
        Value::Object(map) if *first == "*" => map.iter_mut().for_each(|(_, v)| drop_at(v, rest)),
        Value::Object(map) => {
            if let Some(inner) = map.get_mut(first) {
                drop_at(inner, rest);
            }
        }
        Value::Array(items) if *first == "*" => items.iter_mut().for_each(|v| drop_at(v, rest)),
        Value::Array(items) => {
            if let Some(inner) = first.parse::<usize>().ok().and_then(|i| items.get_mut(i)) {
                drop_at(inner, rest);
            }
        }
        _ => {}
    }
}

/// Replaces the namespace of this run by that of the recordings.
fn renamed(value: &Value, namespace: &str) -> Value {
    match value {
        Value::String(text) => text.replace(namespace, "NS").into(),
        Value::Array(items) => {
            items.iter().map(|v| renamed(v, namespace)).collect::<Vec<_>>().into()
        }
        Value::Object(map) => {
            let pairs = map.iter();
            let pairs =
                pairs.map(|(k, v)| (k.replace(namespace, "NS").into(), renamed(v, namespace)));
            Value::Object(pairs.collect())
        }
        other => other.clone(),
    }
}

struct Request {
    method: String,
    path: String,
    media_type: String,
    body: Vec<u8>,
}

impl Request {
    fn new(step: &Value, known: &HashMap<String, Value>) -> Request {
        let (method, path) =
            step.str_at(&["do"]).and_then(|text| text.split_once(' ')).unwrap_or_default();
        let given = step.str_at(&["headers", "Content-Type"]).unwrap_or_default();
        let media_type = match (method, given) {
            ("PATCH", "") => match step.str_at(&["type"]).unwrap_or("merge") {
                "json" => "application/json-patch+json",
                "strategic" => "application/strategic-merge-patch+json",
                "apply" => "application/apply-patch+yaml",
                _ => "application/merge-patch+json",
            },
            (_, given) => given,
        };
        let mut body = vec![];
        if let Some(value) = step.get("body") {
            json::write_value(value, &mut body);
        } else if let Some(raw) = step.str_at(&["raw"]) {
            body = raw.as_bytes().to_vec();
        }
        let body = plain_numbers(&fill(&String::from_utf8_lossy(&body), known)).into_bytes();
        Request {
            method: method.into(),
            path: fill(path, known),
            media_type: media_type.into(),
            body,
        }
    }
}

/// Replaces `{{id.path}}` by values of earlier responses.
fn fill(text: &str, known: &HashMap<String, Value>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((head, tail)) = rest.split_once("{{") {
        let Some((expression, tail)) = tail.split_once("}}") else { break };
        out.push_str(head);
        let parts: Vec<&str> = expression.trim().split('.').collect();
        let found = known.get(parts[0]).and_then(|value| lookup(value, &parts[1..]));
        match found {
            Some(Value::String(text)) => out.push_str(text),
            other => {
                let mut text = vec![];
                json::write_value(other.unwrap_or(&value!(null)), &mut text);
                out.push_str(&String::from_utf8_lossy(&text));
            }
        }
        rest = tail;
    }
    out.push_str(rest);
    out
}

/// `"{n}5"` in a recorded body is the number 5.
fn plain_numbers(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((head, tail)) = rest.split_once("\"{n}") {
        let Some((number, tail)) = tail.split_once('"') else { break };
        out.push_str(head);
        out.push_str(number);
        rest = tail;
    }
    out.push_str(rest);
    out
}
