//! The YAML reader compared with recorded outcomes of sigs.k8s.io/yaml, and with the writer. See
//! `yaml/README.md`.

use base64::Engine;
use keelson_meta::Value;
use keelson_schema::decode::yaml_strict;
use keelson_schema::{json, yaml};

/// Returns the text of a case, and its outcome.
fn read(case: &Value) -> (Vec<u8>, Result<(Value, String), String>) {
    let field = |name: &str| case.str_at(&[name]).unwrap_or_default().to_owned();
    let base64 = base64::engine::general_purpose::STANDARD;
    let text = match case.str_at(&["bytes"]) {
        Some(bytes) => base64.decode(bytes).expect("base64"),
        None => field("text").into_bytes(),
    };
    let outcome = match case.str_at(&["error"]) {
        Some(error) => Err(error.to_owned()),
        None => Ok((case.get("value").cloned().unwrap_or_default(), field("strict"))),
    };
    (text, outcome)
}

/// Compares the reader with a file of cases, and returns their number.
fn check(recorded: &str) -> usize {
    let mut faults = vec![];
    for (number, line) in recorded.lines().enumerate() {
        let case = json::parse(line.as_bytes()).expect("each line is JSON").value;
        let (text, want) = read(&case);
        let got = yaml::parse(&text)
            .map(|parsed| (parsed.value, yaml_strict(&parsed.duplicates).concat()))
            .map_err(|error| error.to_string());
        if got != want {
            let text = text.escape_ascii();
            faults.push(format!("line {}: \"{text}\"\n  {got:?}\n  {want:?}", number + 1));
        }
    }
    assert!(faults.is_empty(), "{}:\n{}", faults.len(), faults.join("\n"));
    recorded.lines().count()
}

#[test]
fn texts_are_read_as_by_upstream() {
    assert_eq!(check(include_str!("yaml/cases.jsonl")), 2946);
    assert_eq!(check(include_str!("yaml/suite.jsonl")), 406);
}

#[test]
fn what_is_written_is_read_again() {
    let recorded = [include_str!("yaml/cases.jsonl"), include_str!("yaml/suite.jsonl")].concat();
    for line in recorded.lines() {
        let case = json::parse(line.as_bytes()).expect("each line is JSON").value;
        let (text, outcome) = read(&case);
        // The text itself is written as a string.
        let text = Value::from(String::from_utf8_lossy(&text).into_owned());
        for value in outcome.into_iter().map(|(value, _)| value).chain([text]) {
            let mut written = String::new();
            yaml::write(&value, &mut written);
            let parsed = yaml::parse(&written).map(|parsed| parsed.value);
            assert_eq!(parsed.as_ref(), Ok(&value), "{written}");
        }
    }
}
