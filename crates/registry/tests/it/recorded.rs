//! What a kube-apiserver 1.36.2 answered to generated writes of every kind: objects that it takes, changed at
//! one to three random places. A line is one request: a POST, PUT, apply or patch of `body`, after `base` was
//! created at `at`. `files/refusals.jsonl` has one line for each rule that was met, with the causes of the
//! 422; `files/accepted.jsonl` one for each kind and verb, with the whole answer; `files/others.jsonl` one for each
//! way to refuse a request without causes, or to warn: unknown fields, wrong types, other kinds. The statuses in
//! `before` are written before the request. `crates/keelson/tests/clients/refusals.py` records refusals.

use crate::compare;
use crate::harness::{self, Harness};
use keelson_meta::status::quote;
use keelson_meta::{Str, Value};
use keelson_schema::json;

const REFUSALS: &str = include_str!("files/refusals.jsonl");
const ACCEPTED: &str = include_str!("files/accepted.jsonl");
const OTHERS: &str = include_str!("files/others.jsonl");

/// Stands for the version under which the base was stored.
const STORED: &str = "{stored}";

#[tokio::test]
async fn generated_objects_are_refused_with_the_causes_of_upstream() {
    hold(REFUSALS, |row, code, answer, _| {
        let got = harness::causes(answer);
        let got: Vec<String> = got.iter().map(|cause| compare::collapse(cause)).collect();
        let want = row.array_at(&["causes"]).iter().filter_map(Value::as_str);
        if code == 422 && want.eq(got.iter().map(String::as_str)) {
            return vec![];
        }
        vec![format!("answered {code}: {got:#?}")]
    })
    .await;
}

#[tokio::test]
async fn generated_objects_are_stored_as_upstream_stores_them() {
    hold(ACCEPTED, |row, code, answer, _| {
        let mut answer = answer.clone();
        if let Some(root) = answer.as_object_mut() {
            let metadata = root.object_at("metadata");
            for name in ["uid", "resourceVersion", "creationTimestamp"] {
                metadata.remove(name);
            }
        }
        let mut want = row.get("answer").cloned().unwrap_or_default();
        by_manager(&mut want);
        by_manager(&mut answer);
        let mut lines = vec![];
        compare::differences(&want, &answer, "", &mut lines);
        if row.int_at(&["code"]) != Some(i64::from(code)) {
            lines.push(format!("answered {code}"));
        }
        lines
    })
    .await;
}

#[tokio::test]
async fn odd_requests_are_answered_in_the_words_of_upstream() {
    hold(OTHERS, |row, code, answer, warnings| {
        let is_refusal = answer.str_at(&["kind"]) == Some("Status");
        let message = if is_refusal { answer.str_at(&["message"]) } else { None };
        let message = compare::collapse(&without_object(message.unwrap_or_default()));
        // What a server says of old versions it says itself.
        let want = row.array_at(&["warnings"]).iter().filter_map(Value::as_str);
        let mut want: Vec<String> =
            want.filter(|text| !text.contains(" is deprecated in ")).map(str::to_owned).collect();
        let mut got: Vec<String> =
            warnings.iter().map(|text| format!("299 - {}", quote(text))).collect();
        want.sort();
        got.sort();
        let is_alike = row.int_at(&["code"]) == Some(i64::from(code))
            && row.str_at(&["message"]) == Some(message.as_str())
            && want == got;
        if is_alike {
            vec![]
        } else {
            vec![format!("answered {code}: {message}\nwarnings: {got:?}")]
        }
    })
    .await;
}

/// A message that shows a whole object, without it.
fn without_object(message: &str) -> String {
    const BEFORE: &str = "Invalid value: \"{";
    const AFTER: &str = "}\": ";
    match (message.find(BEFORE), message.rfind(AFTER)) {
        (Some(start), Some(end)) if start < end => {
            format!(
                "{}Invalid value: (object): {}",
                &message[..start],
                &message[end + AFTER.len()..]
            )
        }
        _ => message.to_owned(),
    }
}

/// Sorts the owners of fields by name: their order goes by time, and a second may end at any moment.
fn by_manager(answer: &mut Value) {
    let Some(root) = answer.as_object_mut() else { return };
    if let Some(Value::Array(list)) = root.object_at("metadata").get_mut("managedFields") {
        list.sort_by_key(|entry| {
            let text = |name: &str| entry.str_at(&[name]).unwrap_or_default().to_owned();
            (text("manager"), text("operation"), text("subresource"))
        });
    }
}

/// All rows are answered as they should be: `differences` finds none.
async fn hold(rows: &str, differences: impl Fn(&Value, u16, &Value, &[Str]) -> Vec<String>) {
    let harness = Harness::open().await;
    let namespace = br#"{"metadata":{"name":"n"}}"#;
    harness.send("POST", "/api/v1/namespaces", "", namespace).await;
    let account = br#"{"metadata":{"name":"default"},"automountServiceAccountToken":false}"#;
    harness.send("POST", "/api/v1/namespaces/n/serviceaccounts", "", account).await;
    let mut faults = vec![];
    for (number, line) in rows.lines().enumerate() {
        let row = json::parse(line.as_bytes()).expect("a line is JSON").value;
        let lines = match replay(&harness, &row).await {
            Ok((code, answer, warnings)) => differences(&row, code, &answer, &warnings),
            Err(why) => vec![why],
        };
        if !lines.is_empty() {
            faults.push(format!("line {}: {}\n{line}\n", number + 1, lines.join("\n")));
        }
    }
    assert!(faults.is_empty(), "{} lines:\n{}", faults.len(), faults.concat());
}

/// What the request of a row is answered.
async fn replay(harness: &Harness, row: &Value) -> Result<(u16, Value, Vec<Str>), String> {
    let text = |name: &str| row.str_at(&[name]).unwrap_or_default();
    let mut version = String::new();
    if let Some(base) = row.get("base") {
        let sent = harness.send("POST", text("at"), "", &written(base)).await;
        let (code, made) = sent.ok_or("no such path")?;
        if code != 201 {
            return Err(format!("the base was answered {code}: {made:?}"));
        }
        version = made.str_at(&["metadata", "resourceVersion"]).unwrap_or_default().to_owned();
    }
    for earlier in row.array_at(&["before"]) {
        let mut body = row.get("base").cloned().unwrap_or_default();
        if let Some(root) = body.as_object_mut() {
            root.insert("status", earlier.clone());
        }
        let sent = harness.send("PUT", text("path"), "", &written(&body)).await;
        let (code, made) = sent.ok_or("no such path")?;
        if code != 200 {
            return Err(format!("an earlier status was answered {code}: {made:?}"));
        }
        version = made.str_at(&["metadata", "resourceVersion"]).unwrap_or_default().to_owned();
    }
    let body = written(row.get("body").unwrap_or(&Value::Null));
    let body = String::from_utf8_lossy(&body).replace(STORED, &version);
    let (method, media) = match text("do") {
        "APPLY" => ("PATCH", "application/apply-patch+yaml"),
        "MERGE" => ("PATCH", "application/merge-patch+json"),
        "STRATEGIC" => ("PATCH", "application/strategic-merge-patch+json"),
        "JSON" => ("PATCH", "application/json-patch+json"),
        method => (method, ""),
    };
    let path = format!("{}?dryRun=All&fieldManager=m&force=true{}", text("path"), text("query"));
    let sent = harness.ask(method, &path, media, body.as_bytes()).await;
    let answered = sent.ok_or("no such path")?;
    if row.get("base").is_some() {
        let place = text("path").trim_end_matches("/status");
        harness.send("DELETE", place, "", br#"{"gracePeriodSeconds":0}"#).await;
    }
    Ok(answered)
}

fn written(value: &Value) -> Vec<u8> {
    let mut text = vec![];
    json::write_value(value, &mut text);
    text
}
