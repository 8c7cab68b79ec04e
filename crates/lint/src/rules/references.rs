//! References to other objects.

use super::CONVENTIONS_REFERENCES;
use crate::definition::{Field, Role, Version};
use crate::finding::{Check, Report, Rule, Severity};
use crate::words;

pub static NAME: Rule = Rule {
    id: "reference-name",
    severity: Severity::Warning,
    section: CONVENTIONS_REFERENCES,
    summary: "A reference to an object is called somethingRef.",
    advice: "Call it after its purpose: targetRef, scaleTargetRef.",
    check: Check::Field(name),
};

pub static STRING: Rule = Rule {
    id: "reference-string",
    severity: Severity::Warning,
    section: CONVENTIONS_REFERENCES,
    summary: "A field called somethingRef is an object; a reference by name alone is called somethingName.",
    advice: "An object can grow a namespace, a group or a key; a string cannot.",
    check: Check::Field(string),
};

pub static VERSION: Rule = Rule {
    id: "reference-version",
    severity: Severity::Advice,
    section: CONVENTIONS_REFERENCES,
    summary: "A reference to an object names group and resource, or group and kind, but no version.",
    advice: "Which version its reader uses is the reader's business; a stored version outlives its support. Only \
             references to fields need one.",
    check: Check::Field(version_rule),
};

pub static NAMESPACE: Rule = Rule {
    id: "reference-namespace",
    severity: Severity::Advice,
    section: CONVENTIONS_REFERENCES,
    summary: "References of namespaced objects stay in their namespace.",
    advice: "A reference across namespaces lets its author use what he may not read. Both sides must agree, as with \
             ReferenceGrant, or admission must check it.",
    check: Check::Field(namespace),
};

/// The members of references.
const MEMBERS: [&str; 9] =
    ["apiVersion", "fieldPath", "group", "kind", "name", "namespace", "resource", "uid", "version"];
/// Names of references in the API of Kubernetes itself, which kinds follow.
const KNOWN: [&str; 6] =
    ["subject", "subjects", "involvedObject", "regarding", "related", "roleRef"];

/// Whether an object names another by its name and its type.
fn is_reference(field: &Field<'_>) -> bool {
    let mut members = field.members().peekable();
    field.kind() == "object"
        && members.peek().is_some()
        && members.all(|name| MEMBERS.contains(&name))
        && field
            .member("name")
            .is_some_and(|name| name.get("type").and_then(|kind| kind.as_str()) == Some("string"))
        && (field.member("kind").is_some() || field.member("resource").is_some())
}

/// Returns whether a name says that the field is a reference.
fn has_suffix(name: &str) -> bool {
    let last = words::last(name);
    matches!(last.as_str(), "ref" | "refs" | "reference" | "references" | "owner" | "owners")
}

fn name(version: &Version<'_>, field: &Field<'_>, report: &mut Report) {
    // Lists may also select objects, or tell which ones there are.
    let can_be_one = field.role == Role::Member && field.depth > 1;
    let has_group =
        ["group", "apiVersion", "resource"].iter().any(|name| field.member(name).is_some());
    let is_known = has_suffix(field.name) || KNOWN.contains(&field.name);
    if can_be_one && is_reference(field) && has_group && !is_known {
        let message = format!("the reference {:?} is not called somethingRef", field.name);
        report.field(version, field, "", message);
    }
}

fn string(version: &Version<'_>, field: &Field<'_>, report: &mut Report) {
    let is_ref = field.name.ends_with("Ref") && field.is_named();
    if is_ref && field.kind() == "string" {
        let base = field.name.strip_suffix("Ref").unwrap_or(field.name);
        report.field(
            version,
            field,
            "",
            format!("the reference is a string; call it {:?}", format!("{base}Name")),
        );
    }
}

fn version_rule(version: &Version<'_>, field: &Field<'_>, report: &mut Report) {
    if !is_reference(field) || field.member("fieldPath").is_some() || field.depth < 2 {
        return;
    }
    for member in ["apiVersion", "version"] {
        if field.member(member).is_some() {
            let message = format!("the reference has {member}; write group");
            report.field(version, field, &format!("properties[{member}]"), message);
        }
    }
}

fn namespace(version: &Version<'_>, field: &Field<'_>, report: &mut Report) {
    let is_one = has_suffix(field.name) && field.depth > 1 && field.member("name").is_some();
    if version.is_namespaced && is_one && field.member("namespace").is_some() {
        report.field(
            version,
            field,
            "properties[namespace]",
            "the reference may leave the namespace",
        );
    }
}
