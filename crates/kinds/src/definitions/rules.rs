//! Validates the fields of `x-kubernetes-validations` other than the CEL expressions.

use super::field_path;
use super::members::{invalid, listed, not_supported, required, text};
use keelson_meta::{ErrorList, Map, Value};

const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Validates the rules of one schema, without the schemas inside it.
pub(super) fn validate(schema: &Map, field: &str, errors: &mut ErrorList) {
    for (i, rule) in listed(schema, "x-kubernetes-validations").enumerate() {
        validate_rule(rule, schema, &format!("{field}.x-kubernetes-validations[{i}]"), errors);
    }
}

fn validate_rule(rule: &Map, schema: &Map, path: &str, errors: &mut ErrorList) {
    let field = |name: &str| format!("{path}.{name}");
    let source = text(rule, "rule").trim();
    let message = text(rule, "message");
    let trimmed = message.trim();
    if source.is_empty() {
        errors.push(required(field("rule"), "rule is not specified"));
    } else if !message.is_empty() && trimmed.is_empty() {
        errors.push(invalid(field("message"), message, "must be non-empty if specified"));
    } else if has_line_breaks(trimmed) {
        errors.push(invalid(field("message"), message, "must not contain line breaks"));
    } else if has_line_breaks(source) && trimmed.is_empty() {
        let why = "message must be specified if rule contains line breaks";
        errors.push(required(field("message"), why));
    }
    let expression = text(rule, "messageExpression");
    if !expression.is_empty() && expression.trim().is_empty() {
        let why = "messageExpression must be non-empty if specified";
        errors.push(required(field("messageExpression"), why));
    }
    if let Some(reason) = rule.get("reason").and_then(Value::as_str)
        && !REASONS.contains(&reason)
    {
        errors.push(not_supported(field("reason"), reason, &REASONS));
    }
    let path = text(rule, "fieldPath");
    if path.is_empty() {
        return;
    }
    if path.trim().is_empty() {
        errors.push(invalid(field("fieldPath"), path, "must be non-empty if specified"));
    }
    if has_line_breaks(path) {
        errors.push(invalid(field("fieldPath"), path, "must not contain line breaks"));
    }
    // Paths are not validated in a schema that cannot be structural.
    let is_readable = super::structural::unsupported(schema, 0).is_none();
    if is_readable && field_path::find(path, schema, true).is_err() {
        errors.push(invalid(field("fieldPath"), path, "must be a valid path"));
    }
}

fn has_line_breaks(text: &str) -> bool {
    text.contains(['\n', '\r'])
}
