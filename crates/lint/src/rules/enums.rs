//! Constants, booleans and unions.

use super::{CONVENTIONS_CONSTANTS, CONVENTIONS_PRIMITIVE, CONVENTIONS_UNIONS};
use crate::definition::{Field, Part, Version};
use crate::finding::{Check, Report, Rule, Severity};
use keelson_meta::{Map, Value};

pub const CASE: Rule = Rule {
    id: "enum-case",
    severity: Severity::Warning,
    section: CONVENTIONS_CONSTANTS,
    summary: "The values of an enum are in CamelCase with an initial capital: ClusterFirst, TCP.",
    advice: "Names of programs and other proper names keep their own case (systemd, iptables): disable the rule where \
             all values are such names.",
    check: Check::Field(case),
};

pub const BOOLEAN: Rule = Rule {
    id: "boolean",
    severity: Severity::Advice,
    section: CONVENTIONS_PRIMITIVE,
    summary: "Think twice about a boolean: many grow a third value.",
    advice: "An enum of named policies can grow without a new field that contradicts the old one.",
    check: Check::Field(boolean),
};

pub const DISCRIMINATOR: Rule = Rule {
    id: "union-discriminator",
    severity: Severity::Advice,
    section: CONVENTIONS_UNIONS,
    summary: "A union has a discriminator: a string that names the member that is set.",
    advice: "With one, a client that knows fewer members can tell that it does not understand the object.",
    check: Check::Field(discriminator),
};

/// Words of other standards that keep their case: log levels, states of booleans, nothing.
const FOREIGN: [&str; 20] = [
    "trace", "debug", "info", "warn", "warning", "error", "fatal", "panic", "true", "false", "yes",
    "no", "on", "off", "none", "auto", "json", "yaml", "text", "logfmt",
];
/// Letters up to which a word in capitals is an acronym or a method of HTTP.
const CAPITALS_MAX: usize = 7;

fn case(version: &Version<'_>, field: &Field<'_>, report: &mut Report) {
    let values: Vec<&str> = field.list("enum").iter().filter_map(Value::as_str).collect();
    let is_word = |value: &&&str| value.chars().any(char::is_alphabetic);
    let words: Vec<&&str> = values.iter().filter(is_word).collect();
    if words.iter().any(|word| FOREIGN.contains(&word.to_lowercase().as_str())) {
        return;
    }
    let has_camel_case = words.iter().any(|word| is_camel_case(word));
    let wrong: Vec<String> = words
        .iter()
        // Beside values in CamelCase, one in lower case is a proper name.
        .filter(|word| !is_camel_case(word) && (!has_camel_case || word.contains(['_', ' '])))
        .map(|word| format!("{word:?}"))
        .collect();
    if wrong.is_empty() {
        return;
    }
    let shown = match wrong.len() {
        ..=3 => wrong.join(", "),
        count => format!("{}, and {} more", wrong[..2].join(", "), count - 2),
    };
    report.field(version, field, "enum", format!("values are not in CamelCase: {shown}"));
}

fn is_camel_case(word: &str) -> bool {
    let is_shouted = word.chars().all(|c| !c.is_lowercase());
    word.starts_with(|c: char| c.is_ascii_uppercase() || c.is_ascii_digit())
        && !word.contains(['_', ' '])
        && (!is_shouted || word.len() <= CAPITALS_MAX)
        // Versions such as TLS1.2, and names such as application/json, have other characters.
        && !word.contains('-')
        || word.contains(['/', '.', ':', '*'])
}

fn boolean(version: &Version<'_>, field: &Field<'_>, report: &mut Report) {
    if field.is_named() && field.kind() == "boolean" && field.part == Part::Spec {
        report.field(version, field, "type", "the boolean cannot grow");
    }
}

fn discriminator(version: &Version<'_>, field: &Field<'_>, report: &mut Report) {
    let alternatives = field.list("oneOf");
    let names_member = |alternative: &Value| {
        let required = alternative.array_at(&["required"]);
        required.len() == 1 && alternative.as_object().is_some_and(|map| map.len() == 1)
    };
    if alternatives.len() < 2 || !alternatives.iter().all(names_member) {
        return;
    }
    let properties = field.schema.get("properties").and_then(Value::as_object);
    let has_discriminator = properties
        .into_iter()
        .flat_map(Map::iter)
        .any(|(_, member)| !member.array_at(&["enum"]).is_empty());
    if !has_discriminator {
        report.field(version, field, "oneOf", "the union has no discriminator");
    }
}
