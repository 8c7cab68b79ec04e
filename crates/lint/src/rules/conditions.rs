//! `status.conditions`.

use super::CONVENTIONS_CONDITIONS;
use crate::definition::{Field, Role, Version};
use crate::finding::{Check, Report, Rule, Severity};
use keelson_meta::Value;

pub static LIST: Rule = Rule {
    id: "conditions-list",
    severity: Severity::Warning,
    section: CONVENTIONS_CONDITIONS,
    summary: "Conditions are a list of objects.",
    advice: "Use a list of metav1.Condition.",
    check: Check::Version(list),
};

pub static LIST_MAP: Rule = Rule {
    id: "conditions-list-map",
    severity: Severity::Warning,
    section: CONVENTIONS_CONDITIONS,
    summary: "Conditions are a list of type map with the key `type`.",
    advice: "Add `x-kubernetes-list-type: map` and `x-kubernetes-list-map-keys: [type]`, so that several controllers \
             can each apply their own conditions.",
    check: Check::Version(list_map),
};

pub static FIELDS: Rule = Rule {
    id: "condition-fields",
    severity: Severity::Warning,
    section: CONVENTIONS_CONDITIONS,
    summary: "A condition has type, status, lastTransitionTime, reason and message; type and status are required.",
    advice: "Use metav1.Condition, which also requires the other three.",
    check: Check::Version(fields),
};

pub static STATUS_VALUES: Rule = Rule {
    id: "condition-status",
    severity: Severity::Warning,
    section: CONVENTIONS_CONDITIONS,
    summary: "The status of a condition is one of True, False and Unknown.",
    advice: "Add the enum, so that other values are refused.",
    check: Check::Version(status_values),
};

/// The fields that each condition has.
const MEMBERS: [&str; 5] = ["type", "status", "lastTransitionTime", "reason", "message"];
const VALUES: [&str; 3] = ["True", "False", "Unknown"];

/// Returns the conditions, and their items if they are a list of objects.
fn find<'v, 'a>(version: &'v Version<'a>) -> Option<(&'v Field<'a>, Option<&'v Field<'a>>)> {
    let list = version.find("status.conditions")?;
    let is_item = |field: &&Field<'_>| {
        field.role == Role::Item
            && field.field == "status.conditions[*]"
            && field.kind() == "object"
    };
    Some((list, version.fields.iter().find(is_item)))
}

fn list(version: &Version<'_>, report: &mut Report) {
    if let Some((list, None)) = find(version) {
        report.field(version, list, "", "the conditions are not a list of objects");
    }
}

fn list_map(version: &Version<'_>, report: &mut Report) {
    let Some((list, Some(_))) = find(version) else { return };
    let keys: Vec<&str> =
        list.list("x-kubernetes-list-map-keys").iter().filter_map(Value::as_str).collect();
    if list.text("x-kubernetes-list-type") != "map" || keys != ["type"] {
        report.field(
            version,
            list,
            "",
            "the conditions are no list of type map with the key `type`",
        );
    }
}

fn fields(version: &Version<'_>, report: &mut Report) {
    let Some((_, Some(item))) = find(version) else { return };
    let missing: Vec<&str> =
        MEMBERS.iter().filter(|name| item.member(name).is_none()).copied().collect();
    if !missing.is_empty() {
        let message = format!("the conditions have no {}", missing.join(", "));
        return report.field(version, item, "", message);
    }
    let optional: Vec<&str> =
        ["type", "status"].into_iter().filter(|name| !item.requires(name)).collect();
    if !optional.is_empty() {
        let message = format!("the conditions do not require {}", optional.join(", "));
        report.field(version, item, "", message);
    }
}

fn status_values(version: &Version<'_>, report: &mut Report) {
    let status = version.find("status.conditions[*].status");
    let Some(status) = status.filter(|status| status.kind() == "string") else { return };
    let mut values: Vec<&str> = status.list("enum").iter().filter_map(Value::as_str).collect();
    values.sort_unstable();
    let is_same = values.len() == VALUES.len() && VALUES.iter().all(|value| values.contains(value));
    if !is_same {
        let message =
            "the status of a condition may have other values than True, False and Unknown";
        report.field(version, status, "", message);
    }
}
