//! Constants, booleans and unions.

use super::{CONVENTIONS_CONSTANTS, CONVENTIONS_PRIMITIVE, CONVENTIONS_UNIONS};
use crate::definition::{Field, Part, Version};
use crate::finding::{Check, Report, Rule, Severity};
use keelson_meta::{Map, Value};

pub static CASE: Rule = Rule {
    id: "enum-case",
    severity: Severity::Warning,
    section: CONVENTIONS_CONSTANTS,
    summary: "The values of an enum are in CamelCase with an initial capital: ClusterFirst, TCP.",
    advice: "Names of programs and other proper names keep their own case (systemd, iptables): disable the rule where \
             all values are such names.",
    check: Check::Field(case),
};

pub static BOOLEAN: Rule = Rule {
    id: "boolean",
    severity: Severity::Advice,
    section: CONVENTIONS_PRIMITIVE,
    summary: "Think twice about a boolean: many grow a third value.",
    advice: "An enum of named policies can grow without a new field that contradicts the old one.",
    check: Check::Field(boolean),
};

pub static DISCRIMINATOR: Rule = Rule {
    id: "union-discriminator",
    severity: Severity::Advice,
    section: CONVENTIONS_UNIONS,
    summary: "A union has a discriminator: a string that names the member that is set.",
    advice: "With one, a client that knows fewer members can tell that it does not understand the object.",
    check: Check::Field(discriminator),
};

/// Words that are no names of programs, protocols or formats: in lower case, they are constants of
/// the author.
const PLAIN_WORDS: [&str; 64] = [
    "active",
    "all",
    "allow",
    "always",
    "any",
    "append",
    "authenticated",
    "automatic",
    "block",
    "client",
    "cluster",
    "create",
    "critical",
    "daily",
    "default",
    "delete",
    "deny",
    "disabled",
    "enabled",
    "enforce",
    "external",
    "failed",
    "failure",
    "first",
    "force",
    "global",
    "high",
    "hourly",
    "ignore",
    "immediate",
    "inactive",
    "internal",
    "last",
    "latest",
    "low",
    "manual",
    "maximum",
    "medium",
    "merge",
    "minimum",
    "monthly",
    "namespace",
    "never",
    "newest",
    "oldest",
    "optional",
    "owner",
    "pending",
    "permissive",
    "primary",
    "private",
    "public",
    "replace",
    "required",
    "retain",
    "running",
    "secondary",
    "server",
    "skip",
    "strict",
    "success",
    "update",
    "user",
    "weekly",
];

fn case(version: &Version<'_>, field: &Field<'_>, report: &mut Report) {
    let values: Vec<&str> = field.list("enum").iter().filter_map(Value::as_str).collect();
    // A former spelling that is still accepted.
    let has_other_spelling = |value: &str| {
        values.iter().any(|other| *other != value && other.eq_ignore_ascii_case(value))
    };
    let wrong: Vec<String> = values
        .iter()
        .filter(|value| is_other_style(value) && !has_other_spelling(value))
        .map(|value| format!("{value:?}"))
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

/// Whether a constant is in another style than CamelCase, and no proper name.
fn is_other_style(value: &str) -> bool {
    let words: Vec<&str> = value.split(['_', '-']).collect();
    let is_of_letters =
        words.iter().all(|word| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphabetic()));
    // Regions, versions and algorithms have digits or dots; names of other standards have spaces.
    if !is_of_letters {
        return false;
    }
    match words.as_slice() {
        [word] => PLAIN_WORDS.contains(word),
        words => {
            let has_plain_word =
                words.iter().any(|word| PLAIN_WORDS.contains(&word.to_lowercase().as_str()));
            value.contains('_') || has_plain_word
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proper_names_keep_their_case() {
        for (value, want) in [
            ("ClusterFirst", false),
            ("TCP", false),
            ("systemd", false),
            ("us-east-1", false),
            ("cloud-config", false),
            ("TLSv1_2", false),
            ("", false),
            ("always", true),
            ("round_robin", true),
            ("ROUND_ROBIN", true),
            ("if-required", true),
        ] {
            assert_eq!(is_other_style(value), want, "{value}");
        }
    }
}
