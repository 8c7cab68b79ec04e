//! Lists and maps: how they merge, and how long they may be.

use super::{CONVENTIONS_SUBOBJECTS, CONVENTIONS_VALIDATION};
use crate::definition::{Field, Part, Role, Version};
use crate::finding::{Check, Report, Rule, Severity};

pub static OBJECTS: Rule = Rule {
    id: "list-type",
    severity: Severity::Warning,
    section: CONVENTIONS_SUBOBJECTS,
    summary: "A list of objects says how it is merged: x-kubernetes-list-type.",
    advice: "Use `map` with x-kubernetes-list-map-keys where items have a name or another key, `atomic` where one \
             writer owns the list. Without it the list is atomic: of two appliers, the last wins the whole list.",
    check: Check::Field(objects),
};

pub static SCALARS: Rule = Rule {
    id: "list-type-scalars",
    severity: Severity::Advice,
    section: CONVENTIONS_SUBOBJECTS,
    summary: "A list of strings or numbers says how it is merged: x-kubernetes-list-type.",
    advice: "Use `set` where order does not matter and no value occurs twice, else `atomic`.",
    check: Check::Field(scalars),
};

pub static MAP: Rule = Rule {
    id: "map-of-objects",
    severity: Severity::Warning,
    section: CONVENTIONS_SUBOBJECTS,
    summary: "Objects with names are in a list with a name field, not in a map.",
    advice: "All keys in a manifest are then fields of the API. Use a list of type map with the key `name`.",
    check: Check::Field(map),
};

pub static LIST_LENGTH: Rule = Rule {
    id: "list-length",
    severity: Severity::Advice,
    section: CONVENTIONS_VALIDATION,
    summary: "Lists in the spec have a maximum length.",
    advice: "Add `maxItems`. The estimated cost of CEL rules about items is multiplied by it.",
    check: Check::Field(list_length),
};

pub static STRING_LENGTH: Rule = Rule {
    id: "string-length",
    severity: Severity::Advice,
    section: CONVENTIONS_VALIDATION,
    summary: "Strings in the spec have a maximum length.",
    advice: "Add `maxLength`. The estimated cost of CEL rules about the string is multiplied by it.",
    check: Check::Field(string_length),
};

fn is_list_without_type(field: &Field<'_>) -> bool {
    field.kind() == "array" && !field.has("x-kubernetes-list-type")
}

/// Returns the type of the items of a list.
fn item_kind<'a>(field: &Field<'a>) -> &'a str {
    let items = field.schema.get("items");
    items.and_then(|items| items.str_at(&["type"])).unwrap_or_default()
}

fn objects(version: &Version<'_>, field: &Field<'_>, report: &mut Report) {
    // Conditions have rules of their own.
    let is_conditions = field.field == "status.conditions";
    if is_list_without_type(field) && item_kind(field) == "object" && !is_conditions {
        report.field(version, field, "", "the list of objects has no x-kubernetes-list-type");
    }
}

fn scalars(version: &Version<'_>, field: &Field<'_>, report: &mut Report) {
    if is_list_without_type(field) && !matches!(item_kind(field), "object" | "array") {
        report.field(version, field, "", "the list has no x-kubernetes-list-type");
    }
}

fn map(version: &Version<'_>, field: &Field<'_>, report: &mut Report) {
    if field.role != Role::MapValue || field.members().next().is_none() {
        return;
    }
    if let Some(parent) = version.parent(field) {
        let message = "is a map of objects; write a list whose items have a name";
        report.field(version, parent, "additionalProperties", message);
    }
}

fn list_length(version: &Version<'_>, field: &Field<'_>, report: &mut Report) {
    if field.kind() == "array" && field.part == Part::Spec && !field.has("maxItems") {
        report.field(version, field, "", "the list has no maxItems");
    }
}

fn string_length(version: &Version<'_>, field: &Field<'_>, report: &mut Report) {
    let is_bounded = ["maxLength", "enum", "format"].iter().any(|name| field.has(name));
    if field.kind() == "string" && field.part == Part::Spec && !is_bounded {
        report.field(version, field, "", "the string has no maxLength");
    }
}
