//! What a kube-apiserver 1.36.2 refused of generated objects of every kind: objects that it takes, changed
//! at one to three random places. `files/refusals.jsonl` has one request a line, with the causes that were
//! answered with 422: a POST, PUT, apply or patch of `body`, after `base` was created at `at`.
//! One line was kept for each rule that was met.

use crate::compare;
use crate::harness::{self, Harness};
use keelson_meta::Value;
use keelson_schema::json;

const REFUSALS: &str = include_str!("files/refusals.jsonl");

/// Stands for the version under which the base was stored.
const STORED: &str = "{stored}";

#[tokio::test]
async fn generated_objects_are_refused_with_the_causes_of_upstream() {
    let harness = Harness::open().await;
    let namespace = br#"{"metadata":{"name":"n"}}"#;
    harness.send("POST", "/api/v1/namespaces", "", namespace).await;
    let account = br#"{"metadata":{"name":"default"},"automountServiceAccountToken":false}"#;
    harness.send("POST", "/api/v1/namespaces/n/serviceaccounts", "", account).await;
    let mut faults = vec![];
    for (number, line) in REFUSALS.lines().enumerate() {
        let row = json::parse(line.as_bytes()).expect("a line is JSON").value;
        if let Err(why) = replay(&harness, &row).await {
            faults.push(format!("line {}: {why}\n{line}\n", number + 1));
        }
    }
    assert!(faults.is_empty(), "{} lines:\n{}", faults.len(), faults.concat());
}

async fn replay(harness: &Harness, row: &Value) -> Result<(), String> {
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
    let body = written(row.get("body").unwrap_or(&Value::Null));
    let body = String::from_utf8_lossy(&body).replace(STORED, &version);
    let (method, media) = match text("do") {
        "APPLY" => ("PATCH", "application/apply-patch+yaml"),
        "MERGE" => ("PATCH", "application/merge-patch+json"),
        "STRATEGIC" => ("PATCH", "application/strategic-merge-patch+json"),
        "JSON" => ("PATCH", "application/json-patch+json"),
        method => (method, ""),
    };
    let path = format!("{}?dryRun=All&fieldManager=m&force=true", text("path"));
    let sent = harness.send(method, &path, media, body.as_bytes()).await;
    let (code, answer) = sent.ok_or("no such path")?;
    if row.get("base").is_some() {
        let place = text("path").trim_end_matches("/status");
        harness.send("DELETE", place, "", br#"{"gracePeriodSeconds":0}"#).await;
    }
    let got = harness::causes(&answer);
    let got: Vec<String> = got.iter().map(|cause| compare::collapse(cause)).collect();
    let want: Vec<&str> = row.array_at(&["causes"]).iter().filter_map(Value::as_str).collect();
    if code != 422 || got != want {
        return Err(format!("answered {code}: {got:#?}"));
    }
    Ok(())
}

fn written(value: &Value) -> Vec<u8> {
    let mut text = vec![];
    json::write_value(value, &mut text);
    text
}
