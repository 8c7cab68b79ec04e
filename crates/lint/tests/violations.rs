//! Each rule is broken once in a file whose comments say where, and never in another.

use keelson_lint::{Finding, RULES, lint};
use keelson_schema::yaml::{Places, parse_with_places};

/// A rule with the line of its finding.
type Place = (u32, String);

fn findings(text: &str) -> Vec<(u32, Finding)> {
    let mut all = vec![];
    let mut lines_before = 0;
    for document in text.split("---\n") {
        let (parsed, places): (_, Places) = parse_with_places(document).expect("the file is YAML");
        let found = lint(&parsed.value).into_iter();
        all.extend(
            found.map(|finding| (lines_before + places.find(&finding.path).place.line, finding)),
        );
        lines_before += document.lines().count() as u32 + 1;
    }
    all
}

/// Returns the rules that comments name.
fn marks(text: &str) -> Vec<Place> {
    let mut marks: Vec<Place> = vec![];
    for (line, content) in (1..).zip(text.lines()) {
        let Some((code, comment)) = content.rsplit_once(" # ") else { continue };
        if !code.trim().is_empty() {
            marks.push((line, comment.trim().to_owned()));
        }
    }
    marks
}

#[test]
fn each_rule_is_reported_once_at_its_line() {
    let text = include_str!("files/violations.yaml");
    let found = findings(text);
    let mut got: Vec<Place> =
        found.iter().map(|(line, finding)| (*line, finding.rule.id.to_owned())).collect();
    got.sort();
    let mut want = marks(text);
    want.sort();
    let unexpected: Vec<_> = got.iter().filter(|place| !want.contains(place)).collect();
    let missing: Vec<_> = want.iter().filter(|place| !got.contains(place)).collect();
    assert!(
        unexpected.is_empty() && missing.is_empty(),
        "unexpected: {unexpected:#?}, missing: {missing:#?}"
    );
    assert_eq!(got, want);
    let mut rules: Vec<&str> = got.iter().map(|(_, rule)| rule.as_str()).collect();
    rules.sort_unstable();
    let mut all: Vec<&str> = RULES.iter().map(|rule| rule.id).collect();
    all.sort_unstable();
    assert_eq!(rules, all);
}

#[test]
fn nothing_is_reported_of_a_definition_that_follows_the_conventions() {
    let found = findings(include_str!("files/clean.yaml"));
    let shown: Vec<String> = found
        .iter()
        .map(|(line, one)| format!("{line}: {} {}", one.rule.id, one.message))
        .collect();
    assert!(found.is_empty(), "{shown:#?}");
}

#[test]
fn ids_are_words_with_dashes_and_texts_are_sentences() {
    for rule in RULES {
        let is_word =
            rule.id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        assert!(is_word, "{}", rule.id);
        for text in [rule.summary, rule.advice] {
            assert!(text.ends_with('.') && !text.contains("://"), "{}: {text}", rule.id);
        }
    }
}
