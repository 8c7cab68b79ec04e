//! Validation rules in CEL.

use super::{CONVENTIONS_VALIDATION, server};
use crate::definition::{Definition, Field, Version};
use crate::finding::{Check, Report, Rule, Severity};
use crate::words;
use keelson_kinds::expressions::{
    ESTIMATED_RULE_COST_MAX, ESTIMATED_SCHEMA_COST_MAX, estimated_costs,
};

pub static MESSAGE: Rule = Rule {
    id: "rule-message",
    severity: Severity::Warning,
    section: CONVENTIONS_VALIDATION,
    summary: "A validation rule has a message.",
    advice: "Without one, users see the expression. Say what must hold, in `message` or `messageExpression`.",
    check: Check::Field(message),
};

pub static MESSAGE_WORDS: Rule = Rule {
    id: "rule-message-words",
    severity: Severity::Warning,
    section: CONVENTIONS_VALIDATION,
    summary: "Messages say \"must\", not \"should\", and \"greater than\", not \"bigger than\".",
    advice: "A message that says \"should\" reads as if the object had been accepted.",
    check: Check::Field(message_words),
};

pub static COST: Rule = Rule {
    id: "rule-cost",
    severity: Severity::Warning,
    section: super::SERVER,
    summary: "The estimated cost of CEL rules is below half of its limit.",
    advice: "A longer list or one more rule exceeds the limit, and the server refuses the definition. Add maxItems, \
             maxProperties and maxLength where the rule looks.",
    check: Check::Definition(cost),
};

/// Words that messages do not use, with those that they do.
const WORDS: [(&str, &str); 4] = [
    ("should", "must"),
    ("bigger than", "greater than"),
    ("larger than", "greater than"),
    ("higher than", "greater than"),
];
/// The share of a limit in percent from which a cost is reported.
const COST_PERCENT: u64 = 50;

fn message(version: &Version<'_>, field: &Field<'_>, report: &mut Report) {
    for (i, rule) in field.rules().iter().enumerate() {
        let has = |name: &str| rule.str_at(&[name]).is_some_and(|text| !text.trim().is_empty());
        if !has("message") && !has("messageExpression") {
            let member = format!("x-kubernetes-validations[{i}]");
            let shown = format!("validation rule {} has no message", i + 1);
            report.field(version, field, &member, shown);
        }
    }
}

fn message_words(version: &Version<'_>, field: &Field<'_>, report: &mut Report) {
    for (i, rule) in field.rules().iter().enumerate() {
        let text = rule.str_at(&["message"]).unwrap_or_default();
        let lower = text.to_lowercase();
        let wrong = WORDS.iter().find(|(word, _)| match word.contains(' ') {
            true => lower.contains(word),
            false => words::has_word(text, word),
        });
        if let Some((word, better)) = wrong {
            let member = format!("x-kubernetes-validations[{i}].message");
            report.field(
                version,
                field,
                &member,
                format!("the message says {word:?}; write {better:?}"),
            );
        }
    }
}

fn cost(definition: &Definition<'_>, report: &mut Report) {
    let Some(object) = server::complete(definition) else { return };
    let mut total: u64 = 0;
    let mut of_version = String::new();
    for (path, cost) in estimated_costs(&object) {
        let path = server::path_in_file(&path);
        let version = path.split(".schema").next().unwrap_or_default().to_owned();
        if version != of_version {
            (of_version, total) = (version, 0);
        }
        let was_below = percent(total, ESTIMATED_SCHEMA_COST_MAX) < COST_PERCENT;
        total = total.saturating_add(cost);
        let share = percent(cost, ESTIMATED_RULE_COST_MAX);
        let total_share = percent(total, ESTIMATED_SCHEMA_COST_MAX);
        // Beyond the limit, the server's own error says so.
        if (COST_PERCENT..=100).contains(&share) {
            let message = format!("the estimated cost is {share}% of the limit for a rule");
            report.definition(path, message);
        } else if was_below && (COST_PERCENT..=100).contains(&total_share) {
            let message = format!(
                "with this rule, the estimated cost of all is {total_share}% of the limit for a schema"
            );
            report.definition(path, message);
        }
    }
}

fn percent(cost: u64, limit: u64) -> u64 {
    cost.saturating_mul(100) / limit
}
